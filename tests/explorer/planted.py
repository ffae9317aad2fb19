"""Bugs that somebody could really write, each planted into the shipped machines for the length of a search.

Every one names the scenario that must find it.  A bug is a change of a table, of one function, or, for the
host's part of the contract, of the model's host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

from qsratchet.errors import DecodeError
from qsratchet.rotation import Connection, Failure, Gap, Received, Receiving, Sending, routing, sending, snapshot
from qsratchet.rotation.messages import Frame, QHello, decode_frame
from qsratchet.rotation.stream import Arrival, Stream
from qsratchet.rotation.tables import (
    RECEIVING,
    SENDING,
    ReceivingAction,
    ReceivingInput,
    Row,
    SendingAction,
    SendingInput,
)
from qsratchet.rotation.turn import Turn

from .shape import NAMES, Scenario, World
from .world import Model

_R, _RI, _RA = Receiving, ReceivingInput, ReceivingAction
_S, _SI, _SA = Sending, SendingInput, SendingAction


@dataclass(frozen=True, slots=True, kw_only=True)
class Bug:
    """One planted bug, and where it must be found."""

    name: str
    plant: Callable[[], AbstractContextManager[Any]]
    scenario: Scenario
    model: type[Model] = Model


def _row(table: Any, *rows: tuple[Any, Any, Any]) -> Callable[[], AbstractContextManager[Any]]:
    return lambda: patch.dict(table, {(state, input): row for state, input, row in rows})


def _function(module: Any, name: str, function: Any) -> Callable[[], AbstractContextManager[Any]]:
    return lambda: patch.object(module, name, function)


def _scenario(name: str, **changes: Any) -> Scenario:
    """One message of Bob's while Alice rotates, and only the faults that the bug needs."""
    plain: dict[str, Any] = {"submits": (0, 1), "faults": 1, "crash": False, "lost_reply": False}
    return Scenario(name=name, **(plain | changes))


# --- functions of bugs ---------------------------------------------------------------------------


def _no_hold(turn: Turn, event: Received, frame: Frame) -> None:
    if isinstance(frame.message, QHello):
        _TRUE_NEW_QUEUE(turn, event, frame)
    else:
        routing._from_current_queue(turn, event, frame, event.body)


def _hold_and_acknowledge(turn: Turn, event: Received, frame: Frame) -> None:
    _TRUE_NEW_QUEUE(turn, event, frame)
    if not isinstance(frame.message, QHello):
        routing._acknowledge(turn, event)


_TRUE_NEW_QUEUE = routing._from_new_queue
_TRUE_COMPARE = Stream.compare
_TRUE_CUT_OVER = sending._ACTIONS[_SA.CUT_OVER]
_TRUE_DUMP_STREAM = snapshot._dump_stream
_TRUE_ANNOUNCE = sending._ACTIONS[_SA.ANNOUNCE]
_TRUE_RESUME = Connection.resume
_TRUE_FAILED = routing._failed


def _no_dedupe(self: Stream, number: int, frame: bytes) -> Arrival:
    return max(_TRUE_COMPARE(self, number, frame), Arrival.NEXT, key=lambda arrival: arrival is Arrival.NEXT)


def _cut_over_forgets(turn: Turn, input: SendingInput, given: Any) -> None:
    """An unknown outcome is taken for an accepted one."""
    _TRUE_CUT_OVER(turn, input, given)
    if turn.stream.outbox:
        turn.stream = turn.stream.accepted()


def _refused_is_dropped(turn: Turn, input: SendingInput, given: Any) -> None:
    turn.stream = turn.stream.accepted()


def _announce_too_little(turn: Turn, input: SendingInput, given: Any) -> None:
    true = turn.stream
    turn.stream = replace(true, next_number=max(true.next_number - 1, 1 + len(true.outbox)))
    _TRUE_ANNOUNCE(turn, input, given)
    turn.stream = true


def _announce_too_much(turn: Turn, input: SendingInput, given: Any) -> None:
    true = turn.stream
    turn.stream = replace(true, next_number=true.next_number + len(true.outbox))
    _TRUE_ANNOUNCE(turn, input, given)
    turn.stream = true


@contextmanager
def _sequenced_hello() -> Iterator[None]:
    """QHELLO takes a number of the stream, as the upstream prototype had it."""

    def number_hello(turn: Turn, input: SendingInput, given: Any) -> None:
        number = turn.stream.next_number
        turn.stream = replace(turn.stream, next_number=number + 1)
        hello = turn.sending.hello
        turn.sending = replace(turn.sending, hello=hello[:1] + number.to_bytes(8, "big") + hello[9:])

    def decode(data: bytes) -> Frame:
        try:
            return decode_frame(data)
        except DecodeError:
            frame = decode_frame(data[:1] + bytes(8) + data[9:])
            return replace(frame, number=int.from_bytes(data[1:9], "big"))

    def from_new_queue(turn: Turn, event: Received, frame: Frame) -> None:
        if isinstance(frame.message, QHello) and frame.number > turn.stream.delivered:
            if frame.number > turn.stream.delivered + 1:
                turn.effects.append(Gap(first=turn.stream.delivered + 1, last=frame.number - 1))
            turn.stream = turn.stream.deliver(frame.number, event.body)
        _TRUE_NEW_QUEUE(turn, event, frame)

    with ExitStack() as stack:
        stack.enter_context(patch.dict(SENDING, {(_S.KEYS_SENT, _SI.QREADY): Row(_S.HELLO_SENT, (_SA.DROP_NEW,))}))
        stack.enter_context(patch.dict(sending._ACTIONS, {_SA.DROP_NEW: number_hello}))
        stack.enter_context(patch.object(routing, "decode_frame", decode))
        stack.enter_context(patch.object(routing, "_from_new_queue", from_new_queue))
        yield


class AcknowledgesFirst(Model):
    """A host that acknowledges before it stores, and crashes in between."""

    def _fault_moves(self, world: World) -> Iterator[tuple[str, World]]:
        yield from super()._fault_moves(world)
        for agent in (0, 1):
            for number in world[2][agent]:
                event = self.values[number]
                if isinstance(event, Received):
                    index = event.queue.sender_id[0]
                    lost = self._queue(world, index, {5: world[3][index][5][1:]})
                    yield f"{NAMES[agent]} acknowledges {self.label(number)}, then crashes", self._crash(lost, agent)


def _no_questions(self: Connection) -> Any:
    return tuple(effect for effect in _TRUE_RESUME(self) if not hasattr(effect, "id"))


def _no_subscription_of_the_new_queue(self: Connection) -> Any:
    other = self._receiving.other
    return tuple(effect for effect in _TRUE_RESUME(self) if getattr(effect, "queue", None) != other or other is None)


def _any_answer(turn: Turn, event: Any, asked: Any) -> None:
    """Every failure is taken for a refusal."""
    _TRUE_FAILED(turn, replace(event, failure=Failure.AUTH), asked)


@contextmanager
def _both(*managers: AbstractContextManager[Any]) -> Iterator[None]:
    with ExitStack() as stack:
        for manager in managers:
            stack.enter_context(manager)
        yield


_DRAINED = RECEIVING[(_R.DRAINING, _RI.DRAINED)]
_ABANDON = RECEIVING[(_R.READY, _RI.ABORT)]
_CUT_OVER = SENDING[(_S.PARKED, _SI.QSWITCH)]
_DROP = SENDING[(_S.KEYS_SENT, _SI.DEADLINE)]

BUGS = (
    Bug(
        name="the first message of the new queue is not held",
        plant=_function(routing, "_from_new_queue", _no_hold),
        scenario=_scenario("lost reply", lost_reply=True),
    ),
    Bug(
        name="the held message is acknowledged",
        plant=_function(routing, "_from_new_queue", _hold_and_acknowledge),
        scenario=_scenario("plain", faults=0),
    ),
    Bug(
        name="the held message is forgotten when the old queue is drained",
        plant=_function(routing, "_release", lambda turn: None),
        scenario=_scenario("plain", faults=0),
    ),
    Bug(
        name="the old queue is deleted before it is drained",
        plant=_row(RECEIVING, (_R.SUSPENDING, _RI.REMAINING, _DRAINED)),
        scenario=_scenario("plain", faults=0),
    ),
    Bug(
        name="the old queue is deleted without being suspended",
        plant=_row(RECEIVING, (_R.SWITCHING, _RI.SWITCH_ACCEPTED, _DRAINED)),
        scenario=_scenario("plain", faults=0),
    ),
    Bug(
        name="the count of the suspended queue is waited for in vain",
        plant=_row(RECEIVING, (_R.SUSPENDING, _RI.REMAINING, Row(_R.DRAINING))),
        scenario=_scenario("plain", faults=0, submits=(0, 0)),
    ),
    Bug(
        name="an empty reply from before the suspension is trusted",
        plant=_row(RECEIVING, (_R.DRAINING, _RI.EMPTY, _DRAINED)),
        scenario=_scenario("eager empty", faults=0, eager_empty=True, flag=False),
    ),
    Bug(
        name="the host acknowledges before it stores",
        plant=ExitStack,
        scenario=_scenario("crash"),
        model=AcknowledgesFirst,
    ),
    Bug(name="QHELLO takes a number of the stream", plant=_sequenced_hello, scenario=_scenario("plain", faults=0)),
    Bug(
        name="QSWITCH is said before QHELLO came",
        plant=_row(RECEIVING, (_R.SECURING, _RI.SECURED, Row(_R.SWITCHING, (_RA.SAY_QREADY, _RA.SAY_QSWITCH)))),
        scenario=_scenario("plain", faults=0),
    ),
    Bug(
        name="QREADY is said although the server refused the key",
        plant=_row(RECEIVING, (_R.SECURING, _RI.SECURE_REFUSED, Row(_R.READY, (_RA.SAY_QREADY,)))),
        scenario=_scenario("intruder", intruder=True),
    ),
    Bug(
        name="the old queue is suspended before QSWITCH is accepted",
        plant=_row(RECEIVING, (_R.READY, _RI.QHELLO, Row(_R.SUSPENDING, (_RA.SAY_QSWITCH,)))),
        scenario=_scenario("plain", faults=0),
    ),
    Bug(
        name="abort is possible after the commit point",
        plant=_row(RECEIVING, (_R.SWITCHING, _RI.ABORT, _ABANDON)),
        scenario=_scenario("abort", aborts=1),
    ),
    Bug(
        name="the sender switches on QREADY",
        plant=_row(SENDING, (_S.KEYS_SENT, _SI.QREADY, _CUT_OVER)),
        scenario=_scenario("plain", faults=0),
    ),
    Bug(
        name="the sender drops the offer when QSWITCH is late",
        plant=_row(SENDING, (_S.HELLO_ACCEPTED, _SI.DEADLINE, _DROP), (_S.HELLO_SENT, _SI.DEADLINE, _DROP)),
        scenario=_scenario("early deadline", early_deadlines=True),
    ),
    Bug(
        name="a message refused by the old queue is dropped",
        plant=lambda: _both(
            patch.dict(SENDING, {(_S.HELLO_ACCEPTED, _SI.SEND_REFUSED): Row(_S.PARKED, (_SA.REPORT_REFUSED,))}),
            patch.dict(sending._ACTIONS, {_SA.REPORT_REFUSED: _refused_is_dropped}),
        ),
        scenario=_scenario("plain", faults=0),
    ),
    Bug(
        name="an unknown outcome is taken for an accepted one at the switch",
        plant=lambda: patch.dict(sending._ACTIONS, {_SA.CUT_OVER: _cut_over_forgets}),
        scenario=_scenario("plain", faults=0),
    ),
    Bug(
        name="a number that came before is delivered again",
        plant=_function(Stream, "compare", _no_dedupe),
        scenario=_scenario("crash", crash=True),
    ),
    Bug(
        name="the outbox is not stored",
        plant=_function(snapshot, "_dump_stream", lambda stream: _TRUE_DUMP_STREAM(replace(stream, outbox=()))),
        scenario=_scenario("crash", crash=True),
    ),
    Bug(
        name="a restart asks no questions again",
        plant=_function(Connection, "resume", _no_questions),
        scenario=_scenario("crash", crash=True, submits=(0, 0)),
    ),
    Bug(
        name="a restart does not subscribe to the new queue",
        plant=_function(Connection, "resume", _no_subscription_of_the_new_queue),
        scenario=_scenario("crash", crash=True, submits=(0, 0)),
    ),
    Bug(
        name="a parked sender waits for QSWITCH for ever",
        plant=_row(SENDING, (_S.PARKED, _SI.DEADLINE, Row(_S.PARKED))),
        scenario=_scenario("drop", drop=True),
    ),
    Bug(
        name="a dead old server blocks the end of a rotation",
        plant=_row(RECEIVING, (_R.DELETING, _RI.DEADLINE, Row(_R.DELETING))),
        scenario=_scenario("death", death=(0,), submits=(0, 0)),
    ),
    Bug(
        name="a dead old server blocks the new queue",
        plant=_row(RECEIVING, (_R.SUSPENDING, _RI.DEADLINE, Row(_R.SUSPENDING))),
        scenario=_scenario("death", death=(0,), submits=(0, 0)),
    ),
    Bug(
        name="the announced last number is too small",
        plant=lambda: patch.dict(sending._ACTIONS, {_SA.ANNOUNCE: _announce_too_little}),
        scenario=_scenario("fast", faults=0, fast=(True, True)),
    ),
    Bug(
        name="the announced last number counts what was never accepted",
        plant=lambda: patch.dict(sending._ACTIONS, {_SA.ANNOUNCE: _announce_too_much}),
        scenario=_scenario("fast, death", death=(0,), fast=(True, True), atomic=True),
    ),
    Bug(
        name="a timeout is taken for a refusal",
        plant=_function(routing, "_failed", _any_answer),
        scenario=_scenario("lost reply", lost_reply=True),
    ),
)
