"""A short link as a value: its kind and mode, the 32 secret bytes, and the server.

A link is a secret: who holds it reads the blobs, and nobody else does.  So it prints nothing of it and is not
pickled; its text is made by `format_link` alone.  This module knows no text and no blobs.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..codec import Reader, u8
from ..crypto.kdf import same
from ..crypto.secret import Sensitive
from ..errors import MisuseError
from .derive import LINK_KEY_SIZE, LinkKeys, context, derive
from .kinds import LinkKind, LinkMode
from .server import ServerAddress

__all__ = ["Link", "read_kind", "read_mode"]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class Link(Sensitive):
    """What the owner shares and a sender opens.  `key` is `k` (direct) or the hash of the fixed data (bound)."""

    kind: LinkKind
    mode: LinkMode
    key: bytes
    server: ServerAddress

    def __post_init__(self) -> None:
        if len(self.key) != LINK_KEY_SIZE:
            raise MisuseError(f"the key of a link has {LINK_KEY_SIZE} bytes, not {len(self.key)}")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Link):
            return NotImplemented
        return same(self.encode(), other.encode())

    def describe(self) -> str:
        return f"{self.mode.name.lower()} {self.kind.name.lower()} at {self.server.hosts[0]}"

    def context(self) -> bytes:
        return context(self.mode, self.kind, self.server.fingerprint)

    def keys(self) -> LinkKeys:
        """Derive the sender ID and the keys of the blobs."""
        return derive(self.key, self.context())

    def encode(self) -> bytes:
        """The bytes of this link inside a stored document."""
        return u8(self.mode.value) + u8(self.kind.value) + self.key + self.server.encode()

    @classmethod
    def read(cls, reader: Reader) -> Link:
        mode, kind = read_mode(reader), read_kind(reader)
        return cls(mode=mode, kind=kind, key=reader.take(LINK_KEY_SIZE), server=ServerAddress.read(reader))


def read_mode(reader: Reader) -> LinkMode:
    number = reader.u8()
    try:
        return LinkMode(number)
    except ValueError:
        reader.fail(f"{number} is not a mode of links")


def read_kind(reader: Reader) -> LinkKind:
    number = reader.u8()
    try:
        return LinkKind(number)
    except ValueError:
        reader.fail(f"{number} is not a kind of link")
