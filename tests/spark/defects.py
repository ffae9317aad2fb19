"""Defects that Hypothesis writes into the rows of a queue, and what becomes of an export."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from hypothesis import strategies as st

from .exports import NONCE, Queue, Row

__all__ = ["Damaged", "damaged", "damaged_export"]


def _flip(frame: bytes, at: int, bit: int) -> bytes:
    at %= len(frame)
    return frame[:at] + bytes([frame[at] ^ (1 << bit)]) + frame[at + 1 :]


def _frame(row: Row) -> bytes:
    return row.frame or b""


@st.composite
def damaged(draw: st.DrawFn, queue: Queue, other: Queue, *, most: int = 4) -> list[Row]:
    """The rows of a queue with up to `most` defects, sorted by number."""
    rows = list(queue.rows)
    for _ in range(draw(st.integers(0, most))):
        if not rows:
            break
        at = draw(st.integers(0, len(rows) - 1))
        rows = draw(st.sampled_from(_DEFECTS))(draw, rows, at, queue, other)
    return sorted(rows, key=lambda row: -1 if row.seq is None else row.seq)


Defect = Callable[[st.DrawFn, list[Row], int, Queue, Queue], list[Row]]


def _with(rows: list[Row], at: int, frame: bytes | None) -> list[Row]:
    return [*rows[:at], rows[at]._replace(frame=frame), *rows[at + 1 :]]


def missing(draw: st.DrawFn, rows: list[Row], at: int, queue: Queue, other: Queue) -> list[Row]:
    return rows[:at] + rows[at + draw(st.integers(1, 9)) :]


def cut_off(draw: st.DrawFn, rows: list[Row], at: int, queue: Queue, other: Queue) -> list[Row]:
    return rows[:at]


def end_cut_off(draw: st.DrawFn, rows: list[Row], at: int, queue: Queue, other: Queue) -> list[Row]:
    """The last frames, so few that the grant of the last epoch can still be derived."""
    return rows[: -draw(st.integers(1, 3))]


def duplicate(draw: st.DrawFn, rows: list[Row], at: int, queue: Queue, other: Queue) -> list[Row]:
    return [*rows[:at], *[rows[at]] * draw(st.integers(1, 2)), *rows[at:]]


def altered(draw: st.DrawFn, rows: list[Row], at: int, queue: Queue, other: Queue) -> list[Row]:
    if not rows[at].frame:
        return rows
    return _with(rows, at, _flip(_frame(rows[at]), draw(st.integers(0, 1 << 10)), draw(st.integers(0, 7))))


def header(draw: st.DrawFn, rows: list[Row], at: int, queue: Queue, other: Queue) -> list[Row]:
    if not rows[at].frame:
        return rows
    return _with(rows, at, _flip(_frame(rows[at]), draw(st.integers(0, 15)), draw(st.integers(0, 7))))


def field(draw: st.DrawFn, rows: list[Row], at: int, queue: Queue, other: Queue) -> list[Row]:
    """Another value in one field of the header: version, type, suite, epoch or number, small or large."""
    frame = bytearray(_frame(rows[at]))
    place, value = draw(
        st.sampled_from([(0, 9), (1, 1), (1, 3), (1, 4), (1, 9), (3, 2), (3, 99), (7, 1), (7, 9), (13, 1)])
    )
    if len(frame) <= place or frame[place] == value:
        return rows
    frame[place] = value
    return _with(rows, at, bytes(frame))


def null_number(draw: st.DrawFn, rows: list[Row], at: int, queue: Queue, other: Queue) -> list[Row]:
    return [*rows[:at], rows[at]._replace(seq=None), *rows[at + 1 :]]


def altered_copy(draw: st.DrawFn, rows: list[Row], at: int, queue: Queue, other: Queue) -> list[Row]:
    return [*altered(draw, rows, at, queue, other)[: at + 1], *rows[at:]]


def swapped(draw: st.DrawFn, rows: list[Row], at: int, queue: Queue, other: Queue) -> list[Row]:
    to = draw(st.integers(0, len(rows) - 1))
    return _with(_with(rows, at, rows[to].frame), to, rows[at].frame)


def copied(draw: st.DrawFn, rows: list[Row], at: int, queue: Queue, other: Queue) -> list[Row]:
    return _with(rows, at, rows[draw(st.integers(0, len(rows) - 1))].frame)


def stranger(draw: st.DrawFn, rows: list[Row], at: int, queue: Queue, other: Queue) -> list[Row]:
    seq = rows[at].seq or 0
    return _with(rows, at, other.rows[seq].frame if seq < len(other.rows) else None)


def shortened(draw: st.DrawFn, rows: list[Row], at: int, queue: Queue, other: Queue) -> list[Row]:
    return _with(rows, at, _frame(rows[at])[: draw(st.integers(0, 50))])


def null_frame(draw: st.DrawFn, rows: list[Row], at: int, queue: Queue, other: Queue) -> list[Row]:
    return _with(rows, at, None)


def head_in_queue(draw: st.DrawFn, rows: list[Row], at: int, queue: Queue, other: Queue) -> list[Row]:
    return _with(rows, at, queue.service.head(b"n" * 16))


def forked(draw: st.DrawFn, rows: list[Row], at: int, queue: Queue, other: Queue) -> list[Row]:
    """The service was restored from a backup and wrote another last frame."""
    if not queue.forks:
        return rows
    fork = draw(st.sampled_from(queue.forks))
    return [*rows, fork]


_DEFECTS: list[Defect] = [
    missing, cut_off, end_cut_off, end_cut_off, duplicate, altered, header, altered_copy, swapped, copied, stranger,
    shortened, null_frame, null_number, head_in_queue, forked,
    # It has many values, and each of them should come.
    field, field, field, field,
]  # fmt: skip


class Damaged(NamedTuple):
    """An export: the rows of each queue, its head if there is one, and who was given the grants of another queue."""

    parts: list[list[Row]]
    heads: list[bytes | None]
    foreign: list[bool]

    @property
    def rows(self) -> list[Row]:
        return [row for part in self.parts for row in part]

    def __repr__(self) -> str:
        return f"<{len(self.rows)} rows of {len(self.parts)} queues>"


@st.composite
def damaged_export(draw: st.DrawFn, queues: Sequence[Queue], *, most: int = 4) -> Damaged:
    """Every queue with defects; each may take stray frames from the next one."""
    parts, heads, foreign = [], [], []
    for queue, other in zip(queues, [*queues[1:], queues[0]], strict=True):
        parts.append(draw(damaged(queue, other, most=most)))
        head = queue.service.head(NONCE)
        heads.append(draw(st.sampled_from([None, head, head, queue.old_head, head[:-1] + bytes([head[-1] ^ 1])])))
        foreign.append(draw(st.integers(0, 9)) == 9)
    return Damaged(parts, heads, foreign)
