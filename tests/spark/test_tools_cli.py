"""The command line on real Spark: what it finds, what it writes, and how it ends."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from argparse import Namespace
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pyspark_udfs import commands
from pyspark_udfs.atomic import NotWritten, folder_at_end, replaced_at_end
from pyspark_udfs.cli import main
from pyspark_udfs.defects import parse_defects
from pyspark_udfs.faults import AuditFailed, spark_errors_in_a_sentence
from pyspark_udfs.file_key import FileKey, KeyService, PassphraseFile, PassphraseVariable
from pyspark_udfs.grant_file import GrantFile, KeyFile
from pyspark_udfs.running import chosen_key
from pyspark_udfs.sample import Sample, expected_findings, make_sample, message_of
from pyspark_udfs.schemas import CHECKPOINTS, FINDINGS, SUMMARY
from qsratchet import MisuseError
from qsratchet.crypto.passphrase import ScryptCost

CHEAP = ScryptCost(log_n=14)
DAMAGED = Sample(queues=26, messages=90, epoch_messages=30, message_size=40, defects=parse_defects("all"))
CLEAN = Sample(queues=3, messages=90, epoch_messages=30, message_size=40, service_id=b"clean.example")

pytestmark = pytest.mark.usefixtures("spark")


def made(path: Path, sample: Sample) -> Path:
    path.mkdir()
    secret = path / "passphrase.txt"
    secret.write_text("a passphrase for tests\n")
    make_sample(path / "inner", sample, PassphraseFile(str(secret)), cost=CHEAP)
    for item in (path / "inner").iterdir():
        item.replace(path / item.name)
    (path / "inner").rmdir()
    return path


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("cli") / "damaged", DAMAGED)


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("cli") / "clean", CLEAN)


@pytest.fixture
def answer(capsys: pytest.CaptureFixture[str]) -> Any:
    def run(*arguments: object) -> tuple[int, Any]:
        capsys.readouterr()
        status = main([*map(str, arguments), "--json"])
        out = capsys.readouterr().out
        return status, json.loads(out) if out.strip() else None

    return run


def found(said: dict[str, Any]) -> set[tuple[str, str, int]]:
    return {(one["queue_id"], one["kind"], one["seq"]) for one in said["findings"]}


def test_an_audit_finds_exactly_what_was_planted(damaged: Path, tmp_path: Path, answer: Any) -> None:
    manifest = json.loads((damaged / "manifest.json").read_text())
    status, said = answer("audit", damaged, "-o", tmp_path / "result")
    assert status == 1
    assert found(said) == expected_findings(manifest)
    assert said["frames"] == manifest["frames"]
    assert said["queues"] - said["verified_queues"] == 11
    # The tables have the same, and nothing of what was sealed is in any of them.
    table = pq.read_table(tmp_path / "result" / "findings").to_pylist()
    assert {(row["queue_id"].hex(), row["kind"], row["seq"]) for row in table} == found(said)
    assert pq.read_table(tmp_path / "result" / "summary").num_rows == DAMAGED.queues
    assert sorted(path.name for path in (tmp_path / "result").iterdir()) == [
        "checkpoints",
        "findings",
        "report.html",
        "summary",
    ]
    sealed = re.compile(r"queue \d+ number \d+ ")
    assert sealed.match(message_of(DAMAGED, 3, 7).decode(errors="replace"))
    for name, schema in (("findings", FINDINGS), ("summary", SUMMARY), ("checkpoints", CHECKPOINTS)):
        columns = pq.read_table(tmp_path / "result" / name)
        assert columns.column_names == schema.names
        assert not sealed.search(str(columns.to_pylist()))
    assert not sealed.search((tmp_path / "result" / "report.html").read_text())
    assert "Volume over sequence numbers" in (tmp_path / "result" / "report.html").read_text()


def test_a_clean_export_is_clean(clean: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", str(clean)]) == 0
    said = capsys.readouterr().out
    assert "CLEAN: nothing wrong was found in 3 queues" in said
    assert "3 of 3 ends confirmed by a head" in said


def test_findings_are_said_in_words_and_only_as_many_as_asked_for(
    damaged: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", str(damaged), "--show", "2"]) == 1
    said = capsys.readouterr().out
    assert "FINDINGS: 13 in 11 of 26 queues" in said
    assert "… and 11 more" in said


def test_plaintext_is_written_only_where_it_is_asked_for(clean: Path, tmp_path: Path, answer: Any) -> None:
    status, said = answer("audit", clean, "--plaintext", tmp_path / "plain", "--report", tmp_path / "report.html")
    assert status == 0
    rows = pq.read_table(said["written"]["plaintext"]).to_pylist()
    bodies = {(row["queue_id"], row["seq"]): row["body"] for row in rows if row["body"] is not None}
    assert len(bodies) == 3 * 90
    for index in range(3):
        for seq in (1, 5, 60):
            queue = CLEAN.queue_id(index)
            if (queue, seq) in bodies:
                assert bodies[queue, seq] == message_of(CLEAN, index, seq)
    assert (tmp_path / "report.html").is_file()


def test_derived_grants_open_what_recorded_grants_open(clean: Path, tmp_path: Path, answer: Any) -> None:
    output = tmp_path / "derived.grants"
    secret = ["--passphrase-file", clean / "passphrase.txt"]
    status, said = answer("grants", "derive", clean, "--keys", clean / "owner.keys", "-o", output, *secret)
    assert status == 0
    key = PassphraseFile(str(clean / "passphrase.txt"))
    recorded = list(GrantFile(str(clean / "audit.grants"), key))
    assert list(GrantFile(str(output), key)) == recorded
    assert said["grants"] == len(recorded)


def test_more_grants_than_are_sorted_at_once_come_out_sorted(
    clean: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "_SORTED_AT_ONCE", 4)
    key = PassphraseFile(str(clean / "passphrase.txt"))
    recorded = list(GrantFile(str(clean / "audit.grants"), key))
    with ExitStack() as stack:
        count = commands._write_sorted(str(tmp_path / "sorted"), iter(recorded[::-1]), key, stack)
    assert count == len(recorded)
    assert list(GrantFile(str(tmp_path / "sorted"), key)) == recorded


def test_narrowed_grants_open_no_more(clean: Path, tmp_path: Path, answer: Any) -> None:
    secret = ["--passphrase-file", clean / "passphrase.txt"]
    queue = CLEAN.queue_id(1).hex()
    less = tmp_path / "less.grants"
    status, said = answer("grants", "narrow", clean / "audit.grants", "-o", less, "--queue", queue, *secret)
    assert status == 0
    assert 0 < said["grants"] < said["before"]
    status, rows = answer("grants", "list", less, *secret)
    assert status == 0
    assert {row["queue_id"] for row in rows} == {queue}
    status, said = answer("grants", "narrow", clean / "audit.grants", "-o", less, "--epochs", "1-1", *secret)
    status, rows = answer("grants", "list", less, "--queue", queue, *secret)
    assert [row["epoch"] for row in rows] == [1]
    status, said = answer("audit", clean, "--grants", less)
    assert status == 1
    assert set(said["kinds"]) == {"no grant"}


def test_a_list_of_grants_shows_no_key(clean: Path, capsys: pytest.CaptureFixture[str]) -> None:
    secret = ["--passphrase-file", str(clean / "passphrase.txt")]
    assert main(["grants", "list", str(clean / "audit.grants"), *secret]) == 0
    said = capsys.readouterr().out
    assert CLEAN.queue_id(0).hex() in said
    for grant in GrantFile(str(clean / "audit.grants"), PassphraseFile(secret[1])):
        assert grant.chain_key(grant.first_seq).hex() not in said


def test_an_audit_goes_on_where_the_last_one_ended(damaged: Path, tmp_path: Path, answer: Any) -> None:
    whole = pq.read_table(damaged / "export")
    middle = 45
    seqs = whole.column("seq").to_pylist()
    for name, early in (("first", True), ("second", False)):
        (tmp_path / name).mkdir()
        pq.write_table(whole.filter([(seq < middle) is early for seq in seqs]), tmp_path / name / "part.parquet")
    keys = ["--grants", damaged / "audit.grants", "--passphrase-file", damaged / "passphrase.txt"]
    _, first = answer("audit", tmp_path / "first", *keys, "-o", tmp_path / "one")
    heads = damaged / "heads.parquet"
    _, second = answer(
        "audit", tmp_path / "second", *keys, "--heads", heads, "--since", tmp_path / "one" / "checkpoints"
    )
    manifest = json.loads((damaged / "manifest.json").read_text())
    assert found(first) | found(second) == expected_findings(manifest)
    assert second["frames"] == manifest["frames"]
    # The second counts all, and lists its own.
    assert second["findings_total"] == len(found(first)) + len(found(second))
    assert second["findings_earlier"] == len(found(first))


def test_watching_finds_what_one_audit_finds_over_two_runs(
    damaged: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = pq.read_table(damaged / "export")
    arriving = tmp_path / "arriving"
    arriving.mkdir()
    keys = ["--grants", damaged / "audit.grants", "--passphrase-file", damaged / "passphrase.txt"]
    heads = ["--heads", damaged / "heads.parquet", "--json"]
    arguments = ["watch", arriving, "--state", tmp_path / "state", "--once", *keys, *heads]
    seqs = whole.column("seq").to_pylist()
    for number, early in enumerate((True, False)):
        pq.write_table(whole.filter([(seq < 45) is early for seq in seqs]), arriving / f"{number}.parquet")
        assert main([*map(str, arguments)]) == 1
    state = pq.read_table(tmp_path / "state" / "audit" / "findings").to_pylist()
    said = [(row["queue_id"].hex(), row["kind"], row["seq"]) for row in state]
    manifest = json.loads((damaged / "manifest.json").read_text())
    expected = sorted(expected_findings(manifest))
    # A stream has no end, so an end that was cut off shows only when heads are looked at.
    assert sorted(said) == [one for one in expected if one[1] != "tail cut off"]
    out = capsys.readouterr().out
    ends = json.loads(out.splitlines()[-1])["findings"]
    assert [(row["queue_id"], row["kind"], row["seq"]) for row in ends] == [
        one for one in expected if one[1] == "tail cut off"
    ]


def test_a_watch_that_saw_no_row_still_looks_at_the_heads(
    clean: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = ["--grants", clean / "audit.grants", "--passphrase-file", clean / "passphrase.txt"]
    arguments = ["watch", tmp_path / "arriving", "--state", tmp_path / "state", "--once", *keys]
    assert "there is no folder" in failed(capsys, *arguments)
    (tmp_path / "arriving").mkdir()
    assert main([*map(str, arguments)]) == 0
    assert "no batch was finished" in capsys.readouterr().err
    assert main([*map(str, arguments), "--heads", str(clean / "heads.parquet"), "--json"]) == 1
    ends = json.loads(capsys.readouterr().out)
    manifest = json.loads((clean / "manifest.json").read_text())
    assert ends["count"] == manifest["queues"]
    assert {row["kind"] for row in ends["findings"]} == {"tail cut off"}


def test_who_ends_a_watch_from_outside_gets_no_verdict_but_the_status_of_the_signal(
    damaged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Query:
        stopped = threading.Event()

        def awaitTermination(self) -> None:  # noqa: N802 - Spark's name.
            os.kill(os.getpid(), signal.SIGTERM)
            self.stopped.wait()

        def stop(self) -> None:
            self.stopped.set()

    query = Query()
    monkeypatch.setattr(commands, "watch", lambda *_, **__: query)
    keys = ["--grants", damaged / "audit.grants", "--passphrase-file", damaged / "passphrase.txt"]
    arguments = ["watch", tmp_path / "arriving", "--state", tmp_path / "state", *keys]
    assert main([*map(str, arguments)]) == 143
    assert query.stopped.is_set()
    assert "goes on where it was" in capsys.readouterr().err


def test_the_plan_says_which_way_was_taken(clean: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", str(clean), "--explain"]) == 0
    assert "audit_clustered" in capfd.readouterr().out


# --- wrong use and faults ------------------------------------------------------------------------


def failed(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    capsys.readouterr()
    assert main([*map(str, arguments)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert len(said.err.strip().splitlines()) == 1, said.err
    assert "Traceback" not in said.err
    return said.err


def test_wrong_use_ends_with_2_and_one_sentence(
    clean: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = tmp_path / "wrong.txt"
    wrong.write_text("not it\n")
    keys = ["--grants", clean / "audit.grants", "--passphrase-file", clean / "passphrase.txt"]
    assert "does not open with this passphrase" in failed(capsys, "audit", clean, "--passphrase-file", wrong)
    assert "--grants is missing" in failed(capsys, "audit", clean / "export")
    assert "there is no passphrase file" in failed(capsys, "audit", clean, "--passphrase-file", tmp_path / "none")
    assert "no terminal to ask on" in failed(capsys, "audit", clean / "export", "--grants", clean / "audit.grants")
    assert "is not set" in failed(capsys, "audit", clean, "--passphrase-env", "QSR_TEST_UNSET")
    assert "does not exist" in failed(capsys, "audit", tmp_path / "none", *keys)
    assert "no column seq" in failed(capsys, "audit", clean / "heads.parquet", *keys)
    assert "KEY=VALUE" in failed(capsys, "audit", clean, "--conf", "nonsense")
    assert "is there already" in failed(capsys, "audit", clean, "-o", clean)
    inside = ["-o", tmp_path / "out", "--plaintext", tmp_path / "out" / "plain"]
    assert "that are apart" in failed(capsys, "audit", clean, *inside)
    assert "that are apart" in failed(capsys, "audit", clean, *inside[:2], "--report", tmp_path / "out" / "page.html")
    assert "that are apart" in failed(capsys, "audit", clean, *inside[:2], "--plaintext", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert "holds owner keys" in failed(capsys, "audit", clean, "--grants", clean / "owner.keys")
    assert "is there already" in failed(capsys, "sample", clean)
    assert "not a kind of defect" in failed(capsys, "sample", tmp_path / "new", "--defects", "gaps")
    secret = ["--passphrase-file", clean / "passphrase.txt"]
    narrow = ["grants", "narrow", clean / "audit.grants", "-o", tmp_path / "less", *secret]
    assert "3-5" in failed(capsys, *narrow, "--epochs", "5-3")
    assert "hexadecimal" in failed(capsys, *narrow, "--queue", "xyz")
    assert not (tmp_path / "less").exists()


@pytest.mark.parametrize("arguments", [[], ["audit"], ["nonsense"], ["sample", "x", "--queues", "-1"]])
def test_a_command_line_that_cannot_be_read_ends_with_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "usage:" in capsys.readouterr().err


@pytest.mark.parametrize("command", [[], ["demo"], ["sample"], ["grants"], ["grants", "derive"], ["audit"], ["watch"]])
def test_every_command_explains_itself(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*command, "--help"])
    assert ended.value.code == 0
    assert "usage: python -m pyspark_udfs" in capsys.readouterr().out


def test_a_parquet_file_that_was_cut_short_is_told_and_nothing_is_written(
    clean: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(clean, tmp_path / "copy")
    part = next((tmp_path / "copy" / "export").iterdir())
    part.write_bytes(part.read_bytes()[:-100])
    said = failed(capsys, "audit", tmp_path / "copy", "-o", tmp_path / "result")
    assert "damaged or cut short" in said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy"]


def test_rows_of_nulls_and_of_no_queue_are_findings_in_every_output(
    clean: Path, tmp_path: Path, answer: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(clean, tmp_path / "copy")
    part = next((tmp_path / "copy" / "export").iterdir())
    table = pq.read_table(part)
    nulls = pa.Table.from_pylist([{"seq": 3}, {"queue_id": b"q", "frame": b""}, {}], schema=table.schema)
    pq.write_table(pa.concat_tables([table, nulls]), part)
    status, said = answer("audit", tmp_path / "copy", "-o", tmp_path / "result")
    assert status == 1
    assert said["kinds"] == {"malformed": 3}
    assert {(one["queue_id"], one["seq"]) for one in said["findings"]} == {("", 3), ("71", None), ("", None)}
    assert main(["audit", str(tmp_path / "copy")]) == 1
    assert "(no queue id)  malformed: " in capsys.readouterr().out
    assert "malformed" in (tmp_path / "result" / "report.html").read_text()


def test_a_grant_file_that_was_altered_is_told_and_nothing_is_written(
    clean: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(clean, tmp_path / "copy")
    file = tmp_path / "copy" / "audit.grants"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    said = failed(capsys, "audit", tmp_path / "copy", "-o", tmp_path / "result")
    assert "block 0 was altered or moved" in said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy"]


def test_an_interrupt_leaves_nothing_half_written(
    clean: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    written: list[Path] = []

    def interrupt(self: commands._Outputs, *tables: Any) -> None:
        assert self._tables is not None
        (self._tables / "findings").mkdir()
        written.append(self._tables)
        raise KeyboardInterrupt

    monkeypatch.setattr(commands._Outputs, "write", interrupt)
    assert main(["audit", str(clean), "-o", str(tmp_path / "result")]) == 130
    assert "interrupted" in capsys.readouterr().err
    assert written
    assert not list(tmp_path.iterdir())


def test_the_demo_is_one_command_that_finds_what_it_planted(tmp_path: Path) -> None:
    """As a person runs it: a process of its own, which starts Spark and says nothing but its answer."""
    command = [sys.executable, "-m", "pyspark_udfs", "demo", str(tmp_path / "demo"), "--messages", "900"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Exactly what was planted was found, and nothing else." in done.stdout
    assert "FINDINGS: 13 in 11 of 24 queues" in done.stdout
    assert (tmp_path / "demo" / "report.html").is_file()


def test_the_demo_shows_its_progress_if_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--queues", "24", "--messages", "850", "--json", "--progress"]
    assert main(["demo", str(tmp_path / "demo"), *small]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["missed"] == json.loads(said.out)["surplus"] == []
    assert "making the sample" in said.err
    assert "100%" in said.err


def test_a_sample_brings_all_that_an_audit_needs(tmp_path: Path, answer: Any) -> None:
    status, said = answer("sample", tmp_path / "s", "--queues", 2, "--messages", 10, "--jobs", 1, "--suite", "0x0003")
    assert status == 0
    assert said["planted"] == []
    key = PassphraseFile(str(tmp_path / "s" / "passphrase.txt"))
    assert {grant.suite.id for grant in GrantFile(str(tmp_path / "s" / "audit.grants"), key)} == {3}
    assert len(KeyFile(str(tmp_path / "s" / "owner.keys"), key)) == 2
    assert (tmp_path / "s" / "passphrase.txt").stat().st_mode & 0o077 == 0


def test_a_typed_passphrase_is_gone_when_the_command_ends(
    clean: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Any
) -> None:
    places: list[Path] = []

    def noted(path: str, key: PassphraseFile) -> GrantFile:
        places.append(Path(key.path))
        assert Path(key.path).stat().st_mode & 0o077 == 0
        return GrantFile(path, key)

    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("getpass.getpass", lambda prompt: "a passphrase for tests")
    monkeypatch.setattr(commands, "GrantFile", noted)
    status, said = answer("grants", "list", clean / "audit.grants")
    assert status == 0
    assert said
    assert places
    assert not places[0].exists()


def asked(
    options: dict[str, object], typed: list[str], monkeypatch: pytest.MonkeyPatch, *, new: bool = False
) -> FileKey:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("getpass.getpass", lambda prompt: typed.pop(0))
    every = {"key_service": None, "passphrase_env": None, "passphrase_file": None, "master": None}
    with ExitStack() as stack:
        return chosen_key(Namespace(**every | options), stack, new=new)


def test_a_key_is_found_where_the_options_say(monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked({"key_service": "module:function"}, [], monkeypatch) == KeyService("module:function")
    monkeypatch.setenv("QSR_TEST_SET", "words")
    assert asked({"passphrase_env": "QSR_TEST_SET"}, [], monkeypatch) == PassphraseVariable("QSR_TEST_SET")
    for master, typed, new, sentence in (
        ("yarn", ["words"], False, "cannot be given a passphrase that is typed here"),
        (None, [""], False, "the passphrase is empty"),
        ("local[2]", ["one", "two"], True, "the two passphrases differ"),
    ):
        with pytest.raises(MisuseError, match=sentence):
            asked({"master": master}, typed, monkeypatch, new=new)


@pytest.mark.parametrize(
    ("raised", "sentence"),
    [
        ("java.io.IOException: No space left on device", "the disk is full"),
        ("\n", "without a reason"),
        ("Job aborted.\nCaused by: java.lang.X: one\nCaused by: java.lang.Y: two\n", "two"),
        ("java.io.IOException: Disk quota exceeded", "the disk quota is used up.*; nothing was written"),
        (
            "py4j.protocol.Py4JJavaError: An error occurred while calling o9.x.\nCaused by: java.io.X: /tmp/1 gone\n",
            "^/tmp/1 gone$",
        ),
        ("Traceback\n  File x\nqsratchet.errors.StateError: block 7 was altered\n", "block 7 was altered"),
        ("Traceback\n  File x\nZeroDivisionError: division by zero\n", "ZeroDivisionError: division by zero"),
    ],
)
def test_what_spark_raises_is_told_in_a_sentence(raised: str, sentence: str) -> None:
    with pytest.raises(AuditFailed, match=sentence) as told, spark_errors_in_a_sentence():
        raise PySparkException(raised)
    assert "\n" not in str(told.value)


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotWritten, match="cannot be written"), replaced_at_end(tmp_path / "file" / "inner"):
        pass
    with pytest.raises(NotWritten, match="cannot be written"), folder_at_end(tmp_path / "file" / "inner"):
        pass


def test_a_table_that_this_machine_does_not_see_whole_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    commands._write(spark.range(3), tmp_path / "whole", 3)
    with pytest.raises(AuditFailed, match="sees 3 of the 4 part that Spark wrote"):
        commands._write(spark.range(3), tmp_path / "part", 4)


def test_a_bug_is_no_finding(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken(options: Namespace) -> int:
        raise ZeroDivisionError

    monkeypatch.setattr(commands, "audit_export", broken)
    assert main(["audit", "export"]) == 2
    assert "this is a bug" in capsys.readouterr().err


def test_the_session_of_the_tests_is_left_running(spark: SparkSession) -> None:
    assert spark.range(3).count() == 3
