"""The service's side of a queue: it seals what is enqueued and forgets how to open it.

**Persist the new state and the frames in one transaction; only then let a frame out.**  If the transaction
fails, drop the object and load the stored state again.  This module holds no clock (`now` is an argument), no
storage, and no policy of its own.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from operator import index
from typing import Final
from zlib import crc32

from ..codec import Buffer, Kind, as_bytes, open_document, u8
from ..crypto.secret import Sensitive
from ..crypto.suites import SUITES, Suite
from ..errors import LimitExceeded, MisuseError
from .frames import (
    DATA,
    EPOCH_CAP,
    EPOCH_LIMIT,
    HEADER,
    MESSAGE_LIMIT,
    SEQ_LIMIT,
    VERSION,
    Frame,
    FrameType,
    checked_aad,
    checked_nonce,
    pack_header,
)
from .policy import PADME, Padding, UpdatePolicy
from .request import CreationRequest, KeyOffer
from .schedule import head_tag, inject_init, inject_update, queue_context, seal_data, seal_run

__all__ = ["Enqueuer"]

#: The format version of a dumped Enqueuer.
FORMAT: Final = 1

_DEFAULT_POLICY: Final = UpdatePolicy()
_START: Final = Kind.ENQUEUER.value + u8(FORMAT)
#: suite, epoch, first, next, generation, updated at, key id, qctx, chain key; the public key follows.
_STATE: Final = struct.Struct(">HIQQQQI32s32s")
_CRC: Final = struct.Struct(">I")
_new: Final = tuple.__new__


def checked_now(now: int) -> int:
    now = index(now)
    if not 0 <= now < SEQ_LIMIT:
        raise MisuseError(f"now is a number of seconds from 0 on, not {now}")
    return now


class Enqueuer(Sensitive):
    """Seals messages for one queue.  `create` makes it, `dump` and `load` keep it; one writer uses it at a time."""

    __slots__ = (
        "_chain_key",
        "_epoch",
        "_first",
        "_generation",
        "_key_id",
        "_next",
        "_public_key",
        "_qctx",
        "_room",
        "_seconds",
        "_size_of",
        "_suite",
        "_updated_at",
    )

    _suite: Suite
    _qctx: bytes
    _chain_key: bytes
    _epoch: int
    _first: int
    _next: int
    _generation: int
    _updated_at: int
    _key_id: int
    _public_key: bytes
    _room: int
    _seconds: int
    _size_of: Callable[[int], int]

    @classmethod
    def create(
        cls,
        request: CreationRequest | Buffer,
        *,
        now: int,
        policy: UpdatePolicy = _DEFAULT_POLICY,
        padding: Padding = PADME,
        suites: tuple[int, ...] = tuple(SUITES),
    ) -> tuple[Enqueuer, Frame]:
        """Create a queue from the owner's request; return the machine and its INIT frame, number 0.

        `suites` are those that this service accepts.  The caller has authenticated the owner, and has checked that the
        request names this service and a queue that the owner may create.
        """
        if not isinstance(request, CreationRequest):
            request = CreationRequest.decode(request)
        suite = request.choose(suites)
        self = cls.__new__(cls)
        self._suite = suite
        key_hash = suite.kdf.hash(request.public_key)
        self._qctx = queue_context(suite, request.service_id, request.queue_id, request.suites, key_hash)
        self._public_key = request.public_key
        frame, self._chain_key = inject_init(suite, self._qctx, request.public_key, request.join_secret)
        self._epoch = self._key_id = 0
        self._first = self._next = 1
        self._generation = 1
        self._updated_at = checked_now(now)
        self._room, self._seconds = policy.room, policy.span
        self._size_of = padding.size_of
        return self, Frame(0, FrameType.INIT, frame)

    @property
    def suite(self) -> Suite:
        return self._suite

    @property
    def epoch(self) -> int:
        return self._epoch

    @property
    def next_seq(self) -> int:
        """The number of the next frame."""
        return self._next

    @property
    def generation(self) -> int:
        """Grows with every change: write a dumped state only over the generation it was loaded from."""
        return self._generation

    @property
    def key_id(self) -> int:
        """Which of the owner's keys the next update is sealed to."""
        return self._key_id

    def describe(self) -> str:
        return f"suite=0x{self._suite.id:04x} epoch={self._epoch} next={self._next} generation={self._generation}"

    def enqueue(self, message: Buffer, *, now: int, aad: Buffer = b"") -> list[Frame]:
        """Seal a message: the frames to store, in order: an UPDATE first if one is due, then the DATA frame.

        `aad` is authenticated with the message and not stored: the owner must present the same bytes.
        """
        body = message if type(message) is bytes else as_bytes(message)
        aad = b"" if type(aad) is bytes and not aad else checked_aad(aad)
        seq = self._next
        if (
            seq - self._first < self._room
            and type(now) is int
            and 0 <= now - self._updated_at < self._seconds
            and len(body) <= MESSAGE_LIMIT
            and seq < SEQ_LIMIT - 2
        ):
            suite = self._suite
            header = HEADER.pack(VERSION, DATA, suite.id, self._epoch, seq)
            message_key, chain_key = suite.kdf.step(self._chain_key)
            data = seal_data(suite, self._qctx, message_key, header, body, aad, self._size_of)
            self._chain_key = chain_key
            self._next = seq + 1
            self._generation += 1
            return [_new(Frame, (seq, DATA, data))]
        return self.enqueue_many((body,), now=now, aad=aad)

    def enqueue_many(self, messages: Iterable[Buffer], *, now: int, aad: Buffer = b"") -> list[Frame]:
        """Seal many messages in one call, with updates where they are due; all of them or, on an error, none."""
        bodies = [message if type(message) is bytes else as_bytes(message) for message in messages]
        longest = max(map(len, bodies), default=0)
        if longest > MESSAGE_LIMIT:
            raise LimitExceeded("message in bytes", longest, MESSAGE_LIMIT)
        aad = checked_aad(aad)
        chain_key, epoch, first, seq, updated_at = (
            self._chain_key,
            self._epoch,
            self._first,
            self._next,
            self._updated_at,
        )
        # A distance in either direction: a clock that was far ahead once must not switch the rule off.
        now = checked_now(now)
        aged = abs(now - updated_at) >= self._seconds
        if seq + len(bodies) * 2 >= SEQ_LIMIT:
            raise LimitExceeded("sequence number; create a new queue", seq + len(bodies) * 2, SEQ_LIMIT - 1)
        frames: list[Frame] = []
        done = 0
        while done < len(bodies):
            if aged or seq - first >= self._room:
                update, chain_key = self._inject(chain_key, epoch, first, seq, self._public_key, self._key_id)
                frames.append(Frame(seq, FrameType.UPDATE, update))
                seq += 1
                epoch, first, updated_at, aged = epoch + 1, seq, now, False
            run = bodies[done : done + self._room - (seq - first)]
            sealed, chain_key = seal_run(self._suite, self._qctx, chain_key, epoch, seq, run, aad, self._size_of)
            frames += sealed
            seq += len(run)
            done += len(run)
        if not frames:
            return frames
        self._chain_key, self._epoch, self._first, self._next, self._updated_at = (
            chain_key,
            epoch,
            first,
            seq,
            updated_at,
        )
        self._generation += 1
        return frames

    def update(self, *, now: int) -> Frame:
        """Inject fresh randomness now: the UPDATE frame to store."""
        return self._update_to(self._public_key, self._key_id, now)

    def accept_offer(self, offer: KeyOffer | Buffer, *, now: int) -> list[Frame]:
        """Take the owner's new public key; an UPDATE to it follows at once.

        The caller has authenticated the owner.  An offer that is in force already gives no frame, so that sending it
        again is harmless.
        """
        if not isinstance(offer, KeyOffer):
            offer = KeyOffer.decode(offer)
        if not offer.check(self._suite, self._qctx, self._key_id, self._public_key):
            return []
        return [self._update_to(offer.public_key, offer.key_id, now)]

    def head(self, nonce: Buffer) -> bytes:
        """Prove to the owner, who chose `nonce`, what the next number is."""
        header = pack_header(FrameType.HEAD, self._suite.id, self._epoch, self._next)
        return header + head_tag(self._suite.kdf, self._chain_key, self._qctx, header, checked_nonce(nonce))

    def dump(self) -> bytes:
        """The state as bytes, for the transaction that stores the frames.  It holds the chain key: guard it."""
        state = (
            _START
            + _STATE.pack(
                self._suite.id,
                self._epoch,
                self._first,
                self._next,
                self._generation,
                self._updated_at,
                self._key_id,
                self._qctx,
                self._chain_key,
            )
            + self._public_key
        )
        return state + _CRC.pack(crc32(state))

    @classmethod
    def load(cls, state: Buffer, *, policy: UpdatePolicy = _DEFAULT_POLICY, padding: Padding = PADME) -> Enqueuer:
        """Restore a machine from `dump`; `StateError` if these are not the bytes of one."""
        reader = open_document(Kind.ENQUEUER, FORMAT, state, stored=True)
        head = reader.take(_STATE.size)
        self = cls.__new__(cls)
        (
            suite,
            self._epoch,
            self._first,
            self._next,
            self._generation,
            self._updated_at,
            self._key_id,
            self._qctx,
            self._chain_key,
        ) = _STATE.unpack(head)
        known = SUITES.get(suite)
        if known is None:
            reader.fail(f"it uses suite 0x{suite:04x}, which this release does not know")
        self._suite = known
        self._public_key = reader.take(known.kem.public_size)
        reader.end()
        if not 1 <= self._first <= self._next < SEQ_LIMIT > self._generation or self._next - self._first >= EPOCH_CAP:
            reader.fail("its numbers contradict each other")
        self._room, self._seconds = policy.room, policy.span
        self._size_of = padding.size_of
        return self

    def _update_to(self, public_key: bytes, key_id: int, now: int) -> Frame:
        seq = self._next
        if seq + 1 >= SEQ_LIMIT:
            raise LimitExceeded("sequence number; create a new queue", seq + 1, SEQ_LIMIT - 1)
        now = checked_now(now)
        data, chain_key = self._inject(self._chain_key, self._epoch, self._first, seq, public_key, key_id)
        self._chain_key, self._public_key, self._key_id, self._updated_at = chain_key, public_key, key_id, now
        self._epoch += 1
        self._first = self._next = seq + 1
        self._generation += 1
        return Frame(seq, FrameType.UPDATE, data)

    def _inject(
        self, chain_key: bytes, epoch: int, first: int, seq: int, public_key: bytes, key_id: int
    ) -> tuple[bytes, bytes]:
        if epoch + 1 >= EPOCH_LIMIT:
            raise LimitExceeded("epoch; create a new queue", epoch + 1, EPOCH_LIMIT - 1)
        return inject_update(self._suite, self._qctx, chain_key, epoch, first, seq, public_key, key_id)
