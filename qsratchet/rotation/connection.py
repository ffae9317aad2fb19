"""A connection: one receive queue, one send queue, the stream through them, and the two machines.

The contract: **give `step` every event; store the new `dump()` together with every `Deliver` and report, in
one transaction; then carry out the other effects.**  After a restart `load` it and carry out what `resume()`
gives.  The rules are in tables.py, the way from events to them in routing.py.  This module knows no socket, no clock.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from ..codec import Buffer, as_bytes
from ..crypto.entropy import Entropy
from ..crypto.secret import Sensitive
from . import receiving, sending, snapshot
from .events import (
    Effect,
    Event,
    Failed,
    Question,
    Received,
    Send,
    Subscribe,
)
from .routing import take
from .stream import Stream
from .tables import (
    RECEIVING,
    STREAM_WAITS,
    WAITS,
    Command,
    Receiving,
    ReceivingInput,
    Sending,
)
from .turn import Patience, ReceiveQueue, ReceivingSide, SendingSide, SendQueue, Turn

__all__ = ["Connection", "Status"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """One side of a connection, for people."""

    phase: Receiving | Sending
    since: int
    waits_for: str
    deadline: int | None
    at_deadline: str
    can_abort: bool
    can_force: bool


class Connection(Sensitive):
    """Two agents' connection as one of them sees it."""

    __slots__ = ("_asked", "_entropy", "_fast", "_held", "_patience", "_receiving", "_sending", "_stream")

    def __init__(
        self,
        *,
        receive: ReceiveQueue,
        send: SendQueue,
        fast: bool = False,
        patience: Patience | None = None,
        entropy: Entropy = os.urandom,
    ) -> None:
        """Begin with a pair of queues that work.  `fast` announces the fast path; leave `entropy` alone."""
        self._set(ReceivingSide(queue=receive), SendingSide(queue=send), Stream(), fast, patience, entropy)

    def _set(
        self,
        receiving_side: ReceivingSide,
        sending_side: SendingSide,
        stream: Stream,
        fast: bool,
        patience: Patience | None,
        entropy: Entropy,
    ) -> None:
        self._receiving = receiving_side
        self._sending = sending_side
        self._stream = stream
        self._held: Received | None = None
        self._fast = fast
        self._patience = patience or Patience()
        self._entropy = entropy
        self._asked = _questions(receiving_side, sending_side, stream)

    # --- the interface ---------------------------------------------------------------------------

    def step(self, event: Event, now: int) -> tuple[Effect, ...]:
        """Take one event; return what to store and what to do.  An error changes nothing."""
        turn = Turn(
            receiving=self._receiving,
            sending=self._sending,
            stream=self._stream,
            held=self._held,
            fast=self._fast,
            now=now,
            patience=self._patience,
            entropy=self._entropy,
        )
        take(turn, event, self._asked)
        asked = _questions(turn.receiving, turn.sending, turn.stream)
        # A question that was already out is not asked again, unless it has just failed.
        known = {question.id for question in self._asked}
        if isinstance(event, Failed):
            known.discard(event.effect)
        turn.effects += [question for question in asked if question.id not in known]
        self._receiving, self._sending, self._stream, self._held = (
            turn.receiving,
            turn.sending,
            turn.stream,
            turn.held,
        )
        self._asked = asked
        return tuple(turn.effects)

    def resume(self) -> tuple[Effect, ...]:
        """Everything outstanding, to be carried out after a restart or when a server can be reached again.

        A host that works in turns asks this in each turn instead of keeping a list of effects: what is answered, or
        has become pointless, is no longer in it.
        """
        side = self._receiving
        effects: list[Effect] = [Subscribe(queue=side.queue.address)]
        if side.other is not None and side.state not in (Receiving.DELETING, Receiving.ABORTING):
            effects.append(Subscribe(queue=side.other))
        if side.state is Receiving.DRAINING:
            # The count tells whether the last message was acknowledged before the restart.
            effects.append(receiving.question_of(side, Command.SUSPEND_OLD))
        return (*effects, *self._asked)

    def dump(self) -> bytes:
        """The whole connection as a document.  It holds keys: store it as you store keys."""
        return snapshot.dump(self._receiving, self._sending, self._stream, self._fast)

    @classmethod
    def load(cls, data: Buffer, *, patience: Patience | None = None, entropy: Entropy = os.urandom) -> Connection:
        """Read a `dump()`; `StateError` when it is damaged or of another format."""
        connection = cls.__new__(cls)
        connection._set(*snapshot.load(as_bytes(data)), patience, entropy)
        return connection

    @property
    def next_deadline(self) -> int | None:
        """When the next `Tick` is due, at the latest."""
        dues = [side.due for side in (self._receiving, self._sending) if side.due is not None]
        return min(dues, default=None)

    @property
    def receive_queue(self) -> ReceiveQueue:
        return self._receiving.queue

    @property
    def receive_queues(self) -> tuple[ReceiveQueue, ...]:
        """The queues whose messages can be opened, with the keys for them; the current one comes first.

        The new queue of a rotation is among them from the peer's QKEYS on, which is before anything comes in it, unless
        both sides are fast: then its first message is the QHELLO that brings the keys.
        """
        side = self._receiving
        if side.other is None or not side.new_key:
            return (side.queue,)
        return (side.queue, ReceiveQueue(address=side.other, key=side.new_key))

    @property
    def send_queues(self) -> tuple[SendQueue, ...]:
        """The queues that a `Send` can name, with the keys for them; the current one comes first."""
        new = self._sending.new
        return (self._sending.queue,) if new is None else (self._sending.queue, new)

    @property
    def delivered(self) -> int:
        """The last number of the peer's stream that was delivered or named in a gap."""
        return self._stream.delivered

    @property
    def waiting(self) -> int:
        """How many messages no server has accepted yet."""
        return len(self._stream.outbox)

    def status(self) -> tuple[Status, Status]:
        """Where the rotations of the receive queue and of the send queue stand."""
        return _status(self._receiving), _status(self._sending)

    def describe(self) -> str:
        return f"receiving {self._receiving.state.name}, sending {self._sending.state.name}, waiting {self.waiting}"


def _status(side: ReceivingSide | SendingSide) -> Status:
    waits_for, at_deadline = WAITS[side.state]
    return Status(
        phase=side.state,
        since=side.since,
        waits_for=waits_for,
        deadline=side.due,
        at_deadline=at_deadline,
        can_abort=(side.state, ReceivingInput.ABORT) in RECEIVING,
        can_force=(side.state, ReceivingInput.FORCE) in RECEIVING,
    )


def _questions(receiving_side: ReceivingSide, sending_side: SendingSide, stream: Stream) -> tuple[Question, ...]:
    """What is outstanding: at most one question per machine, and the first message of the outbox."""
    asked = [receiving.question(receiving_side), sending.question(sending_side)]
    if stream.outbox and sending_side.state not in STREAM_WAITS:
        entry, queue = stream.outbox[0], sending_side.queue.address
        asked.append(Send(id=f"stream {entry.number} {queue.sender_id.hex()}", queue=queue, frame=entry.frame))
    return tuple(question for question in asked if question is not None)
