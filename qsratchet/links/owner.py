"""The owner's side of a link: create, update, revoke.

`create_link` makes all keys and IDs of a new queue and splits them in two: a request for the server, and an
`OwnerLink` that stays.  Every call that changes something returns the new state beside the request.

**Persist the new state, then send the request.**

This module knows nothing of how a link is opened.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from operator import index
from typing import Final

from ..codec import U64_MAX, Buffer, Kind, as_bytes, document, open_document, u8, u64
from ..crypto.dh import DH_SEED_SIZE, DhKey
from ..crypto.entropy import Entropy
from ..crypto.secret import Sensitive
from ..crypto.signing import SIGNING_SEED_SIZE, SigningKey
from ..errors import LimitExceeded, MisuseError
from .blobs import Blob, FixedData, seal_blob
from .derive import context
from .effects import CreateQueue, DeleteQueue, ReplaceBlobs
from .kinds import FORMAT, LinkKind, LinkMode, Priority
from .link import Link, read_kind, read_mode
from .server import ServerAddress

__all__ = ["RECIPIENT_ID_SIZE", "OwnerLink", "create_link"]

RECIPIENT_ID_SIZE: Final = 24


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class OwnerLink(Sensitive):
    """What stays with the owner of a link.  A value: calls return a new one."""

    kind: LinkKind
    mode: LinkMode
    server: ServerAddress
    recipient_id: bytes
    #: The private half `spk`: authorises the owner's requests to the server.
    server_signing_key: SigningKey
    #: The private half `dhpk`: agrees on the layer of encryption between server and owner.
    server_dh_key: DhKey
    #: The private half `pk`, the partner of `k`: agrees with the sender who opened the link.
    link_dh_key: DhKey
    #: Signs the blobs of a bound link; a direct link has none.
    signing_key: SigningKey | None
    #: The last version of each blob, by priority; 0 for a blob that was never made.
    versions: tuple[int, ...]
    #: What the owner shares.  It follows from the keys, so that it cannot disagree with them.
    link: Link = field(init=False)

    def __post_init__(self) -> None:
        fixed_data = self._fixed_data()
        key = self.link_dh_key.public() if fixed_data is None else fixed_data.hash()
        object.__setattr__(self, "link", Link(kind=self.kind, mode=self.mode, key=key, server=self.server))

    def describe(self) -> str:
        return f"{self.link.describe()} versions {self.versions}"

    def replace(
        self, contents: Mapping[Priority, Buffer], *, after: int = 0, entropy: Entropy = os.urandom
    ) -> tuple[OwnerLink, ReplaceBlobs]:
        """Seal new contents for some of the blobs, each at its next version.

        Use it too to make again what a server dropped.  `after` is for an owner restored from a backup: the
        new versions then come after that number, so that readers do not take them for old ones.
        """
        if not contents:
            raise MisuseError("name at least one blob to replace")
        owner, blobs = self._seal(contents, after, entropy)
        return owner, ReplaceBlobs(server=self.server, recipient_id=self.recipient_id, blobs=blobs)

    def revoke(self) -> DeleteQueue:
        """Ask the server to forget the queue; forget this state once it has."""
        return DeleteQueue(server=self.server, recipient_id=self.recipient_id)

    def dump(self) -> bytes:
        body = (
            u8(self.mode.value)
            + u8(self.kind.value)
            + self.server.encode()
            + self.recipient_id
            + self.server_signing_key.seed
            + self.server_dh_key.seed
            + self.link_dh_key.seed
            + (b"" if self.signing_key is None else self.signing_key.seed)
            + b"".join(map(u64, self.versions))
        )
        return document(Kind.LINK_OWNER, FORMAT, body)

    @classmethod
    def load(cls, data: Buffer) -> OwnerLink:
        """Read what `dump` wrote; `StateError` if it is damaged or something else."""
        reader = open_document(Kind.LINK_OWNER, FORMAT, data, stored=True)
        mode, kind, server = read_mode(reader), read_kind(reader), ServerAddress.read(reader)
        owner = cls(
            mode=mode,
            kind=kind,
            server=server,
            recipient_id=reader.take(RECIPIENT_ID_SIZE),
            server_signing_key=SigningKey(reader.take(SIGNING_SEED_SIZE)),
            server_dh_key=DhKey(reader.take(DH_SEED_SIZE)),
            link_dh_key=DhKey(reader.take(DH_SEED_SIZE)),
            signing_key=SigningKey(reader.take(SIGNING_SEED_SIZE)) if mode is LinkMode.BOUND else None,
            versions=tuple(reader.u64() for _ in Priority),
        )
        reader.end()
        return owner

    def _fixed_data(self) -> FixedData | None:
        if self.signing_key is None:
            return None
        return FixedData(
            context=context(self.mode, self.kind, self.server.fingerprint),
            k=self.link_dh_key.public(),
            owner_key=self.signing_key.public(),
        )

    def _seal(
        self, contents: Mapping[Priority, Buffer], after: int, entropy: Entropy
    ) -> tuple[OwnerLink, dict[Priority, bytes]]:
        keys, fixed_data, versions = self.link.keys(), self._fixed_data(), list(self.versions)
        blobs = {}
        for number, content in contents.items():
            try:
                priority = Priority(number)
            except ValueError:
                raise MisuseError(f"{number} is not a priority of blobs; use the members of Priority") from None
            version = max(versions[priority], index(after)) + 1
            if version > U64_MAX:
                raise LimitExceeded("version of a blob", version, U64_MAX)
            versions[priority] = version
            blob = Blob(priority=priority, version=version, content=as_bytes(content))
            blobs[priority] = seal_blob(
                self.link, keys, blob, entropy, signing_key=self.signing_key, fixed_data=fixed_data
            )
        return replace(self, versions=tuple(versions)), blobs


def create_link(
    *,
    server: ServerAddress,
    kind: LinkKind,
    contents: Mapping[Priority, Buffer],
    mode: LinkMode = LinkMode.BOUND,
    entropy: Entropy = os.urandom,
) -> tuple[OwnerLink, CreateQueue]:
    """Make a link and the request that creates its queue.

    `contents` has at least the ratchet keys (priority 0); the other blobs are optional.  If it is not known
    whether the server took the request, forget both and make another link: nobody has seen this one.
    """
    if Priority.RATCHET_KEYS not in contents:
        raise MisuseError("contents must have Priority.RATCHET_KEYS: without them nobody can connect")
    fresh = OwnerLink(
        mode=mode,
        kind=kind,
        server=server,
        recipient_id=entropy(RECIPIENT_ID_SIZE),
        server_signing_key=SigningKey.generate(entropy),
        server_dh_key=DhKey.generate(entropy),
        link_dh_key=DhKey.generate(entropy),
        signing_key=SigningKey.generate(entropy) if mode is LinkMode.BOUND else None,
        versions=(0,) * len(Priority),
    )
    owner, blobs = fresh._seal(contents, 0, entropy)
    return owner, CreateQueue(
        server=server,
        recipient_id=owner.recipient_id,
        sender_id=owner.link.keys().sender_id,
        kind=kind,
        signing_key=owner.server_signing_key.public(),
        dh_key=owner.server_dh_key.public(),
        blobs=blobs,
    )
