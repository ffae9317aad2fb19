"""A pair of real connections over real in-memory queues, driven to any state of either machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import count
from typing import Any

from qsratchet.crypto.dh import DhKey
from qsratchet.rotation import (
    AbortRotation,
    Accepted,
    Acknowledge,
    Connection,
    CreateQueue,
    Deleted,
    DeleteQueue,
    Deliver,
    Effect,
    Event,
    Failed,
    Failure,
    QueueAddress,
    QueueCreated,
    QueueEmpty,
    Received,
    ReceiveQueue,
    Receiving,
    Secured,
    SecureQueue,
    Send,
    Sending,
    SendQueue,
    StartRotation,
    Submit,
    Subscribe,
    Suspended,
    SuspendQueue,
)
from qsratchet.rotation.turn import Turn

OLD = QueueAddress(server="old", sender_id=b"o" * 24)
BACK = QueueAddress(server="back", sender_id=b"b" * 24)
NEW = QueueAddress(server="new", sender_id=b"n" * 24)


def counting_entropy(first: int) -> Callable[[int], bytes]:
    """Bytes that differ from call to call and are the same in every run."""
    numbers = count(first)
    return lambda size: bytes([next(numbers) % 256]) * size


def other_dh_key() -> bytes:
    return DhKey(b"\x77" * 32).public()


class Pair:
    """Alice (0) and Bob (1), and the servers between them.  A request is carried out at once unless it is stopped."""

    def __init__(self, *, fast: tuple[bool, bool] = (False, False)) -> None:
        self.agents = [
            Connection(
                receive=ReceiveQueue(address=(OLD, BACK)[agent], key=bytes([0xA0 + agent]) * 32),
                send=SendQueue(address=(BACK, OLD)[agent], key=bytes([0xB0 + agent]) * 32),
                fast=fast[agent],
                entropy=counting_entropy(1 + 100 * agent),
            )
            for agent in (0, 1)
        ]
        self.queues: dict[QueueAddress, list[tuple[bytes, bytes]]] = {OLD: [], BACK: []}
        self.owner = {OLD: 0, BACK: 1}
        self.suspended: set[QueueAddress] = set()
        self.dead: set[str] = set()
        self.delivered: list[list[bytes]] = [[], []]
        self.reports: list[list[Effect]] = [[], []]
        self.waiting: list[list[Any]] = [[], []]
        self.stops: Callable[[int, Effect], bool] = lambda agent, effect: False
        self.new = iter([NEW, *(QueueAddress(server="new", sender_id=bytes([n]) * 24) for n in range(200))])
        self._ids = count()
        for agent in (0, 1):
            self.run(agent, self.agents[agent].resume())

    def event(self, agent: int, event: Event, now: int = 0) -> tuple[Effect, ...]:
        effects = self.agents[agent].step(event, now)
        self.run(agent, effects)
        return effects

    def submit(self, agent: int, body: bytes, now: int = 0) -> None:
        self.event(agent, Submit(body=body), now)

    def run(self, agent: int, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Deliver):
                self.delivered[agent].append(effect.body)
            elif not isinstance(
                effect, (CreateQueue, SecureQueue, SuspendQueue, DeleteQueue, Send, Subscribe, Acknowledge)
            ):
                self.reports[agent].append(effect)
            elif self.stops(agent, effect) or self._server(effect) in self.dead:
                self.waiting[agent].append(effect)
            else:
                self.carry_out(agent, effect)

    def go_on(self) -> None:
        """Nothing is stopped any more; what waited is carried out."""
        self.stops = lambda agent, effect: False
        for agent in (0, 1):
            waiting, self.waiting[agent] = self.waiting[agent], []
            self.run(agent, waiting)

    def _server(self, effect: Any) -> str:
        return str(effect.server) if isinstance(effect, CreateQueue) else str(effect.queue.server)

    def carry_out(self, agent: int, effect: Any, now: int = 0) -> None:
        match effect:
            case CreateQueue():
                queue = next(self.new)
                self.queues[queue], self.owner[queue] = [], agent
                self.event(agent, QueueCreated(effect=effect.id, queue=queue), now)
            case Subscribe():
                self._push(effect.queue)
            case Acknowledge():
                messages = self.queues.get(effect.queue, [])
                if messages and messages[0][0] == effect.message_id:
                    messages.pop(0)
                    if messages:
                        self._push(effect.queue)
                    else:
                        self.event(agent, QueueEmpty(queue=effect.queue), now)
            case _ if effect.queue not in self.queues:
                self.event(agent, Failed(effect=effect.id, failure=Failure.AUTH), now)
            case SecureQueue():
                self.event(agent, Secured(effect=effect.id), now)
            case SuspendQueue():
                self.suspended.add(effect.queue)
                self.event(agent, Suspended(effect=effect.id, remaining=len(self.queues[effect.queue])), now)
            case DeleteQueue():
                del self.queues[effect.queue]
                self.event(agent, Deleted(effect=effect.id), now)
            case Send():
                if effect.queue in self.suspended:
                    self.event(agent, Failed(effect=effect.id, failure=Failure.AUTH), now)
                    return
                first = not self.queues[effect.queue]
                self.queues[effect.queue].append((next(self._ids).to_bytes(4, "big"), effect.frame))
                self.event(agent, Accepted(effect=effect.id), now)
                if first:
                    self._push(effect.queue)

    def _push(self, queue: QueueAddress) -> None:
        if self.queues.get(queue) and queue.server not in self.dead:
            message_id, body = self.queues[queue][0]
            self.event(self.owner[queue], Received(queue=queue, message_id=message_id, body=body))


def pair_at(stop: Callable[[int, Effect], bool], *, fast: bool = False) -> Pair:
    """A pair whose first rotation is stopped at the first effects that `stop` picks."""
    pair = Pair(fast=(fast, fast))
    pair.stops = stop
    pair.event(0, StartRotation(server="new"))
    return pair


def sends(tag: bytes, agent: int) -> Callable[[int, Effect], bool]:
    return lambda who, effect: who == agent and isinstance(effect, Send) and effect.frame[9:11] == tag


def does(kind: type, queue: QueueAddress | None = None) -> Callable[[int, Effect], bool]:
    return lambda who, effect: isinstance(effect, kind) and queue in (None, getattr(effect, "queue", None))


def _alice(stop: Callable[[int, Effect], bool], fast: bool = False) -> Connection:
    return pair_at(stop, fast=fast).agents[0]


def _bob(stop: Callable[[int, Effect], bool], fast: bool = False) -> Connection:
    return pair_at(stop, fast=fast).agents[1]


def _draining() -> Connection:
    pair = pair_at(does(SuspendQueue))
    connection = pair.agents[0]
    connection.step(Suspended(effect=pair.waiting[0][0].id, remaining=1), 0)
    return connection


def _aborting() -> Connection:
    connection = _alice(sends(b"QN", 0))
    connection.step(AbortRotation(), 0)
    return connection


def _parked() -> Connection:
    pair = pair_at(sends(b"QS", 0))
    pair.suspended.add(OLD)
    pair.submit(1, b"parked")
    return pair.agents[1]


RECEIVING_STAGES: dict[Receiving, Callable[[], Connection]] = {
    Receiving.IDLE: lambda: Pair().agents[0],
    Receiving.CREATING: partial(_alice, does(CreateQueue)),
    Receiving.OFFERED: partial(_alice, sends(b"QN", 0)),
    Receiving.SECURING: partial(_alice, does(SecureQueue)),
    Receiving.READY: partial(_alice, sends(b"QR", 0)),
    Receiving.SWITCHING: partial(_alice, sends(b"QS", 0)),
    Receiving.SUSPENDING: partial(_alice, does(SuspendQueue)),
    Receiving.DRAINING: _draining,
    Receiving.DELETING: partial(_alice, does(DeleteQueue)),
    Receiving.ABORTING: _aborting,
}

SENDING_STAGES: dict[Sending, Callable[[], Connection]] = {
    Sending.IDLE: lambda: Pair().agents[1],
    Sending.SECURING: partial(_bob, does(SecureQueue), True),
    Sending.KEYS_SENT: partial(_bob, sends(b"QK", 1)),
    Sending.HELLO_SENT: partial(_bob, sends(b"QH", 1)),
    Sending.HELLO_ACCEPTED: partial(_bob, sends(b"QS", 0)),
    Sending.PARKED: _parked,
    Sending.ANNOUNCING: partial(
        _bob,
        lambda who, effect: who == 1 and isinstance(effect, Send) and "announce" in effect.id,
        True,
    ),
}


def turn_of(stage: Callable[[], Connection]) -> Turn:
    """The machines of a stage, ready for one more transition."""
    connection = stage()
    return Turn(
        receiving=connection._receiving,
        sending=connection._sending,
        stream=connection._stream,
        held=None,
        fast=connection._fast,
        now=7,
        patience=connection._patience,
        entropy=counting_entropy(50),
    )
