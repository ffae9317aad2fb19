"""From a service's file to a report: what the example service exports is what the audit reads, heads included.

A real service process, owners with their own files who recorded grants while they read, the exporter's own command,
and Spark.
"""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from examples.owner import Owner
from pyspark_udfs import Layout, audit, open_frames
from pyspark_udfs.file_key import PassphraseFile
from pyspark_udfs.grant_file import GrantFile, write_grants
from qsratchet.crypto.passphrase import ScryptCost
from tests.examples.processes import ROOT, SERVICE_ID, Running, running

CHEAP = ScryptCost(log_n=14)


class Audited:
    """A service with four queues, and what an auditor gets of it."""

    def __init__(self, directory: Path, service: Running) -> None:
        self.directory, self.service = directory, service
        self.passphrase = directory / "passphrase"
        self.passphrase.write_text("correct horse battery staple\n")
        # `whole` and the two that are damaged later were read and not acknowledged; `begun` was, up to its last frame.
        self.owners = {name: self._owner(name) for name in ("whole", "begun", "gap", "cut")}
        self.sent: dict[str, list[bytes]] = {name: [] for name in self.owners}
        for name, owner in self.owners.items():
            owner.connect()
            self.send(name, 20)
            owner.read()
        self.send("begun", 7)
        self.owners["begun"].read()
        self.owners["begun"].read()
        for name in self.owners:
            self.send(name, 2)  # Nobody has read these.

    def _owner(self, name: str) -> Owner:
        return Owner(self.directory / f"{name}.db", self.service.exchange(), SERVICE_ID, record_grants=True)

    def send(self, name: str, count: int) -> None:
        client, sent = self.service.client(), self.sent[name]
        for _ in range(count):
            sent.append(b"%s %d" % (name.encode(), len(sent)))
            client.enqueue(self.owners[name].sender_id, os.urandom(16), sent[-1])

    def id_of(self, name: str) -> bytes:
        queue_id: bytes = self.owners[name].queue_id
        return queue_id

    def grants(self) -> GrantFile:
        path, key = self.directory / "audit.grants", PassphraseFile(str(self.passphrase))
        if not path.exists():
            owners = sorted(self.owners.values(), key=lambda owner: owner.queue_id)
            write_grants(path, [grant for owner in owners for grant in owner.grants()], key, cost=CHEAP)
        return GrantFile(str(path), key)

    def export(self, name: str) -> Path:
        output = self.directory / name
        run("examples.queuing_service.export", "--database", self.service.database, "--output", output)
        return output

    def delete(self, name: str, seq: str) -> int:
        """Delete a frame from the service's file, as storage might; its number."""
        file = sqlite3.connect(self.service.database, isolation_level=None)
        of_queue = "FROM frames WHERE queue = (SELECT id FROM queues WHERE queue_id = ?)"
        (number,) = file.execute(f"SELECT {seq} {of_queue}", (self.id_of(name),)).fetchone()
        assert file.execute(f"DELETE {of_queue} AND seq = ?", (self.id_of(name), number)).rowcount == 1
        file.close()
        return int(number)


def run(module: str, *arguments: object) -> str:
    command = [sys.executable, "-m", module, *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Audited]:
    directory = tmp_path_factory.mktemp("service")
    with running(directory / "service.db", "--update-every", "6") as service:
        made = Audited(directory, service)
        yield made
        for owner in made.owners.values():
            owner.close()


def test_the_export_of_an_unharmed_service_is_verified_with_the_end_of_each_queue(
    spark: SparkSession, audited: Audited
) -> None:
    export = audited.export("clean")
    frames = spark.read.parquet(str(export / "frames"))
    with audit(frames, audited.grants(), heads=spark.read.parquet(str(export / "heads"))) as result:
        assert result.findings.collect() == []
        assert result.layout is Layout.CLUSTERED
        summary = {bytes(row["queue_id"]): row for row in result.summary.collect()}
    assert set(summary) == {audited.id_of(name) for name in audited.owners}
    assert all(row["verified"] and row["head"] for row in summary.values())
    assert {name: summary[audited.id_of(name)]["first_seq"] == 0 for name in audited.owners} == {
        "whole": True,
        "begun": False,
        "gap": True,
        "cut": True,
    }
    opened = open_frames(frames, audited.grants()).orderBy("queue_id", "seq").collect()
    for name, sent in audited.sent.items():
        mine = [bytes(row["body"]) for row in opened if row["queue_id"] == audited.id_of(name) and row["body"]]
        # What was acknowledged is gone; the last message that was read is still there, and so is all after it.
        assert mine == (sent if name != "begun" else sent[-3:])


def test_a_frame_that_the_service_lost_is_a_gap_and_a_lost_end_is_cut_off(
    spark: SparkSession, audited: Audited
) -> None:
    grants = audited.grants()
    lost = audited.delete("gap", "max(seq) / 2")
    last = audited.delete("cut", "max(seq)")
    export = audited.export("damaged")
    frames, heads = (spark.read.parquet(str(export / name)) for name in ("frames", "heads"))
    with audit(frames, grants, heads=heads) as result:
        found = {(bytes(row["queue_id"]), row["kind"], row["seq"]) for row in result.findings.collect()}
        verified = {bytes(row["queue_id"]) for row in result.summary.collect() if row["verified"] and row["head"]}
    assert found == {(audited.id_of("gap"), "gap", lost), (audited.id_of("cut"), "tail cut off", last)}
    assert verified == {audited.id_of("whole"), audited.id_of("begun")}


def test_the_owners_command_writes_the_grants_of_what_its_service_holds(audited: Audited) -> None:
    path, owner = audited.directory / "begun.grants", audited.owners["begun"]
    options = ["--service", audited.service.address, "--database", audited.directory / "begun.db"]
    said = run("examples.owner", *options, "--grants", path, "--passphrase-file", audited.passphrase)
    written = list(GrantFile(str(path), PassphraseFile(str(audited.passphrase))))
    assert written == owner.grants()
    assert said == f"{len(written)} grants in {path}\n"
    assert 0 < len(written) < 6
