"""Which modules are changed, which tests answer for each, and the score that each must reach."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
PRODUCT: Final = ROOT / "core" / "opledger"


@dataclass(frozen=True)
class Module:
    """A module of the product."""

    name: str  #: as in `rules.states`
    goal: float  #: per cent of its changes that must turn a test red
    tests: tuple[str, ...]  #: under `tests/`
    night: bool = False  #: in the short form too
    script: bool = False  #: the tests load it themselves, as a program of its own

    @property
    def path(self) -> Path:
        """Where its source is."""
        return PRODUCT.joinpath(*self.name.split(".")).with_suffix(".py")


def _rules(*names: str) -> tuple[str, ...]:
    return tuple(f"core/rules/test_{name}.py" for name in names)


CONTRACT: Final = _rules(
    "contract_file", "contract_values", "contract_bad", "contract_shipped", "guarantees", "toml_lines", "webhooks"
)
STORE: Final = tuple(f"core/store/test_{name}.py" for name in ("claims", "recording", "leases_machine", "plans"))

MODULES: Final = (
    # The state machine, permits and leases, contract mapping.
    Module("rules.states", 95, _rules("states", "choices", "readme_diagram"), night=True),
    Module("rules.decide", 95, _rules("decide", "explain", "deliveries", "partial"), night=True),
    Module("store.claims", 95, (*STORE, "core/store/test_shares.py"), night=True),
    Module("store.recording", 95, STORE, night=True),
    Module("rules.reach", 95, _rules("reach")),
    Module("rules.holdups", 95, _rules("holdups", "explain")),
    Module("rules.contract", 95, CONTRACT, night=True),
    Module("rules.files.contract", 95, CONTRACT),
    Module("rules.files.calls", 95, CONTRACT),
    Module("rules.files.checks", 95, CONTRACT),
    Module("rules.files.reader", 95, CONTRACT),
    # What verifies.
    Module("verifier", 98, ("core/test_verifier.py",), night=True, script=True),
    Module("rules.tree", 98, (*_rules("tree"), "core/checkpoints/test_maker.py"), night=True),
    Module("rules.notes", 98, (*_rules("notes"), "core/edges/test_signing.py"), night=True),
    # Parsers, masks, origins.
    Module("rules.jsontext", 92, _rules("jsontext", "records", "journal")),
    Module("rules.redact", 92, _rules("redact")),
    Module("edges.addresses", 92, tuple(f"core/edges/test_{name}.py" for name in ("addresses", "origins"))),
)
