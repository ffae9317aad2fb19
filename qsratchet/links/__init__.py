"""Short links: one secret of 32 bytes leads to a queue and opens the blobs that are stored with it.

The guide is docs/links.md; every byte is in docs/protocol.md, "Short links".
"""

from .effects import CreateQueue, DeleteQueue, FetchBlobs, ReplaceBlobs, SecureQueue, ServerRequest
from .errors import BlobFault, BlobRejected, LinkFault, LinkRejected
from .kinds import BLOB_SIZES, LinkKind, LinkMode, Priority, content_limit
from .link import Link
from .opening import OpenedLink, Opening
from .owner import OwnerLink, create_link
from .qr import qr_svg, qr_terminal
from .server import ServerAddress
from .text import format_link, parse_link
from .versions import SeenVersions

__all__ = [
    "BLOB_SIZES",
    "BlobFault",
    "BlobRejected",
    "CreateQueue",
    "DeleteQueue",
    "FetchBlobs",
    "Link",
    "LinkFault",
    "LinkKind",
    "LinkMode",
    "LinkRejected",
    "OpenedLink",
    "Opening",
    "OwnerLink",
    "Priority",
    "ReplaceBlobs",
    "SecureQueue",
    "SeenVersions",
    "ServerAddress",
    "ServerRequest",
    "content_limit",
    "create_link",
    "format_link",
    "parse_link",
    "qr_svg",
    "qr_terminal",
]
