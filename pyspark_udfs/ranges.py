"""Closed ranges of numbers, in order and apart from one another: gaps, and what fills them."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["Ranges", "common", "without"]

#: A pair is the first and the last number of a range.
Pair = tuple[int, int]


class Ranges(list[Pair]):
    """Ranges that are collected in the order of their first numbers."""

    def add(self, first: int, last: int) -> bool:
        """Add a range; whether it began a new one, because it does not touch the last."""
        if self and first <= self[-1][1] + 1:
            self[-1] = (self[-1][0], max(last, self[-1][1]))
            return False
        self.append((first, last))
        return True


def common(ranges: Iterable[Pair], first: int, last: int) -> list[Pair]:
    """What of the ranges lies between two numbers."""
    return [(max(a, first), min(b, last)) for a, b in ranges if a <= last and b >= first]


def without(ranges: Iterable[Pair], first: int, last: int) -> list[Pair]:
    """What of the ranges does not lie between two numbers."""
    rest = []
    for a, b in ranges:
        rest += [(x, y) for x, y in ((a, min(b, first - 1)), (max(a, last + 1), b)) if x <= y]
    return rest
