"""Exports for tests: real queues, written by the library, as rows that a test can damage."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from pyspark_udfs.schemas import EXPORT, arrow
from qsratchet import Dequeuer, Enqueuer, Grant, OwnerKeys, UpdatePolicy, derive_grants

from .plain_source import PlainSource

SERVICE = b"service"
NONCE = b"n" * 16
ARROW = arrow(EXPORT)


class Row(NamedTuple):
    """A row of an export."""

    service_id: bytes | None
    queue_id: bytes | None
    seq: int | None
    frame: bytes | None

    def __repr__(self) -> str:
        frame = None if self.frame is None else f"{self.frame[:16].hex()}+{len(self.frame)}"
        return f"<{(self.queue_id or b'').decode()} {self.seq} {frame}>"


@dataclass(slots=True, kw_only=True)
class Queue:
    """A queue as its service and its owner have it."""

    id: bytes
    owner: Dequeuer
    service: Enqueuer
    keys: OwnerKeys
    policy: UpdatePolicy
    # The owner's state before it has read anything.
    state: bytes
    rows: list[Row] = field(default_factory=list)
    bodies: dict[int, bytes] = field(default_factory=dict)
    # Other frames under numbers that are taken, from a service that was restored from a backup.
    forks: list[Row] = field(default_factory=list)
    # The head of the time before them.
    old_head: bytes = b""

    @classmethod
    def make(cls, id: bytes, messages: int, *, every: int = 7, suite: int = 1, size: int = 20) -> Queue:
        owner, request = Dequeuer.create(SERVICE, id, suites=(suite,))
        keys = owner.owner_keys()
        policy = UpdatePolicy(frames=every, seconds=None)
        service, init = Enqueuer.create(request, now=0, policy=policy)
        queue = cls(id=id, owner=owner, service=service, keys=keys, policy=policy, state=owner.dump())
        queue.rows.append(Row(SERVICE, id, 0, init.data))
        queue.write(messages, size=size)
        return queue

    def write(self, messages: int, *, size: int = 20) -> None:
        start = len(self.bodies)
        bodies = [b"%s/%d" % (self.id, start + n) + b"." * size for n in range(messages)]
        left = iter(bodies)
        for frame in self.service.enqueue_many(bodies, now=0):
            self.rows.append(Row(SERVICE, self.id, frame.seq, frame.data))
            if frame.type.name == "DATA":
                self.bodies[frame.seq] = next(left)

    def write_and_fork(self, messages: int) -> None:
        """Write single messages; before each, a copy of the service writes another one."""
        self.old_head = self.service.head(NONCE)
        for _ in range(messages):
            copy = Enqueuer.load(self.service.dump(), policy=self.policy)
            frames = copy.enqueue_many([b"the other history"], now=0)
            if len(frames) == 1:
                self.forks.append(Row(SERVICE, self.id, frames[0].seq, frames[0].data))
            self.write(1)

    @property
    def grants(self) -> list[Grant]:
        return list(derive_grants([row.frame for row in self.rows if row.frame is not None], self.keys))


def source_of(path: Path, queues: list[Queue]) -> PlainSource:
    rows = [(SERVICE, queue.id, grant.encode()) for queue in queues for grant in queue.grants]
    return PlainSource.write(path, rows)


def export_of(spark: SparkSession, path: Path, parts: list[list[Row]], *, group: int = 1 << 20) -> DataFrame:
    """Write an export, one file for each part, in the order given; read it with Spark."""
    path.mkdir(parents=True, exist_ok=True)
    for number, rows in enumerate(parts):
        columns = [pa.array([row[place] for row in rows], kind.type) for place, kind in enumerate(ARROW)]
        pq.write_table(
            pa.Table.from_arrays(columns, schema=ARROW), path / f"{number:04d}.parquet", row_group_size=group
        )
    return spark.read.parquet(str(path))
