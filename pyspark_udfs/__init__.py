"""Bulk audit of exported queues on Spark: decrypt and verify queues of any size, with findings instead of crashes."""

from .audit import AuditResult, audit, open_frames, total
from .derive import control_frames, derive_grants
from .headers import HEADER_SQL, header, with_header
from .kinds import OK, Kind
from .layout import Layout, layout_of
from .live import live_findings, live_summary, watch
from .schemas import CHECKPOINTS, EXPORT, EXPORT_COPIES, FINDINGS, GRANTS, HEADS, MESSAGES, SUMMARY, TOTAL
from .sources import GrantSource, KeySource
from .sql import register

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
    "control_frames",
    "derive_grants",
    "header",
    "layout_of",
    "live_findings",
    "live_summary",
    "open_frames",
    "register",
    "total",
    "watch",
    "with_header",
]
