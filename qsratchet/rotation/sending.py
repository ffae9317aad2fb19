"""The sending side (Bob): the actions of its table, and what it asks servers to do.

The rules are in tables.py; here is only what each action does.  This module knows nothing of the receiving
side: the two meet only in the stream.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from ..crypto.dh import DH_SEED_SIZE, DhKey
from ..crypto.signing import SIGNING_SEED_SIZE, SigningKey
from .events import Ended, Outcome, Overdue, Question, SecureQueue, Send, SendRefused
from .keys import derive_for_sender, sign_hello
from .messages import QHello, QKeys, QNew, QueueAddress, SenderKeys, encode_frame
from .tables import COMMANDS, SENDING, Command, IllegalTransition, Sending, SendingAction, SendingInput
from .turn import SendingSide, SendQueue, Turn

__all__ = ["drive", "question"]


def drive(turn: Turn, input: SendingInput, given: QNew | None = None) -> None:
    """Make one transition; `IllegalTransition` when the table has none."""
    state = turn.sending.state
    row = SENDING.get((state, input))
    if row is None:
        raise IllegalTransition(state, input)
    for action in row.actions:
        _ACTIONS[action](turn, input, given)
    if row.next is not state:
        due = turn.patience.until(row.next, turn.now)
        turn.sending = replace(turn.sending, state=row.next, since=turn.now, due=due)
        turn.changed(row.next)


def question(side: SendingSide) -> Question | None:
    """What the side's state asks a server to do, if anything."""
    command = COMMANDS.get(side.state)
    if command is None:
        return None
    if side.state is Sending.ANNOUNCING:
        return Send(id=_id("announce", side.queue.address), queue=side.queue.address, frame=side.hello)
    new = _new(side)
    if command is Command.SECURE_NEW:
        return SecureQueue(id=_id("secure", new.address), queue=new.address, server_key=_keys(side).server_key)
    return Send(id=_id("hello", new.address), queue=new.address, frame=side.hello)


def _id(verb: str, queue: QueueAddress) -> str:
    return f"sending {verb} {queue.sender_id.hex()}"


def _new(side: SendingSide) -> SendQueue:
    assert side.new is not None, "every state but IDLE and ANNOUNCING has a second queue"
    return side.new


def _keys(side: SendingSide) -> SenderKeys:
    assert side.keys is not None, "the keys were made with the second queue"
    return side.keys


# --- actions -------------------------------------------------------------------------------------


def _make_keys(turn: Turn, input: SendingInput, given: QNew | None) -> None:
    assert given is not None
    signing = SigningKey(turn.entropy(SIGNING_SEED_SIZE))
    dh = DhKey(turn.entropy(DH_SEED_SIZE))
    public = SenderKeys(server_key=signing.public(), dh_key=dh.public())
    keys = derive_for_sender(dh, given.queue, given.dh_key, public)
    fast = input is SendingInput.QNEW_FAST
    hello = sign_hello(keys.hello, QHello(queue=given.queue, keys=public if fast else None))
    # The private DH key has done its work and is not kept.
    turn.sending = SendingSide(
        state=turn.sending.state,
        queue=turn.sending.queue,
        new=SendQueue(address=given.queue, key=keys.queue, server_seed=signing.seed),
        fast=fast,
        hello_key=keys.hello,
        hello=encode_frame(0, hello),
        keys=public,
        since=turn.now,
        due=turn.patience.until(turn.sending.state, turn.now),
    )


def _say_qkeys(turn: Turn, input: SendingInput, given: QNew | None) -> None:
    turn.say(QKeys(queue=_new(turn.sending).address, keys=_keys(turn.sending)))


def _announce(turn: Turn, input: SendingInput, given: QNew | None) -> None:
    """Every number after `last` is in the outbox and will come through the new queue."""
    side = turn.sending
    hello = QHello(queue=_new(side).address, last=turn.stream.last_accepted)
    turn.sending = replace(side, hello=encode_frame(0, sign_hello(side.hello_key, hello)))


def _cut_over(turn: Turn, input: SendingInput, given: QNew | None) -> None:
    """The new queue takes the place of the old one, whose keys are forgotten.

    The outbox stays as it is: what was not definitely accepted in the old queue goes to the new one.
    """
    side = turn.sending
    announce = input in (SendingInput.QSWITCH_FAST, SendingInput.DEADLINE_FAST)
    turn.sending = SendingSide(state=side.state, queue=_new(side), hello=side.hello if announce else b"")


def _drop_new(turn: Turn, input: SendingInput, given: QNew | None) -> None:
    """Only the queue in use is left, with its keys."""
    turn.sending = SendingSide(state=turn.sending.state, queue=turn.sending.queue)


def _report_refused(turn: Turn, input: SendingInput, given: QNew | None) -> None:
    turn.effects.append(SendRefused(queue=turn.sending.queue.address))


def _report_overdue(turn: Turn, input: SendingInput, given: QNew | None) -> None:
    side = turn.sending
    turn.effects.append(Overdue(phase=side.state))
    turn.sending = replace(side, due=turn.patience.until(side.state, turn.now))


_OUTCOMES: Final = {
    SendingInput.DEADLINE: Outcome.TIMED_OUT,
    SendingInput.DEADLINE_FAST: Outcome.TIMED_OUT,
    SendingInput.SECURE_REFUSED: Outcome.REFUSED,
    SendingInput.HELLO_REFUSED: Outcome.REFUSED,
}


def _end(turn: Turn, input: SendingInput, given: QNew | None) -> None:
    parked = turn.sending.state is Sending.PARKED
    outcome = Outcome.COMPLETED if parked else _OUTCOMES.get(input, Outcome.COMPLETED)
    turn.effects.append(Ended(sending=True, outcome=outcome, queue=turn.sending.queue.address))


_ACTIONS: Final[dict[SendingAction, Callable[[Turn, SendingInput, QNew | None], None]]] = {
    SendingAction.MAKE_KEYS: _make_keys,
    SendingAction.SAY_QKEYS: _say_qkeys,
    SendingAction.CUT_OVER: _cut_over,
    SendingAction.ANNOUNCE: _announce,
    SendingAction.DROP_NEW: _drop_new,
    SendingAction.REPORT_REFUSED: _report_refused,
    SendingAction.REPORT_OVERDUE: _report_overdue,
    SendingAction.END: _end,
}
