"""What must never be written down about a task: the secrets that its commands might print."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final
from urllib.parse import unquote, urlsplit

from opledger import config
from opledger.errors import ConfigWrong
from opledger.rules.redact import Redactor, secret_name

LEAST: Final = 8
"""Characters of a variable's value from which on its name alone makes it a secret; a word like "true" is none."""

_PLACES: Final = frozenset({"PWD", "OLDPWD"})
"""What sounds like a password to a program, and is the working directory."""


def redactor_of(settings: config.Settings) -> Redactor:
    """Mask variables that are named like secrets or that a contract names, and the password of the database."""
    return Redactor(set(_secrets(settings)))


def _secrets(settings: config.Settings) -> Iterator[str]:
    environment = {**settings.environment, **os.environ}
    for name, value in environment.items():
        if name not in _PLACES and len(value) >= LEAST and secret_name(name):
            yield value
    try:
        password = urlsplit(settings.database).password
    except ValueError:
        password = None
    if password:
        yield unquote(password)
    for reference in _references(settings):
        kind, _, name = reference.partition(":")
        if kind == "env" and environment.get(name):
            yield environment[name]


def _references(settings: config.Settings) -> Iterator[str]:
    try:
        files = config.list_contracts(settings)
    except ConfigWrong:
        return  # a folder that is not there: whoever needs a contract says so
    for file in files:
        if file.contract is not None:
            yield from file.contract.references
