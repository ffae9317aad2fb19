"""Memory while a long queue is read in batches: it is that of one batch, whatever the length of the queue.

python -m benchmarks.bench_memory
"""

from __future__ import annotations

import sys
import time
import tracemalloc

from benchmarks.measure import arguments, table
from qsratchet import Dequeuer, Enqueuer

BATCH = 1000
SIZE = 256


def peaks(frames: int) -> tuple[int, int, float]:
    """Read a queue as it is written; return the peak of bytes, that of the first ten batches, and seconds."""
    owner, request = Dequeuer.create(b"service", b"queue")
    service, init = Enqueuer.create(request, now=0)
    owner.open(init.data)
    early = 0
    started = time.perf_counter()
    tracemalloc.start()
    for batch in range(frames // BATCH):
        sealed = service.enqueue_many([bytes(SIZE)] * BATCH, now=0)
        owner.open_many([frame.data for frame in sealed])
        if batch == 9:
            early = tracemalloc.get_traced_memory()[1]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak, early, time.perf_counter() - started


def main() -> int:
    options = arguments(__doc__ or "")
    frames = 20_000 if options.quick else 1_000_000
    peak, early, seconds = peaks(frames)
    row = (
        f"{frames:,}",
        f"{BATCH} × {SIZE} B",
        f"{early / 1e6:.2f}",
        f"{peak / 1e6:.2f}",
        f"{peak / early:.3f}",
        f"{seconds:.0f}",
    )
    head = ("frames", "batch", "peak MB, first ten batches", "peak MB, all", "ratio", "seconds (traced)")
    print(table("Memory", head, [row]))
    return 0 if peak <= 1.1 * early else 1


if __name__ == "__main__":
    sys.exit(main())
