"""The worker's functions without Spark: the same partitions, shuffle and order, in one process.  For many examples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from pyspark_udfs.conclude import conclude_batches
from pyspark_udfs.messages import open_batches
from pyspark_udfs.schemas import CHECKPOINTS, FINDINGS
from pyspark_udfs.sources import GrantSource
from pyspark_udfs.spans import OBSERVATIONS, ORDER, RANK_CHECKPOINT, RANK_HEAD, observe_batches
from qsratchet import Grant

from .exports import ARROW, Queue, Row

Finding = tuple[Any, ...]


class Held:
    """A grant source for one process."""

    def __init__(self, grants: Sequence[Grant], given: Sequence[tuple[Queue, Grant]] = ()) -> None:
        self._held: dict[tuple[bytes, bytes], list[Grant]] = {}
        for grant in grants:
            self._held.setdefault((grant.service_id, grant.queue_id), []).append(grant)
        for queue, grant in given:
            self._held.setdefault((grant.service_id, queue.id), []).append(grant)

    def grants(self, service_id: bytes, queue_id: bytes) -> Sequence[Grant]:
        return self._held.get((service_id, queue_id), [])

    def queues(self) -> Sequence[tuple[bytes, bytes]]:
        return list(self._held)


def batches_of(rows: Sequence[Row], size: int = 1_000) -> Iterator[pa.RecordBatch]:
    for at in range(0, len(rows), size):
        part = rows[at : at + size]
        columns = [pa.array([row[place] for row in part], kind.type) for place, kind in enumerate(ARROW)]
        yield pa.RecordBatch.from_arrays(columns, schema=ARROW)


def messages(rows: Sequence[Row], source: GrantSource, size: int = 1_000) -> list[dict[str, Any]]:
    return [row for batch in open_batches(batches_of(rows, size), source) for row in batch.to_pylist()]


def concluded(
    partitions: Sequence[Sequence[Row]],
    source: GrantSource,
    *,
    heads: Sequence[tuple[bytes, bytes, bytes, bytes]] = (),
    checkpoints: Sequence[dict[str, Any]] = (),
    size: int = 1_000,
) -> tuple[Counter[Finding], list[dict[str, Any]]]:
    """The findings, counted, and the checkpoints of the queues in order."""
    seen = [
        row
        for rows in partitions
        for batch in observe_batches(batches_of(rows, size), source)
        for row in batch.to_pylist()
    ]
    for service_id, queue_id, nonce, head in heads:
        seen.append(_row(service_id=service_id, queue_id=queue_id, rank=RANK_HEAD, nonce=nonce, payload=head))
    for row in checkpoints:
        key = {name: row[name] for name in ("service_id", "queue_id")}
        seen.append(_row(**key, rank=RANK_CHECKPOINT, payload=row["state"]))
    seen.sort(key=_order)
    batch = pa.RecordBatch.from_pylist(seen, schema=OBSERVATIONS)
    rows_out = [row for part in conclude_batches(iter([batch]), source) for row in part.to_pylist()]
    findings = Counter(tuple(row[name] for name in FINDINGS.names) for row in rows_out if row["kind"] is not None)
    queues = [{name: row[name] for name in CHECKPOINTS.names} for row in rows_out if row["kind"] is None]
    for queue in queues:
        queue["findings"] = dict(queue["findings"])
    return findings, queues


def _row(**values: Any) -> dict[str, Any]:
    return {name: values.get(name) for name in OBSERVATIONS.names}


def _order(row: dict[str, Any]) -> list[tuple[bool, Any]]:
    # Nulls first, as Spark sorts.
    return [(row[name] is not None, row[name] if row[name] is not None else 0) for name in ORDER]


def numbered(findings: Counter[Finding], keep: Callable[[str], bool]) -> Counter[tuple[int | None, str]]:
    """Findings by number and kind."""
    counts: Counter[tuple[int | None, str]] = Counter()
    for finding, count in findings.items():
        if keep(finding[5]):
            counts[finding[2], finding[5]] += count
    return counts
