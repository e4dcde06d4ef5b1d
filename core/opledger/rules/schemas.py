"""JSON Schemas of results: compiled once, tried on outside documents, and never a reason to fetch anything."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, NoReturn

from opledger.rules import jsontext, plain

MAX_SCHEMA: Final = 256 * 1024
"""Most bytes of a schema."""
MOST_FAULTS: Final = 5
"""Most faults of one document that are told."""

_PLACE: Final = 120


@dataclass(frozen=True, slots=True)
class Schema:
    """A compiled JSON Schema (drafts 4 to 2020-12, as its ``$schema`` says). `text` is the schema as written."""

    text: str
    name: str = ""  #: the file it came from
    program: Any = field(compare=False, repr=False, default=None)

    @classmethod
    def parse(cls, text: str, name: str = "") -> Schema:
        """Compile. Raises ValueError for what is no JSON, no schema, or points to a document outside of itself."""
        if len(text.encode("utf-8", "surrogatepass")) > MAX_SCHEMA:
            raise ValueError(f"the schema is larger than {MAX_SCHEMA} bytes")
        document = jsontext.loads(text)
        if not isinstance(document, dict | bool):
            raise ValueError("a schema is a JSON object")  # noqa: TRY004 - as for all that is wrong in a contract
        # Its compiler takes a twentieth of a second to load: only a contract with a schema is worth that.
        import jsonschema_rs

        try:
            program = jsonschema_rs.validator_for(document, retriever=_refuse)
        except ValueError as error:
            raise ValueError(f"the schema cannot be used: {_first_line(error)}") from error
        return cls(text, name, program)

    def faults(self, document: Any) -> tuple[str, ...]:
        """Say where a document breaks the schema, and which rule of it; never what stands there."""
        if self.program.is_valid(document):
            return ()
        found = [_fault(error) for error in islice(self.program.iter_errors(document), MOST_FAULTS + 1)]
        more = len(found) > MOST_FAULTS
        return (*found[:MOST_FAULTS], *(["and more"] if more else []))


def _refuse(uri: str) -> NoReturn:
    """Take the place of what would fetch a schema from the network, or from a file."""
    raise ValueError("schemas are not fetched; write what is needed into $defs")


def _fault(error: Any) -> str:
    place = "".join(f"/{part}" for part in error.instance_path) or "its root"
    rule = "/".join(str(part) for part in error.schema_path)
    return f"{plain.clean(place, limit=_PLACE)} breaks {plain.clean(rule or 'false', limit=_PLACE)}"


def _first_line(error: ValueError) -> str:
    return plain.clean(str(error).partition("\n")[0], limit=200)
