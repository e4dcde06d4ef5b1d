"""Everything opledger raises on purpose, and whose fault each is.

    OpledgerError
      Refused            you: the request breaks a rule, or names something that is not there
        UnknownOperation   no operation has this id
        IllegalTransition  the state machine has no such arrow
        BodyConflict       the same operation id (or task step) with another body
        UsageError         malformed input: bad JSON, bad duration, missing file
        SignatureRequired  an approval must be signed, and this one is not
        BadSignature       an approval's signature does not hold
      ConfigWrong        you: a contract file, a setting or a secret reference is wrong
        SecretWrong        a secret cannot be had on this machine
      ProviderBroke      they: the remote API answered something it must not answer
      LeaseLost          nobody: another worker acts for this operation now
      StoreUnavailable   the database cannot be reached, read or written
        SchemaMismatch     the database was made by another version of opledger
        DatabaseReplaced   another file lies where the database was, or none: nothing is written to either
      IntegrityBroken    somebody: what is stored is not what was recorded

Each error carries a ``code`` (a short word for programs) and a message of one sentence that says what is
wrong, whose fault it is and what to do.
"""

from __future__ import annotations

from typing import ClassVar


class OpledgerError(Exception):
    """The root. Catch it to catch everything opledger raises on purpose."""

    code: ClassVar[str] = "error"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class Refused(OpledgerError):
    """The caller asked for something the rules do not allow. Nothing was written."""

    code: ClassVar[str] = "refused"


class UnknownOperation(Refused):
    """No operation has this id in this ledger."""

    code: ClassVar[str] = "unknown_operation"


class IllegalTransition(Refused):
    """The evidence does not apply in the operation's present state. Nothing was written."""

    code: ClassVar[str] = "illegal_transition"


class BodyConflict(Refused):
    """The same identity was used before with another body; the first one stands."""

    code: ClassVar[str] = "body_conflict"


class UsageError(Refused):
    """Input that cannot be read: malformed JSON, a bad duration, a missing file."""

    code: ClassVar[str] = "usage"


class SignatureRequired(Refused):
    """An approval must be signed with the approver's SSH key, and this one is not. Nothing was recorded."""

    code: ClassVar[str] = "signature_required"


class BadSignature(Refused):
    """The signature of an approval is not its approver's, or not over it. Nothing was recorded."""

    code: ClassVar[str] = "bad_signature"


class ConfigWrong(OpledgerError):
    """A contract file, a setting or a secret reference is wrong; the message names file and key."""

    code: ClassVar[str] = "config_wrong"


class SecretWrong(ConfigWrong):
    """A secret cannot be had by this process on this machine; another worker may well have it."""

    code: ClassVar[str] = "secret_wrong"


class ProviderBroke(OpledgerError):
    """The remote API answered something it must not answer."""

    code: ClassVar[str] = "provider_broke"


class LeaseLost(OpledgerError):
    """Another worker has taken this operation over; this writer must stop."""

    code: ClassVar[str] = "lease_lost"


class StoreUnavailable(OpledgerError):
    """The database cannot be reached, read or written; nothing was half-written."""

    code: ClassVar[str] = "store_unavailable"


class SchemaMismatch(StoreUnavailable):
    """The database was made by another version of opledger."""

    code: ClassVar[str] = "schema_mismatch"


class DatabaseReplaced(StoreUnavailable):
    """The file was removed or replaced while it was open. It does not pass by itself: whoever drives must stop."""

    code: ClassVar[str] = "database_replaced"


class IntegrityBroken(OpledgerError):
    """What is stored is not what was recorded: it was changed or removed since. Nothing of it is used."""

    code: ClassVar[str] = "integrity"
