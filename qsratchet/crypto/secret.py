"""What every object that holds a secret has in common: it is never pickled, copied or printed.

A pickled or copied ratchet is a second writer with the same keys, and a printed one is a leak, so both
fail loudly.  Erasing memory is not promised: CPython copies `bytes` freely (docs/security.md).
"""

from __future__ import annotations

from typing import NoReturn, SupportsIndex

__all__ = ["Sensitive"]


class Sensitive:
    """Base of the objects that hold secrets; a subclass says in `describe` what may be logged."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]

    def describe(self) -> str:
        """Facts that are safe to log: numbers and names, no key material."""
        return ""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.describe()}".rstrip() + ">"

    def __getstate__(self) -> NoReturn:
        self.__reduce_ex__(0)

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError(
            f"{type(self).__name__} holds secrets and is not pickled or copied; "
            "store it as bytes with its own dump() or encode()"
        )
