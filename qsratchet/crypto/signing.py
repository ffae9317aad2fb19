"""Ed25519 (RFC 8032): a signing key by its seed, and verification that raises instead of returning a bool.

This module knows keys, messages and signatures as bytes, and nothing of what is signed or why.
"""

from __future__ import annotations

import os
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from ..codec import Buffer, as_bytes
from ..errors import KeyRejected, MisuseError, RejectedError
from .entropy import Entropy
from .secret import Sensitive

__all__ = ["SIGNATURE_SIZE", "SIGNING_PUBLIC_SIZE", "SIGNING_SEED_SIZE", "SignatureRejected", "SigningKey", "verify"]

SIGNING_SEED_SIZE: Final = 32
SIGNING_PUBLIC_SIZE: Final = 32
SIGNATURE_SIZE: Final = 64


class SignatureRejected(RejectedError):
    """A signature was not made with this key over this message."""


class SigningKey(Sensitive):
    """An Ed25519 private key, held and stored as its 32-byte seed."""

    __slots__ = ("_key", "seed")

    def __init__(self, seed: Buffer) -> None:
        self.seed: Final = as_bytes(seed)
        if len(self.seed) != SIGNING_SEED_SIZE:
            raise MisuseError(f"an Ed25519 seed has {SIGNING_SEED_SIZE} bytes, not {len(self.seed)}")
        self._key = Ed25519PrivateKey.from_private_bytes(self.seed)

    @classmethod
    def generate(cls, entropy: Entropy = os.urandom) -> SigningKey:
        return cls(entropy(SIGNING_SEED_SIZE))

    def public(self) -> bytes:
        return self._key.public_key().public_bytes_raw()

    def sign(self, message: Buffer) -> bytes:
        return self._key.sign(as_bytes(message))


def verify(public_key: Buffer, message: Buffer, signature: Buffer) -> None:
    """Return if the signature is right; raise `SignatureRejected`, or `KeyRejected` for what is no key."""
    raw = as_bytes(public_key)
    if len(raw) != SIGNING_PUBLIC_SIZE:
        raise KeyRejected(f"an Ed25519 public key has {SIGNING_PUBLIC_SIZE} bytes, not {len(raw)}")
    try:
        Ed25519PublicKey.from_public_bytes(raw).verify(as_bytes(signature), as_bytes(message))
    except InvalidSignature:
        raise SignatureRejected("the signature was not made with this key over this message") from None
