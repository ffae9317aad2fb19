"""What every command that runs Spark needs: the key of a file as a reference, and a session that stays quiet.

A passphrase typed at a terminal is in this process alone.  For workers on the same machine it lies in a private file in
memory (or in the temporary folder) while the command runs; other machines never get it.
"""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import sys
import tempfile
import threading
from argparse import Namespace
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from qsratchet import MisuseError

from .file_key import FileKey, KeyService, PassphraseFile, PassphraseVariable
from .session import quiet_stderr, start_session

__all__ = ["chosen_key", "private_passphrase", "spark_session"]


def chosen_key(options: Namespace, stack: ExitStack, *, beside: Path | None = None, new: bool = False) -> FileKey:
    """Where the key of a file is found, by the options; `beside` is a passphrase file that a sample brings along."""
    if options.key_service:
        return KeyService(options.key_service)
    if options.passphrase_env:
        if not os.environ.get(options.passphrase_env):
            raise MisuseError(f"the environment variable {options.passphrase_env} is not set: export it first")
        return PassphraseVariable(options.passphrase_env)
    path = options.passphrase_file or (str(beside) if beside is not None and beside.is_file() else None)
    if path is not None:
        if not Path(path).is_file():
            raise MisuseError(f"there is no passphrase file {path}")
        return PassphraseFile(str(Path(path).resolve()))
    if not sys.stdin.isatty():
        raise MisuseError(
            "a passphrase is needed, and there is no terminal to ask on: use --passphrase-file, --passphrase-env or "
            "--key-service"
        )
    master = getattr(options, "master", None)
    if master is not None and not master.startswith("local"):
        raise MisuseError(
            "executors on other machines cannot be given a passphrase that is typed here: put it in a file or an "
            "environment variable of theirs (--passphrase-file, --passphrase-env), or use --key-service"
        )
    text = getpass.getpass("Passphrase: ")
    if new and getpass.getpass("Again: ") != text:
        raise MisuseError("the two passphrases differ")
    return private_passphrase(text, stack)


def private_passphrase(text: str, stack: ExitStack) -> PassphraseFile:
    """A passphrase in a file that only this user reads, for as long as the command runs."""
    if not text:
        raise MisuseError("the passphrase is empty")
    memory = Path("/dev/shm")  # noqa: S108 - in memory where there is such a place; the folder made in it is private.
    folder = tempfile.mkdtemp(prefix="qsratchet-", dir=memory if os.access(memory, os.W_OK) else None)
    stack.callback(shutil.rmtree, folder, ignore_errors=True)
    path = Path(folder) / "passphrase"
    path.touch(mode=0o600)
    path.write_text(text, encoding="utf-8")
    return PassphraseFile(str(path))


def spark_session(options: Namespace, stack: ExitStack, settings: dict[str, str] | None = None) -> SparkSession:
    """A session; one that was started here ends with the command.  What Spark logs goes to a file that goes away."""
    wanted = dict(settings or {})
    for item in options.conf:
        name, equals, value = item.partition("=")
        if not equals:
            raise MisuseError(f"--conf takes KEY=VALUE, not {item!r}")
        wanted[name] = value
    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    folder = tempfile.mkdtemp(prefix="qsratchet-spark-")
    stack.callback(shutil.rmtree, folder, ignore_errors=True)
    wanted.setdefault("spark.sql.warehouse.dir", str(Path(folder) / "warehouse"))
    with quiet_stderr(Path(folder) / "spark.log"), _own_interrupts():
        session = start_session(master=options.master, ui=options.ui, settings=wanted)
    stack.callback(_stop, session)
    if not hasattr(session, "_jsparkSession"):
        # A client of Spark Connect: the log and the pages are the server's.
        return session
    session.sparkContext.setLogLevel("ERROR")
    if options.ui:
        print(f"Spark's pages: {session.sparkContext.uiWebUrl}", file=sys.stderr)
    return session


def _stop(session: SparkSession) -> None:
    # Where the JVM is gone there is nothing to stop, and what ended it was told already.
    with suppress(Py4JError, ConnectionError):
        session.stop()


@contextmanager
def _own_interrupts() -> Iterator[None]:
    """Keep our way to end on Ctrl-C: PySpark puts one in its place that speaks to the JVM in the middle of a call."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if before is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)
