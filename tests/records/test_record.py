"""A record is a value that cannot be wrong, and its bytes are read back strictly."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from datetime import UTC, date, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qsratchet.codec import Kind, document
from qsratchet.errors import MisuseError, StateError
from qsratchet.records import Blob, QueueRecord, Usage

from .strategies import records

DAY = date(2026, 11, 18)
ZERO = Blob(priority=0, size=2048, added_on=DAY)
ONE = Blob(priority=1, size=1500, added_on=DAY)


def record(**changes: Any) -> QueueRecord:
    values: dict[str, Any] = {"queue_id": b"q", "usage": Usage.MESSAGING, "updated_on": DAY, "owner_seen_on": DAY}
    return QueueRecord(**values | changes)


def test_a_record_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        record().secured = True  # type: ignore[misc]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"queue_id": b""}, "queue id"),
        ({"queue_id": bytes(256)}, "queue id"),
        ({"queue_id": bytearray(b"q")}, "queue id"),
        ({"updated_on": date(1969, 12, 31), "owner_seen_on": date(1969, 12, 31)}, "before 1970"),
        ({"owner_seen_on": date(2026, 11, 19)}, "owner_seen_on is after"),
        ({"usage": Usage.CONTACT, "secured": True}, "never secured"),
        ({"link_used": True}, "needs a secured queue"),
        ({"blobs": (ONE, ZERO)}, "order of their priority"),
        ({"blobs": (ZERO, ZERO)}, "order of their priority"),
        ({"blobs": (ONE,)}, "one of priority 0"),
    ],
)
def test_a_record_that_makes_no_sense_cannot_be_made(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(MisuseError, match=says):
        record(**changes)


@pytest.mark.parametrize("field", ["updated_on", "owner_seen_on"])
def test_a_time_of_day_never_gets_into_a_record(field: str) -> None:
    with pytest.raises(MisuseError, match="plain date"):
        record(**{field: datetime(2026, 11, 18, 9, 30, tzinfo=UTC)})


@pytest.mark.parametrize(
    ("priority", "size", "says"),
    [(-1, 1, "priority"), (3, 1, "priority"), (0, 0, "size"), (0, 1 << 32, "size")],
)
def test_a_blob_out_of_range_cannot_be_made(priority: int, size: int, says: str) -> None:
    with pytest.raises(MisuseError, match=says):
        Blob(priority=priority, size=size, added_on=DAY)


def test_a_blob_has_a_plain_date() -> None:
    with pytest.raises(MisuseError, match="plain date"):
        Blob(priority=0, size=1, added_on=datetime(2026, 11, 18, tzinfo=UTC))


def test_the_date_that_counts_is_any_use_of_a_messaging_queue_and_the_owners_visit_of_a_contact_address() -> None:
    earlier = date(2026, 11, 1)
    assert record(owner_seen_on=earlier).active_on == DAY
    assert record(usage=Usage.CONTACT, owner_seen_on=earlier).active_on == earlier


@given(records())
def test_what_is_encoded_is_decoded(one: QueueRecord) -> None:
    assert QueueRecord.decode(one.encode()) == one
    assert QueueRecord.decode(memoryview(one.encode())) == one


@given(records(), st.data())
def test_a_stored_record_with_any_damage_is_refused(one: QueueRecord, data: st.DataObject) -> None:
    stored = bytearray(one.encode())
    at = data.draw(st.integers(0, len(stored) - 1))
    stored[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(StateError):
        QueueRecord.decode(stored)
    with pytest.raises(StateError):
        QueueRecord.decode(one.encode()[:at])


HEAD = bytes.fromhex("01 00 00005125 00005125 0001 71")


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"\x03" + HEAD[1:] + b"\x00", "usage 3"),
        (b"\x01\x08" + HEAD[2:] + b"\x00", "flags"),
        (b"\x02\x01" + HEAD[2:] + b"\x00", "never secured"),
        (b"\x01\x02" + HEAD[2:] + b"\x00", "needs a secured queue"),
        (HEAD[:2] + b"\xff\xff\xff\xff" + HEAD[6:] + b"\x00", "year 9999"),
        (HEAD[:6] + b"\x00\x2c\xc0\xa1" + HEAD[10:] + b"\x00", "year 9999"),
        (HEAD[:6] + b"\x00\x00\x51\x26" + HEAD[10:] + b"\x00", "owner_seen_on is after"),
        (HEAD + b"\x01" + bytes.fromhex("03 00000800 00005125"), "priority"),
        (HEAD + b"\x01" + bytes.fromhex("01 00000800 00005125"), "one of priority 0"),
        (HEAD + b"\x01" + bytes.fromhex("00 00000000 00005125"), "size"),
        (HEAD + b"\x02" + bytes.fromhex("00 00000800 00005125"), "cut short"),
        (HEAD + b"\x00\x00", "left over"),
        (HEAD[:10] + b"\x00\x00\x00", "queue id"),
        (HEAD[:5], "cut short"),
    ],
)
def test_a_whole_document_with_impossible_values_is_refused(body: bytes, says: str) -> None:
    assert QueueRecord.decode(document(Kind.QUEUE_RECORD, 1, HEAD + b"\x00")).queue_id == b"q"
    with pytest.raises(StateError, match=says):
        QueueRecord.decode(document(Kind.QUEUE_RECORD, 1, body))


@given(st.binary(max_size=80))
def test_any_body_at_all_gives_a_record_or_this_librarys_error(body: bytes) -> None:
    data = document(Kind.QUEUE_RECORD, 1, body)
    try:
        one = QueueRecord.decode(data)
    except StateError:
        return
    assert one.encode() == data
