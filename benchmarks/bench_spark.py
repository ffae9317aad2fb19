"""The bulk audit on Spark beside a plain loop in two processes over the same Parquet file, in one run.

    python -m benchmarks.bench_spark [--quick | --full]

The plain loop does the same cryptography with the same inner loop and throws the messages away: it is the floor.
`--full` has a million queues of one message and a queue of 2.5 million messages, and takes a quarter of an hour or
more, most of it to write the exports.

The first ratio is of wall time, the second of CPU time of all processes together (JVM and workers included).  With both
cores free and busy they agree; on a machine that others use too, only the second means something.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from pyspark_udfs import GrantSource, Layout, audit, open_frames
from pyspark_udfs.opening import Opener, Run
from qsratchet import Dequeuer, Enqueuer, UpdatePolicy, derive_grants
from tests.spark.plain_source import PlainSource

from .measure import table

SERVICE = b"service"
CORES = 2
SCHEMA = pa.schema(
    [("service_id", pa.binary()), ("queue_id", pa.binary()), ("seq", pa.int64()), ("frame", pa.binary())]
)
GROUP = 20_000


# --- exports -------------------------------------------------------------------------------------


def write_export(folder: Path, queues: int, messages: int, size: int) -> tuple[Path, PlainSource]:
    """A clustered export and its grants."""
    folder.mkdir()
    body = os.urandom(size)
    grants: list[tuple[bytes, bytes, bytes]] = []
    path = folder / "export.parquet"
    rows: list[tuple[bytes, int, bytes]] = []
    with pq.ParquetWriter(path, SCHEMA, compression="none", use_dictionary=["service_id", "queue_id"]) as writer:
        for number in range(queues):
            queue_id = number.to_bytes(16, "big")
            owner, request = Dequeuer.create(SERVICE, queue_id, suites=(1,))
            keys = owner.owner_keys()
            service, init = Enqueuer.create(request, now=0, policy=UpdatePolicy(seconds=None))
            control = [init.data]
            rows.append((queue_id, 0, init.data))
            for start in range(0, messages, GROUP):
                for frame in service.enqueue_many([body] * min(GROUP, messages - start), now=0):
                    rows.append((queue_id, frame.seq, frame.data))
                    if frame.type.name == "UPDATE":
                        control.append(frame.data)
                while len(rows) >= GROUP:
                    _write(writer, rows[:GROUP])
                    del rows[:GROUP]
            grants += [(SERVICE, queue_id, grant.encode()) for grant in derive_grants(control, keys)]
        if rows:
            _write(writer, rows)
    return path, PlainSource.write(folder / "grants", grants)


def _write(writer: pq.ParquetWriter, rows: list[tuple[bytes, int, bytes]]) -> None:
    ids, seqs, frames = zip(*rows, strict=True)
    arrays = [pa.array([SERVICE] * len(rows), pa.binary()), pa.array(ids, pa.binary())]
    arrays += [pa.array(seqs, pa.int64()), pa.array(frames, pa.binary())]
    writer.write_table(pa.Table.from_arrays(arrays, schema=SCHEMA), row_group_size=GROUP)


def scatter(path: Path, folder: Path) -> Path:
    """The same rows in random order."""
    folder.mkdir()
    rows = pq.read_table(path)
    order = list(range(rows.num_rows))
    random.Random(7).shuffle(order)
    target = folder / "export.parquet"
    with pq.ParquetWriter(target, SCHEMA, compression="none", use_dictionary=["service_id", "queue_id"]) as writer:
        for at in range(0, len(order), GROUP):
            writer.write_table(rows.take(pa.array(order[at : at + GROUP])), row_group_size=GROUP)
    return target


# --- contestants ---------------------------------------------------------------------------------


def _half(job: tuple[str, str, int]) -> int:
    path, grants, part = job
    file = pq.ParquetFile(path, pre_buffer=False)
    groups = file.num_row_groups
    mine = range(groups * part // CORES, groups * (part + 1) // CORES)
    opener = Opener(PlainSource(grants))
    opened = 0
    for batch in file.iter_batches(batch_size=10_000, row_groups=list(mine)):
        for stretch in opener.stretches(batch):
            for event in opener.events(stretch):
                opened += len(event.messages) if isinstance(event, Run) else event.judged.body is not None
    return opened


def plain_loop(pool: multiprocessing.pool.Pool, path: Path, source: PlainSource) -> int:
    return sum(pool.map(_half, [(str(path), source.path, part) for part in range(CORES)]))


def discard(messages: DataFrame) -> None:
    messages.write.format("noop").mode("overwrite").save()


def audited(export: DataFrame, source: GrantSource, layout: Layout | None, messages: int) -> None:
    with audit(export, source, layout=layout) as result:
        row = result.summary.agg(fn.sum("messages"), fn.count_if("verified"), fn.count("*")).first()
        assert row is not None
        assert row[0] == messages
        assert row[1] == row[2]


def built_in(spark: SparkSession, folder: Path, messages: int, size: int) -> DataFrame:
    """Spark's own `aes_decrypt` on payloads of the same size, with keys handed to it."""
    path = folder / "aes"
    key = "sha2(cast(id as string), 256)"
    sealed = spark.range(messages).selectExpr(
        f"unhex({key}) as key", f"aes_encrypt(repeat('x', {size}), unhex({key}), 'GCM') as sealed"
    )
    sealed.write.option("compression", "none").parquet(str(path))
    return spark.read.parquet(str(path)).selectExpr("aes_decrypt(sealed, key, 'GCM') as body")


def session(folder: Path) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path.cwd()), os.environ.get("PYTHONPATH", "")])
    spark = (
        SparkSession.Builder()
        .master(f"local[{CORES}]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "4g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "8")
        .config("spark.local.dir", str(folder))
        .config("spark.shuffle.compress", "false")
        .config("spark.shuffle.spill.compress", "false")
        .config("spark.sql.execution.pandas.udf.buffer.size", str(1 << 20))
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "4000")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


# --- the run -------------------------------------------------------------------------------------


def rounds(contestants: dict[str, Callable[[], object]], count: int) -> dict[str, tuple[float, float]]:
    """The best wall time and the best CPU time of each, in interleaved rounds."""
    best = dict.fromkeys(contestants, (float("inf"), float("inf")))
    for _ in range(count):
        for name, run in contestants.items():
            start, used = time.perf_counter(), cpu_seconds()
            run()
            took, used = time.perf_counter() - start, cpu_seconds() - used
            best[name] = (min(best[name][0], took), min(best[name][1], used))
    return best


def cpu_seconds() -> float:
    """The CPU time of this process and all that descend from it, those that ended included.  Linux only."""
    parents: dict[int, int] = {}
    used: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        pid = int(stat.parent.name)
        parents[pid] = int(fields[1])
        used[pid] = sum(map(int, fields[11:15]))
    total = 0
    for pid in used:
        ancestor = pid
        while ancestor not in (0, os.getpid()):
            ancestor = parents.get(ancestor, 0)
        total += used[pid] if ancestor else 0
    return total / os.sysconf("SC_CLK_TCK")


def shapes(arguments: argparse.Namespace) -> Iterator[tuple[str, int, int, int]]:
    """Title, queues, messages in each, bytes in a message."""
    if arguments.quick:
        yield from (("even", 20, 500, 1_000), ("tiny", 2_000, 1, 1_000), ("huge", 1, 20_000, 1_000))
    elif arguments.full:
        yield from (("even", 2_000, 500, 1_000), ("tiny", 1_000_000, 1, 1_000), ("huge", 1, 2_500_000, 1_000))
    else:
        yield from (("even", 800, 500, 1_000), ("tiny", 100_000, 1, 1_000), ("huge", 1, 400_000, 1_000))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small: shows that it runs, the figures mean little")
    parser.add_argument("--full", action="store_true", help="the sizes of the bars")
    parser.add_argument("--only", help="one of even, tiny, huge")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="qsratchet-bench-"))
    try:
        # The pool forks before there is a JVM.
        with multiprocessing.get_context("fork").Pool(CORES) as pool:
            spark = session(folder)
            for title, queues, messages, size in shapes(arguments):
                if arguments.only in (None, title):
                    measure(spark, pool, folder, title, queues, messages, size, arguments.rounds)
            spark.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def measure(
    spark: SparkSession,
    pool: multiprocessing.pool.Pool,
    folder: Path,
    title: str,
    queues: int,
    messages: int,
    size: int,
    count: int,
) -> None:
    path, source = write_export(folder / title, queues, messages, size)
    export = spark.read.parquet(str(path))
    total = queues * messages
    contestants: dict[str, Callable[[], object]] = {
        "plain loop, 2 processes": lambda: plain_loop(pool, path, source),
        "audit, clustered": lambda: audited(export, source, Layout.CLUSTERED, total),
        "audit, layout found out": lambda: audited(export, source, None, total),
        "messages, clustered": lambda: discard(open_frames(export, source, layout=Layout.CLUSTERED)),
    }
    if title == "even":
        scattered = spark.read.parquet(str(scatter(path, folder / "scattered")))
        contestants["audit, scattered"] = lambda: audited(scattered, source, Layout.SCATTERED, total)
        contestants["messages, scattered"] = lambda: discard(open_frames(scattered, source, layout=Layout.SCATTERED))
        payloads = built_in(spark, folder, total, size)
        contestants["Spark's aes_decrypt, keys handed to it"] = lambda: discard(payloads)
    best = rounds(contestants, count)
    floor = best["plain loop, 2 processes"]
    lines: list[tuple[str, ...]] = []
    for name, (took, used) in best.items():
        rate, ratio = f"{total / took / 1e3:.0f}", f"{floor[0] / took:.2f}"
        lines.append((name, rate, ratio, f"{used / total * 1e6:.1f}", f"{floor[1] / used:.2f}"))
    head = ("", "k messages/s", "to the loop", "CPU µs a message", "to the loop")
    print(table(f"{title}: {queues:,} queues of {messages:,} messages", head, lines), flush=True)


if __name__ == "__main__":
    main()
