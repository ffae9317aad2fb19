"""What follows from the 32 bytes in a link: the sender ID and one key per blob.

Extract, then expand under one label per output; format, mode, kind and the server's identity are in the
context, so that a link read in any other way leads to another queue and other keys (docs/protocol.md,
"Short links").  This module knows nothing of text, servers' names or blobs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ..codec import lv, u8
from ..crypto.kdf import HKDF_SHA256, LABEL_PREFIX
from ..crypto.secret import Sensitive
from .kinds import FORMAT, LinkKind, LinkMode, Priority

__all__ = ["BLOB_SIGNATURE", "LINK_KEY_SIZE", "SENDER_ID_SIZE", "LinkKeys", "context", "derive", "fixed_data_hash"]

LINK_KEY_SIZE: Final = 32
SENDER_ID_SIZE: Final = 24

_SALT: Final = LABEL_PREFIX + b"link"
_SENDER_ID: Final = b"link sender id"
_BLOB_LABELS: Final = tuple(b"link blob %d" % priority for priority in Priority)
_FIXED_DATA: Final = lv(LABEL_PREFIX + b"link fixed data")
#: What every signed message begins with.  It is here because all labels of links are.
BLOB_SIGNATURE: Final = lv(LABEL_PREFIX + b"link blob signature")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class LinkKeys(Sensitive):
    """All that a link gives.  The sender ID goes to the server; the keys never do."""

    sender_id: bytes
    #: By priority.
    blob_keys: tuple[bytes, ...]

    def describe(self) -> str:
        return f"sender {self.sender_id.hex()}"


def context(mode: LinkMode, kind: LinkKind, fingerprint: bytes) -> bytes:
    """What every derivation, the fixed data and every signature of a link begin with."""
    return u8(FORMAT) + u8(mode.value) + u8(kind.value) + fingerprint


def derive(link_key: bytes, ctx: bytes) -> LinkKeys:
    secret = HKDF_SHA256.extract(_SALT, link_key)
    expand = HKDF_SHA256.expand
    return LinkKeys(
        sender_id=expand(secret, _SENDER_ID, ctx, SENDER_ID_SIZE),
        blob_keys=tuple(expand(secret, label, ctx) for label in _BLOB_LABELS),
    )


def fixed_data_hash(fixed_data: bytes) -> bytes:
    """The 32 bytes of a bound link.  They hide the fixed data, because `k` in it is random."""
    return HKDF_SHA256.hash(_FIXED_DATA + fixed_data)
