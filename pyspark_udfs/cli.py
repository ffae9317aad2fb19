"""The command line: what can be asked for, and how an answer or an error reaches a person or a script.

Answers go to standard output, progress and errors to standard error.  Exit status: 0 clean, 1 findings, 2 wrong use or
no answer, 130 interrupted (Ctrl-C), 143 terminated.  What the commands do is in `commands`; keys never
stand on a command line.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from qsratchet import QSRatchetError

from . import EXTRA

__all__ = ["main"]

_EXAMPLES: Final = """
examples:
  python -m pyspark_udfs demo
      make a sample with planted defects, audit it on this machine, write a report
  python -m pyspark_udfs sample trial --queues 100 --defects all:2
  python -m pyspark_udfs audit trial
      a folder of `sample` brings its grants, heads and passphrase file along
  python -m pyspark_udfs audit export/ --grants audit.grants --heads heads.parquet -o result
      asks for the passphrase; findings, summary, checkpoints and report.html are in result/
  python -m pyspark_udfs audit tomorrow/ --grants audit.grants --since result/checkpoints -o result2
      goes on where the last audit ended
  python -m pyspark_udfs grants narrow audit.grants -o less.grants --epochs 3-5

The page docs/audit.md leads from zero to a report, and to a cluster.
"""


class _Terminated(KeyboardInterrupt):
    """SIGTERM or SIGHUP: ends a command as Ctrl-C does, so that passphrases and unfinished outputs are taken away."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        with _signals_end_the_command():
            # PySpark takes a second to import, which --help does not need.
            from . import commands

            status: int = getattr(commands, options.run)(options)
            sys.stdout.flush()
            return status
    except KeyboardInterrupt as error:
        terminated = isinstance(error, _Terminated)
        said = "terminated" if terminated else "interrupted"
        print(f"\npyspark_udfs: {said}; nothing half-written is left", file=sys.stderr)
        return 143 if terminated else 130
    except BrokenPipeError:
        # The reader of our output went away (such as `head`): that is its choice.
        sys.stderr.close()
        return 2
    except QSRatchetError as error:
        print(f"pyspark_udfs: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        from .atomic import system_sentence

        print(f"pyspark_udfs: {system_sentence(error)}", file=sys.stderr)
        return 2
    except Exception as error:  # noqa: BLE001 - Python would end with 1, which a script takes for findings.
        missing = (error.name or "").partition(".")[0] if isinstance(error, ImportError) else ""
        if missing in EXTRA:
            print(f"pyspark_udfs: {missing} is missing: pip install 'qsratchet[spark]'", file=sys.stderr)
            return 2
        traceback.print_exc()
        print("pyspark_udfs: this is a bug, please report it; nothing half-written is left", file=sys.stderr)
        return 2


@contextmanager
def _signals_end_the_command() -> Iterator[None]:
    """Let Ctrl-C, SIGTERM and SIGHUP unwind the command; whoever ignores one of them, as `nohup` does, keeps that."""

    def end(number: int, frame: object) -> None:
        # From here on Py4J would log a traceback for each call that is cut off.
        logging.disable(logging.CRITICAL)
        raise KeyboardInterrupt if number == signal.SIGINT else _Terminated

    before: dict[int, Any] = {}
    disabled = logging.root.manager.disable
    if threading.current_thread() is threading.main_thread():
        for name in ("SIGINT", "SIGTERM", "SIGHUP"):
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
                before[number] = signal.signal(number, end)
    try:
        yield
    finally:
        logging.disable(disabled)
        for number, handler in before.items():
            signal.signal(number, handler)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m pyspark_udfs",
        description="Audit exported queues with Spark: decrypt, verify, and say what is wrong.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _demo(commands.add_parser("demo", help="make a sample with defects, audit it, show what was found"))
    _sample(commands.add_parser("sample", help="make an export to try an audit on"))
    _grants(commands.add_parser("grants", help="derive, list or narrow grants"))
    _audit(commands.add_parser("audit", help="audit an export"))
    _watch(commands.add_parser("watch", help="audit files as they arrive in a folder"))
    return parser


def _demo(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Makes a sample with every kind of defect, audits it with Spark on this machine, compares what was found with "
        "what was planted, and writes a report.  Exit status 0 if the audit found exactly that."
    )
    parser.add_argument("folder", nargs="?", default="qsratchet-demo", help="where to put it (default: %(default)s)")
    _shape(parser, queues=24, messages=1_000)
    _output(parser)
    _spark(parser)
    parser.set_defaults(run="demo", defects="all")


def _sample(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Makes an export as Parquet, with heads, owners' keys, grants, and a manifest of what was planted."
    )
    parser.add_argument("folder", help="where to put it; it must not exist")
    _shape(parser, queues=20, messages=1_000)
    parser.add_argument("--message-size", type=_number, default=256, metavar="BYTES", help="mean length (%(default)s)")
    parser.add_argument("--epoch-messages", type=_number, default=400, metavar="N", help="mean epoch (%(default)s)")
    parser.add_argument("--offer-every", type=_number, default=3, metavar="N", help="key offer every N epochs, 0 never")
    parser.add_argument("--huge", type=_number, default=0, metavar="N", help="give the first queue N messages")
    parser.add_argument("--suite", type=lambda text: int(text, 0), default=2, help="cipher suite, 1 to 4 (%(default)s)")
    parser.add_argument(
        "--defects",
        default="",
        metavar="KINDS",
        help="what to plant: all, all:3, or a list such as gap:2,fork,tail-cut-off",
    )
    parser.add_argument("--jobs", type=_number, default=0, metavar="N", help="processes (default: one for each core)")
    _key(parser, "the passphrase for its key and grant files (default: a new one in passphrase.txt)", service=False)
    _output(parser)
    parser.set_defaults(run="sample")


def _grants(parser: argparse.ArgumentParser) -> None:
    parser.description = "What an auditor holds: encrypted files of epoch grants."
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    derive = actions.add_parser("derive", help="from the owners' keys and an export's control frames")
    derive.add_argument("export", help="the export: a path that Spark reads")
    derive.add_argument("--keys", required=True, metavar="FILE", help="the owners' key file")
    derive.add_argument("-o", "--output", required=True, metavar="FILE", help="the grant file to write")
    _format(derive)
    _key(derive, "the passphrase of the key file; the grant file gets the same")
    _output(derive)
    _spark(derive)
    derive.set_defaults(run="grants_derive")
    listing = actions.add_parser("list", help="which queues and epochs a file opens; no key is shown")
    listing.add_argument("file", help="a grant file")
    listing.add_argument(
        "--queue", action="append", metavar="ID", help="only this queue, in hexadecimal; may be repeated"
    )
    _key(listing, "the passphrase of the file")
    _output(listing)
    listing.set_defaults(run="grants_list")
    narrow = actions.add_parser("narrow", help="keep some queues or epochs, to hand on no more than needed")
    narrow.add_argument("file", nargs="+", help="one grant file, or several to join")
    narrow.add_argument("-o", "--output", required=True, metavar="FILE", help="the grant file to write")
    narrow.add_argument(
        "--queue", action="append", metavar="ID", help="keep this queue, in hexadecimal; may be repeated"
    )
    narrow.add_argument("--epochs", metavar="FIRST-LAST", help="keep these epochs, such as 3-5 or 7")
    _key(narrow, "the passphrase of the files; the new file gets the same")
    _output(narrow)
    narrow.set_defaults(run="grants_narrow")


def _audit(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Opens and verifies every frame of an export and says what is wrong.  EXPORT may be a folder made by `sample`, "
        "which brings its grants, heads and passphrase file along.  Exit status: 0 clean, 1 findings, 2 wrong use."
    )
    parser.add_argument("export", help="the export: a path that Spark reads, or a sample's folder")
    parser.add_argument("--grants", metavar="FILE", help="the grant file")
    parser.add_argument("--heads", metavar="PATH", help="the table of heads: without it a cut-off end does not show")
    parser.add_argument("--since", metavar="PATH", help="the checkpoints of the audit before: go on where it ended")
    parser.add_argument(
        "-o",
        "--output",
        metavar="FOLDER",
        help="write findings, summary and checkpoints as Parquet, and report.html, there",
    )
    parser.add_argument("--report", metavar="FILE", help="write the report there")
    parser.add_argument(
        "--plaintext", metavar="FOLDER", help="also write the opened messages as Parquet: they are not encrypted"
    )
    parser.add_argument("--explain", action="store_true", help="print Spark's plan and the way that was chosen")
    parser.add_argument("--show", type=_number, default=20, metavar="N", help="findings to print (%(default)s)")
    _format(parser)
    _key(parser, "the passphrase of the grant file")
    _output(parser)
    _spark(parser)
    parser.set_defaults(run="audit_export")


def _watch(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Audits Parquet files as they arrive in a folder, until Ctrl-C.  Started again with the same --state it goes "
        "on where it was, and no finding is lost or written twice."
    )
    parser.add_argument("folder", help="the folder that files of the export arrive in")
    parser.add_argument(
        "--grants", required=True, metavar="FILE", help="the grant file; it may be replaced by a newer one"
    )
    parser.add_argument(
        "--state", required=True, metavar="FOLDER", help="findings, checkpoints and progress are kept there"
    )
    parser.add_argument("--heads", metavar="PATH", help="heads to compare the ends of the queues with, when it ends")
    parser.add_argument("--once", action="store_true", help="take what is there, then stop")
    parser.add_argument("--interval", default="10 seconds", help="how often to look (%(default)s)")
    _key(parser, "the passphrase of the grant file")
    _output(parser)
    _spark(parser)
    parser.set_defaults(run="watch_folder")


def _shape(parser: argparse.ArgumentParser, *, queues: int, messages: int) -> None:
    parser.add_argument("--queues", type=_number, default=queues, metavar="N", help="how many (%(default)s)")
    parser.add_argument("--messages", type=_number, default=messages, metavar="N", help="in each queue (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="chooses layout and defects (%(default)s)")


def _number(text: str) -> int:
    value = int(text.replace("_", "").replace(",", ""))
    if value < 0:
        raise ValueError(text)
    return value


def _format(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--format", default="parquet", help="how Spark reads the export (%(default)s)")


def _key(parser: argparse.ArgumentParser, what: str, *, service: bool = True) -> None:
    group = parser.add_argument_group("key", f"{what}; without an option it is asked for on a terminal")
    one = group.add_mutually_exclusive_group()
    one.add_argument("--passphrase-file", metavar="FILE", help="read the passphrase from this file")
    one.add_argument("--passphrase-env", metavar="NAME", help="read it from this environment variable")
    if service:
        one.add_argument(
            "--key-service", metavar="MODULE:FUNCTION", help="a function of yours that gives the file's key"
        )
    else:
        parser.set_defaults(key_service=None)


def _output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="answer as one JSON document")
    parser.add_argument(
        "--progress",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="a progress bar on standard error (default: if that is a terminal)",
    )


def _spark(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("Spark")
    group.add_argument(
        "--master",
        help="where Spark runs: local[4], spark://…, sc://… (default: this machine, or as spark-submit says)",
    )
    group.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE", help="a setting; may be repeated")
    group.add_argument("--ui", action="store_true", help="start Spark's web pages")
