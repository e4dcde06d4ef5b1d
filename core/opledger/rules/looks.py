"""What is looked for in the records of a result while they go by."""

from __future__ import annotations

from typing import Any, Final

from opledger.rules.schemas import Schema
from opledger.rules.values import Condition, ConditionError

MOST_BAD: Final = 10
"""Most records of a result of which is told how they break the schema."""


class Look:
    """Something that is looked for in the records while they go by.

    `problems` make the result invalid, `notes` are remarks. Where it is `needed`, a result that could not be looked
    into cannot be accepted. Only where it wants to see the `whole` is a JSON document sure to be shown as one.
    """

    needed = False
    whole = False

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.notes: list[str] = []

    def document(self, document: Any) -> None:
        """Look at a JSON document as a whole."""

    def row(self, row: Any, number: int) -> None:
        """Look at a record; the first has number 1."""


class ErrorRows(Look):
    """Looks for the error that the contract says a record of a valid file may carry."""

    def __init__(self, when: Condition) -> None:
        super().__init__()
        self._when: Condition | None = when

    def row(self, row: Any, number: int) -> None:
        """Try the condition; the first record that carries an error is told."""
        if self._when is None:
            return
        try:
            if not self._when.holds({"row": row}):
                return
            self.problems.append(f"record {number} carries an error: {self._when.text}")
        except ConditionError:
            self.notes.append(f"record {number} (and maybe others) could not be tried against {self._when.text}")
        self._when = None


class Fits(Look):
    """Tries a JSON Schema: on a JSON document as a whole, on each record of JSON lines, on each row of a CSV.

    A row is an object of texts, by the names of its columns.
    """

    needed = True

    def __init__(self, schema: Schema, *, by_record: bool) -> None:
        super().__init__()
        self._schema = schema
        self._by_record = by_record
        self.whole = not by_record
        self._bad = 0

    def document(self, document: Any) -> None:
        """Try a whole document."""
        if not self._by_record:
            self.problems += [f"the result does not fit its schema: {fault}" for fault in self._schema.faults(document)]

    def row(self, row: Any, number: int) -> None:
        """Try a record; of a file that is wrong all through, only the first ones are told."""
        if not self._by_record or self._bad >= MOST_BAD:
            return
        faults = self._schema.faults(row)
        if faults:
            self._bad += 1
            self.problems.append(f"record {number} does not fit the schema: {'; '.join(faults)}")
            if self._bad == MOST_BAD:
                self.notes.append(f"the records after {number} were not tried against the schema")
