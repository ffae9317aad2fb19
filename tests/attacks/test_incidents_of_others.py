"""Bugs that other ratchets really had, each as a test of ours.  The numbers are those of their public trackers."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from qsratchet import (
    SUITES,
    UNPADDED,
    CreationRequest,
    Dequeuer,
    Duplicate,
    Enqueuer,
    Fork,
    FrameRejected,
    FrameType,
    KeyOffer,
    KeyRejected,
    Message,
    ReadPolicy,
    Tampered,
)
from qsratchet.queue.frames import pack_header

from .runs import MANUAL, record
from .sqlite_host import Crash, connected

#: The points of low order of Curve25519, and encodings of them that are not reduced.
LOW_ORDER = [
    bytes(32),
    (1).to_bytes(32, "little"),
    bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
    bytes.fromhex("5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"),
    (2**255 - 20).to_bytes(32, "little"),
    (2**255 - 19).to_bytes(32, "little"),
    (2**255 - 18).to_bytes(32, "little"),
]


def queue(suite: int, policy: ReadPolicy | None = None) -> tuple[Dequeuer, Enqueuer]:
    owner, request = Dequeuer.create(b"service", b"queue", suites=(suite,), policy=policy or ReadPolicy())
    service, init = Enqueuer.create(request, now=0, policy=MANUAL, padding=UNPADDED)
    owner.open(init.data)
    return owner, service


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: f"0x{suite:04x}")
def test_mls_rs_228_the_same_ciphertext_twice_costs_nothing(suite: int) -> None:
    """mls-rs #228: a ciphertext that arrived a second time deleted the ratchet, and all that followed was lost."""
    owner, service = queue(suite)
    for event in range(10):
        frame = service.update(now=0) if event % 4 == 3 else service.enqueue(b"m", now=0)[0]
        owner.open(frame.data)
        before = owner.dump()
        for _ in range(3):
            with pytest.raises(Duplicate):
                owner.open(frame.data)
            assert isinstance(owner.open_many([frame.data, frame.data])[1], Duplicate)
        assert owner.dump() == before


def test_openmls_1846_no_superseded_secret_is_left_in_storage(tmp_path: Path) -> None:
    """OpenMLS #1846: the private tree was not persisted properly, so old secrets stayed in storage."""
    service, owner = connected(tmp_path)
    superseded: set[bytes] = {owner.load()._chain_key}
    for event in ".U.K..K.":
        sealing, reading = service.load(), owner.load()
        superseded |= {sealing._chain_key, reading._chain_key, *(key.seed for key in reading._keys.values())}
        if event == "K":
            loaded = reading.generation
            offer = reading.offer_key()
            owner.store(loaded, reading, [])
            superseded |= {key.seed for key in reading._keys.values()}
            loaded = sealing.generation
            service.store(loaded, sealing, sealing.accept_offer(offer, now=0))
        elif event == "U":
            loaded = sealing.generation
            service.store(loaded, sealing, [sealing.update(now=0)])
        else:
            service.enqueue(b"m")
        owner.read(service.fetch(owner.load().next_seq)[0])
    live = {owner.load()._chain_key, *(key.seed for key in owner.load()._keys.values())}
    superseded -= live
    assert len(superseded) > 8
    for file in tmp_path.iterdir():
        stored = file.read_bytes()
        assert any(secret in stored for secret in live)
        assert not any(secret in stored for secret in superseded)


@pytest.mark.parametrize("tolerant", [False, True])
def test_guardyn_106_an_unauthenticated_number_moves_nothing(tolerant: bool) -> None:
    """Guardyn #106: the chain was advanced by the message's own counter before its tag was checked."""
    owner, service = queue(0x0001, ReadPolicy(tolerant=tolerant))
    before = owner.dump()
    for seq in (1, 2, 3, 100, 1_999, 2_000, 2_001, 65_535, 1 << 40, (1 << 64) - 1):
        for type in (FrameType.DATA, FrameType.UPDATE):
            forged = pack_header(type, 0x0001, 0, seq) + bytes(200)
            with pytest.raises(FrameRejected):
                owner.open(forged)
            owner.open_many([forged])
            assert owner.dump() == before
    assert owner.open(service.enqueue(b"m", now=0)[0].data) == Message(1, 0, b"m")


def test_whatsapp_rust_1035_a_frame_sent_before_its_state_was_durable_repeats_no_key_and_nonce(tmp_path: Path) -> None:
    """whatsapp-rust #1035: a stanza left before the ratchet was durable, so a crash could repeat a key and its IV."""
    service, owner = connected(tmp_path)
    released: list[bytes] = []

    def crash() -> None:
        raise Crash

    for _ in range(8):
        machine = service.load()
        loaded = machine.generation
        frames = machine.enqueue(b"m", now=0)
        released.append(frames[0].data)
        with pytest.raises(Crash):
            service.store(loaded, machine, frames, crash=crash)
    # All eight are sealed under one key, that of number 1; their nonces, the 12 bytes after the header, differ.
    assert {frame[:16] for frame in released} == {pack_header(FrameType.DATA, 0x0001, 0, 1)}
    assert all(isinstance(owner.load().open(frame), Message) for frame in released)
    assert len({frame[16:28] for frame in released}) == 8
    owner.read(released[0])
    with pytest.raises(Fork):
        owner.read(released[1])


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: f"0x{suite:04x}")
def test_vodozemac_before_0_10_a_key_of_low_order_is_refused_wherever_it_comes_from(suite: int) -> None:
    """Vodozemac before 0.10 accepted a Diffie-Hellman result of all zeros, which a key of low order brings about."""
    owner, request = Dequeuer.create(b"service", b"queue", suites=(suite,))
    service, init = Enqueuer.create(request, now=0)
    before = service.dump()
    rest = request.public_key[:-32]
    # The encapsulated key of an INIT ends with its X25519 part, before the sealed 32 bytes and their tag.
    at = len(init.data) - 48 - 32
    for point in LOW_ORDER:
        hostile = CreationRequest(b"service", b"queue", (suite,), rest + point, request.join_secret)
        with pytest.raises(KeyRejected):
            Enqueuer.create(hostile, now=0)
        offer = KeyOffer(suite, service._qctx, 1, rest + point)
        with pytest.raises(KeyRejected):
            service.accept_offer(offer, now=0)
        assert service.dump() == before
        state = owner.dump()
        with pytest.raises(Tampered):
            owner.open(init.data[:at] + point + init.data[at + 32 :])
        assert owner.dump() == state


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: f"0x{suite:04x}")
def test_vodozemac_382_a_stored_machine_goes_on_exactly_where_it_stopped(suite: int) -> None:
    """Vodozemac #382: after an import the stored counter was off by one."""
    run = record("..U.K..", suite)
    for seq, blob in run.service.items():
        machine = Enqueuer.load(blob)
        assert (machine.next_seq, machine.dump()) == (seq, blob)
        (frame,) = machine.enqueue(b"again", now=0)
        assert frame.seq == seq
    for seq, blob in run.owner.items():
        reader = Dequeuer.load(blob)
        assert (reader.next_seq, reader.acknowledge, reader.dump()) == (seq, seq, blob)
    # The whole queue, stored and loaded between any two frames, gives what it gives without.
    reader = Dequeuer.load(run.owner[0])
    for seq, data in enumerate(run.frames):
        if seq in run.offering:
            reader = Dequeuer.load(run.offering[seq])
        reader.open(data)
        stored = reader.dump()
        reader = Dequeuer.load(stored)
        assert reader.dump() == stored
        if seq + 1 in run.owner and seq + 1 not in run.offering:
            assert reader._chain_key == Dequeuer.load(run.owner[seq + 1])._chain_key


def test_decrypt_into_of_cryptography_50_is_not_used_to_open_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cryptography 50's decrypt_into leaves unverified plaintext in the buffer when the tag is wrong."""
    row = SUITES[0x0001]

    class WithoutInto:
        def __init__(self, key: bytes) -> None:
            self._aead = row.aead(key)
            self.encrypt, self.decrypt = self._aead.encrypt, self._aead.decrypt

    monkeypatch.setitem(SUITES, 0x0001, dataclasses.replace(row, aead=WithoutInto))  # type: ignore[arg-type]
    owner, service = queue(0x0001)
    frames = [frame.data for frame in service.enqueue_many([b"m"] * 3, now=0)]
    assert owner.open_many(frames) == [Message(seq, 0, b"m") for seq in (1, 2, 3)]
