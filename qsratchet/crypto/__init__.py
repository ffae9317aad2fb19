"""Primitives: the only package that touches them.  It knows keys and bytes, nothing of queues or links.

The names here are public, for hosts that sign requests, agree on keys and seal their own frames with what this library
already brings.  The modules below are not: the library's own formats use more than a host needs.
"""

from .dh import DH_PUBLIC_SIZE, DhKey
from .kdf import HKDF_SHA256, KEY_SIZE
from .sealing import SealRejected, seal, unseal
from .signing import SIGNATURE_SIZE, SIGNING_PUBLIC_SIZE, SignatureRejected, SigningKey, verify

__all__ = [
    "DH_PUBLIC_SIZE",
    "HKDF_SHA256",
    "KEY_SIZE",
    "SIGNATURE_SIZE",
    "SIGNING_PUBLIC_SIZE",
    "DhKey",
    "SealRejected",
    "SignatureRejected",
    "SigningKey",
    "seal",
    "unseal",
    "verify",
]
