"""What goes into a connection and what comes out of it: closed unions of events, effects and reports.

An effect with an `id` is outstanding until an event answers that id; the id names the operation, so running
it twice is the same as running it once.  This module knows values; it knows nothing of what follows what.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from .messages import QueueAddress, Tag
from .tables import Receiving, Sending

__all__ = [
    "AbortRotation",
    "Accepted",
    "Acknowledge",
    "CreateQueue",
    "DeleteQueue",
    "Deleted",
    "Deliver",
    "Effect",
    "Ended",
    "Equivocation",
    "Event",
    "Failed",
    "Failure",
    "ForceRotation",
    "Gap",
    "GivenUp",
    "Malformed",
    "Orphan",
    "Outcome",
    "Overdue",
    "PhaseChanged",
    "QueueCreated",
    "QueueEmpty",
    "Received",
    "Refused",
    "Replay",
    "Report",
    "SecureQueue",
    "Secured",
    "Send",
    "SendRefused",
    "StartRotation",
    "Submit",
    "Subscribe",
    "SuspendQueue",
    "Suspended",
    "Tick",
]


class Failure(Enum):
    """How an effect failed."""

    #: It did not happen, and may work later: the server is unreachable or busy.
    TEMPORARY = 1
    #: It may have happened: the answer did not come in time.
    UNKNOWN = 2
    #: The queue is full until its owner reads from it.
    QUOTA = 3
    #: The server says no, and will go on saying so: suspended, deleted, or secured with another key.
    AUTH = 4


class Outcome(Enum):
    """How a rotation ended."""

    COMPLETED = 1
    #: The new queue is in use; the old one was given up before it was known to be drained.
    FORCED = 2
    #: The user called it off, and the old queue is in use.
    ABORTED = 3
    #: A deadline passed, and the old queue is in use.
    TIMED_OUT = 4
    #: A server refused the new queue, and the old queue is in use.
    REFUSED = 5


# --- events: what the user does ------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRotation:
    """Move the receive queue to this server."""

    server: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortRotation:
    """Call the rotation of the receive queue off; possible until QSWITCH is in the outbox."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForceRotation:
    """Do not wait for what the rotation of the receive queue waits for; possible once QSWITCH is in the outbox."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Submit:
    """Send this to the peer."""

    body: bytes = field(repr=False)


# --- events: what servers answer -----------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueCreated:
    effect: str
    queue: QueueAddress


@dataclass(frozen=True, slots=True, kw_only=True)
class Secured:
    effect: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspended:
    """The queue takes no more messages, and holds this many that are not acknowledged."""

    effect: str
    remaining: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Deleted:
    effect: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """A server took the message of a `Send`."""

    effect: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """An effect failed; what comes back in answer is to be run again after your own back-off."""

    effect: str
    failure: Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """A message from a receive queue.  `last` says that the queue is *suspended* and that this was all."""

    queue: QueueAddress
    message_id: bytes
    body: bytes = field(repr=False)
    last: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueEmpty:
    """A receive queue has nothing more for now: an empty reply, or the marker of a drained queue."""

    queue: QueueAddress


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """Time passed; see `Connection.next_deadline`."""


Event: TypeAlias = (
    StartRotation
    | AbortRotation
    | ForceRotation
    | Submit
    | QueueCreated
    | Secured
    | Suspended
    | Deleted
    | Accepted
    | Failed
    | Received
    | QueueEmpty
    | Tick
)


# --- effects: what the host asks a server --------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateQueue:
    id: str
    server: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SecureQueue:
    """Let only this Ed25519 key send.  The owner runs it, or on the fast path the sender."""

    id: str
    queue: QueueAddress
    server_key: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SuspendQueue:
    """Take no more messages, and say how many are left; running it again asks for the count again."""

    id: str
    queue: QueueAddress


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteQueue:
    id: str
    queue: QueueAddress


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """Put a frame into the peer's queue."""

    id: str
    queue: QueueAddress
    frame: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscribe:
    """Ask for the messages of a receive queue, from the first that is not acknowledged; has no answer of its own."""

    queue: QueueAddress


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledge:
    """Tell the server to forget a message and to give the next one; has no answer of its own."""

    queue: QueueAddress
    message_id: bytes


# --- effects: what the host stores together with the machine -------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Deliver:
    """A message for the application.  Store it in the same transaction as the machine."""

    number: int
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseChanged:
    phase: Receiving | Sending


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A rotation of the receive queue ended (`sending` is False), or the peer's (`sending` is True)."""

    sending: bool
    outcome: Outcome
    queue: QueueAddress


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenUp:
    """The old queue was left before it was known to be drained; a `Gap` names what is missing, if anything is."""

    queue: QueueAddress


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """These numbers of the peer's stream will never come."""

    first: int
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphan:
    """A queue that exists on its server and that nobody will delete unless you do."""

    queue: QueueAddress


@dataclass(frozen=True, slots=True, kw_only=True)
class Overdue:
    """A deadline passed and nothing had to be given up; this is what it still waits for."""

    phase: Sending


@dataclass(frozen=True, slots=True, kw_only=True)
class SendRefused:
    """The server refuses to take messages for the peer, and no rotation explains it."""

    queue: QueueAddress


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A message of the peer's rotation was not acted on: it is out of date, out of place or forged."""

    tag: Tag
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Malformed:
    """A message of the peer could not be read, and was dropped."""

    queue: QueueAddress
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Equivocation:
    """The peer's last number came again with other bytes; the first ones stand."""

    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """A number before the last one came again; no honest peer does that."""

    number: int


Report: TypeAlias = (
    PhaseChanged | Ended | GivenUp | Gap | Orphan | Overdue | SendRefused | Refused | Malformed | Equivocation | Replay
)
#: The effects that stay outstanding until their id is answered.
Question: TypeAlias = CreateQueue | SecureQueue | SuspendQueue | DeleteQueue | Send
Effect: TypeAlias = Question | Subscribe | Acknowledge | Deliver | Report
