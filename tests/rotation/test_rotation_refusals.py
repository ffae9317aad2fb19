"""What a connection does not take: messages that are forged, repeated or out of place, answers and arguments."""

from __future__ import annotations

from dataclasses import replace

import pytest

from qsratchet.crypto.dh import DhKey
from qsratchet.errors import LimitExceeded, MisuseError
from qsratchet.rotation import (
    MAX_BODY,
    Accepted,
    Acknowledge,
    Connection,
    Deleted,
    Deliver,
    Equivocation,
    Failed,
    Failure,
    Gap,
    Malformed,
    Orphan,
    QueueAddress,
    QueueCreated,
    Received,
    Receiving,
    Refused,
    Replay,
    SecureQueue,
    Send,
    Sending,
    StartRotation,
    Submit,
    Suspended,
    Tag,
)
from qsratchet.rotation.messages import (
    Application,
    QHello,
    QKeys,
    QNew,
    QReady,
    QSwitch,
    SenderKeys,
    decode_frame,
    encode_frame,
)

from .stages import BACK, NEW, OLD, RECEIVING_STAGES, SENDING_STAGES, Pair, does, other_dh_key, pair_at, sends


def test_other_bytes_under_the_same_number_are_reported_and_the_first_stand() -> None:
    alice = Pair().agents[0]

    def take(number: int, body: bytes) -> tuple[object, ...]:
        frame = encode_frame(number, Application(body=body))
        return alice.step(Received(queue=OLD, message_id=b"x", body=frame), 0)

    acknowledge = Acknowledge(queue=OLD, message_id=b"x")
    assert take(1, b"a") == (Deliver(number=1, body=b"a"), acknowledge)
    assert take(1, b"a") == (acknowledge,)
    assert take(1, b"b") == (Equivocation(number=1), acknowledge)
    assert take(2, b"c") == (Deliver(number=2, body=b"c"), acknowledge)
    assert take(1, b"a") == (Replay(number=1), acknowledge)
    assert take(5, b"d") == (Gap(first=3, last=4), Deliver(number=5, body=b"d"), acknowledge)


def test_what_cannot_be_read_is_reported_and_dropped() -> None:
    alice = Pair().agents[0]
    effects = alice.step(Received(queue=OLD, message_id=b"x", body=b"\x01nonsense"), 0)
    assert isinstance(effects[0], Malformed)
    assert effects[1] == Acknowledge(queue=OLD, message_id=b"x")


def test_a_message_of_a_queue_that_was_left_is_ignored() -> None:
    alice = RECEIVING_STAGES[Receiving.DELETING]()
    frame = encode_frame(alice.delivered + 1, Application(body=b"late"))
    assert alice.step(Received(queue=OLD, message_id=b"x", body=frame), 0) == ()


def _refusals(connection: Connection, queue: QueueAddress, message: object) -> list[Tag]:
    number = 0 if isinstance(message, QHello) else connection.delivered + 1
    before = connection._receiving, connection._sending
    frame = encode_frame(number, message)  # type: ignore[arg-type]
    effects = connection.step(Received(queue=queue, message_id=b"x", body=frame), 0)
    assert (connection._receiving, connection._sending) == before, "a refused message changes neither machine"
    return [effect.tag for effect in effects if isinstance(effect, Refused)]


def test_control_messages_out_of_place_are_reported_and_change_neither_machine() -> None:
    keys = SenderKeys(server_key=bytes(32), dh_key=other_dh_key())
    stranger = QueueAddress(server="x", sender_id=b"x" * 24)
    for state in Receiving:
        alice = RECEIVING_STAGES[state]()
        assert _refusals(alice, alice.receive_queue.address, QKeys(queue=stranger, keys=keys)) == [Tag.QKEYS]
    for state in (Receiving.SECURING, Receiving.READY, Receiving.SWITCHING):
        alice = RECEIVING_STAGES[state]()
        assert _refusals(alice, OLD, QKeys(queue=NEW, keys=keys)) == [Tag.QKEYS], "a second key is refused"
    offered = RECEIVING_STAGES[Receiving.OFFERED]()
    low_order = SenderKeys(server_key=bytes(32), dh_key=bytes(32))
    assert _refusals(offered, OLD, QKeys(queue=NEW, keys=low_order)) == [Tag.QKEYS]
    for sending in Sending:
        bob = SENDING_STAGES[sending]()
        assert _refusals(bob, BACK, QReady(queue=stranger)) == [Tag.QREADY]
        assert _refusals(bob, BACK, QSwitch(queue=stranger.sender_id)) == [Tag.QSWITCH]
        current = bob.send_queues[0].address
        assert _refusals(bob, BACK, QNew(queue=NEW, dh_key=other_dh_key(), replaces=stranger)) == [Tag.QNEW]
        assert _refusals(bob, BACK, QNew(queue=current, dh_key=other_dh_key(), replaces=current)) == [Tag.QNEW]
        low = QNew(queue=stranger, dh_key=bytes(32), replaces=current)
        assert _refusals(bob, BACK, low) == [Tag.QNEW]
    keys_sent = SENDING_STAGES[Sending.KEYS_SENT]()
    assert _refusals(keys_sent, BACK, QSwitch(queue=NEW)) == [Tag.QSWITCH], "QSWITCH before QHELLO"
    assert _refusals(keys_sent, BACK, QNew(queue=NEW, dh_key=other_dh_key(), replaces=OLD)) == [Tag.QNEW]


def test_a_qhello_that_is_forged_or_out_of_place_is_refused() -> None:
    ready = pair_at(sends(b"QH", 1))
    true = decode_frame(next(effect for effect in ready.waiting[1] if isinstance(effect, Send)).frame).message
    assert isinstance(true, QHello)
    alice = ready.agents[0]
    assert _refusals(alice, NEW, replace(true, mac=bytes(32))) == [Tag.QHELLO]
    assert _refusals(alice, NEW, replace(true, queue=BACK)) == [Tag.QHELLO]
    assert _refusals(alice, NEW, replace(true, last=0)) == [Tag.QHELLO]
    assert _refusals(RECEIVING_STAGES[Receiving.SECURING](), NEW, true) == [Tag.QHELLO]
    assert _refusals(RECEIVING_STAGES[Receiving.OFFERED](), NEW, true) == [Tag.QHELLO]
    alice.step(Received(queue=NEW, message_id=b"x", body=encode_frame(0, true)), 0)
    assert alice.status()[0].phase is Receiving.SWITCHING
    assert _refusals(alice, NEW, true) == [], "said again, it is only acknowledged"


def test_on_the_fast_path_a_forged_key_is_refused() -> None:
    pair = pair_at(lambda who, effect: isinstance(effect, Send) and "hello" in effect.id, fast=True)
    true = decode_frame(next(effect for effect in pair.waiting[1] if isinstance(effect, Send)).frame).message
    assert isinstance(true, QHello)
    assert true.keys is not None
    alice = pair.agents[0]
    forged = replace(true, keys=replace(true.keys, dh_key=DhKey(b"\x99" * 32).public()))
    assert _refusals(alice, NEW, forged) == [Tag.QHELLO]
    assert _refusals(alice, NEW, replace(true, keys=replace(true.keys, dh_key=bytes(32)))) == [Tag.QHELLO]


def test_the_stream_in_the_new_queue_before_the_switch_is_neither_taken_nor_acknowledged() -> None:
    ready = RECEIVING_STAGES[Receiving.READY]()
    frame = encode_frame(ready.delivered + 1, Application(body=b"early"))
    effects = ready.step(Received(queue=NEW, message_id=b"x", body=frame), 0)
    assert [type(effect) for effect in effects] == [Refused]


def test_answers_that_nobody_waits_for_are_ignored_and_wrong_ones_are_misuse() -> None:
    pair = pair_at(does(SecureQueue))
    alice = pair.agents[0]
    before = alice.dump()
    for event in (Deleted(effect="x"), Accepted(effect="x"), Suspended(effect="x", remaining=0)):
        assert alice.step(event, 0) == ()
    assert alice.step(Failed(effect="x", failure=Failure.AUTH), 0) == ()
    assert alice.step(QueueCreated(effect="x", queue=NEW), 0) == ()
    stray = QueueAddress(server="s", sender_id=b"s" * 24)
    assert alice.step(QueueCreated(effect="x", queue=stray), 0) == (Orphan(queue=stray),)
    with pytest.raises(MisuseError):
        alice.step(Deleted(effect=pair.waiting[0][0].id), 0)
    assert alice.dump() == before


def test_arguments_out_of_range_are_misuse() -> None:
    alice = Pair().agents[0]
    before = alice.dump()
    with pytest.raises(LimitExceeded):
        alice.step(Submit(body=bytes(MAX_BODY + 1)), 0)
    with pytest.raises(MisuseError):
        alice.step(StartRotation(server="no\nserver"), 0)
    assert alice.dump() == before
