"""The owner's side apart from reading on: giving a frame up, keys, heads, acknowledging, beginning anew, arguments."""

from __future__ import annotations

import pytest

from qsratchet import (
    EPOCH_CAP,
    Dequeuer,
    Duplicate,
    Enqueuer,
    EpochGap,
    Fork,
    Gap,
    Head,
    HeadAhead,
    HeadRejected,
    Initialised,
    LimitExceeded,
    Message,
    MissingKey,
    MisuseError,
    Passed,
    ReadPolicy,
    RolledBack,
    Tampered,
)
from qsratchet.queue.dequeuer import DISCARD_LIMIT
from tests.queue.pair import Pair, bodies, refused


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


def test_the_last_frame_that_was_read_is_fetched_again_and_shows_a_service_that_overtook_its_reader() -> None:
    pair = Pair(initialised=False)
    assert pair.owner.fetch_from == 0
    pair.owner.open(pair.frames[0].data)
    backup = pair.service.dump()
    pair.owner.open_many(pair.send(b"1", b"2"))
    assert pair.owner.fetch_from == 0
    pair.restart_owner()
    assert pair.owner.fetch_from == 2
    assert isinstance(refused(pair.owner, pair.frames[2].data), Duplicate)
    # The restored service takes the same steps along the chain, so its next frame and its head tell nothing.
    pair.service = Enqueuer.load(backup)
    lost = pair.send(b"lost 1", b"lost 2", b"3")
    assert isinstance(refused(pair.owner, lost[pair.owner.fetch_from - 1]), Fork)
    assert pair.owner.open(lost[2]) == Message(3, 0, b"3")
    nonce, head = pair.head()
    assert not pair.owner.verify_head(head, nonce).missing


def test_a_discarded_frame_that_is_fetched_again_is_passed_whatever_it_is_and_the_head_shows_who_is_behind() -> None:
    pair = Pair()
    backup = pair.service.dump()
    [given_up] = pair.send(b"given up")
    pair.owner.discard(1)
    pair.restart_owner()
    assert pair.owner.fetch_from == 1
    assert isinstance(refused(pair.owner, given_up), Passed)
    nonce, head = pair.head()
    assert not pair.owner.verify_head(head, nonce).missing
    pair.service = Enqueuer.load(backup)
    nonce, head = pair.head()
    with pytest.raises(RolledBack):
        pair.owner.verify_head(head, nonce)
    # One that caught up is not found out any more: nobody knows what was under the number.
    [another] = pair.send(b"another")
    assert isinstance(refused(pair.owner, another), Passed)


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
