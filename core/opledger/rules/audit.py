"""Whether what is stored is what was written: chains, records, and what the leaves of the checkpoints say of them.

Reliability §5.7 names what must be found, and each finding names its operation and event. This module looks at one
operation at a time; `auditlog` looks at the log that all of them are anchored in. Everything works on rows as they are
stored, whatever stands in them, and nothing here trusts a column that it has not compared with the bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from hashlib import sha256
from json.encoder import encode_basestring as quoted
from typing import Any, Final, NamedTuple

from opledger.rules import jsontext, tree
from opledger.rules.journal import DOMAIN, FORMAT, Finding, Row, verify_chain
from opledger.rules.model import EPOCH, to_rfc3339
from opledger.rules.projection import Entry

Raw = Sequence[Any]
"""One row of the event table in the order of `Row`, as the driver gave it."""

_NEXT: Final = re.compile(
    r'null|\{"at":(?:null|"[0-9T:.-]{26}Z"),"because":"(?:[^"\\\x00-\x1f]++|\\.)*+","kind":"[a-z_]++"\}'
)
"""What an event says of the next step."""

Said = tuple[str, str, str]
"""Of one event: what its bytes begin with up to its time, which names the actor; its data, and its plan, as JSON."""

_FIRST: Final = bytes(32)
_ACTOR: Final = '{"actor":'
_AT: Final = '},"at":"'
_KEPT: Final = 4096


class Leaf(NamedTuple):
    """One leaf of the tree: the head that an operation had when a checkpoint was made, or its tombstone."""

    number: int
    operation_id: str
    seq: int
    hash: bytes
    kind: int  #: `tree.HEAD` or `tree.TOMBSTONE`


class Scanner:
    """Looks at whole chains fast, and says yes or no; what it says no to is then looked at by `verify_chain`.

    Keeps the beginnings of texts that neighbouring events share. Not for two threads at once.
    """

    def __init__(self) -> None:
        self._starts: dict[str, str] = {}
        self._seconds: dict[int, str] = {}
        self._middles: dict[tuple[str | None, str], str] = {}
        self.said: list[Said] = []  #: of each event of the last chain that was whole

    def whole(self, operation_id: str, rows: Iterable[Raw]) -> bool:
        """True where every event follows from the one before, its hash is right and its columns are what it says.

        `said` has what no column of them holds, or nothing where the chain is not whole.
        """
        self.said = []
        try:
            whole = self._whole(operation_id, rows)
        except (TypeError, ValueError, AttributeError, OverflowError):  # SQLite keeps whatever is put into a column
            whole = False
        if not whole:
            self.said = []
        return whole

    def _whole(self, operation_id: str, rows: Iterable[Raw]) -> bool:
        name = operation_id.encode()
        head = DOMAIN + len(name).to_bytes(8, "big") + name
        own = f',"operation_id":{quoted(operation_id)},"reason":'
        before, seq, starts, seconds, middles = _FIRST, 0, self._starts, self._seconds, self._middles
        say, following = self.said.append, _NEXT.match
        for id_, number, at, actor, kind, left, entered, cause, reason, job, body, link, digest, form in rows:
            seq += 1  # noqa: SIM113 - as fast as can be
            if (
                number != seq
                or id_ != operation_id
                or link != before
                or form != FORMAT
                or digest != sha256(head + seq.to_bytes(8, "big") + before + sha256(body).digest()).digest()
            ):
                return False
            before = digest
            # The columns: the text must begin and end with them, and have the kind in the one place where it can
            # stand. Quotes inside of strings are escaped, so the last ,"format": can only be the event's own.
            text = body.decode()
            start = starts.get(actor)
            if start is None or not text.startswith(start):
                start = self._start(actor, text)
            second, rest = divmod(at, 1_000_000)
            stamp = seconds.get(second) or self._second(second)
            then = f'{stamp}{rest:06}Z","cause":{quoted(cause)},"data":{{'
            end = (
                f"{own}{'null' if reason is None else quoted(reason)},"
                f'"remote_job_id":{"null" if job is None else quoted(job)},"seq":{seq},'
                f'"to":{"null" if entered is None else quoted(entered)}}}'
            )
            middle = middles.get((left, kind)) or self._middle(left, kind)
            begun = len(start)
            data = begun + len(then) - 1
            last = len(text) - len(end)
            form_at = text.rfind(',"format":', data, last)
            plan = following(text, form_at + len(middle))
            if (
                plan is None
                or plan.end() != last
                or not (text.startswith(then, begun) and text.endswith(end) and text.startswith(middle, form_at))
            ):
                return False
            say((start, text[data:form_at], plan[0]))
        return True

    def _start(self, actor: str, text: str) -> str:
        """What an event of this actor begins with, up to its time. Raises ValueError where it begins otherwise."""
        start = text[: text.index(_AT) + len(_AT)]
        who = start[len(_ACTOR) : -len(_AT) + 1]
        found = jsontext.loads(who)
        if f"{_ACTOR}{who}" != start[: -len(_AT) + 1] or jsontext.dumps_text(found) != who or found["name"] != actor:
            raise ValueError("the event begins with another actor")
        if len(self._starts) > _KEPT:
            self._starts.clear()
        self._starts[actor] = start
        return start

    def _middle(self, left: str | None, kind: str) -> str:
        if len(self._middles) > _KEPT:
            self._middles.clear()
        text = f',"format":1,"from":{"null" if left is None else quoted(left)},"kind":"{kind}","next":'
        self._middles[left, kind] = text
        return text

    def _second(self, second: int) -> str:
        if len(self._seconds) > _KEPT:
            self._seconds.clear()
        text = self._seconds[second] = to_rfc3339(EPOCH + timedelta(seconds=second))[:20]
        return text


# --- one operation ------------------------------------------------------------------------------------------------


def chain(scanner: Scanner, operation_id: Any, rows: Sequence[Raw]) -> list[Finding]:
    """Return what is wrong with the events of one operation, in themselves. Never raises, whatever stands in them."""
    if scanner.whole(operation_id, rows):
        return []
    if not isinstance(operation_id, str) or not all(isinstance(row[1], int) for row in rows):
        name = operation_id if isinstance(operation_id, str) else None
        return [Finding("COLUMN", name, None, "an event has values of another type in its key: operation_id or seq")]
    return verify_chain(operation_id, (Row(*row) for row in rows))


def against_leaves(operation_id: str, rows: Sequence[Raw], leaves: Sequence[Leaf], *, intact: bool) -> list[Finding]:
    """Compare a chain with what checkpoints have seen of it: BEHIND_CHECKPOINT, REWRITTEN. One finding of each at most.

    `intact`: the chain holds in itself. Where it does not, that another hash stands at a leaf is no news.
    """
    heads = [leaf for leaf in leaves if leaf.kind == tree.HEAD and isinstance(leaf.seq, int)]
    if not heads:
        return []
    hashes = {row[1]: row[12] for row in rows}
    last = max(hashes)
    found: list[Finding] = []
    seen = max(heads, key=lambda leaf: leaf.seq)
    if seen.seq > last:
        words = f"the chain ends at event {last}, and a checkpoint has seen event {seen.seq} (leaf {seen.number})"
        found.append(Finding("BEHIND_CHECKPOINT", operation_id, seen.seq, words))
    changed = [leaf for leaf in heads if leaf.seq in hashes and hashes[leaf.seq] != leaf.hash]
    if changed and intact:
        first = min(changed, key=lambda leaf: leaf.seq)
        words = f"the chain holds, and yet event {first.seq} is not the one that a checkpoint saw (leaf {first.number})"
        found.append(Finding("REWRITTEN", operation_id, first.seq, words))
    return found


Check = Callable[[str, Sequence[Entry]], Iterable[Finding]]
"""Looks at the events of one whole chain, as they were recorded: signatures of approvals."""


def sha256_of(value: Any) -> str | None:
    """SHA-256 in hex; None for what is no bytes."""
    return sha256(value).hexdigest() if isinstance(value, bytes) else None
