"""Bytes that version 1 once wrote.  Never change them: a service's disk is full of such bytes."""

from __future__ import annotations

from datetime import date, timedelta

from qsratchet.records import (
    EMPTY_LOG,
    Blob,
    BlobReplaced,
    BlobsDropped,
    Created,
    Deleted,
    Event,
    Kept,
    LogReader,
    MessageSent,
    OwnerSeen,
    QueueRecord,
    Secured,
    Suspended,
    Usage,
    append,
    replay,
)

DAY = date(2026, 11, 18)
A, B = b"a" * 24, b"b" * 24

LOG_V1 = bytes.fromhex(
    "5153525301934075f50030ffcf01000051270018616161616161616161616161616161616161616161616161010300000008"
    "0001000005dc02000032c84aa2a1db0026ffd901000051270018626262626262626262626262626262626262626262626262"
    "02010000000800e473180d0024ffdb0700005127001862626262626262626262626262626262626262626262626202000023"
    "28667759b7001fffe004000051280018626262626262626262626262626262626262626262626262f13ba149001fffe00200"
    "005129001861616161616161616161616161616161616161616161616181c6734d001fffe0030000512a0018616161616161"
    "61616161616161616161616161616161616173d8ab960023ffdc080000512a00186161616161616161616161616161616161"
    "6161616161616103000102235defeb001fffe0050000512b0018626262626262626262626262626262626262626262626262"
    "7a31c7ec001fffe0060000512c0018626262626262626262626262626262626262626262626262787e4cdc0026ffd9090200"
    "000051270000512700186262626262626262626262626262626262626262626262620054173e32"
)
EVENTS_V1: list[Event] = [
    Created(queue_id=A, day=DAY, usage=Usage.MESSAGING, blobs=((0, 2048), (1, 1500), (2, 13000))),
    Created(queue_id=B, day=DAY, usage=Usage.CONTACT, blobs=((0, 2048),)),
    BlobReplaced(queue_id=B, day=DAY, priority=2, size=9000),
    OwnerSeen(queue_id=B, day=DAY + timedelta(days=1)),
    Secured(queue_id=A, day=DAY + timedelta(days=2)),
    MessageSent(queue_id=A, day=DAY + timedelta(days=3)),
    BlobsDropped(queue_id=A, day=DAY + timedelta(days=3), priorities=(0, 1, 2)),
    Suspended(queue_id=B, day=DAY + timedelta(days=4)),
    Deleted(queue_id=B, day=DAY + timedelta(days=5)),
    Kept(record=QueueRecord(queue_id=B, usage=Usage.CONTACT, updated_on=DAY, owner_seen_on=DAY)),
]

RECORD_V1 = bytes.fromhex(
    "5153525101010100005129000051270018616161616161616161616161616161616161616161616161"
    "0300000008000000512701000005dc0000512702000032c8000051274bd4fcf8"
)
SECURED = QueueRecord(
    queue_id=A,
    usage=Usage.MESSAGING,
    updated_on=DAY + timedelta(days=2),
    owner_seen_on=DAY,
    secured=True,
    blobs=(
        Blob(priority=0, size=2048, added_on=DAY),
        Blob(priority=1, size=1500, added_on=DAY),
        Blob(priority=2, size=13000, added_on=DAY),
    ),
)


def test_a_log_of_version_1_is_read_and_still_written_byte_by_byte() -> None:
    assert list(LogReader().feed(LOG_V1)) == EVENTS_V1
    assert append(EMPTY_LOG, *EVENTS_V1)[0] == LOG_V1
    assert replay([LOG_V1]).records.keys() == {A, B}


def test_a_record_document_of_version_1_is_read_and_still_written_byte_by_byte() -> None:
    assert QueueRecord.decode(RECORD_V1) == SECURED
    assert SECURED.encode() == RECORD_V1
