"""A secret that stands where a reference belongs, or anywhere else in a file, is in no message about that file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from opledger.config import load_settings
from opledger.errors import ConfigWrong
from opledger.ledger import Ledger
from opledger.rules.files.contract import ContractInvalid, parse
from opledger.rules.files.settings import parse_settings

CANARY = "sk-live-Canary7f3c9a51e0d2b864"
LIKELY = """\
name = "jobs"
base_url = "https://api.example.com"
result_hosts = ["files.example.com"]
[var]
account = "acct"
[auth]
kind = "oauth2_client_credentials"
secret = "env:SECRET"
client_id = "me"
token_url = "https://id.example.com/token"
scope = "jobs"
audience = "https://api.example.com"
client_auth = "basic"
[headers]
Cookie = "{secret.key}"
X-Key = "{secret.key}"
[secrets]
key = "env:KEY"
[create]
method = "POST"
path = "/jobs"
job_id = "/id"
query = { key = "x" }
headers = { X-More = "{secret.key}" }
fields = { "/key" = "{secret.key}" }
[status]
path = "/jobs/{job_id}"
state = "/state"
[status.states]
succeeded = ["done"]
[webhook]
scheme = "standard"
secret = "env:HOOK"
job_id = "/id"
"""
"""Every place of a contract in which somebody may think that a secret belongs."""

VALUES = [
    match.span(1) for match in re.finditer(r'(?m)^(?!job_id|method|path|state|succeeded).*?= ?\[?("[^"\n]*")', LIKELY)
]


def leaks(text: str) -> bool:
    """True where enough of the canary stands there to be of use."""
    return any(CANARY[at : at + 8] in text for at in range(8, len(CANARY) - 8))


def complaint(source: str) -> str:
    """All that is said of a contract."""
    try:
        parse(source, environment={"CANARY": CANARY}, beside=lambda _: "{}")
    except ContractInvalid as wrong:
        return f"{wrong} {wrong.args} {wrong.problems} " + " ".join(map(str, wrong.problems))
    return ""


@pytest.mark.parametrize(
    "shape", ["{}", "Bearer {}", "https://user:{}@api.example.com", "{}\n", "env:{}x y", "${{{}}}"]
)
def test_a_secret_in_place_of_any_value_of_a_contract(shape: str) -> None:
    """What is wrong is told by key and line alone."""
    assert len(VALUES) > 17
    assert complaint(LIKELY) == ""
    for start, end in VALUES:
        value = '"' + shape.format(CANARY).replace("\n", "\\n") + '"'
        said = complaint(LIKELY[:start] + value + LIKELY[end:])
        assert not leaks(said), (LIKELY[max(0, start - 40) : start], said[:300])


@pytest.mark.parametrize("place", ["key", "table", "comment", "broken line", "unclosed"])
def test_a_secret_elsewhere_in_a_contract(place: str) -> None:
    """Pasted into the wrong line."""
    line = {
        "key": f'"{CANARY}" = 1\n',
        "table": f"[{CANARY}]\nx = 1\n",
        "comment": f"# {CANARY}\nx\n",
        "broken line": f"{CANARY}\n",
        "unclosed": f'x = "{CANARY}\n',
    }[place]
    said = complaint(line + LIKELY)
    assert said
    if place not in ("key", "table"):  # a key that is not known must be named
        assert not leaks(said)


@pytest.mark.parametrize("value", ["{}", "{}://x", "json://me:{}@", "env:{} x", "https//hooks.example.com/{}"])
@pytest.mark.parametrize("line", ["db = {}", "[[notify]]\nurl = {}", "[[notify]]\nurl = [{}]"])
def test_a_secret_in_place_of_a_setting(line: str, value: str) -> None:
    """A notice URL carries a token, a database URL a password."""
    source = line.format(f'"{value.format(CANARY)}"')
    try:
        parse_settings(source)
        said = ""
    except ConfigWrong as wrong:
        said = f"{wrong} {wrong.args}"
    assert not leaks(said)


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://me:{CANARY}@127.0.0.1:1/ledger",
        f"postgresql://me:{CANARY}@nowhere.invalid/ledger?connect_timeout=1",
        f"postgres://me:{CANARY}@127.0.0.1:1/ledger",
        f"mysql://me:{CANARY}@127.0.0.1/ledger",
        f"postgresql://me:{CANARY}@[::1/ledger",
        f"postgresql://me:{CANARY}@127.0.0.1:port/ledger",
        f"postgresql://127.0.0.1:1/ledger?password={CANARY}",
        f"me:{CANARY}@127.0.0.1",
    ],
)
def test_a_password_in_a_database_url(url: str, tmp_path: Path) -> None:
    """The database is away, or the URL is wrong: both are said without it."""
    with pytest.raises(Exception) as caught:
        Ledger.open(url, settings=load_settings({"db": url}, {}, tmp_path, tmp_path, tmp_path))
    error: BaseException | None = caught.value
    assert not leaks(str(error)) and not leaks(repr(error))
