"""What can be wrong with a link that somebody pasted, and with a blob that a server returned."""

from __future__ import annotations

from enum import Enum

from ..errors import DecodeError, RejectedError
from .kinds import Priority

__all__ = ["BlobFault", "BlobRejected", "LinkFault", "LinkRejected"]


class LinkFault(Enum):
    """Why a link text was refused."""

    #: It is some other text.
    NOT_A_LINK = 1
    #: It was a link, and was cut short or mistyped on its way: ask for it again.
    DAMAGED = 2
    #: It is whole, and made by a release that knows more than this one.
    UNSUPPORTED = 3
    #: It is whole, and the program that made it did not follow the format.
    MALFORMED = 4


class LinkRejected(DecodeError):
    """A text is not a link that can be used; `fault` says why."""

    def __init__(self, fault: LinkFault, reason: str) -> None:
        super().__init__("link", reason)
        self.fault = fault


class BlobFault(Enum):
    """Why a blob was refused."""

    #: Priority 0 is not there; it is the one blob that a server must not drop.
    MISSING = 1
    #: It does not have the one size that a blob of this kind and priority has.
    SIZE = 2
    #: It does not open: altered, sealed by somebody without the link, or made for another link, priority or server.
    SEAL = 3
    #: It opens, and what is inside does not have the layout of a blob.
    LAYOUT = 4
    #: The fixed data is not that which the link names.
    FIXED_DATA = 5
    #: The owner did not sign this content, at this version, for this place.
    SIGNATURE = 6
    #: You have seen a newer version than this one.
    ROLLED_BACK = 7
    #: You have seen other content under this same version number.
    FORKED = 8


_REASONS = {
    BlobFault.MISSING: "the server did not return it, and without it nobody can connect; ask the owner for a new link",
    BlobFault.SIZE: "it does not have the fixed size of its kind; the server altered it or is not the one in the link",
    BlobFault.SEAL: "it was altered, or it belongs to another link, priority or server",
    BlobFault.LAYOUT: "it opens, but its layout is wrong; whoever sealed it did not follow the format",
    BlobFault.FIXED_DATA: "the fixed data is not what the link names; somebody with the link forged it",
    BlobFault.SIGNATURE: "the owner did not sign it; somebody with the link forged it",
    BlobFault.ROLLED_BACK: "the server returned an older version than the one seen before",
    BlobFault.FORKED: "the server returned other content under a version number seen before",
}


class BlobRejected(RejectedError):
    """The server's blob of this priority was refused.

    A blob of priority 1 or 2 is not needed to connect: take it out of the reply and open again to go on
    without it.
    """

    def __init__(self, priority: Priority, fault: BlobFault) -> None:
        super().__init__(f"blob of priority {int(priority)}: {_REASONS[fault]}")
        self.priority = priority
        self.fault = fault
