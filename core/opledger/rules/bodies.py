"""The body of a create request: what the caller asked for, and the fields that the contract fills in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode

from opledger.errors import Refused, UsageError
from opledger.rules import jsontext
from opledger.rules.contract import Contract
from opledger.rules.values import MISSING, follow

JSON: Final = "application/json"
FORM: Final = "application/x-www-form-urlencoded"
RAW: Final = "application/octet-stream"


def make(
    contract: Contract, asked: Any | None, names: Mapping[str, str], token: str | None
) -> tuple[bytes, str | None]:
    """Return the exact bytes and their content type.

    Raises UsageError where `asked` does not fit the contract's body kind, Refused where it already has a field that
    the contract fills in, at once or on a resend.
    """
    create = contract.create
    if create.body == "none":
        if asked is not None:
            raise UsageError(f"{contract.name} takes no body; leave it out")
        return b"", None
    if create.body == "raw":
        if not isinstance(asked, str):
            raise UsageError(f"{contract.name} takes raw text as body; give a JSON string")
        return asked.encode(), RAW
    document: Any = {} if asked is None else asked
    fills = {pointer: template.fill(names) for pointer, template in create.fields.items()}
    if token is not None:
        fills.update(_token_field(contract, token))
    for pointer, value in fills.items():
        document = put(document, pointer, value)
    for name, value in create.idempotency.resend_adds.items():
        if name.startswith("/") and create.body == "json":
            put(document, name, value)  # refused now rather than when the answer is lost and a resend must go out
    if create.body == "form":
        if not isinstance(document, Mapping):
            raise UsageError(f"{contract.name} takes a form; give a JSON object of names and values")
        return urlencode(_form(document), quote_via=quote).encode(), FORM
    return jsontext.dumps(document), JSON


def _token_field(contract: Contract, token: str) -> dict[str, str]:
    idempotency = contract.create.idempotency
    if idempotency.mechanism not in ("body", "client_id", "unique_name"):
        return {}
    # A client id may also stand in `fields` or the path as {operation_id} or {token}; then no pointer is named.
    return {idempotency.name: token} if idempotency.name is not None else {}


def put(document: Any, pointer: str, value: str) -> Any:
    """Return the document with `value` at `pointer`; parents that are missing are made. Never overwrites."""
    tokens = [token.replace("~1", "/").replace("~0", "~") for token in pointer.split("/")[1:]]
    if not tokens:
        raise Refused("a contract field cannot replace the whole body")
    if not isinstance(document, Mapping):
        raise UsageError(f"the contract puts a field at {pointer}, so the body must be a JSON object")
    if follow(document, tuple(tokens)) not in (MISSING, value):
        raise Refused(f"the body already has {pointer}; the contract fills that field in, so leave it out")
    copy: dict[str, Any] = dict(document)
    if len(tokens) == 1:
        copy[tokens[0]] = value
    else:
        rest = "".join("/" + token.replace("~", "~0").replace("/", "~1") for token in tokens[1:])
        copy[tokens[0]] = put(copy.get(tokens[0], {}), rest, value)
    return copy


def form_name(pointer: str) -> str:
    """Return what a field is called in a form."""
    first, *rest = (token.replace("~1", "/").replace("~0", "~") for token in pointer.split("/")[1:])
    return first + "".join(f"[{token}]" for token in rest)


def _form(document: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Flatten an object to form fields in the common bracket notation: ``a[b]=1``, ``a[0]=x``."""
    pairs: list[tuple[str, str]] = []
    for name, value in document.items():
        key = f"{prefix}[{name}]" if prefix else str(name)
        if isinstance(value, Mapping):
            pairs += _form(value, key)
        elif isinstance(value, list):
            pairs += _form({str(index): item for index, item in enumerate(value)}, key)
        elif value is True or value is False:
            pairs.append((key, "true" if value else "false"))
        elif value is None:
            pairs.append((key, ""))
        else:
            pairs.append((key, str(value)))
    return pairs
