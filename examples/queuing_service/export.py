"""The service's file as Parquet, for an audit: every stored frame, and the authenticated head of every queue.

    python -m examples.queuing_service.export --database service.db --output export

It reads one snapshot while the service runs, and needs the same memory for a file of any size.  Frames are sorted by
queue and number (`frames/part-*.parquet`: service_id, queue_id, seq, frame); each head answers the auditor's
nonce (`heads/part-*.parquet`: service_id, queue_id, nonce, head).  Frames stay sealed: reading them takes grants.
Needs pyarrow, the extra `spark`.
"""

from __future__ import annotations

import argparse
import os
import sqlite3
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.parquet as pq

from qsratchet import Enqueuer

FRAMES: Final = pa.schema(
    [("service_id", pa.binary()), ("queue_id", pa.binary()), ("seq", pa.int64()), ("frame", pa.binary())]
)
HEADS: Final = pa.schema(
    [("service_id", pa.binary()), ("queue_id", pa.binary()), ("nonce", pa.binary()), ("head", pa.binary())]
)
#: Rows are kept until they have so many bytes or are so many: a row group.
GROUP_BYTES: Final = 4 << 20
GROUP_ROWS: Final = 20_000
#: A part ends after so many row groups, because what a writer keeps of each group grows with them.
PART_GROUPS: Final = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """How much was written."""

    queues: int
    frames: int


def export(
    database: Path, output: Path, nonce: bytes, *, progress: Callable[[int, int], None] = lambda done, total: None
) -> Exported:
    """Write the frames and heads of a service's file under `output`, which must not be there yet."""
    output.mkdir()
    source = sqlite3.connect(f"file:{database}?mode=ro", uri=True, isolation_level=None)
    try:
        source.execute("BEGIN")  # One snapshot: the heads prove where exactly these frames end.
        (service_id,) = source.execute("SELECT service_id FROM service").fetchone()
        (total,) = source.execute("SELECT count(*) FROM frames").fetchone()
        queues = done = 0
        with Parts(output / "frames", FRAMES) as frames, Parts(output / "heads", HEADS) as heads:
            for id, queue_id, state in source.execute("SELECT id, queue_id, state FROM queues ORDER BY queue_id"):
                query = "SELECT seq, data FROM frames WHERE queue = ? ORDER BY seq"
                for seq, frame in source.execute(query, (id,)):
                    frames.add((service_id, queue_id, seq, frame), len(frame))
                    done += 1
                    if done % 1_000 == 0:
                        progress(done, total)
                heads.add((service_id, queue_id, nonce, Enqueuer.load(state).head(nonce)), 100)
                queues += 1
        progress(done, total)
        return Exported(queues=queues, frames=done)
    finally:
        source.close()


class Parts:
    """Parquet files in a directory, written row group by row group; a part has its name when it is whole."""

    def __init__(self, directory: Path, schema: pa.Schema) -> None:
        directory.mkdir()
        self._directory = directory
        self._schema = schema
        self._rows: list[tuple[Any, ...]] = []
        self._bytes = self._groups = self._parts = 0
        self._writer: pq.ParquetWriter | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._flush()
        self._close(whole=kind is None)

    def add(self, row: tuple[Any, ...], size: int) -> None:
        self._rows.append(row)
        self._bytes += size
        if self._bytes >= GROUP_BYTES or len(self._rows) >= GROUP_ROWS:
            self._flush()

    def _flush(self) -> None:
        if self._writer is None:
            # Frames are random bytes, so neither a dictionary nor compression has anything to gain on them.
            options = {"use_dictionary": ["service_id", "queue_id"], "compression": "none"}
            self._writer = pq.ParquetWriter(self._path(".partial"), self._schema, **options)
        columns = list(zip(*self._rows, strict=True)) or [()] * len(self._schema)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, self._schema, strict=True)]
        self._writer.write_table(pa.Table.from_arrays(arrays, schema=self._schema))
        self._rows, self._bytes = [], 0
        self._groups += 1
        if self._groups % PART_GROUPS == 0:
            self._close(whole=True)

    def _close(self, *, whole: bool) -> None:
        if self._writer is None:
            return
        self._writer.close()
        self._writer = None
        if whole:
            self._path(".partial").rename(self._path(""))
            self._parts += 1

    def _path(self, ending: str) -> Path:
        return self._directory / f"part-{self._parts:05}.parquet{ending}"


def show(done: int, total: int) -> None:
    """A progress bar."""
    share = done / total if total else 1.0
    bar = ("#" * round(share * 40)).ljust(40, ".")
    print(f"\r[{bar}] {done}/{total} frames", end="\n" if done == total else "", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--database", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True, help="a directory that is not there yet")
    parser.add_argument("--nonce", type=bytes.fromhex, help="the auditor's, 16 to 64 bytes in hex; random if not given")
    options = parser.parse_args()
    exported = export(options.database, options.output, options.nonce or os.urandom(16), progress=show)
    print(f"{exported.frames} frames and the heads of {exported.queues} queues in {options.output}")


if __name__ == "__main__":
    main()
