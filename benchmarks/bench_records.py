"""Queue records: a sweep of a million of them, against a bare loop over the same dates measured in the same run.

Run ``python benchmarks/bench_records.py`` from the root (``--quick`` for a twentieth of the records).  The floor
is the least that any sweep in Python does: look at the date of each record and compare it.  Every figure is the best of
several rounds; the ratio is between the two best ones.
"""

from __future__ import annotations

import argparse
import gc
import platform
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from qsratchet.records import (
    EMPTY_LOG,
    Blob,
    MessageSent,
    QueueRecord,
    Usage,
    append,
    apply,
    compact,
    decide,
    evict,
    replay,
    sweep,
)

TODAY = date(2026, 11, 18)
ROUNDS = 5


def service(number: int) -> Iterator[QueueRecord]:
    """A service as one might find it: mostly connections, some open invitations, some addresses."""
    random = Random(7)
    for index in range(number):
        share = random.random()
        day = TODAY - timedelta(days=random.randrange(25))
        if share < 0.7:
            yield QueueRecord(
                queue_id=index.to_bytes(24, "big"),
                usage=Usage.MESSAGING,
                updated_on=day,
                owner_seen_on=day,
                secured=True,
                link_used=True,
            )
            continue
        if share >= 0.85:
            day = TODAY - timedelta(days=random.randrange(750))
        yield QueueRecord(
            queue_id=index.to_bytes(24, "big"),
            usage=Usage.MESSAGING if share < 0.85 else Usage.CONTACT,
            updated_on=day,
            owner_seen_on=day,
            blobs=(
                Blob(priority=0, size=2048, added_on=day),
                Blob(priority=1, size=1500, added_on=day),
                Blob(priority=2, size=13_000, added_on=day),
            ),
        )


def best(measured: Callable[[], object], rounds: int = ROUNDS) -> float:
    """Seconds of the fastest round, without the pauses of the garbage collector."""
    times = []
    for _ in range(rounds):
        gc.collect()
        gc.disable()
        start = time.perf_counter()
        measured()
        times.append(time.perf_counter() - start)
        gc.enable()
    return min(times)


def bare_loop(dates: list[date], limit: date) -> int:
    found = 0
    for day in dates:
        if day < limit:
            found += 1
    return found


def exhaust(decisions: Iterator[object]) -> int:
    found = 0
    for _ in decisions:
        found += 1
    return found


def peak_of_sweep(number: int) -> int:
    """Bytes at the highest point of a sweep over records that exist only one at a time."""
    tracemalloc.start()
    exhaust(sweep(service(number), TODAY))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="50,000 records instead of a million")
    number = 50_000 if parser.parse_args().quick else 1_000_000

    print(f"{number:,} records, Python {platform.python_version()}, best of {ROUNDS} rounds\n")
    print(f"{'':44}{'per second':>14}{'ns each':>10}{'ratio':>8}")

    def row(name: str, seconds: float, each: int, floor: float | None = None) -> None:
        ratio = "" if floor is None else f"{seconds / floor:.2f}"
        print(f"{name:44}{each / seconds:>14,.0f}{seconds / each * 1e9:>10,.0f}{ratio:>8}")

    records = list(service(number))
    dates = [record.active_on for record in records]
    limit = TODAY - timedelta(days=21)
    floor = best(lambda: bare_loop(dates, limit))
    row("bare loop over the same dates (floor)", floor, number, floor)
    row("sweep", best(lambda: exhaust(sweep(records, TODAY))), number, floor)
    row("evict, 1 % of the blobs", best(lambda: evict(records, number * 50), 1), number, floor)
    row("decide, one record at a time", best(lambda: [decide(record, TODAY) for record in records[:50_000]]), 50_000)

    stored = [record.encode() for record in records[:50_000]]
    decoded = best(lambda: exhaust(sweep(map(QueueRecord.decode, stored), TODAY)))
    row("sweep over stored documents, with decoding", decoded, len(stored))

    record = records[0]
    again = MessageSent(queue_id=record.queue_id, day=record.updated_on)
    row("apply, not the first message of the day", best(lambda: [apply(record, again) for _ in range(50_000)]), 50_000)
    later = MessageSent(queue_id=record.queue_id, day=TODAY + timedelta(days=1))
    row("apply, the first message of the day", best(lambda: [apply(record, later) for _ in range(50_000)]), 50_000)
    row("append to the log", best(lambda: [append(EMPTY_LOG, later) for _ in range(50_000)]), 50_000)

    part = records[:50_000]
    log = [data for data, _ in compact(part)]
    row("compact the log", best(lambda: list(compact(part))), len(part))
    row("replay the compacted log", best(lambda: replay(log)), len(part))

    few, many = peak_of_sweep(number // 100), peak_of_sweep(number // 10)
    print(f"\nmemory of a sweep, at its peak: {few:,} bytes for {number // 100:,} records, ", end="")
    print(f"{many:,} bytes for {number // 10:,}")


if __name__ == "__main__":
    main()
