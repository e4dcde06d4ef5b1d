"""What importing a room really loads: the static import graph cannot see imports made inside other libraries."""

from __future__ import annotations

import sys

import pytest

from tests.architecture.source import modules, run_python

NETWORK = {"aiohttp", "httpcore", "httpx", "httpx_aiohttp", "starlette", "uvicorn"}
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
