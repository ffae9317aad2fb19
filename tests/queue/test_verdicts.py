"""The owner's side reads frames in order, and gives each verdict by its name; what is refused changes nothing."""

from __future__ import annotations

import pytest

from qsratchet import (
    EPOCH_CAP,
    SUITES,
    Dequeuer,
    Duplicate,
    Enqueuer,
    EpochGap,
    Fork,
    FrameRejected,
    FrameType,
    Gap,
    GapTooWide,
    Initialised,
    MalformedFrame,
    Message,
    MissingKey,
    MisuseError,
    Passed,
    ReadPolicy,
    Tampered,
    UnexpectedInit,
    UnknownSuite,
    UnknownType,
    UnknownVersion,
    Updated,
    UpdatePolicy,
    WrongEpoch,
    WrongSuite,
)
from qsratchet.queue.dequeuer import WINDOW
from qsratchet.queue.frames import EPOCH_LIMIT, FRAME_LIMIT, SEQ_LIMIT, pack_header
from qsratchet.queue.schedule import seal_body
from tests.queue.pair import Pair, bodies, refused


@pytest.mark.parametrize("suite", SUITES)
def test_a_queue_is_read_in_order_over_updates_and_offers(suite: int) -> None:
    pair = Pair(suite, initialised=False)
    assert not pair.owner.ready
    assert pair.owner.open(pair.frames[0].data) == Initialised(0, suite)
    frames = [*pair.send(b"1", b"2"), pair.update(), *pair.send(b"3"), pair.offer(), *pair.send(b"4")]
    opened = [pair.owner.open(frame) for frame in frames]
    assert opened == [
        Message(1, 0, b"1"),
        Message(2, 0, b"2"),
        Updated(3, 1, 0),
        Message(4, 1, b"3"),
        Updated(5, 2, 1),
        Message(6, 2, b"4"),
    ]


def test_a_batch_gives_what_single_calls_give() -> None:
    pair = Pair(update=UpdatePolicy(frames=3, seconds=None), initialised=False)
    pair.send(*[b"%d" % number for number in range(10)])
    frames = [frame.data for frame in pair.frames]
    mixed = [*frames[:4], frames[2], b"short", frames[6], *frames[4:], frames[-1][:-1] + b"?"]
    batch, single = Dequeuer.load(pair.owner.dump()), Dequeuer.load(pair.owner.dump())
    results = batch.open_many(mixed)
    for frame, result in zip(mixed, results, strict=True):
        if isinstance(result, FrameRejected):
            with pytest.raises(type(result)) as caught:
                single.open(frame)
            assert str(caught.value) == str(result)
        else:
            assert single.open(frame) == result
    assert [single._chain_key, single.next_seq] == [batch._chain_key, batch.next_seq]
    assert bodies([result for result in results if not isinstance(result, Exception)]) == [b"%d" % n for n in range(10)]


def test_a_frame_that_comes_again_is_a_duplicate_wherever_it_was_read() -> None:
    pair = Pair()
    frames = [pair.frames[0].data, *pair.send(b"1"), pair.update(), *pair.send(*[b"m"] * 40)]
    pair.owner.open_many(frames[1:3])
    for frame in frames[3:]:
        pair.owner.open(frame)
    for restarted in (False, True):
        if restarted:
            pair.restart_owner()
        for seq, frame in enumerate(frames):
            verdict = refused(pair.owner, frame)
            assert isinstance(verdict, Duplicate)
            assert verdict.seq == seq


def test_another_frame_under_a_number_that_was_read_is_a_fork() -> None:
    pair = Pair()
    backup = pair.service.dump()
    pair.owner.open_many(pair.send(b"one", b"two"))
    pair.service = Enqueuer.load(backup)
    for seq, frame in enumerate(pair.send(b"uno", b"dos"), 1):
        verdict = refused(pair.owner, frame)
        assert isinstance(verdict, Fork)
        assert verdict.seq == seq


def test_beyond_the_window_a_duplicate_cannot_be_told_from_a_fork() -> None:
    pair = Pair()
    frames = pair.send(*[b"m"] * (WINDOW + 1))
    pair.owner.open_many(frames)
    assert isinstance(refused(pair.owner, frames[1]), Duplicate)
    verdict = refused(pair.owner, frames[0])
    assert isinstance(verdict, Passed)
    assert (verdict.seq, verdict.next_seq) == (1, WINDOW + 2)


def test_single_opens_keep_no_more_than_the_window() -> None:
    pair = Pair()
    for frame in pair.send(*[b"m"] * (3 * WINDOW)):
        pair.owner.open(frame)
    assert sum(map(len, pair.owner._tags)) <= 2 * WINDOW * 16


def test_a_strict_reader_refuses_a_frame_after_a_gap_and_names_what_is_missing() -> None:
    pair = Pair()
    frames = pair.send(b"1", b"2", b"3", b"4")
    pair.owner.open(frames[0])
    verdict = refused(pair.owner, frames[3])
    assert type(verdict) is Gap
    assert (verdict.first, verdict.last) == (2, 3)
    assert bodies(pair.owner.open_many(frames[1:])) == [b"2", b"3", b"4"]


def test_a_tolerant_reader_goes_on_and_reports_what_is_missing() -> None:
    pair = Pair(read=ReadPolicy(tolerant=True))
    frames = [*pair.send(b"1", b"2", b"3"), pair.update(), *pair.send(b"4", b"5")]
    assert pair.owner.open(frames[1]) == Message(2, 0, b"2", range(1, 2))
    assert pair.owner.open(frames[3]) == Updated(4, 1, 0, range(3, 4))
    assert pair.owner.open(frames[5]) == Message(6, 1, b"5", range(5, 6))
    for seq, frame in ((1, frames[0]), (3, frames[2]), (5, frames[4])):
        verdict = refused(pair.owner, frame)
        assert isinstance(verdict, Passed)
        assert verdict.seq == seq
    assert isinstance(refused(pair.owner, frames[3]), Duplicate)


def test_a_tolerant_reader_passes_exactly_the_forward_limit() -> None:
    pair = Pair(read=ReadPolicy(tolerant=True, forward_limit=10))
    pair.owner.open_many(pair.send(*[b"m"] * 7))
    frames = pair.send(*[b"m"] * 12)
    verdict = refused(pair.owner, frames[11])
    assert isinstance(verdict, GapTooWide)
    assert (verdict.first, verdict.last, verdict.limit) == (8, 18, 10)
    opened = pair.owner.open(frames[10])
    assert isinstance(opened, Message)
    assert opened.missing == range(8, 18)


def test_a_missing_update_is_an_epoch_gap_even_for_a_tolerant_reader() -> None:
    pair = Pair(read=ReadPolicy(tolerant=True))
    pair.send(b"1")
    pair.update()
    pair.update()
    [frame] = pair.send(b"2")
    verdict = refused(pair.owner, frame)
    assert isinstance(verdict, EpochGap)
    assert (verdict.first, verdict.last, verdict.epoch, verdict.current) == (1, 3, 2, 0)


def test_an_epoch_that_does_not_fit_the_number_is_a_wrong_epoch() -> None:
    pair = Pair()
    pair.owner.open(pair.update())
    [frame] = pair.send(b"1")
    for epoch, seq in ((0, 2), (0, 9), (5, 2)):
        verdict = refused(pair.owner, pack_header(FrameType.DATA, 1, epoch, seq) + frame[16:])
        assert isinstance(verdict, WrongEpoch)
        assert (verdict.seq, verdict.epoch, verdict.expected) == (seq, epoch, 1)


def test_nothing_but_init_opens_before_init() -> None:
    pair = Pair(initialised=False)
    [data] = pair.send(b"1")
    verdict = refused(pair.owner, data)
    assert isinstance(verdict, Gap)
    assert (verdict.first, verdict.last) == (0, 0)
    assert isinstance(refused(pair.owner, pack_header(FrameType.DATA, 1, 0, 0) + data[16:]), MalformedFrame)
    assert isinstance(refused(pair.owner, pack_header(FrameType.INIT, 1, 0, 1) + data[16:]), MalformedFrame)


def test_a_frame_sealed_under_the_empty_chain_does_not_open_before_init() -> None:
    """A machine that awaits INIT has no chain key; its placeholder must never be used as one."""
    pair = Pair(initialised=False)
    suite = SUITES[1]
    for qctx in (b"", bytes(32)):
        for chain_key in (b"", bytes(32)):
            message_key, _ = suite.kdf.step(chain_key)
            header = pack_header(FrameType.DATA, 1, 0, 0)
            frame = seal_body(suite, qctx, message_key, header, b"\0\0\0\x01x", b"")
            assert isinstance(refused(pair.owner, frame), MalformedFrame)


def test_a_second_init_is_never_taken() -> None:
    pair = Pair()
    pair.owner.open_many(pair.send(b"1"))
    _, again = Enqueuer.create(pair.request, now=0)
    assert isinstance(refused(pair.owner, again.data), Fork)
    ahead = pack_header(FrameType.INIT, 1, 0, 2) + again.data[16:]
    verdict = refused(pair.owner, ahead)
    assert isinstance(verdict, UnexpectedInit)
    assert verdict.seq == 2


def test_an_init_for_another_key_secret_or_length_does_not_open() -> None:
    pair, other = Pair(initialised=False), Pair(initialised=False)
    init = pair.frames[0].data
    assert isinstance(refused(pair.owner, other.frames[0].data), Tampered)
    assert isinstance(refused(pair.owner, init + b"\0"), MalformedFrame)
    assert isinstance(refused(pair.owner, init[:-1]), MalformedFrame)
    assert isinstance(refused(pair.owner, init[:16] + b"\0\0\0\1" + init[20:]), Tampered)
    pair.owner._join_secret = bytes(32)
    assert isinstance(refused(pair.owner, init), Tampered)


def test_a_suite_that_was_not_offered_is_refused() -> None:
    pair = Pair(0x0002, initialised=False)
    init = pair.frames[0].data
    verdict = refused(pair.owner, pack_header(FrameType.INIT, 1, 0, 0) + init[16:])
    assert isinstance(verdict, WrongSuite)
    assert (verdict.suite, verdict.expected) == (1, (2,))
    pair.owner.open(init)
    [frame] = pair.send(b"1")
    assert isinstance(refused(pair.owner, pack_header(FrameType.DATA, 3, 0, 1) + frame[16:]), WrongSuite)


def test_unknown_versions_types_suites_and_numbers_are_named() -> None:
    pair = Pair()
    [frame] = pair.send(b"1")
    version = refused(pair.owner, b"\x02" + frame[1:])
    assert isinstance(version, UnknownVersion)
    assert version.version == 2
    type_ = refused(pair.owner, frame[:1] + b"\x09" + frame[2:])
    assert isinstance(type_, UnknownType)
    assert type_.type == 9
    suite = refused(pair.owner, frame[:2] + b"\x77\x77" + frame[4:])
    assert isinstance(suite, UnknownSuite)
    assert suite.suite == 0x7777
    for seq in (SEQ_LIMIT, 1 << 63, (1 << 64) - 1):
        huge = refused(pair.owner, frame[:8] + seq.to_bytes(8, "big") + frame[16:])
        assert isinstance(huge, MalformedFrame)
        assert str(seq) in str(huge)
    assert isinstance(refused(pair.owner, pair.service.head(bytes(16))), MalformedFrame)


def test_a_frame_cut_short_anywhere_is_refused() -> None:
    pair = Pair()
    [frame] = pair.send(b"message")
    for length in range(len(frame)):
        verdict = refused(pair.owner, frame[:length])
        assert isinstance(verdict, MalformedFrame if length < 44 else Tampered)
    assert isinstance(refused(pair.owner, frame + bytes(FRAME_LIMIT)), MalformedFrame)
    assert pair.owner.open(frame) == Message(1, 0, b"message")


def test_an_epoch_ends_at_its_cap_for_the_reader_too() -> None:
    pair = Pair(read=ReadPolicy(tolerant=True, forward_limit=EPOCH_CAP - 1))
    frames = pair.send(*[b""] * (EPOCH_CAP - 1))
    pair.owner.open_many(frames[:-1])
    data = pack_header(FrameType.DATA, 1, 0, EPOCH_CAP) + frames[0][16:]
    update = pack_header(FrameType.UPDATE, 1, 0, EPOCH_CAP + 1) + frames[0][16:]
    assert isinstance(refused(pair.owner, data), MalformedFrame)
    assert isinstance(refused(pair.owner, update), MalformedFrame)
    pair.owner.open(frames[-1])
    assert isinstance(refused(pair.owner, data), MalformedFrame)
    with pytest.raises(MisuseError, match="the UPDATE: reset"):
        pair.owner.discard(EPOCH_CAP)
    assert pair.owner.open(pair.update()) == Updated(EPOCH_CAP, 1, 0)


def test_authentic_frames_of_a_faulty_service_are_malformed_and_can_be_discarded() -> None:
    pair = Pair()
    suite, qctx = pair.owner.suite, pair.owner._qctx
    update_size = 40 + 80
    for type_, body in (
        (FrameType.DATA, b""),
        (FrameType.DATA, b"\0\0\0"),
        (FrameType.DATA, b"\0\0\0\x05four"),
        (FrameType.DATA, b"\xff\xff\xff\xff"),
        (FrameType.UPDATE, b"short"),
        (FrameType.UPDATE, bytes(update_size)),
    ):
        seq = pair.owner.next_seq
        message_key, _ = suite.kdf.step(pair.owner._chain_key)
        frame = seal_body(suite, qctx, message_key, pack_header(type_, 1, 0, seq), body, b"")
        assert isinstance(refused(pair.owner, frame), MalformedFrame)
        pair.owner.discard(seq)
    assert pair.owner.discarded == (1, 2, 3, 4, 5, 6)


def test_an_update_with_foreign_randomness_or_a_false_confirmation_is_refused() -> None:
    pair = Pair()
    suite, qctx = pair.owner.suite, pair.owner._qctx
    message_key, _ = suite.kdf.step(pair.owner._chain_key)
    frame = pair.update()
    body = suite.aead(message_key).decrypt(frame[16:28], frame[28:], qctx + frame[:16])
    for place, verdict in ((8, Tampered), (60, MissingKey)):  # The confirmation, and the sealed randomness.
        forged = body[:place] + bytes([body[place] ^ 1]) + body[place + 1 :]
        assert isinstance(refused(pair.owner, seal_body(suite, qctx, message_key, frame[:16], forged, b"")), verdict)
    assert pair.owner.open(frame) == Updated(1, 1, 0)


def test_an_update_to_a_key_that_is_not_held_names_the_key() -> None:
    pair = Pair()
    before_offer = pair.owner.dump()
    update = pair.offer()
    restored = Dequeuer.load(before_offer)
    verdict = refused(restored, update)
    assert isinstance(verdict, MissingKey)
    assert (verdict.seq, verdict.key_id) == (1, 1)
    assert pair.owner.open(update) == Updated(1, 1, 1)


def test_the_last_epoch_has_no_update() -> None:
    pair = Pair()
    pair.service._epoch = pair.owner._epoch = EPOCH_LIMIT - 1
    frame = pack_header(FrameType.UPDATE, 1, EPOCH_LIMIT - 1, 1) + bytes(200)
    assert isinstance(refused(pair.owner, frame), MalformedFrame)
