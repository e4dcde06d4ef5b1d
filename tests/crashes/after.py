"""Stories of many at once, of people who are told, of archives, and of a backup that takes the ledger's place."""

from __future__ import annotations

import json
import shutil
from datetime import timedelta
from typing import Final

from opledger.checkpoints import givingup
from opledger.checkpoints.maker import Checkpointer
from opledger.edges.secrets import SecretResolver
from opledger.errors import IntegrityBroken, Refused
from opledger.ledger import archive
from opledger.notices import Notices
from opledger.rules.escalation import Message
from opledger.rules.files.settings import Notify
from opledger.rules.model import Actor, State
from opledger.rules.wishes import Wish
from tests.crashes.core import CALLS, FILES, control, wish
from tests.crashes.life import Life, Story

S = State
OLGA: Final = Actor("olga")

# --- many -------------------------------------------------------------------------------------------------------------

BULK: Final = tuple(f"op_01JD00000000000000000000A{number}" for number in range(4))


def in_bulk(life: Life) -> None:
    """An agent submits four in one transaction, and again where it heard nothing."""
    wishes = [
        Wish("sim", {"account": "acct_218", "rows": 3, "_polls": 1, "_personality": "ideal", "number": number},
             requested_by="agent-7", operation_id=name)
        for number, name in enumerate(BULK)
    ]  # fmt: skip
    for outcome in life.ledger.submit_many(wishes):
        assert not isinstance(outcome, Exception), outcome
    life.run()


def only_contract(life: Life) -> None:
    """Nothing but a contract."""
    life.contract()


def all_four(life: Life) -> None:
    """There are four, and four jobs."""
    assert life.ids() == sorted(BULK)
    assert [len(life.jobs(op)) for op in life.operations()] == [1] * 4


# --- people are told --------------------------------------------------------------------------------------------------


def notices(life: Life) -> None:
    """A worker tells people outside what needs them, and tells again where it is not known whether it did."""
    life.run()
    outbox = life.folder.parent / "told"

    def send(url: str, message: Message) -> str | None:
        with outbox.open("a", encoding="utf-8") as file:
            file.write(f"{message.title}\n")
        return None

    for _ in range(3):
        sender = Notices(
            life.ledger.store,
            [Notify(("env:ONCALL",))],
            name="w1",
            secrets=SecretResolver({"ONCALL": "json://localhost/"}),
            clock=life.clock,
            send=send,
        )
        sender.tick()
        life.passes(120)


def was_told(life: Life) -> None:
    """Somebody was told, at most once for each who tried."""
    lines = (life.folder.parent / "told").read_text().splitlines()
    assert 1 <= len(lines) <= 3, lines


# --- archives and restored backups ------------------------------------------------------------------------------------


def put_away(life: Life) -> None:
    """What has ended a month ago goes into a file; whoever died over it begins again with another one."""
    life.run()
    life.leave()
    life.seal()
    if life.clock.monotonic() < timedelta(days=30).total_seconds():
        life.passes(timedelta(days=40).total_seconds())
    planned = archive.plan(life.ledger, life.clock.now())
    if planned.ids:
        number = len(list(life.folder.glob("out-*.jsonl")))
        archive.archive(life.ledger, planned, life.folder / f"out-{number}.jsonl", reason="a year old", by=OLGA)
    life.seal()


def archived(life: Life) -> None:
    """It is in a file, and its tombstone names that file."""
    name = json.loads((life.folder.parent.parent / "archive.ids").read_text())[0]
    try:
        life.ledger.show(name)
    except Refused as error:
        file = next(path for path in sorted(life.folder.glob("out-*.jsonl"), reverse=True) if path.name in str(error))
        found = archive.File(file).look()
        assert not found.findings, found.findings
        return
    raise AssertionError("it is not archived")


def backed_up(life: Life) -> None:
    """There is a backup of a ledger that has a checkpoint."""
    life.contract()
    life.submit(_polls=1)
    life.seal()
    life.ledger.close()
    life._ledger = life._checkpoints = None
    shutil.copy(life.folder / "ledger.db", life.folder / "backup.db")


def restored(life: Life) -> None:
    """The ledger is replaced by its backup; a person says that it goes on, and it does."""
    done = life.folder / "restored"
    if not done.exists():
        if len(life.operations()) < 2:
            life.submit(_polls=1, rows=4)
        life.seal()
        life.ledger.close()
        life._ledger = life._checkpoints = None
        for end in ("-wal", "-shm"):
            life.folder.joinpath(f"ledger.db{end}").unlink(missing_ok=True)
        shutil.copy(life.folder / "backup.db", life.folder / "ledger.db")
        done.touch()
    database, audit = life.ledger.store.database, life.ledger.settings.audit
    try:
        Checkpointer(database, audit, life.clock).start()
    except IntegrityBroken:
        given = givingup.forgotten(database, audit)
        givingup.acknowledge(database, audit, OLGA, "the disk died", life.clock.now(), given)
    life.seal()
    life.run()


AFTER: Final = (
    Story("bulk", only_contract, in_bulk, (S.SUCCEEDED,) * 4, must=FILES, made=True, check=all_four),
    Story(
        "notices",
        wish("none"),
        notices,
        (S.CREATE_UNKNOWN,),
        must=CALLS | {"notice"},
        begin=control(drop_next="create"),
        check=was_told,
    ),
    Story(
        "archive", wish(_polls=1), put_away, (), must=FILES | {"checkpoint"}, made=True, orphans=True, check=archived
    ),
    Story("restored", backed_up, restored, (S.SUCCEEDED,), must=FILES | {"checkpoint"}, made=True, forgets=True),
)
