"""Writes tests/vectors/records.json; run it as ``python -m tests.records.make_vectors`` from the root.

The file is frozen: a release that writes other bytes for the same events has another version number, and adds
a file.  The events are fixed here so that the file can be made again and compared.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from qsratchet.records import (
    DEFAULT_POLICY,
    EMPTY_LOG,
    UPSTREAM_2025,
    BlobReplaced,
    BlobsDropped,
    BlobsGo,
    Created,
    Decision,
    Deleted,
    Event,
    Expire,
    LogDamaged,
    LogEnd,
    MessageSent,
    OwnerSeen,
    QueueRecord,
    RetentionPolicy,
    Secured,
    Suspended,
    Usage,
    append,
    compact,
    evict,
    replay,
    sweep,
)

FILE = Path(__file__).parent.parent / "vectors" / "records.json"
DAY = date(2026, 11, 18)
POLICIES = {
    "default": DEFAULT_POLICY,
    "default, blobs go at securing": replace(DEFAULT_POLICY, blobs_go=BlobsGo.AT_SECURING),
    "upstream 2025": UPSTREAM_2025,
}
#: Days after `DAY` on which a sweep is recorded: around each limit, and far behind all of them.
SWEEPS = (0, 21, 22, 23, 40, 90, 91, 92, 730, 731, 732, 1095, 1096, 1100, 5000)
NEEDS = (0, 1, 13_000, 13_001, 30_000, 1_000_000)


def queue(name: str) -> bytes:
    return name.encode().ljust(24, b".")


def history() -> list[Event]:
    """A few weeks of a service, with one queue for every way that a queue can go."""

    def on(days: int) -> date:
        return DAY + timedelta(days=days)

    blobs = ((0, 2048), (1, 1500), (2, 13_000))
    pending, retried, connected, address, flooded, moved, short, deleted = map(
        queue, ("pending", "retried", "connected", "address", "flooded", "moved", "short", "deleted")
    )
    return [
        Created(queue_id=pending, day=on(0), usage=Usage.MESSAGING, blobs=blobs),
        Created(queue_id=retried, day=on(0), usage=Usage.MESSAGING, blobs=blobs),
        Secured(queue_id=retried, day=on(1)),
        Secured(queue_id=retried, day=on(1)),
        Created(queue_id=connected, day=on(0), usage=Usage.MESSAGING, blobs=blobs[:2]),
        MessageSent(queue_id=connected, day=on(1)),
        Secured(queue_id=connected, day=on(1)),
        MessageSent(queue_id=connected, day=on(2)),
        Created(queue_id=address, day=on(0), usage=Usage.CONTACT, blobs=blobs),
        BlobReplaced(queue_id=address, day=on(3), priority=2, size=12_000),
        OwnerSeen(queue_id=address, day=on(4)),
        OwnerSeen(queue_id=address, day=on(2)),
        Created(queue_id=flooded, day=on(0), usage=Usage.CONTACT, blobs=blobs),
        BlobsDropped(queue_id=flooded, day=on(1), priorities=(1, 2)),
        *(MessageSent(queue_id=flooded, day=on(days)) for days in range(5)),
        Created(queue_id=moved, day=on(0), usage=Usage.MESSAGING),
        Secured(queue_id=moved, day=on(0)),
        MessageSent(queue_id=moved, day=on(1)),
        Suspended(queue_id=moved, day=on(2)),
        Suspended(queue_id=moved, day=on(2)),
        Created(queue_id=b"s", day=date(1970, 1, 1), usage=Usage.CONTACT),
        Created(queue_id=bytes(range(1, 256)), day=date.max, usage=Usage.CONTACT, blobs=((0, 0xFFFFFFFF),)),
        Created(queue_id=short, day=on(0), usage=Usage.CONTACT),
        BlobReplaced(queue_id=short, day=on(0), priority=0, size=1),
        Suspended(queue_id=short, day=on(5)),
        Created(queue_id=deleted, day=on(0), usage=Usage.CONTACT, blobs=blobs),
        Deleted(queue_id=deleted, day=on(1)),
    ]


def plain_record(record: QueueRecord) -> dict[str, Any]:
    return {
        "queue_id": record.queue_id.hex(),
        "usage": record.usage.name.lower(),
        "secured": record.secured,
        "link_used": record.link_used,
        "suspended": record.suspended,
        "updated_on": record.updated_on.isoformat(),
        "owner_seen_on": record.owner_seen_on.isoformat(),
        "blobs": [[blob.priority, blob.size, blob.added_on.isoformat()] for blob in record.blobs],
    }


def plain_decision(decision: Decision) -> dict[str, Any]:
    queue_id = decision.queue_id.hex()
    if isinstance(decision, Expire):
        return {"queue_id": queue_id, "expire": decision.rule.name, "idle_since": decision.idle_since.isoformat()}
    blobs = [[blob.priority, blob.size, blob.added_on.isoformat()] for blob in decision.blobs]
    return {"queue_id": queue_id, "drop_blobs": decision.rule.name, "blobs": blobs}


def plain_policy(policy: RetentionPolicy) -> dict[str, Any]:
    return {
        "unsecured_days": policy.unsecured_days,
        "owner_days": policy.owner_days,
        "suspended_days": policy.suspended_days,
        "blobs_go": policy.blobs_go.name,
    }


def plain_end(end: LogEnd) -> dict[str, int]:
    return {"entries": end.entries, "offset": end.offset, "torn": end.torn}


def plain_eviction(records: list[QueueRecord], need: int) -> dict[str, Any]:
    eviction = evict(records, need)
    blobs = [
        [decision.queue_id.hex(), blob.priority, blob.size, blob.added_on.isoformat()]
        for decision in eviction.decisions
        for blob in decision.blobs
    ]
    return {
        "bytes_to_free": need,
        "blobs": blobs,
        "bytes_freed": eviction.bytes_freed,
        "enough": eviction.enough,
    }


def whole_log(name: str, log: bytes) -> dict[str, Any]:
    result = replay([log])
    records = list(result.records.values())
    sweeps = []
    for policy_name, policy in POLICIES.items():
        for days in SWEEPS:
            today = DAY + timedelta(days=days)
            decisions = [plain_decision(decision) for decision in sweep(records, today, policy)]
            sweeps.append({"policy": policy_name, "today": today.isoformat(), "decisions": decisions})
    return {
        "name": name,
        "log": log.hex(),
        "end": plain_end(result.end),
        "records": [plain_record(record) for record in records],
        "documents": [record.encode().hex() for record in records],
        "sweeps": sweeps,
        "evictions": [plain_eviction(records, need) for need in NEEDS],
    }


def broken_logs(log: bytes) -> list[dict[str, Any]]:
    """The log cut and changed at every 7th byte: where it ends, or what the error names."""
    cases: list[dict[str, Any]] = []
    for at in range(0, len(log), 7):
        changed = bytearray(log)
        changed[at] ^= 0x10
        try:
            replay([bytes(changed)])
            raise AssertionError("a changed byte went unnoticed")
        except LogDamaged as error:
            cases.append({"flip": at, "entry": error.entry, "offset": error.offset})
        cases.append({"cut": at, "end": plain_end(replay([log[:at]]).end)})
    return cases


def vectors() -> dict[str, Any]:
    log, _ = append(EMPTY_LOG, *history())
    compacted = b"".join(data for data, _ in compact(replay([log]).records.values()))
    empty, _ = append(EMPTY_LOG)
    return {
        "about": "Store log version 1: bytes, the records they give, and the decisions over those (docs/protocol.md)",
        "policies": {name: plain_policy(policy) for name, policy in POLICIES.items()},
        "logs": [
            whole_log("every event", log),
            whole_log("the same, compacted", compacted),
            whole_log("no entries", empty),
            whole_log("no bytes", b""),
        ],
        "broken": {"log": "every event", "flipped_bits": "10", "cases": broken_logs(log)},
    }


if __name__ == "__main__":
    FILE.write_text(json.dumps(vectors(), indent=1) + "\n")
