from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from opledger.checkpoints.maker import Checkpointer
from opledger.config import AuditSettings
from opledger.errors import IntegrityBroken
from opledger.service import serve
from tests.core.worker.conftest import Bench


async def test_a_worker_whose_database_has_become_older_ends(bench: Bench, tmp_path: Path) -> None:
    """It has seen checkpoints that are gone now: what was sent since would be sent again, so nothing more is sent."""
    bench.contract()
    bench.submit(_seconds=600)
    worker = bench.hire()
    audit = AuditSettings(checkpoint=timedelta(milliseconds=50), anchors=(), keys=tmp_path / "keys")
    checkpoints = Checkpointer(worker.store.database, audit)
    checkpoints._reached = 9
    with pytest.raises(IntegrityBroken, match="it ends at checkpoint 0 and had 9"):
        await asyncio.wait_for(serve(worker, asyncio.Event(), checkpoints=checkpoints), 60)
    assert bench.ledger.store.workers() == []
