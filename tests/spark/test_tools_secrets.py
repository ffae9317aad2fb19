"""Grants, keys and passphrases are in no plan, page of the UI, event log, exception or log line, nor in the output.

A real audit, in batch and live, runs in a process of its own, with every log open, Spark's event log and its UI on;
then all that it said, showed and wrote is searched for every secret, in each spelling that a log could give it.
"""

from __future__ import annotations

import subprocess
import sys
import zlib
from base64 import b64encode
from pathlib import Path

import pytest

from pyspark_udfs.defects import parse_defects
from pyspark_udfs.file_key import PassphraseFile
from pyspark_udfs.grant_file import GrantFile, KeyFile
from pyspark_udfs.sample import Sample, make_sample
from qsratchet.crypto.passphrase import ScryptCost

SAMPLE = Sample(
    queues=14, messages=60, epoch_messages=20, message_size=40, defects=parse_defects("tampered,no grant,gap")
)
PASSPHRASE = "seldom-spoken-words-4711"

#: Everything that an audit does, with all logs open, and two ways for it to fail, in batch and live.
SCRIPT = """
import json, logging, sys
from urllib.request import urlopen
logging.basicConfig(level=1, stream=sys.stderr)
from pathlib import Path
from pyspark_udfs import EXPORT, GrantFile, KeyFile, PassphraseFile
from pyspark_udfs import audit, derive_grants, open_frames, start_session, total, watch

folder = Path(sys.argv[1])
events = folder / "events"
events.mkdir()
spark = start_session(ui=True, settings={
    "spark.ui.port": "0", "spark.ui.retainedJobs": "10000",
    "spark.eventLog.enabled": "true", "spark.eventLog.dir": events.as_uri(), "spark.eventLog.compress": "false",
    "spark.log.level": "ALL", "spark.sql.shuffle.partitions": "2", "spark.master": "local[2]",
    "spark.driver.host": "127.0.0.1",
})
key = PassphraseFile(str(folder / "passphrase.txt"))
grants = GrantFile(str(folder / "sample" / "audit.grants"), key)
keys = KeyFile(str(folder / "sample" / "owner.keys"), key)
print(grants, keys, list(grants)[0], list(keys)[0])
export = spark.read.parquet(str(folder / "sample" / "export"))
heads = spark.read.parquet(str(folder / "sample" / "heads.parquet"))
with audit(export, grants, heads=heads) as result:
    for table in (result.findings, result.summary, result.messages):
        table.explain(True)
        table.explain("codegen")
    for name in ("findings", "summary", "checkpoints"):
        getattr(result, name).write.json(str(folder / "out" / name))
    total(result.summary).show()
derived = derive_grants(export, keys)
derived.explain("extended")
print("derived", derived.count())
stream = spark.readStream.schema(EXPORT).parquet(str(folder / "sample" / "export"))
def live(source, name):
    query = watch(stream, source, sink=str(folder / name), checkpoint=str(folder / (name + "-progress")), once=True)
    try:
        query.awaitTermination()
    finally:
        print("progress", json.dumps([one.jsonValue if hasattr(one, "jsonValue") else str(one)
                                      for one in query.recentProgress], default=str), query.status, query.exception())
live(grants, "live")
damaged = folder / "damaged.grants"
data = bytearray((folder / "sample" / "audit.grants").read_bytes())
data[-1] ^= 1
damaged.write_bytes(data)
wrong = folder / "wrong.txt"
wrong.write_text("other words")
for source in (GrantFile(str(damaged), key), GrantFile(grants.path, PassphraseFile(str(wrong)))):
    try:
        open_frames(export, source).write.format("noop").mode("overwrite").save()
    except Exception as error:
        print("failed as it should:", repr(error), error)
        logging.exception("failed")
    else:
        raise SystemExit("it did not fail")
try:
    live(source, "live-wrong")
except Exception as error:
    print("failed live as it should:", repr(error), error)
else:
    raise SystemExit("it did not fail")
web = spark.sparkContext.uiWebUrl
rest = f"{web}/api/v1/applications/{spark.sparkContext.applicationId}"
queries = json.load(urlopen(f"{rest}/sql?details=true&planDescription=true&length=1000"))
stages = json.load(urlopen(f"{rest}/stages"))
addresses = [f"{rest}/{name}" for name in ("jobs", "stages?details=true", "environment", "allexecutors", "storage/rdd")]
addresses += [f"{rest}/sql?details=true&planDescription=true&length=1000"]
addresses += [f"{web}/{name}/" for name in ("jobs", "stages", "storage", "environment", "executors", "SQL")]
addresses += [f"{web}/StreamingQuery/"]
addresses += [f"{web}/SQL/execution/?id={one['id']}" for one in queries]
addresses += [f"{web}/stages/stage/?id={one['stageId']}&attempt={one['attemptId']}" for one in stages]
pages = folder / "pages"
pages.mkdir()
for number, address in enumerate(addresses):
    (pages / f"{number}.html").write_bytes(urlopen(address).read())
print("pages", len(addresses))
spark.stop()
print("done")
"""


def spellings(secret: bytes) -> list[bytes]:
    """The secret as it could stand in a log: raw, hexadecimal, base64 at any offset, as a Python or a Java array."""
    encoded = [b64encode(bytes(pad) + secret)[4 if pad else 0 : -4] for pad in range(3)]
    numbers = ", ".join(str(byte) for byte in secret[:12]).encode()
    signed = ", ".join(str(byte - 256 if byte > 127 else byte) for byte in secret[:12]).encode()
    escaped = repr(secret)[2:-1].encode()
    hexadecimal = secret.hex()
    return [secret, hexadecimal.encode(), hexadecimal.upper().encode(), *encoded, numbers, signed, escaped]


def test_the_search_finds_a_secret_in_each_spelling() -> None:
    secret = bytes(range(200, 232))
    for said in (repr(secret).encode(), secret.hex().encode(), b64encode(b"xy" + secret), str(list(secret)).encode()):
        assert any(spelling in said for spelling in spellings(secret)), said


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, bytes]]:
    folder = tmp_path_factory.mktemp("secrets")
    secret = folder / "passphrase.txt"
    secret.write_text(PASSPHRASE + "\n")
    make_sample(folder / "sample", SAMPLE, PassphraseFile(str(secret)), cost=ScryptCost(log_n=14))
    with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as err:
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, str(folder)], stdout=out, stderr=err, timeout=400, check=False
        )
    tail = (folder / "stderr").read_bytes()[-3_000:].decode(errors="replace")
    assert done.returncode == 0, tail
    texts = {"stdout": (folder / "stdout").read_bytes(), "stderr": (folder / "stderr").read_bytes()}
    for name in ("events", "out", "live", "pages"):
        files = [path for path in (folder / name).rglob("*") if path.is_file()]
        texts[name] = b"\n".join(path.read_bytes() for path in files)
    return folder, texts


def test_no_secret_is_in_a_plan_a_page_an_event_an_exception_a_log_line_or_the_output(
    said: tuple[Path, dict[str, bytes]],
) -> None:
    folder, texts = said
    # First that there is something to search: the logs are open, the plans and the failures are in it.
    assert b"done" in texts["stdout"]
    assert texts["stdout"].count(b"failed as it should") == 2
    assert b"failed live as it should" in texts["stdout"]
    assert b"numInputRows" in texts["stdout"]
    assert b"audit_clustered" in texts["pages"]
    assert b"spark.app.id" in texts["pages"]
    assert b"Completed Streaming Queries" in texts["pages"]
    assert b"was altered or moved" in texts["stdout"]
    assert b"does not open with this passphrase" in texts["stdout"]
    assert b"audit_clustered" in texts["stdout"]
    assert b"TRACE" in texts["stderr"]
    assert b"py4j" in texts["stderr"]
    assert b"SparkListenerSQLExecutionStart" in texts["events"]
    assert b"tampered" in texts["out"]
    key = PassphraseFile(str(folder / "passphrase.txt"))
    secrets = {"passphrase": PASSPHRASE.encode()}
    for grant in GrantFile(str(folder / "sample" / "audit.grants"), key):
        secrets[f"chain key {grant.describe()}"] = grant.chain_key(grant.first_seq)
        secrets[f"last chain key {grant.describe()}"] = grant.chain_key(grant.first_seq + 5)
    for owner in KeyFile(str(folder / "sample" / "owner.keys"), key):
        for key_id, private in owner._keys.items():
            secrets[f"key {key_id} {owner.describe()}"] = private.seed
        assert owner._join_secret is not None
        secrets[f"join secret {owner.describe()}"] = owner._join_secret
    assert len(secrets) > 60
    everything = b"\0".join(texts.values())
    for name, secret in secrets.items():
        for spelling in spellings(secret):
            assert spelling not in everything, f"{name} is told as {spelling[:12]!r}…"


def test_no_message_is_in_a_log_or_in_the_default_output(said: tuple[Path, dict[str, bytes]]) -> None:
    _, texts = said
    everything = b"\0".join(texts.values())
    for queue in range(SAMPLE.queues):
        for start in (b"queue %d number " % queue, b64encode(b"queue %d number " % queue)[:20]):
            assert start not in everything


def test_grants_at_rest_cannot_be_told_from_noise(said: tuple[Path, dict[str, bytes]]) -> None:
    folder, _ = said
    sealed = (folder / "sample" / "audit.grants").read_bytes()[200:]
    assert len(zlib.compress(sealed, 9)) > len(sealed)
