"""Frames on the wire: the header, the four types, and the limits (docs/protocol.md, sections 5 and 8).

This module reads and writes what nobody has authenticated yet.  It knows no keys.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final, NamedTuple

from ..codec import Buffer, as_bytes
from ..crypto.suites import SUITES
from ..errors import LimitExceeded, MisuseError
from .verdicts import FrameRejected, HeadRejected, MalformedFrame, UnknownSuite, UnknownType, UnknownVersion

__all__ = [
    "AAD_LIMIT",
    "DATA",
    "EPOCH_CAP",
    "EPOCH_LIMIT",
    "FRAME_LIMIT",
    "HEADER",
    "HEADER_SIZE",
    "HEAD_SIZE",
    "MESSAGE_LIMIT",
    "NONCE_RANGE",
    "SEQ_LIMIT",
    "VERSION",
    "Frame",
    "FrameType",
    "Header",
    "checked_aad",
    "checked_nonce",
    "header_of",
    "pack_header",
    "read_head",
]

VERSION: Final = 1
HEADER_SIZE: Final = 16
HEAD_SIZE: Final = HEADER_SIZE + 32

#: Sequence numbers stay below 2⁶³ - 1, so that they and the number after the last fit SQL's and Parquet's integers.
SEQ_LIMIT: Final = (1 << 63) - 1
#: Epochs are a u32 on the wire.
EPOCH_LIMIT: Final = 1 << 32
#: An epoch has at most this many frames, its UPDATE included: it bounds what one stolen chain key opens,
#: and the work of walking a chain.
EPOCH_CAP: Final = 1 << 16
#: A message has at most 16 MiB, so that a reader can bound its memory before it authenticates.
MESSAGE_LIMIT: Final = 1 << 24
#: The caller's associated data has at most 64 KiB less one byte.
AAD_LIMIT: Final = (1 << 16) - 1
#: The owner's nonce for a head has 16 to 64 bytes: enough never to repeat, and bounded.
NONCE_RANGE: Final = range(16, 65)
#: No frame is longer: header, nonce and tag are 44 bytes, and no padding brings a message over 17 MiB.
FRAME_LIMIT: Final = (17 << 20) + 64


class FrameType(IntEnum):
    """The types of frames, as they stand in the header."""

    INIT = 1
    DATA = 2
    UPDATE = 3
    HEAD = 4


class Header(NamedTuple):
    """The 16 bytes that open every frame, in clear but authenticated with it."""

    type: FrameType
    suite: int
    epoch: int
    seq: int


class Frame(NamedTuple):
    """A frame to store: `data` under the number `seq`.

    INIT and UPDATE must be kept until they are acknowledged: without them nothing after them opens.  A DATA
    frame may be given up sooner, and costs only itself.
    """

    seq: int
    type: FrameType
    data: bytes


#: version u8, type u8, suite u16, epoch u32, seq u64.
HEADER: Final = struct.Struct(">BBHIQ")
#: A member of an enumeration, looked up once: the inner loops use it for every message.
DATA: Final = FrameType.DATA
_TYPES: Final = {int(type): type for type in FrameType}


def pack_header(type: FrameType, suite: int, epoch: int, seq: int) -> bytes:
    return HEADER.pack(VERSION, type, suite, epoch, seq)


def header_of(frame: Buffer) -> Header:
    """Read a frame's header; nothing of it is authenticated."""
    frame = as_bytes(frame)
    size = len(frame)
    if size < HEADER_SIZE:
        raise MalformedFrame(f"a frame has at least {HEADER_SIZE} bytes, this one has {size}: fetch it again")
    if size > FRAME_LIMIT:
        raise MalformedFrame(f"a frame has at most {FRAME_LIMIT} bytes, this one has {size}")
    version, type, suite, epoch, seq = HEADER.unpack_from(frame)
    if version != VERSION:
        raise UnknownVersion(version)
    known = _TYPES.get(type)
    if known is None:
        raise UnknownType(type)
    if suite not in SUITES:
        raise UnknownSuite(suite)
    if seq >= SEQ_LIMIT:
        raise MalformedFrame(f"sequence numbers end below 2⁶³ - 1, this frame claims {seq}")
    return Header(known, suite, epoch, seq)


def read_head(head: Buffer, suite: int) -> tuple[bytes, Header]:
    """Read a head's header; nothing of it is authenticated."""
    raw = as_bytes(head)
    try:
        header = header_of(raw)
    except FrameRejected as verdict:
        raise HeadRejected(f"this is not a head: {verdict}") from None
    if header.type is not FrameType.HEAD or len(raw) != HEAD_SIZE or header.suite != suite:
        raise HeadRejected(f"this is not a head of this queue, but {len(raw)} bytes of type {header.type.name}")
    return raw, header


def checked_nonce(nonce: Buffer) -> bytes:
    raw = as_bytes(nonce)
    if len(raw) not in NONCE_RANGE:
        raise MisuseError(f"a nonce has {NONCE_RANGE.start} to {NONCE_RANGE.stop - 1} bytes, not {len(raw)}")
    return raw


def checked_aad(aad: Buffer) -> bytes:
    raw = as_bytes(aad)
    if len(raw) > AAD_LIMIT:
        raise LimitExceeded("associated data in bytes", len(raw), AAD_LIMIT)
    return raw
