"""What an approver is shown, and what is kept of it: the exact request, what the contract promises, what is alike.

The review is data; its SHA-256 goes into the approval, so that it can be proved afterwards what was looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from opledger.rules import shapes
from opledger.rules.contract import Contract, Guarantees
from opledger.rules.model import Operation
from opledger.rules.plain import clean
from opledger.rules.policy import Demand
from opledger.rules.requests import result_origin
from opledger.rules.shapes import Json

ALIKE: Final = 0.75
"""From this share of equal values on, two bodies are shown side by side."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One place where two bodies differ; None stands for a value that is not there."""

    pointer: str
    before: Any
    after: Any
    added: bool = False
    removed: bool = False


@dataclass(frozen=True, slots=True)
class Alike:
    """Another operation whose body is compared, and why that one."""

    operation: Operation
    relation: str  #: supersedes, same, alike
    differences: tuple[Difference, ...]


def leaves(document: Any, pointer: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every value of a JSON document with its JSON Pointer (RFC 6901); empty containers are values too."""
    if isinstance(document, Mapping) and document:
        for name, value in document.items():
            yield from leaves(value, f"{pointer}/{str(name).replace('~', '~0').replace('/', '~1')}")
    elif isinstance(document, list) and document:
        for place, value in enumerate(document):
            yield from leaves(value, f"{pointer}/{place}")
    else:
        yield pointer, document


def differences(before: Any, after: Any) -> tuple[Difference, ...]:
    """Return where two JSON documents differ, in the order of the second, what was removed last."""
    old, new = dict(leaves(before)), dict(leaves(after))
    found = [
        Difference(pointer, old.get(pointer), value, added=pointer not in old)
        for pointer, value in new.items()
        if pointer not in old or not _same(old[pointer], value)
    ]
    return (*found, *(Difference(p, value, None, removed=True) for p, value in old.items() if p not in new))


def _same(one: Any, other: Any) -> bool:
    # In Python 1 == True and 1 == 1.0; in JSON they are three values.
    return type(one) is type(other) and bool(one == other)


def likeness(before: Any, after: Any) -> float:
    """Return the share of equal values among all places of two documents, 0 to 1."""
    old, new = dict(leaves(before)), dict(leaves(after))
    places = old.keys() | new.keys()
    equal = sum(place in old and place in new and _same(old[place], new[place]) for place in places)
    return equal / len(places) if places else 1.0


def most_alike(op: Operation, body: Any, others: Sequence[tuple[Operation, Any]]) -> Alike | None:
    """Return the operation to compare with: the superseded one, else the most similar that is open, if any is."""
    superseded = next(((other, its) for other, its in others if other.operation_id == op.supersedes), None)
    if superseded is not None:
        return Alike(superseded[0], "supersedes", differences(superseded[1], body))
    best: tuple[float, Operation, Any] | None = None
    for other, its in others:
        if other.operation_id == op.operation_id or other.state.terminal:
            continue
        share = 1.0 if other.request_fingerprint == op.request_fingerprint else likeness(its, body)
        if share >= ALIKE and (best is None or share > best[0]):
            best = (share, other, its)
    if best is None:
        return None
    found = differences(best[2], body)
    return Alike(best[1], "alike" if found else "same", found)


def review(
    op: Operation,
    contract: Contract,
    guarantees: Guarantees,
    demand: Demand,
    request: Json,
    alike: Alike | None,
) -> Json:
    """Return what an approver is shown. `request` is the request as the packet shows it: masked and redacted."""
    report = shapes.contract_report(contract.name, guarantees)["guarantees"]
    cancel = contract.cancel
    return {
        "operation_id": op.operation_id,
        "contract": op.contract,
        "contract_digest": op.contract_digest,
        "fingerprint": op.request_fingerprint,
        "requested_by": op.requested_by,
        "expectation": op.expectation,
        "request": request,
        "credentials": contract.auth.secret if contract.auth.kind != "none" else None,
        "result_credentials": _of_result(contract),
        "billable": contract.safety.billable,
        "leaves": None if cancel is None else cancel.leaves,
        "destroys": [] if cancel is None else list(cancel.destroys),
        "guarantees": report,
        "approvals": [given.by for given in op.approvals],
        "approvals_needed": op.approvals_needed,
        "approvers": None if demand.approvers is None else sorted(demand.approvers),
        "four_eyes": demand.four_eyes,
        "signed": demand.signed,
        "because": demand.because,
        "lapses_at": shapes.moment(op.approval_deadline),
        "compared_with": None if alike is None else _alike(contract, alike),
    }


def _of_result(contract: Contract) -> str | None:
    """Name the credentials that only the result is read with, and where they go."""
    origin, result = result_origin(contract), contract.result
    return None if origin is None or result is None else f"{result.credentials.secret}, to {origin} only"


def _alike(contract: Contract, alike: Alike) -> Json:
    hidden = tuple(contract.safety.redact)

    def shown(difference: Difference) -> Json:
        covered = any(f"{difference.pointer}/".startswith(f"{pointer}/") for pointer in hidden)
        before, after = ("[redacted]", "[redacted]") if covered else (difference.before, difference.after)
        change = "added" if difference.added else "removed" if difference.removed else "changed"
        return {"pointer": difference.pointer, "change": change, "before": before, "after": after}

    return {
        "operation_id": alike.operation.operation_id,
        "relation": alike.relation,
        "state": alike.operation.state.value,
        "differences": [shown(difference) for difference in alike.differences],
    }


def lines(document: Json) -> list[str]:
    """Return a review in lines for people; all outside text is inert."""
    request, compared = document["request"], document["compared_with"]
    from opledger.rules.jsontext import dumps_inert

    body = request["body"]
    shown = body if isinstance(body, str) else dumps_inert(body, indent=2)
    out = [
        f"{document['operation_id']} asks to send, exactly once:",
        "",
        f"  {clean(request['method'])} {clean(request['url'])}",
        *(f"  {clean(name)}: {clean(value)}" for name, value in request["headers"].items()),
        f"  credentials: {clean(document['credentials'] or 'none')}",
        *([f"  for its result: {clean(document['result_credentials'])}"] if document["result_credentials"] else []),
        "",
        *(f"  {line}" for line in clean(shown, newlines=True).splitlines()),
        "",
        f"fingerprint ends in {document['fingerprint'][-6:]}; requested by {clean(document['requested_by'])}"
        + (f": {clean(document['expectation'])}" if document["expectation"] else ""),
    ]
    if document["because"]:
        out.append(f"approval is asked for because {clean(document['because'])}")
    out.append(
        f"approvals: {len(document['approvals'])} of {document['approvals_needed']}"
        + (f", by one of {', '.join(map(clean, document['approvers']))}" if document["approvers"] else "")
        + (f"; lapses at {document['lapses_at']}" if document["lapses_at"] else "")
    )
    if document["signed"]:
        out.append("an approval must be signed: opledger approve --sign")
    if document["billable"]:
        out.append("it costs money")
    if document["leaves"]:
        out.append(f"a cancel leaves behind: {clean(document['leaves'])}")
    if document["destroys"]:
        out.append(f"a cancel destroys: {', '.join(map(clean, document['destroys']))}")
    create = document["guarantees"]["create"]
    out.append(f"at most once: {clean(str(create['at_most_once']))}; {clean(str(create.get('conditions') or ''))}")
    out += [f"  gap: {clean(gap)}" for gap in document["guarantees"]["gaps"]]
    if compared is not None:
        out += ["", *_compared(compared)]
    return out


_RELATIONS: Final = {
    "supersedes": "it supersedes",
    "same": "THE SAME REQUEST IS OPEN ALREADY:",
    "alike": "a request much like it is open:",
}


def _compared(compared: Json) -> list[str]:
    out = [f"{_RELATIONS[compared['relation']]} {compared['operation_id']} ({compared['state']})"]
    for difference in compared["differences"]:
        place = clean(difference["pointer"] or "(the whole body)")
        if difference["change"] != "added":
            out.append(f"  - {place}: {clean(str(difference['before']), limit=100)}")
        if difference["change"] != "removed":
            out.append(f"  + {place}: {clean(str(difference['after']), limit=100)}")
    return out
