"""What a head proves of the end of a queue, compared with where an export ends."""

from __future__ import annotations

from typing import NamedTuple

from qsratchet import FrameRejected, HeadRejected, MisuseError, header_of

from .judge import QueueGrants
from .kinds import Kind

__all__ = ["HeadFinding", "check_head"]


class HeadFinding(NamedTuple):
    """What is wrong with a head, or with the end of its queue."""

    kind: Kind
    seq: int | None
    last_seq: int | None
    epoch: int | None
    sentence: str


def check_head(grants: QueueGrants | None, head: bytes, nonce: bytes, end: int | None) -> HeadFinding | None:
    """Check a head for an export whose next number would be `end`; None if it confirms that."""
    if end is None:
        end = (grants.start if grants is not None else None) or 0
    try:
        header = header_of(head)
        grant = grants.by_epoch.get(header.epoch) if grants is not None else None
        if grant is None:
            sentence = f"The head cannot be checked: there is no grant for its epoch, {header.epoch}."
            return HeadFinding(Kind.NO_GRANT, header.seq, None, header.epoch, sentence)
        # From 0 on, so that a head behind the last frame is authenticated too before it is believed.
        proved = grant.verify_head(head, nonce, next_seq=0)
    except (FrameRejected, HeadRejected, MisuseError) as error:
        return HeadFinding(Kind.HEAD_REJECTED, None, None, None, f"The head was refused: {error}.")
    if proved.next_seq > end:
        last = proved.next_seq - 1
        sentence = f"The end was cut off: the service proved that frames {end} to {last} exist."
        return HeadFinding(Kind.TAIL_CUT_OFF, end, last, proved.epoch, sentence)
    if proved.next_seq < end:
        sentence = f"The service proved {proved.next_seq} frames, but the export has {end}: it went back in time."
        return HeadFinding(Kind.ROLLED_BACK, proved.next_seq, end - 1, proved.epoch, sentence)
    return None
