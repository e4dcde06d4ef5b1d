"""A provider as data: what one job API promises, and how to speak it.

The values here are what `files.contract.parse` makes of a TOML file (see `contracts.md`). They are frozen, hashed into
`digest` and pinned by every operation. No other code names a provider.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any, Final, Literal

from opledger.rules.model import Means
from opledger.rules.schemas import Schema
from opledger.rules.values import Condition, Pick, Template

AuthKind = Literal["none", "bearer", "header", "basic", "query", "oauth2_client_credentials"]
ClientAuth = Literal["basic", "post"]
BodyKind = Literal["json", "form", "raw", "none"]
Mechanism = Literal["none", "header", "query", "body", "client_id", "unique_name", "put_resource"]
StrategyName = Literal["resend", "get", "list", "singleton"]
SameBody = Literal["replay_original", "return_current", "duplicate_error"]
ResultFormat = Literal["json", "jsonl", "csv", "binary"]
TimeUnit = Literal["s", "ms", "rfc3339"]
WebhookScheme = Literal["standard", "hmac", "ed25519", "static_header"]
TextCode = Literal["text", "hex", "base64"]

REFERENCE: Final = re.compile(r"env:[A-Za-z_][A-Za-z0-9_]*|file:.+|keyring:[^/]+/.+|command:.+", re.DOTALL)
"""What a reference to a secret looks like."""

KEPT: Final = timedelta(days=365)
"""How long a token is taken to be known where the provider knows it as long as it keeps the job's record."""


def is_reference(text: str) -> bool:
    """True for a text that says where a secret is."""
    return REFERENCE.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class Auth:
    """How a request proves who we are. `secret` is a reference (``env:NAME`` …), never a value.

    With ``oauth2_client_credentials`` (RFC 6749 §4.4) it is the client's secret; with it the HTTP edge fetches the
    access tokens that the requests carry.
    """

    kind: AuthKind = "none"
    secret: str | None = None
    name: str | None = None  #: header or query name
    prefix: str = ""
    username: str | None = None  #: for basic, when the secret is only the password
    token_url: str | None = None  #: where access tokens are fetched
    client_id: str | None = None  #: as it is, or a reference
    client_auth: ClientAuth = "basic"  #: how the client names itself there (RFC 6749 §2.3.1): a header, or the form
    scope: str | None = None
    audience: str | None = None
    margin: timedelta = timedelta(seconds=60)  #: a token is replaced so long before it expires
    lifetime: timedelta = timedelta(minutes=5)  #: of a token whose answer does not say how long it lasts

    @property
    def references(self) -> tuple[str, ...]:
        """The secret references in here."""
        found = (self.secret, self.client_id if self.client_id and is_reference(self.client_id) else None)
        return tuple(reference for reference in found if reference is not None)


@dataclass(frozen=True, slots=True)
class Idempotency:
    """How the provider is told that two requests are one wish, and what it promises about that."""

    mechanism: Mechanism = "none"
    name: str | None = None  #: header or query name, or a JSON Pointer into the body
    max_length: int = 255
    memory: timedelta | None = None  #: None = unknown: a resend is never allowed
    while_record_exists: bool = False  #: the token is known as long as the job's record is (instead of `memory`)
    resend_adds: Mapping[str, str] = field(default_factory=dict)
    same_body: SameBody | None = None
    duplicate_when: Condition | None = None
    mismatch_when: Condition | None = None
    in_flight_when: Condition | None = None
    replay_marker: Pick | None = None


@dataclass(frozen=True, slots=True)
class Create:
    """The call that starts work."""

    method: str
    path: Template
    body: BodyKind = "json"
    query: Mapping[str, Template] = field(default_factory=dict)
    headers: Mapping[str, Template] = field(default_factory=dict)
    success: frozenset[int] = frozenset({200, 201, 202})
    job_id: tuple[Pick, ...] = ()
    remote_state: Pick | None = None
    status_url: Pick | None = None
    refs: Mapping[str, Pick] = field(default_factory=dict)  #: further values of the answer to keep, by name
    timeout: timedelta = timedelta(seconds=30)
    refused: frozenset[int] = frozenset({400, 404, 405, 410, 413, 415, 422})
    fields: Mapping[str, Template] = field(default_factory=dict)  #: JSON Pointer -> template, put into the body
    error_when: Condition | None = None
    inline_when: Condition | None = None
    idempotency: Idempotency = Idempotency()


@dataclass(frozen=True, slots=True)
class Strategy:
    """One way to learn the fate of a create whose answer was lost."""

    strategy: StrategyName
    method: str = "GET"
    path: Template | None = None
    query: Mapping[str, Template] = field(default_factory=dict)
    items: Pick | None = None
    item_id: Pick | None = None
    match: Condition | None = None
    item_state: Pick | None = None
    item_created_at: Pick | None = None
    created_at_unit: TimeUnit = "rfc3339"
    next_page: Pick | None = None
    page_param: str | None = None
    max_pages: int = 100
    visibility_lag: timedelta = timedelta(0)
    absence_is_proof: bool = False
    settle: timedelta = timedelta(minutes=2)
    timeout: timedelta = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class StatusRule:
    """A reading that comes before the map of words; the first that holds wins."""

    when: Condition
    means: Means


@dataclass(frozen=True, slots=True)
class Status:
    """How the job is looked at, or, where nobody can look at it, how what its webhooks say is read."""

    method: str = "GET"
    path: Template | None = None
    query: Mapping[str, Template] = field(default_factory=dict)
    job_id: Pick | None = None
    timeout: timedelta = timedelta(seconds=20)
    state: tuple[Pick, ...] = ()  #: several are joined by "/"
    updated_at: Pick | None = None
    updated_at_unit: TimeUnit = "rfc3339"
    progress: Mapping[str, Pick] = field(default_factory=dict)
    error: tuple[Pick, ...] = ()
    not_visible_for: timedelta = timedelta(seconds=60)
    gone_when: Condition | None = None
    words: Mapping[str, Means] = field(default_factory=dict)  #: trimmed, case-folded word -> reading
    rules: tuple[StatusRule, ...] = ()
    by_delivery: bool = False  #: there is no status read: all of this is read from webhook deliveries

    @property
    def told_in(self) -> str:
        """What tells how the job ended and names the result, for people."""
        return "the delivery" if self.by_delivery else "the status answer"


@dataclass(frozen=True, slots=True)
class Poll:
    """How often the job is looked at when the provider does not say."""

    first: timedelta = timedelta(seconds=2)
    factor: float = 2.0
    max: timedelta = timedelta(seconds=60)
    hints: tuple[Pick, ...] = ()
    max_silence: timedelta | None = None


@dataclass(frozen=True, slots=True)
class Cancel:
    """How the provider is asked to stop, and what stopping leaves behind."""

    method: str
    path: Template
    query: Mapping[str, Template] = field(default_factory=dict)
    body: bytes | None = None  #: a constant JSON body, as sent
    success: frozenset[int] = frozenset({200, 202, 204})
    timeout: timedelta = timedelta(seconds=20)
    accepted_when: Condition | None = None
    idempotent: bool = False
    already_finished_when: Condition | None = None
    destroys: tuple[str, ...] = ()
    leaves: str | None = None


@dataclass(frozen=True, slots=True)
class Items:
    """How the outcome of each item of a job is read. Items are joined by their key, never by their place."""

    id: Pick  #: the key in a record of the result
    at: Pick | None = None  #: where the records stand in a JSON document; None = the document is their list
    failed_when: Condition | None = None
    reason: Pick | None = None  #: why an item failed, in its record
    total: Pick | None = None  #: how many items the status answer says there are
    sent: Pick | None = None  #: where the items stand in the body that was asked for
    sent_id: Pick | None = None  #: the key in an item that was sent; None = where it stands in a record


@dataclass(frozen=True, slots=True)
class Also:
    """A further file of the result, read together with it."""

    name: str
    url: Pick
    optional: bool = False
    failed: bool = False  #: every record in it is an item that failed


@dataclass(frozen=True, slots=True)
class Result:
    """Where the result is, and how we know that it is whole. `inline` is a pointer into the status answer."""

    inline: Pick | None = None
    url: Pick | None = None
    path: Template | None = None
    auth: Literal["same_origin", "none"] = "same_origin"
    credentials: Auth = Auth()  #: of its own, for the one host that results are read from
    available_for: timedelta | None = None
    timeout: timedelta = timedelta(minutes=10)
    not_ready_when: Condition | None = None
    content_type: tuple[str, ...] = ()
    max_size: int = 2 * 1024**3
    size: Pick | None = None
    checksum: Pick | None = None
    checksum_algorithm: str | None = None  #: sha256, md5… ; None = told by the header's own format
    count: Pick | None = None
    strict: bool = False
    empty: bool = False  #: a result without a single byte is one, and not one that is still to come
    format: ResultFormat | None = None
    schema: Schema | None = None
    error_row_when: Condition | None = None
    single_use: bool = False  #: it can be read once: the read is an effectful call
    also: tuple[Also, ...] = ()
    collect_in: frozenset[Means] = frozenset({Means.SUCCEEDED})
    items: Items | None = None
    expect: Condition | None = None  #: over the summary: count, size, content_type, items


@dataclass(frozen=True, slots=True)
class Webhook:
    """How the provider tells us that something happened, and how we know that it was the provider."""

    scheme: WebhookScheme
    secrets: tuple[str, ...]  #: references; several during a rotation
    signature: Pick | None = None  #: a header; with a pattern each of its matches counts (`standard` names its own)
    signed: str = "{body}"  #: over {id}, {timestamp}, {body}, {body_sha256} and {header:NAME}
    digest: str = "sha256"
    encoding: TextCode = "hex"  #: of the signature; "text" for static_header only
    key_encoding: TextCode = "text"
    timestamp: Pick | None = None
    timestamp_unit: TimeUnit = "s"
    tolerance: timedelta = timedelta(minutes=5)  #: to both sides
    event_id: Pick | None = None
    event_type: Pick | None = None
    job_id: Pick | None = None
    token: Pick | None = None
    accept_when: Condition | None = None  #: over body and headers: what is not meant for us is refused


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Default deadlines, counted from submit (create, result), from the intent (cancel), from success (collect)."""

    create: timedelta = timedelta(minutes=2)
    result: timedelta = timedelta(hours=1)
    cancel: timedelta = timedelta(minutes=10)
    collect: timedelta = timedelta(minutes=15)


@dataclass(frozen=True, slots=True)
class Limits:
    """How much at a time, over all workers."""

    concurrency: int = 20
    rate: float | None = None  #: calls a second
    throttled_when: Condition | None = None  #: None = status 429
    error_budget: int = 50  #: calls that may fail in a row before the provider is paused; 0 = never
    error_window: timedelta = timedelta(minutes=2)  #: and for how long at least, without one good answer


@dataclass(frozen=True, slots=True)
class Safety:
    """What the work costs, and what must not be shown."""

    billable: bool = False
    redact: tuple[str, ...] = ()  #: JSON Pointers into our body and their answers


@dataclass(frozen=True, slots=True)
class Contract:
    """One provider's promises. `digest` identifies exactly this text and the environment values it used."""

    name: str
    digest: str
    base_url: str
    create: Create
    source: str  #: the TOML text
    environment: Mapping[str, str] = field(default_factory=dict)  #: values that ``${NAME}`` stood for
    title: str = ""
    contract_version: int = 1
    sources: tuple[str, ...] = ()
    verified_on: date | None = None
    trace_header: str | None = None
    request_id_headers: tuple[str, ...] = ()
    result_hosts: tuple[str, ...] = ()
    var: Mapping[str, str] = field(default_factory=dict)
    auth: Auth = Auth()
    headers: Mapping[str, Template] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    reconcile: tuple[Strategy, ...] = ()
    status: Status = Status()
    poll: Poll = Poll()
    cancel: Cancel | None = None
    result: Result | None = None
    webhook: Webhook | None = None
    deadlines: Deadlines = Deadlines()
    limits: Limits = Limits()
    approval_required: bool = False
    approval_signed: bool = False  #: an approval counts only with the approver's SSH signature
    safety: Safety = Safety()

    @property
    def references(self) -> tuple[str, ...]:
        """Every secret reference in here, each once."""
        result = () if self.result is None else self.result.credentials.references
        hooks = () if self.webhook is None else self.webhook.secrets
        return tuple(dict.fromkeys((*self.auth.references, *self.secrets.values(), *result, *hooks)))

    @property
    def resend_window(self) -> timedelta | None:
        """How long after the first send the same token may be sent again, or None for never.

        The provider's memory less a margin of a tenth (at least the create timeout): the provider's clock starts
        when it first saw the request, and our last resend must arrive well inside (invariant I4).
        """
        idempotency = self.create.idempotency
        if idempotency.mechanism != "none" and idempotency.while_record_exists:
            return KEPT
        if idempotency.mechanism == "none" or idempotency.memory is None:
            return None
        margin = max(idempotency.memory / 10, self.create.timeout)
        window = idempotency.memory - margin
        return window if window > timedelta(0) else None


@dataclass(frozen=True, slots=True)
class ContractProblem:
    """One thing wrong in a contract file."""

    key: str  #: "" for the file as a whole
    line: int | None
    message: str

    def __str__(self) -> str:
        """Where, and what: ``line 12, create.path: must …``."""
        where = [*([] if self.line is None else [f"line {self.line}"]), *([self.key] if self.key else [])]
        return f"{', '.join(where)}: {self.message}" if where else self.message


@dataclass(frozen=True, slots=True)
class Guarantees:
    """What the contract lets us promise, in the words of the approval screen. All values are JSON-native."""

    create: Mapping[str, Any]
    cancel: Mapping[str, Any]
    result: Mapping[str, Any]
    webhooks: Mapping[str, Any]
    gaps: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """The shape of ``contract check --json``."""
        return {
            "create": dict(self.create),
            "cancel": dict(self.cancel),
            "result": dict(self.result),
            "webhooks": dict(self.webhooks),
            "gaps": list(self.gaps),
        }
