# Everything a person does with this tree. On a fresh machine `make demo` and `make test` need only Python >= 3.11 and make.

PYTHON  ?= python3
WORKERS ?= 2
VENV    ?= .venv
BIN     := $(VENV)/bin
READY   := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help demo console test faults soak model chaos hosts mutation check format bench bench-console bench-model \
	bench-peers screenshots wheel clean

help:  ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(READY)  ## real operations against a provider that misbehaves, on this machine only
	@$(BIN)/opledger demo

console: $(READY)  ## the terminal console over your own ledger
	@$(BIN)/opledger console

test: $(READY)  ## the whole test suite (TESTS=path, ARGS='-k word', WORKERS=2)
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile $(ARGS) $(TESTS)

model: $(READY)  ## every order of events in small worlds, and broken designs that must be caught (ARGS='--states N')
	@$(BIN)/python -m tests.model $(ARGS)

faults: $(READY)  ## the reliability programme in its short form, minutes (ARGS='--only crashes')
	@$(BIN)/python -m tests.programme $(ARGS)

soak: $(READY)  ## the reliability programme in its long form, hours
	@$(BIN)/python -m tests.programme --long $(ARGS)

chaos: $(READY)  ## real workers killed, stopped and cut off at random (ARGS='--database postgresql --seconds 600')
	@$(BIN)/python -m tests.chaos $(ARGS)

hosts: $(READY)  ## one of several hosts is cut off, in network namespaces (needs root)
	@$(BIN)/python -m tests.hosts $(ARGS)

mutation: $(READY)  ## change the product in small steps; each change must turn a test red (ARGS='--only rules.decide')
	@$(BIN)/python -m tests.mutation $(ARGS)

check: $(READY)  ## format, lint, types, import rules, architecture: all of CI except the tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q tests/architecture

format: $(READY)  ## rewrite the code in the one format, mend what ruff can mend
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY)  ## speed, as ratios measured side by side in one run
	@$(BIN)/python -m tests.bench $(ARGS)

bench-console: $(READY)  ## the console on a terminal, with up to a million operations (ARGS='--sizes 1000')
	@$(BIN)/python -m tests.bench.console $(ARGS)

bench-model: $(READY)  ## this machine's unit costs, and what they carry (ARGS=--no-postgres)
	@$(BIN)/python -m tests.bench model $(ARGS)

bench-peers: $(READY)  ## beside DBOS, procrastinate and Restate, each in an environment of its own
	@$(BIN)/python -m tests.bench peers $(ARGS)

screenshots: $(READY)  ## the pictures of the console in screenshots/, drawn from the demo's seeded data
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[pictures]'
	@$(BIN)/python -m tests.support.pictures screenshots

wheel: $(READY)  ## build the wheel into dist/
	@$(BIN)/python -m hatchling build -t wheel

clean:  ## remove what these targets made
	rm -rf $(VENV) dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .demo

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "opledger needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Try: make PYTHON=python3.11")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing opledger and its tools into $(VENV) (once; about a minute) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@
