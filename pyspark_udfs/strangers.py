"""Whether a frame that does not authenticate in its queue is a frame of another queue.

Frames do not say which queue they are of, so the only way is to try.  Trying is bounded: so many frames of a queue,
so many queues, and so many tries in a task, so that an export full of garbage does not stop the audit.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

from qsratchet import FrameRejected, header_of

from .judge import QueueGrants
from .sources import GrantSource

__all__ = ["FRAMES_TRIED", "Strangers"]

#: So many failed frames of a queue are tried.
FRAMES_TRIED: Final = 16
#: Each with the grants of so many other queues: the nearest in the order of their ids, in which exports are sorted.
QUEUES_TRIED: Final = 64
#: A task makes no more tries than this.
BUDGET: Final = 20_000


class Strangers:
    """Looks for the queue that a stray frame is of."""

    def __init__(self, source: GrantSource) -> None:
        self._source = source
        self._queues: list[tuple[bytes, bytes]] | None = None
        self._loaded: dict[tuple[bytes, bytes], QueueGrants] = {}
        self._left = BUDGET

    def home(self, service_id: bytes, queue_id: bytes, frame: bytes) -> tuple[bytes, int] | None:
        """The id of the queue that the frame is of, and its number there; None if it was not found."""
        if self._queues is None:
            self._queues = sorted(set(self._source.queues()))
        queues = self._queues
        here = (service_id, queue_id)
        at = bisect_left(queues, here)
        try:
            epoch = header_of(frame).epoch
        except FrameRejected:
            return None
        for step in range(min(QUEUES_TRIED + 1, len(queues))):
            # Here, then one to the right, one to the left, two to the right …
            key = queues[(at + (step + 1) // 2 * (1 if step % 2 else -1)) % len(queues)]
            if key == here or self._left <= 0:
                continue
            self._left -= 1
            grant = self._grants(key).by_epoch.get(epoch)
            if grant is None:
                continue
            try:
                return key[1], grant.open(frame).seq
            except FrameRejected:
                continue
        return None

    def _grants(self, key: tuple[bytes, bytes]) -> QueueGrants:
        grants = self._loaded.get(key)
        if grants is None:
            if len(self._loaded) > 4 * QUEUES_TRIED:
                self._loaded.clear()
            grants = self._loaded[key] = QueueGrants(*key, self._source.grants(*key))
        return grants
