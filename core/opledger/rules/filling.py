"""Filling a contract's templates in: what names stand for, and the addresses that come of it."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from opledger.errors import ConfigWrong, Refused
from opledger.rules.contract import Contract
from opledger.rules.model import Operation
from opledger.rules.values import Template


def variables(contract: Contract) -> dict[str, str]:
    """Return the names that are the same for every operation."""
    names = {f"var.{name}": value for name, value in contract.var.items()}
    # Secrets stay as written: the HTTP edge puts them in, so that they are never stored, shown or hashed.
    names.update({f"secret.{name}": f"{{secret.{name}}}" for name in contract.secrets})
    return names


def names_of(op: Operation, contract: Contract) -> dict[str, str]:
    """Return what the contract's templates may be filled with for this operation."""
    return {
        "operation_id": op.operation_id,
        "token": op.idempotency_token or "",
        "trace_id": op.trace_id,
        "job_id": op.remote_job_id or "",
        **{f"step.{name}": value for name, value in op.remote_refs.items()},
        **variables(contract),
    }


def trace(header: str, trace_id: str) -> tuple[str, str]:
    """W3C Trace Context: ``traceparent`` carries version, trace id, parent id and flags; others the bare id."""
    if header.lower() == "traceparent":
        return header, f"00-{trace_id}-{trace_id[:16]}-01"
    return header, trace_id


def filled(contract: Contract, path: Template, op: Operation, query: Mapping[str, Template]) -> str:
    """Return an address about an operation. Raises as `fill` does."""
    names = names_of(op, contract)
    return address(contract, path, names, fills(contract, query, names))


def address(contract: Contract, path: Template, names: Mapping[str, str], query: Mapping[str, str]) -> str:
    """Return the address of a path below the base URL. Raises as `fill` does."""
    return with_query(contract.base_url.rstrip("/") + fill(contract, path, names, encode=True), query)


def fills(contract: Contract, templates: Mapping[str, Template], names: Mapping[str, str]) -> dict[str, str]:
    """Fill several templates in. Raises as `fill` does."""
    return {name: fill(contract, template, names) for name, template in templates.items()}


def fill(contract: Contract, template: Template, names: Mapping[str, str], *, encode: bool = False) -> str:
    """Fill one template in.

    Raises ConfigWrong where the answer to the create did not bring a name, Refused where a value would change the path.
    """
    try:
        return template.fill(names, encode=encode)
    except KeyError as missing:
        raise ConfigWrong(
            f"{contract.name} fills {missing} into {template.text!r}, but the provider's answer to the create did not "
            "have it"
        ) from missing
    except ValueError as error:
        raise Refused(f"the path {template.text!r} cannot be filled in: {error}") from error


def with_query(url: str, query: Mapping[str, str]) -> str:
    """Return a URL with parameters, which take the place of those of the same name."""
    if not query:
        return url
    parts = urlsplit(url)
    kept = [(name, value) for name, value in parse_qsl(parts.query, keep_blank_values=True) if name not in query]
    return urlunsplit(parts._replace(query=urlencode([*kept, *query.items()], quote_via=quote)))
