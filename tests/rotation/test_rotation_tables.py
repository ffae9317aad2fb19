"""Totality: each state with each input is in the table, or is a typed error that changes nothing."""

from __future__ import annotations

from enum import Enum
from itertools import product
from typing import Any

import pytest

from qsratchet.errors import MisuseError
from qsratchet.rotation import (
    AbortRotation,
    ForceRotation,
    IllegalTransition,
    QueueAddress,
    Receiving,
    Sending,
    StartRotation,
    receiving,
    sending,
)
from qsratchet.rotation.messages import QNew, SenderKeys
from qsratchet.rotation.tables import (
    COMMANDS,
    PATIENCE,
    RECEIVING,
    SENDING,
    WAITS,
    Command,
    ReceivingAction,
    ReceivingInput,
    SendingAction,
    SendingInput,
)

from .stages import NEW, RECEIVING_STAGES, SENDING_STAGES, other_dh_key, turn_of

_STATES: tuple[Receiving | Sending, ...] = (*Receiving, *Sending)


@pytest.mark.parametrize(("state", "input"), list(product(Receiving, ReceivingInput)), ids=str)
def test_the_receiving_side_follows_its_table_or_raises_and_changes_nothing(
    state: Receiving, input: ReceivingInput
) -> None:
    turn = turn_of(RECEIVING_STAGES[state])
    before = turn.receiving, turn.sending, turn.stream
    inputs: dict[ReceivingInput, str | QueueAddress | SenderKeys] = {
        ReceivingInput.START: "new",
        ReceivingInput.CREATED: NEW,
        ReceivingInput.QKEYS: SenderKeys(server_key=bytes(32), dh_key=other_dh_key()),
        ReceivingInput.QHELLO_WITH_KEYS: SenderKeys(server_key=bytes(32), dh_key=other_dh_key()),
    }
    given = inputs.get(input)
    row = RECEIVING.get((state, input))
    if row is None:
        with pytest.raises(IllegalTransition) as caught:
            receiving.drive(turn, input, given)
        assert (caught.value.state, caught.value.input) == (state, input)
        assert (turn.receiving, turn.sending, turn.stream) == before
        assert not turn.effects
    else:
        receiving.drive(turn, input, given)
        assert turn.receiving.state is row.next


@pytest.mark.parametrize(("state", "input"), list(product(Sending, SendingInput)), ids=str)
def test_the_sending_side_follows_its_table_or_raises_and_changes_nothing(state: Sending, input: SendingInput) -> None:
    turn = turn_of(SENDING_STAGES[state])
    before = turn.receiving, turn.sending, turn.stream
    offer = QNew(queue=NEW, dh_key=other_dh_key(), replaces=turn.sending.queue.address)
    given = offer if input in (SendingInput.QNEW, SendingInput.QNEW_FAST) else None
    row = SENDING.get((state, input))
    if row is None:
        with pytest.raises(IllegalTransition):
            sending.drive(turn, input, given)
        assert (turn.receiving, turn.sending, turn.stream) == before
        assert not turn.effects
    else:
        sending.drive(turn, input, given)
        assert turn.sending.state is row.next


@pytest.mark.parametrize("state", Receiving, ids=str)
@pytest.mark.parametrize("event", [StartRotation(server="new"), AbortRotation(), ForceRotation()], ids=str)
def test_a_users_event_out_of_place_is_misuse_and_leaves_the_snapshot_as_it_was(
    state: Receiving, event: StartRotation | AbortRotation | ForceRotation
) -> None:
    connection = RECEIVING_STAGES[state]()
    before = connection.dump()
    input = {
        StartRotation: ReceivingInput.START,
        AbortRotation: ReceivingInput.ABORT,
        ForceRotation: ReceivingInput.FORCE,
    }[type(event)]
    if (state, input) in RECEIVING:
        connection.step(event, 5)
        assert connection.dump() != before
    else:
        with pytest.raises(MisuseError):
            connection.step(event, 5)
        assert connection.dump() == before


def test_every_state_but_idle_has_a_deadline_and_a_row_for_it() -> None:
    waiting = set(Receiving) - {Receiving.IDLE}
    assert {state for state, input in RECEIVING if input is ReceivingInput.DEADLINE} == waiting
    deadlines = (SendingInput.DEADLINE, SendingInput.DEADLINE_FAST)
    assert {state for state, input in SENDING if input in deadlines} == set(Sending) - {Sending.IDLE}
    assert set(PATIENCE) == set(_STATES) - {Receiving.IDLE, Sending.IDLE}


def test_people_are_told_something_about_every_state() -> None:
    assert set(WAITS) == set(_STATES)


def test_abort_stands_before_the_commit_point_and_force_after_it() -> None:
    aborts = {state for state, input in RECEIVING if input is ReceivingInput.ABORT}
    forces = {state for state, input in RECEIVING if input is ReceivingInput.FORCE}
    assert aborts == {Receiving.CREATING, Receiving.OFFERED, Receiving.SECURING, Receiving.READY}
    assert forces == set(Receiving) - aborts - {Receiving.IDLE}
    commits = {key for key, row in RECEIVING.items() if ReceivingAction.SAY_QSWITCH in row.actions}
    assert all(RECEIVING[key].next is Receiving.SWITCHING for key in commits)


def test_every_state_can_be_reached_and_left_and_every_input_and_action_is_used() -> None:
    machines: list[tuple[dict[Any, Any], type[Enum], type[Enum], type[Enum]]] = [
        (RECEIVING, Receiving, ReceivingInput, ReceivingAction),
        (SENDING, Sending, SendingInput, SendingAction),
    ]
    for table, states, inputs, actions in machines:
        assert {state for state, _ in table} == set(states)
        assert {row.next for row in table.values()} == set(states)
        assert {input for _, input in table} == set(inputs)
        assert {action for row in table.values() for action in row.actions} == set(actions)
    assert set(COMMANDS.values()) == set(Command)
