"""One step of a connection while it is being worked out: the two sides, the stream, and the effects so far.

A turn is a scratch copy.  The connection takes its values over only when the whole step went well, which is
why an error changes nothing.  This module knows what both machines share, and none of their rules.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from ..crypto.entropy import Entropy
from ..crypto.secret import Sensitive
from .events import Effect, Outcome, PhaseChanged, Received
from .messages import Control, QueueAddress, SenderKeys
from .stream import Stream
from .tables import PATIENCE, Receiving, Sending, Wait

__all__ = ["Patience", "ReceiveQueue", "ReceivingSide", "SendQueue", "SendingSide", "Turn"]

_HOUR: Final = 3600
_DAY: Final = 24 * _HOUR


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long the states of a rotation wait, in the unit of the caller's clock; the defaults are in seconds."""

    #: For a server's answer: an outage of a day is not rare.
    server: int = _DAY
    #: For the peer's answer: people are away for a week.
    peer: int = 7 * _DAY
    #: For the old queue's last messages: as long as upstream keeps trying to send one.
    drain: int = 2 * _DAY
    #: For QSWITCH once the old queue is closed: it is already on its way.
    park: int = _HOUR

    def until(self, state: Receiving | Sending, now: int) -> int | None:
        """The deadline of a state that is entered now."""
        wait = PATIENCE.get(state)
        if wait is None:
            return None
        return (
            now + {Wait.SERVER: self.server, Wait.PEER: self.peer, Wait.DRAIN: self.drain, Wait.PARK: self.park}[wait]
        )


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class ReceiveQueue(Sensitive):
    """A queue we own.  `key` is shared with the peer, for the host to seal frames with; a first queue may have none."""

    address: QueueAddress
    key: bytes = b""

    def describe(self) -> str:
        return f"{self.address.server} {self.address.sender_id.hex()}"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class SendQueue(Sensitive):
    """The peer's queue, with our keys for it: `server_seed` is the Ed25519 seed with which we sign to its server."""

    address: QueueAddress
    key: bytes = b""
    server_seed: bytes = b""

    def describe(self) -> str:
        return f"{self.address.server} {self.address.sender_id.hex()}"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class ReceivingSide(Sensitive):
    """The receiving side between two steps.  What follows `queue` is empty unless a rotation is under way."""

    state: Receiving = Receiving.IDLE
    since: int = 0
    due: int | None = None
    #: How many rotations were begun: it makes the id of each creation its own.
    count: int = 0
    queue: ReceiveQueue
    target: str = ""
    #: The new queue until it is promoted, the old queue after that.
    other: QueueAddress | None = None
    dh_seed: bytes = b""
    server_key: bytes = b""
    new_key: bytes = b""
    hello_key: bytes = b""
    #: The number of QSWITCH in our own stream.
    switch_number: int = 0
    #: The last number in the old queue, if the peer told us.
    last: int | None = None
    outcome: Outcome | None = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class SendingSide(Sensitive):
    """The sending side between two steps.  What follows `queue` is empty unless a rotation is under way."""

    state: Sending = Sending.IDLE
    since: int = 0
    due: int | None = None
    queue: SendQueue
    new: SendQueue | None = None
    #: Our public keys for the new queue.
    keys: SenderKeys | None = None
    fast: bool = False
    hello_key: bytes = b""
    #: The QHELLO to send, or to send again, as the bytes that go out.
    hello: bytes = b""


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class Turn(Sensitive):
    """The values that one step works on."""

    receiving: ReceivingSide
    sending: SendingSide
    stream: Stream
    #: The first message of the new queue, in memory only: its server keeps it until it is acknowledged.
    held: Received | None
    fast: bool
    now: int
    patience: Patience
    entropy: Entropy
    effects: list[Effect] = field(default_factory=list)

    def say(self, message: Control) -> int:
        """Put a message of the rotation into the stream; return its number."""
        number = self.stream.next_number
        self.stream = self.stream.add(message)
        return number

    def changed(self, phase: Receiving | Sending) -> None:
        self.effects.append(PhaseChanged(phase=phase))
