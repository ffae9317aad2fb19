"""The service's side: what it seals, when it updates, what it refuses."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qsratchet import (
    EPOCH_CAP,
    MESSAGE_LIMIT,
    SUITES,
    UNPADDED,
    CreationRequest,
    DecodeError,
    Dequeuer,
    Enqueuer,
    FrameType,
    KeyOffer,
    KeyRejected,
    LimitExceeded,
    Message,
    MisuseError,
    OfferRejected,
    Padding,
    Tampered,
    Updated,
    UpdatePolicy,
    header_of,
)
from qsratchet.queue.frames import AAD_LIMIT, EPOCH_LIMIT, SEQ_LIMIT
from tests.queue.pair import Pair, bodies


@pytest.mark.parametrize("suite", SUITES)
def test_what_is_enqueued_is_what_the_owner_reads_in_every_suite(suite: int) -> None:
    pair = Pair(suite)
    sent = [b"", b"a", b"x" * 5_000]
    frames = pair.send(*sent)
    assert bodies(pair.owner.open_many(frames)) == sent
    assert not any(message and message in frame for message in sent[2:] for frame in frames)


def test_the_first_frame_is_init_at_number_zero() -> None:
    pair = Pair()
    init = pair.frames[0]
    assert (init.seq, init.type) == (0, FrameType.INIT)
    assert header_of(init.data) == (FrameType.INIT, 1, 0, 0)
    assert pair.service.next_seq == 1


def test_the_service_takes_the_first_suite_that_it_accepts_and_passes_over_unknown_ones() -> None:
    owner, request = Dequeuer.create(b"s", b"q", suites=(0x0003, 0x0002))
    service, init = Enqueuer.create(request, now=0, suites=(0x0002,))
    assert service.suite.id == 0x0002
    owner.open(init.data)
    assert owner.suite.id == 0x0002
    newer = CreationRequest(b"s", b"q", (0x7777, 0x0002), request.public_key, request.join_secret)
    assert Enqueuer.create(newer.encode(), now=0)[0].suite.id == 0x0002


def test_a_request_with_no_acceptable_suite_is_refused() -> None:
    _, request = Dequeuer.create(b"s", b"q")
    with pytest.raises(DecodeError, match="none of them is accepted"):
        Enqueuer.create(request, now=0, suites=(0x0001,))


def test_an_update_by_count_stands_before_the_message_that_makes_it_due() -> None:
    pair = Pair(update=UpdatePolicy(frames=3, seconds=None))
    types = ["".join(frame.type.name[0] for frame in pair.service.enqueue(b"m", now=0)) for _ in range(7)]
    assert types == ["D", "D", "D", "UD", "D", "D", "UD"]
    assert pair.service.epoch == 2


def test_an_update_by_age_counts_from_the_last_update_on_the_callers_clock() -> None:
    pair = Pair(update=UpdatePolicy(frames=None, seconds=60))
    seen = [[frame.type for frame in pair.service.enqueue(b"m", now=now)] for now in (0, 59, 60, 61, 119, 120)]
    due = [FrameType.UPDATE, FrameType.DATA]
    assert seen == [[FrameType.DATA], [FrameType.DATA], due, [FrameType.DATA], [FrameType.DATA], due]


def test_a_clock_that_goes_back_is_no_reason_for_an_update() -> None:
    pair = Pair(update=UpdatePolicy(frames=None, seconds=60))
    pair.update(now=1_000)
    assert [frame.type for frame in pair.service.enqueue(b"m", now=941)] == [FrameType.DATA]


def test_a_clock_that_was_far_ahead_once_does_not_switch_updates_off() -> None:
    pair = Pair(update=UpdatePolicy(frames=None, seconds=60))
    pair.update(now=1_700_000_000_000)
    assert [frame.type for frame in pair.service.enqueue(b"m", now=1_700_000_000)] == [FrameType.UPDATE, FrameType.DATA]
    assert [frame.type for frame in pair.service.enqueue(b"m", now=1_700_000_001)] == [FrameType.DATA]


@pytest.mark.parametrize("now", [1.5, None, "1"])
def test_a_clock_counts_whole_seconds(now: Any) -> None:
    pair = Pair(update=UpdatePolicy(frames=None, seconds=60))
    before = pair.service.dump()
    for call in (pair.service.update, lambda now: pair.service.enqueue(b"m", now=now)):
        with pytest.raises(TypeError):
            call(now=now)
    with pytest.raises(TypeError):
        Enqueuer.create(pair.request, now=now)
    assert pair.service.dump() == before


@pytest.mark.parametrize("aad", [None, 0, "", "text"])
def test_associated_data_that_is_not_bytes_is_refused_and_never_dropped(aad: object) -> None:
    pair = Pair()
    for call in (lambda: pair.service.enqueue(b"m", now=0, aad=aad), lambda: pair.owner.open(b"", aad=aad)):  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            call()
    [frame] = pair.service.enqueue(b"m", now=0, aad=memoryview(b"\0"))
    assert isinstance(pair.owner.open_many([frame.data])[0], Tampered)


def test_no_policy_lets_an_epoch_grow_over_the_cap() -> None:
    pair = Pair(update=UpdatePolicy(frames=None, seconds=None))
    frames = pair.service.enqueue_many([b""] * (EPOCH_CAP + 1), now=0)
    updates = [frame.seq for frame in frames if frame.type is FrameType.UPDATE]
    assert updates == [EPOCH_CAP]
    results = pair.owner.open_many([frame.data for frame in frames])
    assert sum(isinstance(result, Message) for result in results) == EPOCH_CAP + 1
    assert Updated(EPOCH_CAP, 1, 0) in results


def test_a_batch_has_its_updates_where_single_calls_have_them() -> None:
    policy = UpdatePolicy(frames=4, seconds=None)
    one, many = Pair(update=policy), Pair(update=policy)
    single = [frame for _ in range(19) for frame in one.service.enqueue(b"m", now=5)]
    batch = many.service.enqueue_many([b"m"] * 19, now=5)
    assert [(frame.seq, frame.type) for frame in single] == [(frame.seq, frame.type) for frame in batch]
    assert bodies(many.owner.open_many([frame.data for frame in batch])) == [b"m"] * 19


def test_an_empty_batch_changes_nothing() -> None:
    pair = Pair()
    before = pair.service.dump()
    assert pair.service.enqueue_many([], now=0) == []
    assert pair.service.dump() == before


def test_an_explicit_update_begins_the_next_epoch() -> None:
    pair = Pair()
    assert pair.owner.open(pair.update()) == Updated(1, 1, 0)
    assert pair.service.epoch == pair.owner.epoch == 1


def test_an_offer_is_followed_by_an_update_to_the_new_key_at_once() -> None:
    pair = Pair()
    assert pair.owner.open(pair.offer()) == Updated(1, 1, 1)
    assert pair.service.key_id == pair.owner.key_id == 1


def test_an_offer_that_is_in_force_can_be_sent_again() -> None:
    pair = Pair()
    offer = pair.owner.offer_key().encode()
    assert len(pair.service.accept_offer(offer, now=0)) == 1
    before = pair.service.dump()
    assert pair.service.accept_offer(offer, now=0) == []
    assert pair.service.dump() == before


def test_stale_skipping_and_foreign_offers_are_refused_and_change_nothing() -> None:
    pair, other = Pair(), Pair(queue_id=b"another")
    first = pair.owner.offer_key()
    pair.owner.open(pair.service.accept_offer(first, now=0)[0].data)
    pair.owner.open(pair.offer())
    before = pair.service.dump()
    with pytest.raises(OfferRejected, match="stale"):
        pair.service.accept_offer(first, now=0)
    third = pair.owner.offer_key()
    with pytest.raises(OfferRejected, match="the next one is 3"):
        pair.service.accept_offer(KeyOffer(third.suite, third.qctx, 5, third.public_key), now=0)
    with pytest.raises(OfferRejected, match="another queue"):
        pair.service.accept_offer(other.owner.offer_key(), now=0)
    with pytest.raises(OfferRejected, match="another queue"):
        pair.service.accept_offer(KeyOffer(2, third.qctx, 3, third.public_key), now=0)
    with pytest.raises(KeyRejected):
        pair.service.accept_offer(KeyOffer(third.suite, third.qctx, 3, b"short"), now=0)
    with pytest.raises(KeyRejected):
        pair.service.accept_offer(KeyOffer(third.suite, third.qctx, 3, bytes(32)), now=0)
    assert pair.service.dump() == before


@pytest.mark.parametrize("suite", SUITES)
def test_a_malformed_or_low_order_public_key_creates_no_queue(suite: int) -> None:
    _, request = Dequeuer.create(b"s", b"q", suites=(suite,))
    size = len(request.public_key)
    low_order = request.public_key[:-32] + bytes.fromhex(
        "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"
    )
    malformed = [b"", request.public_key[:-1], request.public_key + b"\0", bytes(size), low_order]
    if size > 32:
        malformed.append(b"\xff" * 1184 + request.public_key[-32:])  # Coefficients over the modulus of ML-KEM.
    for key in malformed:
        bad = CreationRequest(b"s", b"q", (suite,), key, request.join_secret)
        with pytest.raises(KeyRejected):
            Enqueuer.create(bad, now=0)


def test_a_message_over_the_limit_is_refused_and_one_at_the_limit_is_not() -> None:
    pair = Pair()
    before = pair.service.dump()
    for call in (pair.service.enqueue, lambda message, now: pair.service.enqueue_many([b"", message], now=now)):
        with pytest.raises(LimitExceeded) as caught:
            call(bytes(MESSAGE_LIMIT + 1), now=0)
        assert (caught.value.size, caught.value.limit) == (MESSAGE_LIMIT + 1, MESSAGE_LIMIT)
    assert pair.service.dump() == before
    [frame] = pair.service.enqueue(bytes(MESSAGE_LIMIT), now=0)
    opened = pair.owner.open(frame.data)
    assert isinstance(opened, Message)
    assert len(opened.body) == MESSAGE_LIMIT


def test_associated_data_is_authenticated_and_bounded() -> None:
    pair = Pair()
    [frame] = pair.service.enqueue(b"m", now=0, aad=b"context")
    with pytest.raises(Exception, match="does not authenticate"):
        pair.owner.open(frame.data)
    assert pair.owner.open(frame.data, aad=bytearray(b"context")) == Message(1, 0, b"m")
    with pytest.raises(LimitExceeded):
        pair.service.enqueue(b"m", now=0, aad=bytes(AAD_LIMIT + 1))


@pytest.mark.parametrize("now", [-1, 1 << 63])
def test_a_clock_outside_its_range_is_refused(now: int) -> None:
    pair = Pair()
    before = pair.service.dump()
    for call in (pair.service.update, lambda now: pair.service.enqueue(b"m", now=now)):
        with pytest.raises(MisuseError, match="seconds"):
            call(now=now)
    assert pair.service.dump() == before
    with pytest.raises(MisuseError):
        Enqueuer.create(pair.request, now=now)


def test_a_queue_ends_before_its_numbers_or_epochs_overflow() -> None:
    pair = Pair()
    pair.service._next = pair.service._first = SEQ_LIMIT - 1
    before = pair.service.dump()
    for call in (pair.service.update, lambda now: pair.service.enqueue(b"m", now=now)):
        with pytest.raises(LimitExceeded, match="create a new queue"):
            call(now=0)
    assert pair.service.dump() == before
    pair.service._next = pair.service._first = 1
    pair.service._epoch = EPOCH_LIMIT - 1
    with pytest.raises(LimitExceeded, match="epoch"):
        pair.service.update(now=0)


def test_a_request_without_a_whole_join_secret_cannot_be_made() -> None:
    _, request = Dequeuer.create(b"s", b"q")
    with pytest.raises(MisuseError, match="join secret"):
        CreationRequest(b"s", b"q", (2,), request.public_key, b"short")


@pytest.mark.parametrize("size", [15, 65])
def test_a_nonce_for_a_head_has_sixteen_to_sixty_four_bytes(size: int) -> None:
    with pytest.raises(MisuseError, match="16 to 64"):
        Pair().service.head(bytes(size))


@given(length=st.integers(0, 1 << 20))
def test_padme_adds_at_most_an_eighth_and_hides_the_low_bits(length: int) -> None:
    total = length + 4
    size = Padding().size_of(total)
    assert total <= size <= total + total // 8 + 1
    exponent = total.bit_length() - 1
    assert size % (1 << max(exponent - exponent.bit_length(), 0)) == 0


@given(length=st.integers(0, 40_000))
def test_buckets_give_the_smallest_that_fits_or_a_multiple_of_the_largest(length: int) -> None:
    size = Padding((256, 1024, 4096)).size_of(length)
    expected = next((bucket for bucket in (256, 1024, 4096) if length <= bucket), -(-length // 4096) * 4096)
    assert size == expected


@settings(max_examples=30)
@given(lengths=st.lists(st.integers(0, 3000), min_size=1, max_size=6), buckets=st.sampled_from([(), (1,), (64, 2048)]))
def test_the_reader_needs_not_know_how_the_service_pads(lengths: list[int], buckets: tuple[int, ...]) -> None:
    pair = Pair()
    service = Enqueuer.load(pair.service.dump(), padding=Padding(buckets))
    sent = [b"m" * length for length in lengths]
    frames = [frame.data for frame in service.enqueue_many(sent, now=0)]
    assert [len(frame) - 44 for frame in frames] == [Padding(buckets).size_of(length + 4) for length in lengths]
    assert bodies(pair.owner.open_many(frames)) == sent


def test_unpadded_frames_have_an_overhead_of_48_bytes() -> None:
    service = Enqueuer.load(Pair().service.dump(), padding=UNPADDED)
    assert len(service.enqueue(b"x" * 1000, now=0)[0].data) == 1000 + 48


@pytest.mark.parametrize("buckets", [(0,), (2, 1), (5, 5), (1 << 21,)])
def test_impossible_buckets_are_refused(buckets: tuple[int, ...]) -> None:
    with pytest.raises(MisuseError):
        Padding(buckets)


@pytest.mark.parametrize(("frames", "seconds"), [(0, None), (EPOCH_CAP, None), (None, 0)])
def test_impossible_update_policies_are_refused(frames: int | None, seconds: int | None) -> None:
    with pytest.raises(MisuseError):
        UpdatePolicy(frames=frames, seconds=seconds)


def test_any_bytes_like_object_is_a_message() -> None:
    pair = Pair()
    source = bytearray(b"message")
    frames = [
        *pair.service.enqueue(source, now=0),
        *pair.service.enqueue(memoryview(source)[2:5], now=0),
        *pair.service.enqueue_many([source, memoryview(b"m")], now=0),
    ]
    assert bodies(pair.owner.open_many([memoryview(frame.data) for frame in frames])) == [
        b"message",
        b"ssa",
        b"message",
        b"m",
    ]
    for wrong in ("text", 7, None):
        with pytest.raises(TypeError):
            pair.service.enqueue(wrong, now=0)  # type: ignore[arg-type]
