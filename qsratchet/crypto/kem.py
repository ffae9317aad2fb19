"""HPKE (RFC 9180, base mode, one message): what an INIT or an UPDATE seals its randomness with.

HPKE's own KDF is HKDF-SHA256 and its AEAD is AES-256-GCM in every row.  The application's context goes
into `info`, because the public one-shot interface has no AAD.  A private key is stored as a 32-byte seed,
which for X-Wing is the seed of its draft; a key is parsed only when it is used.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hpke
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey, MLKEM768PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from ..errors import KeyRejected
from .secret import Sensitive

__all__ = ["SEED_SIZE", "X25519", "XWING", "Kem", "PrivateKey"]

SEED_SIZE: Final = 32
_MLKEM768_PUBLIC: Final = 1184


@dataclass(frozen=True, slots=True)
class Kem:
    """One HPKE suite: sizes, and how its keys are read."""

    name: str
    public_size: int
    #: How much longer a sealed message is than the message.
    overhead: int
    suite: hpke.Suite
    parse_public: Callable[[bytes], Any]
    parse_private: Callable[[bytes], Any]
    #: The public key of a seed.
    public_bytes: Callable[[bytes], bytes]

    def seal(self, public_key: bytes, info: bytes, message: bytes) -> bytes:
        """Encrypt `message` to a public key; `KeyRejected` when the key is none."""
        if len(public_key) != self.public_size:
            raise KeyRejected(f"a {self.name} public key has {self.public_size} bytes, not {len(public_key)}")
        try:
            return self.suite.encrypt(message, self.parse_public(public_key), info)
        except ValueError:
            raise KeyRejected(f"this is not a usable {self.name} public key (malformed, or of low order)") from None


class PrivateKey(Sensitive):
    """A private key by its seed; the costly parsing happens at first use."""

    __slots__ = ("_parsed", "kem", "seed")

    def __init__(self, kem: Kem, seed: bytes) -> None:
        self.kem = kem
        self.seed = seed
        self._parsed: Any = None

    @classmethod
    def generate(cls, kem: Kem) -> PrivateKey:
        return cls(kem, os.urandom(SEED_SIZE))

    def describe(self) -> str:
        return self.kem.name

    def public(self) -> bytes:
        return self.kem.public_bytes(self.seed)

    def open(self, info: bytes, sealed: bytes) -> bytes | None:
        """Decrypt; None when the ciphertext was not made for this key and this `info`."""
        try:
            return self.kem.suite.decrypt(sealed, self._key(), info)
        except InvalidTag:
            return None

    def _key(self) -> Any:
        if self._parsed is None:
            self._parsed = self.kem.parse_private(self.seed)
        return self._parsed


def _suite(kem: hpke.KEM) -> hpke.Suite:
    return hpke.Suite(kem, hpke.KDF.HKDF_SHA256, hpke.AEAD.AES_256_GCM)


def _x25519_public_bytes(seed: bytes) -> bytes:
    return X25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()


X25519: Final = Kem(
    name="X25519",
    public_size=32,
    overhead=32 + 16,
    suite=_suite(hpke.KEM.X25519),
    parse_public=X25519PublicKey.from_public_bytes,
    parse_private=X25519PrivateKey.from_private_bytes,
    public_bytes=_x25519_public_bytes,
)


def _xwing_parts(seed: bytes) -> tuple[MLKEM768PrivateKey, X25519PrivateKey]:
    expanded = hashlib.shake_256(seed).digest(96)
    return MLKEM768PrivateKey.from_seed_bytes(expanded[:64]), X25519PrivateKey.from_private_bytes(expanded[64:])


def _xwing_private(seed: bytes) -> hpke.MLKEM768X25519PrivateKey:
    return hpke.MLKEM768X25519PrivateKey(*_xwing_parts(seed))


def _xwing_public_bytes(seed: bytes) -> bytes:
    mlkem, x25519 = _xwing_parts(seed)
    return mlkem.public_key().public_bytes_raw() + x25519.public_key().public_bytes_raw()


def _xwing_public(raw: bytes) -> hpke.MLKEM768X25519PublicKey:
    return hpke.MLKEM768X25519PublicKey(
        MLKEM768PublicKey.from_public_bytes(raw[:_MLKEM768_PUBLIC]),
        X25519PublicKey.from_public_bytes(raw[_MLKEM768_PUBLIC:]),
    )


XWING: Final = Kem(
    name="X-Wing",
    public_size=_MLKEM768_PUBLIC + 32,
    overhead=1120 + 16,
    suite=_suite(hpke.KEM.MLKEM768_X25519),
    parse_public=_xwing_public,
    parse_private=_xwing_private,
    public_bytes=_xwing_public_bytes,
)
