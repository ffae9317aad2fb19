"""The kinds of findings, and the sentence for each: what an auditor reads.

Sentences name numbers, epochs and queues, never key material.  Who adds a kind adds a row here.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from qsratchet import FrameRejected

__all__ = ["OK", "Kind", "refusal"]

#: The verdict on a row that opened under its own number.
OK: Final = "ok"


class Kind(StrEnum):
    """What can be wrong with a queue.  The values stand in the tables and stay as they are."""

    GAP = "gap"
    DUPLICATE = "duplicate"
    FORK = "fork"
    REORDERED = "reordered"
    TAMPERED = "tampered"
    WRONG_QUEUE = "wrong queue"
    WRONG_EPOCH = "wrong epoch"
    WRONG_SUITE = "wrong suite"
    WRONG_GRANT = "wrong grant"
    UNKNOWN_SUITE = "unknown suite"
    UNKNOWN_VERSION = "unknown version"
    UNKNOWN_TYPE = "unknown type"
    UNEXPECTED_INIT = "unexpected init"
    MALFORMED = "malformed"
    NO_GRANT = "no grant"
    UPDATE_MISSING = "update missing"
    TAIL_CUT_OFF = "tail cut off"
    ROLLED_BACK = "rolled back"
    HEAD_REJECTED = "head rejected"
    PASSED = "passed"
    FILLED = "filled"
    UNSORTED = "unsorted"


_REFUSALS: Final = {
    Kind.TAMPERED: "Frame {seq} does not authenticate: its bytes were altered, or it is not of this queue.",
    Kind.UNKNOWN_SUITE: "Frame {seq} names a suite that does not exist: it was altered, or is of a later release.",
    Kind.UNKNOWN_VERSION: "Frame {seq} is of another protocol version: it was altered, or is of a later release.",
    Kind.UNKNOWN_TYPE: "Frame {seq} is of a type that does not exist: it was altered, or is of a later release.",
    Kind.WRONG_SUITE: "Frame {seq} names another suite than its queue uses: it was altered, or belongs elsewhere.",
    Kind.UNEXPECTED_INIT: "Row {seq} holds an INIT frame, which only number 0 may be: the queue was reset or altered.",
}


def refusal(verdict: FrameRejected, seq: int) -> tuple[str, str]:
    """The kind and the sentence for a frame that the library refused under the number `seq`."""
    try:
        kind = Kind(verdict.kind)
    except ValueError:
        kind = Kind.MALFORMED
    text = _REFUSALS.get(kind)
    return str(kind), text.format(seq=seq) if text else f"Row {seq} does not hold a frame: {verdict}."
