"""What importing a room really loads: the static import graph cannot see imports made inside other libraries."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.architecture.source import modules, run_python

NETWORK = {"aiohttp", "httpcore", "httpx", "starlette", "uvicorn"}
HEAVY = {"aiohttp", "alembic", "apscheduler", "httpx", "pydantic_settings", "sqlalchemy", "sqlmodel", "textual"}
UNTOUCHED = NETWORK | HEAVY | {"psycopg", "sqlite3", "structlog", "ulid"}


def loads(statement: str) -> set[str]:
    """The top-level modules that a fresh interpreter has after a statement and had not before."""
    printed = run_python(
        f"import sys\nbefore = set(sys.modules)\n{statement}\n"
        "print('\\n'.join({name.partition('.')[0] for name in set(sys.modules) - before}))"
    )
    return set(printed.split())


def test_importing_the_package_loads_nothing_foreign() -> None:
    """An agent that only mentions opledger pays nothing for it."""
    foreign = loads("import opledger") - sys.stdlib_module_names - {"opledger"}
    assert foreign == set()


@pytest.mark.parametrize("module", ["opledger.ledger", "opledger.store", "opledger.config"])
def test_submitting_loads_no_http(module: str) -> None:
    """The process of an agent that submits holds no HTTP client, so it cannot send by any path."""
    assert loads(f"import {module}") & NETWORK == set()


def test_the_door_can_be_opened_by_its_short_name() -> None:
    """`from opledger import Ledger` is what the documentation tells people to write."""
    assert "opledger" in loads(
        "from opledger import Ledger, Refused, ProviderBroke; assert issubclass(Refused, Exception)"
    )


def test_the_rules_load_no_library_that_touches_the_world() -> None:
    """The rules stay testable and portable only while none of these is a part of them."""
    rules = [module.name for module in modules() if module.name.startswith("opledger.rules")]
    assert len(rules) > 5
    assert loads(f"import {', '.join(rules)}") & UNTOUCHED == set()


def test_help_loads_nothing_heavy() -> None:
    """`opledger --help` must answer in a blink, so it may not load the database, HTTP or the console."""
    statement = (
        "import contextlib, io, opledger.cli\n"
        "sys.argv = ['opledger', '--help']\n"
        "out = io.StringIO()\n"
        "with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit): opledger.cli.main()\n"
        "assert 'submit' in out.getvalue(), out.getvalue()"
    )
    assert loads(statement) & HEAVY == set()


ELSEWHERE = {
    *("cryptography", "jsonschema_rs", "obstore", "prompt_toolkit", "psycopg", "pygments", "structlog"),
    *("opledger.checkpoints", "opledger.receiver", "opledger.service", "opledger.sim", "opledger.tasks"),
    *("opledger.worker", "opledger_console", "sqlalchemy.dialects.postgresql"),
    *("opledger.edges.sshkeys", "opledger.ledger.health", "opledger.ledger.reviewing", "opledger.ledger.signing"),
    *("opledger.rules.approval_signatures", "opledger.rules.packet", "opledger.rules.review", "opledger.rules.signers"),
    "opledger.rules.sshsig",
}
"""What these commands have no use for. A tenth of their time went into drivers of PostgreSQL for a ledger in a file."""


@pytest.mark.parametrize(
    "words", [("show", "OP"), ("list",), ("submit", "jobs", "--body", "{}")], ids=lambda words: str(words[0])
)
def test_a_short_command_loads_no_more_than_it_needs(words: tuple[str, ...], tmp_path: Path) -> None:
    """People and agents start them all day, so what they load is what they cost: a time would only measure luck."""
    contract = (
        'name = "jobs"\nbase_url = "http://127.0.0.1:9"\n[auth]\nkind = "none"\n'
        '[create]\nmethod = "POST"\npath = "/jobs"\nbody = "json"\njob_id = "/id"\n'
        '[create.idempotency]\nmechanism = "none"\n'
        '[status]\npath = "/jobs/{job_id}"\nstate = "/state"\n[status.states]\nsucceeded = ["done"]\n'
        '[poll]\nfirst = "1s"\n[deadlines]\ncreate = "1m"\nresult = "1h"\n'
    )
    (tmp_path / "jobs.toml").write_text(contract)
    make = (
        "import os, sys\n"
        f"os.environ.update(OPLEDGER_DB={f'sqlite:///{tmp_path}/ledger.db'!r}, OPLEDGER_CONTRACTS={str(tmp_path)!r})\n"
        "from opledger import Ledger\n"
        "with Ledger.open() as ledger: print(ledger.submit('jobs', {}).operation_id)\n"
    )
    op = run_python(make).split()[-1]
    printed = run_python(
        "import os, sys\n"
        f"os.environ.update(OPLEDGER_DB={f'sqlite:///{tmp_path}/ledger.db'!r}, OPLEDGER_CONTRACTS={str(tmp_path)!r})\n"
        "from opledger.cli import main\n"
        f"assert main({[op if word == 'OP' else word for word in words]!r}) == 0\n"
        "print('LOADED', *sys.modules)"
    )
    loaded = set(printed.rpartition("LOADED")[2].split())
    assert "opledger.ledger" in loaded
    assert loaded & (ELSEWHERE | NETWORK | {"alembic", "apscheduler", "cel", "textual"}) == set()


def test_a_command_is_not_held_up_by_looking_for_garbage() -> None:
    """Nothing of what is being loaded is garbage. Afterwards, with Python's own threshold, a fifth of a worker's CPU
    would go into looking through that; and with none, it would keep what it has done with.
    """
    printed = run_python(
        "import gc\nfrom opledger.cli import GARBAGE, LOADING, main\nfrom opledger.cli.frame import Flags, Run\n"
        "main(['--version'])\nloading = gc.get_threshold()[0]\n"
        "Run(Flags(db='sqlite:///x.db')).settings()\nafter = gc.get_threshold()[0]\n"
        "print('FOUND', loading == LOADING, after == GARBAGE, 10_000 <= GARBAGE < LOADING)"
    )
    assert "FOUND True True True" in printed
