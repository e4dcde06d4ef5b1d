"""What `doctor` looks at in an open ledger. Each check is one sentence that says what to do about what is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from importlib.util import find_spec
from typing import Final

from opledger import config
from opledger.edges.sshkeys import read_signers
from opledger.errors import ConfigWrong, IntegrityBroken, StoreUnavailable
from opledger.rules.files.settings import notice_targets
from opledger.rules.model import to_rfc3339
from opledger.rules.webhooks import Kind
from opledger.store import Store
from opledger.store.deliveries import Refused

ALIVE: Final = timedelta(seconds=10)
"""A worker whose last heartbeat is older counts as gone (it beats every two seconds)."""

ALARMING: Final = frozenset({Kind.SIGNATURE.value, Kind.WRONG_TENANT.value})
RECENT: Final = timedelta(hours=1)
"""A wrong delivery this long ago is still somebody's business."""

LATE: Final = timedelta(seconds=5)
SKEW: Final = timedelta(seconds=5)


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    name: str
    ok: bool
    message: str


def checks(store: Store, settings: config.Settings, now: datetime) -> tuple[Check, ...]:
    """Look at an open ledger: that it opened at all says that database, schema and guards are as they must be."""
    from opledger.checkpoints import report  # with the library for keys, which few commands need

    name = store.database.name
    return (
        Check(
            "database",
            True,
            f"{name} can be read and written" if not store.database.read_only else f"{name} can be read",
        ),
        Check("schema", True, "the tables are of this version, and the guards of the journal are in place"),
        *_guards(store),
        *_clocks(store, now),
        *_contracts(settings),
        *_signers(settings),
        *_workers(store, now),
        *_notices(store, settings),
        *_webhooks(store, now),
        *(Check(*line) for line in report.lines(store.database, settings.audit)),
    )


def _guards(store: Store) -> Iterator[Check]:
    """Try what must not work; a database that is only read has nothing to try."""
    if store.database.read_only:
        return
    try:
        tried = store.database.self_test()
    except (StoreUnavailable, IntegrityBroken) as error:
        yield Check("guards", False, error.message)
        return
    told = f"{tried.count} forbidden statements were tried and refused"
    if tried.login is not None and tried.owner:
        told += (
            f"; the login {tried.login} owns the tables, and only their triggers hold it back: "
            "`opledger doctor --roles` prints roles that keep apart who may do what"
        )
    elif tried.login is not None:
        told += f", for want of rights, to the login {tried.login}"
    yield Check("guards", True, told)


def _webhooks(store: Store, now: datetime) -> Iterator[Check]:
    """Say what was refused at the door, and what waits behind it; nothing where no webhook ever came."""
    refused: dict[str, list[Refused]] = {}
    for one in store.refusals():
        refused.setdefault(one.contract, []).append(one)
    parked = store.parked_counts()
    for contract in sorted({*refused, *parked}):
        counted = refused.get(contract, [])
        said = []
        if counted:
            kinds = ", ".join(f"{one.times} {one.kind}" for one in counted)
            said.append(f"refused since {to_rfc3339(min(one.first_at for one in counted))}: {kinds}")
        if contract in parked:
            count, oldest = parked[contract]
            said.append(f"{count} match no operation yet, the oldest came at {to_rfc3339(oldest)}")
        alarming = [one for one in counted if one.kind in ALARMING and now - one.last_at < RECENT]
        if alarming:
            last = to_rfc3339(max(one.last_at for one in alarming))
            said.append(
                f"the last wrong one came at {last}: compare the secret on both sides, or find out who sends it"
            )
        name = f"webhooks of {contract}" if contract else "webhooks"
        yield Check(name, not alarming, "; ".join(said))


def _clocks(store: Store, now: datetime) -> Iterator[Check]:
    newest = [op.created_at for op in store.queries.list(limit=1).operations]
    ahead = [moment for moment in (*newest, *(life.heartbeat for life in store.workers())) if moment > now + SKEW]
    if ahead:
        yield Check(
            "clocks",
            False,
            f"the ledger holds a time that lies ahead of this machine's clock ({to_rfc3339(max(ahead))}, here it is "
            f"{to_rfc3339(now)}); set the clocks of all machines by NTP",
        )
    else:
        yield Check("clocks", True, f"nothing in the ledger lies ahead of this machine's clock ({to_rfc3339(now)})")


def _contracts(settings: config.Settings) -> Iterator[Check]:
    try:
        files = config.list_contracts(settings)
    except ConfigWrong as error:
        yield Check("contracts", False, error.message)
        return
    for file in files:
        if file.error is not None:
            yield Check(f"contract {file.name}", False, file.error.message)
    good = [file.name for file in files if file.contract is not None]
    yield Check("contracts", True, f"{len(good)} contracts load: {', '.join(good) or 'none'}")


def _signers(settings: config.Settings) -> Iterator[Check]:
    """Say whether signed approvals can be judged; nothing where nobody wants any."""
    path = settings.audit.allowed_signers
    if path is not None:
        try:
            count = len(read_signers(path).signers)
        except ConfigWrong as error:
            yield Check("allowed signers", False, error.message)
            return
        yield Check(
            "allowed signers",
            count > 0,
            f"{path} lists {count} {'key' if count == 1 else 'keys'} that may sign approvals",
        )
    elif any(policy.signed for policy in settings.policies):
        yield Check(
            "allowed signers",
            False,
            "a policy demands signed approvals, and nothing says whose keys count, so nobody can approve: name a file "
            'in opledger.toml: [audit] allowed_signers = "path"',
        )


def _workers(store: Store, now: datetime) -> Iterator[Check]:
    lives = store.workers()
    alive = [life for life in lives if now - life.heartbeat < ALIVE]
    for life in lives:
        if life not in alive:
            since = to_rfc3339(life.heartbeat)
            yield Check(
                f"worker {life.name}", True, f"gave no sign of life since {since}; its leases run out by themselves"
            )
        elif life.lateness > LATE:
            late = int(life.lateness.total_seconds())
            yield Check(f"worker {life.name}", False, f"is {late} s behind with its work; start another worker")
        for aside in life.asides if life in alive else ():
            if aside.until > now:
                yield Check(
                    f"worker {life.name}",
                    False,
                    f"leaves {aside.contract} to other workers until {to_rfc3339(aside.until)}, since "
                    f"{to_rfc3339(aside.since)}: {aside.why}; look at its host, {life.host}: network, DNS, proxy, "
                    "certificates, secrets",
                )
    due = store.next_due(now, store.paused())
    if alive:
        names = ", ".join(life.name for life in alive)
        yield Check("workers", True, f"{len(alive)} alive: {names}")
    elif due is not None and due <= now:
        yield Check("workers", False, "work is due and no worker is alive; start one with: opledger worker")
    else:
        yield Check("workers", True, "no worker is alive, and nothing is due")


def _notices(store: Store, settings: config.Settings) -> Iterator[Check]:
    targets = [target.name for target, _ in notice_targets(settings.notify)]
    if not targets:
        return
    if find_spec("apprise") is None:
        yield Check("notices", False, "[[notify]] is set and apprise is not installed: pip install 'opledger[notify]'")
    failing = store.failing_notices(targets)
    for one in failing:
        yield Check(
            f"notices {one.target}",
            False,
            f"{one.notices} could not be sent, the oldest of {to_rfc3339(one.since)}, after up to {one.attempts} tries "
            f"({one.last_error}); they are tried again, so mend the target or its URL",
        )
    good = [name for name in targets if name not in {one.target for one in failing}]
    yield Check("notices", True, f"nothing is held up to: {', '.join(good) or 'none'}")
