"""Ctrl-C and SIGTERM in the middle of real work: a prompt end, no traceback, nothing half-written, no process left.

A key function of the host's tells the test that a worker is at work, and holds it there until the signal has come.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from pyspark_udfs.cli import main
from pyspark_udfs.defects import parse_defects
from pyspark_udfs.file_key import KeyService
from pyspark_udfs.sample import Sample, expected_findings, make_sample

SAMPLE = Sample(queues=26, messages=90, epoch_messages=30, message_size=40, defects=parse_defects("all"))

#: The key service of these tests.  A worker that asks while there is a file `hold` is noted, and gets no answer.
SERVICE = """
import os, sys
from pathlib import Path

HERE = Path(__file__).parent

def key(hint):
    if "pyspark.daemon" in sys.orig_argv and (HERE / "hold").exists():
        (HERE / "asked").write_text(str(os.getpid()))
        open(HERE / "never", "w")
    return bytes(range(32))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "held_key.py").write_text(SERVICE)
    os.mkfifo(tmp_path / "asked")
    os.mkfifo(tmp_path / "never")
    monkeypatch.syspath_prepend(str(tmp_path))
    root = str(Path(__file__).parents[2])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([root, str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.delitem(sys.modules, "held_key", raising=False)
    make_sample(tmp_path / "sample", SAMPLE, KeyService("held_key:key"))
    return tmp_path


def keys_of(folder: Path) -> list[str]:
    return ["--grants", str(folder / "sample" / "audit.grants"), "--key-service", "held_key:key"]


def started(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """A command as from a terminal: its processes are a group of their own, which Ctrl-C reaches as a whole."""
    settings = ["--conf", "spark.sql.shuffle.partitions=2"]
    command = [sys.executable, "-m", "pyspark_udfs", *arguments, *keys_of(folder), *settings]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


def held_worker(folder: Path) -> int:
    """The worker that waits for its key; opened as a file, so that its end can be waited for."""
    return os.pidfd_open(int((folder / "asked").read_text()))


def ended(process: subprocess.Popen[str], worker: int) -> tuple[int, str, str]:
    """How the command ended.  The JVM holds its output too, so that ends when both are gone; so must the worker."""
    out, err = process.communicate(timeout=120)
    poll = select.poll()
    poll.register(worker, select.POLLIN)
    assert poll.poll(60_000), "the worker is still there"
    os.close(worker)
    return process.returncode, out, err


def test_sigterm_in_the_middle_of_an_audit_leaves_neither_output_nor_process(folder: Path) -> None:
    (folder / "hold").touch()
    results = folder / "results"
    export = str(folder / "sample" / "export")
    process = started(folder, "audit", export, "-o", str(results / "tables"), "--plaintext", str(results / "plain"))
    worker = held_worker(folder)
    assert len(list(results.iterdir())) == 2
    process.terminate()
    status, out, err = ended(process, worker)
    assert (status, out) == (143, "")
    assert err.strip() == "pyspark_udfs: terminated; nothing half-written is left"
    assert list(results.iterdir()) == []


def test_ctrl_c_in_the_middle_of_a_batch_loses_and_doubles_nothing(folder: Path, spark: SparkSession) -> None:
    whole = pq.read_table(folder / "sample" / "export")
    seqs = whole.column("seq").to_pylist()
    arriving = folder / "arriving"
    arriving.mkdir()
    watch = ["watch", str(arriving), "--state", str(folder / "state")]
    pq.write_table(whole.filter([seq < 45 for seq in seqs]), arriving / "0.parquet")
    process = started(folder, *watch, "--interval", "0 seconds")
    assert process.stdout is not None
    assert process.stdout.readline().startswith("watching ")
    assert "batch 0: " in process.stdout.readline()
    # From here on a worker that opens the grant file waits; it does so, because the file is another than before.
    (folder / "hold").touch()
    os.utime(folder / "sample" / "audit.grants", (0, 0))
    pq.write_table(whole.filter([seq >= 45 for seq in seqs]), folder / "1.parquet")
    (folder / "1.parquet").rename(arriving / "1.parquet")
    worker = held_worker(folder)
    os.killpg(process.pid, signal.SIGINT)
    status, out, err = ended(process, worker)
    assert "batch 1" not in out
    assert (status, err.strip()) == (1, "stopped; started again with the same --state it goes on where it was")
    # The session of the tests takes it up from there.
    spark.sparkContext.addPyFile(str(folder / "held_key.py"))
    assert main([*watch, *keys_of(folder), "--once"]) == 1
    found = pq.read_table(folder / "state" / "audit" / "findings").to_pylist()
    said = [(row["queue_id"].hex(), row["kind"], row["seq"]) for row in found]
    manifest = json.loads((folder / "sample" / "manifest.json").read_text())
    # A stream has no heads, so an end that was cut off does not show in it.
    assert sorted(said) == sorted(one for one in expected_findings(manifest) if one[1] != "tail cut off")
