"""A link as text that a person pastes: one spelling per link, with a checksum over every character.

    qsr:1cb/<key>/<fingerprint>/<port>/<host>,<host>/<checksum>
    https://<site>/qsr#1cb/<key>/<fingerprint>/<port>/<host>,<host>/<checksum>

All that matters in the https form comes after the `#`, which browsers do not send to the site.  This module
knows characters; it derives nothing (docs/protocol.md, "Short links").
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final
from zlib import crc32

from ..errors import MisuseError
from .errors import LinkFault, LinkRejected
from .kinds import FORMAT, LinkKind, LinkMode
from .link import Link
from .server import ServerAddress, check_host

__all__ = ["MAX_LINK_TEXT", "format_link", "parse_link"]

#: The longest link there can be: a site and four hosts of 253 characters each.  It bounds the work on a paste.
MAX_LINK_TEXT: Final = 1388

# The letters are part of the format; the numbers of the enumerations are not in the text.
_KIND_LETTERS: Final = {LinkKind.ONE_TIME: "i", LinkKind.CONTACT: "c"}
_MODE_LETTERS: Final = {LinkMode.DIRECT: "d", LinkMode.BOUND: "b"}
_KINDS: Final = {letter: kind for kind, letter in _KIND_LETTERS.items()}
_MODES: Final = {letter: mode for mode, letter in _MODE_LETTERS.items()}

# A link that lost all from the # on is still recognised, to tell its reader what happened.
_FORMS: Final = re.compile(r"(?:qsr:|https://(?P<site>[^/#]*)/qsr(?:#|\Z))(?P<body>.*)", re.DOTALL)
_CHARACTERS: Final = re.compile(r"[A-Za-z0-9_.,:/#\[\]-]*")
_CHECKSUM: Final = re.compile(r"[0-9a-f]{8}")
_PORT: Final = re.compile(r"[1-9][0-9]{0,4}")
_KEY: Final = re.compile(r"[A-Za-z0-9_-]{43}")
_SEGMENTS: Final = 6

_AGAIN: Final = "copy it again from where it was shared, from the first character to the last"


def format_link(link: Link, *, site: str | None = None) -> str:
    """The text of a link: the `qsr:` form, or the https form at this site.

    The site is a host name: that of a web page that tells a person without the application what to do.
    """
    fields = "/".join(
        (
            f"{FORMAT}{_KIND_LETTERS[link.kind]}{_MODE_LETTERS[link.mode]}",
            _base64(link.key),
            _base64(link.server.fingerprint),
            str(link.server.port),
            ",".join(link.server.hosts),
        )
    )
    if site is None:
        return _checked(f"qsr:{fields}")
    check_host(site)
    return _checked(f"https://{_bracketed(site)}/qsr#{fields}")


def parse_link(text: str) -> Link:
    """Read either form of a link; `LinkRejected` says what is wrong and what to do."""
    if len(text) > MAX_LINK_TEXT:
        raise LinkRejected(LinkFault.NOT_A_LINK, f"it has {len(text)} characters, and a link at most {MAX_LINK_TEXT}")
    form = _FORMS.fullmatch(text)
    if form is None:
        raise LinkRejected(LinkFault.NOT_A_LINK, f"it starts neither with qsr: nor with https://…/qsr#; {_AGAIN}")
    if not _CHARACTERS.fullmatch(text):
        raise LinkRejected(
            LinkFault.DAMAGED, f"it has a space, line break or other character that no link has; {_AGAIN}"
        )
    body: str = form["body"]
    checked, _, checksum = text.rpartition("/")
    if not _CHECKSUM.fullmatch(checksum) or checksum != _crc(checked):
        what = "it is cut short" if body.count("/") < _SEGMENTS - 1 else "a character is wrong or missing"
        raise LinkRejected(LinkFault.DAMAGED, f"{what}; {_AGAIN}")
    # From here on the text is as its maker wrote it.
    if not body.startswith(str(FORMAT)):
        raise LinkRejected(LinkFault.UNSUPPORTED, "it was made by a newer release; update this program to open it")
    try:
        if form["site"] is not None:
            _check_site(form["site"])
        return _read(body.split("/"))
    except MisuseError as error:
        raise LinkRejected(
            LinkFault.MALFORMED, f"the program that made it does not follow the format: {error}"
        ) from None


def _read(segments: list[str]) -> Link:
    """Read what is between the slashes; the caller turns `MisuseError` into its own error."""
    if len(segments) != _SEGMENTS:
        raise MisuseError(f"it has {len(segments)} parts instead of {_SEGMENTS}")
    type, key, fingerprint, port, hosts, _ = segments
    kind, mode = _KINDS.get(type[1:2]), _MODES.get(type[2:])
    if kind is None or mode is None:
        raise MisuseError("its type is unknown")
    if not _PORT.fullmatch(port):
        raise MisuseError("its port is not a number")
    server = ServerAddress(hosts=tuple(hosts.split(",")), port=int(port), fingerprint=_bytes(fingerprint))
    return Link(kind=kind, mode=mode, key=_bytes(key), server=server)


def _bracketed(site: str) -> str:
    return f"[{site}]" if ":" in site else site


def _check_site(written: str) -> None:
    site = written.removeprefix("[").removesuffix("]")
    check_host(site)
    if _bracketed(site) != written:
        raise MisuseError("only an IPv6 address stands in brackets")


def _base64(raw: bytes) -> str:
    return urlsafe_b64encode(raw).decode("ascii").rstrip("=")


def _bytes(text: str) -> bytes:
    """Exactly 32 bytes.  The unused bits of the last character are zero, so that each value has one spelling."""
    if _KEY.fullmatch(text):
        raw = urlsafe_b64decode(text + "=")
        if _base64(raw) == text:
            return raw
    raise MisuseError("a key or fingerprint in it is not 32 bytes in base64url")


def _checked(text: str) -> str:
    return f"{text}/{_crc(text)}"


def _crc(text: str) -> str:
    """CRC-32: it finds every change of one character and every swap of two neighbours, and most others."""
    return f"{crc32(text.encode('ascii')):08x}"
