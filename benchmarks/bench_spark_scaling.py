"""How the audit on Spark grows: throughput with the number of cores, memory with the length of a queue.

    python -m benchmarks.bench_spark_scaling [--quick] [--plots FOLDER]

Throughput is that of opening all messages of a clustered export, beside the plain loop in as many processes, for one
core up to all that this machine has.  Memory is the most that any Python worker of Spark ever held, read from the
kernel's own account (VmHWM), while it audits and opens a single queue that is ten times longer from step to step.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.pool import Pool
from pathlib import Path

from pyspark_udfs import Layout

from .bench_spark import SIZE, audited, descendants, opened, plain_loop
from .exports import session, write_export
from .measure import table
from .plots import line_plot

MIB = 1 << 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small: shows that it runs, the figures mean little")
    parser.add_argument("--plots", type=Path, metavar="FOLDER", help="write cores.svg and memory.svg there")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="qsratchet-bench-"))
    cores = list(range(1, (os.cpu_count() or 1) + 1))
    try:
        with multiprocessing.get_context("fork").Pool(cores[-1]) as pool:
            throughput = throughput_by_cores(folder, pool, cores, 20 if arguments.quick else 1_000)
            lengths = [1_000, 10_000] if arguments.quick else [10_000, 100_000, 1_000_000]
            memory = memory_by_length(folder, pool, lengths)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    rows = [(str(count), *(f"{dict(points)[count] / 1e3:.0f}" for points in throughput.values())) for count in cores]
    print(table("Throughput by cores, thousand messages a second", ("cores", *throughput), rows))
    rows = [(f"{length:,}", *(f"{dict(points)[length]:.0f}" for points in memory.values())) for length in lengths]
    print(table("The most that a worker held, MiB", ("messages in the queue", *memory), rows))
    if arguments.plots is not None:
        arguments.plots.mkdir(parents=True, exist_ok=True)
        (arguments.plots / "cores.svg").write_text(
            line_plot(throughput, title="Opening a clustered export", x="cores", y="messages a second", ticks=cores)
        )
        (arguments.plots / "memory.svg").write_text(
            line_plot(memory, title="Memory of a worker", x="messages in one queue", y="MiB at the most", ticks=lengths)
        )


Lines = dict[str, list[tuple[float, float]]]


def throughput_by_cores(folder: Path, pool: Pool, cores: list[int], queues: int) -> Lines:
    export = write_export(folder / "even", queues, 500, SIZE, pool)
    lines: Lines = {"plain loop": [], "Spark, messages": [], "Spark, audit": []}
    for count in cores:
        spark = session(folder, count)
        contestants: dict[str, Callable[[], object]] = {
            "plain loop": partial(plain_loop, pool, export, count),
            "Spark, messages": partial(opened, spark, export, Layout.CLUSTERED),
            "Spark, audit": partial(audited, spark, export, Layout.CLUSTERED),
        }
        best = dict.fromkeys(contestants, float("inf"))
        for _ in range(3):
            for name, run in contestants.items():
                start = time.perf_counter()
                run()
                best[name] = min(best[name], time.perf_counter() - start)
        for name, took in best.items():
            lines[name].append((count, export.messages / took))
        spark.stop()
    return lines


def memory_by_length(folder: Path, pool: Pool, lengths: list[int]) -> Lines:
    lines: Lines = {"messages": [], "audit": []}
    for length in lengths:
        export = write_export(folder / f"queue-{length}", 1, length, SIZE, pool)
        for name, run in (("messages", opened), ("audit", audited)):
            # A new session has new workers, whose peaks are those of this run alone.
            spark = session(folder, 2)
            before = set(descendants())
            run(spark, export, Layout.CLUSTERED)
            workers = [
                pid for pid, (_, command) in descendants().items() if pid not in before and "java" not in command
            ]
            lines[name].append((length, max(map(_peak, workers)) / MIB))
            spark.stop()
        shutil.rmtree(folder / f"queue-{length}")
    return lines


def _peak(pid: int) -> int:
    """The most memory that a process has held so far, in bytes."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM")), 0)


if __name__ == "__main__":
    main()
