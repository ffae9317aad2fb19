"""One blob: version and content, signed in a bound link, padded to its fixed size, and sealed.

A blob is sealed under its own key, with format, mode, kind, priority and sender ID as associated data.  The
first checks are those that a server alone cannot pass, the next those that a link holder cannot pass
(docs/protocol.md, "Short links").  This module knows nothing of requests, replies or storage.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..codec import Reader, u8, u16, u64
from ..crypto.dh import DH_PUBLIC_SIZE
from ..crypto.entropy import Entropy
from ..crypto.kdf import HKDF_SHA256, same
from ..crypto.sealing import SEAL_OVERHEAD, SealRejected, seal, unseal
from ..crypto.secret import Sensitive
from ..crypto.signing import SIGNATURE_SIZE, SignatureRejected, SigningKey, verify
from ..errors import DecodeError, LimitExceeded
from .derive import BLOB_SIGNATURE, LinkKeys, fixed_data_hash
from .errors import BlobFault, BlobRejected
from .kinds import BLOB_SIZES, CONTEXT_SIZE, FIXED_DATA_SIZE, FORMAT, LinkMode, Priority, content_limit
from .link import Link

__all__ = ["Blob", "FixedData", "open_blob", "open_first_blob", "seal_blob"]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class FixedData(Sensitive):
    """What a bound link is the hash of.  It stands in the blob of priority 0 and never changes."""

    context: bytes
    k: bytes
    owner_key: bytes

    def encode(self) -> bytes:
        return self.context + self.k + self.owner_key

    @classmethod
    def decode(cls, raw: bytes) -> FixedData:
        """Split any bytes; the caller compares the hash before it believes them."""
        end = CONTEXT_SIZE + DH_PUBLIC_SIZE
        return cls(context=raw[:CONTEXT_SIZE], k=raw[CONTEXT_SIZE:end], owner_key=raw[end:])

    def hash(self) -> bytes:
        return fixed_data_hash(self.encode())


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class Blob(Sensitive):
    """A blob that was opened, or is about to be sealed."""

    priority: Priority
    version: int
    content: bytes

    def describe(self) -> str:
        return f"priority {int(self.priority)} version {self.version}"

    def digest(self) -> bytes:
        return HKDF_SHA256.hash(self.content)


def seal_blob(
    link: Link,
    keys: LinkKeys,
    blob: Blob,
    entropy: Entropy,
    *,
    signing_key: SigningKey | None,
    fixed_data: FixedData | None,
) -> bytes:
    """Seal a blob for the server.  A bound link needs its owner's signing key and its fixed data."""
    limit = content_limit(link.kind, blob.priority)
    if len(blob.content) > limit:
        raise LimitExceeded(f"content of priority {int(blob.priority)} in bytes", len(blob.content), limit)
    payload = u64(blob.version)
    if fixed_data is not None and blob.priority is Priority.RATCHET_KEYS:
        payload += fixed_data.encode()
    if signing_key is not None:
        payload += signing_key.sign(_signed(link, blob))
    payload += blob.content
    room = BLOB_SIZES[link.kind][blob.priority] - SEAL_OVERHEAD
    padded = (u16(len(payload)) + payload).ljust(room, b"\0")
    return seal(keys.blob_keys[blob.priority], padded, _aad(link, keys, blob.priority), entropy)


def open_first_blob(link: Link, keys: LinkKeys, sealed: bytes) -> tuple[Blob, FixedData | None]:
    """Open the blob of priority 0; in a bound link it says who the owner is."""
    priority = Priority.RATCHET_KEYS
    payload = _unseal(link, keys, priority, sealed)
    if link.mode is LinkMode.DIRECT:
        return _read(link, priority, payload, None), None
    version, rest = payload[:8], payload[8:]
    fixed_data = FixedData.decode(rest[:FIXED_DATA_SIZE])
    if not (same(fixed_data.hash(), link.key) and same(fixed_data.context, link.context())):
        raise BlobRejected(priority, BlobFault.FIXED_DATA)
    return _read(link, priority, version + rest[FIXED_DATA_SIZE:], fixed_data), fixed_data


def open_blob(link: Link, keys: LinkKeys, priority: Priority, sealed: bytes, owner: FixedData | None) -> Blob:
    """Open a blob of another priority, with the owner that the first blob named."""
    return _read(link, priority, _unseal(link, keys, priority, sealed), owner)


def _unseal(link: Link, keys: LinkKeys, priority: Priority, sealed: bytes) -> bytes:
    """Check size and seal, and take the padding off."""
    if len(sealed) != BLOB_SIZES[link.kind][priority]:
        raise BlobRejected(priority, BlobFault.SIZE)
    try:
        padded = unseal(keys.blob_keys[priority], sealed, _aad(link, keys, priority))
    except SealRejected:
        raise BlobRejected(priority, BlobFault.SEAL) from None
    length = int.from_bytes(padded[:2], "big")
    payload, padding = padded[2 : 2 + length], padded[2 + length :]
    if len(payload) != length or padding.strip(b"\0"):
        raise BlobRejected(priority, BlobFault.LAYOUT)
    return payload


def _read(link: Link, priority: Priority, payload: bytes, owner: FixedData | None) -> Blob:
    reader = Reader(payload, "blob")
    try:
        version = reader.u64()
        signature = reader.take(SIGNATURE_SIZE) if owner is not None else b""
    except DecodeError:
        raise BlobRejected(priority, BlobFault.LAYOUT) from None
    blob = Blob(priority=priority, version=version, content=reader.rest())
    # Version 0 says "never seen" in the stored versions, so that no blob may carry it; and content over the
    # limit is what no owner can have sealed.
    if version == 0 or len(blob.content) > content_limit(link.kind, priority):
        raise BlobRejected(priority, BlobFault.LAYOUT)
    if owner is not None:
        try:
            verify(owner.owner_key, _signed(link, blob), signature)
        except SignatureRejected:
            raise BlobRejected(priority, BlobFault.SIGNATURE) from None
    return blob


def _aad(link: Link, keys: LinkKeys, priority: Priority) -> bytes:
    return u8(FORMAT) + u8(link.mode.value) + u8(link.kind.value) + u8(priority) + keys.sender_id


def _signed(link: Link, blob: Blob) -> bytes:
    """What the owner signs: this content, at this version, in this place of this link."""
    return BLOB_SIGNATURE + link.context() + u8(blob.priority) + link.key + u64(blob.version) + blob.content
