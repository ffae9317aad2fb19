"""The errors of the whole library: one base class, split by whose fault it is.

`MisuseError` is the caller's: the call is not allowed now or with these arguments.  `RejectedError` is
somebody else's: bytes that came from outside were refused.  `StateError` is the storage's: a stored state
cannot be read.  Each of them means that nothing changed.  Leaves carry the numbers that a person needs and
never key material.  This module knows nothing of the protocols; each package adds its own leaves.
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = [
    "DecodeError",
    "KeyRejected",
    "LimitExceeded",
    "MisuseError",
    "QSRatchetError",
    "RejectedError",
    "StateError",
]


class QSRatchetError(Exception):
    """The base of every error that this library raises on purpose."""

    def __reduce__(self) -> tuple[Callable[..., QSRatchetError], tuple[object, ...]]:
        """Errors travel between processes, and `args` alone would not make them again: constructors take numbers."""
        return _restored, (type(self), self.args, self.__dict__)


def _restored(kind: type[QSRatchetError], args: tuple[object, ...], attributes: dict[str, object]) -> QSRatchetError:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(attributes)
    return error


class MisuseError(QSRatchetError):
    """The caller asked for something that is not allowed; the object is unchanged and stays usable."""


class LimitExceeded(MisuseError):
    """An argument is larger than a named limit of the protocol."""

    def __init__(self, what: str, size: int, limit: int) -> None:
        super().__init__(f"{what}: {size} is over the limit of {limit}")
        self.what = what
        self.size = size
        self.limit = limit


class RejectedError(QSRatchetError):
    """Bytes from outside were refused; the object is unchanged and stays usable."""


class DecodeError(RejectedError):
    """Bytes from outside do not have the layout that the protocol document gives."""

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(f"{what}: {reason}")
        self.what = what
        self.reason = reason


class KeyRejected(RejectedError):
    """A public key is malformed, of the wrong length, or a point of low order."""


class StateError(QSRatchetError):
    """A stored state is corrupt, of another role, or of a format that this version does not read."""
