"""A contract file (TOML, see `contracts.md`) -> a frozen `Contract`, or everything that is wrong with it.

Reading never stops at the first mistake. Every problem names its key and line, so that a person can repair a file in
one go.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

import rfc8785

from opledger.errors import ConfigWrong
from opledger.rules.contract import (
    Cancel,
    Contract,
    ContractProblem,
    Create,
    Deadlines,
    Limits,
    Result,
    Safety,
    Status,
    Webhook,
)
from opledger.rules.files import calls, checks, not_yet
from opledger.rules.files import converters as v
from opledger.rules.files import result as results
from opledger.rules.files import webhook as webhooks
from opledger.rules.files.reader import Table, Unfit, document, kind_of
from opledger.rules.files.scope import Scope
from opledger.rules.values import Template

NONE: Final = "none"
FILE: Final = "file:"
"""What the names of files begin with among the environment values that a contract used; no variable is named so."""

_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^{}]*))?\}")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


class ContractInvalid(ConfigWrong):
    """A contract file cannot be used. `problems` holds all that is wrong with it, in the order of the file."""

    code: ClassVar[str] = "contract_invalid"

    def __init__(self, file: str, problems: tuple[ContractProblem, ...]) -> None:
        first = problems[0]
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        super().__init__(f"{file} is not a contract that can be used; {first}{more}")
        self.file = file
        self.problems = problems


def parse(
    source: str,
    *,
    name_hint: str = "<contract>",
    environment: Mapping[str, str],
    beside: Callable[[str], str] | None = None,
) -> Contract:
    """Read a contract.

    `environment` fills ``${NAME}`` and ``${NAME:-default}`` in base_url and [var]; a variable that is empty counts as
    not set. `beside` reads a file that lies beside the contract, and raises ValueError where there is none; without it,
    what was read before is taken from the environment, where it is kept. `name_hint` is what messages call the file.
    Raises ContractInvalid with all problems.
    """
    parsed, problems = document(source)
    if parsed is None:
        raise ContractInvalid(name_hint, problems.all())
    settings = _Environment(environment, beside)
    contract = _contract(Table(parsed, (), problems), settings, source)
    not_yet.check(parsed, problems)
    checks.check(contract, parsed, problems)
    found = problems.all()
    if found:
        raise ContractInvalid(name_hint, found)
    return contract


def digest_of(source: str, environment: Mapping[str, str]) -> str:
    """Return ``sha256:`` and the hash that identifies a contract: its text and the environment values it used."""
    canonical = rfc8785.dumps({"source": source, "environment": dict(environment)})
    return "sha256:" + hashlib.sha256(canonical).hexdigest()


@dataclass(slots=True)
class _Environment:
    """Fills variables in and keeps what it used."""

    values: Mapping[str, str]
    beside: Callable[[str], str] | None = None
    used: dict[str, str] = field(default_factory=dict)

    def file(self, name: str) -> str:
        """Return the text of a file beside the contract. It is pinned with the contract, like a variable."""
        key = f"{FILE}{name}"
        if self.beside is not None:
            self.used[key] = self.beside(name)
        elif key in self.values:
            self.used[key] = self.values[key]
        else:
            raise Unfit(f"names the file {name}, which is not beside this contract")
        return self.used[key]

    def fill(self, raw: Any) -> str:
        """Convert a text with ``${NAME}`` in it. Raises ValueError for a variable without a value."""
        if not isinstance(raw, str):
            raise Unfit(f"must be a text in quotes, not {kind_of(raw)}")
        filled = _VARIABLE.sub(self._value, raw)
        if "${" in _VARIABLE.sub("", raw):
            raise Unfit("has a ${ that is neither ${NAME} nor ${NAME:-default}")
        return filled

    def _value(self, found: re.Match[str]) -> str:
        name, default = found.group(1), found.group(2)
        value = self.values.get(name, "")
        if not value:
            if default is None:
                raise Unfit(f"needs the environment variable {name}, which is not set")
            return str(default)
        if not value.isprintable():  # also true of half a surrogate pair, which no UTF-8 text holds
            raise Unfit(f"cannot use the environment variable {name}: it has control characters in it")
        self.used[name] = value
        return value


def _contract(root: Table, environment: _Environment, source: str) -> Contract:
    root.require("name", "base_url", "create")
    variables = root.mapping("var", lambda raw: v.text(environment.fill(raw)), v.name)
    base_url = root.value("base_url", "http://localhost", lambda raw: v.base_url(environment.fill(raw)))
    secrets = root.mapping("secrets", v.secret, v.name)
    scope = _scope(root.data, secrets)
    create_table = root.table("create")
    create = Create("POST", Template("/")) if create_table is None else calls.create(create_table, scope)
    status, webhook = _status(root, scope)
    result = _result(root, scope, environment)  # before the digest: a schema beside the contract is a part of it
    contract = Contract(
        name=root.value("name", "", _name),
        digest=digest_of(source, environment.used),
        base_url=base_url,
        create=create,
        source=source,
        environment=dict(environment.used),
        title=root.value("title", "", v.prose),
        contract_version=root.value("contract_version", 1, v.integer(1, 2**31)),
        sources=root.values("sources", (), v.prose),
        verified_on=root.value("verified_on", None, v.day),
        trace_header=root.value("trace_header", None, v.header_name),
        request_id_headers=root.values("request_id_headers", (), lambda raw: v.header_name(raw).lower()),
        result_hosts=root.values("result_hosts", (), v.host),
        var=variables,
        auth=calls.auth(root.table("auth"), environment.fill),
        headers=calls.headers(root, "headers", scope),
        secrets=secrets,
        reconcile=tuple(calls.strategy(table, scope) for table in root.tables("reconcile")),
        status=status,
        poll=calls.poll(root.table("poll")),
        cancel=_cancel(root, scope),
        result=result,
        webhook=webhook,
        deadlines=_deadlines(root.table("deadlines")),
        limits=_limits(root.table("limits")),
        **_approval(root.table("approval")),
        safety=_safety(root.table("safety")),
    )
    resume = root.table("resume")
    if resume is not None:
        calls.resume(resume, scope)
    root.done()
    return contract


def _name(raw: Any) -> str:
    found = v.text(raw)
    if not _NAME.fullmatch(found):
        raise Unfit("must be up to 64 letters, digits, dots, _ and -, and start with a letter or digit")
    return found


def _scope(root: Mapping[str, Any], secrets: Mapping[str, str]) -> Scope:
    """Collect what templates may name, from the raw document: a variable that is wrong is still known."""

    def keys(*path: str) -> frozenset[str]:
        table: Any = root
        for part in path:
            table = table.get(part) if isinstance(table, Mapping) else None
        return frozenset(table) if isinstance(table, Mapping) else frozenset()

    create = root.get("create")
    raw = create if isinstance(create, Mapping) else {}
    steps = raw.get("steps")
    captures = set(keys("create", "refs"))
    for step in steps if isinstance(steps, list) else ():
        captured = step.get("capture") if isinstance(step, Mapping) else None
        captures.update(captured if isinstance(captured, Mapping) else ())
    idempotency = raw.get("idempotency")
    mechanism = idempotency.get("mechanism") if isinstance(idempotency, Mapping) else NONE
    return Scope(keys("var"), keys("secrets"), frozenset(captures), has_token=mechanism != NONE)


def _status(root: Table, scope: Scope) -> tuple[Status, Webhook | None]:
    """Read how the job is looked at, and how its webhooks come: with ``status = "none"`` they are all there is."""
    word = isinstance(root.data.get("status"), str)
    nothing = word and root.value("status", None, v.one_of(NONE)) == NONE
    hooks = root.table("webhook")
    webhook, told = (None, Status(by_delivery=nothing))
    if hooks is not None:
        webhook, told = webhooks.webhook(hooks, decides=nothing)
    table = None if word else root.table("status")
    return told if table is None else calls.status(table, scope), webhook


def _cancel(root: Table, scope: Scope) -> Cancel | None:
    if isinstance(root.data.get("cancel"), str):
        root.value("cancel", None, v.one_of(NONE))
        return None
    table = root.table("cancel")
    return None if table is None else calls.cancel(table, scope)


def _result(root: Table, scope: Scope, environment: _Environment) -> Result | None:
    if isinstance(root.data.get("result"), str):
        return root.value("result", None, _result_word)
    table = root.table("result")
    return None if table is None else results.result(table, scope, environment.file)


def _result_word(raw: str) -> Result | None:
    if raw == NONE:
        return None
    if raw.startswith(results.INLINE):
        return results.inline(raw)
    raise Unfit('must be "none", "inline:" and a JSON Pointer, or a table')


def _deadlines(table: Table | None) -> Deadlines:
    default = Deadlines()
    if table is None:
        return default
    read = Deadlines(
        create=table.value("create", default.create, v.duration),
        result=table.value("result", default.result, v.duration),
        cancel=table.value("cancel", default.cancel, v.duration),
        collect=table.value("collect", default.collect, v.duration),
    )
    table.done()
    return read


def _limits(table: Table | None) -> Limits:
    default = Limits()
    if table is None:
        return default
    read = Limits(
        concurrency=table.value("concurrency", default.concurrency, v.integer(1, 100_000)),
        rate=table.value("rate", default.rate, v.rate),
        throttled_when=table.value("throttled_when", None, v.over_answer),
        error_budget=table.value("error_budget", default.error_budget, v.integer(0, 1_000_000)),
        error_window=table.value("error_window", default.error_window, v.duration),
    )
    table.done()
    return read


def _approval(table: Table | None) -> dict[str, bool]:
    if table is None:
        return {}
    signed = table.value("signed", False, v.flag)
    required = table.value("required", signed, v.flag)
    if signed and not required:
        table.problem("signed", "asks for signed approvals, and `required` says that there are none")
    table.done()
    return {"approval_required": required, "approval_signed": signed}


def _safety(table: Table | None) -> Safety:
    if table is None:
        return Safety()
    read = Safety(
        billable=table.value("billable", False, v.flag),
        redact=table.values("redact", (), v.field_pointer),
    )
    table.done()
    return read
