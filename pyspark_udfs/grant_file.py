"""The grant file and the key file: encrypted, and shipped to executors as references that hold no secret.

`GrantFile` is a `GrantSource` and `KeyFile` a `KeySource`: a path and a word on where its key is found, which is all
that a pickle, a repr or a plan can show.  The opened file is cached once for each process, because a passphrase costs a
third of a second.  How the bytes lie is in `sealed_file`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from pathlib import Path
from typing import Final

from qsratchet import Grant, MisuseError, OwnerKeys
from qsratchet.crypto.passphrase import DEFAULT_COST, ScryptCost

from .file_key import FileKey, Passphrase
from .sealed_file import Content, Record, SealedFile, SealedWriter

__all__ = ["GrantFile", "KeyFile", "write_grants", "write_keys"]

#: The open files of this process.  One that was replaced since is opened anew.  Keys are kept beside what they opened,
#: because a `Passphrase` is known by its identity, which must not pass to another one.
_opened: Final[dict[tuple[object, ...], tuple[tuple[int, ...], FileKey, SealedFile]]] = {}
_lock: Final = threading.Lock()


def write_grants(
    path: str | os.PathLike[str],
    grants: Iterable[Grant],
    key: FileKey,
    *,
    cost: ScryptCost = DEFAULT_COST,
    hint: bytes = b"",
) -> int:
    """Write a grant file, from grants sorted by service, queue, epoch; return how many there were."""
    with SealedWriter(path, Content.GRANTS, key, cost=cost, hint=hint) as writer:
        for grant in grants:
            writer.add(grant_record(grant))
    return len(writer)


def write_keys(
    path: str | os.PathLike[str],
    keys: Iterable[OwnerKeys],
    key: FileKey,
    *,
    cost: ScryptCost = DEFAULT_COST,
    hint: bytes = b"",
) -> int:
    """Write a key file, from owners' keys sorted by service and queue; return how many there were."""
    with SealedWriter(path, Content.OWNER_KEYS, key, cost=cost, hint=hint) as writer:
        for owner in keys:
            writer.add(keys_record(owner))
    return len(writer)


def grant_record(grant: Grant) -> Record:
    return Record(grant.service_id, grant.queue_id, grant.epoch, grant.first_seq, grant.encode())


def keys_record(keys: OwnerKeys) -> Record:
    return Record(keys.service_id, keys.queue_id, min(keys.key_ids, default=0), 0, keys.encode())


@dataclass(frozen=True, slots=True)
class _Reference:
    """Where a sealed file is, and where its key is found.  Safe to pickle, print and put into a plan."""

    path: str
    key: FileKey

    def _open(self, content: Content) -> SealedFile:
        path = self.path
        try:
            status = os.stat(path)
        except OSError:
            path = _shipped(path)
            status = os.stat(path)
        name = (path, content, id(self.key) if isinstance(self.key, Passphrase) else self.key)
        version = (status.st_ino, status.st_size, status.st_mtime_ns)
        with _lock:
            kept = _opened.get(name)
            if kept is None or kept[0] != version:
                kept = _opened[name] = (version, self.key, SealedFile(path, content, self.key))
            return kept[2]


@dataclass(frozen=True, slots=True)
class GrantFile(_Reference):
    """A reference to a grant file: what the audit ships to its tasks."""

    def grants(self, service_id: bytes, queue_id: bytes) -> Sequence[Grant]:
        """The grants of this queue, in order of epochs; none if the file has none."""
        records = self._open(Content.GRANTS).of_queue(service_id, queue_id)
        return [Grant.decode(record.payload) for record in records]

    def queues(self) -> Sequence[tuple[bytes, bytes]]:
        """Each queue that the file has grants for; the whole file is read, a block at a time."""
        return list(dict.fromkeys(record[:2] for record in self._open(Content.GRANTS)))

    def __iter__(self) -> Iterator[Grant]:
        """All grants, in order, in constant memory."""
        return (Grant.decode(record.payload) for record in self._open(Content.GRANTS))

    def __len__(self) -> int:
        return len(self._open(Content.GRANTS))

    def check(self) -> GrantFile:
        """Open the file now: a wrong passphrase is better told here than by an executor."""
        self._open(Content.GRANTS)
        return self


@dataclass(frozen=True, slots=True)
class KeyFile(_Reference):
    """A reference to a file of owners' keys: who opens it can derive every grant."""

    def keys(self, service_id: bytes, queue_id: bytes) -> OwnerKeys | None:
        """The keys of this queue, or None."""
        found: OwnerKeys | None = None
        for record in self._open(Content.OWNER_KEYS).of_queue(service_id, queue_id):
            keys = OwnerKeys.decode(record.payload)
            found = keys if found is None else found.merge(keys)
        return found

    def __iter__(self) -> Iterator[OwnerKeys]:
        return (OwnerKeys.decode(record.payload) for record in self._open(Content.OWNER_KEYS))

    def __len__(self) -> int:
        return len(self._open(Content.OWNER_KEYS))

    def check(self) -> KeyFile:
        """Open the file now: a wrong passphrase is better told here than by an executor."""
        self._open(Content.OWNER_KEYS)
        return self


def _shipped(path: str) -> str:
    """On an executor that has no such path: the copy that `spark-submit --files` brought."""
    from pyspark import SparkFiles

    try:
        shipped = SparkFiles.get(Path(path).name)
    except Exception:  # noqa: BLE001 - without a Spark context of any kind there is no shipped file either.
        shipped = ""
    if shipped and os.path.exists(shipped):
        return shipped
    raise MisuseError(
        f"{path} is not on this machine: put it where every executor sees it, or ship it with spark-submit --files"
    )


def narrowed(grants: Iterable[Grant], queues: frozenset[bytes] | None, epochs: range | None) -> Iterator[Grant]:
    """The grants of these queues (all, if None) and these epochs (all, if None)."""
    for grant in grants:
        if (queues is None or grant.queue_id in queues) and (epochs is None or grant.epoch in epochs):
            yield grant


def merged(files: Iterable[Iterable[Grant]]) -> Iterator[Grant]:
    """The grants of several sorted files, sorted; one that several files have comes once."""
    last: Grant | None = None
    order = merge(*files, key=lambda grant: (grant.service_id, grant.queue_id, grant.epoch, grant.first_seq))
    for grant in order:
        if last is None or grant != last:
            yield grant
        last = grant
