"""Queue records, what happens to them, how long they are kept, and the log they come back from (docs/retention.md)."""

from .events import (
    BlobReplaced,
    BlobsDropped,
    Created,
    Deleted,
    Event,
    Kept,
    MessageSent,
    OwnerSeen,
    Secured,
    Step,
    Suspended,
    apply,
)
from .policy import DEFAULT_POLICY, UPSTREAM_2025, BlobsGo, MessageLimits, RetentionPolicy
from .record import Blob, QueueRecord, Usage
from .retention import Decision, DropBlobs, Eviction, Expire, Rule, decide, evict, sweep
from .storelog import EMPTY_LOG, LogDamaged, LogEnd, LogReader, Replay, append, compact, replay

__all__ = [
    "DEFAULT_POLICY",
    "EMPTY_LOG",
    "UPSTREAM_2025",
    "Blob",
    "BlobReplaced",
    "BlobsDropped",
    "BlobsGo",
    "Created",
    "Decision",
    "Deleted",
    "DropBlobs",
    "Event",
    "Eviction",
    "Expire",
    "Kept",
    "LogDamaged",
    "LogEnd",
    "LogReader",
    "MessageLimits",
    "MessageSent",
    "OwnerSeen",
    "QueueRecord",
    "Replay",
    "RetentionPolicy",
    "Rule",
    "Secured",
    "Step",
    "Suspended",
    "Usage",
    "append",
    "apply",
    "compact",
    "decide",
    "evict",
    "replay",
    "sweep",
]
