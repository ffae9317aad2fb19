"""Bulk audit of exported queues on Spark: decrypt and verify queues of any size, with findings instead of crashes."""

from .audit import AuditResult, audit, open_frames, total
from .headers import HEADER_SQL, header, with_header
from .kinds import OK, Kind
from .layout import Layout, layout_of
from .schemas import CHECKPOINTS, EXPORT, EXPORT_COPIES, FINDINGS, GRANTS, HEADS, MESSAGES, SUMMARY, TOTAL
from .sources import GrantSource, KeySource

__all__ = [
    "CHECKPOINTS",
    "EXPORT",
    "EXPORT_COPIES",
    "FINDINGS",
    "GRANTS",
    "HEADER_SQL",
    "HEADS",
    "MESSAGES",
    "OK",
    "SUMMARY",
    "TOTAL",
    "AuditResult",
    "GrantSource",
    "KeySource",
    "Kind",
    "Layout",
    "audit",
    "header",
    "layout_of",
    "open_frames",
    "total",
    "with_header",
]
