"""Key derivation: labelled extract-and-expand, and the ratchet step.

A `Kdf` is a row of functions.  HKDF-SHA256 follows RFC 5869; keyed BLAKE2b follows RFC 7693.  Labels are
framed so that no two derivations share an input (docs/protocol.md, section 3).  This module knows keys
as 32-byte strings and nothing of queues.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ..codec import lv, u8, u16
from ..errors import LimitExceeded

__all__ = ["BLAKE2B", "HKDF_SHA256", "KEY_SIZE", "Kdf", "same"]

KEY_SIZE: Final = 32
#: Every HKDF label is prefixed by this, so that a change of the protocol changes every key.
LABEL_PREFIX: Final = b"qsratchet-v1 "
#: BLAKE2b has 16 bytes of personalisation for the label.
PERSON_PREFIX: Final = b"qsr1 "

_MESSAGE: Final = b"message"
_NEXT: Final = b"next"


@dataclass(frozen=True, slots=True)
class Kdf:
    """One key derivation function.

    `step` is one turn of the ratchet: chain key in, message key and next chain key out.  `advance` is
    `n` turns without the message keys.  Both give what `expand` gives under the labels "message" and
    "next" with an empty context; they exist because they are the hot path.
    """

    name: str
    hash: Callable[[bytes], bytes]
    extract: Callable[[bytes, bytes], bytes]
    expand: Callable[..., bytes]
    step: Callable[[bytes], tuple[bytes, bytes]]
    advance: Callable[[bytes, int], bytes]


def same(left: bytes, right: bytes) -> bool:
    """Compare two secrets or tags in constant time."""
    return hmac.compare_digest(left, right)


# --- HKDF-SHA256 ---------------------------------------------------------------------------------


def _hkdf_info(label: bytes, context: bytes, length: int) -> bytes:
    framed = LABEL_PREFIX + label
    return u16(length) + u8(len(framed)) + framed + lv(context)


def _hkdf_hash(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def _hkdf_extract(salt: bytes, ikm: bytes) -> bytes:
    return hmac.digest(salt, ikm, "sha256")


def _hkdf_expand(secret: bytes, label: bytes, context: bytes = b"", length: int = KEY_SIZE) -> bytes:
    if length > 255 * 32:
        raise LimitExceeded("HKDF output", length, 255 * 32)
    info = _hkdf_info(label, context, length)
    block = hmac.digest(secret, info + b"\x01", "sha256")
    if length == 32:
        return block
    output = block
    for counter in range(2, -(-length // 32) + 1):
        block = hmac.digest(secret, block + info + u8(counter), "sha256")
        output += block
    return output[:length]


# HMAC-SHA256 spelled out with two plain hashes: bit for bit what hmac.digest gives (the tests compare
# them), at half its cost, because OpenSSL sets up an HMAC context more slowly than two hashes.
_sha256 = hashlib.sha256
_INNER: Final = bytes(byte ^ 0x36 for byte in range(256))
_OUTER: Final = bytes(byte ^ 0x5C for byte in range(256))
_OUTER_PAD: Final = b"\x5c" * 32
_MESSAGE_TAIL: Final = b"\x36" * 32 + _hkdf_info(_MESSAGE, b"", KEY_SIZE) + b"\x01"
_NEXT_TAIL: Final = b"\x36" * 32 + _hkdf_info(_NEXT, b"", KEY_SIZE) + b"\x01"


def _hkdf_step(chain_key: bytes) -> tuple[bytes, bytes]:
    inner = chain_key.translate(_INNER)
    outer = chain_key.translate(_OUTER) + _OUTER_PAD
    return (
        _sha256(outer + _sha256(inner + _MESSAGE_TAIL).digest()).digest(),
        _sha256(outer + _sha256(inner + _NEXT_TAIL).digest()).digest(),
    )


def _hkdf_advance(chain_key: bytes, steps: int) -> bytes:
    sha256, inner, outer, pad, tail = _sha256, _INNER, _OUTER, _OUTER_PAD, _NEXT_TAIL
    for _ in range(steps):
        chain_key = sha256(
            chain_key.translate(outer) + pad + sha256(chain_key.translate(inner) + tail).digest()
        ).digest()
    return chain_key


HKDF_SHA256: Final = Kdf(
    name="HKDF-SHA256",
    hash=_hkdf_hash,
    extract=_hkdf_extract,
    expand=_hkdf_expand,
    step=_hkdf_step,
    advance=_hkdf_advance,
)


# --- keyed BLAKE2b -------------------------------------------------------------------------------

_blake2b = hashlib.blake2b
_EMPTY: Final = lv(b"")


def _blake_hash(data: bytes) -> bytes:
    return _blake2b(data, digest_size=32, person=PERSON_PREFIX + b"hash").digest()


def _blake_extract(salt: bytes, ikm: bytes) -> bytes:
    return _blake2b(ikm, digest_size=32, key=salt, person=PERSON_PREFIX + b"extract").digest()


def _blake_expand(secret: bytes, label: bytes, context: bytes = b"", length: int = KEY_SIZE) -> bytes:
    if length > 64:
        raise LimitExceeded("BLAKE2b output", length, 64)
    return _blake2b(lv(context), digest_size=length, key=secret, person=PERSON_PREFIX + label).digest()


_MESSAGE_PERSON: Final = PERSON_PREFIX + _MESSAGE
_NEXT_PERSON: Final = PERSON_PREFIX + _NEXT


def _blake_step(chain_key: bytes) -> tuple[bytes, bytes]:
    return (
        _blake2b(_EMPTY, digest_size=32, key=chain_key, person=_MESSAGE_PERSON).digest(),
        _blake2b(_EMPTY, digest_size=32, key=chain_key, person=_NEXT_PERSON).digest(),
    )


def _blake_advance(chain_key: bytes, steps: int) -> bytes:
    blake2b, empty, person = _blake2b, _EMPTY, _NEXT_PERSON
    for _ in range(steps):
        chain_key = blake2b(empty, digest_size=32, key=chain_key, person=person).digest()
    return chain_key


BLAKE2B: Final = Kdf(
    name="BLAKE2b",
    hash=_blake_hash,
    extract=_blake_extract,
    expand=_blake_expand,
    step=_blake_step,
    advance=_blake_advance,
)
