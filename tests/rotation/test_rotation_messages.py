"""The codec of frames: round trips, strictness, and hostile bytes."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qsratchet.errors import DecodeError, LimitExceeded, MisuseError
from qsratchet.rotation import MAX_BODY, Connection, QueueAddress, Received
from qsratchet.rotation.messages import (
    Application,
    Frame,
    Message,
    QHello,
    QKeys,
    QNew,
    QReady,
    QSwitch,
    SenderKeys,
    Tag,
    decode_frame,
    encode_frame,
)

from .stages import NEW, OLD, RECEIVING_STAGES, SENDING_STAGES

_keys32 = st.binary(min_size=32, max_size=32)
_ids = st.binary(min_size=24, max_size=24)
_servers = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=1, max_size=255)
_addresses = st.builds(QueueAddress, server=_servers, sender_id=_ids)
_sender_keys = st.builds(SenderKeys, server_key=_keys32, dh_key=_keys32)
_names = _addresses | _ids
_u64 = st.integers(0, 2**64 - 1)
hellos = st.builds(QHello, queue=_addresses, keys=st.none() | _sender_keys, last=st.none() | _u64, mac=_keys32)
stream_messages: st.SearchStrategy[Message] = st.one_of(
    st.builds(Application, body=st.binary(max_size=300)),
    st.builds(QNew, queue=_addresses, dh_key=_keys32, replaces=_addresses, fast=st.booleans()),
    st.builds(QKeys, queue=_addresses, keys=_sender_keys),
    st.builds(QReady, queue=_names),
    st.builds(QSwitch, queue=_names),
)


@given(st.integers(1, 2**64 - 1), stream_messages)
def test_a_message_of_the_stream_survives_the_round_trip(number: int, message: Message) -> None:
    assert decode_frame(encode_frame(number, message)) == Frame(number=number, message=message)


@given(hellos)
def test_qhello_survives_the_round_trip(message: QHello) -> None:
    assert decode_frame(memoryview(encode_frame(0, message))) == Frame(number=0, message=message)


def test_the_tags_are_the_seeds_and_all_different() -> None:
    assert {tag.value for tag in Tag} == {b"AM", b"QN", b"QK", b"QR", b"QH", b"QS"}


@given(st.integers(1, 2**64 - 1), stream_messages, st.data())
def test_a_frame_that_is_cut_or_extended_is_refused_or_another_frame(
    number: int, message: Message, data: st.DataObject
) -> None:
    frame = encode_frame(number, message)
    cut = data.draw(st.integers(0, len(frame) - 1))
    for changed in (frame[:cut], frame + b"\0"):
        try:
            decoded = decode_frame(changed)
        except DecodeError:
            continue
        # Only what ends in free bytes can be cut or extended, and then it reads as what it is.
        assert encode_frame(decoded.number, decoded.message) == changed


def _frame(body: bytes, number: int = 1, version: int = 1) -> bytes:
    return bytes([version]) + number.to_bytes(8, "big") + body


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        _frame(b"AM", version=2),
        _frame(b"AM", number=0),
        _frame(b"ZZ"),
        _frame(b"AM" + bytes(MAX_BODY + 1)),
        _frame(b"QN\x02" + NEW.encode() + bytes(32) + OLD.encode()),
        _frame(b"QK" + NEW.encode() + bytes(63)),
        _frame(b"QR" + bytes(23)),
        _frame(b"QR" + NEW.encode() + b"\0"),
        _frame(b"QS" + b"\0\0" + bytes(24) + b"\0"),
        _frame(b"QS" + b"\0\1\x7f" + bytes(24)),
        _frame(b"QS" + b"\0\1\xff" + bytes(24)),
        _frame(b"QH\x00" + NEW.encode() + bytes(32), number=1),
        _frame(b"QH\x04" + NEW.encode() + bytes(32), number=0),
    ],
)
def test_what_no_encoder_makes_is_refused(frame: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_frame(frame)


def test_numbers_sizes_and_names_out_of_range_are_misuse() -> None:
    for number in (0, -1, 2**64):
        with pytest.raises(MisuseError):
            encode_frame(number, Application(body=b""))
    with pytest.raises(MisuseError):
        encode_frame(1, QHello(queue=NEW))
    with pytest.raises(LimitExceeded):
        encode_frame(1, Application(body=bytes(MAX_BODY + 1)))
    for server in ("", "x" * 256, "é", "a\n"):
        with pytest.raises(MisuseError):
            QueueAddress(server=server, sender_id=bytes(24))
    with pytest.raises(MisuseError):
        QueueAddress(server="x", sender_id=bytes(23))


def test_hostile_bytes_raise_nothing_but_decode_errors_and_never_break_a_connection() -> None:
    """Mutations of true frames, so that the code behind the first checks is reached too."""
    rng = random.Random(4)
    keys = SenderKeys(server_key=bytes(32), dh_key=bytes([9]) + bytes(31))
    seeds = [
        encode_frame(3, Application(body=b"hello")),
        encode_frame(3, QNew(queue=NEW, dh_key=bytes([9]) + bytes(31), replaces=OLD, fast=True)),
        encode_frame(3, QKeys(queue=NEW, keys=keys)),
        encode_frame(3, QReady(queue=NEW)),
        encode_frame(3, QSwitch(queue=NEW.sender_id)),
        encode_frame(0, QHello(queue=NEW, keys=keys, last=7)),
    ]
    connections: list[Connection] = [stage() for stage in (*RECEIVING_STAGES.values(), *SENDING_STAGES.values())]
    decoded = 0
    for _ in range(20_000):
        frame = bytearray(rng.choice(seeds))
        for _ in range(rng.randrange(4)):
            frame[rng.randrange(len(frame))] = rng.randrange(256)
        if rng.random() < 0.1:
            del frame[rng.randrange(len(frame)) :]
        try:
            decode_frame(frame)
            decoded += 1
        except DecodeError:
            pass
        connection = rng.choice(connections)
        queue = rng.choice([connection.receive_queue.address, NEW, OLD])
        connection.step(Received(queue=queue, message_id=b"x", body=bytes(frame)), 0)
        if rng.random() < 0.02:
            assert Connection.load(connection.dump()).dump() == connection.dump()
    assert decoded > 1000
