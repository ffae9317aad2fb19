"""Recorded runs of a queue: every frame, and both sides' stored state before each of them.

One script of events drives our machines and the literal design alike, so that an attacker can be given exactly
what was recorded and one stolen state, and the two outcomes can be compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from qsratchet import UNPADDED, Dequeuer, Enqueuer, UpdatePolicy

from .literal_seed import SeedOwner, SeedService

__all__ = ["COLUMNS", "MANUAL", "Run", "SeedRun", "record", "record_seed"]

#: Updates happen when the script says so and not otherwise.
MANUAL = UpdatePolicy(frames=None, seconds=None)

#: The script of the comparison table: 23 messages, 13 of them after the theft `T`; the first key change comes three
#: messages after it.  `.` is a message, `U` an update to the key in force, `K` an offer and the update that answers it.
COLUMNS = "....K......T...K.....K....."


def message(seq: int) -> bytes:
    return b"message %d" % seq


@dataclass(slots=True)
class Run:
    """What happened in one of our queues.  Index n of a state is the moment before frame n exists or is read."""

    suite: int
    frames: list[bytes] = field(default_factory=list)
    messages: dict[int, bytes] = field(default_factory=dict)
    #: The service's blob when its next frame is n; there is none for n = 0.
    service: dict[int, bytes] = field(default_factory=dict)
    #: The owner's blob when its next frame is n, and when an offer that frame n answers is under way.
    owner: dict[int, bytes] = field(default_factory=dict)
    offering: dict[int, bytes] = field(default_factory=dict)
    #: The numbers of updates, and of those among them that answer an offer.
    updates: list[int] = field(default_factory=list)
    offers: list[int] = field(default_factory=list)
    theft: int = 0

    @property
    def after(self) -> set[int]:
        return {seq for seq in self.messages if seq >= self.theft}

    @property
    def before(self) -> set[int]:
        return {seq for seq in self.messages if seq < self.theft}


def record(script: str, suite: int, *, suites: Sequence[int] = (), queue_id: bytes = b"queue") -> Run:
    """Run the script on our machines, the owner reading each frame at once."""
    run = Run(suite)
    owner, request = Dequeuer.create(b"service", queue_id, suites=tuple(suites) or (suite,))
    run.owner[0] = owner.dump()
    service, init = Enqueuer.create(request.encode(), now=0, policy=MANUAL, padding=UNPADDED, suites=(suite,))
    run.frames.append(init.data)
    owner.open(init.data)
    for event in script:
        seq = service.next_seq
        run.service[seq], run.owner[seq] = service.dump(), owner.dump()
        if event == "T":
            run.theft = seq
            continue
        if event == ".":
            run.messages[seq] = message(seq)
            (frame,) = service.enqueue(run.messages[seq], now=0)
        else:
            run.updates.append(seq)
            if event == "K":
                offer = owner.offer_key().encode()
                run.offering[seq] = owner.dump()
                run.offers.append(seq)
                (frame,) = service.accept_offer(offer, now=0)
            else:
                frame = service.update(now=0)
        run.frames.append(frame.data)
        owner.open(frame.data)
    run.service[service.next_seq], run.owner[service.next_seq] = service.dump(), owner.dump()
    return run


@dataclass(slots=True)
class SeedRun:
    """What happened in a queue of the literal design."""

    frames: list[bytes] = field(default_factory=list)
    messages: dict[int, bytes] = field(default_factory=dict)
    service: dict[int, SeedService] = field(default_factory=dict)
    owner: dict[int, SeedOwner] = field(default_factory=dict)
    theft: int = 0

    @property
    def after(self) -> set[int]:
        return {seq for seq in self.messages if seq >= self.theft}

    @property
    def before(self) -> set[int]:
        return {seq for seq in self.messages if seq < self.theft}


def record_seed(script: str, suite: int) -> SeedRun:
    """Run the script on the literal design; it has no key offers, so `K` is an update like `U`."""
    run = SeedRun()
    owner = SeedOwner.create(suite)
    service, init = SeedService.create(owner.private_key.public(), suite)
    run.frames.append(init)
    owner.open(init)
    for event in script:
        seq = service.seq
        run.service[seq] = SeedService(service.suite, service.public_key, service.ratchet_key, seq)
        run.owner[seq] = owner.copy()
        if event == "T":
            run.theft = seq
            continue
        if event == ".":
            run.messages[seq] = message(seq)
            frame = service.enqueue(run.messages[seq])
        else:
            frame = service.update()
        run.frames.append(frame)
        owner.open(frame)
    run.owner[service.seq] = owner.copy()
    return run
