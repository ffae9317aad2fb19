"""What the commands do: each takes the parsed options, prints its answer and returns the exit status.

Outputs are written under another name first and moved into place at the end, so an error or Ctrl-C leaves nothing half.
"""

from __future__ import annotations

import os
import secrets
import sys
import tempfile
import threading
from argparse import Namespace
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from itertools import islice, permutations
from pathlib import Path
from typing import Final

from pyarrow.dataset import dataset as parquet_dataset
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from qsratchet import Grant, MisuseError
from qsratchet.crypto.passphrase import ScryptCost

from .answers import audit_answer, audit_lines, json_line
from .atomic import folder_at_end, replaced_at_end
from .auditing import AuditResult, audit
from .defects import parse_defects
from .derive import derive_grants
from .faults import AuditFailed, spark_errors_in_a_sentence
from .file_key import FileKey, Passphrase, PassphraseFile
from .grant_file import GrantFile, KeyFile, merged, narrowed, write_grants
from .live import last_batch, live_findings, live_heads, live_summary, watch
from .parquet_files import ParquetFiles
from .progress import Progress
from .report import Report, render, write_report
from .report_data import gather
from .running import chosen_key, spark_session
from .sample import Sample, expected_findings, make_sample
from .schemas import EXPORT

__all__ = ["audit_export", "demo", "grants_derive", "grants_list", "grants_narrow", "sample", "watch_folder"]

#: So many derived grants are sorted at a time: some 40 MB.  What is more waits in sealed files.
_SORTED_AT_ONCE: Final = 200_000
#: So many findings of a batch are told; the folder of the state has all.
_TOLD: Final = 20
_TOLD_JSON: Final = 10_000


# --- sample and demo -----------------------------------------------------------------------------


def sample(options: Namespace) -> int:
    wanted = Sample(
        queues=options.queues,
        messages=options.messages,
        message_size=options.message_size,
        epoch_messages=options.epoch_messages,
        offer_every=options.offer_every,
        huge=options.huge,
        suite=options.suite,
        seed=options.seed,
        defects=parse_defects(options.defects),
    )
    with ExitStack() as stack:
        own = options.passphrase_file or options.passphrase_env
        key = chosen_key(options, stack, new=True) if own else None
        manifest = _made(Path(options.folder), wanted, key, options.jobs or os.cpu_count() or 1, options.progress)
    if options.json:
        print(json_line({"folder": options.folder, **manifest}))
    else:
        planted = manifest["planted"]
        assert isinstance(planted, list)
        print(
            f"{options.folder}: {manifest['queues']:,} queues, {manifest['frames']:,} frames, {manifest['grants']:,} "
            f"grants, {len(planted):,} planted defects (manifest.json lists them)\n"
            f"next: python -m pyspark_udfs audit {options.folder}"
        )
    return 0


def _made(folder: Path, wanted: Sample, key: FileKey | None, jobs: int, progress: bool | None) -> dict[str, object]:
    """Make a sample; without a key, with a new passphrase in a file beside it, which is good for trials only."""
    bar = Progress(progress)
    try:
        with folder_at_end(folder) as work:
            if key is None:
                path = work / "passphrase.txt"
                path.touch(mode=0o600)
                path.write_text(secrets.token_urlsafe(18) + "\n", encoding="utf-8")
                key = PassphraseFile(str(path))
            inner = work / "sample"
            manifest = make_sample(
                inner, wanted, key, jobs=jobs, progress=lambda done, total: bar.show("making the sample", done, total)
            )
            for item in inner.iterdir():
                item.replace(work / item.name)
            inner.rmdir()
            return manifest
    finally:
        bar.clear()


def demo(options: Namespace) -> int:
    folder = Path(options.folder)
    wanted = Sample(queues=options.queues, messages=options.messages, seed=options.seed, defects=parse_defects("all"))
    manifest = _made(folder, wanted, None, 1, options.progress)
    with ExitStack() as stack:
        key = PassphraseFile(str((folder / "passphrase.txt").resolve()))
        source = GrantFile(str((folder / "audit.grants").resolve()), key).check()
        spark = spark_session(options, stack)
        bar = Progress(options.progress)
        with spark_errors_in_a_sentence(), bar.watching(spark, "auditing"):
            export, table = _read(spark, str(folder / "export"), "parquet")
            heads = spark.read.parquet(str(folder / "heads.parquet"))
            with audit(export, source, heads=heads) as result:
                report = gather(table, result, about=_about(options.folder, result))
    page = folder / "report.html"
    write_report(page, report)
    expected = expected_findings(manifest)
    found = {(one.queue_id.hex(), one.kind, one.seq) for one in report.findings}
    missed, surplus = expected - found, found - expected
    if options.json:
        differ = {"missed": sorted(map(list, missed)), "surplus": sorted(map(str, surplus))}
        print(json_line({**audit_answer(report, written={"report": str(page)}), **differ}))
    else:
        planted = manifest["planted"]
        assert isinstance(planted, list)
        print(f"{len(planted)} defects were planted in {folder}; the audit says:\n")
        print("\n".join(audit_lines(report, show=30, written={"report": str(page)})))
        print()
        if missed or surplus:
            print(f"NOT AS PLANTED: {len(missed)} missed, {len(surplus)} that nobody planted; this is a bug, report it")
        else:
            print("Exactly what was planted was found, and nothing else.  Open the report in a browser.")
    return 2 if missed or surplus else 0


# --- grants --------------------------------------------------------------------------------------


def grants_derive(options: Namespace) -> int:
    with ExitStack() as stack:
        export_path, beside = _export_path(options.export)
        key = chosen_key(options, stack, beside=beside)
        source = KeyFile(str(Path(options.keys).resolve()), key).check()
        # Grants pass from the workers to the driver: whatever Spark puts on a disk on the way is encrypted.
        spark = spark_session(options, stack, {"spark.io.encryption.enabled": "true"})
        bar = Progress(options.progress)
        with spark_errors_in_a_sentence(), bar.watching(spark, "deriving grants"):
            _, export = _read(spark, export_path, options.format)
            rows = derive_grants(export, source).toLocalIterator()
            count = _write_sorted(options.output, (Grant.decode(bytes(row.grant)) for row in rows), key, stack)
    if options.json:
        print(json_line({"grants": count, "file": options.output}))
    else:
        print(f"{options.output}: {count:,} grants")
    return 0


def _write_sorted(path: str, grants: Iterator[Grant], key: FileKey, stack: ExitStack) -> int:
    """Sort grants that come in any order and write them; more than fit are sorted in sealed files."""
    runs: list[Iterable[Grant]] = []
    folder: Path | None = None
    # What waits is sealed with a key of its own, which nobody could guess, so that one guess need not cost much.
    waiting = Passphrase(secrets.token_urlsafe(32))
    while chunk := list(islice(grants, _SORTED_AT_ONCE)):
        chunk.sort(key=lambda grant: (grant.service_id, grant.queue_id, grant.epoch, grant.first_seq))
        if len(chunk) < _SORTED_AT_ONCE and not runs:
            return write_grants(path, chunk, key)
        folder = folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="qsratchet-sort-")))
        run = folder / f"{len(runs)}.grants"
        write_grants(run, chunk, waiting, cost=ScryptCost(log_n=14))
        runs.append(GrantFile(str(run), waiting))
    return write_grants(path, merged(runs), key)


def grants_list(options: Namespace) -> int:
    with ExitStack() as stack:
        key = chosen_key(options, stack)
        file = GrantFile(options.file, key).check()
        queues = _queue_ids(options.queue)
        rows = [
            {
                "service_id": grant.service_id.hex(),
                "queue_id": grant.queue_id.hex(),
                "epoch": grant.epoch,
                "first_seq": grant.first_seq,
                "suite": grant.suite.id,
            }
            for grant in narrowed(file, queues, None)
        ]
    if options.json:
        print(json_line(rows))
        return 0
    print(f"{options.file}: {len(file):,} grants")
    last = None
    for row in rows:
        if row["queue_id"] != last:
            last = row["queue_id"]
            print(f"  queue {last} of service {row['service_id']}, suite 0x{row['suite']:04x}")
        print(f"    epoch {row['epoch']}, from number {row['first_seq']} on")
    return 0


def grants_narrow(options: Namespace) -> int:
    epochs = _epochs(options.epochs)
    queues = _queue_ids(options.queue)
    with ExitStack() as stack:
        key = chosen_key(options, stack)
        files = [GrantFile(path, key).check() for path in options.file]
        count = write_grants(options.output, narrowed(merged(files), queues, epochs), key)
        before = sum(map(len, files))
    if options.json:
        print(json_line({"grants": count, "before": before, "file": options.output}))
    else:
        print(f"{options.output}: {count:,} of {before:,} grants")
    return 0


def _queue_ids(texts: list[str] | None) -> frozenset[bytes] | None:
    if texts is None:
        return None
    try:
        return frozenset(bytes.fromhex(text) for text in texts)
    except ValueError:
        raise MisuseError("a queue id is written in hexadecimal, as `grants list` prints it") from None


def _epochs(text: str | None) -> range | None:
    if text is None:
        return None
    first, dash, last = text.partition("-")
    if not first.isdecimal() or (dash and not last.isdecimal()) or int(last or first) < int(first):
        raise MisuseError(f"epochs are written as 7 or as 3-5, not {text!r}")
    return range(int(first), int(last or first) + 1)


# --- audit and watch -----------------------------------------------------------------------------


def audit_export(options: Namespace) -> int:
    export_path, beside = _export_path(options.export)
    folder = Path(options.export)
    grants = options.grants or (str(folder / "audit.grants") if beside else None)
    if grants is None:
        raise MisuseError("--grants is missing: name the grant file; `grants derive` makes one from the owners' keys")
    heads_path = options.heads or (str(folder / "heads.parquet") if beside else None)
    with ExitStack() as stack:
        # The key is tried here first, before Spark starts: a wrong passphrase is told in a second.
        key = chosen_key(options, stack, beside=beside)
        source = GrantFile(str(Path(grants).resolve()), key).check()
        outputs = stack.enter_context(_outputs(options))
        spark = spark_session(options, stack)
        bar = Progress(options.progress)
        with spark_errors_in_a_sentence(), bar.watching(spark, "auditing"):
            export, table = _read(spark, export_path, options.format)
            heads = None if heads_path is None else spark.read.parquet(heads_path)
            since = None if options.since is None else spark.read.parquet(options.since)
            with audit(export, source, heads=heads, checkpoints=since) as result:
                if options.explain:
                    result.explain()
                page = options.report is not None or options.output is not None
                report = gather(table, result, about=_about(options.export, result), plots=page)
                outputs.write(table, result, report)
        written = outputs.names()
    if options.json:
        print(json_line(audit_answer(report, written=written)))
    else:
        print("\n".join(audit_lines(report, show=options.show, written=written)))
    return 1 if report.total_findings else 0


class _Outputs:
    """Where an audit's tables go: into folders that take their names when everything is written."""

    def __init__(self, tables: Path | None, plaintext: Path | None, options: Namespace) -> None:
        self._tables, self._plaintext, self._options = tables, plaintext, options

    def write(self, export: DataFrame, result: AuditResult, report: Report) -> None:
        if self._tables is not None:
            _write(result.findings, self._tables / "findings", report.total_findings - report.earlier)
            _write(result.summary, self._tables / "summary", report.queues)
            _write(result.checkpoints, self._tables / "checkpoints", report.queues)
            (self._tables / "report.html").write_text(render(report), encoding="utf-8")
        if self._plaintext is not None:
            _write(result.messages, self._plaintext / "messages", export.count())
        if self._options.report is not None:
            with replaced_at_end(self._options.report) as file:
                file.write(render(report).encode())

    def names(self) -> dict[str, str]:
        """What was written, by name."""
        options = self._options
        names = {}
        if options.output is not None:
            names = {name: str(Path(options.output) / name) for name in ("findings", "summary", "checkpoints")}
            names["report"] = str(Path(options.output) / "report.html")
        if options.report is not None:
            names["report"] = options.report
        if options.plaintext is not None:
            names["plaintext"] = str(Path(options.plaintext) / "messages")
        return names


def _write(table: DataFrame, place: Path, rows: int) -> None:
    """Write a table where this process sees all of it: executors on other machines could write to disks of theirs."""
    place = place.resolve()
    table.write.parquet(place.as_uri())
    try:
        seen = parquet_dataset(place).count_rows()
    except OSError:
        seen = 0
    if seen != rows:
        raise AuditFailed(
            f"this machine sees {seen:,} of the {rows:,} {place.name} that Spark wrote: name an output folder that is "
            "shared with the machines of the cluster, or use the functions and a `write` of your own (docs/audit.md)"
        )


@contextmanager
def _outputs(options: Namespace) -> Iterator[_Outputs]:
    for path in (options.output, options.plaintext):
        if path is not None and "://" in path:
            raise MisuseError(
                f"{path}: the command writes to paths; on a cluster's storage use the functions (docs/audit.md)"
            )
    places = [Path(path).resolve() for path in (options.output, options.plaintext, options.report) if path is not None]
    for place, other in permutations(places, 2):
        if place.is_relative_to(other):
            raise MisuseError(f"{place} lies within {other}: name places for the outputs that are apart")
    with ExitStack() as stack:
        tables = None if options.output is None else stack.enter_context(folder_at_end(options.output))
        plaintext = None if options.plaintext is None else stack.enter_context(folder_at_end(options.plaintext))
        yield _Outputs(tables, plaintext, options)


def watch_folder(options: Namespace) -> int:
    state = Path(options.state)
    if options.once and not Path(options.folder).is_dir():
        raise MisuseError(f"there is no folder {options.folder}")
    with ExitStack() as stack:
        key = chosen_key(options, stack)
        source = GrantFile(str(Path(options.grants).resolve()), key).check()
        spark = spark_session(options, stack)
        sink = str(state / "audit")

        def after(number: int) -> None:
            tell({"batch": number}, live_findings(spark, sink).filter(f"batch = {number}"))

        def tell(what: dict[str, object], found: DataFrame) -> int:
            """Say how many findings there are, and the first of them: all are in the folder of the state."""
            count, first = found.count(), found.limit(_TOLD_JSON if options.json else _TOLD).collect()
            if options.json:
                findings = [_plain(row.asDict()) for row in first]
                print(json_line({**what, "count": count, "findings": findings}), flush=True)
                return count
            stamp = datetime.now(UTC).strftime("%H:%M:%S")
            print(
                f"{stamp} {' '.join(f'{name} {value}' for name, value in what.items())}: {count:,} findings", flush=True
            )
            for row in first:
                print(f"  {bytes(row.queue_id or b'').hex()[:16]}…  {row.kind}: {row.sentence}", flush=True)
            return count

        def cut_off() -> bool:
            """Whether heads, if there are any, find something wrong with the ends of the queues now."""
            if options.heads is None:
                return False
            return tell({"heads": options.heads}, live_heads(spark.read.parquet(options.heads), source, sink=sink)) > 0

        with spark_errors_in_a_sentence("finished batches are kept, and the others come again when it is started anew"):
            Path(options.folder).mkdir(parents=True, exist_ok=True)
            stream = spark.readStream.schema(EXPORT).parquet(options.folder)
            query = watch(
                stream,
                source,
                sink=sink,
                checkpoint=str(state / "progress"),
                once=options.once,
                interval=options.interval,
                after=after,
            )
            if not options.once and not options.json:
                print(f"watching {options.folder}; Ctrl-C ends it", flush=True)
            try:
                _await(query)
            except KeyboardInterrupt as error:
                query.stop()
                print("\nstopped; started again with the same --state it goes on where it was", file=sys.stderr)
                if type(error) is not KeyboardInterrupt:
                    # Whoever ends it from outside waits for the end, not for a verdict.
                    raise
            wrong = cut_off()
            if last_batch(spark, sink) < 0:
                print(f"no batch was finished: is anything in {options.folder}?", file=sys.stderr)
                return 1 if wrong else 0
            return 1 if wrong or live_summary(spark, sink).filter("not verified").take(1) else 0


def _await(query: StreamingQuery) -> None:
    """Wait until a query has ended.

    It is another thread that asks Spark: Ctrl-C in the middle of a call makes Py4J close every connection to the JVM,
    also the one on which a batch is under way.
    """
    ended: Future[None] = Future()

    def ask() -> None:
        try:
            query.awaitTermination()
        except Exception as error:  # noqa: BLE001 - it is raised again where it is waited for.
            ended.set_exception(error)
        else:
            ended.set_result(None)

    threading.Thread(target=ask, daemon=True).start()
    ended.result()


def _plain(row: dict[str, object]) -> dict[str, object]:
    return {name: bytes(value).hex() if isinstance(value, (bytes, bytearray)) else value for name, value in row.items()}


def _export_path(path: str) -> tuple[str, Path | None]:
    """Where the frames are, and the passphrase file if this is the folder of a sample."""
    folder = Path(path)
    if (folder / "manifest.json").is_file() and (folder / "export").is_dir():
        return str(folder / "export"), folder / "passphrase.txt"
    return path, None


def _read(spark: SparkSession, path: str, format: str) -> tuple[DataFrame | ParquetFiles, DataFrame]:
    """An export for the audit, and as a table.  Workers on this machine read its Parquet files themselves."""
    if (
        format == "parquet"
        and hasattr(spark, "_jsparkSession")
        and (spark.sparkContext.master or "").startswith("local")
    ):
        files = ParquetFiles(spark, path)
        return files if files.local else files.table, files.table
    table = spark.read.format(format).load(path)
    return table, table


def _about(path: str, result: AuditResult) -> list[str]:
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return [f"Export: {path}", f"Audited: {now}, rows {result.layout}"]
