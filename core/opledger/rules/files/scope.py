"""What may stand in a contract's templates, and where.

Paths, queries, headers and fields may hold ``{names}``. Which names exist depends on the call: a create has no job id
yet, and secrets go only into headers and into fields of the create, where the HTTP edge puts them in.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from opledger.rules.files.reader import Unfit, kind_of, nearest
from opledger.rules.values import Template

OWN: Final = frozenset({"operation_id", "token", "trace_id"})
"""Names that are known before anything is sent."""
JOB: Final = OWN | {"job_id"}
"""Names that are known once a job id is."""
REFERENCES: Final = frozenset({"operation_id", "token"})
"""Names by which a job can be told to be ours."""

_MARKUP: Final = re.compile(r"\{[^{}]*\}")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class Scope:
    """The names of one contract that its templates may use. `has_token` is False where no token is made."""

    variables: frozenset[str] = frozenset()
    secrets: frozenset[str] = frozenset()
    captures: frozenset[str] = frozenset()
    has_token: bool = True

    def path(self, names: frozenset[str]) -> Callable[[Any], Template]:
        """A path below the base URL: it starts with one slash and stays where it is."""

        def convert(raw: Any) -> Template:
            found = self._template(raw, names, secrets=False)
            literal = _MARKUP.sub("x", found.text)
            if not literal.startswith("/") or literal.startswith("//"):
                raise Unfit("must start with one slash; it is put behind base_url")
            if "?" in literal:
                raise Unfit("must not have a query (?) in it; use query = { … }")
            if "#" in literal:
                raise Unfit("must not have a fragment (#) in it")
            if not re.fullmatch(r"[!-~]*", literal) or "\\" in literal:
                raise Unfit("must be plain ASCII without spaces or backslashes; percent-encode the rest")
            if {".", ".."} & set(literal.split("/")):
                raise Unfit("must not have . or .. as a segment")
            return found

        return convert

    def text(self, names: frozenset[str]) -> Callable[[Any], Template]:
        """A query value or a field of the body."""
        return lambda raw: self._template(raw, names, secrets=False)

    def field(self, names: frozenset[str]) -> Callable[[Any], Template]:
        """A field of the create body; it may name secrets."""
        return lambda raw: self._template(raw, names, secrets=True)

    def header(self, names: frozenset[str]) -> Callable[[Any], Template]:
        """A header value: one line, in which secrets may be put."""

        def convert(raw: Any) -> Template:
            if isinstance(raw, str) and _CONTROL.search(raw):
                raise Unfit("must not have line breaks or other control characters in a header")
            found = self._template(raw, names, secrets=True)
            if not re.fullmatch(r"[ -~]*", found.text):
                raise Unfit("must be plain ASCII in a header")
            return found

        return convert

    def _template(self, raw: Any, names: frozenset[str], *, secrets: bool) -> Template:
        if not isinstance(raw, str):
            raise Unfit(f"must be a text in quotes, not {kind_of(raw)}")
        if "${" in raw:
            raise Unfit("${…} is filled in only in base_url and [var]; use a variable: {var.NAME}")
        found = Template.parse(raw, lambda _: True)
        for used in found.names:
            reason = self._refusal(used, names, secrets=secrets)
            if reason is not None:
                raise Unfit(f"{{{used}}} {reason}")
        return found

    def _refusal(self, used: str, names: frozenset[str], *, secrets: bool) -> str | None:
        """Say why a name cannot be used here, or None."""
        family, dot, member = used.partition(".")
        if not dot:
            if used == "token" and not self.has_token:
                return 'is never made: create.idempotency.mechanism is "none"'
            if used in names:
                return None
            if used in JOB:
                return "is not known yet when this call is made"
            return f"is not a name that can be filled in{nearest(used, sorted(names))}"
        known = {"var": self.variables, "secret": self.secrets, "step": self.captures}.get(family)
        if known is None:
            return "is not a name that can be filled in; there are {var.NAME}, {secret.NAME} and {step.NAME}"
        if family == "secret" and not secrets:
            return "can only stand in headers and in create.fields: anything else is stored, shown and logged"
        if member not in known:
            where = {"var": "[var]", "secret": "[secrets]", "step": "the steps of create"}[family]
            return f"is not in {where}{nearest(member, sorted(known))}"
        return None
