"""Exports for the benchmarks of the audit: Parquet files of real frames, with a real grant file beside them."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Iterator
from multiprocessing.pool import Pool
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from pyspark_udfs.file_key import PassphraseFile
from pyspark_udfs.grant_file import GrantFile, write_grants
from pyspark_udfs.schemas import EXPORT, arrow
from pyspark_udfs.session import start_session
from qsratchet import Dequeuer, Enqueuer, Grant, UpdatePolicy, derive_grants

__all__ = ["Export", "scattered", "session", "write_export"]

SERVICE: Final = b"service"
SCHEMA: Final = arrow(EXPORT)
GROUP: Final = 20_000

Row = tuple[bytes, int, bytes]


class Export(NamedTuple):
    """A file of frames, and the grants that open them."""

    path: Path
    grants: GrantFile
    messages: int


def write_export(folder: Path, queues: int, messages: int, size: int, pool: Pool | None = None) -> Export:
    """A clustered export of `queues` queues with `messages` messages of `size` bytes in each."""
    folder.mkdir()
    path = folder / "export.parquet"
    grants: list[Grant] = []
    rows: list[Row] = []
    with pq.ParquetWriter(path, SCHEMA, compression="none", use_dictionary=["service_id", "queue_id"]) as writer:
        for made, granted in _made(queues, messages, size, pool):
            rows += made
            grants += map(Grant.decode, granted)
            while len(rows) >= GROUP:
                _write(writer, rows[:GROUP])
                del rows[:GROUP]
        if rows:
            _write(writer, rows)
    secret = folder / "passphrase"
    secret.write_text(os.urandom(16).hex())
    key = PassphraseFile(str(secret))
    write_grants(folder / "grants", grants, key)
    return Export(path, GrantFile(str(folder / "grants"), key), queues * messages)


def _made(queues: int, messages: int, size: int, pool: Pool | None) -> Iterable[tuple[list[Row], list[bytes]]]:
    """Pieces of an export in order.  Many small queues are made by the pool, a large one here, piece by piece."""
    if messages > GROUP or pool is None:
        for number in range(queues):
            yield from _queue(number, messages, size)
        return
    step = max(1, GROUP // messages // 4)
    yield from pool.imap(
        _queues, [(start, min(start + step, queues), messages, size) for start in range(0, queues, step)]
    )


def _queues(job: tuple[int, int, int, int]) -> tuple[list[Row], list[bytes]]:
    start, stop, messages, size = job
    rows: list[Row] = []
    grants: list[bytes] = []
    for number in range(start, stop):
        for made, granted in _queue(number, messages, size):
            rows += made
            grants += granted
    return rows, grants


def _queue(number: int, messages: int, size: int) -> Iterator[tuple[list[Row], list[bytes]]]:
    queue_id = number.to_bytes(16, "big")
    owner, request = Dequeuer.create(SERVICE, queue_id, suites=(1,))
    keys = owner.owner_keys()
    service, init = Enqueuer.create(request, now=0, policy=UpdatePolicy(seconds=None))
    control = [init.data]
    yield [(queue_id, 0, init.data)], []
    body = os.urandom(size)
    for start in range(0, messages, GROUP):
        frames = service.enqueue_many([body] * min(GROUP, messages - start), now=0)
        control += [frame.data for frame in frames if frame.type.name == "UPDATE"]
        yield [(queue_id, frame.seq, frame.data) for frame in frames], []
    yield [], [grant.encode() for grant in derive_grants(control, keys)]


def _write(writer: pq.ParquetWriter, rows: list[Row]) -> None:
    ids, seqs, frames = zip(*rows, strict=True)
    arrays = [pa.array([SERVICE] * len(rows), pa.binary()), pa.array(ids, pa.binary())]
    arrays += [pa.array(seqs, pa.int64()), pa.array(frames, pa.binary())]
    writer.write_table(pa.Table.from_arrays(arrays, schema=SCHEMA), row_group_size=GROUP)


def scattered(export: Export, folder: Path) -> Export:
    """The same rows in random order."""
    folder.mkdir()
    rows = pq.read_table(export.path)
    order = list(range(rows.num_rows))
    random.Random(7).shuffle(order)
    target = folder / "export.parquet"
    with pq.ParquetWriter(target, SCHEMA, compression="none", use_dictionary=["service_id", "queue_id"]) as writer:
        for at in range(0, len(order), GROUP):
            writer.write_table(rows.take(pa.array(order[at : at + GROUP])), row_group_size=GROUP)
    return export._replace(path=target)


def session(folder: Path, cores: int) -> SparkSession:
    """The session that the command line starts, on so many cores."""
    settings = {"spark.driver.host": "127.0.0.1", "spark.local.dir": str(folder)}
    spark = start_session(master=f"local[{cores}]", settings=settings)
    spark.sparkContext.setLogLevel("ERROR")
    return spark
