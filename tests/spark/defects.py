"""Defects that Hypothesis writes into the rows of a queue, and what becomes of an export."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st

from .exports import Queue, Row


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
    missing, cut_off, duplicate, altered, header, altered_copy, swapped, copied, stranger, shortened, null_frame,
    head_in_queue, forked,
]  # fmt: skip
__all__ = ["damaged"]
