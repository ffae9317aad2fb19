"""The two implementations behind one interface, so that one set of tests asks both the same questions.

Everything goes in and out as bytes: states, frames, documents. That is also what lets either implementation go on
where the other stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import qsratchet as q
from tests.vectors import peers
from tests.vectors.reference import SUITES, Entropy, Refused, document


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """What reading a frame gave, and the state after it."""

    state: bytes
    message: bytes | None = None
    missing: tuple[int, ...] = ()
    verdict: str | None = None


class Implementation(Protocol):
    name: str

    def read(self, state: bytes, limit: int | None, frame: bytes, aad: bytes) -> Read: ...
    def check_head(self, state: bytes, limit: int | None, head: bytes, nonce: bytes) -> str | list[int]: ...
    def offer_key(self, state: bytes) -> tuple[bytes, bytes]: ...
    def grant(self, state: bytes) -> bytes: ...
    def discard(self, state: bytes) -> bytes: ...
    def create(self, request: bytes, accepted: Sequence[int]) -> tuple[bytes, bytes] | str: ...
    def seal(self, state: bytes, message: bytes, aad: bytes) -> tuple[bytes, list[bytes]]: ...
    def update(self, state: bytes) -> tuple[bytes, list[bytes]]: ...
    def take_offer(self, state: bytes, offer: bytes) -> tuple[bytes, list[bytes]] | str: ...
    def head(self, state: bytes, nonce: bytes) -> bytes: ...
    def open_granted(self, grant: bytes, frame: bytes, aad: bytes) -> tuple[bytes | None, str | None]: ...
    def walk(self, keys: bytes, frames: Sequence[bytes]) -> list[bytes]: ...
    def again(self, kind: str, data: bytes) -> bytes | None:
        """A document decoded and encoded again; None if it was refused."""
        ...


class Reference:
    name = "reference"

    def __init__(self) -> None:
        self.entropy = Entropy(b"the reference's own")

    def read(self, state: bytes, limit: int | None, frame: bytes, aad: bytes) -> Read:
        owner = peers.Owner.load(state, limit)
        before = owner.chain.next if owner.chain else 0
        try:
            message = owner.read(frame, aad)
        except Refused as refused:
            return Read(state=owner.state(), verdict=refused.verdict)
        missing = tuple(range(before, int.from_bytes(frame[8:16], "big")))
        return Read(state=owner.state(), message=message, missing=missing)

    def check_head(self, state: bytes, limit: int | None, head: bytes, nonce: bytes) -> str | list[int]:
        try:
            return list(peers.Owner.load(state, limit).check_head(head, nonce))
        except Refused as refused:
            return refused.verdict

    def offer_key(self, state: bytes) -> tuple[bytes, bytes]:
        owner = peers.Owner.load(state)
        offer = owner.offer(self.entropy.take(32))
        return owner.state(), offer

    def grant(self, state: bytes) -> bytes:
        return peers.Owner.load(state).grant()

    def discard(self, state: bytes) -> bytes:
        owner = peers.Owner.load(state)
        owner.discard()
        return owner.state()

    def create(self, request: bytes, accepted: Sequence[int]) -> tuple[bytes, bytes] | str:
        try:
            service, init = peers.Service.create(request, self.entropy, accepted)
        except Refused as refused:
            return refused.verdict
        return service.state(), init

    def seal(self, state: bytes, message: bytes, aad: bytes) -> tuple[bytes, list[bytes]]:
        service = peers.Service.load(state, self.entropy)
        frame = service.data(message, aad, zeros=len(message) % 7)
        return service.state(), [frame]

    def update(self, state: bytes) -> tuple[bytes, list[bytes]]:
        service = peers.Service.load(state, self.entropy)
        frame = service.update()
        return service.state(), [frame]

    def take_offer(self, state: bytes, offer: bytes) -> tuple[bytes, list[bytes]] | str:
        service = peers.Service.load(state, self.entropy)
        try:
            frame = service.take_offer(offer)
        except Refused as refused:
            return refused.verdict
        return service.state(), [] if frame is None else [frame]

    def head(self, state: bytes, nonce: bytes) -> bytes:
        return peers.Service.load(state, self.entropy).head(nonce)

    def open_granted(self, grant: bytes, frame: bytes, aad: bytes) -> tuple[bytes | None, str | None]:
        try:
            return peers.Grant.decode(grant).open(frame, aad), None
        except Refused as refused:
            return None, refused.verdict

    def walk(self, keys: bytes, frames: Sequence[bytes]) -> list[bytes]:
        return peers.OwnerKeys.decode(keys).grants(frames)

    def again(self, kind: str, data: bytes) -> bytes | None:
        decoders: dict[str, Callable[[], bytes]] = {
            "grant": lambda: peers.Grant.decode(data).encode(),
            "keys": lambda: peers.OwnerKeys.decode(data).encode(),
            "owner state": lambda: peers.Owner.load(data).state(),
            "service state": lambda: peers.Service.load(data, self.entropy).state(),
        }
        try:
            return decoders[kind]()
        except Refused:
            return None


class Library:
    name = "library"

    #: Small, so that updates by policy come up too.
    policy = q.UpdatePolicy(frames=5, seconds=None)

    def _owner(self, state: bytes, limit: int | None) -> q.Dequeuer:
        if limit is None:
            return q.Dequeuer.load(state)
        return q.Dequeuer.load(state, policy=q.ReadPolicy(tolerant=True, forward_limit=limit))

    def read(self, state: bytes, limit: int | None, frame: bytes, aad: bytes) -> Read:
        """Through `open`, and through `open_many`, which must give the same."""
        owner, batch = self._owner(state, limit), self._owner(state, limit)
        (among_many,) = batch.open_many([frame], aad=aad)
        try:
            opened = owner.open(frame, aad=aad)
        except q.FrameRejected as verdict:
            kind = verdict.kind
            assert isinstance(among_many, q.FrameRejected)
            assert among_many.kind == kind
            assert batch.dump() == owner.dump()
            return Read(state=owner.dump(), verdict=kind)
        assert among_many == opened
        assert batch.dump() == owner.dump()
        message = opened.body if isinstance(opened, q.Message) else None
        missing = () if isinstance(opened, q.Initialised) else tuple(opened.missing)
        return Read(state=owner.dump(), message=message, missing=missing)

    def check_head(self, state: bytes, limit: int | None, head: bytes, nonce: bytes) -> str | list[int]:
        try:
            return list(self._owner(state, limit).verify_head(head, nonce).missing)
        except q.RolledBack:
            return "rolled back"
        except q.HeadAhead:
            return "ahead"
        except q.HeadRejected:
            return "head rejected"

    def offer_key(self, state: bytes) -> tuple[bytes, bytes]:
        owner = self._owner(state, None)
        offer = owner.offer_key().encode()
        return owner.dump(), offer

    def grant(self, state: bytes) -> bytes:
        return self._owner(state, None).grant().encode()

    def discard(self, state: bytes) -> bytes:
        owner = self._owner(state, None)
        owner.discard(owner.next_seq)
        return owner.dump()

    def create(self, request: bytes, accepted: Sequence[int]) -> tuple[bytes, bytes] | str:
        try:
            service, init = q.Enqueuer.create(request, now=0, suites=tuple(accepted))
        except q.KeyRejected:
            return "unusable key"
        except q.DecodeError as error:
            return "no common suite" if "none of them is accepted" in error.reason else "malformed"
        return service.dump(), init.data

    def _service(self, state: bytes) -> q.Enqueuer:
        return q.Enqueuer.load(state, policy=self.policy)

    def seal(self, state: bytes, message: bytes, aad: bytes) -> tuple[bytes, list[bytes]]:
        service = self._service(state)
        frames = service.enqueue(message, now=0, aad=aad)
        return service.dump(), [frame.data for frame in frames]

    def update(self, state: bytes) -> tuple[bytes, list[bytes]]:
        service = self._service(state)
        frame = service.update(now=0)
        return service.dump(), [frame.data]

    def take_offer(self, state: bytes, offer: bytes) -> tuple[bytes, list[bytes]] | str:
        service = self._service(state)
        try:
            frames = service.accept_offer(offer, now=0)
        except q.OfferRejected:
            return "offer refused"
        except q.KeyRejected:
            return "unusable key"
        except q.DecodeError:
            return "malformed"
        finally:
            refused_state = service.dump()
        assert frames or refused_state == state
        return service.dump(), [frame.data for frame in frames]

    def head(self, state: bytes, nonce: bytes) -> bytes:
        return self._service(state).head(nonce)

    def open_granted(self, grant: bytes, frame: bytes, aad: bytes) -> tuple[bytes | None, str | None]:
        opener = q.Grant.decode(grant)
        (among_many,) = q.Grant.decode(grant).open_many([frame], aad=aad)
        try:
            opened = opener.open(frame, aad=aad)
        except q.FrameRejected as verdict:
            kind = verdict.kind
            assert isinstance(among_many, q.FrameRejected)
            assert among_many.kind == kind
            return None, kind
        assert among_many == opened
        return opened.body if isinstance(opened, q.Message) else None, None

    def walk(self, keys: bytes, frames: Sequence[bytes]) -> list[bytes]:
        decoded = q.OwnerKeys.decode(keys)
        walk = q.GrantWalk(decoded)
        grants = [walk.open(frame).encode() for frame in frames]
        assert [grant.encode() for grant in q.derive_grants(frames, decoded)] == grants
        return grants

    def again(self, kind: str, data: bytes) -> bytes | None:
        decoders: dict[str, Callable[[], bytes]] = {
            "grant": lambda: q.Grant.decode(data).encode(),
            "keys": lambda: q.OwnerKeys.decode(data).encode(),
            "owner state": lambda: q.Dequeuer.load(data).dump(),
            "service state": lambda: q.Enqueuer.load(data).dump(),
        }
        try:
            return decoders[kind]()
        except q.StateError:
            return None


def without_generation(state: bytes) -> bytes:
    """A state, as a document, with its generation set to zero: it grows by at least one, and no more is promised."""
    body = state[5:-4]
    offset = {b"QSRD": 0, b"QSRE": 22}[state[:4]]
    return document(state[:4], body[:offset] + bytes(8) + body[offset + 8 :])


def generation_of(state: bytes) -> int:
    offset = {b"QSRD": 5, b"QSRE": 27}[state[:4]]
    return int.from_bytes(state[offset : offset + 8], "big")


def qctx_of(service_state: bytes) -> bytes:
    return peers.Service.load(service_state, Entropy(b"")).qctx


IMPLEMENTATIONS: tuple[Implementation, ...] = (Reference(), Library())
ALL_SUITES = tuple(SUITES)
