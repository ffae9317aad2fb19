"""What the grants of a queue say of one row: the slow, exact path.

It knows one queue's grants and one row at a time, and nothing of rows before it, of Arrow or of Spark.  So its
verdict is the same wherever the row lies in an export.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Final, NamedTuple

from qsratchet import (
    EPOCH_CAP,
    Buffer,
    FrameRejected,
    FrameType,
    Grant,
    Header,
    Message,
    OutsideGrant,
    UnexpectedInit,
    WrongSuite,
    header_of,
)
from qsratchet.crypto.secret import Sensitive

from .kinds import OK, Kind, refusal

__all__ = ["Judged", "QueueGrants"]


class Judged(NamedTuple):
    """A verdict: `kind` is `ok` or a kind of finding; `number` is the frame's own number, if it opened."""

    kind: str
    sentence: str | None = None
    epoch: int | None = None
    type: str | None = None
    number: int | None = None
    body: bytes | None = None


_NULL: Final = "A row has no {what}: the export is damaged, or was not written as this audit expects."


class QueueGrants(Sensitive):
    """The grants of one queue, by epoch."""

    __slots__ = ("_epochs", "_first", "by_epoch", "foreign", "queue_id", "service_id", "start", "suite")

    def __init__(self, service_id: bytes, queue_id: bytes, grants: Iterable[Grant]) -> None:
        self.service_id = service_id
        self.queue_id = queue_id
        own: list[Grant] = []
        self.foreign = 0
        for grant in grants:
            if grant.queue_id == queue_id and grant.service_id == service_id:
                own.append(grant)
            else:
                self.foreign += 1
        # Of two grants for one epoch the earlier opens all that the later does.
        own.sort(key=lambda grant: -grant.first_seq)
        self.by_epoch = {grant.epoch: grant for grant in own}
        places = sorted((grant.first_seq, grant.epoch) for grant in self.by_epoch.values())
        self._first = [first for first, _ in places]
        self._epochs = [epoch for _, epoch in places]
        # A queue keeps its suite.
        self.suite = own[0].suite.id if own else None
        # The first number that should be there: INIT comes with the grant of epoch 0 from number 1 on.
        self.start: int | None = None
        if places:
            self.start = 0 if places[0] == (1, 0) else places[0][0]

    def describe(self) -> str:
        return f"queue={self.queue_id.hex()} epochs={len(self.by_epoch)}"

    def judge(self, seq: int | None, frame: Buffer | None) -> Judged:
        """The verdict on one row."""
        if frame is None or seq is None:
            return Judged(Kind.MALFORMED, _NULL.format(what="number" if seq is None else "frame"))
        if seq < 0:
            return Judged(Kind.MALFORMED, f"A row has the number {seq}: numbers begin at 0.")
        try:
            header = header_of(frame)
        except FrameRejected as verdict:
            return Judged(*refusal(verdict, seq))
        epoch, type, number = header.epoch, header.type.name, header.seq
        if header.type is FrameType.HEAD:
            sentence = f"Row {seq} holds a head, which is not a frame of the queue: it belongs in the table of heads."
            return Judged(Kind.MALFORMED, sentence, epoch, type)
        # Suite and INIT come first, as in the library's own reader; the place counts where the keys do not fit.
        if self.suite is not None and header.suite != self.suite:
            return Judged(*refusal(WrongSuite(header.suite, (self.suite,)), seq), epoch, type)
        if header.type is FrameType.INIT and number > 0:
            return Judged(*refusal(UnexpectedInit(number), seq), epoch, type)
        if header.type is not FrameType.INIT and number == 0:
            sentence = f"Row {seq} holds a frame that claims number 0 and is {type}: only an INIT frame is number 0."
            return Judged(Kind.MALFORMED, sentence, epoch, type)
        grant = self.by_epoch.get(epoch)
        if grant is None:
            return self._misplaced(header) or self._ungranted(header)
        try:
            opened = grant.open(frame)
        except OutsideGrant:
            if number >= grant.first_seq + EPOCH_CAP:
                sentence = f"Frame {seq} claims number {number}, which is too far on to be in epoch {epoch}."
                return self._misplaced(header) or Judged(Kind.WRONG_EPOCH, sentence, epoch, type)
            return self._misplaced(header) or self._ungranted(header)
        except FrameRejected as verdict:
            return self._misplaced(header) or Judged(*refusal(verdict, seq), epoch, type)
        body = opened.body if isinstance(opened, Message) else None
        if number != seq:
            sentence = f"The frame stored under number {seq} is authentic, but it is frame {number} of this queue."
            return Judged(Kind.REORDERED, sentence, epoch, type, number, body)
        return Judged(OK, None, epoch, type, number, body)

    def _misplaced(self, header: Header) -> Judged | None:
        """The verdict on a frame whose number lies in another epoch than it claims, as far as the grants tell."""
        number, epoch = header.seq, header.epoch
        if number == 0 and epoch > 0:
            sentence = f"Frame 0 claims epoch {epoch}, but a queue begins with epoch 0: it was altered."
            return Judged(Kind.WRONG_EPOCH, sentence, epoch, header.type.name)
        at = bisect_right(self._first, max(number, 1)) - 1
        if at < 0:
            return None
        expected = self._epochs[at]
        # Beyond the last grant, a later epoch is as likely as a forged one.
        between = at + 1 < len(self._epochs) and self._epochs[at + 1] == expected + 1
        if epoch == expected or (epoch > expected and not between) or number >= self._first[at] + EPOCH_CAP:
            return None
        sentence = f"Frame {number} claims epoch {epoch}, but that number lies in epoch {expected}: it was altered."
        return Judged(Kind.WRONG_EPOCH, sentence, epoch, header.type.name)

    def _ungranted(self, header: Header) -> Judged:
        if self.foreign and not self.by_epoch:
            kind, sentence = (
                Kind.WRONG_GRANT,
                "The grants given for this queue are of another queue: none of them fits.",
            )
        elif not self.by_epoch:
            kind, sentence = Kind.NO_GRANT, "There is no grant for this queue, so nothing of it could be opened."
        else:
            kind = Kind.NO_GRANT
            sentence = f"There is no grant for epoch {header.epoch} from number {header.seq} on: it stays closed."
        return Judged(kind, sentence, header.epoch, header.type.name)
