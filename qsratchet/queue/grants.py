"""Grants: what an auditor holds.

An epoch grant opens one epoch of one queue from one number on, and nothing before or after it.  It holds no
private key.  Reading a queue leaves none behind: a grant is made only when somebody asks, by the owner while reading
(`Dequeuer.grant`), or by whoever kept the owner's keys, from the INIT and UPDATE frames alone (`GrantWalk`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import islice
from typing import Final

from ..codec import Buffer, Kind, Reader, as_bytes, document, lv, open_document, u8, u16, u32
from ..crypto.kdf import KEY_SIZE, same
from ..crypto.kem import SEED_SIZE, PrivateKey
from ..crypto.secret import Sensitive
from ..crypto.suites import SUITES, Suite, one_kem
from ..errors import MisuseError
from .frames import EPOCH_CAP, SEQ_LIMIT, FrameType, Header, checked_aad, checked_nonce, header_of, read_head
from .opened import Head, Initialised, Message, Opened, Updated
from .request import read_id, read_suites, write_suites
from .schedule import (
    confirm_init,
    open_body,
    open_head,
    open_init,
    open_run,
    open_update,
    open_update_body,
    queue_context,
    unpad,
    update_size,
)
from .verdicts import (
    EpochGap,
    FrameRejected,
    Gap,
    HeadAhead,
    MalformedFrame,
    OutsideGrant,
    RolledBack,
    UnexpectedInit,
    WrongEpoch,
    WrongSuite,
)

__all__ = ["Grant", "GrantWalk", "OwnerKeys", "derive_grants"]

FORMAT: Final = 1
#: A grant remembers the chain key of every so-manyth number: walking an epoch is paid for once, and after that a
#: number, forged or not, costs no more steps than this.
MARK_STEP: Final = 1024
#: A grant's suite, epoch, first number, hash of the first public key, and chain key.
_FIXED: Final = struct.Struct(f">HIQ32s{KEY_SIZE}s")

# A long queue has thousands of grants that name the same queue: what they share, none of it secret, is worked out once.
_queue_context = lru_cache(maxsize=64)(queue_context)


@lru_cache(maxsize=64)
def _read_queue(raw: bytes) -> tuple[bytes, bytes, tuple[int, ...]]:
    reader = Reader(raw, Kind.GRANT.title, stored=True)
    service_id, queue_id, suites = read_id(reader), read_id(reader), read_suites(reader)
    reader.end()
    return service_id, queue_id, suites


class Grant(Sensitive):
    """Opens the frames of one epoch of one queue, from `first_seq` on."""

    __slots__ = (
        "_chain_key",
        "_cursor",
        "_marks",
        "epoch",
        "first_seq",
        "key_hash",
        "qctx",
        "queue_id",
        "service_id",
        "suite",
        "suites",
    )

    def __init__(
        self,
        *,
        suite: Suite,
        service_id: bytes,
        queue_id: bytes,
        suites: tuple[int, ...],
        key_hash: bytes,
        epoch: int,
        first_seq: int,
        chain_key: bytes,
    ) -> None:
        self.suite = suite
        self.service_id = service_id
        self.queue_id = queue_id
        self.suites = suites
        self.key_hash = key_hash
        # Not stored but made of the ids, so that a grant with other ids opens nothing.
        self.qctx = _queue_context(suite, service_id, queue_id, suites, key_hash)
        self.epoch = epoch
        self.first_seq = first_seq
        self._chain_key = chain_key
        self._marks = [chain_key]
        self._cursor = (first_seq, chain_key)

    def describe(self) -> str:
        return f"queue={self.queue_id.hex()} epoch={self.epoch} first={self.first_seq} suite=0x{self.suite.id:04x}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Grant) and same(self.encode(), other.encode())

    def encode(self) -> bytes:
        """The grant as bytes.  Whoever has them can read the epoch: store them encrypted."""
        body = _FIXED.pack(self.suite.id, self.epoch, self.first_seq, self.key_hash, self._chain_key)
        ids = lv(self.service_id) + lv(self.queue_id) + write_suites(self.suites)
        return document(Kind.GRANT, FORMAT, body + ids)

    @classmethod
    def decode(cls, data: Buffer) -> Grant:
        reader = open_document(Kind.GRANT, FORMAT, data, stored=True)
        suite_id, epoch, first_seq, key_hash, chain_key = reader.unpack(_FIXED)
        suite = SUITES.get(suite_id)
        if suite is None:
            reader.fail("it is of a suite that this release does not know")
        if not 1 <= first_seq < SEQ_LIMIT:
            reader.fail(f"its first number is {first_seq}")
        service_id, queue_id, suites = _read_queue(reader.rest())
        return cls(
            suite=suite,
            service_id=service_id,
            queue_id=queue_id,
            suites=suites,
            key_hash=key_hash,
            epoch=epoch,
            first_seq=first_seq,
            chain_key=chain_key,
        )

    def chain_key(self, seq: int) -> bytes:
        """The chain key of a number in the granted range; what `open_run` starts from."""
        if not self.first_seq <= seq < self.first_seq + EPOCH_CAP:
            raise MisuseError(
                f"this grant opens {EPOCH_CAP} numbers from {self.first_seq} on, and {seq} is none of them"
            )
        at, key = self._cursor
        if at <= seq < at + MARK_STEP:
            return self.suite.kdf.advance(key, seq - at)
        index, steps = divmod(seq - self.first_seq, MARK_STEP)
        marks = self._marks
        while len(marks) <= index:
            marks.append(self.suite.kdf.advance(marks[-1], MARK_STEP))
        return self.suite.kdf.advance(marks[index], steps)

    def narrow(self, first_seq: int) -> Grant:
        """A grant of the same epoch from a later number on: hand on no more than the next one needs."""
        return Grant(
            suite=self.suite,
            service_id=self.service_id,
            queue_id=self.queue_id,
            suites=self.suites,
            key_hash=self.key_hash,
            epoch=self.epoch,
            first_seq=first_seq,
            chain_key=self.chain_key(first_seq),
        )

    def open(self, frame: Buffer, *, aad: Buffer = b"") -> Opened:
        """Open one frame, in any order.  An UPDATE is checked, but what it injects stays sealed."""
        return self._open(as_bytes(frame), checked_aad(aad))

    def open_many(self, frames: Iterable[Buffer], *, aad: Buffer = b"") -> list[Opened | FrameRejected]:
        """Open many frames; each gives what `open` gives or, in its place, the verdict.  Fastest in order."""
        aad = checked_aad(aad)
        raw = [as_bytes(frame) for frame in frames]
        results: list[Opened | FrameRejected] = []
        while len(results) < len(raw):
            frame = raw[len(results)]
            try:
                first = self._open(frame, aad)
            except FrameRejected as verdict:
                results.append(verdict.with_traceback(None))
                continue
            results.append(first)
            if isinstance(first, Message):
                results += self.open_run(first.seq + 1, islice(raw, len(results), None), aad=aad)
        return results

    def open_run(self, seq: int, frames: Iterable[Buffer], *, aad: Buffer = b"") -> list[Message]:
        """Open DATA frames with the numbers `seq`, `seq + 1`, …; stop before the first that does not fit.

        What to make of that one is for `open` to say.  Memoryviews of bytes are not copied.
        """
        room = min(self.first_seq + EPOCH_CAP - 1, SEQ_LIMIT) - seq
        if room <= 0:
            return []
        key = self.chain_key(seq)
        run = islice(frames, room)
        messages, key = open_run(self.suite, self.qctx, key, self.epoch, seq, run, checked_aad(aad))
        self._cursor = (seq + len(messages), key)
        return messages

    def verify_head(self, head: Buffer, nonce: Buffer, *, next_seq: int) -> Head:
        """Check a head that lies in this epoch, for a reader whose next number is `next_seq`."""
        raw, header = read_head(head, self.suite.id)
        if header.seq < next_seq:
            raise RolledBack(header.seq, next_seq)
        if header.epoch != self.epoch or not self.first_seq <= header.seq < self.first_seq + EPOCH_CAP:
            raise HeadAhead(header.seq, next_seq)
        open_head(self.suite, self.qctx, self.chain_key(header.seq), raw, checked_nonce(nonce))
        return Head(header.seq, header.epoch, range(next_seq, header.seq))

    def _open(self, frame: bytes, aad: bytes) -> Opened:
        header = header_of(frame)
        if header.suite != self.suite.id:
            raise WrongSuite(header.suite, (self.suite.id,))
        if header.type is FrameType.INIT and self.epoch == 0 and self.first_seq == 1 and header[2:] == (0, 0):
            confirm_init(self.suite, self.qctx, self._chain_key, frame)
            return Initialised(0, self.suite.id)
        seq = header.seq
        if header.type is FrameType.HEAD:
            raise MalformedFrame("a head is not a frame of the queue: check it with verify_head")
        if (
            header.type is FrameType.INIT
            or header.epoch != self.epoch
            or not self.first_seq <= seq < self.first_seq + EPOCH_CAP
        ):
            raise OutsideGrant(seq, header.epoch, self.first_seq, self.epoch)
        chain_key = self.chain_key(seq)
        if header.type is FrameType.DATA:
            message_key, next_key = self.suite.kdf.step(chain_key)
            body = unpad(open_body(self.suite, self.qctx, message_key, frame, seq, aad), seq)
            self._cursor = (seq + 1, next_key)
            return Message(seq, self.epoch, body)
        update = open_update_body(self.suite, self.qctx, chain_key, frame, seq)
        return Updated(seq, self.epoch + 1, update.key_id)


class OwnerKeys(Sensitive):
    """What an owner must keep, on purpose, to derive grants later: the join secret and the private keys.

    Whoever holds them and the recorded queue reads all of it, so keeping them gives up forward secrecy.
    """

    __slots__ = ("_join_secret", "_keys", "queue_id", "service_id", "suites")

    def __init__(
        self,
        service_id: bytes,
        queue_id: bytes,
        suites: tuple[int, ...],
        join_secret: bytes | None,
        keys: Mapping[int, PrivateKey],
    ) -> None:
        self.service_id = service_id
        self.queue_id = queue_id
        self.suites = suites
        self._join_secret = join_secret
        self._keys = dict(sorted(keys.items()))

    def describe(self) -> str:
        join = "yes" if self._join_secret is not None else "no"
        return f"queue={self.queue_id.hex()} keys={','.join(map(str, self._keys))} join_secret={join}"

    @property
    def key_ids(self) -> tuple[int, ...]:
        return tuple(self._keys)

    def merge(self, later: OwnerKeys) -> OwnerKeys:
        """These keys and the later ones of the same queue."""
        if (self.service_id, self.queue_id, self.suites) != (later.service_id, later.queue_id, later.suites):
            raise MisuseError("these are keys of two different queues")
        for key_id, key in self._keys.items():
            other = later._keys.get(key_id)
            if other is not None and not same(other.seed, key.seed):
                raise MisuseError(
                    f"the two have different keys {key_id}: the queue was reset between them, so keep them apart"
                )
        join_secret = self._join_secret if self._join_secret is not None else later._join_secret
        return OwnerKeys(self.service_id, self.queue_id, self.suites, join_secret, self._keys | later._keys)

    def encode(self) -> bytes:
        """The keys as bytes.  Whoever has them can read the queue: store them encrypted."""
        join = u8(0) if self._join_secret is None else u8(1) + self._join_secret
        keys = u16(len(self._keys)) + b"".join(u32(key_id) + key.seed for key_id, key in self._keys.items())
        head = lv(self.service_id) + lv(self.queue_id) + write_suites(self.suites)
        return document(Kind.OWNER_KEYS, FORMAT, head + join + keys)

    @classmethod
    def decode(cls, data: Buffer) -> OwnerKeys:
        reader = open_document(Kind.OWNER_KEYS, FORMAT, data, stored=True)
        service_id, queue_id, suites = read_id(reader), read_id(reader), read_suites(reader)
        kem = one_kem(suites)
        if kem is None:
            reader.fail("its suites are unknown, or do not share one KEM")
        join_secret = reader.take(KEY_SIZE) if reader.flag() else None
        keys: dict[int, PrivateKey] = {}
        last = -1
        for _ in range(reader.u16()):
            key_id = reader.u32()
            if key_id <= last:
                reader.fail("its keys are not in order")
            keys[key_id] = PrivateKey(kem, reader.take(SEED_SIZE))
            last = key_id
        reader.end()
        return cls(service_id, queue_id, suites, join_secret, keys)


class GrantWalk(Sensitive):
    """Walks a queue's chain over its INIT and UPDATE frames; each gives the grant of the epoch it opens.

    A frame that is refused changes nothing, so a caller may go on with another copy of it.
    """

    __slots__ = ("_grant", "_keys")

    def __init__(self, keys: OwnerKeys) -> None:
        if keys._join_secret is None or 0 not in keys._keys:
            raise MisuseError(
                "a walk starts at INIT: it needs the join secret and key 0, which the owner had at creation"
            )
        self._keys = keys
        self._grant: Grant | None = None

    def describe(self) -> str:
        return self._keys.describe() if self._grant is None else self._grant.describe()

    def open(self, frame: Buffer) -> Grant:
        """Take the next INIT or UPDATE frame."""
        raw = as_bytes(frame)
        header = header_of(raw)
        if header.type is FrameType.DATA or header.type is FrameType.HEAD:
            raise MalformedFrame(f"a walk takes INIT and UPDATE frames, and frame {header.seq} is {header.type.name}")
        grant = self._first(raw, header) if self._grant is None else self._following(raw, header, self._grant)
        self._grant = grant
        return grant

    def _first(self, frame: bytes, header: Header) -> Grant:
        keys = self._keys
        if header.type is not FrameType.INIT:
            raise Gap(0, max(header.seq - 1, 0))
        if header.suite not in keys.suites:
            raise WrongSuite(header.suite, keys.suites)
        suite = SUITES[header.suite]
        key_hash = suite.kdf.hash(keys._keys[0].public())
        qctx = queue_context(suite, keys.service_id, keys.queue_id, keys.suites, key_hash)
        assert keys._join_secret is not None  # The constructor asked for it.
        chain_key = open_init(suite, qctx, keys._keys[0], keys._join_secret, frame)
        return self._granted(suite, key_hash, 0, 1, chain_key)

    def _following(self, frame: bytes, header: Header, last: Grant) -> Grant:
        if header.type is FrameType.INIT:
            raise UnexpectedInit(header.seq)
        if header.suite != last.suite.id:
            raise WrongSuite(header.suite, (last.suite.id,))
        seq, first = header.seq, last.first_seq
        if header.epoch > last.epoch and seq > first:
            raise EpochGap(first, seq - 1, header.epoch, last.epoch)
        if header.epoch != last.epoch or not first <= seq < first + EPOCH_CAP:
            raise WrongEpoch(seq, header.epoch, last.epoch)
        if len(frame) != update_size(last.suite):
            raise MalformedFrame(f"an UPDATE frame of this suite does not have {len(frame)} bytes: fetch it again")
        at_update = last.chain_key(seq)
        chain_key, _ = open_update(last.suite, last.qctx, at_update, last.epoch, first, seq, frame, self._keys._keys)
        return self._granted(last.suite, last.key_hash, last.epoch + 1, seq + 1, chain_key)

    def _granted(self, suite: Suite, key_hash: bytes, epoch: int, first_seq: int, chain_key: bytes) -> Grant:
        keys = self._keys
        return Grant(
            suite=suite,
            service_id=keys.service_id,
            queue_id=keys.queue_id,
            suites=keys.suites,
            key_hash=key_hash,
            epoch=epoch,
            first_seq=first_seq,
            chain_key=chain_key,
        )


def derive_grants(frames: Iterable[Buffer], keys: OwnerKeys) -> Iterator[Grant]:
    """All grants of a queue, one for each epoch, from its INIT and UPDATE frames in order.

    DATA frames among them are passed over.  A control frame that does not fit raises its verdict; the grants before
    it have been given by then.
    """
    walk = GrantWalk(keys)
    for frame in frames:
        raw = as_bytes(frame)
        if header_of(raw).type is not FrameType.DATA:
            yield walk.open(raw)
