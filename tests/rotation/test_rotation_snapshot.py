"""Snapshots: every state survives, damage is named, and the bytes of format version 1 are frozen."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from zlib import crc32

import pytest

from qsratchet.errors import StateError
from qsratchet.rotation import Connection, Receiving, Sending, Submit
from qsratchet.rotation.snapshot import dump

from .stages import RECEIVING_STAGES, SENDING_STAGES

_FROZEN = Path(__file__).parent.parent / "vectors" / "rotation_snapshots_v1.json"
STAGES: dict[str, Callable[[], Connection]] = {
    **{f"receiving {state.name}": stage for state, stage in RECEIVING_STAGES.items()},
    **{f"sending {state.name}": stage for state, stage in SENDING_STAGES.items()},
}


@pytest.mark.parametrize("name", STAGES)
def test_a_loaded_connection_is_the_dumped_one(name: str) -> None:
    connection = STAGES[name]()
    connection.step(Submit(body=b"in the outbox"), 3)
    loaded = Connection.load(connection.dump())
    assert loaded.dump() == connection.dump()
    assert loaded.status() == connection.status()
    assert loaded.resume() == connection.resume()


@pytest.mark.parametrize("name", STAGES)
def test_the_snapshots_of_format_version_1_are_read_and_written_as_ever(name: str) -> None:
    frozen = json.loads(_FROZEN.read_text())[name]
    assert STAGES[name]().dump().hex() == frozen["snapshot"]
    loaded = Connection.load(bytes.fromhex(frozen["snapshot"]))
    assert [status.phase.name for status in loaded.status()] == frozen["phases"]
    assert [str(getattr(effect, "id", "")) for effect in loaded.resume()] == frozen["effects"]


def test_every_damaged_byte_and_every_cut_is_a_state_error() -> None:
    snapshot = RECEIVING_STAGES[Receiving.READY]().dump()
    for position in range(len(snapshot)):
        damaged = bytearray(snapshot)
        damaged[position] ^= 0x40
        with pytest.raises(StateError):
            Connection.load(damaged)
        with pytest.raises(StateError):
            Connection.load(snapshot[:position])


def _resealed(snapshot: bytes, position: int, value: bytes) -> bytes:
    body = snapshot[:position] + value + snapshot[position + len(value) : -4]
    return body + crc32(body).to_bytes(4, "big")


def test_a_snapshot_whose_parts_do_not_fit_together_is_refused() -> None:
    offered, hello = RECEIVING_STAGES[Receiving.OFFERED]().dump(), SENDING_STAGES[Sending.HELLO_SENT]()
    for state in range(11):
        if state not in (Receiving.OFFERED.value, Receiving.SECURING.value, Receiving.READY.value) and state < 5:
            with pytest.raises(StateError):
                Connection.load(_resealed(offered, 6, bytes([state])))
    with pytest.raises(StateError, match="no receiving state"):
        Connection.load(_resealed(offered, 6, b"\x63"))
    idle = SENDING_STAGES[Sending.IDLE]()
    mixed = dump(idle._receiving, hello._sending, idle._stream, False)
    assert Connection.load(mixed).status()[1].phase is Sending.HELLO_SENT
    at = mixed.index(hello._sending.queue.address.encode()) - 18
    with pytest.raises(StateError, match="sending side"):
        Connection.load(_resealed(mixed, at, bytes([Sending.IDLE.value])))


def test_a_snapshot_with_impossible_fields_is_refused() -> None:
    ready = RECEIVING_STAGES[Receiving.READY]()
    offered = RECEIVING_STAGES[Receiving.OFFERED]()
    snapshot = ready.dump()
    key = snapshot.index(ready._receiving.hello_key) - 2
    with pytest.raises(StateError):
        Connection.load(_resealed(snapshot, key, b"\x00\x1f"))
    target = snapshot.index(b"\x00\x03new")
    with pytest.raises(StateError, match="ASCII"):
        Connection.load(_resealed(snapshot, target + 2, b"\xff"))
    stream = len(snapshot) - 4 - 52 - sum(4 + len(entry.frame) for entry in ready._stream.outbox)
    with pytest.raises(StateError, match="outbox"):
        Connection.load(_resealed(snapshot, stream, bytes(8)))
    seed = offered._receiving.dh_seed
    lost = offered.dump()
    place = lost.index(b"\x00\x20" + seed)
    body = lost[:place] + b"\x00\x00" + lost[place + 34 : -4]
    with pytest.raises(StateError, match="lost the key"):
        Connection.load(body + crc32(body).to_bytes(4, "big"))
