"""The one codec: big-endian integers, length-prefixed bytes, and documents with a marker and a checksum.

Everything that is stored or sent as a unit (states, requests, offers, grants, links, snapshots) is a
*document*: four marker bytes that name its kind, one version byte, the body, and a CRC-32 of all of
that (docs/protocol.md, section 2).  The checksum finds accidents, not attackers.  Decoding is strict: what
is left over, cut short or out of range is an error.  This module holds no keys and knows no protocol.
"""

from __future__ import annotations

import struct
from enum import Enum
from typing import Any, Final, NoReturn, TypeAlias
from zlib import crc32

from .errors import DecodeError, LimitExceeded, StateError

__all__ = ["Buffer", "Kind", "Reader", "as_bytes", "document", "lv", "open_document", "u8", "u16", "u32", "u64"]

#: What every call takes for bytes; any other object with a buffer works too.
Buffer: TypeAlias = bytes | bytearray | memoryview

U64_MAX: Final = (1 << 64) - 1
_U16: Final = struct.Struct(">H")
_U32: Final = struct.Struct(">I")
_U64: Final = struct.Struct(">Q")


class Kind(Enum):
    """The kinds of documents, by their four marker bytes.  The first three are always ``QSR``."""

    CREATION_REQUEST = b"QSRC"
    KEY_OFFER = b"QSRO"
    ENQUEUER = b"QSRE"
    DEQUEUER = b"QSRD"
    QUEUE_RECORD = b"QSRQ"
    STORE_LOG = b"QSRS"
    GRANT = b"QSRG"
    OWNER_KEYS = b"QSRK"
    LINK_OWNER = b"QSRL"
    LINK_OPENING = b"QSRJ"
    LINK_VERSIONS = b"QSRV"
    CONNECTION = b"QSRN"
    SEALED_FILE = b"QSRF"

    @property
    def title(self) -> str:
        return self.name.lower().replace("_", " ")


_KINDS: Final = {kind.value: kind for kind in Kind}


def as_bytes(value: Buffer) -> bytes:
    """Take any bytes-like object; return it as `bytes`, copied only when it is something else."""
    if type(value) is bytes:
        return value
    if isinstance(value, (str, int)):
        raise TypeError(f"a bytes-like object is needed, not {type(value).__name__}")
    return bytes(memoryview(value))


def u8(value: int) -> bytes:
    return value.to_bytes(1, "big")


def u16(value: int) -> bytes:
    return _U16.pack(value)


def u32(value: int) -> bytes:
    return _U32.pack(value)


def u64(value: int) -> bytes:
    return _U64.pack(value)


def lv(value: bytes) -> bytes:
    """Length-prefixed bytes: a u16 length, then the bytes."""
    if len(value) > 0xFFFF:
        raise LimitExceeded("length-prefixed field", len(value), 0xFFFF)
    return _U16.pack(len(value)) + value


def document(kind: Kind, version: int, body: bytes) -> bytes:
    """Frame `body` as a document of this kind."""
    head = kind.value + u8(version) + body
    return head + _U32.pack(crc32(head))


def open_document(kind: Kind, version: int, data: Buffer, *, stored: bool) -> Reader:
    """Check marker, version and checksum; return a reader over the body.

    `stored` says where the bytes came from, and so which error they raise: `StateError` for the
    host's own storage, `DecodeError` for anybody else's bytes.
    """
    raw = as_bytes(data)
    reader = Reader(raw, kind.title, stored=stored)
    marker = raw[:4]
    if marker != kind.value:
        other = _KINDS.get(marker)
        if other is None:
            reader.fail("its first four bytes are not the marker of any qsratchet document")
        reader.fail(f"this is a document of another kind ({other.title}); load it with the class that made it")
    if len(raw) < 9:
        reader.fail("it is cut short")
    if raw[4] != version:
        reader.fail(f"its format version is {raw[4]}, and this release reads version {version}")
    if crc32(raw[:-4]) != _U32.unpack(raw[-4:])[0]:
        reader.fail("its checksum is wrong, so it was damaged or cut short; restore it from where it was stored")
    reader.limit(5, len(raw) - 4)
    return reader


class Reader:
    """Reads a byte string from front to back and refuses what does not fit."""

    __slots__ = ("_data", "_end", "_position", "_stored", "what")

    def __init__(self, data: bytes, what: str, *, stored: bool = False) -> None:
        self._data = data
        self._position = 0
        self._end = len(data)
        self._stored = stored
        self.what = what

    def limit(self, start: int, end: int) -> None:
        """Read only between these two offsets."""
        self._position, self._end = start, end

    def fail(self, reason: str) -> NoReturn:
        if self._stored:
            raise StateError(f"stored {self.what}: {reason}")
        raise DecodeError(self.what, reason)

    def take(self, length: int) -> bytes:
        start = self._position
        end = start + length
        if end > self._end:
            self.fail(f"it is cut short at byte {start}")
        self._position = end
        return self._data[start:end]

    def u8(self) -> int:
        return self.take(1)[0]

    def u16(self) -> int:
        value: int = _U16.unpack(self.take(2))[0]
        return value

    def u32(self) -> int:
        value: int = _U32.unpack(self.take(4))[0]
        return value

    def u64(self) -> int:
        value: int = _U64.unpack(self.take(8))[0]
        return value

    def unpack(self, fields: struct.Struct) -> tuple[Any, ...]:
        """Fields of fixed size, in one go."""
        return fields.unpack(self.take(fields.size))

    def lv(self) -> bytes:
        return self.take(self.u16())

    def flag(self) -> bool:
        value = self.u8()
        if value > 1:
            self.fail(f"a flag has the value {value}")
        return value == 1

    def rest(self) -> bytes:
        return self.take(self._end - self._position)

    def end(self) -> None:
        """Nothing may be left."""
        if self._position != self._end:
            self.fail(f"{self._end - self._position} bytes are left over")
