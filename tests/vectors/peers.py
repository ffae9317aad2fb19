"""The two sides of a queue, and the auditor, over the formats in `reference.py`.

This is the second half of the second implementation; like the first, it is written from `docs/protocol.md` alone and
imports nothing of the library.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.vectors.reference import (
    DATA,
    EPOCH_FRAMES,
    HEAD,
    INIT,
    PUBLIC_KEY_SIZE,
    SEQ_LIMIT,
    SUITES,
    UNKNOWN_TAG,
    UPDATE,
    WINDOW,
    Cursor,
    Entropy,
    Injection,
    Refused,
    Request,
    aead,
    context,
    digest,
    document,
    head_proof,
    hpke_seal,
    lv,
    make_header,
    message_in,
    message_key,
    next_key,
    offer_document,
    open_document,
    open_sealed,
    parse_header,
    public_key_of,
    require,
    rotation_key,
    u8,
    u16,
    u32,
    u64,
)

Trace = dict[str, bytes | int]


@dataclass
class Service:
    """The side that seals. `trace` keeps the inner values of the frame made last, for the vectors."""

    suite: int
    epoch: int
    first: int
    next: int
    generation: int
    updated_at: int
    key_id: int
    qctx: bytes
    ck: bytes
    public_key: bytes
    entropy: Entropy
    trace: Trace = field(default_factory=dict)

    @classmethod
    def create(cls, data: bytes, entropy: Entropy, accepted: Sequence[int] = tuple(SUITES)) -> tuple[Service, bytes]:
        """Section 4: the new queue, and its INIT."""
        request = Request.decode(data)
        suite = next((s for s in request.suites if s in SUITES and s in accepted), None)
        if suite is None:
            raise Refused("no common suite")
        require(len(request.public_key) == PUBLIC_KEY_SIZE[SUITES[suite][0]], "unusable key")
        qctx = context(suite, request.service_id, request.queue_id, request.suites, digest(suite, request.public_key))
        service = cls(suite, 0, 0, 0, 0, 0, 0, qctx, b"", request.public_key, entropy)
        header = make_header(INIT, suite, 0, 0)
        confirmation, ct = service._inject(header, request.join_secret, 0, request.public_key, 0)
        return service, header + u32(0) + confirmation + ct

    def _inject(self, header: bytes, salt: bytes, key_id: int, public_key: bytes, ended: int) -> tuple[bytes, bytes]:
        injection = Injection(self.suite, self.qctx, header, key_id, ended)
        r = self.entropy.take(32)
        try:
            ct = hpke_seal(SUITES[self.suite][0], public_key, injection.info(), r, self.entropy)
        except ValueError:
            raise Refused("unusable key") from None
        self.trace = {
            "ck": self.ck,
            "salt": salt,
            "r": r,
            "info": injection.info(),
            "ct": ct,
            "key_id": key_id,
            "ended": ended,
        }
        self.ck = injection.chain_key(salt, r, ct)
        confirmation = injection.confirmation(self.ck, ct)
        self.trace |= {"confirmation": confirmation, "next_ck": self.ck}
        self.key_id, self.public_key = key_id, public_key
        self.epoch += header[1] == UPDATE
        self.next += 1
        self.first = self.next
        self.generation += 1
        return confirmation, ct

    def _seal(self, header: bytes, ck: bytes, body: bytes, aad: bytes) -> bytes:
        key, nonce = message_key(self.suite, ck), self.entropy.take(12)
        self.trace |= {"message_key": key, "nonce": nonce, "body": body}
        return header + nonce + aead(self.suite, key).encrypt(nonce, body, self.qctx + header + aad)

    def data(self, message: bytes, aad: bytes = b"", zeros: int = 0) -> bytes:
        header, ck = make_header(DATA, self.suite, self.epoch, self.next), self.ck
        self.ck = next_key(self.suite, ck)
        self.trace = {"ck": ck, "next_ck": self.ck}
        self.next += 1
        self.generation += 1
        return self._seal(header, ck, u32(len(message)) + message + bytes(zeros), aad)

    def update(self, key_id: int | None = None, public_key: bytes | None = None) -> bytes:
        key_id, public_key = (self.key_id if key_id is None else key_id), public_key or self.public_key
        header, ck, ended = make_header(UPDATE, self.suite, self.epoch, self.next), self.ck, self.next - self.first + 1
        salt = rotation_key(self.suite, ck, self.qctx, self.epoch, self.next)
        confirmation, ct = self._inject(header, salt, key_id, public_key, ended)
        return self._seal(header, ck, u32(key_id) + u32(ended) + confirmation + ct, b"")

    def take_offer(self, data: bytes) -> bytes | None:
        """Section 4.4: the UPDATE to the new key, or nothing if the offer is a repetition."""
        cursor = open_document(b"QSRO", data)
        suite, qctx, key_id, public_key = cursor.number(2), cursor.take(32), cursor.number(4), cursor.lv()
        cursor.end()
        require(suite == self.suite and qctx == self.qctx, "offer refused")
        if (key_id, public_key) == (self.key_id, self.public_key):
            return None
        require(key_id == self.key_id + 1, "offer refused")
        require(len(public_key) == PUBLIC_KEY_SIZE[SUITES[suite][0]], "unusable key")
        return self.update(key_id, public_key)

    def head(self, nonce: bytes) -> bytes:
        header = make_header(HEAD, self.suite, self.epoch, self.next)
        return header + head_proof(self.suite, self.ck, self.qctx, header, nonce)

    def state(self) -> bytes:
        place = u16(self.suite) + u32(self.epoch) + u64(self.first) + u64(self.next)
        rest = u64(self.generation) + u64(self.updated_at) + u32(self.key_id)
        return document(b"QSRE", place + rest + self.qctx + self.ck + self.public_key)

    @classmethod
    def load(cls, data: bytes, entropy: Entropy) -> Service:
        cursor = open_document(b"QSRE", data)
        suite = cursor.number(2)
        require(suite in SUITES, "unknown suite")
        numbers = (
            cursor.number(4),
            cursor.number(8),
            cursor.number(8),
            cursor.number(8),
            cursor.number(8),
            cursor.number(4),
        )
        keys = cursor.take(32), cursor.take(32), cursor.take(PUBLIC_KEY_SIZE[SUITES[suite][0]])
        cursor.end()
        return cls(suite, *numbers, *keys, entropy)


@dataclass
class Chain:
    """Where a reader is, once it has read INIT."""

    suite: int
    key_hash: bytes
    epoch: int
    first: int
    next: int
    ck: bytes
    qctx: bytes
    tags: dict[int, bytes] = field(default_factory=dict)

    def remembered(self) -> range:
        return range(max(0, self.next - WINDOW), self.next)


@dataclass
class Owner:
    """The side that opens. It is strict unless it has a forward limit."""

    service_id: bytes
    queue_id: bytes
    suites: tuple[int, ...]
    keys: dict[int, bytes]
    join_secret: bytes | None
    chain: Chain | None = None
    discarded: list[int] = field(default_factory=list)
    generation: int = 0
    forward_limit: int | None = None

    @property
    def kem(self) -> int:
        return next(SUITES[suite][0] for suite in self.suites if suite in SUITES)

    def request(self) -> bytes:
        assert self.join_secret is not None
        public_key = public_key_of(self.kem, self.keys[0])
        return Request(self.service_id, self.queue_id, self.suites, public_key, self.join_secret).encode()

    def read(self, frame: bytes, aad: bytes = b"") -> bytes | None:
        """The message of a DATA frame, None for others: by the rules of section 6, changing nothing before the end."""
        type_, suite, epoch, seq = parse_header(frame)
        require(type_ != HEAD, "malformed")
        if self.chain is None:
            self._read_init(frame, type_, suite, epoch, seq)
            return None
        chain = self.chain
        require(suite == chain.suite, "wrong suite")
        if seq < chain.next:
            tag = chain.tags.get(seq)
            raise Refused("passed" if tag is None else "duplicate" if tag == frame[-16:] else "fork")
        require(type_ != INIT, "unexpected init")
        given_up = any(number >= chain.first for number in self.discarded)
        require(epoch == chain.epoch or (epoch > chain.epoch and (seq != chain.next or given_up)), "wrong epoch")
        require(epoch == chain.epoch, "epoch gap")
        require(seq - chain.first + (type_ == DATA) < EPOCH_FRAMES, "malformed")
        if seq > chain.next:
            require(self.forward_limit is not None, "gap")
            require(seq - chain.next <= (self.forward_limit or 0), "gap too wide")
        ck = next_key(suite, chain.ck, seq - chain.next)
        require(type_ == DATA or epoch + 1 < 2**32, "malformed")
        body = open_sealed(suite, ck, chain.qctx, frame, aad if type_ == DATA else b"")
        message = None
        if type_ == DATA:
            message = message_in(body)
            chain.ck = next_key(suite, ck)
        else:
            key_id, chain.ck = self._open_update(chain, ck, frame, body)
            chain.epoch, chain.first = epoch + 1, seq + 1
            self.keys = {held: seed for held, seed in self.keys.items() if held >= key_id}
        self._advance(chain, seq, frame[-16:])
        return message

    def _read_init(self, frame: bytes, type_: int, suite: int, epoch: int, seq: int) -> None:
        require(type_ == INIT or seq == 0, "gap")
        require(type_ == INIT and seq == 0, "malformed")
        require(suite in self.suites, "wrong suite")
        kem = SUITES[suite][0]
        require(len(frame) == 16 + 4 + 32 + sealed_size(kem), "malformed")
        key_id, confirmation, ct = int.from_bytes(frame[16:20], "big"), frame[20:52], frame[52:]
        require(epoch == 0 and key_id == 0, "tampered")
        assert self.join_secret is not None
        key_hash = digest(suite, public_key_of(kem, self.keys[0]))
        qctx = context(suite, self.service_id, self.queue_id, self.suites, key_hash)
        ck = Injection(suite, qctx, frame[:16], 0, 0).open(self.join_secret, self.keys[0], ct, confirmation)
        self.chain, self.join_secret = Chain(suite, key_hash, 0, 1, 0, ck, qctx), None
        self._advance(self.chain, 0, frame[-16:])

    def _open_update(self, chain: Chain, ck: bytes, frame: bytes, body: bytes) -> tuple[int, bytes]:
        seq = int.from_bytes(frame[8:16], "big")
        require(len(body) == 4 + 4 + 32 + sealed_size(SUITES[chain.suite][0]), "malformed")
        key_id, ended = int.from_bytes(body[:4], "big"), int.from_bytes(body[4:8], "big")
        require(ended == seq - chain.first + 1, "malformed")
        require(key_id in self.keys, "missing key")
        salt = rotation_key(chain.suite, ck, chain.qctx, chain.epoch, seq)
        injection = Injection(chain.suite, chain.qctx, frame[:16], key_id, ended)
        return key_id, injection.open(salt, self.keys[key_id], body[40:], body[8:40], wrong_key="missing key")

    def _advance(self, chain: Chain, seq: int, tag: bytes | None) -> None:
        chain.next = seq + 1
        if tag is not None:
            chain.tags[seq] = tag
        chain.tags = {n: tag for n, tag in chain.tags.items() if n in chain.remembered()}
        self.generation += 1

    def discard(self) -> None:
        chain = self.chain
        assert chain is not None
        chain.ck = next_key(chain.suite, chain.ck)
        self.discarded.append(chain.next)
        self._advance(chain, chain.next, None)

    def check_head(self, head: bytes, nonce: bytes) -> range:
        """Section 5.5: the numbers that were not read yet."""
        chain = self.chain
        assert chain is not None
        try:
            type_, suite, epoch, seq = parse_header(head)
        except Refused:
            raise Refused("head rejected") from None
        require(type_ == HEAD and len(head) == 48 and suite == chain.suite, "head rejected")
        require(seq >= chain.next, "rolled back")
        limit = 2000 if self.forward_limit is None else self.forward_limit
        require(epoch == chain.epoch and seq - chain.next <= limit, "ahead")
        proof = head_proof(suite, next_key(suite, chain.ck, seq - chain.next), chain.qctx, head[:16], nonce)
        require(hmac.compare_digest(proof, head[16:]), "head rejected")
        return range(chain.next, seq)

    def offer(self, seed: bytes) -> bytes:
        """Section 4.4: takes the seed as the next key pair."""
        assert self.chain is not None
        assert len(self.keys) == 1
        key_id = max(self.keys) + 1
        self.keys[key_id] = seed
        self.generation += 1
        return offer_document(self.chain.suite, self.chain.qctx, key_id, public_key_of(self.kem, seed))

    def grant(self) -> bytes:
        assert self.chain is not None
        c = self.chain
        return Grant(c.suite, c.epoch, c.next, c.key_hash, c.ck, self.service_id, self.queue_id, self.suites).encode()

    def state(self) -> bytes:
        body = (
            u64(self.generation)
            + lv(self.service_id)
            + lv(self.queue_id)
            + u8(len(self.suites))
            + b"".join(map(u16, self.suites))
        )
        body += u8(len(self.keys)) + b"".join(u32(key_id) + seed for key_id, seed in sorted(self.keys.items()))
        body += u16(len(self.discarded)) + b"".join(map(u64, self.discarded))
        c = self.chain
        if c is None:
            return document(b"QSRD", body + u8(1) + (self.join_secret or b""))
        tags = b"".join(c.tags.get(n, UNKNOWN_TAG) for n in c.remembered())
        body += u8(2) + u16(c.suite) + c.key_hash + u32(c.epoch) + u64(c.first) + u64(c.next) + c.ck + lv(tags)
        return document(b"QSRD", body)

    @classmethod
    def load(cls, data: bytes, forward_limit: int | None = None) -> Owner:
        cursor = open_document(b"QSRD", data)
        generation, service_id, queue_id, suites = cursor.number(8), cursor.id(), cursor.id(), cursor.suites()
        keys = {cursor.number(4): cursor.take(32) for _ in range(cursor.number(1))}
        discarded = [cursor.number(8) for _ in range(cursor.number(2))]
        phase = cursor.number(1)
        require(phase in (1, 2) and len(keys) in (1, 2) and max(keys) - min(keys) == len(keys) - 1, "malformed")
        owner = cls(service_id, queue_id, suites, keys, None, None, discarded, generation, forward_limit)
        if phase == 1:
            owner.join_secret = cursor.take(32)
        else:
            suite, key_hash, epoch = cursor.number(2), cursor.take(32), cursor.number(4)
            require(suite in SUITES, "malformed")
            qctx = context(suite, service_id, queue_id, suites, key_hash)
            owner.chain = chain = Chain(
                suite, key_hash, epoch, cursor.number(8), cursor.number(8), cursor.take(32), qctx
            )
            tags = Cursor(cursor.lv())
            pairs = [(n, tags.take(16)) for n in chain.remembered()]
            tags.end()
            require(1 <= chain.first <= chain.next <= SEQ_LIMIT and chain.suite in SUITES, "malformed")
            chain.tags = {n: tag for n, tag in pairs if tag != UNKNOWN_TAG}
        cursor.end()
        return owner


def sealed_size(kem: int) -> int:
    return {0x0020: 80, 0x647A: 1168}[kem]


# --- Section 7: what an auditor holds ---


@dataclass
class Grant:
    suite: int
    epoch: int
    first: int
    key_hash: bytes
    ck: bytes
    service_id: bytes
    queue_id: bytes
    suites: tuple[int, ...]

    @property
    def qctx(self) -> bytes:
        return context(self.suite, self.service_id, self.queue_id, self.suites, self.key_hash)

    def encode(self) -> bytes:
        place = u16(self.suite) + u32(self.epoch) + u64(self.first)
        ids = lv(self.service_id) + lv(self.queue_id) + u8(len(self.suites)) + b"".join(map(u16, self.suites))
        return document(b"QSRG", place + self.key_hash + self.ck + ids)

    @classmethod
    def decode(cls, data: bytes) -> Grant:
        c = open_document(b"QSRG", data)
        grant = cls(c.number(2), c.number(4), c.number(8), c.take(32), c.take(32), c.id(), c.id(), c.suites())
        c.end()
        require(grant.suite in SUITES and 1 <= grant.first < SEQ_LIMIT, "malformed")
        return grant

    def open(self, frame: bytes, aad: bytes = b"") -> bytes | None:
        """The message of a DATA frame of this epoch; None for an UPDATE, or an INIT, that is authentic."""
        type_, suite, epoch, seq = parse_header(frame)
        require(suite == self.suite, "wrong suite")
        if (type_, epoch, seq) == (INIT, 0, 0) == (INIT, self.epoch, self.first - 1):
            injection = Injection(suite, self.qctx, frame[:16], 0, 0)
            authentic = hmac.compare_digest(frame[16:52], u32(0) + injection.confirmation(self.ck, frame[52:]))
            require(authentic, "tampered")
            return None
        require(type_ != HEAD, "malformed")
        inside = type_ != INIT and epoch == self.epoch and 0 <= seq - self.first < EPOCH_FRAMES
        require(inside, "outside grant")
        ck = next_key(suite, self.ck, seq - self.first)
        body = open_sealed(suite, ck, self.qctx, frame, aad if type_ == DATA else b"")
        if type_ == DATA:
            return message_in(body)
        require(len(body) == 40 + sealed_size(SUITES[suite][0]), "malformed")
        return None


@dataclass
class OwnerKeys:
    service_id: bytes
    queue_id: bytes
    suites: tuple[int, ...]
    join_secret: bytes | None
    seeds: dict[int, bytes]

    def encode(self) -> bytes:
        body = lv(self.service_id) + lv(self.queue_id) + u8(len(self.suites)) + b"".join(map(u16, self.suites))
        body += u8(0) if self.join_secret is None else u8(1) + self.join_secret
        seeds = b"".join(u32(key_id) + seed for key_id, seed in sorted(self.seeds.items()))
        return document(b"QSRK", body + u16(len(self.seeds)) + seeds)

    @classmethod
    def decode(cls, data: bytes) -> OwnerKeys:
        c = open_document(b"QSRK", data)
        service_id, queue_id, suites, has = c.id(), c.id(), c.suites(), c.number(1)
        require(has in (0, 1), "malformed")
        join_secret = c.take(32) if has else None
        pairs = [(c.number(4), c.take(32)) for _ in range(c.number(2))]
        c.end()
        ids = [key_id for key_id, _ in pairs]
        require(ids == sorted(set(ids)), "malformed")
        return cls(service_id, queue_id, suites, join_secret, dict(pairs))

    def grants(self, frames: Sequence[bytes]) -> list[bytes]:
        """All grants of the queue, from its INIT and UPDATE frames in order."""
        owner = Owner(self.service_id, self.queue_id, self.suites, dict(self.seeds), self.join_secret)
        owner.forward_limit = EPOCH_FRAMES
        grants = []
        for frame in frames:
            owner.read(frame)
            grants.append(owner.grant())
        return grants
