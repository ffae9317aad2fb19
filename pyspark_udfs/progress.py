"""A progress bar for a person at a terminal: on stderr, and only there or when asked for.

Work that counts for itself calls `Progress.show`; what Spark does is watched through its status tracker.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, TextIO

from pyspark.sql import SparkSession

__all__ = ["Progress"]

_WIDTH: Final = 28


class Progress:
    """One line that is written over; nothing at all when it is switched off."""

    def __init__(self, wanted: bool | None = None, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._on = self._stream.isatty() if wanted is None else wanted
        self._shown = ""

    def show(self, what: str, done: int, total: int) -> None:
        """Say that `done` of `total` is done."""
        if not self._on:
            return
        share = min(1.0, done / total) if total else 0.0
        full = int(share * _WIDTH)
        line = f"{what:<24} [{'#' * full}{'.' * (_WIDTH - full)}] {share:4.0%}"
        if line != self._shown:
            self._stream.write(f"\r{line}")
            self._stream.flush()
            self._shown = line

    def clear(self) -> None:
        """Leave the line empty for what comes next."""
        if self._shown:
            self._stream.write("\r" + " " * len(self._shown) + "\r")
            self._stream.flush()
            self._shown = ""

    @contextmanager
    def watching(self, spark: SparkSession, what: str) -> Iterator[None]:
        """Show how far Spark's running stages are while the block runs."""
        if not self._on or not hasattr(spark, "_jsparkSession"):
            # Spark Connect has no status tracker; its own client shows progress.
            yield
            return
        done = threading.Event()
        thread = threading.Thread(target=self._watch, args=(spark, what, done), daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join(timeout=2)
            self.clear()

    def _watch(self, spark: SparkSession, what: str, done: threading.Event) -> None:
        tracker = spark.sparkContext.statusTracker()
        started = time.monotonic()
        while not done.wait(0.25):
            finished = total = 0
            for stage in tracker.getActiveStageIds():
                info = tracker.getStageInfo(stage)
                if info is not None:
                    finished += info.numCompletedTasks
                    total += info.numTasks
            self.show(f"{what} ({time.monotonic() - started:.0f} s)", finished, total)
