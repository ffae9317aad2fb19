"""A server in memory that obeys the rules of the requests, and remembers all it ever received."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import assert_never

import pytest
from hypothesis import strategies as st

from qsratchet.links import (
    BlobFault,
    BlobRejected,
    CreateQueue,
    DeleteQueue,
    FetchBlobs,
    Link,
    LinkKind,
    LinkMode,
    Opening,
    OwnerLink,
    Priority,
    ReplaceBlobs,
    SecureQueue,
    SeenVersions,
    ServerAddress,
    ServerRequest,
    create_link,
)

SERVER = ServerAddress(hosts=("queue.example.org",), port=5223, fingerprint=bytes(range(32)))
OTHER_SERVER = ServerAddress(hosts=("queue.example.org",), port=5223, fingerprint=bytes(range(1, 33)))
RATCHET, PQ, PROFILE = Priority
CONTENTS: dict[Priority, bytes] = {
    RATCHET: b"the ratchet keys of the owner",
    PQ: b"the post-quantum keys",
    PROFILE: b"name: Alice",
}
BOTH_KINDS = tuple(LinkKind)
BOTH_MODES = tuple(LinkMode)


def make(
    kind: LinkKind = LinkKind.CONTACT,
    mode: LinkMode = LinkMode.BOUND,
    contents: dict[Priority, bytes] = CONTENTS,
    server: ServerAddress = SERVER,
) -> tuple[OwnerLink, dict[Priority, bytes]]:
    """A new link and its sealed blobs."""
    owner, creation = create_link(server=server, kind=kind, mode=mode, contents=contents)
    return owner, dict(creation.blobs)


def fault_of(link: Link, blobs: dict[Priority, bytes], seen: SeenVersions | None = None) -> tuple[Priority, BlobFault]:
    """Open a reply that must be refused; say which blob was, and why."""
    with pytest.raises(BlobRejected) as raised:
        Opening.start(link).open(blobs, seen=seen)
    return raised.value.priority, raised.value.fault


class Refused(Exception):
    """The server's one answer to everything that it does not do."""


@dataclass
class Queue:
    """What a server stores."""

    creation: CreateQueue
    blobs: dict[Priority, bytes]
    sender_key: bytes | None = None


@dataclass
class Shelf:
    """The server."""

    queues: dict[bytes, Queue] = field(default_factory=dict)
    received: list[ServerRequest] = field(default_factory=list)

    def answer(self, request: ServerRequest) -> dict[Priority, bytes]:
        self.received.append(request)
        match request:
            case CreateQueue():
                if any(request.sender_id == queue.creation.sender_id for queue in self.queues.values()):
                    raise Refused
                self.queues[request.recipient_id] = Queue(request, dict(request.blobs))
            case ReplaceBlobs():
                self.queues[request.recipient_id].blobs.update(request.blobs)
            case DeleteQueue():
                del self.queues[request.recipient_id]
            case FetchBlobs():
                return dict(self._find(request.sender_id, LinkKind.CONTACT).blobs)
            case SecureQueue():
                queue = self._find(request.sender_id, LinkKind.ONE_TIME)
                if queue.sender_key not in (None, request.sender_key):
                    raise Refused
                queue.sender_key = request.sender_key
                return dict(queue.blobs)
            case _:
                assert_never(request)
        return {}

    def _find(self, sender_id: bytes, kind: LinkKind) -> Queue:
        for queue in self.queues.values():
            if queue.creation.sender_id == sender_id and queue.creation.kind is kind:
                return queue
        raise Refused


def stream(name: str) -> Callable[[int], bytes]:
    """Entropy that is the same in every run: SHAKE-256 of the name and a counter."""
    count = 0

    def take(size: int) -> bytes:
        nonlocal count
        count += 1
        return hashlib.shake_256(f"{name}/{count}".encode()).digest(size)

    return take


LABELS = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,10}[a-z0-9])?", fullmatch=True)
NAMES = st.builds(
    lambda labels, top: ".".join([*labels, top]), st.lists(LABELS, max_size=3), st.sampled_from(["org", "onion", "x"])
)
# An IPv4 address inside an IPv6 one has no spelling here.
HOSTS = NAMES | st.ip_addresses(v=4).map(str) | st.ip_addresses(v=6, network="2000::/3").map(str)
SERVERS = st.builds(
    ServerAddress,
    hosts=st.lists(HOSTS, min_size=1, max_size=4, unique=True).map(tuple),
    port=st.integers(1, 65535),
    fingerprint=st.binary(min_size=32, max_size=32),
)
LINKS = st.builds(
    Link,
    kind=st.sampled_from(LinkKind),
    mode=st.sampled_from(LinkMode),
    key=st.binary(min_size=32, max_size=32),
    server=SERVERS,
)
