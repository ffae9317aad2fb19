"""The exporter: what an auditor gets is what the owner could read, in order, with heads that prove its end."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from qsratchet import Message

from .processes import ROOT, SERVICE_ID, Pair, Running, running

pq = pytest.importorskip("pyarrow.parquet", reason="the extra `spark` is not installed")
NONCE = bytes(range(16))


def exported(database: Path, output: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]], str]:
    command = [sys.executable, "-m", "examples.queuing_service.export", "--database", str(database)]
    done = subprocess.run(
        [*command, "--output", str(output), "--nonce", NONCE.hex()],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    frames, heads = (pq.read_table(output / name).to_pylist() for name in ("frames", "heads"))
    return frames, heads, done.stderr


def test_the_export_of_a_running_service_is_clustered_and_opens_with_the_owners_state(tmp_path: Path) -> None:
    with running(tmp_path / "service.db", "--update-every", "5") as service:
        pairs = [Pair(service) for _ in range(5)]
        for number, pair in enumerate(pairs):
            pair.send(*[b"%d %d" % (number, n) for n in range(12)])
        frames, heads, progress = exported(service.database, tmp_path / "export")
        assert progress.endswith(f"{len(frames)}/{len(frames)} frames\n")
        keys = [(row["service_id"], row["queue_id"], row["seq"]) for row in frames]
        assert keys == sorted(keys)
        assert {row["service_id"] for row in frames} == {SERVICE_ID}
        for number, pair in enumerate(pairs):
            mine = [row["frame"] for row in frames if row["queue_id"] == pair.queue_id]
            opened = [pair.machine.open(frame) for frame in mine]
            bodies = [item.body for item in opened if isinstance(item, Message)]
            assert bodies == [b"%d %d" % (number, n) for n in range(12)]
            (head,) = [row for row in heads if row["queue_id"] == pair.queue_id]
            assert head["nonce"] == NONCE
            assert len(pair.machine.verify_head(head["head"], NONCE).missing) == 0


def test_an_empty_service_exports_empty_tables(tmp_path: Path) -> None:
    with running(tmp_path / "service.db") as service:
        frames, heads, _ = exported(service.database, tmp_path / "export")
        assert (frames, heads) == ([], [])


def test_memory_does_not_grow_with_the_database(tmp_path: Path) -> None:
    small, large = (peak(tmp_path, count) for count in (1_000, 16_000))
    # The larger one has 120 MB of frames more.
    assert large - small < 40 << 20


def peak(directory: Path, frames: int) -> int:
    """The most memory that an export of so many frames of 8 kB takes, in bytes."""
    database, output = directory / f"{frames}.db", directory / f"{frames}"
    with running(database) as service:
        fill(service, frames)
        script = (
            "import resource, runpy, sys\n"
            "sys.argv = ['export', *sys.argv[1:]]\n"
            "runpy.run_module('examples.queuing_service.export', run_name='__main__')\n"
            "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)\n"
        )
        command = [sys.executable, "-c", script, "--database", str(database), "--output", str(output)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=120)
    unit = 1 if sys.platform == "darwin" else 1024
    return int(done.stdout.splitlines()[-1]) * unit


def fill(service: Running, frames: int) -> None:
    """Frames straight into the file: the exporter does not look into them."""
    pair = Pair(service)
    connection = sqlite3.connect(service.database, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    (id,) = connection.execute("SELECT id FROM queues WHERE queue_id = ?", (pair.queue_id,)).fetchone()
    rows = ((id, seq, 2, 0, os.urandom(8_000)) for seq in range(1, frames))
    connection.executemany("INSERT INTO frames VALUES (?, ?, ?, ?, ?)", rows)
    connection.execute("COMMIT")
    connection.close()


def test_the_tables_are_the_ones_that_an_audit_reads(tmp_path: Path) -> None:
    with running(tmp_path / "service.db") as service:
        Pair(service)
        exported(service.database, tmp_path / "export")
    types = {
        name: [
            (field.name, str(field.type)) for field in pq.read_schema(tmp_path / "export" / name / "part-00000.parquet")
        ]
        for name in ("frames", "heads")
    }
    queue = [("service_id", "binary"), ("queue_id", "binary")]
    assert types["frames"] == [*queue, ("seq", "int64"), ("frame", "binary")]
    assert types["heads"] == [*queue, ("nonce", "binary"), ("head", "binary")]


def test_a_large_export_has_several_parts_that_are_clustered_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from examples.queuing_service import export

    monkeypatch.setattr(export, "GROUP_ROWS", 3)
    monkeypatch.setattr(export, "PART_GROUPS", 2)
    with running(tmp_path / "service.db") as service:
        for _ in range(4):
            Pair(service).send(b"one", b"two", b"three")
        done = export.export(service.database, tmp_path / "export", NONCE)
    assert (done.queues, done.frames) == (4, 16)
    parts = sorted((tmp_path / "export" / "frames").iterdir())
    assert [part.name for part in parts] == [f"part-0000{n}.parquet" for n in range(3)]
    rows = [row for part in parts for row in pq.read_table(part).to_pylist()]
    keys = [(row["queue_id"], row["seq"]) for row in rows]
    assert keys == sorted(keys)
    assert len(keys) == 16
