"""What is fuzzed: every public decoder and opener, as functions from bytes to nothing that raise `Broken` or not.

Each target builds its machines once and gives them hostile bytes for as long as it is asked.  After every input the
machine's state is compared with what it was; a decoder's value must encode to the bytes that it came from, and must
itself fail only with this library's errors when it is used.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

from qsratchet import (
    EPOCH_CAP,
    SUITES,
    UNPADDED,
    CreationRequest,
    Dequeuer,
    Enqueuer,
    Grant,
    GrantWalk,
    KeyOffer,
    OwnerKeys,
    QSRatchetError,
    ReadPolicy,
    Suite,
    UpdatePolicy,
    derive_grants,
    header_of,
)
from qsratchet.crypto.kdf import Kdf

__all__ = ["Broken", "Steps", "Target", "targets"]

NONCE = bytes(range(16))
POLICY = ReadPolicy(tolerant=True, forward_limit=300)
MANUAL = UpdatePolicy(frames=None, seconds=None)


class Broken(AssertionError):
    """The invariant does not hold for this input."""


class Steps:
    """Counts the turns of the ratchet that a suite is asked for."""

    def __init__(self) -> None:
        self.count = 0

    def counted(self, suite: Suite) -> Suite:
        kdf = suite.kdf

        def step(chain_key: bytes) -> tuple[bytes, bytes]:
            self.count += 1
            return kdf.step(chain_key)

        def advance(chain_key: bytes, steps: int) -> bytes:
            self.count += steps
            return kdf.advance(chain_key, steps)

        counting: Kdf = dataclasses.replace(kdf, step=step, advance=advance)
        return dataclasses.replace(suite, kdf=counting)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One entrance: what it is fed from, and what happens to one input; True if it was taken."""

    name: str
    seeds: tuple[bytes, ...]
    feed: Callable[[bytes], bool]


def taken(call: Callable[[], object]) -> bool:
    """Whether the call gives a value; any error but this library's is a finding."""
    try:
        call()
    except QSRatchetError:
        return False
    except Exception as error:
        raise Broken(f"{type(error).__name__}: {error}") from error
    return True


class Material:
    """A queue of one suite with two epochs, an offer under way, and everything that can be stored of it."""

    def __init__(self, suite: int) -> None:
        self.suite = suite
        owner, request = Dequeuer.create(b"service", b"queue", suites=(suite,))
        self.awaiting = owner.dump()
        self.request = request.encode()
        service, init = Enqueuer.create(request, now=0, policy=MANUAL, padding=UNPADDED)
        frames = [init, *service.enqueue_many([b"one", b"two"], now=0), service.update(now=0)]
        self.service = service.dump()
        self.head = service.head(NONCE)
        for frame in frames:
            owner.open(frame.data)
        self.read = tuple(frame.data for frame in frames)
        self.owner_keys = Dequeuer.load(self.awaiting).owner_keys().encode()
        self.offer = owner.offer_key().encode()
        self.owner = owner.dump()
        self.grant = owner.grant().encode()
        due = service.enqueue_many([b"three", b"four"], now=0)
        due += service.accept_offer(self.offer, now=0)
        due += service.enqueue(b"five", now=0)
        self.due = tuple(frame.data for frame in due)
        self.frames = self.read + self.due


def targets(suite: int) -> list[Target]:
    """All targets over the frames and documents of one suite."""
    m = Material(suite)
    documents = (m.awaiting, m.owner, m.service, m.grant, m.owner_keys, m.offer, m.request)
    frames = (*m.frames, m.head)
    rows = [
        ("header_of", frames, lambda data: taken(lambda: header_of(data))),
        ("Dequeuer.open, INIT due", frames, _opener(m, m.awaiting, m.read[:1])),
        ("Dequeuer.open, strict", frames, _opener(m, m.owner, m.due[:1], ReadPolicy())),
        ("Dequeuer.open, tolerant", frames, _opener(m, m.owner, m.due, POLICY)),
        ("Dequeuer.open_many", frames, _batch(m)),
        ("Dequeuer.verify_head", frames, _dequeuer_head(m)),
        ("Grant.open", frames, _grant(m)),
        ("Grant.verify_head", frames, _grant_head(m)),
        ("GrantWalk.open, INIT due", frames, _walk(m, 0)),
        ("GrantWalk.open, UPDATE due", frames, _walk(m, 1)),
        ("derive_grants", frames, _derive(m)),
        ("Dequeuer.load", documents, _load_dequeuer(m)),
        ("Enqueuer.load", documents, _load_enqueuer(m)),
        ("Grant.decode", documents, _decode_grant(m)),
        ("OwnerKeys.decode", documents, _decode_keys(m)),
        ("CreationRequest.decode", documents, _decode_request()),
        ("KeyOffer.decode", documents, _decode_offer(m)),
    ]
    return [Target(name=f"{name} (0x{suite:04x})", seeds=seeds, feed=feed) for name, seeds, feed in rows]


def _same(before: bytes, after: bytes) -> None:
    if before != after:
        raise Broken("the state changed")


def _opener(m: Material, blob: bytes, due: tuple[bytes, ...], policy: ReadPolicy = POLICY) -> Callable[[bytes], bool]:
    steps = Steps()
    counted = steps.counted(SUITES[m.suite])
    machine = Dequeuer.load(blob, policy=policy)

    def feed(data: bytes) -> bool:
        nonlocal machine
        machine._suite = counted
        steps.count = 0
        if taken(lambda: machine.open(data)):
            if data not in due:
                raise Broken("a frame was taken that the service did not make")
            machine = Dequeuer.load(blob, policy=policy)
            return True
        if steps.count > policy.forward_limit + 1:
            raise Broken(f"{steps.count} steps before the frame was refused")
        _same(blob, machine.dump())
        return False

    return feed


def _batch(m: Material) -> Callable[[bytes], bool]:
    machine = Dequeuer.load(m.owner, policy=POLICY)

    def feed(data: bytes) -> bool:
        nonlocal machine
        results: list[object] = []
        # The hostile bytes stand before the frame that is due: it must open as if they were not there.
        taken(lambda: results.extend(machine.open_many([data, m.due[0]])))
        if len(results) != 2:
            raise Broken("a batch gives one result for each frame")
        genuine = not isinstance(results[0], QSRatchetError)
        if genuine and data not in m.due:
            raise Broken("a frame was taken that the service did not make")
        if not genuine and isinstance(results[1], QSRatchetError):
            raise Broken("a refused frame stood in the way of the true one")
        machine = Dequeuer.load(m.owner, policy=POLICY)
        return genuine

    return feed


def _dequeuer_head(m: Material) -> Callable[[bytes], bool]:
    steps = Steps()
    machine = Dequeuer.load(m.owner, policy=POLICY)
    machine._suite = steps.counted(SUITES[m.suite])

    def feed(data: bytes) -> bool:
        steps.count = 0
        genuine = taken(lambda: machine.verify_head(data, NONCE))
        if genuine and data != m.head:
            raise Broken("a head was taken that the service did not make")
        if steps.count > POLICY.forward_limit:
            raise Broken(f"{steps.count} steps for a head")
        _same(m.owner, machine.dump())
        return genuine

    return feed


def _grant(m: Material) -> Callable[[bytes], bool]:
    steps = Steps()
    grant = Grant.decode(m.grant)
    grant.suite = steps.counted(grant.suite)

    def feed(data: bytes) -> bool:
        steps.count = 0
        genuine = taken(lambda: grant.open(data))
        if genuine and data not in m.due:
            raise Broken("a frame was taken that the service did not make")
        if steps.count > EPOCH_CAP + 1:
            raise Broken(f"{steps.count} steps for one frame")
        _same(m.grant, grant.encode())
        return genuine

    return feed


def _grant_head(m: Material) -> Callable[[bytes], bool]:
    grant = Grant.decode(m.grant)

    def feed(data: bytes) -> bool:
        genuine = taken(lambda: grant.verify_head(data, NONCE, next_seq=4))
        if genuine and data != m.head:
            raise Broken("a head was taken that the service did not make")
        _same(m.grant, grant.encode())
        return genuine

    return feed


def _walk(m: Material, opened: int) -> Callable[[bytes], bool]:
    control = [m.read[0], m.read[3], m.due[2]]

    def begun() -> GrantWalk:
        walk = GrantWalk(OwnerKeys.decode(m.owner_keys).merge(Dequeuer.load(m.owner).owner_keys()))
        for frame in control[:opened]:
            walk.open(frame)
        return walk

    walk = begun()

    def feed(data: bytes) -> bool:
        nonlocal walk
        before = repr(walk)
        if taken(lambda: walk.open(data)):
            if data != control[opened]:
                raise Broken("a frame was taken that the service did not make")
            walk = begun()
            return True
        if repr(walk) != before:
            raise Broken("the walk moved")
        return False

    return feed


def _derive(m: Material) -> Callable[[bytes], bool]:
    keys = OwnerKeys.decode(m.owner_keys)

    def feed(data: bytes) -> bool:
        return taken(lambda: list(derive_grants([data], keys)))

    return feed


def _load_dequeuer(m: Material) -> Callable[[bytes], bool]:
    def feed(data: bytes) -> bool:
        loaded: list[Dequeuer] = []
        if not taken(lambda: loaded.append(Dequeuer.load(data, policy=POLICY))):
            return False
        (machine,) = loaded
        _same(data, machine.dump())
        repr(machine)
        for frame in (m.read[0], m.due[0], m.due[2]):
            taken(lambda frame=frame: machine.open(frame))  # type: ignore[misc]
        taken(lambda: machine.discard(machine.next_seq))
        taken(machine.offer_key)
        taken(lambda: machine.grant().encode())
        taken(lambda: machine.verify_head(m.head, NONCE))
        taken(lambda: Dequeuer.load(machine.dump()))
        return True

    return feed


def _load_enqueuer(m: Material) -> Callable[[bytes], bool]:
    def feed(data: bytes) -> bool:
        loaded: list[Enqueuer] = []
        if not taken(lambda: loaded.append(Enqueuer.load(data))):
            return False
        (machine,) = loaded
        _same(data, machine.dump())
        repr(machine)
        taken(lambda: machine.enqueue(b"m", now=1))
        taken(lambda: machine.enqueue_many([b"m"] * 3, now=100_000))
        taken(lambda: machine.update(now=1))
        taken(lambda: machine.accept_offer(m.offer, now=1))
        taken(lambda: machine.head(NONCE))
        taken(lambda: Enqueuer.load(machine.dump()))
        return True

    return feed


def _decode_grant(m: Material) -> Callable[[bytes], bool]:
    def feed(data: bytes) -> bool:
        decoded: list[Grant] = []
        if not taken(lambda: decoded.append(Grant.decode(data))):
            return False
        (grant,) = decoded
        _same(data, grant.encode())
        repr(grant)
        for frame in (m.read[0], m.due[0], m.due[2]):
            taken(lambda frame=frame: grant.open(frame))  # type: ignore[misc]
        return True

    return feed


def _decode_keys(m: Material) -> Callable[[bytes], bool]:
    def feed(data: bytes) -> bool:
        decoded: list[OwnerKeys] = []
        if not taken(lambda: decoded.append(OwnerKeys.decode(data))):
            return False
        (keys,) = decoded
        _same(data, keys.encode())
        repr(keys)
        taken(lambda: list(derive_grants(m.read, keys)))
        return True

    return feed


def _decode_request() -> Callable[[bytes], bool]:
    def feed(data: bytes) -> bool:
        decoded: list[CreationRequest] = []
        if not taken(lambda: decoded.append(CreationRequest.decode(data))):
            return False
        (request,) = decoded
        _same(data, request.encode())
        repr(request)
        taken(lambda: Enqueuer.create(request, now=0))
        return True

    return feed


def _decode_offer(m: Material) -> Callable[[bytes], bool]:
    machine = Enqueuer.load(m.service)

    def feed(data: bytes) -> bool:
        nonlocal machine
        decoded: list[KeyOffer] = []
        if not taken(lambda: decoded.append(KeyOffer.decode(data))):
            return False
        (offer,) = decoded
        _same(data, offer.encode())
        repr(offer)
        if taken(lambda: machine.accept_offer(offer, now=0)):
            machine = Enqueuer.load(m.service)
        _same(m.service, machine.dump())
        return True

    return feed
