"""The one harness for a service and an owner with a store between them."""

from __future__ import annotations

import os

import pytest

from qsratchet import (
    Dequeuer,
    Enqueuer,
    Frame,
    FrameRejected,
    Message,
    OwnerKeys,
    ReadPolicy,
    UpdatePolicy,
)

__all__ = ["FAST_SUITE", "Pair", "bodies", "refused"]

#: Most tests do not depend on the suite; this one has the cheapest keys.
FAST_SUITE = 0x0001


class Pair:
    """An Enqueuer, the frames it stored, and a Dequeuer that has read INIT."""

    def __init__(
        self,
        suite: int = FAST_SUITE,
        *,
        update: UpdatePolicy | None = None,
        read: ReadPolicy | None = None,
        queue_id: bytes = b"queue",
        initialised: bool = True,
    ) -> None:
        self.update_policy = update or UpdatePolicy(frames=None, seconds=None)
        self.read_policy = read or ReadPolicy()
        self.owner, self.request = Dequeuer.create(b"service", queue_id, suites=(suite,), policy=self.read_policy)
        self.keys: OwnerKeys = self.owner.owner_keys()
        self.service, init = Enqueuer.create(self.request, now=0, policy=self.update_policy)
        self.frames: list[Frame] = [init]
        if initialised:
            self.owner.open(init.data)

    def send(self, *messages: bytes, now: int = 0, aad: bytes = b"") -> list[bytes]:
        """Enqueue messages; return the bytes of all frames that this stored."""
        frames = self.service.enqueue_many(messages, now=now, aad=aad)
        self.frames += frames
        return [frame.data for frame in frames]

    def update(self, now: int = 0) -> bytes:
        frame = self.service.update(now=now)
        self.frames.append(frame)
        return frame.data

    def offer(self, now: int = 0) -> bytes:
        """A key offer, made and accepted; return the bytes of the UPDATE that follows."""
        offer = self.owner.offer_key()
        self.keys = self.keys.merge(self.owner.owner_keys())
        [frame] = self.service.accept_offer(offer.encode(), now=now)
        self.frames.append(frame)
        return frame.data

    def restart_owner(self, policy: ReadPolicy | None = None) -> None:
        self.owner = Dequeuer.load(self.owner.dump(), policy=policy or self.read_policy)

    def restart_service(self) -> None:
        self.service = Enqueuer.load(self.service.dump(), policy=self.update_policy)

    def read_all(self) -> list[bytes]:
        """Everything that the owner has not read yet."""
        return bodies(self.owner.open_many([frame.data for frame in self.frames if frame.seq >= self.owner.next_seq]))

    def head(self) -> tuple[bytes, bytes]:
        """A fresh nonce, and the service's head for it."""
        nonce = os.urandom(16)
        return nonce, self.service.head(nonce)


def bodies(results: object) -> list[bytes]:
    """The messages of a list of results; anything rejected fails the test."""
    assert isinstance(results, list)
    for result in results:
        if isinstance(result, Exception):
            raise result
    return [result.body for result in results if isinstance(result, Message)]


def refused(owner: Dequeuer, frame: bytes, aad: bytes = b"") -> FrameRejected:
    """The verdict on a frame, the same from the single and the batch call; the state must not move."""
    before = owner.dump()
    with pytest.raises(FrameRejected) as caught:
        owner.open(frame, aad=aad)
    [verdict] = owner.open_many([frame], aad=aad)
    assert isinstance(verdict, FrameRejected)
    assert type(verdict) is type(caught.value)
    assert str(verdict) == str(caught.value)
    assert owner.dump() == before
    return caught.value
