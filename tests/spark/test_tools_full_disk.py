"""A full disk: every command that writes ends with one sentence, status 2 and nothing half-written.

The disk is a real file system of some kilobytes where this user may mount one.  Elsewhere a limit on the size of files
(`ulimit -f`) stands in, which the system enforces for this process, the JVM and its workers alike.
"""

from __future__ import annotations

import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pyspark_udfs.cli import main
from pyspark_udfs.file_key import PassphraseFile
from pyspark_udfs.sample import Sample, make_sample
from qsratchet.crypto.passphrase import ScryptCost

#: Less than any output needs.  A file system takes whole pages, of which a folder, too, needs some.
_ROOM = 4096


@contextmanager
def no_room(spark: SparkSession, folder: Path) -> Iterator[None]:
    """Nothing that a command writes fits into `folder`."""
    mount = ["mount", "-t", "tmpfs", "-o", f"size={2 * _ROOM}", "full", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        with limit_on_files(spark):
            yield
        return
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextmanager
def limit_on_files(spark: SparkSession) -> Iterator[None]:
    """No file, wherever it is, may grow above a few kilobytes."""
    java = spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]
    before = [(process, resource.prlimit(process, resource.RLIMIT_FSIZE)) for process in (0, java)]
    try:
        for process, (_, hard) in before:
            resource.prlimit(process, resource.RLIMIT_FSIZE, (_ROOM, hard))
        yield
    finally:
        for process, limits in before:
            resource.prlimit(process, resource.RLIMIT_FSIZE, limits)


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("full") / "sample"
    secret = folder.parent / "passphrase.txt"
    secret.write_text("a passphrase for tests\n")
    wanted = Sample(queues=200, messages=20, epoch_messages=10, message_size=200, service_id=b"full.example")
    make_sample(folder, wanted, PassphraseFile(str(secret)), cost=ScryptCost(log_n=14))
    secret.replace(folder / "passphrase.txt")
    return folder


@pytest.mark.parametrize(
    "command",
    ["audit {sample} -o {disk}/out", "audit {sample} --report {disk}/out", "audit {sample} --plaintext {disk}/out",
     "grants derive {sample} --keys {sample}/owner.keys -o {disk}/out", "sample {disk}/out --jobs 1",
     "grants narrow {sample}/audit.grants -o {disk}/out --passphrase-file {sample}/passphrase.txt"],
)  # fmt: skip
def test_what_does_not_fit_on_the_disk_is_told_and_absent(
    command: str, spark: SparkSession, sample: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    with no_room(spark, disk):
        status = main(command.format(sample=sample, disk=disk).split())
        left = list(disk.iterdir())
    said = capsys.readouterr()
    assert (status, said.out, left) == (2, "", [])
    assert len(said.err.strip().splitlines()) == 1
    assert "the disk is full" in said.err or "larger than the system allows" in said.err
    assert ".part" not in said.err


def test_no_room_for_files_of_spark_s_own_is_told(
    spark: SparkSession, sample: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Without an output, what Spark hands from stage to stage is all that is written.
    with limit_on_files(spark):
        assert main(["audit", str(sample)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert len(said.err.strip().splitlines()) == 1
    assert "--conf spark.local.dir=FOLDER" in said.err


def test_a_live_audit_goes_on_when_there_is_room_again(
    spark: SparkSession, sample: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = ["--grants", str(sample / "audit.grants"), "--passphrase-file", str(sample / "passphrase.txt")]
    watch = ["watch", str(sample / "export"), "--state", str(tmp_path / "state"), "--once", "--json", *keys]
    with limit_on_files(spark):
        assert main(watch) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "come again when it is started anew" in said.err
    assert main(watch) == 0
    assert '"batch": 0' in capsys.readouterr().out
