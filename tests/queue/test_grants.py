"""Grants: they open what they grant and nothing else, whichever way they were made."""

from __future__ import annotations

import pytest

from qsratchet import (
    EPOCH_CAP,
    SUITES,
    Dequeuer,
    Duplicate,
    EpochGap,
    FrameRejected,
    FrameType,
    Gap,
    Grant,
    GrantWalk,
    Head,
    HeadAhead,
    HeadRejected,
    Initialised,
    MalformedFrame,
    Message,
    MissingKey,
    MisuseError,
    OutsideGrant,
    OwnerKeys,
    RolledBack,
    StateError,
    Tampered,
    UnexpectedInit,
    Updated,
    UpdatePolicy,
    WrongEpoch,
    WrongSuite,
    derive_grants,
)
from qsratchet.codec import Kind, document, lv, u16
from qsratchet.queue.frames import pack_header
from qsratchet.queue.grants import MARK_STEP
from tests.queue.pair import Pair, bodies


def long_pair(suite: int = 1) -> Pair:
    """A queue of several epochs with an offer in the middle."""
    pair = Pair(suite, update=UpdatePolicy(frames=5, seconds=None))
    pair.send(*[b"a%d" % number for number in range(12)])
    pair.offer()
    pair.send(*[b"b%d" % number for number in range(8)])
    return pair


@pytest.mark.parametrize("suite", SUITES)
def test_grants_derived_from_control_frames_are_those_that_the_owner_issues_while_reading(suite: int) -> None:
    pair = long_pair(suite)
    control = [frame.data for frame in pair.frames if frame.type is not FrameType.DATA]
    derived = list(derive_grants(control, pair.keys))
    issued = [pair.owner.grant()]
    issued += [pair.owner.grant() for frame in pair.frames[1:] if isinstance(pair.owner.open(frame.data), Updated)]
    assert [grant.encode() for grant in derived] == [grant.encode() for grant in issued]
    assert len(derived) == pair.service.epoch + 1
    assert list(derive_grants([frame.data for frame in pair.frames], pair.keys)) == derived


def test_each_grant_opens_exactly_its_epoch() -> None:
    pair = long_pair()
    frames = [frame.data for frame in pair.frames]
    read = pair.owner.open_many(frames[1:])
    for grant in derive_grants(frames, pair.keys):
        results = Grant.decode(grant.encode()).open_many(frames)
        assert len(results) == len(frames)
        for seq, (result, truth) in enumerate(zip(results[1:], read, strict=True), 1):
            epoch = truth.epoch - isinstance(truth, Updated)  # type: ignore[union-attr]
            if epoch == grant.epoch:
                assert result == truth
            else:
                assert isinstance(result, OutsideGrant)
                assert (result.seq, result.epoch) == (seq, epoch)
        assert (results[0] == Initialised(0, 1)) == (grant.epoch == 0)


def test_a_grant_from_the_middle_of_an_epoch_opens_nothing_before_it() -> None:
    pair = Pair()
    frames = pair.send(b"1", b"2", b"3", b"4")
    pair.owner.open_many(frames[:2])
    grant = pair.owner.grant()
    assert (grant.epoch, grant.first_seq) == (0, 3)
    results = grant.open_many([pair.frames[0].data, *frames])
    assert [type(result) for result in results] == [OutsideGrant] * 3 + [Message] * 2
    for seq in (1, 2, 3 + EPOCH_CAP):
        with pytest.raises(MisuseError):
            grant.chain_key(seq)


def test_a_narrowed_grant_is_the_one_that_the_owner_would_have_issued_there() -> None:
    pair = Pair()
    whole = pair.owner.grant()
    frames = pair.send(b"1", b"2", b"3")
    pair.owner.open_many(frames[:2])
    narrowed = whole.narrow(3)
    assert narrowed == pair.owner.grant()
    assert bodies(narrowed.open_many(frames[2:])) == [b"3"]
    with pytest.raises(OutsideGrant):
        narrowed.open(frames[1])
    with pytest.raises(MisuseError, match="from 3 on"):
        narrowed.narrow(2)


def test_a_grant_opens_frames_in_any_order_and_again() -> None:
    pair = Pair()
    frames = pair.send(*[b"%d" % number for number in range(3 * MARK_STEP)])
    grant = pair.owner.grant()
    order = [5, 2 * MARK_STEP + 7, 6, 7, 0, 3 * MARK_STEP - 1, MARK_STEP, MARK_STEP - 1, 2 * MARK_STEP + 8, 5]
    assert [grant.open(frames[place]) for place in order] == [Message(place + 1, 0, b"%d" % place) for place in order]
    assert bodies(grant.open_many(reversed(frames[:50]))) == [b"%d" % place for place in reversed(range(50))]


def test_a_bad_frame_costs_a_grant_only_that_frame() -> None:
    pair = Pair()
    frames = pair.send(*[b"%d" % number for number in range(6)])
    frames[2] = frames[2][:-1] + bytes([frames[2][-1] ^ 1])
    frames.insert(4, b"")
    results = pair.owner.grant().open_many(frames, aad=b"")
    assert [type(result) for result in results] == [
        Message,
        Message,
        Tampered,
        Message,
        MalformedFrame,
        Message,
        Message,
    ]


def test_a_grant_refuses_frames_of_another_queue_suite_or_kind() -> None:
    pair, other = Pair(), Pair(queue_id=b"another")
    grant = pair.owner.grant()
    with pytest.raises(Tampered):
        grant.open(other.send(b"m")[0])
    with pytest.raises(Tampered):
        grant.open(other.frames[0].data)
    with pytest.raises(WrongSuite):
        grant.open(Pair(2).send(b"m")[0])
    with pytest.raises(MalformedFrame):
        grant.open(pair.service.head(bytes(16)))


def test_a_grant_opens_an_update_as_far_as_its_epoch_reaches() -> None:
    pair = Pair()
    grant = pair.owner.grant()
    update = pair.update()
    after = pair.send(b"after")[0]
    assert grant.open(update) == Updated(1, 1, 0)
    with pytest.raises(OutsideGrant):
        grant.open(after)
    lowered = pack_header(FrameType.DATA, 1, 0, 2) + after[16:]
    with pytest.raises(Tampered):
        grant.open(lowered)


def test_a_grant_checks_a_head_of_its_epoch() -> None:
    pair = Pair()
    grant = pair.owner.grant()
    pair.send(b"1", b"2")
    nonce, head = pair.head()
    assert grant.verify_head(head, nonce, next_seq=2) == Head(3, 0, range(2, 3))
    with pytest.raises(HeadRejected, match="does not authenticate"):
        grant.verify_head(head, bytes(16), next_seq=2)
    with pytest.raises(RolledBack):
        grant.verify_head(head, nonce, next_seq=4)
    pair.update()
    nonce, head = pair.head()
    with pytest.raises(HeadAhead):
        grant.verify_head(head, nonce, next_seq=2)


def test_a_grant_that_claims_other_ids_opens_nothing() -> None:
    pair = Pair()
    frames = [pair.frames[0].data, *pair.send(b"1")]
    grant = pair.owner.grant()
    assert grant.open(frames[1]) == Message(1, 0, b"1")
    for service_id, queue_id in ((b"service", b"mallory"), (b"other", b"queue")):
        relabelled = Grant.decode(grant.encode())
        relabelled.service_id, relabelled.queue_id = service_id, queue_id
        results = Grant.decode(relabelled.encode()).open_many(frames)
        assert [type(result) for result in results] == [Tampered, Tampered]


def test_a_grant_holds_no_private_key_and_no_join_secret() -> None:
    pair = long_pair()
    blobs = b"".join(grant.encode() for grant in derive_grants([f.data for f in pair.frames], pair.keys))
    for key in pair.keys._keys.values():
        assert key.seed not in blobs
    assert pair.request.join_secret not in blobs


def test_a_walk_refuses_what_does_not_fit_and_goes_on() -> None:
    pair = long_pair()
    control = [frame.data for frame in pair.frames if frame.type is not FrameType.DATA]
    walk = GrantWalk(pair.keys)
    assert repr(walk).startswith("<GrantWalk queue=7175657565 keys=0,1")

    def refuses(frame: bytes, verdict: type[FrameRejected]) -> None:
        with pytest.raises(verdict):
            walk.open(frame)

    refuses(control[1], Gap)
    refuses(pack_header(FrameType.INIT, 3, 0, 0) + control[0][16:], WrongSuite)
    refuses(control[0][:-1] + b"?", Tampered)
    assert walk.open(control[0]).epoch == 0
    refuses(control[0], UnexpectedInit)
    refuses(control[2], EpochGap)
    refuses(pack_header(FrameType.UPDATE, 1, 1, 1) + control[1][16:], WrongEpoch)
    refuses(pack_header(FrameType.UPDATE, 1, 0, 6), MalformedFrame)
    refuses(pack_header(FrameType.UPDATE, 3, 0, 6) + control[1][16:], WrongSuite)
    refuses(pack_header(FrameType.UPDATE, 1, 0, 5) + control[1][16:], Tampered)
    refuses(pack_header(FrameType.UPDATE, 1, 0, EPOCH_CAP + 1) + control[1][16:], WrongEpoch)
    assert walk.open(control[1]).epoch == 1
    assert "epoch=1" in repr(walk)
    for frame in (pair.frames[1].data, pair.service.head(bytes(16))):
        with pytest.raises(MalformedFrame, match="INIT and UPDATE"):
            walk.open(frame)


def test_a_walk_without_the_keys_of_an_offer_stops_there_and_says_which_key() -> None:
    pair = Pair()
    only_first = pair.keys
    pair.send(b"1")
    pair.offer()
    walk = derive_grants([frame.data for frame in pair.frames], only_first)
    assert next(walk).epoch == 0
    with pytest.raises(MissingKey) as caught:
        next(walk)
    assert caught.value.key_id == 1


def test_a_walk_needs_the_keys_of_creation() -> None:
    pair = Pair()
    with pytest.raises(MisuseError, match="join secret"):
        GrantWalk(pair.owner.owner_keys())


def test_owner_keys_merge_and_serialise() -> None:
    pair = long_pair()
    keys = OwnerKeys.decode(pair.keys.encode())
    assert keys.encode() == pair.keys.encode()
    assert keys.key_ids == (0, 1)
    later = pair.owner.owner_keys()
    assert later.merge(keys).encode() == keys.encode()
    with pytest.raises(MisuseError, match="different queues"):
        keys.merge(Pair(queue_id=b"another").keys)
    with pytest.raises(MisuseError, match="reset between"):
        keys.merge(Pair().keys)


def test_damaged_grants_and_keys_are_refused() -> None:
    pair = Pair()
    for blob, decode in ((pair.owner.grant().encode(), Grant.decode), (pair.keys.encode(), OwnerKeys.decode)):
        for place in range(len(blob)):
            with pytest.raises(StateError):
                decode(blob[:place] + bytes([blob[place] ^ 1]) + blob[place + 1 :])
            with pytest.raises(StateError):
                decode(blob[:place])
    ids = lv(b"s") + lv(b"q")
    key = bytes(36)
    for body in (
        u16(0x7777) + bytes(12) + bytes(64) + ids + b"\1\0\1",
        u16(1) + bytes(12) + bytes(64) + ids + b"\1\0\1",
        u16(1) + bytes(11) + b"\1" + bytes(64) + ids + b"\1\0\1?",
        u16(1) + bytes(11) + b"\1" + bytes(64) + ids,
        u16(1) + bytes(11) + b"\1" + bytes(64) + lv(b"") + lv(b"q") + b"\1\0\1",
    ):
        with pytest.raises(StateError):
            Grant.decode(document(Kind.GRANT, 1, body))
    for body in (
        ids + b"\1\x77\x77" + b"\0" + u16(0),
        ids + b"\0" + b"\0" + u16(0),
        ids + b"\1\0\1" + b"\2" + u16(0),
        ids + b"\1\0\1" + b"\0" + u16(2) + key + key,
    ):
        with pytest.raises(StateError):
            OwnerKeys.decode(document(Kind.OWNER_KEYS, 1, body))


def test_reading_leaves_no_grant_behind() -> None:
    pair = long_pair()
    chain_keys = [grant.chain_key(grant.first_seq) for grant in derive_grants([f.data for f in pair.frames], pair.keys)]
    pair.read_all()
    assert not any(key in pair.owner.dump() for key in chain_keys[:-1])
    assert isinstance(pair.owner.open_many([pair.frames[-1].data])[0], Duplicate)
    assert Dequeuer.load(pair.owner.dump()).grant() == pair.owner.grant()
    assert pair.owner.grant() != "grant"
