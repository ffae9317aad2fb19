"""X25519 (RFC 7748): a key pair by its seed, and the exchange that refuses points of low order.

This module knows keys as bytes, and nothing of who agrees with whom.
"""

from __future__ import annotations

import os
from typing import Final

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from ..codec import Buffer, as_bytes
from ..errors import KeyRejected, MisuseError
from .entropy import Entropy
from .secret import Sensitive

__all__ = ["DH_PUBLIC_SIZE", "DH_SEED_SIZE", "DhKey"]

DH_SEED_SIZE: Final = 32
DH_PUBLIC_SIZE: Final = 32


class DhKey(Sensitive):
    """An X25519 private key, held and stored as its 32-byte seed."""

    __slots__ = ("_key", "seed")

    def __init__(self, seed: Buffer) -> None:
        self.seed: Final = as_bytes(seed)
        if len(self.seed) != DH_SEED_SIZE:
            raise MisuseError(f"an X25519 seed has {DH_SEED_SIZE} bytes, not {len(self.seed)}")
        self._key = X25519PrivateKey.from_private_bytes(self.seed)

    @classmethod
    def generate(cls, entropy: Entropy = os.urandom) -> DhKey:
        return cls(entropy(DH_SEED_SIZE))

    def public(self) -> bytes:
        return self._key.public_key().public_bytes_raw()

    def exchange(self, public_key: Buffer) -> bytes:
        """The raw shared secret: put it through a KDF before you use it as a key."""
        raw = as_bytes(public_key)
        if len(raw) != DH_PUBLIC_SIZE:
            raise KeyRejected(f"an X25519 public key has {DH_PUBLIC_SIZE} bytes, not {len(raw)}")
        try:
            return self._key.exchange(X25519PublicKey.from_public_bytes(raw))
        except ValueError:
            raise KeyRejected(
                "this X25519 public key is a point of low order: its secret would be known to all"
            ) from None
