"""The bulk audit on Spark beside a plain loop in two processes over the same Parquet file, in one run.

    python -m benchmarks.bench_spark [--quick | --full] [--only even|tiny|huge]

The plain loop does the same cryptography with the same inner loop and the same grant file, and throws the messages
away: it is the floor.  `--full` has the sizes of the bars: a million messages in 2,000 queues, a million queues of one
message, and one queue of 2.5 million messages.  It takes about half an hour and 6 GB of disk, and exits with 1 if a bar
was missed.

Ratios are of wall time, and of CPU time of all processes together (JVM and workers included).  With both cores free
they agree; on a machine that others use too, only the second means something.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing.pool import Pool
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from pyspark_udfs import Layout, ParquetFiles, audit, open_frames
from pyspark_udfs.opening import Opener, Run

from .exports import Export, scattered, session, write_export
from .measure import table

__all__ = ["SIZE", "audited", "descendants", "opened", "plain_loop"]

CORES: Final = 2
SIZE: Final = 1_000
FLOOR: Final = "plain loop, 2 processes"
CLUSTERED: Final = "messages, clustered"
SCATTERED: Final = "messages, scattered"


class Shape(NamedTuple):
    """An export: queues, messages in each, and the least ratio of the contestants that have a bar."""

    title: str
    queues: int
    messages: int
    bars: dict[str, float]


QUICK: Final = (Shape("even", 20, 500, {}), Shape("tiny", 2_000, 1, {}), Shape("huge", 1, 20_000, {}))
NORMAL: Final = (Shape("even", 800, 500, {}), Shape("tiny", 50_000, 1, {}), Shape("huge", 1, 400_000, {}))
FULL: Final = (
    Shape("even", 2_000, 500, {CLUSTERED: 0.7, SCATTERED: 0.4}),
    Shape("huge", 1, 2_500_000, {CLUSTERED: 0.6}),
    Shape("tiny", 1_000_000, 1, {CLUSTERED: 0.5}),
)


# --- contestants ---------------------------------------------------------------------------------


def _part(job: tuple[Export, int, int]) -> int:
    export, part, parts = job
    file = pq.ParquetFile(export.path, pre_buffer=False)
    groups = file.num_row_groups
    mine = range(groups * part // parts, groups * (part + 1) // parts)
    opener = Opener(export.grants)
    found = 0
    for batch in file.iter_batches(batch_size=10_000, row_groups=list(mine)):
        for stretch in opener.stretches(batch):
            for event in opener.events(stretch):
                found += len(event.messages) if isinstance(event, Run) else event.judged.body is not None
    return found


def plain_loop(pool: Pool, export: Export, processes: int = CORES) -> None:
    found = sum(pool.map(_part, [(export, part, processes) for part in range(processes)], chunksize=1))
    assert found == export.messages


def discard(messages: DataFrame) -> None:
    messages.write.format("noop").mode("overwrite").save()


def audited(spark: SparkSession, export: Export, layout: Layout | None) -> None:
    with audit(ParquetFiles(spark, str(export.path)), export.grants, layout=layout) as result:
        row = result.summary.agg(fn.sum("messages"), fn.count_if("verified"), fn.count("*")).first()
        assert row is not None
        assert row[0] == export.messages
        assert row[1] == row[2]


def opened(spark: SparkSession, export: Export, layout: Layout) -> None:
    discard(open_frames(ParquetFiles(spark, str(export.path)), export.grants, layout=layout))


def sent(spark: SparkSession, export: Export) -> None:
    """The same, with the frames read and sent to the workers by Spark's Java process, as on most clusters."""
    discard(open_frames(spark.read.parquet(str(export.path)), export.grants, layout=Layout.CLUSTERED))


def built_in(spark: SparkSession, folder: Path, messages: int) -> DataFrame:
    """Spark's own `aes_decrypt` on payloads of the same size, with keys handed to it."""
    path = folder / "aes"
    key = "sha2(cast(id as string), 256)"
    sealed = spark.range(messages).selectExpr(
        f"unhex({key}) as key", f"aes_encrypt(repeat('x', {SIZE}), unhex({key}), 'GCM') as sealed"
    )
    sealed.write.option("compression", "none").parquet(str(path))
    return spark.read.parquet(str(path)).selectExpr("aes_decrypt(sealed, key, 'GCM') as body")


# --- the run -------------------------------------------------------------------------------------


class Cost(NamedTuple):
    """The best wall time and the best CPU time, in seconds, and how many cores were busy in the best round."""

    wall: float
    cpu: float
    busy: float


def rounds(contestants: dict[str, Callable[[], object]], count: int) -> dict[str, Cost]:
    """Run each in turn, so often, and take the best."""
    found: dict[str, list[Cost]] = {name: [] for name in contestants}
    for turn in range(count):
        for name, run in contestants.items():
            start, used = time.perf_counter(), cpu_seconds()
            run()
            took, used = time.perf_counter() - start, cpu_seconds() - used
            found[name].append(Cost(took, used, used / took))
            print(f"  round {turn + 1} of {count}: {name}, {took:.1f} s", file=sys.stderr, flush=True)
    return {
        name: Cost(min(costs).wall, min(cost.cpu for cost in costs), min(costs).busy) for name, costs in found.items()
    }


def cpu_seconds() -> float:
    """The CPU time of this process and all that descend from it, those that ended included.  Linux only."""
    return sum(seconds for seconds, _ in descendants().values())


def descendants() -> dict[int, tuple[float, str]]:
    """All processes from here down: CPU seconds and command."""
    parents: dict[int, int] = {}
    found: dict[int, tuple[float, str]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            head, _, tail = stat.read_text().rpartition(")")
        except OSError:
            continue
        fields = tail.split()
        pid = int(stat.parent.name)
        parents[pid] = int(fields[1])
        found[pid] = (sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK"), head.partition("(")[2])
    own = {}
    for pid, values in found.items():
        ancestor = pid
        while ancestor not in (0, os.getpid()):
            ancestor = parents.get(ancestor, 0)
        if ancestor:
            own[pid] = values
    return own


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small: shows that it runs, the figures mean little")
    parser.add_argument("--full", action="store_true", help="the sizes of the bars")
    parser.add_argument("--only", choices=("even", "tiny", "huge"), help="one of the shapes")
    parser.add_argument("--rounds", type=int, default=5, help="each in turn, the best counts (%(default)s)")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="qsratchet-bench-"))
    missed: list[str] = []
    try:
        # The pool forks before there is a JVM.
        with multiprocessing.get_context("fork").Pool(CORES) as pool:
            spark = session(folder, CORES)
            for shape in QUICK if arguments.quick else FULL if arguments.full else NORMAL:
                if arguments.only in (None, shape.title):
                    missed += measure(spark, pool, folder, shape, arguments.rounds)
            spark.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for line in missed:
        print(f"MISSED: {line}")
    return 1 if missed else 0


def measure(spark: SparkSession, pool: Pool, folder: Path, shape: Shape, count: int) -> list[str]:
    """Print the table of one shape; return the bars that were missed."""
    place = folder / shape.title
    export = write_export(place, shape.queues, shape.messages, SIZE, pool)
    contestants: dict[str, Callable[[], object]] = {
        FLOOR: lambda: plain_loop(pool, export),
        CLUSTERED: lambda: opened(spark, export, Layout.CLUSTERED),
        "messages, clustered, read by Spark": lambda: sent(spark, export),
        "audit, clustered": lambda: audited(spark, export, Layout.CLUSTERED),
        "audit, layout found out": lambda: audited(spark, export, None),
    }
    if shape.title == "even":
        mixed = scattered(export, folder / "scattered")
        contestants[SCATTERED] = lambda: opened(spark, mixed, Layout.SCATTERED)
        contestants["audit, scattered"] = lambda: audited(spark, mixed, Layout.SCATTERED)
        payloads = built_in(spark, folder, export.messages)
        contestants["Spark's aes_decrypt, keys handed to it"] = lambda: discard(payloads)
    best = rounds(contestants, count)
    shutil.rmtree(place)
    floor = best[FLOOR]
    lines: list[tuple[str, ...]] = []
    missed: list[str] = []
    for name, cost in best.items():
        ratio = floor.wall / cost.wall
        bar = shape.bars.get(name)
        if bar is not None and ratio < bar:
            missed.append(f"{shape.title}, {name}: {ratio:.2f} of the plain loop, the bar is {bar}")
        rate, per_message = f"{export.messages / cost.wall / 1e3:.0f}", f"{cost.cpu / export.messages * 1e6:.1f}"
        limit = "" if bar is None else f"≥ {bar}"
        lines.append(
            (name, rate, f"{ratio:.2f}", limit, f"{cost.busy:.1f}", per_message, f"{floor.cpu / cost.cpu:.2f}")
        )
    head = ("", "k messages/s", "to the loop", "bar", "cores busy", "CPU µs a message", "CPU, to the loop")
    print(table(f"{shape.title}: {shape.queues:,} queues of {shape.messages:,} messages", head, lines), flush=True)
    return missed


if __name__ == "__main__":
    sys.exit(main())
