"""The queue encryption that this library grew from, built as its one-page description says and no further.

The service samples the ratchet key and encrypts it to the owner's one static HPKE key; an update is the bare HPKE
ciphertext of fresh randomness, enqueued like a message.  Nothing is associated data; there is no join secret, no key
confirmation, no head; the owner catches up with whatever number a frame claims.  Where the page is silent the
kinder reading is taken: random nonces, a frame that fails to open changes nothing.  The primitives are those of
the library, so that what the attacks show is the design's doing alone.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from cryptography.exceptions import InvalidTag

from qsratchet.crypto.kem import PrivateKey
from qsratchet.crypto.suites import SUITES, Suite

__all__ = ["HEADER_SIZE", "SeedFrameType", "SeedOwner", "SeedService", "rotated", "seed_frame", "split"]

#: The tag of a frame, in clear and authenticated by nothing: number, type, suite.
_TAG: Final = struct.Struct(">QBH")
HEADER_SIZE: Final = _TAG.size
NONCE_SIZE: Final = 12


class SeedFrameType(IntEnum):
    """What a reader must know of a frame to treat it; the page leaves open how it knows."""

    INIT = 1
    DATA = 2
    UPDATE = 3


def seed_frame(seq: int, type: SeedFrameType, suite: int, payload: bytes) -> bytes:
    return _TAG.pack(seq, type, suite) + payload


def split(frame: bytes) -> tuple[int, SeedFrameType, int, bytes]:
    seq, type, suite = _TAG.unpack_from(frame)
    return seq, SeedFrameType(type), suite, frame[HEADER_SIZE:]


def rotated(suite: Suite, ratchet_key: bytes, fresh: bytes) -> bytes:
    """The new ratchet key, from the rotation key of the current one and fresh randomness."""
    rotation_key = suite.kdf.expand(ratchet_key, b"rotation")
    return suite.kdf.expand(suite.kdf.extract(rotation_key, fresh), b"ratchet")


@dataclass(slots=True)
class SeedService:
    """The queuing service: it holds the owner's public key, the ratchet key and the next number."""

    suite: Suite
    public_key: bytes
    ratchet_key: bytes
    seq: int

    @classmethod
    def create(cls, public_key: bytes, suite: int) -> tuple[SeedService, bytes]:
        row = SUITES[suite]
        ratchet_key = os.urandom(32)
        sealed = row.kem.seal(public_key, b"", ratchet_key)
        return cls(row, public_key, ratchet_key, 1), seed_frame(0, SeedFrameType.INIT, suite, sealed)

    def enqueue(self, message: bytes) -> bytes:
        message_key, next_key = self.suite.kdf.step(self.ratchet_key)
        nonce = os.urandom(NONCE_SIZE)
        sealed = nonce + self.suite.aead(message_key).encrypt(nonce, message, None)
        return self._tagged(SeedFrameType.DATA, sealed, next_key)

    def update(self) -> bytes:
        fresh = os.urandom(32)
        sealed = self.suite.kem.seal(self.public_key, b"", fresh)
        return self._tagged(SeedFrameType.UPDATE, sealed, rotated(self.suite, self.ratchet_key, fresh))

    def _tagged(self, type: SeedFrameType, payload: bytes, next_key: bytes) -> bytes:
        frame = seed_frame(self.seq, type, self.suite.id, payload)
        self.seq += 1
        self.ratchet_key = next_key
        return frame


@dataclass(slots=True)
class SeedOwner:
    """The queue's owner: a static private key and, once the first frame is read, the ratchet key."""

    private_key: PrivateKey
    suite: Suite
    ratchet_key: bytes = b""
    seq: int = 0
    #: Called once for every step of catching up: how a test measures, and ends, what has no bound.
    on_step: Callable[[], None] = lambda: None

    @classmethod
    def create(cls, suite: int) -> SeedOwner:
        row = SUITES[suite]
        return cls(PrivateKey.generate(row.kem), row)

    def copy(self) -> SeedOwner:
        return SeedOwner(self.private_key, self.suite, self.ratchet_key, self.seq, self.on_step)

    def open(self, frame: bytes) -> bytes | None:
        """The message of a frame; None for INIT, for UPDATE, and for a number that was read before."""
        seq, type, suite, payload = split(frame)
        if type is SeedFrameType.INIT:
            ratchet_key = self._unsealed(payload)
            self.suite, self.ratchet_key, self.seq = SUITES[suite], ratchet_key, seq + 1
            return None
        if seq < self.seq:
            return None
        ratchet_key, at = self.ratchet_key, self.seq
        while at < seq:
            self.on_step()
            _, ratchet_key = self.suite.kdf.step(ratchet_key)
            at += 1
        if type is SeedFrameType.UPDATE:
            self.ratchet_key = rotated(self.suite, ratchet_key, self._unsealed(payload))
            self.seq = seq + 1
            return None
        message_key, next_key = self.suite.kdf.step(ratchet_key)
        message = self.suite.aead(message_key).decrypt(payload[:NONCE_SIZE], payload[NONCE_SIZE:], None)
        self.ratchet_key, self.seq = next_key, seq + 1
        return message

    def _unsealed(self, payload: bytes) -> bytes:
        fresh = self.private_key.open(b"", payload)
        if fresh is None:
            raise InvalidTag
        return fresh
