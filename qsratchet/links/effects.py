"""What a host sends to the server: typed values, and all that a server ever receives about a link.

No field here holds `k`, a key derived from it, or content that is not sealed; the tests enforce that on every
field of every one of them.  How a request looks on the wire, and how the owner's are authorised with
`server_signing_key`, is the transport's affair.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from .kinds import LinkKind, Priority
from .server import ServerAddress

__all__ = ["CreateQueue", "DeleteQueue", "FetchBlobs", "ReplaceBlobs", "SecureQueue", "ServerRequest"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateQueue:
    """From the owner: make a queue with these IDs and blobs.  A server refuses an ID that it already has."""

    server: ServerAddress
    recipient_id: bytes
    sender_id: bytes
    kind: LinkKind
    #: Ed25519 public key that authorises the owner's later requests.
    signing_key: bytes
    #: X25519 public key for the layer of encryption between server and owner.
    dh_key: bytes
    blobs: Mapping[Priority, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaceBlobs:
    """From the owner: put these blobs in the place of the ones with the same priority, all or none."""

    server: ServerAddress
    recipient_id: bytes
    blobs: Mapping[Priority, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteQueue:
    """From the owner: remove the queue, its blobs and its IDs; the link then leads nowhere."""

    server: ServerAddress
    recipient_id: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchBlobs:
    """From a sender, for a contact link: return the blobs.  May be repeated by anybody."""

    server: ServerAddress
    sender_id: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SecureQueue:
    """From the sender, for a one-time link: secure the queue with this key and return the blobs.

    A server answers a repetition with the same key as it did the first time, and refuses any other key.
    """

    server: ServerAddress
    sender_id: bytes
    #: Ed25519 public key that authorises what the sender puts in the queue.
    sender_key: bytes


ServerRequest: TypeAlias = CreateQueue | ReplaceBlobs | DeleteQueue | FetchBlobs | SecureQueue
