"""The page for auditors (docs/audit.md): its commands, its Python and its SQL run as printed; its sums are right."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from pyspark_udfs import CHECKPOINTS, FINDINGS, MESSAGES, SUMMARY, KeyFile, PassphraseFile, derive_grants
from pyspark_udfs.cli import _parser, main
from qsratchet import UpdatePolicy

PAGE = (Path(__file__).parents[2] / "docs" / "audit.md").read_text()
COMMANDS = [line.strip() for line in PAGE.splitlines() if line.startswith("    python -m pyspark_udfs ")]

#: What is not run here, and why.
LEFT_OUT = {
    "python -m pyspark_udfs demo": "test_tools_cli runs it",
    "python -m pyspark_udfs audit trial -o result": "test_tools_cli runs it",
    "python -m pyspark_udfs audit export/ --grants audit.grants --heads heads.parquet -o my-result": "as Python below",
    "python -m pyspark_udfs sample big --queues 1000 --messages 1000 --message-size 1024": "a measurement",
    "python -m pyspark_udfs audit trial --master sc://localhost": "needs a Spark Connect server",
}
WORDS = {"sample", "audit", "grants", "derive", "list", "narrow", "watch"}


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Path:
    """What the page takes for given: an auditor's export, heads and keys, and what arrives day by day."""
    folder = tmp_path_factory.mktemp("page")
    assert main(run_here(folder, COMMANDS[1])) == 0
    for name in ("export", "heads.parquet", "owner.keys", "passphrase.txt"):
        (folder / name).symlink_to(folder / "trial" / name)
    whole = pq.read_table(folder / "export")
    seqs = whole.column("seq").to_pylist()
    for name, early in (("monday", True), ("tuesday", False), ("arriving", True)):
        (folder / name).mkdir()
        pq.write_table(whole.filter([(seq < 100) is early for seq in seqs]), folder / name / "part.parquet")
    return folder


def run_here(folder: Path, command: str) -> list[str]:
    """The arguments of a printed command, with its paths in `folder`; a live audit takes what is there and ends."""
    arguments = shlex.split(command)[3:]
    here = []
    for before, one in zip(["", *arguments], arguments, strict=False):
        value = before.startswith("--") and before not in ("--grants", "--heads", "--keys", "--since", "--state")
        here.append(one if one in WORDS or one.startswith("-") or value else str(folder / one))
    return [*here, "--once"] if here[0] == "watch" else here


@pytest.mark.parametrize("command", [one for one in COMMANDS[2:] if one not in LEFT_OUT])
def test_each_command_of_the_page_runs_as_printed(
    command: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # The auditor types the passphrase.
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("getpass.getpass", lambda prompt: (folder / "passphrase.txt").read_text().strip())
    expected = 0 if " grants " in command else 1
    assert main(run_here(folder, command)) == expected, capsys.readouterr().err


def test_commands_that_are_left_out_are_on_the_page_and_can_be_read() -> None:
    assert [one for one in LEFT_OUT if one not in COMMANDS] == []
    for one in LEFT_OUT:
        _parser().parse_args(shlex.split(one)[3:])


def test_the_python_and_the_sql_of_the_page_run_as_printed(folder: Path, spark: SparkSession) -> None:
    code = "\n".join(blocks("python")).replace("/secure/audit", "/data/trial/audit").replace("/secure/", "/data/")
    names: dict[str, object] = {}
    exec(compile(code.replace("/data/", f"{folder}/"), "docs/audit.md", "exec"), names)
    assert (folder / "report.html").is_file()
    # SQL works on views of these names.
    export = spark.read.parquet(str(folder / "export"))
    keys = KeyFile(str(folder / "owner.keys"), PassphraseFile(str(folder / "passphrase.txt")))
    export.createOrReplaceTempView("export")
    spark.read.parquet(str(folder / "findings")).createOrReplaceTempView("findings")
    derive_grants(export, keys).createOrReplaceTempView("grants")
    register = names["register"]
    assert callable(register)
    register(spark)
    statements = [one for block in blocks("sql") for one in block.split(";") if one.strip()]
    answers = [spark.sql(statement).collect() for statement in statements]
    assert len(answers) == 3
    assert all(answers)


@pytest.mark.parametrize(("name", "schema"), [("findings", FINDINGS), ("summary", SUMMARY), ("messages", MESSAGES)])
def test_the_page_names_every_column_that_comes_out(name: str, schema: StructType) -> None:
    [row] = re.findall(rf"^\| `{name}`.*$", PAGE, re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", row)) - {name, "ok"} == set(schema.names) - {name}
    assert set(SUMMARY.names) < set(CHECKPOINTS.names)


def test_the_sums_of_the_page_are_right() -> None:
    """Seconds are frames / (rate × cores), and so on, within the rounding of the table."""
    seconds = {"s": 1, "min": 60, "h": 3600}
    units = {"MB": 1e6, "GB": 1e9, "TB": 1e12, "PB": 1e15}
    raised = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")
    rate = int(re.findall(r"With r = ([\d,]+)", PAGE)[0].replace(",", ""))
    rows = re.findall(
        r"^\| 10([⁰-⁹¹²³]+) \| ([\d.]+) (\w+) \| ([\d.]+) (\w+) \| ([\d,]+)[^|]*\| ([\d.]+) (\w+)", PAGE, re.MULTILINE
    )
    assert len(rows) == 5
    for power, size, size_unit, grants, grants_unit, cores, time, time_unit in rows:
        frames = 10 ** int(power.translate(raised))
        said = float(time) * seconds[time_unit]
        assert frames / (rate * int(cores.replace(",", ""))) == pytest.approx(said, rel=0.05)
        assert frames * (60 + 1024) == pytest.approx(float(size) * units[size_unit], rel=0.05)
        assert frames / UpdatePolicy().frames * 200 == pytest.approx(float(grants) * units[grants_unit], rel=0.07)
