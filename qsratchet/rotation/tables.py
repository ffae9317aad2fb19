"""The whole protocol as data: two machines, each a table from (state, input) to next state and actions.

**All that decides what may follow what is in this file.**  What is not in a table is illegal.  A state is
named for what it waits for; `COMMANDS` says what it asks a server to do meanwhile, `PATIENCE` how long it
waits, `WAITS` what to tell a person.  The diagrams in docs/rotation.md are drawn from these tables.  This
module knows no keys, no messages and no connection.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, Generic, TypeVar

from ..errors import MisuseError

__all__ = [
    "RECEIVING",
    "SENDING",
    "Command",
    "IllegalTransition",
    "Receiving",
    "ReceivingAction",
    "ReceivingInput",
    "Row",
    "Sending",
    "SendingAction",
    "SendingInput",
    "Wait",
]


class Receiving(Enum):
    """States of the receiving side (Alice), whose receive queue moves from the old server to the new one."""

    IDLE = 0
    CREATING = 1
    OFFERED = 2
    SECURING = 3
    READY = 4
    SWITCHING = 5
    SUSPENDING = 6
    DRAINING = 7
    DELETING = 8
    ABORTING = 9


class ReceivingInput(Enum):
    """What can happen to the receiving side."""

    START = 1
    ABORT = 2
    FORCE = 3
    DEADLINE = 4
    CREATED = 5
    CREATE_REFUSED = 6
    QKEYS = 7
    SECURED = 8
    SECURE_REFUSED = 9
    QHELLO = 10
    QHELLO_WITH_KEYS = 11
    SWITCH_ACCEPTED = 12
    NEW_QUEUE_IN_USE = 13
    REMAINING = 14
    DRAINED = 15
    EMPTY = 16
    SUSPEND_REFUSED = 17
    DELETED = 18


class ReceivingAction(Enum):
    """What the receiving side does on a transition, besides entering the next state."""

    BEGIN = 1
    ADOPT_NEW = 2
    SAY_QNEW = 3
    TAKE_KEYS = 4
    SAY_QREADY = 5
    SAY_QSWITCH = 6
    GIVE_UP_OLD = 7
    PROMOTE_NEW = 8
    NOTE_OUTCOME = 9
    REPORT_ORPHAN = 10
    END = 11
    READ_OLD = 12


class Sending(Enum):
    """States of the sending side (Bob), who follows his peer to the new queue."""

    IDLE = 0
    SECURING = 1
    KEYS_SENT = 2
    HELLO_SENT = 3
    HELLO_ACCEPTED = 4
    PARKED = 5
    ANNOUNCING = 6


class SendingInput(Enum):
    """What can happen to the sending side."""

    QNEW = 1
    QNEW_FAST = 2
    SECURED = 3
    SECURE_REFUSED = 4
    QREADY = 5
    HELLO_ACCEPTED = 6
    HELLO_REFUSED = 7
    QSWITCH = 8
    QSWITCH_FAST = 9
    SEND_REFUSED = 10
    DEADLINE = 11
    DEADLINE_FAST = 12


class SendingAction(Enum):
    """What the sending side does on a transition, besides entering the next state."""

    MAKE_KEYS = 1
    SAY_QKEYS = 2
    CUT_OVER = 3
    ANNOUNCE = 4
    DROP_NEW = 5
    REPORT_REFUSED = 6
    REPORT_OVERDUE = 7
    END = 8


class Command(Enum):
    """What a state asks a server to do, again and again until it is answered."""

    CREATE_NEW = 1
    SECURE_NEW = 2
    SUSPEND_OLD = 3
    DELETE_OTHER = 4
    SAY_QHELLO = 5


class Wait(Enum):
    """How long a state waits: a row of `Patience`."""

    SERVER = 1
    PEER = 2
    DRAIN = 3
    PARK = 4


S = TypeVar("S", bound=Enum)
A = TypeVar("A", bound=Enum)


@dataclass(frozen=True, slots=True)
class Row(Generic[S, A]):
    """One transition: where it leads, and what is done on the way, in this order."""

    next: S
    actions: tuple[A, ...] = ()


class IllegalTransition(MisuseError):
    """No row of the table has this input in this state; nothing changed."""

    def __init__(self, state: Enum, input: Enum) -> None:
        super().__init__(f"{input.name} is not possible while {type(state).__name__.lower()} is {state.name}")
        self.state = state
        self.input = input


_R, _RI, _RA = Receiving, ReceivingInput, ReceivingAction

_ABANDON: Final = Row(_R.ABORTING, (_RA.NOTE_OUTCOME,))
_COMMIT: Final = (_RA.SAY_QSWITCH,)
_DRAINED: Final = Row(_R.DELETING, (_RA.PROMOTE_NEW, _RA.NOTE_OUTCOME))
_GIVE_UP: Final = Row(_R.DELETING, (_RA.GIVE_UP_OLD, _RA.PROMOTE_NEW, _RA.NOTE_OUTCOME))
_ORPHAN: Final = Row(_R.IDLE, (_RA.REPORT_ORPHAN, _RA.END))

#: The receiving side.  QSWITCH enters the outbox on the way to SWITCHING: that is the commit point, and the
#: last row with ABORT stands before it.
RECEIVING: Final[dict[tuple[Receiving, ReceivingInput], Row[Receiving, ReceivingAction]]] = {
    (_R.IDLE, _RI.START): Row(_R.CREATING, (_RA.BEGIN,)),
    (_R.CREATING, _RI.CREATED): Row(_R.OFFERED, (_RA.ADOPT_NEW, _RA.SAY_QNEW)),
    (_R.CREATING, _RI.CREATE_REFUSED): Row(_R.IDLE, (_RA.NOTE_OUTCOME, _RA.END)),
    (_R.CREATING, _RI.ABORT): Row(_R.IDLE, (_RA.NOTE_OUTCOME, _RA.END)),
    (_R.CREATING, _RI.DEADLINE): Row(_R.IDLE, (_RA.NOTE_OUTCOME, _RA.END)),
    (_R.OFFERED, _RI.QKEYS): Row(_R.SECURING, (_RA.TAKE_KEYS,)),
    (_R.OFFERED, _RI.QHELLO_WITH_KEYS): Row(_R.SWITCHING, (_RA.TAKE_KEYS, *_COMMIT)),
    (_R.OFFERED, _RI.ABORT): _ABANDON,
    (_R.OFFERED, _RI.DEADLINE): _ABANDON,
    (_R.SECURING, _RI.SECURED): Row(_R.READY, (_RA.SAY_QREADY,)),
    (_R.SECURING, _RI.SECURE_REFUSED): _ABANDON,
    (_R.SECURING, _RI.ABORT): _ABANDON,
    (_R.SECURING, _RI.DEADLINE): _ABANDON,
    (_R.READY, _RI.QHELLO): Row(_R.SWITCHING, _COMMIT),
    (_R.READY, _RI.ABORT): _ABANDON,
    (_R.READY, _RI.DEADLINE): _ABANDON,
    (_R.SWITCHING, _RI.QHELLO): Row(_R.SWITCHING),
    (_R.SWITCHING, _RI.SWITCH_ACCEPTED): Row(_R.SUSPENDING),
    (_R.SWITCHING, _RI.NEW_QUEUE_IN_USE): Row(_R.SUSPENDING),
    (_R.SWITCHING, _RI.FORCE): Row(_R.SUSPENDING),
    (_R.SWITCHING, _RI.DEADLINE): Row(_R.SUSPENDING),
    (_R.SUSPENDING, _RI.QHELLO): Row(_R.SUSPENDING),
    (_R.SUSPENDING, _RI.NEW_QUEUE_IN_USE): Row(_R.SUSPENDING),
    # The last message may have been acknowledged while it was counted, so the server is asked what is left.
    (_R.SUSPENDING, _RI.REMAINING): Row(_R.DRAINING, (_RA.READ_OLD,)),
    (_R.SUSPENDING, _RI.DRAINED): _DRAINED,
    (_R.SUSPENDING, _RI.SUSPEND_REFUSED): _GIVE_UP,
    (_R.SUSPENDING, _RI.FORCE): _GIVE_UP,
    (_R.SUSPENDING, _RI.DEADLINE): _GIVE_UP,
    (_R.DRAINING, _RI.QHELLO): Row(_R.DRAINING),
    (_R.DRAINING, _RI.NEW_QUEUE_IN_USE): Row(_R.DRAINING),
    (_R.DRAINING, _RI.REMAINING): Row(_R.DRAINING),
    # An empty reply may be older than the suspension, so the count is asked for once more.
    (_R.DRAINING, _RI.EMPTY): Row(_R.SUSPENDING),
    (_R.DRAINING, _RI.DRAINED): _DRAINED,
    (_R.DRAINING, _RI.SUSPEND_REFUSED): _GIVE_UP,
    (_R.DRAINING, _RI.FORCE): _GIVE_UP,
    (_R.DRAINING, _RI.DEADLINE): _GIVE_UP,
    (_R.DELETING, _RI.DELETED): Row(_R.IDLE, (_RA.END,)),
    (_R.DELETING, _RI.FORCE): _ORPHAN,
    (_R.DELETING, _RI.DEADLINE): _ORPHAN,
    (_R.ABORTING, _RI.DELETED): Row(_R.IDLE, (_RA.END,)),
    (_R.ABORTING, _RI.FORCE): _ORPHAN,
    (_R.ABORTING, _RI.DEADLINE): _ORPHAN,
}

_S, _SI, _SA = Sending, SendingInput, SendingAction

_ANSWER: Final = Row(_S.KEYS_SENT, (_SA.MAKE_KEYS, _SA.SAY_QKEYS))
_ANSWER_FAST: Final = Row(_S.SECURING, (_SA.MAKE_KEYS,))
_DROP: Final = Row(_S.IDLE, (_SA.DROP_NEW, _SA.END))
_CUT_OVER: Final = Row(_S.IDLE, (_SA.CUT_OVER, _SA.END))
_CUT_OVER_FAST: Final = Row(_S.ANNOUNCING, (_SA.ANNOUNCE, _SA.CUT_OVER, _SA.END))
_OVERDUE: Final = Row(_S.HELLO_SENT, (_SA.REPORT_OVERDUE,))
_PARK: Final[Row[Sending, SendingAction]] = Row(_S.PARKED)
_QUIET: Final = (_SA.REPORT_REFUSED,)

#: The sending side.  A QNEW may come in every state: it means that the peer gave the last offer up.
SENDING: Final[dict[tuple[Sending, SendingInput], Row[Sending, SendingAction]]] = {
    (_S.IDLE, _SI.QNEW): _ANSWER,
    (_S.IDLE, _SI.QNEW_FAST): _ANSWER_FAST,
    (_S.IDLE, _SI.SEND_REFUSED): Row(_S.IDLE, _QUIET),
    (_S.SECURING, _SI.QNEW): _ANSWER,
    (_S.SECURING, _SI.QNEW_FAST): _ANSWER_FAST,
    (_S.SECURING, _SI.SECURED): Row(_S.HELLO_SENT),
    (_S.SECURING, _SI.SECURE_REFUSED): _DROP,
    (_S.SECURING, _SI.SEND_REFUSED): Row(_S.SECURING, _QUIET),
    (_S.SECURING, _SI.DEADLINE_FAST): _DROP,
    (_S.KEYS_SENT, _SI.QNEW): _ANSWER,
    (_S.KEYS_SENT, _SI.QNEW_FAST): _ANSWER_FAST,
    (_S.KEYS_SENT, _SI.QREADY): Row(_S.HELLO_SENT),
    (_S.KEYS_SENT, _SI.SEND_REFUSED): Row(_S.KEYS_SENT, _QUIET),
    (_S.KEYS_SENT, _SI.DEADLINE): _DROP,
    (_S.HELLO_SENT, _SI.QNEW): _ANSWER,
    (_S.HELLO_SENT, _SI.QNEW_FAST): _ANSWER_FAST,
    (_S.HELLO_SENT, _SI.HELLO_ACCEPTED): Row(_S.HELLO_ACCEPTED),
    (_S.HELLO_SENT, _SI.HELLO_REFUSED): _DROP,
    # The seed prints QR for QSWITCH too.  The stream has dropped repetitions, so a second QR is a new message.
    (_S.HELLO_SENT, _SI.QREADY): _CUT_OVER,
    (_S.HELLO_SENT, _SI.QSWITCH): _CUT_OVER,
    (_S.HELLO_SENT, _SI.QSWITCH_FAST): _CUT_OVER_FAST,
    (_S.HELLO_SENT, _SI.SEND_REFUSED): _PARK,
    # The peer may have seen QHELLO and switched, so the offer is never dropped for its age; QHELLO is said
    # again, and a server that answers AUTH tells that the peer gave up.
    (_S.HELLO_SENT, _SI.DEADLINE): _OVERDUE,
    (_S.HELLO_SENT, _SI.DEADLINE_FAST): _OVERDUE,
    (_S.HELLO_ACCEPTED, _SI.QNEW): _ANSWER,
    (_S.HELLO_ACCEPTED, _SI.QNEW_FAST): _ANSWER_FAST,
    (_S.HELLO_ACCEPTED, _SI.QREADY): _CUT_OVER,
    (_S.HELLO_ACCEPTED, _SI.QSWITCH): _CUT_OVER,
    (_S.HELLO_ACCEPTED, _SI.QSWITCH_FAST): _CUT_OVER_FAST,
    (_S.HELLO_ACCEPTED, _SI.SEND_REFUSED): _PARK,
    (_S.HELLO_ACCEPTED, _SI.DEADLINE): _OVERDUE,
    (_S.HELLO_ACCEPTED, _SI.DEADLINE_FAST): _OVERDUE,
    (_S.PARKED, _SI.QNEW): _ANSWER,
    (_S.PARKED, _SI.QNEW_FAST): _ANSWER_FAST,
    (_S.PARKED, _SI.QREADY): _CUT_OVER,
    (_S.PARKED, _SI.QSWITCH): _CUT_OVER,
    (_S.PARKED, _SI.QSWITCH_FAST): _CUT_OVER_FAST,
    # The old queue is closed, which the peer does only after the commit point: QSWITCH was lost in a gap or
    # waits on a dead server.  This is the seed's last line.
    (_S.PARKED, _SI.DEADLINE): _CUT_OVER,
    (_S.PARKED, _SI.DEADLINE_FAST): _CUT_OVER_FAST,
    (_S.ANNOUNCING, _SI.QNEW): _ANSWER,
    (_S.ANNOUNCING, _SI.QNEW_FAST): _ANSWER_FAST,
    (_S.ANNOUNCING, _SI.HELLO_ACCEPTED): Row(_S.IDLE, (_SA.DROP_NEW,)),
    (_S.ANNOUNCING, _SI.HELLO_REFUSED): Row(_S.IDLE, (_SA.DROP_NEW,)),
    (_S.ANNOUNCING, _SI.DEADLINE): Row(_S.IDLE, (_SA.DROP_NEW,)),
}

COMMANDS: Final[Mapping[Receiving | Sending, Command]] = {
    _R.CREATING: Command.CREATE_NEW,
    _R.SECURING: Command.SECURE_NEW,
    _R.SUSPENDING: Command.SUSPEND_OLD,
    _R.DELETING: Command.DELETE_OTHER,
    _R.ABORTING: Command.DELETE_OTHER,
    _S.SECURING: Command.SECURE_NEW,
    _S.HELLO_SENT: Command.SAY_QHELLO,
    _S.ANNOUNCING: Command.SAY_QHELLO,
}

#: In these states the first message of the new queue is held: not processed and not acknowledged.
HOLDING: Final = frozenset({_R.SWITCHING, _R.SUSPENDING, _R.DRAINING})
#: In these states the stream does not go on: it waits for QSWITCH, or for the announcement to be accepted.
STREAM_WAITS: Final = frozenset({_S.PARKED, _S.ANNOUNCING})
#: In these states the peer may have switched already.
MAY_HAVE_SWITCHED: Final = frozenset({_S.HELLO_SENT, _S.HELLO_ACCEPTED, _S.PARKED})

PATIENCE: Final[Mapping[Receiving | Sending, Wait]] = {
    _R.CREATING: Wait.SERVER,
    _R.OFFERED: Wait.PEER,
    _R.SECURING: Wait.SERVER,
    _R.READY: Wait.PEER,
    _R.SWITCHING: Wait.SERVER,
    _R.SUSPENDING: Wait.DRAIN,
    _R.DRAINING: Wait.DRAIN,
    _R.DELETING: Wait.SERVER,
    _R.ABORTING: Wait.SERVER,
    _S.SECURING: Wait.SERVER,
    _S.KEYS_SENT: Wait.PEER,
    _S.HELLO_SENT: Wait.PEER,
    _S.HELLO_ACCEPTED: Wait.PEER,
    _S.PARKED: Wait.PARK,
    _S.ANNOUNCING: Wait.SERVER,
}

#: For people: what a state waits for, and what happens when its deadline passes.
WAITS: Final[Mapping[Receiving | Sending, tuple[str, str]]] = {
    _R.IDLE: ("nothing: no rotation is under way", ""),
    _R.CREATING: ("the new server to create the queue", "the rotation is given up"),
    _R.OFFERED: ("the peer's keys (QKEYS)", "the rotation is given up and the new queue deleted"),
    _R.SECURING: ("the new server to secure the queue", "the rotation is given up and the new queue deleted"),
    _R.READY: ("the peer's QHELLO in the new queue", "the rotation is given up and the new queue deleted"),
    _R.SWITCHING: ("the server of the send queue to accept QSWITCH", "the old queue is suspended without that"),
    _R.SUSPENDING: ("the old server to suspend the queue and count it", "the old queue is given up, and gaps named"),
    _R.DRAINING: ("the last messages of the old queue", "the old queue is given up, and gaps named"),
    _R.DELETING: ("the old server to delete the queue", "the old queue is reported as orphaned"),
    _R.ABORTING: ("the new server to delete the queue", "the new queue is reported as orphaned"),
    _S.IDLE: ("nothing: no rotation is under way", ""),
    _S.SECURING: ("the new server to secure the queue", "the offer is dropped; sending goes on as before"),
    _S.KEYS_SENT: ("the peer's QREADY", "the offer is dropped; sending goes on as before"),
    _S.HELLO_SENT: ("the new server to accept QHELLO", "this is reported; sending goes on as before"),
    _S.HELLO_ACCEPTED: ("the peer's QSWITCH", "this is reported, and QHELLO said again; sending goes on as before"),
    _S.PARKED: ("the peer's QSWITCH: the old queue is closed", "sending goes on in the new queue"),
    _S.ANNOUNCING: ("the new server to accept the last number of the old queue", "sending goes on without that"),
}
