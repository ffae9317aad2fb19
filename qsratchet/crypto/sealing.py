"""Seal bytes under a key that is used more than once: ChaCha20-Poly1305 with a random nonce in front.

This module knows keys and bytes, and nothing of blobs.
"""

from __future__ import annotations

import os
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from ..codec import Buffer, as_bytes
from ..errors import MisuseError, RejectedError
from .entropy import Entropy
from .kdf import KEY_SIZE
from .suites import NONCE_SIZE, TAG_SIZE

__all__ = ["SEAL_OVERHEAD", "SealRejected", "seal", "unseal"]

#: How much longer sealed bytes are than the bytes.
SEAL_OVERHEAD: Final = NONCE_SIZE + TAG_SIZE


class SealRejected(RejectedError):
    """Bytes were not sealed under this key with this associated data."""


def seal(key: Buffer, message: Buffer, aad: Buffer, entropy: Entropy = os.urandom) -> bytes:
    """Nonce, ciphertext, tag.  The key has 32 bytes and seals at most 2^32 messages: derive another one by then.

    The nonce is 96 random bits, and two that are equal under one key give both messages away and let anybody forge.
    After 2^32 messages the chance of that is 2^-33.
    """
    cipher = _cipher(key)
    nonce = entropy(NONCE_SIZE)
    return nonce + cipher.encrypt(nonce, as_bytes(message), as_bytes(aad))


def unseal(key: Buffer, sealed: Buffer, aad: Buffer) -> bytes:
    """The message; `SealRejected` if these bytes were not sealed under this key with this `aad`."""
    cipher, raw = _cipher(key), as_bytes(sealed)
    try:
        if len(raw) < SEAL_OVERHEAD:
            raise InvalidTag
        return cipher.decrypt(raw[:NONCE_SIZE], raw[NONCE_SIZE:], as_bytes(aad))
    except InvalidTag:
        raise SealRejected("these bytes were not sealed under this key with this associated data") from None


def _cipher(key: Buffer) -> ChaCha20Poly1305:
    raw = as_bytes(key)
    if len(raw) != KEY_SIZE:
        raise MisuseError(f"a key for sealing has {KEY_SIZE} bytes, not {len(raw)}")
    return ChaCha20Poly1305(raw)
