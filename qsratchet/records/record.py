"""What a service keeps about a queue: a frozen value with two dates, and its bytes.

A record says how a queue is used, what has become of it, when somebody last used it, and which blobs
are stored beside it.  Dates have no time of day, because the time of day would tell more about people than
retention needs.  This module knows no rule: what happens to a record is in `events`, what a service may
delete is in `retention`.  It sees blobs as sizes and never as bytes, and it holds no keys.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from datetime import date
from enum import Enum
from typing import Final

from ..codec import Buffer, Kind, Reader, document, lv, open_document, u8
from ..errors import MisuseError, StateError

__all__ = ["Blob", "QueueRecord", "Usage"]

#: Ratchet keys are 0, post-quantum keys are 1, profile and preferences are 2.
LAST_PRIORITY: Final = 2
QUEUE_ID_MAX: Final = 255
BLOB_SIZE_MAX: Final = 0xFFFFFFFF

_VERSION: Final = 1
#: Dates are stored as days since 1970-01-01, which is this proleptic Gregorian ordinal.
_EPOCH: Final = date(1970, 1, 1).toordinal()
_LAST_DAY: Final = date.max.toordinal() - _EPOCH
_FIRST_DATE: Final = date(1970, 1, 1)

_HEAD: Final = struct.Struct(">BBII")
_BLOB: Final = struct.Struct(">BII")
_SECURED: Final = 1
_LINK_USED: Final = 2
_SUSPENDED: Final = 4
_ALL_FLAGS: Final = 7


class Usage(Enum):
    """What the queue is for; the sender can secure a messaging queue, and never a contact address."""

    MESSAGING = 1
    CONTACT = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Blob:
    """The place that one blob takes; priority 0 is what a link cannot be opened without."""

    priority: int
    size: int
    added_on: date

    def __post_init__(self) -> None:
        if not 0 <= self.priority <= LAST_PRIORITY:
            raise MisuseError(f"a blob's priority is 0 to {LAST_PRIORITY}, not {self.priority}")
        if not 1 <= self.size <= BLOB_SIZE_MAX:
            raise MisuseError(f"a blob's size is 1 to {BLOB_SIZE_MAX} bytes, not {self.size}")
        require_date(self.added_on)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRecord:
    """One queue.

    `updated_on` is the last day of any use, `owner_seen_on` the last day on which the owner was here.
    Blobs are in the order of their priority, one of each at most, and never without priority 0.
    """

    queue_id: bytes
    usage: Usage
    updated_on: date
    owner_seen_on: date
    secured: bool = False
    #: A message was sent after the queue was secured, so nobody has to open its one-time link again.
    link_used: bool = False
    suspended: bool = False
    blobs: tuple[Blob, ...] = ()

    def __post_init__(self) -> None:
        require_queue_id(self.queue_id)
        require_date(self.updated_on)
        require_date(self.owner_seen_on)
        if self.owner_seen_on > self.updated_on:
            raise MisuseError("owner_seen_on is after updated_on, and the owner's visits are updates too")
        if self.secured and self.usage is not Usage.MESSAGING:
            raise MisuseError("a contact address is never secured")
        if self.link_used and not self.secured:
            raise MisuseError("link_used needs a secured queue")
        previous = -1
        for blob in self.blobs:
            if blob.priority <= previous:
                raise MisuseError("blobs are in the order of their priority, one of each at most")
            previous = blob.priority
        if self.blobs and self.blobs[0].priority != 0:
            raise MisuseError("a queue with blobs has one of priority 0, or its link could not be opened")

    @property
    def active_on(self) -> date:
        """The date that the rules of this usage read, and so the only one that must survive a restart.

        For a messaging queue any use counts.  For a contact address only its owner counts: anybody
        who knows the address can send to it, and would keep an abandoned one alive.
        """
        return self.updated_on if self.usage is Usage.MESSAGING else self.owner_seen_on

    def encode(self) -> bytes:
        """Return the record as a document that a host can store, in place of a log or beside it."""
        return document(Kind.QUEUE_RECORD, _VERSION, record_body(self))

    @classmethod
    def decode(cls, data: Buffer) -> QueueRecord:
        """Read what `encode` gave; raises `StateError` on anything else."""
        reader = open_document(Kind.QUEUE_RECORD, _VERSION, data, stored=True)
        record = read_record(reader)
        reader.end()
        return record


def require_queue_id(queue_id: bytes) -> None:
    if type(queue_id) is not bytes or not 1 <= len(queue_id) <= QUEUE_ID_MAX:
        raise MisuseError(f"a queue id is a bytes object of 1 to {QUEUE_ID_MAX} bytes")


def require_date(day: date) -> None:
    """Refuse a time of day: a `datetime` is a `date` to Python, and would store more than retention needs."""
    if type(day) is not date:
        raise MisuseError(f"a plain date is needed, not {type(day).__name__}; use .date() on a datetime in UTC")
    if day < _FIRST_DATE:
        raise MisuseError(f"{day} is before 1970-01-01, the first day that a record can hold")


# --- Bytes (docs/protocol.md, "Store log") ---------------------------------------------------------


def day_number(day: date) -> int:
    return day.toordinal() - _EPOCH


def read_day(reader: Reader, number: int) -> date:
    if number > _LAST_DAY:
        reader.fail(f"day {number} is after the year 9999")
    return date.fromordinal(number + _EPOCH)


def record_body(record: QueueRecord) -> bytes:
    flags = _SECURED * record.secured | _LINK_USED * record.link_used | _SUSPENDED * record.suspended
    head = _HEAD.pack(record.usage.value, flags, day_number(record.updated_on), day_number(record.owner_seen_on))
    blobs = [_BLOB.pack(blob.priority, blob.size, day_number(blob.added_on)) for blob in record.blobs]
    return head + lv(record.queue_id) + u8(len(blobs)) + b"".join(blobs)


def read_record(reader: Reader) -> QueueRecord:
    usage, flags, updated_on, owner_seen_on = _HEAD.unpack(reader.take(_HEAD.size))
    if flags > _ALL_FLAGS:
        reader.fail(f"its flags have the unknown value {flags}")
    queue_id = reader.lv()
    try:
        return QueueRecord(
            queue_id=queue_id,
            usage=read_usage(reader, usage),
            updated_on=read_day(reader, updated_on),
            owner_seen_on=read_day(reader, owner_seen_on),
            secured=bool(flags & _SECURED),
            link_used=bool(flags & _LINK_USED),
            suspended=bool(flags & _SUSPENDED),
            blobs=tuple([_read_blob(reader) for _ in range(reader.u8())]),
        )
    except MisuseError as error:
        # The bytes are whole, but no record can have these values together.
        raise StateError(f"stored {reader.what}: {error}") from None


def read_usage(reader: Reader, number: int) -> Usage:
    usage = _USAGES.get(number)
    if usage is None:
        reader.fail(f"usage {number} is unknown")
    return usage


def _read_blob(reader: Reader) -> Blob:
    priority, size, added_on = _BLOB.unpack(reader.take(_BLOB.size))
    return Blob(priority=priority, size=size, added_on=read_day(reader, added_on))


_USAGES: Final = {usage.value: usage for usage in Usage}
