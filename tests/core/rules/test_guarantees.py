from __future__ import annotations

import json
from pathlib import Path

import pytest

from opledger.rules.contract import Contract
from opledger.rules.files.contract import parse
from opledger.rules.guarantees import at_most_once, guarantees, report_text
from tests.core.rules.contract_example import driven

BASE = """\
name = "jobs"
base_url = "https://api.example.com"
[create]
method = "POST"
path = "/jobs"
job_id = "/id"
[create.fields]
"/ref" = "{operation_id}"
[status]
path = "/jobs/{job_id}"
state = "/state"
[status.states]
succeeded = ["done"]
failed = ["failed"]
"""
LIST = '[[reconcile]]\nstrategy = "list"\npath = "/jobs"\nitems = "/data"\nitem_id = "/id"\n'
CANCEL = '[cancel]\nmethod = "DELETE"\npath = "/jobs/{job_id}"\n'


def contract(more: str = "", top: str = "") -> Contract:
    """A small contract with something added."""
    return parse(top + BASE + more, environment={})


def token(mechanism: str, memory: str | None = None) -> str:
    """An idempotency table."""
    name = {"header": "X-Key", "query": "key"}.get(mechanism, "/key")
    kept = "" if memory is None else f'memory = "{memory}"\n'
    return f'[create.idempotency]\nmechanism = "{mechanism}"\nname = "{name}"\n{kept}'


@pytest.mark.parametrize(
    ("more", "grade", "lasts"),
    [
        (token("header", "24h"), "bounded", "24h"),
        (token("query", "7d"), "bounded", "7d"),
        (token("body", "1m"), "bounded", "1m"),
        (token("client_id", "90d"), "bounded", "90d"),
        (token("body", "while_record_exists"), "server_enforced", None),
        (token("client_id"), "server_enforced", None),
        (token("unique_name"), "bounded", None),
        (token("header"), "none", None),
        (token("header") + LIST + "match = 'item.ref == operation.operation_id'\n", "lookup_strong", None),
        (LIST + "match = 'item.ref == operation.operation_id'\n", "lookup_strong", None),
        (LIST + "match = 'item.size == 3'\n", "lookup_weak", None),
        ('[[reconcile]]\nstrategy = "get"\npath = "/by-ref/{operation_id}"\n', "lookup_strong", None),
        ('[[reconcile]]\nstrategy = "singleton"\npath = "/current"\nitem_id = "/id"\n', "lookup_weak", None),
        ("", "none", None),
    ],
)
def test_at_most_once_is_graded_by_what_the_provider_enforces(more: str, grade: str, lasts: str | None) -> None:
    """The approver decides on this word; a grade too high is a promise that the provider never made."""
    report = guarantees(contract(more))
    assert (report.create["at_most_once"], report.create["for"]) == (grade, lasts)


@pytest.mark.parametrize(
    ("more", "conditions"),
    [
        (token("header", "24h"), "knows a token for 24h from the first send; nothing is resent later than 21 h 36 m"),
        (token("header", "20s"), "knows a token for 20s from the first send; nothing is resent."),
        (token("client_id"), "record at the provider must not be deleted"),
        (token("unique_name"), "as long as a job with our name exists"),
        (LIST + "match = 'item.ref == operation.operation_id'\n", "asked for a job with our reference"),
        (LIST + "match = 'item.size == 3'\n", "may be somebody else's"),
        ("", "Cannot be guaranteed."),
    ],
)
def test_each_grade_says_under_which_conditions_it_holds(more: str, conditions: str) -> None:
    """A promise without its condition is read as more than it is."""
    assert conditions in guarantees(contract(more)).create["conditions"]


HMAC = '[webhook]\nscheme = "hmac"\nsecret = "env:S"\nsignature = "header:x-sig"\nsigned = "{body}"\njob_id = "/id"\n'
STATIC = '[webhook]\nscheme = "static_header"\nsecret = "env:S"\nsignature = "header:x-token"\njob_id = "/id"\n'
GAPS = [
    (HMAC, "no signed time"),
    (HMAC, "no signed event id"),
    (HMAC, "do not carry our reference"),
    (STATIC, "nothing that is in them is proven"),
    ("", "takes no idempotency token"),
    ("", "There is no look-up: after a lost answer"),
    ("", "There is no cancel"),
    ("", "No result is fetched"),
    ("", "no webhooks"),
    (token("header"), "is unknown: nothing is ever resent"),
    (token("header"), "with another body"),
    (
        token("header", "24h") + '[[reconcile]]\nstrategy = "resend"\n',
        "only a resend under the same token can find the job",
    ),
    (LIST + "match = 'item.ref == operation.operation_id'\n", "finds nothing proves nothing"),
    (LIST + "match = 'item.size == 3'\n", "somebody else's"),
    (CANCEL, "A cancellation cannot be confirmed"),
    (CANCEL, "is not sent again"),
    (CANCEL + 'destroys = ["result", "record"]\n', "destroys the result and the record"),
    ('[result]\nurl = "/u"\n', "no checksum"),
    ('[result]\nurl = "/u"\n', "cut result"),
    ('[result]\nurl = "/u"\n', "result_hosts is empty"),
    ('[result]\nurl = "/u"\n', "can be fetched is unknown"),
    ('[result]\nurl = "/u"\nsize = "/n"\n', "still accepted"),
    ("[safety]\nbillable = true\n", "billed"),
    ('[poll]\nmax_silence = "2m"\n', "abandons"),
    ('[auth]\nkind = "query"\nname = "k"\nsecret = "env:K"\n', "in the URL"),
]


@pytest.mark.parametrize(("more", "words"), GAPS)
def test_every_gap_is_said_in_plain_words(more: str, words: str) -> None:
    """What the provider cannot promise must stand on the approval screen, in a sentence."""
    gaps = guarantees(contract(more)).gaps
    (gap,) = [gap for gap in gaps if words in gap]
    assert gap.endswith(".")


CLOSED = [
    ("no webhooks", HMAC),
    ("no signed event id", HMAC + 'event_id = "/event"\n'),
    ("do not carry our reference", HMAC + 'token = "/ref"\n'),
    ("takes no idempotency token", token("header", "24h")),
    ("There is no look-up", LIST + "match = 'item.ref == operation.operation_id'\n"),
    ("proves nothing", LIST + "match = 'item.ref == operation.operation_id'\nabsence_is_proof = true\n"),
    ("There is no cancel", CANCEL),
    ("is not sent again", CANCEL + "idempotent = true\n"),
    ("no checksum", '[result]\nurl = "/u"\nchecksum = "/sha256"\n'),
    ("still accepted", '[result]\nurl = "/u"\nsize = "/n"\nstrict = true\n'),
    ("result_hosts is empty", '[result]\npath = "/jobs/{job_id}/result"\n'),
]


@pytest.mark.parametrize(("words", "more"), CLOSED)
def test_a_gap_that_is_closed_is_not_reported(words: str, more: str) -> None:
    """A list that always says everything is read by nobody."""
    hosts = 'result_hosts = ["files.example.com"]\n'
    assert not [gap for gap in guarantees(contract(more, top=hosts)).gaps if words in gap]


def test_plain_http_is_a_gap_except_on_this_machine() -> None:
    """Credentials that cross a network in the clear are the reader's business."""
    for host, expected in (("http://api.example.com", 1), ("http://127.0.0.1:8080", 0), ("http://localhost", 0)):
        source = BASE.replace("https://api.example.com", host)
        gaps = guarantees(parse(source, environment={})).gaps
        assert len([gap for gap in gaps if "plain http" in gap]) == expected


def test_a_cancel_that_removes_the_record_can_never_be_confirmed() -> None:
    """After it every status read says 404, which is no word about how the job ended."""
    words = BASE.replace("[status.states]", '[status.states]\ncancelled = ["cancelled"]')
    kept = guarantees(parse(words + CANCEL, environment={}))
    gone = guarantees(parse(words + CANCEL + 'destroys = ["record"]\n', environment={}))
    assert kept.cancel["confirmed_by"] == "a status read that says cancelled"
    assert gone.cancel["confirmed_by"] is None


def test_the_report_has_the_shape_of_the_interface() -> None:
    """Programs read contract check --json; the keys are fixed and everything in it is JSON."""
    report = guarantees(parse(driven(), environment={})).as_json()
    assert json.loads(json.dumps(report)) == report
    assert list(report) == ["create", "cancel", "result", "webhooks", "gaps"]
    assert {"at_most_once", "for", "conditions"} <= set(report["create"])
    assert report["cancel"]["leaves"] == "A partly written file may remain in the export bucket."
    assert report["result"]["available_for"] == "1h"
    assert "checksum sha256 from header:x-checksum-sha256" in report["result"]["checks"]
    assert report["webhooks"] == {
        "supported": True,
        "verifiable": True,
        "scheme": "standard",
        "replays": "refused by age",
        "told_apart_by": "the signed event id",
        "matched_by": ["token", "job_id"],
        "final": "a status read",
    }


def test_without_webhooks_the_report_says_so() -> None:
    """A promise of news that never come would let people wait."""
    assert guarantees(contract("")).webhooks == {"supported": False, "verifiable": False, "scheme": "none"}
    assert "Webhooks?           no\n" in report_text(contract(""))
    assert "yes, hmac, verified" in report_text(contract(HMAC))


def test_a_lost_answer_is_told_step_by_step() -> None:
    """The approver sees what happens after the worst moment before it comes."""
    report = guarantees(parse(driven(), environment={}))
    assert report.create["lost_answer"] == (
        "First the same request is sent again under the same token, until 21 h 36 m after the first send, then the "
        "provider's list of jobs is searched. If that settles nothing until the create deadline, a person must decide."
    )
    assert guarantees(contract()).create["lost_answer"].startswith("A person must decide")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (
            '[[reconcile]]\nstrategy = "get"\npath = "/by-ref/{operation_id}"\n',
            "First the job is fetched by our own id.",
        ),
        (
            '[[reconcile]]\nstrategy = "singleton"\npath = "/now"\nitem_id = "/id"\n',
            "the provider's current job is looked at.",
        ),
        (token("body", "while_record_exists") + '[[reconcile]]\nstrategy = "resend"\n', "under the same token. If"),
    ],
)
def test_each_way_to_ask_the_provider_has_its_words(more: str, words: str) -> None:
    """Looking a job up and looking at whatever runs just now are not the same comfort."""
    assert words in guarantees(contract(more)).create["lost_answer"]


@pytest.mark.parametrize(
    ("more", "top", "where", "checks"),
    [
        ("", "", "nowhere: there is no result to fetch", []),
        ("", 'result = "inline:/out"\n', "in the status answer at /out", []),
        ("", 'result = "inline:"\n', "in the status answer at its root", []),
        ('[result]\nurl = "/u"\nformat = "binary"\n', "", "at the URL that the status answer names at /u", []),
        (
            '[result]\npath = "/out/{job_id}"\nformat = "jsonl"\ncount = "/n"\nchecksum = "header:content-digest"\n',
            "",
            "at /out/{job_id}",
            ["checksum named by its value from header:content-digest", "record count from /n", "parses as jsonl"],
        ),
    ],
)
def test_the_report_says_where_the_result_is_and_what_is_checked(
    more: str, top: str, where: str, checks: list[str]
) -> None:
    """Whoever relies on the result wants to know what would be noticed."""
    result = guarantees(contract(more, top)).result
    assert (result["where"], result["checks"]) == (where, checks)


def test_the_report_for_people_says_everything_that_the_data_says() -> None:
    """The approval screen and the command line print this text."""
    chosen = parse(driven(), environment={})
    text = report_text(chosen)
    report = guarantees(chosen)
    assert "Acme reports (reports, version 1)" in text
    for part in (report.create["conditions"], report.create["lost_answer"], report.cancel["leaves"], *report.gaps):
        assert part in text


SHIPPED = Path(__file__).parents[3] / "core" / "opledger" / "contracts"
PROMISES = {
    "airflow": ("server_enforced", None, True, None),
    "prefect": ("server_enforced", None, True, "a status read that says cancelled"),
    "ray": ("server_enforced", None, True, "a status read that says cancelled"),
    "stripe-reports": ("bounded", "24h", False, None),
}


def test_every_shipped_contract_has_its_promises_written_down_here() -> None:
    """A provider file that nobody looks at is a guess."""
    assert {path.stem for path in SHIPPED.glob("*.toml")} == set(PROMISES)


@pytest.mark.parametrize("name", sorted(PROMISES))
def test_a_shipped_contract_promises_what_the_provider_documents(name: str) -> None:
    """An edit to a shipped file must not raise a promise unnoticed."""
    shipped = parse((SHIPPED / f"{name}.toml").read_text(encoding="utf-8"), name_hint=name, environment={})
    report = guarantees(shipped)
    assert shipped.name == name
    assert shipped.sources
    assert PROMISES[name] == (
        at_most_once(shipped),
        report.create["for"],
        report.cancel["supported"],
        report.cancel["confirmed_by"],
    )
