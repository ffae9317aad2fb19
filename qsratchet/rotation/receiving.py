"""The receiving side (Alice): the actions of its table, and what it asks servers to do.

The rules are in tables.py; here is only what each action does.  This module knows nothing of the sending
side: the two meet only in the stream.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final, TypeAlias, assert_never

from ..crypto.dh import DH_SEED_SIZE, DhKey
from .events import (
    CreateQueue,
    DeleteQueue,
    Ended,
    Gap,
    GivenUp,
    Orphan,
    Outcome,
    Question,
    SecureQueue,
    Subscribe,
    SuspendQueue,
)
from .keys import derive_for_receiver
from .messages import QNew, QReady, QSwitch, QueueAddress, SenderKeys
from .tables import COMMANDS, RECEIVING, Command, IllegalTransition, ReceivingAction, ReceivingInput
from .turn import ReceiveQueue, ReceivingSide, Turn

__all__ = ["drive", "question", "question_of"]

#: What an input brings along: a server's name, a new queue's address, or the peer's keys.
Given: TypeAlias = str | QueueAddress | SenderKeys | None


def drive(turn: Turn, input: ReceivingInput, given: Given = None) -> None:
    """Make one transition; `IllegalTransition` when the table has none."""
    state = turn.receiving.state
    row = RECEIVING.get((state, input))
    if row is None:
        raise IllegalTransition(state, input)
    for action in row.actions:
        _ACTIONS[action](turn, input, given)
    if row.next is not state:
        due = turn.patience.until(row.next, turn.now)
        turn.receiving = replace(turn.receiving, state=row.next, since=turn.now, due=due)
        turn.changed(row.next)


def question(side: ReceivingSide) -> Question | None:
    """What the side's state asks a server to do, if anything."""
    command = COMMANDS.get(side.state)
    return None if command is None else question_of(side, command)


def question_of(side: ReceivingSide, command: Command) -> Question:
    match command:
        case Command.CREATE_NEW:
            return CreateQueue(id=f"receiving create {side.count}", server=side.target)
        case Command.SECURE_NEW:
            other = _other(side)
            return SecureQueue(id=_id("secure", other), queue=other, server_key=side.server_key)
        case Command.SUSPEND_OLD:
            return SuspendQueue(id=_id("suspend", side.queue.address), queue=side.queue.address)
        case Command.DELETE_OTHER | Command.SAY_QHELLO:
            assert command is Command.DELETE_OTHER, "only the sending side says QHELLO"
            other = _other(side)
            return DeleteQueue(id=_id("delete", other), queue=other)
        case _:
            assert_never(command)


def _id(verb: str, queue: QueueAddress) -> str:
    return f"receiving {verb} {queue.sender_id.hex()}"


def _other(side: ReceivingSide) -> QueueAddress:
    assert side.other is not None, "every state after CREATING has a second queue"
    return side.other


# --- actions -------------------------------------------------------------------------------------


def _begin(turn: Turn, input: ReceivingInput, given: Given) -> None:
    assert isinstance(given, str)
    turn.receiving = replace(turn.receiving, target=given, count=turn.receiving.count + 1)


def _adopt_new(turn: Turn, input: ReceivingInput, given: Given) -> None:
    assert isinstance(given, QueueAddress)
    turn.receiving = replace(turn.receiving, other=given, dh_seed=turn.entropy(DH_SEED_SIZE))
    turn.effects.append(Subscribe(queue=given))


def _say_qnew(turn: Turn, input: ReceivingInput, given: Given) -> None:
    side = turn.receiving
    public = DhKey(side.dh_seed).public()
    turn.say(QNew(queue=_other(side), dh_key=public, replaces=side.queue.address, fast=turn.fast))


def _take_keys(turn: Turn, input: ReceivingInput, given: Given) -> None:
    side = turn.receiving
    assert isinstance(given, SenderKeys)
    keys = derive_for_receiver(DhKey(side.dh_seed), _other(side), given)
    # The private DH key has done its work and is forgotten.
    turn.receiving = replace(side, dh_seed=b"", server_key=given.server_key, new_key=keys.queue, hello_key=keys.hello)


def _say_qready(turn: Turn, input: ReceivingInput, given: Given) -> None:
    turn.say(QReady(queue=_other(turn.receiving)))


def _say_qswitch(turn: Turn, input: ReceivingInput, given: Given) -> None:
    number = turn.say(QSwitch(queue=_other(turn.receiving).sender_id))
    turn.receiving = replace(turn.receiving, switch_number=number)


def _read_old(turn: Turn, input: ReceivingInput, given: Given) -> None:
    turn.effects.append(Subscribe(queue=turn.receiving.queue.address))


def _give_up_old(turn: Turn, input: ReceivingInput, given: Given) -> None:
    turn.effects.append(GivenUp(queue=turn.receiving.queue.address))
    last = turn.receiving.last
    if last is not None and last > turn.stream.delivered:
        turn.effects.append(Gap(first=turn.stream.delivered + 1, last=last))
        turn.stream = turn.stream.skip(last)


def _promote_new(turn: Turn, input: ReceivingInput, given: Given) -> None:
    """The new queue is the receive queue; of the old one only the address is left, to delete it."""
    side = turn.receiving
    turn.receiving = replace(
        side,
        queue=ReceiveQueue(address=_other(side), key=side.new_key),
        other=side.queue.address,
        server_key=b"",
        new_key=b"",
        hello_key=b"",
    )


_OUTCOMES: Final = {
    ReceivingInput.ABORT: Outcome.ABORTED,
    ReceivingInput.DEADLINE: Outcome.TIMED_OUT,
    ReceivingInput.CREATE_REFUSED: Outcome.REFUSED,
    ReceivingInput.SECURE_REFUSED: Outcome.REFUSED,
    ReceivingInput.SUSPEND_REFUSED: Outcome.FORCED,
    ReceivingInput.FORCE: Outcome.FORCED,
}


def _note_outcome(turn: Turn, input: ReceivingInput, given: Given) -> None:
    outcome = _OUTCOMES.get(input, Outcome.COMPLETED)
    if outcome is Outcome.TIMED_OUT and turn.receiving.switch_number:
        # After the commit point a deadline ends in the new queue, not in the old one.
        outcome = Outcome.FORCED
    turn.receiving = replace(turn.receiving, outcome=outcome)


def _report_orphan(turn: Turn, input: ReceivingInput, given: Given) -> None:
    turn.effects.append(Orphan(queue=_other(turn.receiving)))


def _end(turn: Turn, input: ReceivingInput, given: Given) -> None:
    side = turn.receiving
    assert side.outcome is not None
    turn.effects.append(Ended(sending=False, outcome=side.outcome, queue=side.queue.address))
    # Every key of the rotation goes with this; the queue's own is in `queue`.
    turn.receiving = ReceivingSide(state=side.state, count=side.count, queue=side.queue)


_ACTIONS: Final[dict[ReceivingAction, Callable[[Turn, ReceivingInput, Given], None]]] = {
    ReceivingAction.BEGIN: _begin,
    ReceivingAction.ADOPT_NEW: _adopt_new,
    ReceivingAction.SAY_QNEW: _say_qnew,
    ReceivingAction.TAKE_KEYS: _take_keys,
    ReceivingAction.SAY_QREADY: _say_qready,
    ReceivingAction.SAY_QSWITCH: _say_qswitch,
    ReceivingAction.GIVE_UP_OLD: _give_up_old,
    ReceivingAction.PROMOTE_NEW: _promote_new,
    ReceivingAction.NOTE_OUTCOME: _note_outcome,
    ReceivingAction.REPORT_ORPHAN: _report_orphan,
    ReceivingAction.END: _end,
    ReceivingAction.READ_OLD: _read_old,
}
