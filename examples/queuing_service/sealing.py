"""The cryptography of a batch of requests, before the lock is taken: states are read, messages are sealed.

What is sealed here leaves only if, under the lock, the queue still has the generation that it was loaded with.
Otherwise it is thrown away, as the contract asks, and sealed anew from the newer state.  This module reads the file
and writes nothing.
"""

from __future__ import annotations

import hashlib
import logging
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from qsratchet import (
    CreationRequest,
    Enqueuer,
    Frame,
    MisuseError,
    QSRatchetError,
    RejectedError,
    UpdatePolicy,
)
from qsratchet.records import RetentionPolicy

from .admission import Queue, accepted_before, admit, check_room
from .protocol import Create, Enqueue, Fault, OfferKey, Refusal, Request, Reset

log = logging.getLogger(__name__)

FAILED: Final = Refusal(Fault.FAILED, "the service failed and does not know how far it came; try again")


@dataclass(slots=True, kw_only=True)
class Sealed:
    """What a request makes of its queue: the new state and the frames, over the generation `before`."""

    #: The row that the state was loaded from; None for a queue that begins.
    id: int | None = None
    before: int = 0
    #: What was sealed before this one, from the same loaded state.
    after: Sealed | None = None
    generation: int
    state: bytes = field(repr=False)
    frames: Sequence[Frame]
    #: Set when it is in the file.
    written: bool = False


@dataclass(slots=True, kw_only=True)
class _Chain:
    """A queue's machine as it goes through a batch."""

    machine: Enqueuer
    queue: Queue
    last: Sealed | None = None


class Sealer:
    """Seals for one storage."""

    def __init__(
        self, database: sqlite3.Connection, service_id: bytes, updates: UpdatePolicy, machine: type[Enqueuer]
    ) -> None:
        self._database = database
        self._service_id = service_id
        self._updates = updates
        self._machine = machine

    def load(self, queue: Queue) -> Enqueuer:
        return self._machine.load(queue.state, policy=self._updates)

    def seal_all(
        self, requests: Sequence[Request], now: float, retention: RetentionPolicy
    ) -> list[Sealed | Refusal | None]:
        """What each request needs sealed, or why that cannot be; None if it needs nothing, as far as it looks."""
        chains: dict[int, _Chain] = {}
        return [self._seal(request, now, retention, chains) for request in requests]

    def _seal(
        self, request: Request, now: float, retention: RetentionPolicy, chains: dict[int, _Chain]
    ) -> Sealed | Refusal | None:
        operation = request.operation
        if not isinstance(operation, Create | Enqueue | OfferKey | Reset):
            return None
        try:
            queue = admit(self._database, request, now)
            if isinstance(operation, Create | Reset):
                if queue is not None and (
                    isinstance(operation, Create) or queue.request_digest == digest_of(operation.request)
                ):
                    return None  # It is there already.
                return self._begin(operation.request, request.target, now)
            assert queue is not None
            if isinstance(operation, Enqueue) and accepted_before(self._database, request, operation) is not None:
                return None
            chain = chains.get(queue.id)
            if chain is None:
                chain = chains[queue.id] = _Chain(machine=self.load(queue), queue=queue)
            return self._go_on(operation, chain, now, retention)
        except Refusal:
            return None  # It will be refused under the lock too, or be tried again.
        except (MisuseError, RejectedError) as error:
            return Refusal(Fault.REJECTED, str(error))
        except QSRatchetError as error:
            log.error("%s: %s", request.describe(), error)
            return FAILED

    def _begin(self, data: bytes, queue_id: bytes, now: float) -> Sealed:
        creation = CreationRequest.decode(data)
        if creation.service_id != self._service_id or creation.queue_id != queue_id:
            raise MisuseError("the creation request names another service or another queue")
        machine, init = self._machine.create(creation, now=int(now), policy=self._updates)
        return Sealed(generation=machine.generation, state=machine.dump(), frames=[init])

    def _go_on(self, operation: Enqueue | OfferKey, chain: _Chain, now: float, retention: RetentionPolicy) -> Sealed:
        machine, before = chain.machine, chain.machine.generation
        if isinstance(operation, Enqueue):
            check_room(chain.queue, retention)
            frames = machine.enqueue(operation.message, now=int(now))
            chain.queue.held += 1
        else:
            frames = machine.accept_offer(operation.offer, now=int(now))
        made = Sealed(
            id=chain.queue.id,
            before=before,
            after=chain.last,
            generation=machine.generation,
            state=machine.dump(),
            frames=frames,
        )
        if frames:
            chain.last = made  # An offer that is in force already changes nothing.
        return made


def digest_of(request: bytes) -> bytes:
    """What a repeated creation request is known by."""
    return hashlib.sha256(request).digest()
