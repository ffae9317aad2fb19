"""Bulk audit of exported queues on Spark: decrypt and verify queues of any size, with findings instead of crashes."""

from .schemas import CHECKPOINTS, EXPORT, EXPORT_COPIES, FINDINGS, GRANTS, HEADS, MESSAGES, SUMMARY, TOTAL
from .sources import GrantSource, KeySource

__all__ = [
    "CHECKPOINTS",
    "EXPORT",
    "EXPORT_COPIES",
    "FINDINGS",
    "GRANTS",
    "HEADS",
    "MESSAGES",
    "SUMMARY",
    "TOTAL",
    "GrantSource",
    "KeySource",
]
