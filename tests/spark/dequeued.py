"""A Dequeuer reads the same rows: what it opens, the audit opens, and what it refuses, the audit refuses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark_udfs import OK
from qsratchet import Dequeuer, Duplicate, EpochGap, Fork, FrameRejected, Message, Passed, ReadPolicy, header_of

from .exports import Queue, Row


def compare(queue: Queue, rows: Sequence[Row], opened: Sequence[Mapping[str, Any]], epochs: set[int]) -> None:
    """Compare row by row: `opened` are the rows of `MESSAGES` in the order of `rows`, `epochs` those with a grant."""
    assert [(row["queue_id"], row["seq"]) for row in opened] == [(row.queue_id, row.seq) for row in rows]
    reader = Dequeuer.load(queue.state, policy=ReadPolicy(tolerant=True, forward_limit=65_535))
    for row, ours in sorted(zip(rows, opened, strict=True), key=lambda pair: number_of(pair[0])):
        frame = row.frame or b""
        (theirs,) = reader.open_many([frame])
        if isinstance(theirs, FrameRejected):
            granted = int.from_bytes(frame[4:8], "big") in epochs
            assert _agree(theirs, ours["verdict"], granted), (theirs, ours)
            continue
        assert ours["verdict"] == (OK if number_of(row) == row.seq else "reordered")
        assert ours["body"] == (theirs.body if isinstance(theirs, Message) else None)


def number_of(row: Row) -> int:
    """A frame's own number, or its row's if it has none."""
    try:
        return header_of(row.frame or b"").seq
    except FrameRejected:
        return row.seq or 0


def _agree(verdict: FrameRejected, ours: str, granted: bool) -> bool:
    if isinstance(verdict, (Duplicate, Fork, Passed)):
        # A reader refuses every second frame under a number; an audit opens it, and a finding says that there are two.
        return True
    if not granted and ours == "no grant":
        # The frame that led to this epoch is lost, or is this very one.
        return True
    if isinstance(verdict, EpochGap) or verdict.kind in ("wrong epoch", "gap"):
        return ours in ("no grant", "wrong epoch", "tampered")
    more = {
        "tampered": ("wrong epoch",),
        "unexpected init": ("wrong epoch", "tampered"),
        "malformed": ("wrong epoch", "unexpected init"),
        "wrong suite": ("wrong epoch",),
    }
    return ours == verdict.kind or ours in more.get(verdict.kind, ())
