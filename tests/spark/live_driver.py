"""A process that watches a folder and dies in the middle of a batch: `python -m tests.spark.live_driver FOLDER`."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.readwriter import DataFrameWriter

from pyspark_udfs import EXPORT, watch

from .plain_source import PlainSource


def main(folder: Path) -> None:
    write = DataFrameWriter.parquet

    def write_or_die(self: DataFrameWriter, path: str, *more: Any) -> None:
        # The findings of the second batch are written, its checkpoints are not.
        if path.endswith("checkpoints/slot=0-1"):
            os.killpg(0, signal.SIGKILL)
        write(self, path, *more)

    DataFrameWriter.parquet = write_or_die  # type: ignore[method-assign,assignment]
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.Builder()
        .master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.local.dir", str(folder / "spark"))
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .getOrCreate()
    )
    stream = spark.readStream.schema(EXPORT).option("maxFilesPerTrigger", 1).parquet(str(folder / "arriving"))
    source = PlainSource(str(folder / "grants"))
    watch(
        stream, source, sink=str(folder / "sink"), checkpoint=str(folder / "checkpoint"), once=True
    ).awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
