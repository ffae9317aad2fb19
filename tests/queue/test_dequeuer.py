"""The owner's side: each verdict, each policy, and that what is refused changes nothing."""

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
    Head,
    HeadAhead,
    HeadRejected,
    Initialised,
    LimitExceeded,
    MalformedFrame,
    Message,
    MissingKey,
    MisuseError,
    Passed,
    ReadPolicy,
    RolledBack,
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
from qsratchet.queue.dequeuer import DISCARD_LIMIT, WINDOW
from qsratchet.queue.frames import EPOCH_LIMIT, FRAME_LIMIT, SEQ_LIMIT, pack_header
from qsratchet.queue.schedule import seal_body
from tests.queue.pair import Pair, bodies


def refused(owner: Dequeuer, frame: bytes, aad: bytes = b"") -> FrameRejected:
    """The verdict on a frame, the same from the single and the batch call; the state must not move."""
    before = owner.dump()
    with pytest.raises(FrameRejected) as caught:
        owner.open(frame, aad=aad)
    [verdict] = owner.open_many([frame], aad=aad)
    assert isinstance(verdict, FrameRejected)
    assert type(verdict) is type(caught.value)
    assert str(verdict) == str(caught.value)
    assert owner.dump() == before
    return caught.value


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


def test_a_poison_frame_is_given_up_explicitly_and_recorded() -> None:
    pair = Pair()
    first, second, third = pair.send(b"1", b"2", b"3")
    pair.owner.open(first)
    assert isinstance(refused(pair.owner, second[:-1] + bytes([second[-1] ^ 1])), Tampered)
    for wrong in (1, 3):
        with pytest.raises(MisuseError, match="only the next frame, 2"):
            pair.owner.discard(wrong)
    pair.owner.discard(2)
    pair.restart_owner()
    assert pair.owner.discarded == (2,)
    assert isinstance(refused(pair.owner, second), Passed)
    assert pair.owner.open(third) == Message(3, 0, b"3")


def test_after_a_discarded_update_the_reader_says_that_an_update_is_missing() -> None:
    pair = Pair()
    pair.update()
    after = pair.send(b"after", b"later")
    pair.owner.discard(1)
    for frame in after:
        verdict = refused(pair.owner, frame)
        assert isinstance(verdict, EpochGap)
        assert "reset" in str(verdict)
        assert (verdict.epoch, verdict.current) == (1, 0)


def test_an_offer_that_was_never_persisted_ends_in_a_missing_key() -> None:
    """The owner crashed after sending it: the service has a key under an id that the owner makes anew."""
    pair = Pair()
    before = pair.owner.dump()
    update = pair.offer()
    restored = Dequeuer.load(before)
    restored.offer_key()
    verdict = refused(restored, update)
    assert isinstance(verdict, MissingKey)
    assert verdict.key_id == 1


@pytest.mark.parametrize("seq", [1.0, "1", None])
def test_only_a_whole_number_is_discarded(seq: object) -> None:
    pair = Pair()
    before = pair.owner.dump()
    with pytest.raises(TypeError):
        pair.owner.discard(seq)  # type: ignore[arg-type]
    assert pair.owner.dump() == before


def test_discards_are_bounded() -> None:
    pair = Pair()
    for seq in range(1, DISCARD_LIMIT + 1):
        pair.owner.discard(seq)
    before = pair.owner.dump()
    with pytest.raises(LimitExceeded, match="reset"):
        pair.owner.discard(DISCARD_LIMIT + 1)
    assert pair.owner.dump() == before


def test_the_old_private_key_is_deleted_with_the_first_update_to_the_new_one() -> None:
    pair = Pair()
    old = pair.owner._keys[0].seed
    to_old = pair.update()
    offer = pair.owner.offer_key()
    assert offer.encode() == pair.owner.offer_key().encode()
    pair.owner.open(to_old)
    assert old in pair.owner.dump()
    pair.owner.open(pair.service.accept_offer(offer, now=0)[0].data)
    assert pair.owner.key_id == 1
    assert old not in pair.owner.dump()
    assert pair.owner.offer_key().key_id == 2


def test_the_join_secret_is_deleted_with_init() -> None:
    pair = Pair(initialised=False)
    secret = pair.request.join_secret
    assert secret in pair.owner.dump()
    pair.owner.open(pair.frames[0].data)
    assert secret not in pair.owner.dump()


def test_key_ids_do_not_overflow() -> None:
    pair = Pair()
    pair.owner._keys = {0xFFFFFFFF: pair.owner._keys[0]}
    with pytest.raises(LimitExceeded, match="key id"):
        pair.owner.offer_key()


def test_a_head_says_that_nothing_is_missing_or_what_is() -> None:
    pair = Pair()
    pair.owner.open_many(pair.send(b"1", b"2"))
    nonce, head = pair.head()
    assert pair.owner.verify_head(head, nonce) == Head(3, 0, range(3, 3))
    pair.send(b"3", b"4")
    nonce, head = pair.head()
    assert pair.owner.verify_head(head, bytearray(nonce)).missing == range(3, 5)


def test_a_head_for_another_nonce_queue_or_number_is_refused() -> None:
    pair, other = Pair(), Pair(queue_id=b"another")
    nonce, head = pair.head()
    before = pair.owner.dump()
    for wrong_head, wrong_nonce in (
        (head, bytes(16)),
        (other.service.head(nonce), nonce),
        (head[:15] + b"\x02" + head[16:], nonce),
        (head[:-1], nonce),
        (b"", nonce),
        (pair.frames[0].data, nonce),
        (head[:2] + b"\0\x03" + head[4:], nonce),
    ):
        with pytest.raises(HeadRejected):
            pair.owner.verify_head(wrong_head, wrong_nonce)
    assert pair.owner.dump() == before


def test_a_head_behind_the_reader_is_a_rollback() -> None:
    pair = Pair()
    backup = pair.service.dump()
    pair.owner.open_many(pair.send(b"1", b"2"))
    pair.service = Enqueuer.load(backup)
    nonce, head = pair.head()
    with pytest.raises(RolledBack) as caught:
        pair.owner.verify_head(head, nonce)
    assert (caught.value.next_seq, caught.value.reader_next) == (1, 3)


def test_a_head_too_far_ahead_cannot_be_checked_and_costs_no_work() -> None:
    pair = Pair(read=ReadPolicy(forward_limit=5))
    pair.send(*[b"m"] * 5)
    nonce, head = pair.head()
    assert pair.owner.verify_head(head, nonce).missing == range(1, 6)
    pair.send(b"m")
    nonce, head = pair.head()
    with pytest.raises(HeadAhead) as caught:
        pair.owner.verify_head(head, nonce)
    assert (caught.value.next_seq, caught.value.reader_next) == (7, 1)
    pair.update()
    nonce, head = pair.head()
    with pytest.raises(HeadAhead):
        pair.owner.verify_head(head, nonce)


def test_the_number_to_acknowledge_is_the_one_that_the_last_dump_covers() -> None:
    pair = Pair()
    assert pair.owner.acknowledge == 0
    pair.owner.open_many(pair.send(b"1", b"2"))
    assert pair.owner.acknowledge == 0
    state = pair.owner.dump()
    assert pair.owner.acknowledge == 3
    pair.owner.open_many(pair.send(b"3"))
    assert pair.owner.acknowledge == 3
    assert Dequeuer.load(state).acknowledge == 3


def test_a_reset_begins_a_new_queue_and_the_old_frames_are_dead() -> None:
    pair = Pair()
    old = [pair.frames[0].data, *pair.send(b"1", b"2")]
    pair.owner.open(old[1])
    generation = pair.owner.generation
    request = pair.owner.reset()
    assert pair.owner.generation > generation
    assert pair.owner.acknowledge == 0
    assert request.join_secret != pair.request.join_secret
    assert isinstance(refused(pair.owner, old[0]), Tampered)
    assert isinstance(refused(pair.owner, old[1]), Gap)
    pair.restart_owner()
    pair.service, init = Enqueuer.create(request, now=0)
    pair.owner.open(init.data)
    assert isinstance(refused(pair.owner, old[1]), Tampered)
    assert bodies(pair.owner.open_many(pair.send(b"new"))) == [b"new"]


def test_a_reset_can_change_the_suite() -> None:
    pair = Pair(0x0001)
    request = pair.owner.reset(suites=(0x0003, 0x0002))
    pair.service, init = Enqueuer.create(request, now=0)
    assert pair.owner.open(init.data) == Initialised(0, 3)


@pytest.mark.parametrize("suites", [(), (1, 1), (0x7777,), (1, 2), tuple(range(100, 117))])
def test_suites_that_one_key_cannot_serve_are_refused(suites: tuple[int, ...]) -> None:
    with pytest.raises(MisuseError):
        Dequeuer.create(b"s", b"q", suites=suites)
    pair = Pair()
    before = pair.owner.dump()
    with pytest.raises(MisuseError):
        pair.owner.reset(suites=suites)
    assert pair.owner.dump() == before


@pytest.mark.parametrize(("service", "queue"), [(b"", b"q"), (b"s", b""), (bytes(256), b"q"), (b"s", bytes(256))])
def test_ids_have_1_to_255_bytes(service: bytes, queue: bytes) -> None:
    with pytest.raises(MisuseError, match="1 to 255"):
        Dequeuer.create(service, queue)


def test_what_needs_init_says_so() -> None:
    pair = Pair(initialised=False)
    owner = pair.owner
    for call in (
        owner.offer_key,
        owner.grant,
        lambda: owner.discard(0),
        lambda: owner.verify_head(b"", bytes(16)),
        lambda: owner.suite,
    ):
        with pytest.raises(MisuseError, match="INIT"):
            call()


@pytest.mark.parametrize("limit", [0, EPOCH_CAP])
def test_impossible_forward_limits_are_refused(limit: int) -> None:
    with pytest.raises(MisuseError):
        ReadPolicy(forward_limit=limit)
