"""The keys of a rotated queue, and the MAC that binds QHELLO to it.

Alice's X25519 key is in QNEW and Bob's in QKEYS (or in QHELLO, on the fast path).  Both derive from their
exchange one key for the queue, which is the host's to seal messages with, and one for QHELLO.  This module
knows keys; it knows nothing of states.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from ..crypto.dh import DhKey
from ..crypto.kdf import HKDF_SHA256, same
from ..crypto.secret import Sensitive
from .messages import QHello, QueueAddress, SenderKeys

__all__ = ["QueueKeys", "authentic", "derive_for_receiver", "derive_for_sender", "sign_hello"]

_SALT: Final = b"qsratchet rotation v1"
_QUEUE: Final = b"rotation queue"
_HELLO: Final = b"rotation hello"
_MAC: Final = b"rotation hello mac"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class QueueKeys(Sensitive):
    """What both parties derive for one queue."""

    queue: bytes
    hello: bytes


def derive_for_receiver(own: DhKey, queue: QueueAddress, keys: SenderKeys) -> QueueKeys:
    """Alice's derivation; `KeyRejected` when Bob's DH key is a point of low order."""
    return _derive(own.exchange(keys.dh_key), queue, own.public(), keys)


def derive_for_sender(own: DhKey, queue: QueueAddress, receiver_dh_key: bytes, keys: SenderKeys) -> QueueKeys:
    """Bob's derivation; `KeyRejected` when Alice's DH key is a point of low order."""
    return _derive(own.exchange(receiver_dh_key), queue, receiver_dh_key, keys)


def _derive(shared: bytes, queue: QueueAddress, receiver_dh_key: bytes, keys: SenderKeys) -> QueueKeys:
    secret = HKDF_SHA256.extract(_SALT, shared)
    context = queue.encode() + receiver_dh_key + keys.encode()
    return QueueKeys(
        queue=HKDF_SHA256.expand(secret, _QUEUE, context),
        hello=HKDF_SHA256.expand(secret, _HELLO, context),
    )


def sign_hello(hello_key: bytes, hello: QHello) -> QHello:
    """The same QHELLO with its MAC."""
    return replace(hello, mac=HKDF_SHA256.expand(hello_key, _MAC, hello.authenticated()))


def authentic(hello_key: bytes, hello: QHello) -> bool:
    """Whether the MAC of a QHELLO is right."""
    return same(sign_hello(hello_key, hello).mac, hello.mac)
