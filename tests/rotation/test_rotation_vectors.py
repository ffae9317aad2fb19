"""Vectors of the wire, checked by a second implementation that is written from the protocol document.

The verifier uses the standard library and the X25519 primitive; it imports nothing of the rotation's code.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import struct
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from qsratchet.crypto.dh import DhKey
from qsratchet.errors import DecodeError
from qsratchet.rotation import QueueAddress
from qsratchet.rotation.keys import authentic, derive_for_receiver, derive_for_sender
from qsratchet.rotation.messages import QHello, SenderKeys, decode_frame, encode_frame

_VECTORS: dict[str, Any] = json.loads((Path(__file__).parent.parent / "vectors" / "rotation_v1.json").read_text())
_INPUTS: dict[str, Any] = {
    name: value if "server" in name and "key" not in name else bytes.fromhex(value)
    for name, value in _VECTORS["inputs"].items()
}
_FRAMES = {name: bytes.fromhex(frame) for name, frame in _VECTORS["frames"].items()}


def _expand(secret: bytes, label: bytes, context: bytes) -> bytes:
    label = b"qsratchet-v1 " + label
    info = struct.pack(">HB", 32, len(label)) + label + struct.pack(">H", len(context)) + context
    return hmac.new(secret, info + b"\x01", hashlib.sha256).digest()


def _address(server: str, sender_id: bytes) -> bytes:
    return struct.pack(">H", len(server)) + server.encode() + sender_id


_NEW = _address(_INPUTS["new server"], _INPUTS["new sender id"])
_OLD = _address(_INPUTS["old server"], _INPUTS["old sender id"])
_ALICE = X25519PrivateKey.from_private_bytes(_INPUTS["receiver dh seed"])
_BOB = X25519PrivateKey.from_private_bytes(_INPUTS["sender dh seed"])


def _public(key: X25519PrivateKey) -> bytes:
    return key.public_key().public_bytes_raw()


def _keys() -> tuple[bytes, bytes]:
    shared = _ALICE.exchange(X25519PublicKey.from_public_bytes(_public(_BOB)))
    secret = hmac.new(b"qsratchet rotation v1", shared, hashlib.sha256).digest()
    context = _NEW + _public(_ALICE) + _INPUTS["sender server key"] + _public(_BOB)
    return _expand(secret, b"rotation queue", context), _expand(secret, b"rotation hello", context)


def _frame(number: int, body: bytes) -> bytes:
    return b"\x01" + struct.pack(">Q", number) + body


def _hello(flags: int, extra: bytes) -> bytes:
    body = b"QH" + bytes([flags]) + _NEW + extra
    return _frame(0, body + _expand(_keys()[1], b"rotation hello mac", body))


def test_the_independent_implementation_gives_the_same_bytes() -> None:
    pair = _INPUTS["sender server key"] + _public(_BOB)
    expected = {
        "application": _frame(1, b"AMhello"),
        "empty application": _frame(2**64 - 1, b"AM"),
        "QNEW": _frame(2, b"QN\x00" + _NEW + _public(_ALICE) + _OLD),
        "QNEW fast": _frame(3, b"QN\x01" + _NEW + _public(_ALICE) + _OLD),
        "QKEYS": _frame(4, b"QK" + _NEW + pair),
        "QREADY": _frame(5, b"QR" + _NEW),
        "QREADY or the seed's QSWITCH, by ID": _frame(6, b"QR" + _INPUTS["new sender id"]),
        "QSWITCH": _frame(7, b"QS" + _INPUTS["new sender id"]),
        "QSWITCH by address": _frame(8, b"QS" + _NEW),
        "QHELLO plain": _hello(0, b""),
        "QHELLO with keys": _hello(1, pair),
        "QHELLO with last": _hello(2, struct.pack(">Q", 41)),
    }
    assert expected == _FRAMES
    assert _keys() == (bytes.fromhex(_VECTORS["queue key"]), bytes.fromhex(_VECTORS["hello key"]))


def test_the_library_reads_every_vector_and_writes_it_back() -> None:
    for frame in _FRAMES.values():
        decoded = decode_frame(frame)
        assert encode_frame(decoded.number, decoded.message) == frame


def test_both_parties_of_the_library_derive_the_keys_of_the_vectors() -> None:
    queue = QueueAddress(server=_INPUTS["new server"], sender_id=_INPUTS["new sender id"])
    keys = SenderKeys(server_key=_INPUTS["sender server key"], dh_key=_public(_BOB))
    receiver = derive_for_receiver(DhKey(_INPUTS["receiver dh seed"]), queue, keys)
    sender = derive_for_sender(DhKey(_INPUTS["sender dh seed"]), queue, _public(_ALICE), keys)
    for derived in (receiver, sender):
        assert (derived.queue.hex(), derived.hello.hex()) == (_VECTORS["queue key"], _VECTORS["hello key"])


def test_every_bit_of_a_qhello_is_under_its_mac() -> None:
    key = bytes.fromhex(_VECTORS["hello key"])
    true = decode_frame(_FRAMES["QHELLO with last"]).message
    assert isinstance(true, QHello)
    assert authentic(key, true)
    frame = _FRAMES["QHELLO with last"]
    for bit in range(9 * 8, 8 * len(frame)):
        changed = bytearray(frame)
        changed[bit // 8] ^= 1 << (bit % 8)
        try:
            message = decode_frame(changed).message
        except DecodeError:
            continue
        assert isinstance(message, QHello)
        assert not authentic(key, message)
