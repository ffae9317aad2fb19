"""The words of short links: kind, mode, priority, and the sizes that follow from them.

This module holds numbers and their reasons (docs/protocol.md, "Short links"); it holds no keys and does
nothing.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Final

from ..crypto.dh import DH_PUBLIC_SIZE
from ..crypto.sealing import SEAL_OVERHEAD
from ..crypto.signing import SIGNATURE_SIZE, SIGNING_PUBLIC_SIZE

__all__ = [
    "BLOB_SIZES",
    "CONTEXT_SIZE",
    "FIXED_DATA_SIZE",
    "FORMAT",
    "LinkKind",
    "LinkMode",
    "Priority",
    "content_limit",
]

#: The version of everything in this package: derivations, blobs, link text and stored documents.
FORMAT: Final = 1


class LinkKind(Enum):
    """What the queue behind a link is for."""

    #: For one sender, who secures the queue with the request that reads its blobs.
    ONE_TIME = 1
    #: For anybody who has the link, any number of times; never secured.
    CONTACT = 2


class LinkMode(Enum):
    """What the 32 bytes in a link are, and so who can forge what is behind it."""

    #: The link carries `k` itself.  Whoever holds it can seal a blob that opens.
    DIRECT = 1
    #: The link carries a hash over the fixed data, which names the owner's signing key.  Only the owner can.
    BOUND = 2


class Priority(IntEnum):
    """What a blob is for.  Under pressure a server drops the highest number first, and 0 never."""

    RATCHET_KEYS = 0
    PQ_KEYS = 1
    PROFILE = 2


#: The size of a sealed blob.  It depends on the kind of link and the priority only, so that it tells a server
#: nothing that the kind has not told it.  All blobs of a one-time link fit in 8 KiB and all of a contact link in
#: 16 KiB, with 1 KiB to spare for the rest of the request.
BLOB_SIZES: Final = {
    LinkKind.ONE_TIME: {Priority.RATCHET_KEYS: 1024, Priority.PQ_KEYS: 2048, Priority.PROFILE: 4096},
    LinkKind.CONTACT: {Priority.RATCHET_KEYS: 2048, Priority.PQ_KEYS: 3072, Priority.PROFILE: 10240},
}

#: Format, mode, kind, server fingerprint.
CONTEXT_SIZE: Final = 3 + 32
#: The context, k, the owner's signing key.
FIXED_DATA_SIZE: Final = CONTEXT_SIZE + DH_PUBLIC_SIZE + SIGNING_PUBLIC_SIZE
# Payload length, blob version, signature: what a bound blob holds besides its content.
_BLOB_OVERHEAD: Final = SEAL_OVERHEAD + 2 + 8 + SIGNATURE_SIZE


def content_limit(kind: LinkKind, priority: Priority) -> int:
    """The most bytes that a blob can carry: the same for both modes, so that an application may change its mode."""
    room = BLOB_SIZES[kind][priority] - _BLOB_OVERHEAD
    return room - FIXED_DATA_SIZE if priority is Priority.RATCHET_KEYS else room
