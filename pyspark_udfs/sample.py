"""Makes an export to try an audit on: real queues, sealed by the library, with planted defects on request.

A sample is a folder: `export/` (Parquet, clustered), `heads.parquet`, the sealed files `owner.keys` and `audit.grants`,
and `manifest.json`, which says what was planted where.  Keys are drawn afresh each time; layout, messages and defects
follow from the seed.  Memory is bounded by a chunk of queues, or by an epoch of a longer queue.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from itertools import chain, groupby
from multiprocessing import get_context
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from qsratchet import (
    DEFAULT_SUITE,
    SUITES,
    CreationRequest,
    Enqueuer,
    KeyOffer,
    MisuseError,
    OwnerKeys,
    UpdatePolicy,
    derive_grants,
)
from qsratchet.crypto.kem import PrivateKey
from qsratchet.crypto.passphrase import DEFAULT_COST, ScryptCost
from qsratchet.queue.schedule import queue_context

from .atomic import folder_at_end, replaced_at_end
from .defects import Defect, Layout, Planted, plan_defects
from .export_file import ExportWriter, Row
from .file_key import FileKey
from .grant_file import grant_record, keys_record
from .schemas import HEADS, arrow
from .sealed_file import Content, Record, SealedWriter

__all__ = ["Sample", "expected_findings", "make_sample", "message_of"]

#: A chunk of queues has about this many messages; it is one file of the export, made by one process.
CHUNK_MESSAGES: Final = 250_000
_POLICY: Final = UpdatePolicy(frames=None, seconds=None)
_HEADS: Final = arrow(HEADS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What to make."""

    queues: int = 20
    #: Messages in each queue.
    messages: int = 1_000
    #: Mean length of a message in bytes; the lengths vary from a tenth to six times of it.
    message_size: int = 256
    #: Mean number of messages in an epoch; epochs vary by a quarter.
    epoch_messages: int = 400
    #: The owner offers a new key at the end of every so-manyth epoch; 0 for never.
    offer_every: int = 3
    #: If not 0, the first queue has so many messages: one huge queue beside the others.
    huge: int = 0
    suite: int = DEFAULT_SUITE
    seed: int = 1
    defects: dict[Defect, int] = field(default_factory=dict)
    service_id: bytes = b"sample.example"

    def __post_init__(self) -> None:
        if self.queues < 1 or self.messages < 1 or self.huge < 0 or self.offer_every < 0:
            raise MisuseError("a sample has at least one queue, and each queue at least one message")
        if not 1 <= self.epoch_messages <= 50_000:
            raise MisuseError(f"an epoch has 1 to 50,000 messages on average, not {self.epoch_messages}")
        if not 1 <= self.message_size <= 1 << 20:
            raise MisuseError(f"messages have 1 byte to 1 MiB on average, not {self.message_size}")
        if self.suite not in SUITES:
            raise MisuseError(f"there is no suite 0x{self.suite:04x}; there are {', '.join(f'{id}' for id in SUITES)}")

    def queue_id(self, index: int) -> bytes:
        """Ids look random and ascend with the index, so that the export is sorted as it is made."""
        digest = blake2b(f"{self.seed} {index}".encode(), digest_size=24).digest()
        width = (1 << 64) // self.queues
        return (index * width + int.from_bytes(digest[:8], "big") % width).to_bytes(8, "big") + digest[8:]

    def layout(self, index: int) -> Layout:
        left = self.huge if index == 0 and self.huge else self.messages
        chance = random.Random(f"layout {self.seed} {index}")  # noqa: S311 - to be repeated, not a secret.
        epochs = []
        while left:
            spread = self.epoch_messages // 4
            size = min(left, max(1, self.epoch_messages + chance.randint(-spread, spread)))
            epochs.append(size)
            left -= size
        return Layout(epochs=tuple(epochs))


def message_of(sample: Sample, queue: int, seq: int) -> bytes:
    """The message under this number; the same for the same seed, so that a test can tell what it should read."""
    head = b"queue %d number %d " % (queue, seq)
    # A multiplicative hash instead of a generator object: one is needed for each message.
    mix = (seq * 0x9E3779B97F4A7C15 + queue * 0xC2B2AE3D27D4EB4F + sample.seed) & 0xFFFFFFFFFFFFFFFF
    size = (sample.message_size * _SHAPE[mix >> 58]) // _MEAN
    at = (mix >> 20) & 0xFFFF
    return (head + _FILLER[at : at + max(0, size - len(head))])[: max(size, 1)] if size <= 1 << 16 else head.ljust(size)


#: Lengths relative to each other: most below the mean, a few far above.
_SHAPE: Final = tuple(
    sorted([8, 12, 16, 20, 24, 28, 32, 40] * 3 + [48, 56, 64, 72] * 6 + [96, 128, 160, 192] * 3 + [512] * 4)
)
_MEAN: Final = sum(_SHAPE) // len(_SHAPE)
_FILLER: Final = random.Random("filler").randbytes(1 << 17)  # noqa: S311 - filler, not a secret.


def make_sample(
    path: str | os.PathLike[str],
    sample: Sample,
    key: FileKey,
    *,
    cost: ScryptCost = DEFAULT_COST,
    jobs: int = 1,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, object]:
    """Make a sample at `path`, whole or not at all; return its manifest.

    `progress` is told how many messages are done, of how many.
    """
    layouts = [sample.layout(index) for index in range(sample.queues)]
    planted = plan_defects(sample.defects, layouts, sample.seed)
    total = sum(sum(layout.epochs) for layout in layouts)
    frames = done = grants = 0
    with (
        folder_at_end(path) as folder,
        SealedWriter(folder / "owner.keys", Content.OWNER_KEYS, key, cost=cost) as key_file,
        SealedWriter(folder / "audit.grants", Content.GRANTS, key, cost=cost) as grant_file,
        pq.ParquetWriter(folder / "heads.parquet", _HEADS) as head_file,
    ):
        (folder / "export").mkdir()
        works = _chunks(sample, layouts, planted, folder / "export")
        for made in _each(works, jobs):
            for record in made.keys:
                key_file.add(record)
            for record in made.grants:
                grant_file.add(record)
            head_file.write_table(pa.Table.from_pylist(made.heads, schema=_HEADS))
            frames += made.frames
            done += made.messages
            grants += len(made.grants)
            progress(done, total)
        manifest = {
            "format": 1,
            "sample": {
                **asdict(sample),
                "service_id": sample.service_id.hex(),
                "defects": {kind.value: count for kind, count in sample.defects.items()},
            },
            "queues": sample.queues,
            "frames": frames,
            "messages": total,
            "grants": grants,
            "planted": [
                {
                    "kind": one.kind.value,
                    "service_id": sample.service_id.hex(),
                    "queue_id": sample.queue_id(one.queue).hex(),
                    "epoch": one.epoch,
                    "seq": one.seq,
                    "last_seq": one.last_seq,
                }
                for one in planted
            ],
        }
        with replaced_at_end(folder / "manifest.json") as file:
            file.write(json.dumps(manifest, indent=1).encode())
    return manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chunk:
    """Queues to make: one file of the export."""

    sample: Sample
    first: int
    layouts: list[Layout]
    planted: dict[int, list[Planted]]
    path: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class _Made:
    """What a chunk gives beside its file."""

    frames: int
    messages: int
    keys: list[Record]
    grants: list[Record]
    heads: list[dict[str, bytes]]


def _chunks(sample: Sample, layouts: list[Layout], planted: list[Planted], folder: Path) -> Iterator[_Chunk]:
    where = {queue: list(group) for queue, group in groupby(planted, key=lambda one: one.queue)}
    first = number = 0
    while first < len(layouts):
        last, held = first, 0
        while last < len(layouts) and held < CHUNK_MESSAGES:
            held += sum(layouts[last].epochs)
            last += 1
        # A stranger's frame comes from the next queue, so a queue with one is not the last of its chunk.
        while any(one.kind is Defect.WRONG_QUEUE for one in where.get(last - 1, ())):
            last += 1
        mine = {queue: where[queue] for queue in range(first, last) if queue in where}
        path = folder / f"part-{number:05}.parquet"
        yield _Chunk(sample=sample, first=first, layouts=layouts[first:last], planted=mine, path=path)
        first = last
        number += 1


def _each(chunks: Iterable[_Chunk], jobs: int) -> Iterator[_Made]:
    """Make the chunks, in order, at most two for each process at a time."""
    if jobs <= 1:
        yield from map(_make, chunks)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        waiting: list[Future[_Made]] = []
        try:
            for chunk in chunks:
                waiting.append(pool.submit(_make, chunk))
                if len(waiting) >= 2 * jobs:
                    yield waiting.pop(0).result()
            while waiting:
                yield waiting.pop(0).result()
        finally:
            for future in waiting:
                future.cancel()


def _make(chunk: _Chunk) -> _Made:
    sample = chunk.sample
    keys: list[Record] = []
    grants: list[Record] = []
    heads: list[dict[str, bytes]] = []
    messages = 0
    following: _Begun | None = None
    with ExportWriter(chunk.path) as export:
        for at, layout in enumerate(chunk.layouts):
            index = chunk.first + at
            planted = chunk.planted.get(index, [])
            begun = following or _begin(chunk, at)
            # A stranger's frame is the next queue's, which is therefore begun early.
            lends = any(one.kind is Defect.WRONG_QUEUE for one in planted)
            following = _begin(chunk, at + 1) if lends else None
            stranger = {row.seq: row.frame for row in following.first_epoch} if following else {}
            queue = begun.queue
            control: list[bytes] = []
            for rows in chain([begun.first_epoch], begun.rest):
                control += [row.frame for row in rows if row.type != "DATA"]
                export.write_all(_damaged(rows, planted, stranger))
            messages += sum(layout.epochs)
            owner = queue.owner_keys()
            keys.append(keys_record(owner))
            hidden = {one.epoch for one in planted if one.kind is Defect.NO_GRANT}
            grants += [grant_record(grant) for grant in derive_grants(control, owner) if grant.epoch not in hidden]
            nonce = os.urandom(16)
            head = queue.enqueuer.head(nonce)
            heads.append({"service_id": sample.service_id, "queue_id": queue.id, "nonce": nonce, "head": head})
    return _Made(frames=export.rows, messages=messages, keys=keys, grants=grants, heads=heads)


class _Begun(NamedTuple):
    """A queue of which the first epoch is made."""

    queue: _Queue
    first_epoch: list[Row]
    rest: Iterator[list[Row]]


def _begin(chunk: _Chunk, at: int) -> _Begun:
    queue = _Queue(chunk.sample, chunk.first + at)
    epochs = queue.epochs(chunk.layouts[at], chunk.planted.get(chunk.first + at, []))
    return _Begun(queue, next(epochs), epochs)


class _Queue:
    """One queue being made: the service's machine, and the keys that its owner keeps."""

    def __init__(self, sample: Sample, index: int) -> None:
        self.sample, self.index = sample, index
        self.id = sample.queue_id(index)
        suite = SUITES[sample.suite]
        self._keys = {0: PrivateKey.generate(suite.kem)}
        self._join_secret = os.urandom(32)
        public = self._keys[0].public()
        request = CreationRequest(sample.service_id, self.id, (suite.id,), public, self._join_secret)
        self.enqueuer, self._init = Enqueuer.create(request, now=0, policy=_POLICY)
        self._qctx = queue_context(suite, sample.service_id, self.id, (suite.id,), suite.kdf.hash(public))

    def owner_keys(self) -> OwnerKeys:
        return OwnerKeys(self.sample.service_id, self.id, (self.sample.suite,), self._join_secret, self._keys)

    def epochs(self, layout: Layout, planted: list[Planted]) -> Iterator[list[Row]]:
        """The rows of each epoch, with the frames of forks beside those that they compete with."""
        forks = {one.seq for one in planted if one.kind is Defect.FORK}
        rows = [self._row(self._init.seq, 0, "INIT", self._init.data)]
        for epoch in range(len(layout.epochs)):
            first, end = layout.first(epoch), layout.end(epoch)
            cuts = sorted(seq for seq in forks if first <= seq < end)
            for start, stop in zip([first, *cuts], [*cuts, end], strict=True):
                if start in forks:
                    # The service as it was before this number, restored from a backup, seals another message.
                    other = Enqueuer.load(self.enqueuer.dump(), policy=_POLICY)
                    forked = other.enqueue(b"a message that this number does not have", now=0)[0].data
                bodies = [message_of(self.sample, self.index, seq) for seq in range(start, stop)]
                sealed = self.enqueuer.enqueue_many(bodies, now=0)
                rows += [self._row(frame.seq, epoch, "DATA", frame.data) for frame in sealed]
                if start in forks:
                    rows.insert(len(rows) - len(sealed) + 1, self._row(start, epoch, "DATA", forked))
            if epoch + 1 < len(layout.epochs):
                rows.append(self._row(end, epoch, "UPDATE", self._update(epoch)))
            yield rows
            rows = []

    def _update(self, epoch: int) -> bytes:
        every = self.sample.offer_every
        if not every or (epoch + 1) % every:
            return self.enqueuer.update(now=0).data
        key_id = max(self._keys) + 1
        self._keys[key_id] = PrivateKey.generate(SUITES[self.sample.suite].kem)
        offer = KeyOffer(self.sample.suite, self._qctx, key_id, self._keys[key_id].public())
        return self.enqueuer.accept_offer(offer, now=0)[0].data

    def _row(self, seq: int, epoch: int, type: str, frame: bytes) -> Row:
        return Row(self.sample.service_id, self.id, seq, frame, epoch, type)


def _damaged(rows: list[Row], planted: list[Planted], stranger: dict[int, bytes]) -> list[Row]:
    """The rows of an epoch as storage has them after what was planted."""
    for one in planted:
        if not any(row.seq == one.seq for row in rows):
            continue
        match one.kind:
            case Defect.GAP | Defect.UPDATE_MISSING | Defect.TAIL_CUT_OFF:
                rows = [row for row in rows if not one.seq <= row.seq <= one.last_seq]
            case Defect.DUPLICATE:
                rows = [copy for row in rows for copy in ([row, row] if row.seq == one.seq else [row])]
            case Defect.REORDERED:
                swapped = {row.seq: row.frame for row in rows if row.seq in (one.seq, one.last_seq)}
                frames = {one.seq: swapped[one.last_seq], one.last_seq: swapped[one.seq]}
                rows = [row._replace(frame=frames.get(row.seq, row.frame)) for row in rows]
            case Defect.TAMPERED:
                rows = [_changed(row, 40, 0x01) if row.seq == one.seq else row for row in rows]
            case Defect.UNKNOWN_SUITE:
                rows = [_changed(row, 2, 0xFF) if row.seq == one.seq else row for row in rows]
            case Defect.WRONG_EPOCH:
                rows = [_changed(row, 6, 0x01) if row.seq == one.seq else row for row in rows]
            case Defect.WRONG_QUEUE:
                rows = [row._replace(frame=stranger[row.seq]) if row.seq == one.seq else row for row in rows]
            case Defect.FORK | Defect.NO_GRANT:
                # The other frame is there already; grants are withheld where they are written.
                pass
    return rows


def _changed(row: Row, at: int, mask: int) -> Row:
    """The row with one byte of its frame altered.  Offsets: 2 the suite, 6 the epoch (256 too high), 40 the body."""
    frame = bytearray(row.frame)
    frame[at] ^= mask
    return row._replace(frame=bytes(frame))


def expected_findings(manifest: Mapping[str, object]) -> set[tuple[str, str, int]]:
    """What an audit has to say about a sample: queue, kind and number of each finding, and no others."""
    expected: set[tuple[str, str, int]] = set()
    planted = manifest["planted"]
    assert isinstance(planted, list)
    for one in planted:
        expected.add((one["queue_id"], one["kind"], one["seq"]))
        if one["kind"] == Defect.REORDERED.value:
            # Two frames changed places, and each is in a place that is not its own.
            expected.add((one["queue_id"], one["kind"], one["last_seq"]))
        elif one["kind"] == Defect.UPDATE_MISSING.value:
            # The number is missing too.
            expected.add((one["queue_id"], Defect.GAP.value, one["seq"]))
    return expected
