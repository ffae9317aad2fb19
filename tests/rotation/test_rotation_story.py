"""Rotations from beginning to end, and each way in which one can go wrong."""

from __future__ import annotations

import pytest

from qsratchet.rotation import (
    AbortRotation,
    Accepted,
    Acknowledge,
    Connection,
    DeleteQueue,
    Deliver,
    Effect,
    Ended,
    Failed,
    Failure,
    ForceRotation,
    Gap,
    GivenUp,
    Orphan,
    Outcome,
    Overdue,
    QueueEmpty,
    Received,
    Receiving,
    SecureQueue,
    Send,
    Sending,
    SendRefused,
    StartRotation,
    Submit,
    Subscribe,
    Suspended,
    SuspendQueue,
    Tick,
)
from qsratchet.rotation.messages import (
    Application,
    QNew,
    QReady,
    decode_frame,
    encode_frame,
)

from .stages import BACK, NEW, OLD, RECEIVING_STAGES, SENDING_STAGES, Pair, does, other_dh_key, pair_at, sends

_LATE = 10**9


def _ended(pair: Pair, agent: int) -> list[Ended]:
    return [report for report in pair.reports[agent] if isinstance(report, Ended)]


def _of(pair: Pair, agent: int, kind: type) -> list[object]:
    return [report for report in pair.reports[agent] if isinstance(report, kind)]


@pytest.mark.parametrize("fast", [False, True])
def test_a_rotation_moves_the_queue_and_every_message_comes_once_and_in_order(fast: bool) -> None:
    pair = Pair(fast=(fast, fast))
    pair.submit(1, b"before")
    pair.event(0, StartRotation(server="new"))
    pair.submit(1, b"after")
    assert pair.delivered[0] == [b"before", b"after"]
    assert OLD not in pair.queues
    assert pair.agents[0].receive_queue.address == NEW
    assert pair.agents[1].send_queues[0].address == NEW
    assert len(pair.agents[1].send_queues[0].key) == 32
    assert pair.agents[1].send_queues[0].key == pair.agents[0].receive_queue.key
    assert [report.outcome for report in _ended(pair, 0)] == [Outcome.COMPLETED]
    assert [report.sending for report in _ended(pair, 1)] == [True]
    assert all(agent.next_deadline is None for agent in pair.agents)


@pytest.mark.parametrize("stage", [Receiving.SECURING, Receiving.READY, Receiving.SWITCHING, Receiving.DRAINING])
def test_the_key_of_the_new_queue_is_there_before_anything_comes_in_it(stage: Receiving) -> None:
    old, new = RECEIVING_STAGES[stage]().receive_queues
    assert (old.address, new.address) == (OLD, NEW)
    assert len(new.key) == 32


def test_the_key_of_the_new_queue_is_the_senders() -> None:
    pair = pair_at(sends(b"QR", 0))
    assert pair.agents[0].receive_queues[1].key == pair.agents[1].send_queues[1].key


@pytest.mark.parametrize("stage", [Receiving.IDLE, Receiving.CREATING, Receiving.OFFERED, Receiving.DELETING])
def test_without_a_key_for_it_a_queue_cannot_be_read(stage: Receiving) -> None:
    connection = RECEIVING_STAGES[stage]()
    assert connection.receive_queues == (connection.receive_queue,)


def test_both_sides_can_rotate_at_once_and_again() -> None:
    pair = Pair()
    pair.stops = does(SecureQueue)
    pair.event(0, StartRotation(server="new"))
    pair.event(1, StartRotation(server="newer"))
    pair.submit(0, b"to Bob")
    pair.submit(1, b"to Alice")
    pair.go_on()
    pair.event(0, StartRotation(server="newest"))
    assert [len(_ended(pair, agent)) for agent in (0, 1)] == [3, 3]
    assert pair.delivered == [[b"to Alice"], [b"to Bob"]]
    assert set(pair.queues) == {pair.agents[0].receive_queue.address, pair.agents[1].receive_queue.address}


def test_the_old_keys_are_in_no_snapshot_once_the_old_queue_is_left() -> None:
    pair = Pair()
    old_keys = [pair.agents[0].receive_queue.key, pair.agents[1].send_queues[0].key]
    pair.event(0, StartRotation(server="new"))
    for agent in pair.agents:
        for key in old_keys:
            assert key not in agent.dump()
    hello = pair_at(sends(b"QS", 0))
    hello_key = hello.agents[0]._receiving.hello_key
    assert hello_key in hello.agents[0].dump()
    hello.go_on()
    for agent in hello.agents:
        assert hello_key not in agent.dump()


def test_the_first_message_of_the_new_queue_is_held_until_the_old_one_is_drained() -> None:
    pair = pair_at(does(SuspendQueue))
    pair.stops = lambda agent, effect: isinstance(effect, SuspendQueue)
    pair.submit(1, b"held")
    assert pair.agents[1].send_queues[0].address == NEW
    assert pair.delivered[0] == []
    assert len(pair.queues[NEW]) == 1, "the server still has it"
    assert b"held" not in pair.agents[0].dump()
    pair.go_on()
    assert pair.delivered[0] == [b"held"]
    assert pair.queues[NEW] == []


def test_a_held_message_comes_again_after_a_restart() -> None:
    pair = pair_at(does(SuspendQueue))
    pair.submit(1, b"held")
    pair.agents[0] = Connection.load(pair.agents[0].dump())
    pair.waiting[0].clear()
    pair.stops = lambda agent, effect: False
    pair.run(0, pair.agents[0].resume())
    assert pair.delivered[0] == [b"held"]
    assert pair.agents[0].receive_queue.address == NEW


def test_a_message_with_the_last_marker_ends_the_drain() -> None:
    pair = pair_at(does(SuspendQueue))
    alice = pair.agents[0]
    alice.step(Suspended(effect=pair.waiting[0][0].id, remaining=1), 0)
    frame = encode_frame(alice.delivered + 1, Application(body=b"last"))
    effects = alice.step(Received(queue=OLD, message_id=b"x", body=frame, last=True), 0)
    assert Deliver(number=alice.delivered, body=b"last") in effects
    assert any(isinstance(effect, DeleteQueue) and effect.queue == OLD for effect in effects)


def test_an_empty_reply_asks_for_the_count_again_and_only_the_count_ends_the_drain() -> None:
    alice = RECEIVING_STAGES[Receiving.DRAINING]()
    effects = alice.step(QueueEmpty(queue=OLD), 0)
    assert any(isinstance(effect, SuspendQueue) for effect in effects)
    assert not any(isinstance(effect, DeleteQueue) for effect in effects)
    assert alice.step(QueueEmpty(queue=OLD), 0) == ()
    effects = alice.step(Suspended(effect=f"receiving suspend {OLD.sender_id.hex()}", remaining=0), 0)
    assert any(isinstance(effect, DeleteQueue) for effect in effects)


def test_a_restart_while_draining_suspends_again_to_learn_the_count() -> None:
    alice = Connection.load(RECEIVING_STAGES[Receiving.DRAINING]().dump())
    effects = alice.resume()
    assert Subscribe(queue=OLD) in effects
    assert Subscribe(queue=NEW) in effects
    suspends = [effect for effect in effects if isinstance(effect, SuspendQueue)]
    assert len(suspends) == 1
    alice.step(Suspended(effect=suspends[0].id, remaining=2), 0)
    assert alice.status()[0].phase is Receiving.DRAINING
    alice.step(Failed(effect=suspends[0].id, failure=Failure.AUTH), 0)
    assert alice.status()[0].phase is Receiving.DELETING


@pytest.mark.parametrize("state", [Receiving.CREATING, Receiving.OFFERED, Receiving.SECURING, Receiving.READY])
def test_an_abort_before_the_commit_point_leaves_the_old_queue_in_use(state: Receiving) -> None:
    pairs = {
        Receiving.CREATING: lambda: pair_at(lambda who, effect: type(effect).__name__ == "CreateQueue"),
        Receiving.OFFERED: lambda: pair_at(sends(b"QN", 0)),
        Receiving.SECURING: lambda: pair_at(does(SecureQueue)),
        Receiving.READY: lambda: pair_at(sends(b"QR", 0)),
    }
    pair = pairs[state]()
    pair.event(0, AbortRotation())
    pair.go_on()
    pair.submit(1, b"works")
    assert pair.delivered[0] == [b"works"]
    assert [report.outcome for report in _ended(pair, 0)] == [Outcome.ABORTED]
    assert pair.agents[0].receive_queue.address == OLD
    if state is Receiving.CREATING:
        assert _of(pair, 0, Orphan) == [Orphan(queue=NEW)], "it was created after all"
    else:
        assert NEW not in pair.queues


def test_an_abort_and_a_new_rotation_work_although_the_peer_never_hears_of_the_abort() -> None:
    pair = pair_at(sends(b"QH", 1))
    pair.event(0, AbortRotation())
    pair.stops = lambda agent, effect: False
    pair.event(0, StartRotation(server="other"))
    assert [report.outcome for report in _ended(pair, 0)] == [Outcome.ABORTED, Outcome.COMPLETED]
    pair.submit(1, b"works")
    assert pair.delivered[0] == [b"works"]


def test_a_sender_learns_of_an_abort_by_auth_in_the_new_queue() -> None:
    pair = pair_at(sends(b"QH", 1))
    pair.event(0, AbortRotation())
    pair.go_on()
    assert pair.agents[1].status()[1].phase is Sending.IDLE
    assert [report.outcome for report in _ended(pair, 1)] == [Outcome.REFUSED]


@pytest.mark.parametrize("state", [state for state in Receiving if state is not Receiving.IDLE], ids=str)
def test_every_receiving_state_ends_by_deadlines_alone_when_no_server_answers(state: Receiving) -> None:
    connection = RECEIVING_STAGES[state]()
    reports: list[Effect] = []
    for turn in range(1, 6):
        reports += connection.step(Tick(), turn * _LATE)
    assert connection.status()[0].phase is Receiving.IDLE
    ended = [report for report in reports if isinstance(report, Ended)]
    assert len(ended) == 1
    committed = state in (Receiving.SWITCHING, Receiving.SUSPENDING, Receiving.DRAINING, Receiving.DELETING)
    assert (connection.receive_queue.address == NEW) == committed
    if state in (Receiving.SWITCHING, Receiving.SUSPENDING, Receiving.DRAINING):
        assert GivenUp(queue=OLD) in reports
        assert ended[0].outcome is Outcome.FORCED
    orphans = [report for report in reports if isinstance(report, Orphan)]
    assert len(orphans) == (0 if state is Receiving.CREATING else 1)


def test_a_deadline_that_has_not_passed_changes_nothing() -> None:
    connection = RECEIVING_STAGES[Receiving.OFFERED]()
    due = connection.next_deadline
    assert due is not None
    assert connection.step(Tick(), due - 1) == ()
    assert connection.step(Tick(), due) != ()


def test_sending_states_report_or_end_at_their_deadline() -> None:
    for state in (Sending.SECURING, Sending.KEYS_SENT, Sending.ANNOUNCING):
        connection = SENDING_STAGES[state]()
        connection.step(Tick(), _LATE)
        assert connection.status()[1].phase is Sending.IDLE
    for state in (Sending.HELLO_SENT, Sending.HELLO_ACCEPTED):
        connection = SENDING_STAGES[state]()
        effects = connection.step(Tick(), _LATE)
        assert Overdue(phase=state) in effects
        assert connection.status()[1].phase is Sending.HELLO_SENT
    parked = SENDING_STAGES[Sending.PARKED]()
    effects = parked.step(Tick(), _LATE)
    assert parked.send_queues[0].address == NEW
    assert [effect.queue for effect in effects if isinstance(effect, Send)] == [NEW]


def test_a_parked_sender_keeps_everything_and_sends_it_in_order_after_qswitch() -> None:
    pair = pair_at(sends(b"QS", 0))
    pair.suspended.add(OLD)
    for body in (b"1", b"2", b"3"):
        pair.submit(1, body)
    bob = pair.agents[1]
    assert bob.status()[1].phase is Sending.PARKED
    assert bob.waiting == 3
    pair.agents[1] = Connection.load(bob.dump())
    pair.go_on()
    assert pair.delivered[0] == [b"1", b"2", b"3"]


def test_with_the_fast_path_a_dead_old_server_is_left_at_once_when_nothing_is_missing() -> None:
    pair = Pair(fast=(True, True))
    pair.dead.add("old")
    pair.event(0, StartRotation(server="new"))
    pair.submit(1, b"through the new queue")
    assert pair.delivered[0] == [b"through the new queue"]
    assert pair.agents[0].receive_queue.address == NEW
    assert pair.agents[0].status()[0].phase is Receiving.DELETING
    pair.event(0, Tick(), _LATE)
    assert _of(pair, 0, Orphan) == [Orphan(queue=OLD)]
    assert not _of(pair, 0, GivenUp)


def test_with_the_fast_path_a_dead_old_server_ends_in_a_gap_that_names_what_is_missing() -> None:
    pair = Pair(fast=(True, True))
    pair.stops = does(Acknowledge, OLD)
    for body in (b"1", b"2", b"3"):
        pair.submit(1, body)
    pair.dead.add("old")
    pair.event(0, StartRotation(server="new"))
    assert pair.delivered[0] == [b"1"]
    pair.submit(1, b"4")
    assert pair.delivered[0] == [b"1"], "it is held"
    pair.event(0, ForceRotation())
    assert _of(pair, 0, Gap) == [Gap(first=2, last=3)]
    assert pair.delivered[0] == [b"1", b"4"]


def test_without_the_fast_path_a_dead_old_server_ends_the_rotation_by_its_deadline() -> None:
    for fast in ((True, False), (False, True), (False, False)):
        pair = Pair(fast=fast)
        pair.dead.add("old")
        pair.event(0, StartRotation(server="new"))
        assert pair.agents[0].status()[0].phase is Receiving.OFFERED
        pair.event(0, Tick(), _LATE)
        assert [report.outcome for report in _ended(pair, 0)] == [Outcome.TIMED_OUT]


def test_without_an_announcement_the_next_message_names_the_gap() -> None:
    pair = pair_at(does(SuspendQueue))
    alice = pair.agents[0]
    pair.event(0, Tick(), _LATE)
    assert alice.receive_queue.address == NEW
    frame = encode_frame(alice.delivered + 3, Application(body=b"next"))
    effects = alice.step(Received(queue=NEW, message_id=b"x", body=frame), 0)
    first = alice.delivered - 2
    assert Gap(first=first, last=first + 1) in effects
    assert Deliver(number=first + 2, body=b"next") in effects


def test_a_lost_qswitch_is_made_good_by_the_next_offer() -> None:
    pair = pair_at(sends(b"QS", 0))
    bob = pair.agents[1]
    offer = QNew(queue=BACK, dh_key=other_dh_key(), replaces=NEW)
    frame = encode_frame(bob.delivered + 2, offer)
    effects = bob.step(Received(queue=BACK, message_id=b"x", body=frame), 0)
    assert any(isinstance(effect, Gap) for effect in effects)
    assert bob.send_queues[0].address == NEW
    assert bob.status()[1].phase is Sending.KEYS_SENT


def test_the_seeds_literal_qr_is_taken_for_qswitch_where_it_is_awaited_and_only_with_a_new_number() -> None:
    pair = pair_at(sends(b"QS", 0))
    bob = pair.agents[1]
    again = encode_frame(bob.delivered, QReady(queue=NEW))
    bob.step(Received(queue=BACK, message_id=b"x", body=again), 0)
    assert bob.send_queues[0].address == OLD
    literal = encode_frame(bob.delivered + 1, QReady(queue=NEW.sender_id))
    bob.step(Received(queue=BACK, message_id=b"y", body=literal), 0)
    assert bob.send_queues[0].address == NEW
    assert bob.status()[1].phase is Sending.IDLE


def test_a_retransmission_is_the_same_number_and_the_same_bytes() -> None:
    pair = pair_at(sends(b"AM", 0))
    (first,) = [effect for effect in pair.agents[0].step(Submit(body=b"x"), 0) if isinstance(effect, Send)]
    for failure in (Failure.UNKNOWN, Failure.TEMPORARY, Failure.QUOTA):
        assert pair.agents[0].step(Failed(effect=first.id, failure=failure), 0) == (first,)
    assert first in Connection.load(pair.agents[0].dump()).resume()


def test_only_one_message_of_the_stream_is_in_flight() -> None:
    pair = Pair()
    alice = pair.agents[0]
    (first,) = alice.step(Submit(body=b"1"), 0)
    assert alice.step(Submit(body=b"2"), 0) == ()
    assert isinstance(first, Send)
    (second,) = alice.step(Accepted(effect=first.id), 0)
    assert isinstance(second, Send)
    assert decode_frame(second.frame).number == 2
    assert alice.step(Accepted(effect=first.id), 0) == (), "a late answer is ignored"


def test_a_refused_queue_ends_the_rotation_or_is_reported() -> None:
    creating = pair_at(lambda who, effect: type(effect).__name__ == "CreateQueue")
    creating.event(0, Failed(effect=creating.waiting[0][0].id, failure=Failure.AUTH))
    assert [report.outcome for report in _ended(creating, 0)] == [Outcome.REFUSED]
    securing = pair_at(does(SecureQueue))
    securing.event(0, Failed(effect=securing.waiting[0][0].id, failure=Failure.AUTH))
    assert [report.outcome for report in _ended(securing, 0)] == [Outcome.REFUSED]
    alone = Pair()
    alone.suspended.add(OLD)
    alone.stops = lambda agent, effect: True
    bob = alone.agents[1]
    (send,) = bob.step(Submit(body=b"x"), 0)
    assert isinstance(send, Send)
    assert bob.step(Failed(effect=send.id, failure=Failure.AUTH), 0) == (SendRefused(queue=OLD), send)


def test_the_status_says_what_a_rotation_waits_for_and_what_ends_it() -> None:
    pair = pair_at(sends(b"QN", 0))
    mine, theirs = pair.agents[0].status()
    assert mine.phase is Receiving.OFFERED
    assert "QKEYS" in mine.waits_for
    assert "given up" in mine.at_deadline
    assert mine.deadline == pair.agents[0].next_deadline
    assert (mine.can_abort, mine.can_force) == (True, False)
    assert theirs.phase is Sending.IDLE
    assert not theirs.can_abort
    assert repr(pair.agents[0]) == "<Connection receiving OFFERED, sending IDLE, waiting 1>"


def test_nothing_secret_is_printed() -> None:
    for stage in (RECEIVING_STAGES[Receiving.READY], SENDING_STAGES[Sending.HELLO_SENT]):
        connection = stage()
        for value in (
            connection,
            connection._receiving,
            connection._sending,
            connection._stream,
            *connection.send_queues,
        ):
            assert len(repr(value)) < 120
            with pytest.raises(TypeError):
                value.__reduce_ex__(4)
    assert b"secret".hex() not in repr(Submit(body=b"secret"))
    assert "secret" not in repr(Submit(body=b"secret"))
    assert "old" in repr(Pair().agents[0].receive_queue)
    assert "old" in repr(Pair().agents[1].send_queues[0])
