"""Memory: a queue of any length is read in the memory of one batch."""

from __future__ import annotations

from benchmarks.bench_memory import peaks


def test_reading_in_batches_holds_no_more_than_one_batch() -> None:
    peak, early, _ = peaks(40_000)
    assert peak <= 1.1 * early
