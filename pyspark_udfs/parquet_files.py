"""An export in Parquet files that the workers read for themselves.

Spark's Java process decodes a frame, copies it into a row, from there into a batch, and sends that to Python: some
three microseconds for a kilobyte, half of what opening it costs.  Where every worker can open the files, it need not.
This module knows files and row groups; it knows nothing of queues or keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from qsratchet import MisuseError

from .schemas import EXPORT, arrow

__all__ = ["ParquetFiles", "Piece"]

#: What one task reads, in bytes before compression, if row groups allow: so much at the most, unless there would be too
#: many tasks, and down to a sixteenth of it towards the end of the export, so that the last tasks end together.
PIECE_BYTES: Final = 256 << 20
PIECES_LIMIT: Final = 100_000
#: A batch has at most so many rows, and about so many bytes.
BATCH_ROWS: Final = 4_000
BATCH_BYTES: Final = 64 << 20
#: So much of a column is read from its file at once: memory does not grow with row groups.
_READ_BYTES: Final = 1 << 20

_SCHEMES: Final = ("", "file")
_SCHEMA: Final = arrow(EXPORT)


class Piece(NamedTuple):
    """Row groups of one file, how many rows of them make a batch, and whether some frames lie in a dictionary."""

    path: str
    groups: range
    batch: int
    dictionary: bool


class ParquetFiles:
    """Parquet files with the columns of `EXPORT`, at paths that this process and every worker can open.

    `audit` and `open_frames` take it in the place of `spark.read.parquet(path)`.  The files must be the whole export:
    filter a DataFrame instead, if you want to audit a part.
    """

    def __init__(self, spark: SparkSession, path: str) -> None:
        self.spark = spark
        #: The same rows, read by Spark.
        self.table = spark.read.parquet(path)
        self._uris = sorted(self.table.inputFiles())

    @property
    def local(self) -> bool:
        """Whether these are files, rather than objects of a store that only Spark knows how to open."""
        return all(urlsplit(uri).scheme in _SCHEMES for uri in self._uris)

    @cached_property
    def pieces(self) -> list[Piece]:
        """All row groups, in the order of files and rows.  It reads the end of each file, once."""
        return list(_cut([(path, _footer(path)) for path in map(_local, self._uris)], _tasks(self.spark)))

    def mapped(
        self,
        work: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
        schema: StructType,
        columns: Sequence[str] = EXPORT.names,
    ) -> DataFrame:
        """What `work` makes of these columns: `mapInArrow`, with one task for each piece."""
        pieces = self.pieces
        wanted = pa.schema([_SCHEMA.field(name) for name in columns])

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return work(_read(pieces, batches, wanted))

        run.__name__ = run.__qualname__ = work.__name__
        return self.spark.range(0, len(pieces), 1, max(1, len(pieces))).mapInArrow(run, schema)


def _tasks(spark: SparkSession) -> int:
    """How many tasks a stage of this session has by its settings: some for each core that it may use."""
    said = spark.conf.get("spark.sql.shuffle.partitions") or ""
    return int(said) if said.isdecimal() and int(said) else 200


def _local(uri: str) -> str:
    parts = urlsplit(uri)
    if parts.scheme not in _SCHEMES:
        raise MisuseError(f"{uri} is not a file that workers open by themselves: use spark.read.parquet for it")
    return unquote(parts.path)


def _footer(path: str) -> pq.FileMetaData:
    try:
        footer = pq.read_metadata(path)
    except (OSError, pa.ArrowException) as error:
        raise _damaged(path, error) from None
    missing = set(_SCHEMA.names) - set(footer.schema.to_arrow_schema().names)
    if missing:
        raise MisuseError(f"{path} has no column {min(missing)}; an export needs {EXPORT.simpleString()}")
    return footer


def _damaged(path: str, error: Exception) -> MisuseError:
    reason = (str(error).splitlines() or ["no reason given"])[0]
    return MisuseError(
        f"a file of the export is damaged or cut short: {path} ({reason}); export it again, or take it out of the "
        "folder"
    )


def _cut(files: Sequence[tuple[str, pq.FileMetaData]], tasks: int) -> Iterator[Piece]:
    """Row groups that follow one another in a file.  A piece has at most two shares of what is left for `tasks`."""
    left = sum(footer.row_group(at).total_byte_size for _, footer in files for at in range(footer.num_row_groups))
    limit = max(PIECE_BYTES, left // PIECES_LIMIT)
    for path, footer in files:
        frames = footer.schema.names.index("frame")
        start = used = rows = 0
        dictionary = False
        for at in range(footer.num_row_groups):
            group = footer.row_group(at)
            used += group.total_byte_size
            rows += group.num_rows
            dictionary |= group.column(frames).has_dictionary_page
            if used >= max(PIECE_BYTES // 16, min(limit, 2 * left // tasks)) or at == footer.num_row_groups - 1:
                if rows:
                    batch = max(1, min(BATCH_ROWS, BATCH_BYTES * rows // max(used, 1)))
                    yield Piece(path, range(start, at + 1), batch, dictionary)
                left -= used
                start, used, rows, dictionary = at + 1, 0, 0, False


def _read(pieces: Sequence[Piece], numbers: Iterator[pa.RecordBatch], wanted: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of the pieces with these numbers."""
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            path, groups, size, dictionary = pieces[number]
            kept = ["frame"] if dictionary else None
            try:
                with pq.ParquetFile(path, pre_buffer=False, buffer_size=_READ_BYTES, read_dictionary=kept) as file:
                    for rows in file.iter_batches(size, row_groups=list(groups), columns=wanted.names):
                        for part in _parts(rows):
                            yield part if part.schema.equals(wanted) else part.select(wanted.names).cast(wanted)
            except (OSError, pa.ArrowException) as error:
                raise _damaged(path, error) from None


def _parts(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The rows, in parts of a bounded size: with a dictionary, a small file can stand for any number of bytes."""
    place = rows.schema.get_field_index("frame")
    if place < 0 or not pa.types.is_dictionary(rows.column(place).type):
        yield rows
        return
    frames = rows.column(place)
    sizes = pc.fill_null(pc.take(pc.binary_length(frames.dictionary), frames.indices), 0).to_pylist()
    start = held = 0
    for at, size in enumerate(sizes):
        if held and held + size > BATCH_BYTES:
            yield rows.slice(start, at - start)
            start, held = at, 0
        held += size
    yield rows.slice(start)
