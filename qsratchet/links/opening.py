"""The sender's side of a link: ask the server for the blobs, and open its reply.

Opening takes two steps, so that it survives a crash or a lost reply in between.  An `Opening` holds the
sender's key and gives the request; it is stored before the request is sent, and the same request is sent again
until the reply is there.

**Persist the opening, then send its request.**

This module knows nothing of how a link is made.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from ..codec import Buffer, Kind, as_bytes, document, open_document
from ..crypto.entropy import Entropy
from ..crypto.secret import Sensitive
from ..crypto.signing import SIGNING_SEED_SIZE, SigningKey
from ..errors import DecodeError, MisuseError
from .blobs import open_blob, open_first_blob
from .effects import FetchBlobs, SecureQueue
from .errors import BlobFault, BlobRejected
from .kinds import FORMAT, LinkKind, Priority
from .link import Link
from .versions import SeenVersions

__all__ = ["OpenedLink", "Opening"]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class OpenedLink(Sensitive):
    """What is behind a link."""

    #: The owner's X25519 public key for the sender who opened the link.
    k: bytes
    #: The owner's Ed25519 public key; None for a direct link, which has no proof of who wrote the contents.
    owner_key: bytes | None
    #: By priority.  PQ keys or profile may be missing: the owner made none, or the server dropped them.
    contents: Mapping[Priority, bytes]
    #: Keep this and pass it to the next opening, to notice a server that goes back to an older version.
    seen: SeenVersions

    def describe(self) -> str:
        return f"contents {[int(priority) for priority in self.contents]}"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class Opening(Sensitive):
    """A link that is being opened."""

    link: Link
    #: Secures the queue of a one-time link; a contact link has none.
    sender_key: SigningKey | None

    @classmethod
    def start(cls, link: Link, *, entropy: Entropy = os.urandom) -> Opening:
        return cls(link=link, sender_key=SigningKey.generate(entropy) if link.kind is LinkKind.ONE_TIME else None)

    def describe(self) -> str:
        return self.link.describe()

    @property
    def request(self) -> FetchBlobs | SecureQueue:
        """What to send to the server: the same each time, also after `load`."""
        server, sender_id = self.link.server, self.link.keys().sender_id
        if self.sender_key is None:
            return FetchBlobs(server=server, sender_id=sender_id)
        return SecureQueue(server=server, sender_id=sender_id, sender_key=self.sender_key.public())

    def open(self, blobs: Mapping[Priority, Buffer], *, seen: SeenVersions | None = None) -> OpenedLink:
        """Open the server's reply; `BlobRejected` names the blob that is wrong, and how.

        `seen` is what an earlier opening of this link returned.
        """
        link, keys = self.link, self.link.keys()
        if seen is None:
            seen = SeenVersions.none(keys.sender_id)
        elif seen.sender_id != keys.sender_id:
            raise MisuseError("these versions were seen behind another link; pass those of this link")
        sealed = _sealed(blobs)
        first = sealed.pop(Priority.RATCHET_KEYS, None)
        if first is None:
            raise BlobRejected(Priority.RATCHET_KEYS, BlobFault.MISSING)
        blob, fixed_data = open_first_blob(link, keys, first)
        opened = [blob, *(open_blob(link, keys, priority, raw, fixed_data) for priority, raw in sealed.items())]
        return OpenedLink(
            k=link.key if fixed_data is None else fixed_data.k,
            owner_key=None if fixed_data is None else fixed_data.owner_key,
            contents={blob.priority: blob.content for blob in opened},
            seen=seen.advance(opened),
        )

    def dump(self) -> bytes:
        sender = b"" if self.sender_key is None else self.sender_key.seed
        return document(Kind.LINK_OPENING, FORMAT, self.link.encode() + sender)

    @classmethod
    def load(cls, data: Buffer) -> Opening:
        """Read what `dump` wrote; `StateError` if it is damaged or something else."""
        reader = open_document(Kind.LINK_OPENING, FORMAT, data, stored=True)
        link = Link.read(reader)
        one_time = link.kind is LinkKind.ONE_TIME
        opening = cls(link=link, sender_key=SigningKey(reader.take(SIGNING_SEED_SIZE)) if one_time else None)
        reader.end()
        return opening


def _sealed(blobs: Mapping[Priority, Buffer]) -> dict[Priority, bytes]:
    """The reply by priority, lowest number first."""
    unknown = set(blobs).difference(Priority)
    if unknown:
        raise DecodeError("reply of the server", f"it has blobs of unknown priority {sorted(unknown, key=repr)}")
    return {priority: as_bytes(blobs[priority]) for priority in Priority if priority in blobs}
