"""The owner's side of a queue: it opens frames in order and says exactly what is wrong when it cannot.

**Persist the new state and the plaintext in one transaction; only then acknowledge.**  `acknowledge` gives the
number that the last dump covers, never more.  A frame is authenticated on the side and the machine moves
afterwards, so a frame that is refused changes nothing.  This module holds no clock and no storage.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable
from itertools import islice
from operator import index
from typing import Final

from ..codec import Buffer, Kind, Reader, as_bytes, document, lv, open_document, u8, u16, u32, u64
from ..crypto.kdf import KEY_SIZE
from ..crypto.kem import SEED_SIZE, PrivateKey
from ..crypto.secret import Sensitive
from ..crypto.suites import DEFAULT_SUITE, SUITES, TAG_SIZE, Suite, one_kem
from ..errors import LimitExceeded, MisuseError
from .frames import (
    DATA,
    EPOCH_CAP,
    FRAME_LIMIT,
    HEADER,
    HEADER_SIZE,
    SEQ_LIMIT,
    VERSION,
    FrameType,
    Header,
    checked_aad,
    checked_nonce,
    header_of,
    read_head,
)
from .grants import Grant, OwnerKeys
from .opened import NOTHING_MISSING, Head, Initialised, Message, Opened, Updated
from .place import check_place
from .policy import ReadPolicy
from .request import CreationRequest, KeyOffer, checked_id, checked_suites, read_id, read_suites, write_suites
from .schedule import open_body, open_head, open_init, open_run, open_update, queue_context, unpad
from .verdicts import (
    Duplicate,
    Fork,
    FrameRejected,
    Gap,
    HeadAhead,
    MalformedFrame,
    Passed,
    RolledBack,
    UnexpectedInit,
    WrongSuite,
)

__all__ = ["DISCARD_LIMIT", "WINDOW", "Dequeuer"]

#: The format version of a dumped Dequeuer.
FORMAT: Final = 1
#: Of so many numbers back, a frame that comes again is told from another frame under its number.
WINDOW: Final = 64
#: So many frames may be given up before only a reset helps: a queue that needs more is broken.
DISCARD_LIMIT: Final = 256

_DEFAULT_POLICY: Final = ReadPolicy()
#: The phases of a stored state: before and after INIT.
_AWAITING: Final = 1
_READING: Final = 2
_UNKNOWN: Final = bytes(TAG_SIZE)
#: The last place of an epoch is its UPDATE's.
_LAST_PLACE: Final = EPOCH_CAP - 1
_new: Final = tuple.__new__


class Dequeuer(Sensitive):
    """Opens the frames of one queue.  `create` makes it, `dump` and `load` keep it; one reader uses it at a time."""

    __slots__ = (
        "_acknowledge",
        "_chain_key",
        "_discarded",
        "_epoch",
        "_first",
        "_generation",
        "_join_secret",
        "_key_hash",
        "_keys",
        "_next",
        "_policy",
        "_qctx",
        "_queue_id",
        "_service_id",
        "_suite",
        "_suites",
        "_tags",
    )

    _service_id: bytes
    _queue_id: bytes
    _suites: tuple[int, ...]
    _policy: ReadPolicy
    _generation: int
    _acknowledge: int
    _discarded: tuple[int, ...]
    # The owner's private keys by id: the one in force and, while an offer is under way, the next.
    _keys: dict[int, PrivateKey]
    # None once INIT is open; all that follows means something only then.
    _join_secret: bytes | None
    _suite: Suite
    _key_hash: bytes
    _qctx: bytes
    _chain_key: bytes
    _epoch: int
    _first: int
    _next: int
    # The tags of the last frames, in as many pieces of one tag or more as the window has; `_window` joins them.
    _tags: deque[bytes]

    @classmethod
    def create(
        cls,
        service_id: Buffer,
        queue_id: Buffer,
        *,
        suites: tuple[int, ...] = (DEFAULT_SUITE,),
        policy: ReadPolicy = _DEFAULT_POLICY,
    ) -> tuple[Dequeuer, CreationRequest]:
        """Make the owner's side of a new queue, and the request that creates it at the service.

        Persist the machine before the request leaves.  Send the request over a channel that is confidential and
        authenticates both sides.
        `suites` are offered in this order of preference, and share one KEM.
        """
        self = cls.__new__(cls)
        self._service_id = checked_id("service_id", service_id)
        self._queue_id = checked_id("queue_id", queue_id)
        self._policy = policy
        self._generation = 0
        return self, self.reset(suites=suites)

    def reset(self, *, suites: tuple[int, ...] | None = None) -> CreationRequest:
        """Begin the queue anew with a new key and a new join secret: the way on when the chain is lost.

        What was not read yet is given up.  The service makes a new `Enqueuer` from the request, deletes the old
        frames, and numbers start at 0 again.
        """
        chosen, kem = checked_suites(self._suites if suites is None else suites)
        key, join_secret = PrivateKey.generate(kem), os.urandom(KEY_SIZE)
        request = CreationRequest(self._service_id, self._queue_id, chosen, key.public(), join_secret)
        self._suites, self._keys, self._join_secret = chosen, {0: key}, join_secret
        self._clear()
        self._acknowledge = 0
        self._discarded = ()
        self._generation += 1
        return request

    @property
    def ready(self) -> bool:
        """Whether INIT was read."""
        return self._join_secret is None

    @property
    def suite(self) -> Suite:
        """The suite that the service chose."""
        self._require_ready()
        return self._suite

    @property
    def epoch(self) -> int:
        return self._epoch

    @property
    def next_seq(self) -> int:
        """The number of the next frame to read."""
        return self._next

    @property
    def generation(self) -> int:
        """Grows with every change: write a dumped state only over the generation it was loaded from."""
        return self._generation

    @property
    def acknowledge(self) -> int:
        """Every frame below this number is in the state that was dumped last, so the service may delete it.

        Call `dump`, persist, then send this number.  Fetch from `fetch_from`, one before it, not from here.
        """
        return self._acknowledge

    @property
    def fetch_from(self) -> int:
        """The number to fetch from: one before `acknowledge`, so that the last frame that was read comes again.

        `open` calls it a `Duplicate`; or a `Fork`, if the service was restored from a backup and has overtaken this
        reader, which nothing else shows within an epoch.  After `discard` it is `Passed`, whatever it is: drop it, and
        check the head, as you do if it does not come at all.
        """
        return max(self._acknowledge - 1, 0)

    @property
    def key_id(self) -> int:
        """The owner's key that is in force."""
        return min(self._keys)

    @property
    def discarded(self) -> tuple[int, ...]:
        """The numbers that were given up with `discard` since creation or reset."""
        return self._discarded

    def describe(self) -> str:
        suite = f"0x{self._suite.id:04x}" if self.ready else "open"
        where = f"suite={suite} epoch={self._epoch} next={self._next} key={self.key_id}"
        return f"queue={self._queue_id.hex()} {where} generation={self._generation}"

    # --- reading ---------------------------------------------------------------------------------

    def open(self, frame: Buffer, *, aad: Buffer = b"") -> Opened:
        """Open a frame, or raise the verdict on it.  A refused frame changes nothing."""
        raw = frame if type(frame) is bytes else as_bytes(frame)
        aad = b"" if type(aad) is bytes and not aad else checked_aad(aad)
        suite, seq, epoch = self._suite, self._next, self._epoch
        if (
            self._join_secret is not None
            or raw[:HEADER_SIZE] != HEADER.pack(VERSION, DATA, suite.id, epoch, seq)
            or len(raw) > FRAME_LIMIT
            or seq - self._first >= _LAST_PLACE
            or seq >= SEQ_LIMIT
        ):
            return self._open(raw, aad)
        # The frame that is due, which is the case nearly always.
        message_key, chain_key = suite.kdf.step(self._chain_key)
        body = unpad(open_body(suite, self._qctx, message_key, raw, seq, aad), seq)
        self._pass(chain_key, seq + 1, raw[-TAG_SIZE:])
        return _new(Message, (seq, epoch, body, NOTHING_MISSING))

    def open_many(self, frames: Iterable[Buffer], *, aad: Buffer = b"") -> list[Opened | FrameRejected]:
        """Open many frames; each gives what `open` gives or, in its place, the verdict."""
        aad = checked_aad(aad)
        raw = [frame if type(frame) is bytes else as_bytes(frame) for frame in frames]
        results: list[Opened | FrameRejected] = []
        while True:
            done = len(results)
            if self._join_secret is None:
                seq = self._next
                run = islice(raw, done, done + min(self._first + _LAST_PLACE, SEQ_LIMIT) - seq)
                messages, chain_key = open_run(self._suite, self._qctx, self._chain_key, self._epoch, seq, run, aad)
                if messages:
                    results += messages
                    last = raw[max(done, len(results) - WINDOW) : len(results)]
                    self._pass(chain_key, seq + len(messages), b"".join([frame[-TAG_SIZE:] for frame in last]))
            if len(results) == len(raw):
                return results
            try:
                results.append(self._open(raw[len(results)], aad))
            except FrameRejected as verdict:
                results.append(verdict.with_traceback(None))

    def discard(self, seq: int) -> None:
        """Give up the next frame, which cannot be read, and go on after it.  It is recorded in `discarded`.

        If the frame was an UPDATE, the frames after it stay closed and only `reset` helps.
        """
        self._require_ready()
        seq = index(seq)
        if seq != self._next:
            raise MisuseError(f"only the next frame, {self._next}, can be discarded, not {seq}")
        if len(self._discarded) >= DISCARD_LIMIT:
            raise LimitExceeded("discarded frames; reset the queue", len(self._discarded) + 1, DISCARD_LIMIT)
        if seq - self._first >= _LAST_PLACE:
            raise MisuseError(f"frame {seq} is the last of its epoch, so it is the UPDATE: reset the queue")
        chain_key = self._suite.kdf.advance(self._chain_key, 1)
        self._discarded += (seq,)
        self._pass(chain_key, seq + 1, _UNKNOWN)

    def verify_head(self, head: Buffer, nonce: Buffer) -> Head:
        """Check the service's answer to `nonce`; `missing` in the result is what is there and was not read yet.

        Read everything that the store gives, then check the head: what is still missing was cut off.
        """
        self._require_ready()
        nonce = checked_nonce(nonce)
        raw, header = read_head(head, self._suite.id)
        if header.seq < self._next:
            raise RolledBack(header.seq, self._next)
        steps = header.seq - self._next
        if header.epoch != self._epoch or steps > self._policy.forward_limit:
            raise HeadAhead(header.seq, self._next)
        chain_key = self._suite.kdf.advance(self._chain_key, steps)
        open_head(self._suite, self._qctx, chain_key, raw, nonce)
        return Head(header.seq, header.epoch, range(self._next, header.seq))

    # --- keys ------------------------------------------------------------------------------------

    def offer_key(self) -> KeyOffer:
        """Make a new key and the offer of it; the old private key goes when the first update to the new one is read.

        Persist the machine before the offer leaves, and send it over a channel that authenticates the owner.  Until
        that update is read, this returns the same offer again.
        """
        self._require_ready()
        key_id = max(self._keys)
        if len(self._keys) == 1:
            key_id += 1
            if key_id > 0xFFFFFFFF:
                raise LimitExceeded("key id; reset the queue", key_id, 0xFFFFFFFF)
            key = PrivateKey.generate(self._suite.kem)
            offer = KeyOffer(self._suite.id, self._qctx, key_id, key.public())
            self._keys = self._keys | {key_id: key}
            self._generation += 1
            return offer
        return KeyOffer(self._suite.id, self._qctx, key_id, self._keys[key_id].public())

    def grant(self) -> Grant:
        """A grant that opens this epoch from the next frame on.  Ask at the start of each epoch to grant all of it."""
        self._require_ready()
        return Grant(
            suite=self._suite,
            service_id=self._service_id,
            queue_id=self._queue_id,
            suites=self._suites,
            key_hash=self._key_hash,
            epoch=self._epoch,
            first_seq=self._next,
            chain_key=self._chain_key,
        )

    def owner_keys(self) -> OwnerKeys:
        """The private keys held now, and the join secret while INIT is not read: for who must derive grants later.

        Keeping them gives up forward secrecy.
        """
        return OwnerKeys(self._service_id, self._queue_id, self._suites, self._join_secret, self._keys)

    # --- state -----------------------------------------------------------------------------------

    def dump(self) -> bytes:
        """The state as bytes, for the transaction that stores the plaintext.  It holds private keys: guard it."""
        ids = lv(self._service_id) + lv(self._queue_id) + write_suites(self._suites)
        keys = u8(len(self._keys)) + b"".join(u32(key_id) + key.seed for key_id, key in self._keys.items())
        discarded = u16(len(self._discarded)) + b"".join(map(u64, self._discarded))
        body = u64(self._generation) + ids + keys + discarded
        if self._join_secret is not None:
            body += u8(_AWAITING) + self._join_secret
        else:
            body += u8(_READING) + u16(self._suite.id) + self._key_hash
            body += u32(self._epoch) + u64(self._first) + u64(self._next) + self._chain_key + lv(self._window())
        blob = document(Kind.DEQUEUER, FORMAT, body)
        self._acknowledge = self._next
        return blob

    @classmethod
    def load(cls, state: Buffer, *, policy: ReadPolicy = _DEFAULT_POLICY) -> Dequeuer:
        """Restore a machine from `dump`; `StateError` if these are not the bytes of one."""
        reader = open_document(Kind.DEQUEUER, FORMAT, state, stored=True)
        self = cls.__new__(cls)
        self._policy = policy
        self._generation = reader.u64()
        if self._generation >= SEQ_LIMIT:
            reader.fail(f"its generation is {self._generation}")
        self._service_id, self._queue_id = read_id(reader), read_id(reader)
        self._suites = read_suites(reader)
        kem = one_kem(self._suites)
        if kem is None:
            reader.fail("its suites are unknown, or do not share one KEM")
        count = reader.u8()
        self._keys = {reader.u32(): PrivateKey(kem, reader.take(SEED_SIZE)) for _ in range(count)}
        ids = list(self._keys)
        if not 1 <= len(ids) == count <= 2 or ids[-1] - ids[0] != count - 1:
            reader.fail("its keys are not one or two in order")
        self._discarded = tuple(reader.u64() for _ in range(reader.u16()))
        self._load_chain(reader)
        reader.end()
        self._acknowledge = self._next
        return self

    def _load_chain(self, reader: Reader) -> None:
        phase = reader.u8()
        if phase == _AWAITING:
            if list(self._keys) != [0]:
                reader.fail("its keys are not those of a queue whose INIT was not read yet")
            self._join_secret = reader.take(KEY_SIZE)
            self._clear()
            return
        if phase != _READING:
            reader.fail(f"its phase is {phase}")
        self._join_secret = None
        suite = reader.u16()
        if suite not in self._suites:
            reader.fail(f"its suite 0x{suite:04x} was not offered")
        self._suite = SUITES[suite]
        self._key_hash = reader.take(32)
        self._qctx = queue_context(self._suite, self._service_id, self._queue_id, self._suites, self._key_hash)
        self._epoch, self._first, self._next = reader.u32(), reader.u64(), reader.u64()
        self._chain_key = reader.take(KEY_SIZE)
        window = reader.lv()
        if not 1 <= self._first <= self._next <= SEQ_LIMIT or self._next - self._first >= EPOCH_CAP:
            reader.fail("its numbers contradict each other")
        if len(window) != TAG_SIZE * min(WINDOW, self._next):
            reader.fail("its window of recent frames has the wrong length")
        numbers = [*self._discarded, self._next]
        if len(self._discarded) > DISCARD_LIMIT or sorted(set(numbers)) != numbers:
            reader.fail("the numbers that it discarded contradict each other")
        self._tags = deque((window,), WINDOW)

    # --- inside ----------------------------------------------------------------------------------

    def _open(self, frame: bytes, aad: bytes) -> Opened:
        """Open any frame but by the fast path: what it may be is decided here and nowhere else (section 6)."""
        header = header_of(frame)
        if header.type is FrameType.HEAD:
            raise MalformedFrame("a head is not a frame of the queue: check it with verify_head")
        if self._join_secret is not None:
            return self._open_init(frame, header, self._join_secret)
        if header.suite != self._suite.id:
            raise WrongSuite(header.suite, (self._suite.id,))
        if header.seq < self._next:
            raise self._again(frame, header.seq)
        if header.type is FrameType.INIT:
            raise UnexpectedInit(header.seq)
        missing = range(self._next, header.seq) if header.seq > self._next else NOTHING_MISSING
        check_place(header, self._epoch, self._first, self._next, self._discarded, self._policy)
        chain_key = self._suite.kdf.advance(self._chain_key, len(missing))
        if header.type is FrameType.UPDATE:
            return self._open_update(frame, header, missing, chain_key)
        seq = header.seq
        message_key, chain_key = self._suite.kdf.step(chain_key)
        body = unpad(open_body(self._suite, self._qctx, message_key, frame, seq, aad), seq)
        self._pass(chain_key, seq + 1, _UNKNOWN * min(len(missing), WINDOW) + frame[-TAG_SIZE:])
        return Message(seq, self._epoch, body, missing)

    def _again(self, frame: bytes, seq: int) -> FrameRejected:
        """The verdict on a number that was passed already.

        A frame is known again by its last 16 bytes, its tag: whatever else is sealed under the number has another one.
        """
        window = self._window()
        back = (self._next - seq) * TAG_SIZE
        known = window[-back : len(window) - back + TAG_SIZE] if back <= len(window) else _UNKNOWN
        if known == _UNKNOWN:
            return Passed(seq, self._next)
        return Duplicate(seq) if known == frame[-TAG_SIZE:] else Fork(seq)

    def _open_init(self, frame: bytes, header: Header, join_secret: bytes) -> Initialised:
        if header.type is not FrameType.INIT and header.seq > 0:
            raise Gap(0, header.seq - 1)
        if header.type is not FrameType.INIT or header.seq > 0:
            raise MalformedFrame(
                f"number 0 is an INIT frame and INIT is number 0, but this is {header.type.name} number {header.seq}"
            )
        if header.suite not in self._suites:
            raise WrongSuite(header.suite, self._suites)
        suite = SUITES[header.suite]
        key = self._keys[0]
        key_hash = suite.kdf.hash(key.public())
        qctx = queue_context(suite, self._service_id, self._queue_id, self._suites, key_hash)
        chain_key = open_init(suite, qctx, key, join_secret, frame)
        self._suite, self._key_hash, self._qctx, self._join_secret = suite, key_hash, qctx, None
        self._first = 1
        self._pass(chain_key, 1, frame[-TAG_SIZE:])
        return Initialised(0, suite.id)

    def _open_update(self, frame: bytes, header: Header, missing: range, chain_key: bytes) -> Updated:
        seq = header.seq
        next_key, key_id = open_update(
            self._suite, self._qctx, chain_key, self._epoch, self._first, seq, frame, self._keys
        )
        # The first update to a new key ends the old one: nothing to come is sealed to it (section 4.4).
        keys = {id: key for id, key in self._keys.items() if id >= key_id}
        tags = _UNKNOWN * min(len(missing), WINDOW) + frame[-TAG_SIZE:]
        self._keys, self._epoch, self._first = keys, self._epoch + 1, seq + 1
        self._pass(next_key, seq + 1, tags)
        return Updated(seq, self._epoch, key_id, missing)

    def _pass(self, chain_key: bytes, next_seq: int, tags: bytes) -> None:
        """Commit: everything up to `next_seq` is behind, and these are the tags of what was read or passed over."""
        self._chain_key = chain_key
        self._next = next_seq
        self._generation += 1
        self._tags.append(tags)

    def _window(self) -> bytes:
        """The tags of the last frames in one piece: the newest last, zeros for a number that was passed over."""
        window = b"".join(self._tags)[-TAG_SIZE * WINDOW :]
        self._tags = deque((window,), WINDOW)
        return window

    def _clear(self) -> None:
        """Forget the chain: INIT was not read yet."""
        self._suite = SUITES[self._suites[0]]
        self._key_hash = self._qctx = self._chain_key = b""
        self._epoch = self._first = self._next = 0
        self._tags = deque(maxlen=WINDOW)

    def _require_ready(self) -> None:
        if self._join_secret is not None:
            raise MisuseError("the INIT frame, number 0, was not read yet: fetch from 0 and open it first")
