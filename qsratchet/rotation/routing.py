"""From events to inputs: which machine an event is for, and what it means there.

Answers are matched with what is outstanding; messages are read, compared with the stream, and held or taken.
This module makes no transition itself: `drive` of each machine does, by its table.
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from ..codec import as_bytes
from ..crypto.dh import DhKey
from ..errors import DecodeError, MisuseError, RejectedError
from . import receiving, sending
from .events import (
    AbortRotation,
    Accepted,
    Acknowledge,
    Deleted,
    Deliver,
    Equivocation,
    Event,
    Failed,
    Failure,
    ForceRotation,
    Gap,
    Malformed,
    Orphan,
    Question,
    QueueCreated,
    QueueEmpty,
    Received,
    Refused,
    Replay,
    Secured,
    StartRotation,
    Submit,
    Suspended,
    Tick,
)
from .keys import authentic, derive_for_receiver
from .messages import (
    Application,
    Control,
    Frame,
    QHello,
    QKeys,
    QNew,
    QReady,
    QSwitch,
    QueueAddress,
    Tag,
    decode_frame,
    names,
)
from .stream import Arrival
from .tables import (
    HOLDING,
    MAY_HAVE_SWITCHED,
    Command,
    IllegalTransition,
    Receiving,
    ReceivingInput,
    SendingInput,
)
from .turn import Turn

__all__ = ["Stale", "take"]

_RI = ReceivingInput
_SI = SendingInput


def take(turn: Turn, event: Event, asked: tuple[Question, ...]) -> None:
    """Work one event into the turn; `asked` is what is outstanding."""
    _route(turn, event, asked)
    _release(turn)


def _route(turn: Turn, event: Event, asked: tuple[Question, ...]) -> None:
    match event:
        case Received():
            _received(turn, event)
        case Accepted() | Secured() | Suspended() | Deleted() | QueueCreated():
            _answered(turn, event, asked)
        case Failed():
            _failed(turn, event, asked)
        case Submit():
            turn.stream = turn.stream.add(Application(body=as_bytes(event.body)))
        case QueueEmpty():
            if event.queue == turn.receiving.queue.address and turn.receiving.state is Receiving.DRAINING:
                receiving.drive(turn, _RI.EMPTY)
        case Tick():
            _tick(turn)
        case StartRotation():
            # The address checks the name, so that a bad one fails here and not when the queue is created.
            QueueAddress(server=event.server, sender_id=turn.receiving.queue.address.sender_id)
            receiving.drive(turn, _RI.START, event.server)
        case AbortRotation():
            receiving.drive(turn, _RI.ABORT)
        case ForceRotation():
            receiving.drive(turn, _RI.FORCE)
        case _:
            assert_never(event)


def _tick(turn: Turn) -> None:
    if turn.receiving.due is not None and turn.now >= turn.receiving.due:
        receiving.drive(turn, _RI.DEADLINE)
    if turn.sending.due is not None and turn.now >= turn.sending.due:
        sending.drive(turn, _SI.DEADLINE_FAST if turn.sending.fast else _SI.DEADLINE)


def _answered(
    turn: Turn, event: Accepted | Secured | Suspended | Deleted | QueueCreated, asked: tuple[Question, ...]
) -> None:
    """A server did what was asked.  An answer to what is no longer asked is old, and ignored."""
    side = turn.receiving
    if isinstance(event, Suspended):
        counting = side.state in (Receiving.SUSPENDING, Receiving.DRAINING)
        if counting and event.effect == receiving.question_of(side, Command.SUSPEND_OLD).id:
            receiving.drive(turn, _RI.REMAINING if event.remaining else _RI.DRAINED)
        return
    if all(question.id != event.effect for question in asked):
        if isinstance(event, QueueCreated) and event.queue not in (side.queue.address, side.other):
            # Created after all, or created twice: nobody else will ever know of this queue.
            turn.effects.append(Orphan(queue=event.queue))
        return
    who, verb, *_ = event.effect.split(" ")
    if _ANSWERS.get(verb, Accepted) is not type(event):
        raise MisuseError(f"{type(event).__name__} does not answer the effect {event.effect!r}")
    if who == "stream":
        number = turn.stream.outbox[0].number
        turn.stream = turn.stream.accepted()
        if side.state is Receiving.SWITCHING and number == side.switch_number:
            receiving.drive(turn, _RI.SWITCH_ACCEPTED)
    elif who == "sending":
        sending.drive(turn, _SENDING_DONE[verb])
    elif isinstance(event, QueueCreated):
        receiving.drive(turn, _RI.CREATED, event.queue)
    else:
        receiving.drive(turn, _RECEIVING_DONE[verb])


_ANSWERS = {"create": QueueCreated, "secure": Secured, "suspend": Suspended, "delete": Deleted}
_RECEIVING_DONE = {"secure": _RI.SECURED, "delete": _RI.DELETED}
_SENDING_DONE = {"secure": _SI.SECURED, "hello": _SI.HELLO_ACCEPTED, "announce": _SI.HELLO_ACCEPTED}
#: What AUTH means, by the question.  A queue that cannot be deleted because it is not there is deleted.
_RECEIVING_REFUSED = {
    "create": _RI.CREATE_REFUSED,
    "secure": _RI.SECURE_REFUSED,
    "suspend": _RI.SUSPEND_REFUSED,
    "delete": _RI.DELETED,
}
_SENDING_REFUSED = {"secure": _SI.SECURE_REFUSED, "hello": _SI.HELLO_REFUSED, "announce": _SI.HELLO_REFUSED}


def _failed(turn: Turn, event: Failed, asked: tuple[Question, ...]) -> None:
    """Only AUTH changes anything: all other failures are for the host to try again."""
    if event.failure is not Failure.AUTH:
        return
    side = turn.receiving
    known = {question.id for question in asked}
    if side.state is Receiving.DRAINING:
        known.add(receiving.question_of(side, Command.SUSPEND_OLD).id)
    if event.effect not in known:
        return
    who, verb, *_ = event.effect.split(" ")
    if who == "stream":
        sending.drive(turn, _SI.SEND_REFUSED)
    elif who == "sending":
        sending.drive(turn, _SENDING_REFUSED[verb])
    else:
        receiving.drive(turn, _RECEIVING_REFUSED[verb])


# --- what comes in -------------------------------------------------------------------------------


def _received(turn: Turn, event: Received) -> None:
    side = turn.receiving
    is_new = event.queue == side.other and side.state not in (Receiving.DELETING, Receiving.ABORTING)
    if not is_new and event.queue != side.queue.address:
        # A queue that was just left: what it still holds is not ours to read any more.
        return
    body = as_bytes(event.body)
    try:
        frame = decode_frame(body)
    except DecodeError as error:
        # It would stand in the way for ever, so it is dropped and reported.
        turn.effects.append(Malformed(queue=event.queue, reason=error.reason))
        _acknowledge(turn, event)
        return
    if is_new:
        _from_new_queue(turn, event, frame)
    else:
        _from_current_queue(turn, event, frame, body)


def _acknowledge(turn: Turn, event: Received) -> None:
    turn.effects.append(Acknowledge(queue=event.queue, message_id=event.message_id))


def _release(turn: Turn) -> None:
    """Process the held message once its queue is the receive queue."""
    if turn.held is not None and turn.receiving.state not in HOLDING:
        held, turn.held = turn.held, None
        _received(turn, held)


def _from_new_queue(turn: Turn, event: Received, frame: Frame) -> None:
    """A message of the new queue before it is promoted: QHELLO is taken, the stream is held."""
    if isinstance(frame.message, QHello):
        _hello(turn, frame.message)
        _acknowledge(turn, event)
        return
    if turn.receiving.state in HOLDING:
        turn.held = event
        receiving.drive(turn, _RI.NEW_QUEUE_IN_USE)
    else:
        # Not acknowledged either: whatever this is, it must not overtake the old queue.
        _refuse(turn, Tag.APPLICATION, "the new queue is not in use yet")


def _hello(turn: Turn, hello: QHello) -> None:
    side = turn.receiving
    if hello.queue != side.other:
        _refuse(turn, Tag.QHELLO, "it names another queue")
        return
    try:
        key = side.hello_key
        if side.state is Receiving.OFFERED and turn.fast and hello.keys is not None:
            key = derive_for_receiver(DhKey(side.dh_seed), hello.queue, hello.keys).hello
        if not key or not authentic(key, hello):
            _refuse(turn, Tag.QHELLO, "its MAC is wrong")
        elif side.state is Receiving.OFFERED:
            receiving.drive(turn, _RI.QHELLO_WITH_KEYS, hello.keys)
        elif hello.last is None or side.state not in HOLDING:
            receiving.drive(turn, _RI.QHELLO)
        else:
            # The peer has switched, and everything after `last` comes through the new queue.
            receiving.drive(turn, _RI.NEW_QUEUE_IN_USE)
            turn.receiving = replace(turn.receiving, last=hello.last)
            _check_last(turn)
    except (IllegalTransition, RejectedError) as error:
        _refuse(turn, Tag.QHELLO, str(error))


def _check_last(turn: Turn) -> None:
    """Whether the old queue has given all that the peer put into it."""
    last, state = turn.receiving.last, turn.receiving.state
    if last is not None and state in HOLDING and turn.stream.delivered >= last:
        receiving.drive(turn, _RI.DRAINED)


def _from_current_queue(turn: Turn, event: Received, frame: Frame, body: bytes) -> None:
    if not isinstance(frame.message, QHello):
        _stream_frame(turn, frame.number, frame.message, body)
    # A QHELLO here is one that was said again before the queue was promoted; it has done its work.
    _acknowledge(turn, event)
    if event.last and turn.receiving.state in (Receiving.SUSPENDING, Receiving.DRAINING):
        receiving.drive(turn, _RI.DRAINED)
    else:
        _check_last(turn)


def _stream_frame(turn: Turn, number: int, message: Application | Control, body: bytes) -> None:
    arrival = turn.stream.compare(number, body)
    match arrival:
        case Arrival.AGAIN:
            return
        case Arrival.OTHER_BYTES:
            turn.effects.append(Equivocation(number=number))
            return
        case Arrival.OLD:
            turn.effects.append(Replay(number=number))
            return
        case Arrival.AFTER_GAP:
            turn.effects.append(Gap(first=turn.stream.delivered + 1, last=number - 1))
        case Arrival.NEXT:
            pass
        case _:
            assert_never(arrival)
    turn.stream = turn.stream.deliver(number, body)
    if isinstance(message, Application):
        turn.effects.append(Deliver(number=number, body=message.body))
    else:
        _control(turn, message)


def _control(turn: Turn, message: Control) -> None:
    """Route a message of the rotation; one that does not fit is reported and changes nothing but its number."""
    before = turn.receiving, turn.sending, turn.stream, len(turn.effects)
    try:
        match message:
            case QKeys():
                if message.queue != turn.receiving.other:
                    raise Stale("it names a queue that is not offered")
                receiving.drive(turn, _RI.QKEYS, message.keys)
            case QNew():
                _new_offer(turn, message)
            case QReady() | QSwitch():
                new = turn.sending.new
                if new is None or not names(message.queue, new.address):
                    raise Stale("it names a queue that was not offered")
                if isinstance(message, QReady):
                    sending.drive(turn, _SI.QREADY)
                else:
                    _switch(turn)
            case _:
                assert_never(message)
    except (IllegalTransition, RejectedError) as error:
        turn.receiving, turn.sending, turn.stream, kept = before
        del turn.effects[kept:]
        _refuse(turn, _TAGS[type(message)], str(error))


_TAGS = {QNew: Tag.QNEW, QKeys: Tag.QKEYS, QReady: Tag.QREADY, QSwitch: Tag.QSWITCH}


class Stale(RejectedError):
    """A message of a rotation that is over, or was never offered."""


def _switch(turn: Turn) -> None:
    sending.drive(turn, _SI.QSWITCH_FAST if turn.sending.fast else _SI.QSWITCH)


def _new_offer(turn: Turn, message: QNew) -> None:
    new = turn.sending.new
    if new is not None and message.replaces == new.address and turn.sending.state in MAY_HAVE_SWITCHED:
        # The peer already uses the queue we said QHELLO to, so its QSWITCH was lost in a gap.
        _switch(turn)
    current = turn.sending.queue.address
    if message.replaces != current:
        raise Stale("it replaces a queue that is not in use")
    if message.queue in (current, None if turn.sending.new is None else turn.sending.new.address):
        raise Stale("it offers a queue that is in use already")
    sending.drive(turn, _SI.QNEW_FAST if message.fast and turn.fast else _SI.QNEW, message)


def _refuse(turn: Turn, tag: Tag, reason: str) -> None:
    turn.effects.append(Refused(tag=tag, reason=reason))
