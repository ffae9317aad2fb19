"""The key schedule: from an owner's request to chain keys, and from a chain key to frames.

Everything cryptographic about the ratchet is here, as functions of their arguments; the machines around it
only keep numbers and decide.  Section numbers in the comments are those of docs/protocol.md.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from ..codec import Buffer, lv, u8, u16, u32, u64
from ..crypto.kdf import KEY_SIZE, Kdf, same
from ..crypto.kem import PrivateKey
from ..crypto.suites import NONCE_SIZE, TAG_SIZE, InvalidTag, Suite
from .frames import DATA, EPOCH_LIMIT, FRAME_LIMIT, HEADER, HEADER_SIZE, VERSION, Frame, FrameType, pack_header
from .opened import NOTHING_MISSING, Message
from .verdicts import HeadRejected, MalformedFrame, MissingKey, Tampered

__all__ = [
    "confirm_init",
    "head_tag",
    "inject_init",
    "inject_update",
    "open_body",
    "open_head",
    "open_init",
    "open_run",
    "open_update",
    "open_update_body",
    "queue_context",
    "seal_body",
    "seal_data",
    "seal_run",
    "unpad",
    "update_size",
]

CONFIRMATION_SIZE: Final = 32
_BODY_START: Final = HEADER_SIZE + NONCE_SIZE
_INIT_START: Final = HEADER_SIZE + 4 + CONFIRMATION_SIZE
_LENGTH: Final = struct.Struct(">I")
_UPDATE: Final = struct.Struct(f">II{CONFIRMATION_SIZE}s")


def queue_context(suite: Suite, service_id: bytes, queue_id: bytes, suites: Iterable[int], key_hash: bytes) -> bytes:
    """`qctx`: everything that makes this queue this queue, hashed (section 4.1).

    `key_hash` is the hash of the owner's first public key, so that a grant need not carry the key to prove its ids.
    """
    return suite.kdf.hash(
        lv(b"qsratchet-v1 context")
        + u8(VERSION)
        + u16(suite.id)
        + lv(service_id)
        + lv(queue_id)
        + lv(b"".join(map(u16, suites)))
        + lv(key_hash)
    )


# --- INIT and UPDATE -----------------------------------------------------------------------------


def _init_info(qctx: bytes, key_id: int) -> bytes:
    return b"qsratchet-v1 init" + qctx + u32(key_id)


def _update_info(qctx: bytes, epoch: int, seq: int, key_id: int) -> bytes:
    return b"qsratchet-v1 update" + qctx + u32(epoch) + u64(seq) + u32(key_id)


def _chain_key(kdf: Kdf, salt: bytes, fresh: bytes, qctx: bytes, epoch: int, seq: int, sealed: bytes) -> bytes:
    """The first chain key of an epoch: secret if either the salt or the fresh randomness is (section 4.2)."""
    return kdf.expand(kdf.extract(salt, fresh), b"ratchet", qctx + u32(epoch) + u64(seq) + kdf.hash(sealed))


def _confirmation(
    kdf: Kdf, chain_key: bytes, qctx: bytes, header: bytes, key_id: int, ended: int, sealed: bytes
) -> bytes:
    """Proves that whoever made the frame knows the chain key it leads to (section 4.2)."""
    return kdf.expand(chain_key, b"confirm", qctx + header + u32(key_id) + u32(ended) + kdf.hash(sealed))


def _rotation_key(kdf: Kdf, chain_key: bytes, qctx: bytes, epoch: int, seq: int) -> bytes:
    return kdf.expand(chain_key, b"rotation", qctx + u32(epoch) + u64(seq))


def inject_init(suite: Suite, qctx: bytes, public_key: bytes, join_secret: bytes) -> tuple[bytes, bytes]:
    """Make the INIT frame, number 0 of epoch 0; return it and the chain key of number 1 (section 5.2)."""
    kdf = suite.kdf
    fresh = os.urandom(KEY_SIZE)
    sealed = suite.kem.seal(public_key, _init_info(qctx, 0), fresh)
    chain_key = _chain_key(kdf, join_secret, fresh, qctx, 0, 1, sealed)
    header = pack_header(FrameType.INIT, suite.id, 0, 0)
    confirmation = _confirmation(kdf, chain_key, qctx, header, 0, 0, sealed)
    return header + u32(0) + confirmation + sealed, chain_key


def open_init(suite: Suite, qctx: bytes, key: PrivateKey, join_secret: bytes, frame: bytes) -> bytes:
    """Open an INIT frame; return the chain key of number 1."""
    sealed = frame[_INIT_START:]
    if len(sealed) != KEY_SIZE + suite.kem.overhead:
        raise MalformedFrame(
            f"an INIT frame of suite 0x{suite.id:04x} does not have {len(frame)} bytes: fetch it again"
        )
    fresh = key.open(_init_info(qctx, 0), sealed)
    if fresh is None:
        raise Tampered(0)
    chain_key = _chain_key(suite.kdf, join_secret, fresh, qctx, 0, 1, sealed)
    confirm_init(suite, qctx, chain_key, frame)
    return chain_key


def confirm_init(suite: Suite, qctx: bytes, chain_key: bytes, frame: bytes) -> None:
    """Check an INIT frame, all of it, against the chain key it leads to."""
    header = pack_header(FrameType.INIT, suite.id, 0, 0)
    confirmation = _confirmation(suite.kdf, chain_key, qctx, header, 0, 0, frame[_INIT_START:])
    if not same(header + u32(0) + confirmation, frame[:_INIT_START]):
        raise Tampered(0)


def inject_update(
    suite: Suite, qctx: bytes, chain_key: bytes, epoch: int, first: int, seq: int, public_key: bytes, key_id: int
) -> tuple[bytes, bytes]:
    """Make the UPDATE frame that ends `epoch`, begun at `first`; return it and the next chain key (section 5.4)."""
    kdf = suite.kdf
    fresh = os.urandom(KEY_SIZE)
    ended = seq - first + 1
    sealed = suite.kem.seal(public_key, _update_info(qctx, epoch + 1, seq, key_id), fresh)
    rotation_key = _rotation_key(kdf, chain_key, qctx, epoch, seq)
    next_key = _chain_key(kdf, rotation_key, fresh, qctx, epoch + 1, seq + 1, sealed)
    header = pack_header(FrameType.UPDATE, suite.id, epoch, seq)
    confirmation = _confirmation(kdf, next_key, qctx, header, key_id, ended, sealed)
    body = _UPDATE.pack(key_id, ended, confirmation) + sealed
    message_key, _ = kdf.step(chain_key)
    return seal_body(suite, qctx, message_key, header, body, b""), next_key


class UpdateBody(NamedTuple):
    """What an UPDATE frame says once its own message key has opened it."""

    key_id: int
    ended: int
    confirmation: bytes
    sealed: bytes


def update_size(suite: Suite) -> int:
    """How long an UPDATE frame is: it has no padding."""
    return _BODY_START + _UPDATE.size + KEY_SIZE + suite.kem.overhead + TAG_SIZE


def open_update_body(suite: Suite, qctx: bytes, chain_key: bytes, frame: bytes, seq: int) -> UpdateBody:
    """Open an UPDATE frame as far as its epoch's chain reaches; the randomness in it stays sealed."""
    message_key, _ = suite.kdf.step(chain_key)
    body = open_body(suite, qctx, message_key, frame, seq, b"")
    if len(body) != _UPDATE.size + KEY_SIZE + suite.kem.overhead:
        raise MalformedFrame(
            f"the UPDATE frame {seq} is authentic but has a body of {len(body)} bytes: the service is faulty"
        )
    key_id, ended, confirmation = _UPDATE.unpack_from(body)
    return UpdateBody(key_id, ended, confirmation, body[_UPDATE.size :])


def open_update(
    suite: Suite,
    qctx: bytes,
    chain_key: bytes,
    epoch: int,
    first: int,
    seq: int,
    frame: bytes,
    keys: Mapping[int, PrivateKey],
) -> tuple[bytes, int]:
    """Open the UPDATE frame that ends `epoch`; return the next epoch's first chain key and the owner's key id."""
    kdf = suite.kdf
    if epoch + 1 >= EPOCH_LIMIT:
        raise MalformedFrame(f"epochs end at {EPOCH_LIMIT - 1}, so there is no UPDATE after it")
    body = open_update_body(suite, qctx, chain_key, frame, seq)
    if body.ended != seq - first + 1:
        raise MalformedFrame(
            f"the UPDATE frame {seq} is authentic but ends an epoch of {body.ended} frames, not {seq - first + 1}: "
            "the service is faulty"
        )
    key = keys.get(body.key_id)
    if key is None:
        raise MissingKey(seq, body.key_id)
    fresh = key.open(_update_info(qctx, epoch + 1, seq, body.key_id), body.sealed)
    if fresh is None:
        # The frame is authentic, so it is the key that is wrong: one with this id that the service never took.
        raise MissingKey(seq, body.key_id)
    rotation_key = _rotation_key(kdf, chain_key, qctx, epoch, seq)
    next_key = _chain_key(kdf, rotation_key, fresh, qctx, epoch + 1, seq + 1, body.sealed)
    expected = _confirmation(kdf, next_key, qctx, frame[:HEADER_SIZE], body.key_id, body.ended, body.sealed)
    if not same(expected, body.confirmation):
        raise Tampered(seq)
    return next_key, body.key_id


# --- DATA ----------------------------------------------------------------------------------------
#
# `seal_data` and `open_body` are for one frame; `seal_run` and `open_run` are for many in a row and give the same (the
# tests compare them).  Those are the inner loops of everything, so what would be calls stands in place there.


def seal_body(suite: Suite, qctx: bytes, message_key: bytes, header: bytes, body: bytes, aad: bytes) -> bytes:
    """Seal a body as the frame with this header (section 5.3).

    The nonce is random although the key is used once: a restored backup or a second writer repeats keys, and then two
    frames under one key must not share a nonce.
    """
    nonce = os.urandom(NONCE_SIZE)
    return header + nonce + suite.aead(message_key).encrypt(nonce, body, qctx + header + aad)


def open_body(suite: Suite, qctx: bytes, message_key: bytes, frame: bytes, seq: int, aad: bytes) -> bytes:
    """Open a DATA or UPDATE frame under its message key; the body as it was sealed."""
    try:
        return suite.aead(message_key).decrypt(
            frame[HEADER_SIZE:_BODY_START], frame[_BODY_START:], qctx + frame[:HEADER_SIZE] + aad
        )
    except (InvalidTag, ValueError):
        # The verdict is raised outside the handler: here its context would keep the message key alive.
        pass
    if len(frame) < _BODY_START + TAG_SIZE:
        raise MalformedFrame(f"frame {seq} is cut short to {len(frame)} bytes: fetch it again")
    raise Tampered(seq)


def seal_data(
    suite: Suite,
    qctx: bytes,
    message_key: bytes,
    header: bytes,
    message: bytes,
    aad: bytes,
    size_of: Callable[[int], int],
) -> bytes:
    """Seal a message as the DATA frame with this header: a length field, the message, and zeros."""
    nonce = os.urandom(NONCE_SIZE)
    length = len(message)
    body = (_LENGTH.pack(length) + message).ljust(size_of(length + 4), b"\0")
    return header + nonce + suite.aead(message_key).encrypt(nonce, body, qctx + header + aad)


def unpad(body: bytes, seq: int) -> bytes:
    """The message of a padded body.  What it is padded with is authenticated already and is not looked at."""
    if len(body) >= 4:
        end = _LENGTH.unpack_from(body)[0] + 4
        if end <= len(body):
            return body[4:end]
    raise MalformedFrame(f"frame {seq} is authentic but wrongly padded: the service is faulty")


def seal_run(
    suite: Suite,
    qctx: bytes,
    chain_key: bytes,
    epoch: int,
    seq: int,
    messages: Sequence[bytes],
    aad: bytes,
    size_of: Callable[[int], int],
) -> tuple[list[Frame], bytes]:
    """Seal messages under consecutive numbers of one epoch; return the frames and the next chain key."""
    step, aead, suite_id, pack, new = suite.kdf.step, suite.aead, suite.id, _LENGTH.pack, tuple.__new__
    pack_header, version, data_type, nonce_size = HEADER.pack, VERSION, DATA, NONCE_SIZE
    nonces = os.urandom(nonce_size * len(messages))
    frames: list[Frame] = []
    at = 0
    known = size = -1
    for message in messages:
        length = len(message)
        if length != known:
            known, size = length, size_of(length + 4)
        header = pack_header(version, data_type, suite_id, epoch, seq)
        message_key, chain_key = step(chain_key)
        nonce = nonces[at : at + nonce_size]
        sealed = aead(message_key).encrypt(nonce, (pack(length) + message).ljust(size, b"\0"), qctx + header + aad)
        frames.append(new(Frame, (seq, data_type, header + nonce + sealed)))
        seq += 1
        at += nonce_size
    return frames, chain_key


def open_run(
    suite: Suite, qctx: bytes, chain_key: bytes, epoch: int, seq: int, frames: Iterable[Buffer], aad: bytes
) -> tuple[list[Message], bytes]:
    """Open DATA frames of one epoch with the numbers `seq`, `seq + 1`, …; stop before the first that does not fit.

    The result is the messages of the frames opened and the chain key after them.  The frame at which it stopped is
    judged by the caller.  Frames may be `bytes` or memoryviews of bytes into a larger buffer, which is how the bulk
    pipeline drives it without copying.
    """
    step, aead, suite_id, unpack, new = suite.kdf.step, suite.aead, suite.id, _LENGTH.unpack_from, tuple.__new__
    pack_header, version, data_type, missing = HEADER.pack, VERSION, DATA, NOTHING_MISSING
    header_size, body_start, limit = HEADER_SIZE, _BODY_START, FRAME_LIMIT
    messages: list[Message] = []
    for frame in frames:
        header = pack_header(version, data_type, suite_id, epoch, seq)
        if frame[:header_size] != header or len(frame) > limit:
            break
        message_key, next_key = step(chain_key)
        try:
            body = aead(message_key).decrypt(frame[header_size:body_start], frame[body_start:], qctx + header + aad)
            end = unpack(body)[0] + 4
        except (InvalidTag, ValueError, struct.error):
            # Not authentic, cut off within the nonce, or without a length field.
            break
        if end > len(body):
            break
        messages.append(new(Message, (seq, epoch, body[4:end], missing)))
        chain_key = next_key
        seq += 1
    return messages, chain_key


# --- HEAD ----------------------------------------------------------------------------------------


def head_tag(kdf: Kdf, chain_key: bytes, qctx: bytes, header: bytes, nonce: bytes) -> bytes:
    """The tag of a head: only who holds the chain key of the next number can make it (section 5.5)."""
    return kdf.expand(chain_key, b"head", qctx + header + lv(nonce))


def open_head(suite: Suite, qctx: bytes, chain_key: bytes, head: bytes, nonce: bytes) -> None:
    """Check a head against the chain key of the number it claims."""
    if not same(head_tag(suite.kdf, chain_key, qctx, head[:HEADER_SIZE], nonce), head[HEADER_SIZE:]):
        raise HeadRejected(
            "the head does not authenticate: it was altered, or answers another nonce, or is of another queue"
        )
