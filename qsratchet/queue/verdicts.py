"""What the owner's side says of a frame that it does not take: one class for each reason.

A verdict is an exception; the batch calls hand it back as a value in the frame's place.  None of them
changes the machine.  They are read from a header that nobody has authenticated yet, so a
verdict says what the bytes claim, and the advice in it is what to do if the claim is true.  `MissingKey`, and a
`MalformedFrame` that says so, are about authentic frames.
"""

from __future__ import annotations

from typing import ClassVar

from ..errors import RejectedError

__all__ = [
    "Duplicate",
    "EpochGap",
    "Fork",
    "FrameRejected",
    "Gap",
    "GapTooWide",
    "HeadAhead",
    "HeadRejected",
    "MalformedFrame",
    "MissingKey",
    "OutsideGrant",
    "Passed",
    "RolledBack",
    "Tampered",
    "UnexpectedInit",
    "UnknownSuite",
    "UnknownType",
    "UnknownVersion",
    "WrongEpoch",
    "WrongSuite",
]


class FrameRejected(RejectedError):
    """A frame was refused.  `kind` is a stable name for logs and tables."""

    kind: ClassVar[str] = "rejected"


class MalformedFrame(FrameRejected):
    """The bytes do not have the layout of a frame, or an authentic frame breaks a rule of the protocol."""

    kind = "malformed"


class UnknownVersion(FrameRejected):
    """The frame is of a protocol version that this release does not read."""

    kind = "unknown version"

    def __init__(self, version: int) -> None:
        super().__init__(
            f"frame of protocol version {version}; this release reads version 1: upgrade, or check the source"
        )
        self.version = version


class UnknownType(FrameRejected):
    """The frame's type is none of INIT, DATA, UPDATE and HEAD."""

    kind = "unknown type"

    def __init__(self, type: int) -> None:
        super().__init__(f"frame of unknown type {type}: upgrade, or fetch the frame again")
        self.type = type


class UnknownSuite(FrameRejected):
    """The frame's suite is not in the table of suites."""

    kind = "unknown suite"

    def __init__(self, suite: int) -> None:
        super().__init__(f"frame of unknown suite 0x{suite:04x}: upgrade, or fetch the frame again")
        self.suite = suite


class WrongSuite(FrameRejected):
    """The suite is known, but this queue does not use it (or the owner never offered it)."""

    kind = "wrong suite"

    def __init__(self, suite: int, expected: tuple[int, ...]) -> None:
        names = ", ".join(f"0x{id:04x}" for id in expected)
        super().__init__(
            f"frame of suite 0x{suite:04x} in a queue of suite {names}: it belongs elsewhere, or was altered"
        )
        self.suite = suite
        self.expected = expected


class Duplicate(FrameRejected):
    """The very frame that was read under this number; drop it and acknowledge as usual."""

    kind = "duplicate"

    def __init__(self, seq: int) -> None:
        super().__init__(f"frame {seq} was read before: drop it")
        self.seq = seq


class Fork(FrameRejected):
    """Another frame was read under this number: the service was restored from a backup, or storage was altered."""

    kind = "fork"

    def __init__(self, seq: int) -> None:
        super().__init__(
            f"another frame was read under number {seq}: the copy is damaged, or the service went back in time "
            "or has two writers; fetch it again, and reset the queue if it is still another, even if the head is right"
        )
        self.seq = seq


class Passed(FrameRejected):
    """The number was passed and its key deleted: it was skipped or discarded, or is too old to be compared."""

    kind = "passed"

    def __init__(self, seq: int, next_seq: int) -> None:
        super().__init__(
            f"frame {seq} comes after its key was deleted; the next one to read is {next_seq}: drop it, and check "
            "the head if there are many, as the service may have gone back in time"
        )
        self.seq = seq
        self.next_seq = next_seq


class Gap(FrameRejected):
    """Frames are missing before this one."""

    kind = "gap"

    def __init__(self, first: int, last: int) -> None:
        super().__init__(
            f"frames {first} to {last} are missing: fetch from {first}; if they are lost, read on with "
            "ReadPolicy(tolerant=True)"
        )
        self.first = first
        self.last = last


class GapTooWide(Gap):
    """More frames are missing than the forward limit lets a tolerant reader pass in one step."""

    kind = "gap too wide"

    def __init__(self, first: int, last: int, limit: int) -> None:
        super().__init__(first, last)
        self.limit = limit
        text = f"frames {first} to {last} are missing, more than the forward limit of {limit}: fetch from {first}; "
        self.args = (text + "if they are lost, raise the limit in ReadPolicy or reset the queue",)


class EpochGap(Gap):
    """The frame is of a later epoch: among the missing frames is at least one UPDATE, without which nothing opens."""

    kind = "epoch gap"

    def __init__(self, first: int, last: int, epoch: int, current: int) -> None:
        super().__init__(first, last)
        self.epoch = epoch
        self.current = current
        text = f"this frame is of epoch {epoch}, the reader is in epoch {current}, and an UPDATE is missing among the "
        self.args = (
            text + f"frames {first} to {last}: fetch from {first}; if it is lost, or was discarded, reset the queue",
        )


class WrongEpoch(FrameRejected):
    """The epoch does not fit the number."""

    kind = "wrong epoch"

    def __init__(self, seq: int, epoch: int, expected: int) -> None:
        super().__init__(f"frame {seq} claims epoch {epoch}, but that number is in epoch {expected}: fetch it again")
        self.seq = seq
        self.epoch = epoch
        self.expected = expected


class Tampered(FrameRejected):
    """The frame does not authenticate: it was altered, or is of another queue, place or history."""

    kind = "tampered"

    def __init__(self, seq: int) -> None:
        super().__init__(
            f"frame {seq} does not authenticate: fetch it again; if it stays so, discard gives up a DATA frame and "
            "goes on, and after a lost UPDATE only reset does"
        )
        self.seq = seq


class MissingKey(FrameRejected):
    """An UPDATE is sealed to a key that the reader does not hold (any more)."""

    kind = "missing key"

    def __init__(self, seq: int, key_id: int) -> None:
        super().__init__(
            f"the UPDATE frame {seq} is sealed to an owner's key {key_id} that is not here: a stored state older than "
            "that key was restored, or the key was never kept; without it, reset the queue"
        )
        self.seq = seq
        self.key_id = key_id


class UnexpectedInit(FrameRejected):
    """An INIT frame where none may be: a queue takes one, and a new one only after `reset`."""

    kind = "unexpected init"

    def __init__(self, seq: int) -> None:
        super().__init__(f"frame {seq} is an INIT, and this queue is set up already: it is never taken without reset()")
        self.seq = seq


class OutsideGrant(FrameRejected):
    """The frame lies outside what the grant opens."""

    kind = "outside grant"

    def __init__(self, seq: int, epoch: int, first: int, granted: int) -> None:
        super().__init__(
            f"frame {seq} of epoch {epoch} is outside this grant, which opens epoch {granted} from {first} on: "
            "use the grant of its epoch"
        )
        self.seq = seq
        self.epoch = epoch
        self.first = first
        self.granted = granted


class HeadRejected(RejectedError):
    """A head does not authenticate against this nonce."""


class HeadAhead(HeadRejected):
    """The head lies beyond what can be checked from here: read up to it first."""

    def __init__(self, next_seq: int, reader_next: int) -> None:
        super().__init__(
            f"the service claims that its next frame is {next_seq}, too far from {reader_next} to be checked: "
            "read the frames between and check again; if there are none to fetch, the end of the queue was cut off"
        )
        self.next_seq = next_seq
        self.reader_next = reader_next


class RolledBack(HeadRejected):
    """The head lies behind what was read: the service went back in time, or somebody replays an old head."""

    def __init__(self, next_seq: int, reader_next: int) -> None:
        super().__init__(
            f"the service claims that its next frame is {next_seq}, but {reader_next - 1} was read already: it was "
            "restored from a backup, or this is not its answer; its next frames will be forks until the queue is reset"
        )
        self.next_seq = next_seq
        self.reader_next = reader_next
