"""What a reader remembers of a link: the newest version of each blob, and a digest of its content.

A server can return an older blob than the newest, and nobody who never saw the newer one can tell.  Who did
can, with this.  It is no secret, and holds no content (docs/protocol.md, "Short links").
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from ..codec import Buffer, Kind, document, open_document, u64
from ..crypto.kdf import same
from .blobs import Blob
from .derive import SENDER_ID_SIZE
from .errors import BlobFault, BlobRejected
from .kinds import FORMAT, Priority

__all__ = ["SeenVersions"]

_DIGEST_SIZE = 32
_NEVER = (0, bytes(_DIGEST_SIZE))


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenVersions:
    """The newest versions seen behind one link."""

    sender_id: bytes
    #: Version and digest of the content, by priority; version 0 for a blob never seen.
    newest: tuple[tuple[int, bytes], ...]

    @classmethod
    def none(cls, sender_id: bytes) -> SeenVersions:
        return cls(sender_id=sender_id, newest=(_NEVER,) * len(Priority))

    def version(self, priority: Priority) -> int:
        """The newest version seen; 0 if none."""
        return self.newest[priority][0]

    def advance(self, blobs: Iterable[Blob]) -> SeenVersions:
        """Take note of these blobs; `BlobRejected` if one of them is older than, or contradicts, what was seen."""
        newest = list(self.newest)
        for blob in blobs:
            version, digest = newest[blob.priority]
            found = blob.digest()
            if blob.version < version:
                raise BlobRejected(blob.priority, BlobFault.ROLLED_BACK)
            if blob.version == version and not same(found, digest):
                raise BlobRejected(blob.priority, BlobFault.FORKED)
            newest[blob.priority] = (blob.version, found)
        return replace(self, newest=tuple(newest))

    def dump(self) -> bytes:
        return document(
            Kind.LINK_VERSIONS,
            FORMAT,
            self.sender_id + b"".join(u64(version) + digest for version, digest in self.newest),
        )

    @classmethod
    def load(cls, data: Buffer) -> SeenVersions:
        """Read what `dump` wrote; `StateError` if it is damaged or something else."""
        reader = open_document(Kind.LINK_VERSIONS, FORMAT, data, stored=True)
        seen = cls(
            sender_id=reader.take(SENDER_ID_SIZE),
            newest=tuple((reader.u64(), reader.take(_DIGEST_SIZE)) for _ in Priority),
        )
        reader.end()
        return seen
