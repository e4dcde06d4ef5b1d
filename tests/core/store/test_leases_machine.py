"""Leases against a model of four lines: claims, renewals, releases, expiries and writes in any order."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from datetime import timedelta
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from opledger.errors import LeaseLost
from opledger.store import Declined, Fence, Recorded, Store
from tests.core.store.making import CONTRACT, LEASE, T0, assert_whole, claim, noted, opened, write

OWNERS = st.sampled_from(["w1", "w2", "w3"])
_FOLDER = tempfile.TemporaryDirectory(prefix="opledger-leases-")
_TEMPLATE = Path(_FOLDER.name) / "ledger.db"
atexit.register(_FOLDER.cleanup)


def fresh(folder: str) -> str:
    """A copy of an empty ledger: making one takes a tenth of a second, copying it none."""
    if not _TEMPLATE.exists():
        Store.open(f"sqlite:///{_TEMPLATE}").close()
    shutil.copy(_TEMPLATE, f"{folder}/ledger.db")
    return f"sqlite:///{folder}/ledger.db"


class Leases(RuleBasedStateMachine):
    """Two stores on one file; `held` is the truth they must agree with."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        url = fresh(self.folder.name)
        self.stores = [Store.open(url), Store.open(url)]
        self.now = T0
        #: operation -> (owner, epoch, end) of its lease, given back or not; and every fence ever handed out
        self.held: dict[str, tuple[str, int, object] | None] = {}
        self.epochs: dict[str, int] = {}
        self.fences: list[tuple[str, Fence]] = []

    @initialize(count=st.integers(1, 4))
    def begin(self, count: int) -> None:
        """Some operations, all due."""
        self.stores[0].pin_contract(CONTRACT)
        self.held = {operation.operation_id: None for operation in opened(self.stores[0], count, due=T0)}
        self.epochs = dict.fromkeys(self.held, 0)

    def free(self, operation_id: str) -> bool:
        """Whether anybody may take it."""
        lease = self.held[operation_id]
        return lease is None or lease[2] <= self.now  # type: ignore[operator]

    @rule(owner=OWNERS, which=st.integers(0, 1), limit=st.integers(1, 4))
    def claim(self, owner: str, which: int, limit: int) -> None:
        """Only free operations are handed out, with the next epoch, and a take-over names the one before."""
        free = {operation_id for operation_id in self.held if self.free(operation_id)}
        claimed = claim(self.stores[which], owner, now=self.now, limit=limit)
        assert len(claimed) == min(limit, len(free))
        for one in claimed:
            operation_id, lease = one.operation.operation_id, one.operation.lease
            assert lease is not None
            assert operation_id in free
            before = self.held[operation_id]
            assert one.taken_from == (None if before is None else before[0])
            self.epochs[operation_id] += 1
            assert (lease.owner, lease.epoch) == (owner, self.epochs[operation_id])
            self.held[operation_id] = (owner, lease.epoch, self.now + LEASE)
            self.fences.append((operation_id, Fence(owner, lease.epoch)))

    @rule(seconds=st.sampled_from([1, 10, 29, 30, 31, 90]))
    def wait(self, seconds: int) -> None:
        """Time passes; leases run out by themselves."""
        self.now += timedelta(seconds=seconds)

    def stands(self, operation_id: str, fence: Fence) -> bool:
        """Whether this very lease was neither given back nor taken over."""
        lease = self.held[operation_id]
        return lease is not None and lease[:2] == (fence.owner, fence.epoch)

    @rule(data=st.data(), which=st.integers(0, 1))
    def renew(self, data: st.DataObject, which: int) -> None:
        """Only a lease that stands is extended."""
        if self.fences:
            operation_id, fence = data.draw(st.sampled_from(self.fences))
            kept = self.stores[which].renew(fence.owner, [(operation_id, fence.epoch)], LEASE, self.now)
            assert (operation_id in kept) == self.stands(operation_id, fence)
            if kept:
                self.held[operation_id] = (fence.owner, fence.epoch, self.now + LEASE)

    @rule(data=st.data(), which=st.integers(0, 1))
    def release(self, data: st.DataObject, which: int) -> None:
        """Only a lease that stands is given back."""
        if self.fences:
            operation_id, fence = data.draw(st.sampled_from(self.fences))
            gone = self.stores[which].release(fence.owner, [(operation_id, fence.epoch)])
            assert (operation_id in gone) == self.stands(operation_id, fence)
            if gone:
                self.held[operation_id] = None

    @rule(data=st.data(), which=st.integers(0, 1), live=st.booleans(), release=st.booleans())
    def write(self, data: st.DataObject, which: int, live: bool, release: bool) -> None:
        """Only the holder writes (I11); a permit also needs time left."""
        if not self.fences:
            return
        operation_id, fence = data.draw(st.sampled_from(self.fences))
        (outcome,) = self.stores[which].record_many(
            [write(operation_id, noted(), fence=fence, live=live, release=release, at=self.now)]
        )
        allowed = self.stands(operation_id, fence) and not (live and self.free(operation_id))
        if allowed:
            assert isinstance(outcome, Recorded)
        else:
            assert isinstance(outcome, Declined)
            assert isinstance(outcome.error, LeaseLost)
        if allowed and release:
            self.held[operation_id] = None

    @invariant()
    def the_records_show_the_leases(self) -> None:
        """I10: what anybody reads is what was agreed."""
        for operation_id, lease in self.held.items():
            shown = self.stores[1].get(operation_id).lease
            assert (shown and (shown.owner, shown.epoch, shown.expires_at)) == lease

    def teardown(self) -> None:
        """The journal of everything that was written is whole."""
        assert_whole(self.stores[0], *self.held)
        for store in self.stores:
            store.close()
        self.folder.cleanup()


TestLeases = Leases.TestCase
TestLeases.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
