"""A link as a QR code: an SVG image, or text for a terminal.

The drawing is done by `segno`, which the extra `qr` installs; it is imported at the first call, so that the
rest of the package does without it.  This module knows text and pictures.
"""

from __future__ import annotations

from io import BytesIO, StringIO
from typing import TYPE_CHECKING

from ..errors import MisuseError
from .link import Link
from .text import format_link

if TYPE_CHECKING:
    from segno import QRCode

__all__ = ["qr_svg", "qr_terminal"]


def qr_svg(link: Link, *, site: str | None = None, scale: int = 4) -> str:
    """An SVG document with the QR code of `format_link(link, site=site)`; a module is `scale` pixels wide."""
    out = BytesIO()
    _code(link, site).save(out, kind="svg", scale=scale, light="white")
    return out.getvalue().decode("utf-8")


def qr_terminal(link: Link, *, site: str | None = None) -> str:
    """The same code as lines of block characters, for a terminal with light text on a dark ground."""
    out = StringIO()
    _code(link, site).terminal(out=out, compact=True)
    return out.getvalue()


def _code(link: Link, site: str | None) -> QRCode:
    try:
        import segno
    except ImportError:
        raise MisuseError("QR codes need the library segno: pip install 'qsratchet[qr]'") from None
    # Level M survives a smudge on a screen or a print; no higher level is put in by itself, so that the code of
    # a link stays the same when it is drawn again.
    return segno.make_qr(format_link(link, site=site), error="m", boost_error=False)
