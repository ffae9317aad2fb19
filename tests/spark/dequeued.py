"""What an audit has to say of an export, by the library's own reader: row by row, and so finding by finding.

A `Dequeuer` is asked twice.  First it reads the rows in the order of the frames' numbers, as an owner would.  What it
refuses because it has passed the number (`Duplicate`, `Fork`, `Passed`) a second one is asked again that stands where
the number is due: an audit opens every row for itself.  `expected` then has the one counterpart of each answer, as
docs/audit.md has it in a table.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from pyspark_udfs import OK
from pyspark_udfs.strangers import FRAMES_TRIED
from qsratchet import (
    EPOCH_CAP,
    Dequeuer,
    Duplicate,
    EpochGap,
    Fork,
    FrameRejected,
    FrameType,
    Gap,
    Grant,
    GrantWalk,
    Header,
    Initialised,
    MalformedFrame,
    Message,
    MisuseError,
    Opened,
    Passed,
    ReadPolicy,
    Tampered,
    UnexpectedInit,
    Updated,
    WrongEpoch,
    WrongSuite,
    header_of,
)

from .defects import Damaged
from .exports import NONCE, Queue, Row

_POLICY = ReadPolicy(tolerant=True, forward_limit=65_535)


class Expected(NamedTuple):
    """What an audit has to say of one row; `surplus` is the finding on a second row under its number."""

    verdict: str
    body: bytes | None = None
    surplus: str | None = None


class Reading(NamedTuple):
    """What a reader made of a queue: of each row, and the first number of each epoch that it reached."""

    rows: list[Expected]
    epochs: list[int]
    #: The heads that are genuine.
    heads: tuple[bytes, ...]


def read(queue: Queue, rows: Sequence[Row], *, foreign: bool = False) -> Reading:
    """Read the rows of a queue, and say what an audit with the grants of this reading has to say.

    `foreign`: the audit has the grants of another queue in their place.
    """
    reader = Dequeuer.load(queue.state, policy=_POLICY)
    answers: dict[int, tuple[Opened | FrameRejected, Opened | FrameRejected]] = {}
    epochs: list[int] = []
    heads = queue.service.head(NONCE), queue.old_head
    number, before = -1, queue.state
    if foreign:
        return Reading([_foreign(row) for row in rows], [], heads)
    for at in sorted(range(len(rows)), key=lambda at: number_of(rows[at])):
        if number_of(rows[at]) != number:
            number, before = number_of(rows[at]), reader.dump()
        frame = rows[at].frame or b""
        (answer,) = reader.open_many([frame])
        if isinstance(answer, (Initialised, Updated)):
            epochs.append(answer.seq + 1)
        again = answer
        if isinstance(answer, (Duplicate, Fork, Passed)):
            (again,) = Dequeuer.load(before, policy=_POLICY).open_many([frame])
        answers[at] = answer, again
    known: dict[int, set[bytes]] = {}
    result = []
    for at, row in enumerate(rows):
        answer, again = answers[at]
        if row.seq is None:
            result.append(Expected("malformed"))
            continue
        if isinstance(again, FrameRejected):
            result.append(Expected(_counterpart(row.frame or b"", again, epochs)))
            continue
        body = again.body if isinstance(again, Message) else None
        if again.seq != row.seq:
            result.append(Expected("reordered", body))
            continue
        # A reader knows one frame of a number; an audit knows them all, and tells a third from a second.
        frames = known.setdefault(again.seq, set())
        surplus = None if not frames else "duplicate" if (row.frame or b"") in frames else "fork"
        frames.add(row.frame or b"")
        if len(frames) == 1 and surplus == "duplicate":
            assert isinstance(answer, (Duplicate, Passed)) or number_of(row) == 0, answer
        result.append(Expected(OK, body, surplus))
    return Reading(result, epochs, heads)


def _foreign(row: Row) -> Expected:
    """What is so of a row whatever the keys are."""
    try:
        header = header_of(row.frame or b"")
    except FrameRejected as unreadable:
        return Expected(unreadable.kind if row.seq is not None else "malformed")
    if row.seq is None or header.type is FrameType.HEAD:
        return Expected("malformed")
    if header.type is FrameType.INIT:
        kind = "unexpected init" if header.seq else "wrong epoch" if header.epoch else "wrong grant"
        return Expected(kind)
    return Expected("wrong grant" if header.seq else "malformed")


def _counterpart(frame: bytes, refusal: FrameRejected, epochs: list[int]) -> str:
    """The audit's verdict on a frame that a reader refuses where its number is due."""
    try:
        header = header_of(frame)
    except FrameRejected:
        return refusal.kind
    match refusal:
        case Tampered():
            return "wrong epoch" if header.seq == 0 and header.epoch > 0 else _closed_or("tampered", epochs)
        case UnexpectedInit():
            return refusal.kind
        case WrongSuite():
            return _closed_or(refusal.kind, epochs)
        case WrongEpoch() | EpochGap():
            # No reader is told which: an audit knows where the epochs begin that follow.
            ended = _epoch_of(header.seq, epochs) + 1 < len(epochs)
            return "wrong epoch" if ended or header.epoch < _epoch_of(header.seq, epochs) else "no grant"
        case Gap():
            assert not epochs  # INIT was not read.
            return "no grant"
        case MalformedFrame():
            return _malformed(header, epochs)
    raise AssertionError(refusal)


def _closed_or(kind: str, epochs: list[int]) -> str:
    """Without INIT there is no grant, and without a grant nobody knows more."""
    return kind if epochs else "no grant"


def _malformed(header: Header, epochs: list[int]) -> str:
    if header.type is FrameType.HEAD or (header.seq == 0 and header.type is not FrameType.INIT):
        return "malformed"
    if header.type is FrameType.INIT:
        # One of the wrong length, or, where none was read, one under a later number.
        return _closed_or("tampered", epochs) if header.seq == 0 else "unexpected init"
    # Too short for its type, or beyond the last number that its epoch can have.
    return "wrong epoch" if epochs and header.seq >= epochs[-1] + EPOCH_CAP else "malformed"


def _epoch_of(number: int, epochs: list[int]) -> int:
    return bisect_right(epochs, max(number, 1)) - 1


def number_of(row: Row) -> int:
    """A frame's own number, or its row's if it has none."""
    try:
        return header_of(row.frame or b"").seq
    except FrameRejected:
        return row.seq or 0


def granted(queues: Sequence[Queue], export: Damaged) -> list[tuple[Queue, Grant]]:
    """The grants that an auditor has of each queue: derived from the damaged rows, or those of another queue."""
    derived = [_derived(queue, rows) for queue, rows in zip(queues, export.parts, strict=True)]
    given: list[tuple[Queue, Grant]] = []
    for at, queue in enumerate(queues):
        grants = queues[at - 1].grants if export.foreign[at] else derived[at]
        given += [(queue, grant) for grant in grants]
    return given


def _derived(queue: Queue, rows: list[Row]) -> list[Grant]:
    grants = []
    walk = GrantWalk(queue.keys)
    for row in sorted(rows, key=number_of):
        try:
            grants.append(walk.open(row.frame or b""))
        except (FrameRejected, MisuseError):
            continue
    return grants


def compare_export(
    queues: Sequence[Queue],
    export: Damaged,
    opened: Sequence[Mapping[str, Any]],
    found: Counter[tuple[Any, ...]],
) -> None:
    """Compare an audit with the readers: every row of `MESSAGES` and every row of `FINDINGS`."""
    readings = [
        read(queue, rows, foreign=foreign)
        for queue, rows, foreign in zip(queues, export.parts, export.foreign, strict=True)
    ]
    for at, (queue, rows, reading) in enumerate(zip(queues, export.parts, readings, strict=True)):
        compare(rows, reading, [row for row in opened if row["queue_id"] == queue.id])
        ours: Counter[Place] = Counter()
        updates = []
        for (_, queue_id, seq, last, epoch, kind, _), count in found.items():
            if queue_id == queue.id and kind == "update missing":
                updates.append((epoch, seq, last))
            elif queue_id == queue.id:
                ours[kind, seq, last] += count
        elsewhere = _opened_elsewhere(queues, readings, at)
        theirs = findings(rows, reading, elsewhere, export.heads[at])
        assert ours == theirs, (ours - theirs, theirs - ours, rows)
        check_updates(rows, reading, updates)


def _opened_elsewhere(queues: Sequence[Queue], readings: Sequence[Reading], at: int) -> set[bytes]:
    """The frames of the next queue, from which stray frames come, that its grants open."""
    other, reading = queues[(at + 1) % len(queues)], readings[(at + 1) % len(queues)]
    frames = [row.frame or b"" for row in [*other.rows, *other.forks]]
    return {frame for frame in frames if header_of(frame).epoch < len(reading.epochs)}


def compare(rows: Sequence[Row], reading: Reading, opened: Sequence[Mapping[str, Any]]) -> None:
    """Compare row by row: `opened` are the rows of `MESSAGES` in the order of `rows`."""
    assert [(row["queue_id"], row["seq"]) for row in opened] == [(row.queue_id, row.seq) for row in rows]
    for row, ours, theirs in zip(rows, opened, reading.rows, strict=True):
        assert (ours["verdict"], ours["body"]) == (theirs.verdict, theirs.body), (row, rows)


Place = tuple[str, int | None, int | None]


def findings(rows: Sequence[Row], reading: Reading, strangers: Iterable[bytes], head: bytes | None) -> Counter[Place]:
    """All findings that follow from a reading, save of updates: kind, number and last number.

    `strangers` are the frames that other readers open.
    """
    found: Counter[Place] = Counter()
    foreign = set(strangers)
    closed: dict[int, str] = {}
    tried = 0
    for row, one in sorted(zip(rows, reading.rows, strict=True), key=lambda pair: _tried_order(pair[0])):
        if one.surplus is not None:
            found[one.surplus, row.seq, None] += 1
        if one.verdict in _CLOSED:
            closed[row.seq or 0] = one.verdict
        elif one.verdict != OK:
            moved = one.verdict in ("tampered", "wrong epoch", "wrong suite")
            tried += moved
            home = moved and tried <= FRAMES_TRIED and row.frame in foreign
            found["wrong queue" if home else one.verdict, row.seq, None] += 1
    # A run of closed numbers is one finding.
    for number, kind in closed.items():
        if number - 1 not in closed:
            found[kind, number, None] += 1
    found.update(_closed_surplus(rows, reading))
    numbers = sorted({row.seq for row in rows if row.seq is not None})
    start = 0 if reading.epochs or not numbers else numbers[0]
    for before, after in pairwise([start - 1, *numbers]):
        if after > before + 1:
            found["gap", before + 1, after - 1] += 1
    if head is not None:
        end = numbers[-1] + 1 if numbers else 0
        found.update(_head_findings(head, reading, end))
    return found


_CLOSED = ("no grant", "wrong grant")


def _tried_order(row: Row) -> tuple[bool, int, int, bytes]:
    """The order in which frames that fail are tried elsewhere, of which a queue has so many tries."""
    frame = row.frame or b""
    return row.seq is not None, row.seq or 0, int.from_bytes(frame[4:8], "big"), frame


def _closed_surplus(rows: Sequence[Row], reading: Reading) -> Counter[Place]:
    """Rows that nothing opens are told apart by their bytes, within the epoch that they claim."""
    frames: dict[tuple[int, bytes], list[bytes]] = {}
    for row, one in zip(rows, reading.rows, strict=True):
        if one.verdict in _CLOSED:
            frames.setdefault((row.seq or 0, (row.frame or b"")[4:8]), []).append(row.frame or b"")
    found: Counter[Place] = Counter()
    for (number, _), copies in frames.items():
        found["duplicate", number, None] += len(copies) - len(set(copies))
        found["fork", number, None] += len(set(copies)) - 1
    return +found


def _head_findings(head: bytes, reading: Reading, end: int) -> list[Place]:
    header = header_of(head)
    if header.epoch >= len(reading.epochs):
        return [("no grant", header.seq, None)]
    if head not in reading.heads:
        return [("head rejected", None, None)]
    if header.seq > end:
        return [("tail cut off", end, header.seq - 1)]
    return [("rolled back", header.seq, end - 1)] if header.seq < end else []


def check_updates(rows: Sequence[Row], reading: Reading, found: Iterable[tuple[int, int, int]]) -> None:
    """Compare the findings on updates (epoch, first, last number) with the UPDATE frames that opened in their place."""
    opened: dict[int, list[int]] = {}
    ended: dict[int, int] = {}
    for row, one in zip(rows, reading.rows, strict=True):
        if one.verdict == OK and row.seq is not None:
            header = header_of(row.frame or b"")
            opened.setdefault(header.epoch, []).append(row.seq)
            if header.type is FrameType.UPDATE:
                ended[header.epoch] = row.seq
    missing = {epoch: (first, last) for epoch, first, last in found}
    for epoch, (_, last) in missing.items():
        assert epoch not in ended or ended[epoch] > last
    for epoch, numbers in opened.items():
        if epoch - 1 in opened and min(numbers) > max(opened[epoch - 1]):
            assert (epoch - 1 in missing) == (epoch - 1 not in ended), epoch
