"""The cipher suites, one row each.  To add a suite, add a row; its number is in every frame."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

from .kdf import BLAKE2B, HKDF_SHA256, Kdf
from .kem import X25519, XWING, Kem

__all__ = ["DEFAULT_SUITE", "NONCE_SIZE", "SUITES", "TAG_SIZE", "Aead", "InvalidTag", "Suite", "one_kem"]

NONCE_SIZE: Final = 12
TAG_SIZE: Final = 16

#: An AEAD with a 32-byte key, a 12-byte nonce and a 16-byte tag.  An object lives for one message: it
#: copies its key, so keeping it would keep the key.
Aead = type[AESGCM] | type[ChaCha20Poly1305]


@dataclass(frozen=True, slots=True, eq=False)
class Suite:
    """A KEM for INIT and UPDATE, a KDF for the ratchet, and an AEAD for the frames.

    There is one object for each suite, so two are equal when they are the same.
    """

    id: int
    kem: Kem
    kdf: Kdf
    aead: Aead

    @property
    def name(self) -> str:
        return f"{self.kem.name} / {self.kdf.name} / {self.aead.__name__}"


SUITES: Final = {
    row.id: row
    for row in (
        Suite(0x0001, X25519, HKDF_SHA256, AESGCM),
        Suite(0x0002, XWING, HKDF_SHA256, AESGCM),
        Suite(0x0003, XWING, BLAKE2B, AESGCM),
        Suite(0x0004, XWING, BLAKE2B, ChaCha20Poly1305),
    )
}
DEFAULT_SUITE: Final = 0x0002


def one_kem(ids: Sequence[int]) -> Kem | None:
    """The KEM that all these suites share: one public key serves them all.  None if there is no such KEM."""
    rows = [SUITES.get(id) for id in ids]
    first = rows[0]
    return first.kem if first is not None and all(row is not None and row.kem is first.kem for row in rows) else None
