"""A second reader of the store log, written from the protocol document alone.

It shares no line with the library and imports nothing of it, not even a CRC: a vector that both agree on is
right, or the document is wrong.
"""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

Record = dict[str, Any]
HEADER = bytes.fromhex("51 53 52 53 01 93 40 75 f5")
EVENTS = {2: "secured", 3: "message sent", 4: "owner seen", 5: "suspended", 6: "deleted"}


class Damaged(Exception):
    """The number of the entry and its offset."""


def crc(data: bytes, before: int = 0) -> int:
    """CRC-32 of IEEE 802.3, bit by bit, continued from `before`."""
    register = before ^ 0xFFFFFFFF
    for byte in data:
        register ^= byte
        for _ in range(8):
            register = (register >> 1) ^ (0xEDB88320 if register & 1 else 0)
    return register ^ 0xFFFFFFFF


class Cursor:
    """Takes bytes off the front; a `ValueError` is whatever does not fit."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def take(self, number: int) -> bytes:
        if number > len(self.data):
            raise ValueError("short")
        taken, self.data = self.data[:number], self.data[number:]
        return taken

    def integer(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def day(self) -> str:
        number = self.integer(4)
        if number > 2932896:
            raise ValueError("day")
        return (date(1970, 1, 1) + timedelta(days=number)).isoformat()

    def queue_id(self) -> str:
        number = self.integer(2)
        if not 1 <= number <= 255:
            raise ValueError("queue id")
        return self.take(number).hex()

    def usage(self) -> str:
        return {1: "messaging", 2: "contact"}[self.integer(1)]

    def priority(self) -> int:
        return (0, 1, 2)[self.integer(1)]

    def size(self) -> int:
        size = self.integer(4)
        if size == 0:
            raise ValueError("size")
        return size

    def end(self) -> None:
        if self.data:
            raise ValueError("left over")


def read_record(cursor: Cursor) -> Record:
    usage, flags = cursor.usage(), cursor.integer(1)
    updated_on, owner_seen_on, queue_id = cursor.day(), cursor.day(), cursor.queue_id()
    blobs = [[cursor.priority(), cursor.size(), cursor.day()] for _ in range(cursor.integer(1))]
    record = {
        "queue_id": queue_id,
        "usage": usage,
        "secured": bool(flags & 1),
        "link_used": bool(flags & 2),
        "suspended": bool(flags & 4),
        "updated_on": updated_on,
        "owner_seen_on": owner_seen_on,
        "blobs": blobs,
    }
    if flags > 7 or owner_seen_on > updated_on or (record["secured"] and usage == "contact"):
        raise ValueError("record")
    if record["link_used"] and not record["secured"]:
        raise ValueError("record")
    check_blobs(blobs)
    return record


def check_blobs(blobs: list[list[Any]]) -> None:
    priorities = [blob[0] for blob in blobs]
    if priorities != sorted(set(priorities)) or (blobs and priorities[0] != 0):
        raise ValueError("blobs")


def read_document(data: bytes) -> Record:
    if data[:5] != b"QSRQ\x01" or crc(data[:-4]) != int.from_bytes(data[-4:], "big"):
        raise ValueError("document")
    cursor = Cursor(data[5:-4])
    record = read_record(cursor)
    cursor.end()
    return record


def read_log(data: bytes) -> tuple[dict[str, Record], dict[str, int]]:
    """The records by queue id, and where the log ends; raises `Damaged` with number and offset."""
    records: dict[str, Record] = {}
    if len(data) < len(HEADER) and HEADER.startswith(data):
        return records, {"entries": 0, "offset": 0, "torn": len(data)}
    if not data.startswith(HEADER):
        raise Damaged(0, 0)
    offset, entries, checksum = len(HEADER), 0, crc(HEADER[:-4])
    while True:
        rest = data[offset:]
        torn = {"entries": entries, "offset": offset, "torn": len(rest)}
        if len(rest) < 4:
            return records, torn
        length, complement = int.from_bytes(rest[:2], "big"), int.from_bytes(rest[2:4], "big")
        if length + complement != 0xFFFF or length > 512:
            raise Damaged(entries + 1, offset)
        if len(rest) < length + 8:
            return records, torn
        checksum = crc(rest[: length + 4], checksum)
        try:
            if checksum != int.from_bytes(rest[length + 4 : length + 8], "big"):
                raise ValueError("checksum")
            happen(records, Cursor(rest[4 : length + 4]))
        except (ValueError, KeyError, IndexError):
            raise Damaged(entries + 1, offset) from None
        entries, offset = entries + 1, offset + length + 8


def happen(records: dict[str, Record], cursor: Cursor) -> None:
    tag = cursor.integer(1)
    if tag == 9:
        record = read_record(cursor)
        cursor.end()
        if record["queue_id"] in records:
            raise ValueError("kept twice")
        records[record["queue_id"]] = record
        return
    day, queue_id = cursor.day(), cursor.queue_id()
    if tag == 1:
        usage = cursor.usage()
        blobs = [[cursor.priority(), cursor.size(), day] for _ in range(cursor.integer(1))]
        cursor.end()
        check_blobs(blobs)
        if queue_id in records:
            raise ValueError("created twice")
        records[queue_id] = {
            "queue_id": queue_id,
            "usage": usage,
            "secured": False,
            "link_used": False,
            "suspended": False,
            "updated_on": day,
            "owner_seen_on": day,
            "blobs": blobs,
        }
        return
    record = records[queue_id]
    if tag == 7:
        replace_blob(record, cursor.priority(), cursor.size(), day)
    elif tag == 8:
        dropped = [cursor.priority() for _ in range(cursor.integer(1))]
        there = [blob[0] for blob in record["blobs"]]
        if not dropped or dropped != sorted(set(dropped)) or not set(dropped) <= set(there):
            raise ValueError("dropped")
        left = [blob for blob in record["blobs"] if blob[0] not in dropped]
        check_blobs(left)
        record["blobs"] = left
    else:
        event = EVENTS[tag]
        if event in ("secured", "message sent") and record["suspended"]:
            raise ValueError("suspended")
        if event == "secured" and record["usage"] == "contact":
            raise ValueError("contact")
        if event == "deleted":
            del records[queue_id]
        elif event == "message sent":
            record["link_used"] = record["secured"]
        elif event in ("secured", "suspended"):
            record[event] = True
    cursor.end()
    if tag in (2, 3, 4, 5, 7):
        record["updated_on"] = max(record["updated_on"], day)
    if tag in (4, 5, 7):
        record["owner_seen_on"] = max(record["owner_seen_on"], day)


def replace_blob(record: Record, priority: int, size: int, day: str) -> None:
    if record["secured"] or record["suspended"]:
        raise ValueError("replaced")
    others = [blob for blob in record["blobs"] if blob[0] != priority]
    earlier = [blob[2] for blob in record["blobs"] if blob[0] == priority]
    blobs = sorted([*others, [priority, size, max([day, *earlier])]])
    check_blobs(blobs)
    record["blobs"] = blobs


def decide(record: Record, today: str, policy: dict[str, Any]) -> dict[str, Any] | None:
    """The decision over a record by the table of rules in docs/retention.md."""
    counts = record["updated_on" if record["usage"] == "messaging" else "owner_seen_on"]
    idle = (date.fromisoformat(today) - date.fromisoformat(counts)).days
    rule = None
    if record["suspended"] and policy["suspended_days"] is not None and idle > policy["suspended_days"]:
        rule = "SUSPENDED"
    elif record["usage"] == "contact" and idle > policy["owner_days"]:
        rule = "OWNER_ABSENT"
    elif record["usage"] == "messaging" and not record["secured"] and idle > policy["unsecured_days"]:
        rule = "UNSECURED"
    if rule:
        return {"queue_id": record["queue_id"], "expire": rule, "idle_since": counts}
    if record["secured"] and record["blobs"]:
        if policy["blobs_go"] == "AT_SECURING":
            return {"queue_id": record["queue_id"], "drop_blobs": "SECURED", "blobs": record["blobs"]}
        if record["link_used"]:
            return {"queue_id": record["queue_id"], "drop_blobs": "LINK_USED", "blobs": record["blobs"]}
    return None


def evict(records: list[Record], need: int) -> dict[str, Any]:
    """Eviction by docs/retention.md."""
    blobs = [[record["queue_id"], *blob] for record in records for blob in record["blobs"] if blob[0] != 0]
    blobs.sort(key=lambda blob: blob[0])
    blobs.sort(key=lambda blob: blob[3], reverse=True)
    blobs.sort(key=lambda blob: blob[1], reverse=True)
    chosen: list[list[Any]] = []
    while blobs and sum(blob[2] for blob in chosen) < need:
        chosen.append(blobs.pop(0))
    freed = sum(blob[2] for blob in chosen)
    return {"bytes_to_free": need, "blobs": chosen, "bytes_freed": freed, "enough": freed >= need}
