"""Seal bytes under a key that is used more than once: ChaCha20-Poly1305 with a random nonce in front.

A nonce of 96 random bits repeats with a chance of 2^-33 after 2^32 seals under one key, so a key may seal
that often and no oftener.  This module knows keys and bytes, and nothing of blobs.
"""

from __future__ import annotations

import os
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from .entropy import Entropy
from .suites import NONCE_SIZE, TAG_SIZE

__all__ = ["SEAL_OVERHEAD", "seal", "unseal"]

#: How much longer sealed bytes are than the bytes.
SEAL_OVERHEAD: Final = NONCE_SIZE + TAG_SIZE


def seal(key: bytes, message: bytes, aad: bytes, entropy: Entropy = os.urandom) -> bytes:
    """Nonce, ciphertext, tag."""
    nonce = entropy(NONCE_SIZE)
    return nonce + ChaCha20Poly1305(key).encrypt(nonce, message, aad)


def unseal(key: bytes, sealed: bytes, aad: bytes) -> bytes | None:
    """The message; None when these bytes were not sealed under this key with this `aad`."""
    if len(sealed) < SEAL_OVERHEAD:
        return None
    try:
        return ChaCha20Poly1305(key).decrypt(sealed[:NONCE_SIZE], sealed[NONCE_SIZE:], aad)
    except InvalidTag:
        return None
