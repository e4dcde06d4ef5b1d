from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opledger.config import (
    ContractInvalid,
    Policy,
    Settings,
    SettingsInvalid,
    UnknownContract,
    find_contract,
    list_contracts,
    load_settings,
    read_contract,
)
from opledger.errors import ConfigWrong, UsageError
from opledger.rules.files.settings import parse_settings

CONTRACT = """\
name = "NAME"
base_url = "${JOBS_URL:-https://api.example.com}"
[create]
method = "POST"
path = "/jobs"
job_id = "/id"
[status]
path = "/jobs/{job_id}"
state = "/state"
[status.states]
succeeded = ["done"]
"""

FULL = """\
operator = "ana"
contracts = ["contracts", "/srv/contracts"]
[worker]
lease = "20s"
concurrency = 50
tick = "500ms"
[audit]
checkpoint = "10s"
anchors = ["one.anchor", "/var/two.anchor"]
allowed_signers = "signers"
[console]
theme = "dark"
keys = { approve = "a" }
columns = ["state", "age"]
[[policy]]
when = 'operation.contract == "payouts" && operation.body.amount > 1000'
approvals = 2
approvers = ["ana", "jo"]
four_eyes = false
expires = "4h"
signed = true
[[policy]]
when = 'true'
[[notify]]
url = ["mailto://user:hunter2@example.com", "env:SLACK_URL"]
on = ["contract_violation"]
"""


class Home:
    """A working directory, a configuration folder and a data folder of one test."""

    def __init__(self, root: Path) -> None:
        self.cwd, self.config, self.data = root / "cwd", root / "config", root / "data"
        for folder in (self.cwd, self.config, self.data):
            folder.mkdir()

    def load(self, environ: Mapping[str, str] | None = None, **flags: str | None) -> Settings:
        """Load the settings as a command would."""
        return load_settings(flags, environ or {}, self.cwd, self.config, self.data)

    def contract(self, folder: str, name: str, text: str = CONTRACT, file: str | None = None) -> Path:
        """Write a contract file."""
        path = self.cwd / folder / f"{file or name}.toml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text.replace("NAME", name), encoding="utf-8")
        return path


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """An empty home."""
    return Home(tmp_path)


def test_without_anything_there_are_defaults(home: Home) -> None:
    """The first command on a fresh machine must work without a file."""
    settings = home.load()
    assert settings.database == f"sqlite:///{home.data}/ledger.db"
    assert settings.results == str(home.data / "results")
    assert settings.audit.anchors == (home.data / "ledger.db.anchor",)
    assert (settings.worker.lease, settings.worker.concurrency) == (timedelta(seconds=30), 200)
    assert (settings.log, settings.policies, settings.files) == ("warning", (), ())
    assert settings.operator


def test_a_file_is_read_value_by_value(home: Home) -> None:
    """Each key must arrive where it belongs."""
    (home.cwd / "opledger.toml").write_text(FULL)
    settings = home.load()
    assert settings.operator == "ana"
    assert settings.contracts == (home.cwd / "contracts", Path("/srv/contracts"))
    assert (settings.worker.lease, settings.worker.concurrency) == (timedelta(seconds=20), 50)
    assert settings.worker.tick == timedelta(milliseconds=500)
    assert settings.audit.checkpoint == timedelta(seconds=10)
    assert settings.audit.anchors == (home.data / "one.anchor", Path("/var/two.anchor"))
    assert (settings.console.theme, settings.console.keys, settings.console.columns) == (
        "dark",
        {"approve": "a"},
        ("state", "age"),
    )
    strict, plain = settings.policies
    assert (strict.approvals, strict.approvers, strict.four_eyes) == (2, ("ana", "jo"), False)
    assert (strict.expires, strict.signed, plain.signed) == (timedelta(hours=4), True, False)
    assert settings.audit.allowed_signers == home.cwd / "signers"
    assert strict.when.holds({"operation": {"contract": "payouts", "body": {"amount": 1001}}})
    assert plain == Policy(when=plain.when, approvals=1, approvers=(), four_eyes=True, expires=None)
    (notice,) = settings.notify
    assert (len(notice.urls), notice.on) == (2, ("contract_violation",))


def test_flags_come_before_environment_before_file_before_default(home: Home) -> None:
    """The order that the documentation fixes; the nearest word wins."""
    (home.config / "opledger.toml").write_text('operator = "user"\nlog = "info"\nresults = "/user"\n')
    (home.cwd / "opledger.toml").write_text('operator = "here"\nresults = "/here"\n')
    environ = {"OPLEDGER_OPERATOR": "variable", "OPLEDGER_DB": "sqlite:///v.db", "OPLEDGER_LOG": ""}
    settings = home.load(environ, operator="flag", db=None)
    assert (settings.operator, settings.database, settings.results) == ("flag", "sqlite:///v.db", "/here")
    assert settings.log == "info"
    assert home.load(environ).operator == "variable"
    assert home.load().operator == "here"
    assert [path.parent for path in settings.files] == [home.cwd, home.config]


def test_tables_of_two_files_are_merged_key_by_key(home: Home) -> None:
    """A project that changes one worker setting keeps the user's others."""
    (home.config / "opledger.toml").write_text('[worker]\nlease = "9s"\nconcurrency = 3\n')
    (home.cwd / "opledger.toml").write_text('[worker]\nlease = "8s"\n')
    assert (home.load().worker.lease, home.load().worker.concurrency) == (timedelta(seconds=8), 3)


def test_a_file_in_the_working_directory_cannot_take_a_policy_away(home: Home) -> None:
    """An agent chooses its working directory; it must not choose away the approvals."""
    (home.config / "opledger.toml").write_text("[[policy]]\nwhen = 'true'\napprovals = 2\n")
    (home.cwd / "opledger.toml").write_text("[[policy]]\nwhen = 'false'\n")
    assert [policy.when.text for policy in home.load().policies] == ["false", "true"]


def test_a_file_in_the_working_directory_cannot_bring_keys_of_its_own(home: Home) -> None:
    """Whose signatures count is the user's word; where it says nothing, a project may."""
    assert home.load().audit.allowed_signers is None
    (home.cwd / "opledger.toml").write_text('[audit]\nallowed_signers = "mine"\n')
    assert home.load().audit.allowed_signers == home.cwd / "mine"
    (home.config / "opledger.toml").write_text('[audit]\nallowed_signers = "/etc/signers"\n')
    assert home.load().audit.allowed_signers == Path("/etc/signers")


@pytest.mark.parametrize(
    ("database", "beside"),
    [
        ("sqlite:////srv/x/jobs.db", "/srv/x"),
        ("sqlite:///jobs.db", "CWD"),
        ("sqlite:///sub/jobs.db?timeout=3", "CWD/sub"),
        ("sqlite://", "DATA"),
        ("sqlite:///:memory:", "DATA"),
        ("postgresql://host/jobs", "DATA"),
        ("postgresql+psycopg://u:p@host/jobs", "DATA"),
    ],
)
def test_results_and_anchor_lie_beside_a_sqlite_file(home: Home, database: str, beside: str) -> None:
    """Whoever copies the folder of a SQLite ledger has all of it; PostgreSQL has no folder."""
    settings = home.load(db=database)
    folder = Path(beside.replace("CWD", str(home.cwd)).replace("DATA", str(home.data)))
    assert settings.results == str(folder / "results")
    elsewhere = "ledger.db.anchor" if database.startswith("sqlite") else "anchors/{ledger}.anchor"
    name = "jobs.db.anchor" if "jobs.db" in database else elsewhere
    assert settings.audit.anchors == (folder / name,)


def test_an_anchor_is_a_file_or_says_what_it_is(home: Home) -> None:
    """Anything with a scheme is no path; a path lies beside the database."""
    given = ["a.anchor", "/a:b", "./s3:x", "s3://b/x", "syslog:", "journald:", "memory:"]
    (home.cwd / "opledger.toml").write_text(f"[audit]\nanchors = {given}\n")
    files = (home.data / "a.anchor", Path("/a:b"), home.data / "s3:x")
    assert home.load().audit.anchors == (*files, "s3://b/x", "syslog:", "journald:", "memory:")


def test_the_signing_key_lies_apart_from_the_ledger(home: Home) -> None:
    """In the user's own folder, by the ledger's name; or where a settings file says, from that file on."""
    assert (home.load(db="sqlite:////srv/x.db").audit.key, home.load().audit.keys) == (None, home.data / "keys")
    (home.config / "opledger.toml").write_text("[audit]\nkey = 'sign.pem'\n")
    assert home.load().audit.key == home.config / "sign.pem"
    (home.cwd / "opledger.toml").write_text("[audit]\nkey = '/etc/opledger/sign.pem'\n")
    assert home.load().audit.key == Path("/etc/opledger/sign.pem")


def test_contract_folders_are_separated_by_colons(home: Home) -> None:
    """As in PATH, relative to the working directory; empty parts mean nothing."""
    assert home.load({"OPLEDGER_CONTRACTS": "a:/b::"}).contracts == (home.cwd / "a", Path("/b"))


def test_nothing_secret_is_in_the_repr(home: Home) -> None:
    """Settings end up in logs and tracebacks."""
    (home.cwd / "opledger.toml").write_text(FULL)
    settings = home.load({"TOKEN": "hunter2"}, db="postgresql://me:hunter2@host/x")
    assert "hunter2" not in repr(settings)


BAD = [
    ("db = 7", "line 1, db: must be a text"),
    ("x = 1", "line 1, x: is not a key"),
    ("\n[worker]\nleese = '3s'", 'line 3, worker.leese: is not a key that is known here; did you mean "lease"?'),
    ("[worker]\nlease = '3 s'", "line 2, worker.lease: '3 s' is not a duration"),
    ("[worker]\nlease = '0s'", "worker.lease: must be longer"),
    ("[worker]\nconcurrency = 0", "between 1"),
    ("worker = 3", "worker: must be a table"),
    ("[audit]\nanchors = [1]", "line 2, audit.anchors[0]"),
    ("log = 'loud'", "line 1, log: must be one of"),
    ("[[policy]]\napprovals = 1", "line 1, policy[0].when: is missing"),
    ("[[policy]]\nwhen = 'true'\n[[policy]]\nwhen = 'body.x'", "line 4, policy[1].when: the condition uses 'body'"),
    ("[[policy]]\nwhen = 'true'\napprovals = 0", "line 3, policy[0].approvals"),
    ("[[policy]]\nwhen = 'true'\napprovals = 2\napprovers = ['a', 'a']", "line 3, policy[0].approvals: asks for 2"),
    ("[[policy]]\nwhen = 'true'\napprovers = []", "line 3, policy[0].approvers: must not be an empty list"),
    ("[[policy]]\nwhen = 'true'\nfour_eye = true", 'did you mean "four_eyes"'),
    ("[policy]\nwhen = 'true'", "[[policy]]"),
    ("[[notify]]\non = ['x']", "notify[0].url: is missing"),
    ("[[notify]]\nurl = 'hunter2'", "notify[0].url: must be a notice URL"),
    ("[console]\ntheme = 3", "console.theme"),
    ("[console]\nkeys = 'a'", "console.keys: must be a table"),
    ("db = ", "line 1: this is not TOML"),
]


@pytest.mark.parametrize(("text", "message"), BAD)
def test_a_wrong_setting_names_file_key_and_line(home: Home, text: str, message: str) -> None:
    """A setting that is silently ignored is worse than none: somebody believes in it."""
    (home.cwd / "opledger.toml").write_text(text + "\n")
    with pytest.raises(SettingsInvalid) as caught:
        home.load()
    assert message in str(caught.value)
    assert str(home.cwd / "opledger.toml") in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("environ", "word"),
    [
        ({"OPLEDGER_DB": "mysql://root:hunter2@host/x"}, "OPLEDGER_DB"),
        ({"OPLEDGER_DB": "/var/lib/ledger.db"}, "sqlite:///PATH"),
        ({"OPLEDGER_LOG": "loud"}, "OPLEDGER_LOG"),
    ],
)
def test_a_wrong_variable_is_named_and_its_value_is_not_shown(home: Home, environ: dict[str, str], word: str) -> None:
    """A database URL may hold a password."""
    with pytest.raises(ConfigWrong) as caught:
        home.load(environ)
    assert word in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_bytes_that_are_no_text_are_found_on_their_line(home: Home) -> None:
    """A file in another encoding must not end in a traceback."""
    (home.cwd / "opledger.toml").write_bytes(b'log = "info"\noperator = "J\xf6rg"\n')
    with pytest.raises(SettingsInvalid, match="line 2: the file is not valid UTF-8"):
        home.load()


@given(st.text("[]abwhen='\"\n# {}policy.\\", max_size=60))
def test_any_text_is_settings_or_a_list_of_problems(text: str) -> None:
    """Whatever stands in the file, only the one error comes out."""
    problems = None
    try:
        parse_settings(text)
    except SettingsInvalid as invalid:
        problems = invalid.problems
    assert problems is None or all(problem.line for problem in problems)


# --- contract files ----------------------------------------------------------------------------------------------


def test_a_contract_is_found_by_the_name_that_it_gives_itself(home: Home) -> None:
    """Operations refer to the name, not to the file; the environment fills it in."""
    home.contract("mine", "reports", file="other")
    settings = home.load({"OPLEDGER_CONTRACTS": "mine", "JOBS_URL": "http://127.0.0.1:5"})
    assert find_contract(settings, "reports").base_url == "http://127.0.0.1:5"


def test_the_first_folder_wins_and_every_folder_wins_over_the_shipped_ones(home: Home) -> None:
    """An operator overrides a shipped contract by a file of the same name."""
    home.contract("a", "ray", CONTRACT + "# a\n")
    home.contract("b", "ray", CONTRACT + "# b\n")
    settings = home.load({"OPLEDGER_CONTRACTS": "a:b"})
    assert find_contract(settings, "ray").source.endswith("# a\n")
    listed = {found.name: found for found in list_contracts(settings)}
    assert listed["ray"].path == str(home.cwd / "a" / "ray.toml")
    assert (listed["ray"].shipped, listed["airflow"].shipped) == (False, True)
    assert find_contract(home.load(), "ray").title == "Ray job"


def test_every_shipped_contract_can_be_used_on_a_fresh_machine(home: Home) -> None:
    """Nothing that comes with the program may be broken, whatever is not set."""
    listed = list_contracts(home.load())
    assert {found.name for found in listed} >= {"airflow", "prefect", "ray", "stripe-reports"}
    assert [found for found in listed if found.error is not None] == []


def test_an_unknown_contract_is_refused_with_the_nearest_name(home: Home) -> None:
    """A typo in a submit must say what there is."""
    home.contract("mine", "reports")
    with pytest.raises(UnknownContract, match=r'did you mean "reports".*airflow'):
        find_contract(home.load({"OPLEDGER_CONTRACTS": "mine"}), "report")


def test_a_broken_contract_names_its_file_and_spoils_only_itself(home: Home) -> None:
    """One bad file in a folder must not stop the work of all other providers."""
    broken = home.contract("mine", "broken", CONTRACT + "x = 1\n")
    unreadable = home.contract("mine", "garbage", "name = [\n")
    home.contract("mine", "good")
    settings = home.load({"OPLEDGER_CONTRACTS": "mine"})
    assert find_contract(settings, "good").name == "good"
    for name, path in (("broken", broken), ("garbage", unreadable)):
        with pytest.raises(ContractInvalid) as caught:
            find_contract(settings, name)
        assert str(path) in str(caught.value)
    errors = {found.name: type(found.error) for found in list_contracts(settings) if found.error is not None}
    assert errors == {"broken": ContractInvalid, "garbage": ContractInvalid}


def test_two_files_of_one_name_in_one_folder_are_both_refused(home: Home) -> None:
    """Which of them is meant is nobody's guess to make; others are not touched."""
    home.contract("mine", "twin", file="a")
    home.contract("mine", "twin", CONTRACT + "# other\n", file="b")
    home.contract("mine", "good")
    settings = home.load({"OPLEDGER_CONTRACTS": "mine"})
    with pytest.raises(ConfigWrong, match="both contracts named 'twin'"):
        find_contract(settings, "twin")
    assert find_contract(settings, "good").name == "good"


def test_a_missing_folder_is_named(home: Home) -> None:
    """A mistyped folder would otherwise look like a contract that is not there."""
    with pytest.raises(ConfigWrong, match="nowhere"):
        find_contract(home.load({"OPLEDGER_CONTRACTS": "nowhere"}), "ray")


def test_a_contract_file_can_be_read_wherever_it_lies(home: Home) -> None:
    """`contract check FILE` takes any path; a path that is not there is the caller's malformed input."""
    path = home.contract("mine", "reports")
    assert read_contract(path, {}).name == "reports"
    path.write_bytes(b'name = "caf\xe9"\n')
    with pytest.raises(ContractInvalid, match="line 1: the file is not valid UTF-8"):
        read_contract(path, {})
    with pytest.raises(UsageError, match="no contract file"):
        read_contract(home.cwd / "nope.toml", {})
