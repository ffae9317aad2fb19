"""A second implementation of the queue ratchet, written from `docs/protocol.md` alone.

It exists to disagree with the library. So it imports nothing of it, and takes from `cryptography` only bare X25519,
ML-KEM-768 and the two AEADs: HPKE, X-Wing and the KDFs are written out. It is neither fast nor careful with secrets,
and knows no policy, no padding rule and no storage. Section numbers in comments are those of the document. The formats
are here; the two sides of a queue, which use them, are in `peers.py`.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey, MLKEM768PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

INIT, DATA, UPDATE, HEAD = 1, 2, 3, 4
X25519, XWING = 0x0020, 0x647A
# Section 3: the KEM, whether the KDF is BLAKE2b, and whether the AEAD is ChaCha20-Poly1305.
SUITES = {1: (X25519, False, False), 2: (XWING, False, False), 3: (XWING, True, False), 4: (XWING, True, True)}
PUBLIC_KEY_SIZE = {X25519: 32, XWING: 1216}
ENC_SIZE = {X25519: 32, XWING: 1120}
FRAME_LIMIT = 17 * 2**20 + 64
EPOCH_FRAMES, SEQ_LIMIT, WINDOW, UNKNOWN_TAG = 65536, 2**63 - 1, 64, bytes(16)


class Refused(Exception):
    """Refused, with a verdict: a name of section 6, or a plain word for what has none there."""

    def __init__(self, verdict: str) -> None:
        super().__init__(verdict)
        self.verdict = verdict


def require(condition: bool, verdict: str) -> None:
    if not condition:
        raise Refused(verdict)


# --- Sections 1 and 2: notation and documents ---


def u8(n: int) -> bytes:
    return struct.pack(">B", n)


def u16(n: int) -> bytes:
    return struct.pack(">H", n)


def u32(n: int) -> bytes:
    return struct.pack(">I", n)


def u64(n: int) -> bytes:
    return struct.pack(">Q", n)


def lv(x: bytes) -> bytes:
    return u16(len(x)) + x


def document(kind: bytes, body: bytes) -> bytes:
    whole = kind + u8(1) + body
    return whole + u32(zlib.crc32(whole))


class Cursor:
    """Strict decoding: what is cut short, or left over at the end, is malformed."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def take(self, size: int) -> bytes:
        require(len(self.data) >= size, "malformed")
        taken, self.data = self.data[:size], self.data[size:]
        return taken

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def lv(self) -> bytes:
        return self.take(self.number(2))

    def id(self) -> bytes:
        value = self.lv()
        require(1 <= len(value) <= 255, "malformed")
        return value

    def suites(self) -> tuple[int, ...]:
        suites = tuple(self.number(2) for _ in range(self.number(1)))
        require(1 <= len(suites) <= 16 and len(set(suites)) == len(suites), "malformed")
        return suites

    def end(self) -> None:
        require(not self.data, "malformed")


def open_document(kind: bytes, data: bytes) -> Cursor:
    require(len(data) >= 9 and data[:5] == kind + u8(1), "malformed")
    require(zlib.crc32(data[:-4]) == int.from_bytes(data[-4:], "big"), "malformed")
    return Cursor(data[5:-4])


# --- Section 3: the KDFs and the AEADs of the suites ---


def blake2b(data: bytes, person: bytes, key: bytes = b"", size: int = 32) -> bytes:
    return hashlib.blake2b(data, digest_size=size, key=key, person=person).digest()


def digest(suite: int, data: bytes) -> bytes:
    return blake2b(data, b"qsr1 hash") if SUITES[suite][1] else hashlib.sha256(data).digest()


def extract(suite: int, salt: bytes, ikm: bytes) -> bytes:
    return blake2b(ikm, b"qsr1 extract", salt) if SUITES[suite][1] else hkdf_extract(salt, ikm)


def expand(suite: int, secret: bytes, label: bytes, context: bytes = b"", size: int = 32) -> bytes:
    if SUITES[suite][1]:
        return blake2b(lv(context), b"qsr1 " + label, secret, size)
    full = b"qsratchet-v1 " + label
    return hkdf_expand(secret, u16(size) + u8(len(full)) + full + lv(context), size)


def hkdf_extract(salt: bytes, ikm: bytes) -> bytes:
    return hmac.new(salt, ikm, hashlib.sha256).digest()


def hkdf_expand(prk: bytes, info: bytes, size: int) -> bytes:
    okm = block = b""
    for counter in range(1, -(-size // 32) + 1):
        block = hmac.new(prk, block + info + u8(counter), hashlib.sha256).digest()
        okm += block
    return okm[:size]


def aead(suite: int, key: bytes) -> AESGCM | ChaCha20Poly1305:
    return ChaCha20Poly1305(key) if SUITES[suite][2] else AESGCM(key)


# --- Section 3: HPKE (RFC 9180, base mode, HKDF-SHA256) with X25519 or X-Wing ---


class Entropy:
    """Random bytes that follow from a seed, and ML-KEM encapsulations, which do not.

    The ML-KEM of `cryptography` draws its own randomness. So each encapsulation is recorded, and a recording can be
    played back: that makes every test vector reproducible.
    """

    def __init__(self, seed: bytes, recorded: Iterable[tuple[bytes, bytes]] = ()) -> None:
        self.seed, self.drawn = seed, 0
        self.played = list(recorded)
        self.encapsulations: list[tuple[bytes, bytes]] = []

    def take(self, size: int) -> bytes:
        self.drawn += 1
        return hashlib.shake_256(self.seed + u32(self.drawn)).digest(size)

    def encapsulate(self, public_key: bytes) -> tuple[bytes, bytes]:
        """ML-KEM-768: the shared secret and its ciphertext."""
        key = MLKEM768PublicKey.from_public_bytes(public_key)
        pair = self.played.pop(0) if self.played else key.encapsulate()
        self.encapsulations.append(pair)
        return pair


def x25519(private: bytes, public: bytes) -> bytes:
    """The shared point; an all-zero one, which a low-order public key gives, is a ValueError."""
    return X25519PrivateKey.from_private_bytes(private).exchange(X25519PublicKey.from_public_bytes(public))


def x25519_public(private: bytes) -> bytes:
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def labeled_extract(suite_id: bytes, salt: bytes, label: bytes, ikm: bytes) -> bytes:
    return hkdf_extract(salt, b"HPKE-v1" + suite_id + label + ikm)


def labeled_expand(suite_id: bytes, prk: bytes, label: bytes, info: bytes, size: int) -> bytes:
    return hkdf_expand(prk, u16(size) + b"HPKE-v1" + suite_id + label + info, size)


def dhkem_secret(dh: bytes, enc: bytes, public_key: bytes) -> bytes:
    suite_id = b"KEM" + u16(X25519)
    prk = labeled_extract(suite_id, b"", b"eae_prk", dh)
    return labeled_expand(suite_id, prk, b"shared_secret", enc + public_key, 32)


def xwing_secret(ss_m: bytes, ss_x: bytes, ct_x: bytes, pk_x: bytes) -> bytes:
    return hashlib.sha3_256(ss_m + ss_x + ct_x + pk_x + b"\\.//^\\").digest()


def xwing_keys(seed: bytes) -> tuple[MLKEM768PrivateKey, bytes]:
    both = hashlib.shake_256(seed).digest(96)
    return MLKEM768PrivateKey.from_seed_bytes(both[:64]), both[64:]


def public_key_of(kem: int, seed: bytes) -> bytes:
    if kem == X25519:
        return x25519_public(seed)
    ml_kem, dh = xwing_keys(seed)
    return ml_kem.public_key().public_bytes_raw() + x25519_public(dh)


def encapsulate(kem: int, public_key: bytes, entropy: Entropy) -> tuple[bytes, bytes]:
    """The shared secret and `enc`; ValueError for a key that cannot be used."""
    ephemeral = entropy.take(32)
    if kem == X25519:
        enc = x25519_public(ephemeral)
        return dhkem_secret(x25519(ephemeral, public_key), enc, public_key), enc
    pk_x, ct_x = public_key[1184:], x25519_public(ephemeral)
    ss_x = x25519(ephemeral, pk_x)
    ss_m, ct_m = entropy.encapsulate(public_key[:1184])
    return xwing_secret(ss_m, ss_x, ct_x, pk_x), ct_m + ct_x


def decapsulate(kem: int, seed: bytes, enc: bytes) -> bytes:
    if kem == X25519:
        return dhkem_secret(x25519(seed, enc), enc, x25519_public(seed))
    ml_kem, dh = xwing_keys(seed)
    ct_m, ct_x = enc[:1088], enc[1088:]
    return xwing_secret(ml_kem.decapsulate(ct_m), x25519(dh, ct_x), ct_x, x25519_public(dh))


def key_schedule(kem: int, aead_id: int, shared_secret: bytes, info: bytes) -> tuple[bytes, bytes]:
    """The key and the base nonce of RFC 9180, section 5.1, in base mode, for an AEAD with 32-byte keys."""
    suite_id = b"HPKE" + u16(kem) + u16(1) + u16(aead_id)
    psk_id_hash = labeled_extract(suite_id, b"", b"psk_id_hash", b"")
    context = u8(0) + psk_id_hash + labeled_extract(suite_id, b"", b"info_hash", info)
    secret = labeled_extract(suite_id, shared_secret, b"secret", b"")
    key = labeled_expand(suite_id, secret, b"key", context, 32)
    return key, labeled_expand(suite_id, secret, b"base_nonce", context, 12)


def hpke_seal(kem: int, public_key: bytes, info: bytes, message: bytes, entropy: Entropy) -> bytes:
    shared_secret, enc = encapsulate(kem, public_key, entropy)
    key, nonce = key_schedule(kem, 2, shared_secret, info)
    return enc + AESGCM(key).encrypt(nonce, message, b"")


def hpke_open(kem: int, seed: bytes, info: bytes, sealed: bytes) -> bytes:
    """The message; ValueError or InvalidTag if it does not open."""
    enc, ct = sealed[: ENC_SIZE[kem]], sealed[ENC_SIZE[kem] :]
    key, nonce = key_schedule(kem, 2, decapsulate(kem, seed, enc), info)
    return AESGCM(key).decrypt(nonce, ct, b"")


# --- Section 4: creation, injection, the ratchet, offers ---


@dataclass
class Request:
    service_id: bytes
    queue_id: bytes
    suites: tuple[int, ...]
    public_key: bytes
    join_secret: bytes

    def encode(self) -> bytes:
        body = lv(self.service_id) + lv(self.queue_id) + u8(len(self.suites)) + b"".join(map(u16, self.suites))
        return document(b"QSRC", body + lv(self.public_key) + self.join_secret)

    @classmethod
    def decode(cls, data: bytes) -> Request:
        cursor = open_document(b"QSRC", data)
        request = cls(cursor.id(), cursor.id(), cursor.suites(), cursor.lv(), cursor.take(32))
        cursor.end()
        return request


def context(suite: int, service_id: bytes, queue_id: bytes, suites: Sequence[int], key_hash: bytes) -> bytes:
    """Section 4.1; `key_hash` is the digest of public key 0."""
    framed = lv(service_id) + lv(queue_id) + lv(b"".join(map(u16, suites))) + lv(key_hash)
    return digest(suite, lv(b"qsratchet-v1 context") + u8(1) + u16(suite) + framed)


def offer_document(suite: int, qctx: bytes, key_id: int, public_key: bytes) -> bytes:
    return document(b"QSRO", u16(suite) + qctx + u32(key_id) + lv(public_key))


@dataclass
class Injection:
    """Section 4.2: what an INIT or an UPDATE with this header brings, and the chain key that follows."""

    suite: int
    qctx: bytes
    header: bytes
    key_id: int
    ended: int

    @property
    def at(self) -> tuple[int, int, int]:
        return self.header[1], int.from_bytes(self.header[4:8], "big"), int.from_bytes(self.header[8:], "big")

    def info(self) -> bytes:
        type_, epoch, seq = self.at
        if type_ == INIT:
            return b"qsratchet-v1 init" + self.qctx + u32(self.key_id)
        return b"qsratchet-v1 update" + self.qctx + u32(epoch + 1) + u64(seq) + u32(self.key_id)

    def chain_key(self, salt: bytes, r: bytes, ct: bytes) -> bytes:
        type_, epoch, seq = self.at
        place = u32(epoch + (type_ == UPDATE)) + u64(seq + 1)
        return expand(self.suite, extract(self.suite, salt, r), b"ratchet", self.qctx + place + digest(self.suite, ct))

    def confirmation(self, chain_key: bytes, ct: bytes) -> bytes:
        numbers = u32(self.key_id) + u32(self.ended)
        return expand(self.suite, chain_key, b"confirm", self.qctx + self.header + numbers + digest(self.suite, ct))

    def open(self, salt: bytes, seed: bytes, ct: bytes, confirmation: bytes, *, wrong_key: str = "tampered") -> bytes:
        """The owner's side: the new chain key, if all of it matches."""
        try:
            r = hpke_open(SUITES[self.suite][0], seed, self.info(), ct)
        except (ValueError, InvalidTag):
            raise Refused(wrong_key) from None
        chain_key = self.chain_key(salt, r, ct)
        require(len(r) == 32 and hmac.compare_digest(confirmation, self.confirmation(chain_key, ct)), "tampered")
        return chain_key


def message_key(suite: int, ck: bytes) -> bytes:
    return expand(suite, ck, b"message")


def next_key(suite: int, ck: bytes, steps: int = 1) -> bytes:
    for _ in range(steps):
        ck = expand(suite, ck, b"next")
    return ck


def rotation_key(suite: int, ck: bytes, qctx: bytes, epoch: int, seq: int) -> bytes:
    return expand(suite, ck, b"rotation", qctx + u32(epoch) + u64(seq))


# --- Section 5: frames ---


def make_header(type_: int, suite: int, epoch: int, seq: int) -> bytes:
    return u8(1) + u8(type_) + u16(suite) + u32(epoch) + u64(seq)


def parse_header(frame: bytes) -> tuple[int, int, int, int]:
    """Type, suite, epoch and number, by rule 1 of section 6."""
    require(16 <= len(frame) <= FRAME_LIMIT, "malformed")
    version, type_, suite, epoch, seq = struct.unpack(">BBHIQ", frame[:16])
    require(version == 1, "unknown version")
    require(INIT <= type_ <= HEAD, "unknown type")
    require(suite in SUITES, "unknown suite")
    require(seq < SEQ_LIMIT, "malformed")
    return type_, suite, epoch, seq


def open_sealed(suite: int, ck: bytes, qctx: bytes, frame: bytes, aad: bytes) -> bytes:
    """The authentic body of a DATA or UPDATE frame."""
    require(len(frame) >= 16 + 12 + 16, "malformed")
    cipher = aead(suite, message_key(suite, ck))
    try:
        return cipher.decrypt(frame[16:28], frame[28:], qctx + frame[:16] + aad)
    except InvalidTag:
        raise Refused("tampered") from None


def message_in(body: bytes) -> bytes:
    cursor = Cursor(body)
    return cursor.take(cursor.number(4))


def head_proof(suite: int, ck: bytes, qctx: bytes, header: bytes, nonce: bytes) -> bytes:
    require(16 <= len(nonce) <= 64, "misuse")
    return expand(suite, ck, b"head", qctx + header + lv(nonce))
