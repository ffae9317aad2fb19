"""Stored states: compact, versioned, strict, frozen."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path

import pytest

from qsratchet import (
    SUITES,
    CreationRequest,
    DecodeError,
    Dequeuer,
    Enqueuer,
    FrameRejected,
    Grant,
    KeyOffer,
    Message,
    MisuseError,
    OwnerKeys,
    StateError,
    UpdatePolicy,
)
from qsratchet.codec import Kind, Reader, as_bytes, document, lv, u8, u16, u32, u64
from qsratchet.crypto import kem
from qsratchet.errors import LimitExceeded
from tests.queue.pair import Pair

FROZEN = Path(__file__).parent / "frozen_v1.json"


@pytest.mark.parametrize("suite", SUITES)
def test_a_machine_goes_on_from_its_dump_as_if_nothing_happened(suite: int) -> None:
    pair = Pair(suite, update=UpdatePolicy(frames=2, seconds=None), initialised=False)
    for number in range(9):
        pair.restart_service()
        pair.send(b"%d" % number)
        if number == 4:
            pair.restart_owner()
            pair.read_all()
            pair.offer()
    read = []
    for frame in pair.frames[pair.owner.next_seq :]:
        pair.restart_owner()
        opened = pair.owner.open(frame.data)
        read += [opened.body] if isinstance(opened, Message) else []
    assert read == [b"%d" % number for number in range(5, 9)]


@pytest.mark.parametrize(("suite", "limit"), [(1, 256), (2, 1600), (3, 1600), (4, 1600)])
def test_an_enqueuers_blob_stays_small(suite: int, limit: int) -> None:
    assert len(Pair(suite).service.dump()) < limit


def test_loading_parses_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Pair(2)
    pair.owner.offer_key()
    service, owner = pair.service.dump(), pair.owner.dump()

    def parsed(*_: object) -> None:
        raise AssertionError("a key was parsed")

    for name in ("MLKEM768PrivateKey", "MLKEM768PublicKey", "X25519PrivateKey", "X25519PublicKey"):
        monkeypatch.setattr(kem, name, parsed)
    loaded = Enqueuer.load(service)
    [frame] = loaded.enqueue(b"m", now=0)
    assert Dequeuer.load(owner).open(frame.data) == Message(1, 0, b"m")
    assert loaded.dump() != service


def test_a_damaged_state_is_refused_wherever_it_is_damaged() -> None:
    pair = Pair()
    for blob, load in ((pair.service.dump(), Enqueuer.load), (pair.owner.dump(), Dequeuer.load)):
        for place in range(len(blob)):
            with pytest.raises(StateError):
                load(blob[:place] + bytes([blob[place] ^ 0x10]) + blob[place + 1 :])
            with pytest.raises(StateError):
                load(blob[:place])
        with pytest.raises(StateError):
            load(blob + b"\0")


def test_a_state_of_the_other_role_or_another_version_is_refused_by_name() -> None:
    pair = Pair()
    with pytest.raises(StateError, match="another kind \\(dequeuer\\)"):
        Enqueuer.load(pair.owner.dump())
    with pytest.raises(StateError, match="another kind \\(enqueuer\\)"):
        Dequeuer.load(pair.service.dump())
    with pytest.raises(StateError, match="marker of any"):
        Dequeuer.load(b"what is this")
    with pytest.raises(StateError, match="format version is 2"):
        Enqueuer.load(document(Kind.ENQUEUER, 2, pair.service.dump()[5:-4]))
    with pytest.raises(DecodeError, match="another kind"):
        CreationRequest.decode(pair.owner.offer_key().encode())


def enqueuer(suite: int = 1, first: int = 1, following: int = 1, key: bytes = bytes(32)) -> bytes:
    numbers = u16(suite) + u32(0) + u64(first) + u64(following) + u64(1) + u64(0) + u32(0)
    return document(Kind.ENQUEUER, 1, numbers + bytes(64) + key)


@pytest.mark.parametrize(
    "blob",
    [
        enqueuer(suite=0x7777),
        enqueuer(key=bytes(31)),
        enqueuer(key=bytes(33)),
        enqueuer(first=0),
        enqueuer(first=2),
        enqueuer(following=1 << 63),
        enqueuer(following=65537),
        document(Kind.ENQUEUER, 1, b""),
    ],
)
def test_an_enqueuers_state_with_impossible_contents_is_refused(blob: bytes) -> None:
    with pytest.raises(StateError):
        Enqueuer.load(blob)


def dequeuer(
    suites: tuple[int, ...] = (1,),
    keys: tuple[int, ...] = (0,),
    phase: int = 2,
    suite: int = 1,
    first: int = 1,
    following: int = 1,
    tags: bytes = bytes(16),
    discarded: tuple[int, ...] = (),
) -> bytes:
    listed = u8(len(suites)) + b"".join(map(u16, suites))
    seeds = u8(len(keys)) + b"".join(u32(key) + bytes(32) for key in keys)
    head = (
        u64(1) + lv(b"s") + lv(b"q") + listed + seeds + u16(len(discarded)) + b"".join(map(u64, discarded)) + u8(phase)
    )
    chain = u16(suite) + bytes(32) + u32(0) + u64(first) + u64(following) + bytes(32) + lv(tags)
    return document(Kind.DEQUEUER, 1, head + (bytes(32) if phase == 1 else chain))


def test_the_shape_of_the_next_test_is_right() -> None:
    assert Dequeuer.load(dequeuer()).next_seq == 1
    assert not Dequeuer.load(dequeuer(phase=1)).ready
    assert Enqueuer.load(enqueuer()).next_seq == 1


@pytest.mark.parametrize(
    "blob",
    [
        dequeuer(suites=()),
        dequeuer(suites=(1, 1)),
        dequeuer(suites=(1, 2)),
        dequeuer(suites=(0x7777,)),
        dequeuer(keys=()),
        dequeuer(keys=(1, 0)),
        dequeuer(keys=(0, 2)),
        dequeuer(keys=(0, 0)),
        dequeuer(keys=(0, 1, 2)),
        dequeuer(phase=3),
        dequeuer(phase=1, keys=(1,)),
        dequeuer(phase=1, keys=(0, 1)),
        dequeuer(suites=(1, 0x7777), suite=0x7777),
        dequeuer(suite=2),
        dequeuer(first=0),
        dequeuer(first=2),
        dequeuer(following=65537),
        dequeuer(following=1 << 63, first=(1 << 63) - 1),
        dequeuer(tags=b""),
        dequeuer(discarded=(5,)),
        dequeuer(discarded=(0, 0)),
        dequeuer(discarded=tuple(range(300)), following=400, tags=bytes(1024)),
        dequeuer(tags=bytes(32)),
    ],
)
def test_a_dequeuers_state_with_impossible_contents_is_refused(blob: bytes) -> None:
    with pytest.raises(StateError):
        Dequeuer.load(blob)


def test_every_change_raises_the_generation_and_nothing_else_does() -> None:
    pair = Pair()
    service, owner = pair.service.generation, pair.owner.generation
    frames = pair.send(b"1", b"2")
    assert pair.service.generation > service
    pair.owner.open(frames[0])
    assert pair.owner.generation == owner + 1
    before = pair.owner.generation, pair.service.generation
    pair.owner.verify_head(*reversed(pair.head()))
    pair.owner.grant()
    pair.owner.dump()
    with pytest.raises(MisuseError):
        pair.owner.discard(7)
    assert (pair.owner.generation, pair.service.generation) == before


def test_states_grants_keys_and_documents_of_format_1_still_load() -> None:
    """Frozen bytes: when this fails, stored queues of users fail."""
    frozen = json.loads(FROZEN.read_text())
    for case in frozen:
        blobs = {name: bytes.fromhex(value) for name, value in case["blobs"].items()}
        service, owner = Enqueuer.load(blobs["enqueuer"]), Dequeuer.load(blobs["dequeuer"])
        assert service.dump() == blobs["enqueuer"]
        assert owner.dump() == blobs["dequeuer"]
        assert Dequeuer.load(blobs["awaiting"]).dump() == blobs["awaiting"]
        assert (service.suite.id, service.next_seq, service.epoch) == (case["suite"], case["next"], case["epoch"])
        assert Grant.decode(blobs["grant"]).encode() == blobs["grant"]
        assert OwnerKeys.decode(blobs["owner_keys"]).encode() == blobs["owner_keys"]
        assert CreationRequest.decode(blobs["request"]).encode() == blobs["request"]
        assert KeyOffer.decode(blobs["offer"]).encode() == blobs["offer"]
        frame = bytes.fromhex(case["next_frame"])
        assert owner.open(frame) == Message(case["next"], case["epoch"], b"frozen")
        assert Grant.decode(blobs["grant"]).open(frame) == Message(case["next"], case["epoch"], b"frozen")
        fresh = Dequeuer.load(blobs["dequeuer"])
        assert fresh.open(service.enqueue(b"thawed", now=0)[0].data) == Message(case["next"], case["epoch"], b"thawed")


def test_objects_with_secrets_are_neither_pickled_copied_hashed_nor_printed() -> None:
    pair = Pair()
    objects = [pair.service, pair.owner, pair.request, pair.owner.grant(), pair.keys, pair.keys._keys[0]]
    secrets = [pair.request.join_secret, pair.owner._chain_key, pair.keys._keys[0].seed]
    for thing in objects:
        for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="holds secrets"):
                attempt(thing)
        with pytest.raises(TypeError):
            hash(thing)
        shown = f"{thing!r} {thing!s} {thing}"
        assert not any(secret.hex() in shown or repr(secret) in shown for secret in secrets)
    assert [repr(thing) for thing in objects] == [
        "<Enqueuer suite=0x0001 epoch=0 next=1 generation=1>",
        "<Dequeuer queue=7175657565 suite=0x0001 epoch=0 next=1 key=0 generation=2>",
        "<CreationRequest queue=7175657565 suites=0x0001>",
        "<Grant queue=7175657565 epoch=0 first=1 suite=0x0001>",
        "<OwnerKeys queue=7175657565 keys=0 join_secret=yes>",
        "<PrivateKey X25519>",
    ]
    assert (
        repr(Pair(initialised=False).owner)
        == "<Dequeuer queue=7175657565 suite=open epoch=0 next=0 key=0 generation=1>"
    )
    assert "join_secret=no" in repr(pair.owner.owner_keys())
    assert repr(Message(1, 0, b"plaintext")) == "Message(seq=1, epoch=0, body=<9 bytes>, missing=range(0, 0))"
    assert repr(pair.owner.offer_key()) == "<KeyOffer key_id=1 suite=0x0001>"


def test_errors_survive_the_way_to_another_process() -> None:
    pair = Pair()
    pair.send(b"1", b"2")
    verdicts = pair.owner.open_many([pair.frames[2].data, b"", pair.frames[0].data])
    for verdict in verdicts:
        assert isinstance(verdict, FrameRejected)
        for again in (pickle.loads(pickle.dumps(verdict)), copy.copy(verdict)):
            assert type(again) is type(verdict)
            assert (str(again), vars(again)) == (str(verdict), vars(verdict))


def test_a_verdict_keeps_no_key_alive() -> None:
    pair = Pair()
    [frame] = pair.send(b"1")
    [verdict] = pair.owner.open_many([frame[:-1] + bytes([frame[-1] ^ 1])])
    assert isinstance(verdict, FrameRejected)
    assert (verdict.__traceback__, verdict.__context__, verdict.__cause__) == (None, None, None)


def test_the_codec_refuses_what_does_not_fit() -> None:
    with pytest.raises(LimitExceeded):
        lv(bytes(65536))
    reader = Reader(b"\0\0\0\0\0\0\0\1\0\2ab\1", "test")
    assert (reader.u64(), reader.lv(), reader.flag(), reader.rest()) == (1, b"ab", True, b"")
    reader.end()
    for wrong in ("text", 5):
        with pytest.raises(TypeError):
            as_bytes(wrong)  # type: ignore[arg-type]


def test_a_request_or_offer_that_is_damaged_or_has_left_over_bytes_is_refused() -> None:
    pair = Pair()
    for blob, decode in (
        (pair.request.encode(), CreationRequest.decode),
        (pair.owner.offer_key().encode(), KeyOffer.decode),
    ):
        for place in range(len(blob)):
            with pytest.raises(DecodeError):
                decode(blob[:place])
        kind = Kind(blob[:4])
        with pytest.raises(DecodeError, match="left over"):
            decode(document(kind, 1, blob[5:-4] + b"\0"))
