"""An error that nobody expected may hold anything: what it says is masked where it leaves the process."""

from __future__ import annotations

import base64
import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from opledger.cli import logs, program
from opledger.cli.frame import Flags
from opledger.edges.masking import hide_known
from opledger.edges.secrets import SecretResolver

SECRET = 'Canary-7f3c"9a51/e0d2+b864'


@pytest.fixture
def resolver() -> Iterator[SecretResolver]:
    """Some part of the process that has looked a secret up, and one that has an access token."""
    other = SecretResolver({})
    other.learn("tokens", "Access-Token-5d1e9c0b")
    found = SecretResolver({"KEY": SECRET})
    found.resolve("env:KEY")
    yield found
    assert other.known()


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """What is logged, and logging as it was before."""
    root, handlers, level = logging.getLogger(), logging.getLogger().handlers[:], logging.getLogger().level
    screen = io.StringIO()
    monkeypatch.setattr("sys.stderr", screen)
    logs.configure("debug")
    yield screen
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def deep(secret: str) -> None:
    """Fail as a library does that repeats what it was given."""
    try:
        raise ValueError(f"Invalid header value {secret.encode()!r}")
    except ValueError as error:
        raise RuntimeError(f"request failed: {secret}") from error


def test_a_log_has_no_secret_in_it(resolver: SecretResolver, log: io.StringIO) -> None:
    """Message, arguments, values, tracebacks with their causes, and what another resolver knows."""
    told = base64.b64encode(f"me:{SECRET}".encode()).decode()
    logging.getLogger("some.library").warning("sent %s and %r", SECRET, {"authorization": f"Basic {told}"})
    structlog.get_logger("opledger").info("fetched", token="Access-Token-5d1e9c0b", all=[SECRET])
    try:
        deep(SECRET)
    except RuntimeError as error:
        logging.getLogger("opledger.worker").error("driving %s broke", "op_1", exc_info=error)
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    assert len(lines) == 3
    assert "Invalid header value" in lines[2]["exception"] and "request failed: ***" in lines[2]["exception"]
    for secret in ("Canary-7f3c", "e0d2+b864", told[8:-4], "Access-Token"):
        assert secret not in log.getvalue()
    assert hide_known("nothing") == "nothing"


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("debug", [False, True])
def test_an_unexpected_error_of_a_command_has_none_either(
    resolver: SecretResolver, capsys: pytest.CaptureFixture[str], as_json: bool, debug: bool
) -> None:
    """With --debug and without."""
    with pytest.raises(RuntimeError) as caught:
        deep(SECRET)
    assert program.report(caught.value, Flags(as_json=as_json, debug=debug)) == program.UNEXPECTED
    _, err = capsys.readouterr()
    assert "request failed: ***" in err
    assert "Canary-7f3c" not in err and "e0d2+b864" not in err
