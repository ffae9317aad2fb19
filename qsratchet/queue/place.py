"""Whether a frame can be the next one, from its number and epoch alone: the rules that a reader has before it opens it.

Nothing here is authenticated yet, so nothing here costs more than comparisons (docs/protocol.md, section 6, rules 6
to 8).
"""

from __future__ import annotations

from .frames import EPOCH_CAP, FrameType, Header
from .policy import ReadPolicy
from .verdicts import EpochGap, Gap, GapTooWide, MalformedFrame, WrongEpoch

__all__ = ["check_place"]


def check_place(
    header: Header, epoch: int, first: int, next_seq: int, discarded: tuple[int, ...], policy: ReadPolicy
) -> None:
    """Raise the verdict on a frame that a reader, who awaits `next_seq` in an epoch begun at `first`, cannot take."""
    missing = header.seq - next_seq
    # What was discarded last may have been the UPDATE that ended this epoch.
    given_up = discarded[-1] if discarded and discarded[-1] >= first else header.seq
    if header.epoch < epoch or (header.epoch > epoch and not missing and given_up == header.seq):
        raise WrongEpoch(header.seq, header.epoch, epoch)
    if header.epoch > epoch:
        raise EpochGap(next_seq if missing else given_up, header.seq - 1, header.epoch, epoch)
    place = header.seq - first
    if place >= EPOCH_CAP or (place == EPOCH_CAP - 1 and header.type is FrameType.DATA):
        raise MalformedFrame(
            f"an epoch has {EPOCH_CAP} frames at most, its UPDATE included, and frame {header.seq} is beyond them"
        )
    if missing and not policy.tolerant:
        raise Gap(next_seq, header.seq - 1)
    if missing > policy.forward_limit:
        raise GapTooWide(next_seq, header.seq - 1, policy.forward_limit)
