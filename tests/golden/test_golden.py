"""What every release has written is read by the present code; and what a newer one writes is refused, clearly."""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from opledger.errors import SchemaMismatch, StoreUnavailable
from opledger.ledger import Ledger, audit
from opledger.ledger.audit import Asked
from opledger.rules import evidence, journal, jsontext, projection
from opledger.rules.files.contract import parse
from opledger.rules.model import State
from opledger.rules.states import TRANSITIONS
from opledger.store import schema
from opledger.store.engine import open_database
from tests.core.rules.operations import CANCEL, JOBS
from tests.golden import checking, kept, making, walk

RELEASES = kept.names()
GOLDEN = {name: kept.load(name) for name in RELEASES}
NEWEST = RELEASES[-1]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database of the present schema with the newest histories in it; copy it."""
    path = tmp_path_factory.mktemp("golden") / "ledger.db"
    open_database(f"sqlite:///{path}").close()
    kept.fill(path, GOLDEN[NEWEST])
    return path


@pytest.mark.parametrize("name", RELEASES)
def test_every_event_is_read_as_it_was_written_and_comes_to_its_record(name: str) -> None:
    assert list(checking.folded(GOLDEN[name]))[:5] == []
    assert list(checking.folded(kept.archived(GOLDEN[name])))[:5] == []
    assert list(checking.task_records(GOLDEN[name])) == []


@pytest.mark.parametrize("name", RELEASES)
def test_both_verifiers_find_nothing_and_the_export_is_what_it_was(name: str, tmp_path: Path) -> None:
    assert list(checking.whole(GOLDEN[name], tmp_path))[:5] == []


@pytest.mark.parametrize("name", RELEASES)
def test_databases_of_every_older_schema_are_upgraded(name: str, tmp_path: Path) -> None:
    assert list(checking.levels(name, GOLDEN[name], tmp_path))[:5] == []


@pytest.mark.parametrize("name", RELEASES)
def test_a_release_has_left_enough(name: str) -> None:
    golden, stones = GOLDEN[name], kept.archived(GOLDEN[name])
    columns, operations = golden.tables["operation"]
    both = [*operations, *stones.tables["operation"][1]]
    assert len(both) >= 200
    assert len({row[columns.index("state")] for row in both}) >= 20
    assert len({row[4] for row in [*golden.tables["event"][1], *stones.tables["event"][1]]}) >= 34
    assert len(stones.bodies) >= 20 and len(golden.tables["checkpoint"][1]) >= 4
    assert golden.tables["task_record"][1] and golden.tables["delivery"][1] and golden.tables["answer"][1]
    assert kept.path_of(name).stat().st_size <= making.MOST


def test_the_newest_release_knows_every_schema_until_then() -> None:
    found = [level["schema"] for level in kept.read(kept.FOLDER / f"{NEWEST}.levels.xz")]
    assert found == list(schema.REVISIONS)[: len(found)]
    assert found[-1] == GOLDEN[NEWEST].head["schema"]


def test_what_was_written_is_never_written_anew() -> None:
    before = kept.path_of(NEWEST).read_bytes()
    with pytest.raises(FileExistsError):
        making.make(NEWEST)
    assert kept.path_of(NEWEST).read_bytes() == before


def test_the_same_name_gives_the_same_histories() -> None:
    contract = parse(JOBS + CANCEL, environment={})

    def some() -> list[Any]:
        luck, reached = random.Random("golden x"), walk.Reached()
        return [walk.history(luck, contract, number, "b" * 64, [], reached) for number in range(12)]

    assert some() == some()


# --- it can fail -----------------------------------------------------------------------------------------------------


def _renamed(kind: str, data: dict[str, Any]) -> Any:
    if "why" in data:
        data = {**{key: value for key, value in data.items() if key != "why"}, "because": data["why"]}
    return evidence.from_data(kind, data)


def _forgets(before: Any, entry: Any) -> Any:
    after = projection.project(before, entry)
    return after if before is None else replace(after, remote_refs=before.remote_refs)


BREAKS: dict[str, Callable[[], Any]] = {
    "a field has another name": partial(mock.patch.object, journal, "from_data", _renamed),
    "a kind is gone": lambda: mock.patch.dict(
        evidence.KINDS, {name: kind for name, kind in evidence.KINDS.items() if name != "Noted"}, clear=True
    ),
    "an arrow is gone": lambda: mock.patch.dict(
        TRANSITIONS[State.OBSERVING],
        {kind: to for kind, to in TRANSITIONS[State.OBSERVING].items() if kind is not evidence.Observed},
        clear=True,
    ),
    "a field of the record is not kept": partial(mock.patch.object, checking, "project", _forgets),
    "keys are not sorted": lambda: mock.patch.object(
        jsontext, "dumps_text", json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
    ),
    "times have three digits": lambda: mock.patch.object(
        journal, "to_rfc3339", lambda moment: moment.isoformat(timespec="milliseconds")[:23] + "Z"
    ),
}


@pytest.mark.parametrize("broken", BREAKS)
def test_a_change_of_what_is_written_is_noticed(broken: str) -> None:
    golden = GOLDEN[NEWEST]
    with BREAKS[broken]():
        assert next(checking.folded(golden), None) is not None, f"nobody notices that {broken}"


def test_a_byte_of_the_kept_bodies_is_noticed(tmp_path: Path) -> None:
    golden = GOLDEN[NEWEST]
    bodies = [*golden.bodies]
    bodies[7] = (
        bodies[7].replace(b'"seq":', b'"seq":1', 1) if b'"reason":"' not in bodies[7] else bodies[7][:-1] + b" }"
    )
    changed = kept.Golden(
        golden.head, {**golden.tables, "event": (kept.EVENT, list(kept.events(bodies)))}, bodies, golden.archive
    )
    assert list(checking.folded(changed))
    assert list(checking.whole(changed, tmp_path))


def test_a_migration_that_loses_something_is_noticed(tmp_path: Path) -> None:
    (level, *_) = kept.read(kept.FOLDER / f"{NEWEST}.levels.xz")
    real = schema.migrate

    def careless(side: Any) -> None:
        real(side)
        with side.migrating().begin() as connection:
            connection.exec_driver_sql("UPDATE operation SET last_error = 'lost' WHERE version > 3")

    with mock.patch.object(schema, "migrate", careless):
        assert "rows of operation were lost or changed" in list(checking.upgraded(level, tmp_path))


# --- a newer version writes in the same database --------------------------------------------------------------------


def _all(path: Path) -> Any:
    return checking._all(path)


def _with(filled: Path, folder: Path, *statements: str) -> Path:
    path = folder / "ledger.db"
    shutil.copy(filled, path)
    with closing(sqlite3.connect(path)) as file, file:
        for statement in statements:
            file.execute(statement)
    return path


def test_a_newer_schema_is_refused_and_nothing_is_written(filled: Path, tmp_path: Path) -> None:
    path = _with(filled, tmp_path, f"UPDATE {schema.VERSION_TABLE} SET version_num = '9999', oldest = '9999'")
    before = _all(path)
    for read_only in (False, True):
        with (
            pytest.raises(SchemaMismatch, match=r"9999.*newer opledger"),
            Ledger.open(settings=making.settings(tmp_path, f"sqlite:///{path}"), read_only=read_only),
        ):
            pass
    assert _all(path) == before


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (b'"kind":"CallSent"', b'"kind":"Teleported"', r"no event of the kind 'Teleported': use the newer one"),
        (b'"format":1', b'"format":2', r"format 2 cannot be read by this version of opledger"),
        (b'"data":{', b'"data":{"hue":7,', r"hue"),
        (b'"to":"create_pending"', b'"to":"dreaming"', r"'dreaming' is not a valid State"),
    ],
)
def test_an_event_of_a_newer_version_is_refused_in_words(old: bytes, new: bytes, said: str) -> None:
    body = next(one for one in GOLDEN[NEWEST].bodies if old in one)
    with pytest.raises(ValueError, match=said):
        journal.read_body(body.replace(old, new))


def test_a_state_of_a_newer_version_is_refused_and_nothing_is_written(filled: Path, tmp_path: Path) -> None:
    columns, found = GOLDEN[NEWEST].tables["operation"]
    one = next(row[0] for row in found if row[columns.index("state")] == "observing")
    path = _with(filled, tmp_path, f"UPDATE operation SET state = 'dreaming' WHERE operation_id = '{one}'")
    before = _all(path)
    with Ledger.open(settings=making.settings(tmp_path, f"sqlite:///{path}")) as ledger:
        with pytest.raises(StoreUnavailable, match="dreaming"):
            ledger.show(one)
        with pytest.raises(StoreUnavailable, match="dreaming"):
            ledger.cancel(one, reason="enough")
        findings = audit.run(ledger, Asked(full=True, key=GOLDEN[NEWEST].head["verifier_key"])).findings
        assert ("PROJECTION", one) in {(found.kind, found.operation_id) for found in findings}
    assert _all(path) == before


def test_every_field_of_evidence_stands_in_some_history() -> None:
    """A field that no history has could be renamed without a red test; only those of today count."""
    seen = set()
    for body in [*GOLDEN[NEWEST].bodies, *kept.archived(GOLDEN[NEWEST]).bodies]:
        event = jsontext.loads(body)
        seen |= {f"{event['kind']}.{name}" for name in event["data"]}
    assert not walk.EVERY - seen, "python -m tests.golden make the next release: it has fields that this one had not"
