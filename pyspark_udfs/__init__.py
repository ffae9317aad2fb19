"""Bulk audit of exported queues on Spark: decrypt and verify queues of any size, with findings instead of crashes.

Names are imported when they are first used: workers, which need few of them, start sooner, and the command can say in
a sentence that PySpark is missing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .auditing import AuditResult, audit, open_frames, total
    from .defects import parse_defects
    from .derive import control_frames, derive_grants
    from .export_file import ExportWriter
    from .file_key import FileKey, KeyService, Passphrase, PassphraseFile, PassphraseVariable
    from .grant_file import GrantFile, KeyFile, write_grants, write_keys
    from .headers import HEADER_SQL, header, with_header
    from .kinds import OK, Kind
    from .layout import Layout, layout_of
    from .live import live_findings, live_heads, live_summary, watch
    from .parquet_files import ParquetFiles
    from .report import Report, render, write_report
    from .report_data import gather
    from .sample import Sample, make_sample
    from .schemas import CHECKPOINTS, EXPORT, EXPORT_COPIES, FINDINGS, GRANTS, HEADS, MESSAGES, SUMMARY, TOTAL
    from .session import SETTINGS, start_session
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
    "SETTINGS",
    "SUMMARY",
    "TOTAL",
    "AuditResult",
    "ExportWriter",
    "FileKey",
    "GrantFile",
    "GrantSource",
    "KeyFile",
    "KeyService",
    "KeySource",
    "Kind",
    "Layout",
    "ParquetFiles",
    "Passphrase",
    "PassphraseFile",
    "PassphraseVariable",
    "Report",
    "Sample",
    "audit",
    "control_frames",
    "derive_grants",
    "gather",
    "header",
    "layout_of",
    "live_findings",
    "live_heads",
    "live_summary",
    "make_sample",
    "open_frames",
    "parse_defects",
    "register",
    "render",
    "start_session",
    "total",
    "watch",
    "with_header",
    "write_grants",
    "write_keys",
    "write_report",
]

#: Where each name is.
_HOMES = {
    "auditing": ("AuditResult", "audit", "open_frames", "total"),
    "defects": ("parse_defects",),
    "derive": ("control_frames", "derive_grants"),
    "export_file": ("ExportWriter",),
    "file_key": ("FileKey", "KeyService", "Passphrase", "PassphraseFile", "PassphraseVariable"),
    "grant_file": ("GrantFile", "KeyFile", "write_grants", "write_keys"),
    "headers": ("HEADER_SQL", "header", "with_header"),
    "kinds": ("OK", "Kind"),
    "layout": ("Layout", "layout_of"),
    "live": ("live_findings", "live_heads", "live_summary", "watch"),
    "parquet_files": ("ParquetFiles",),
    "report": ("Report", "render", "write_report"),
    "report_data": ("gather",),
    "sample": ("Sample", "make_sample"),
    "schemas": (
        "CHECKPOINTS", "EXPORT", "EXPORT_COPIES", "FINDINGS", "GRANTS", "HEADS", "MESSAGES", "SUMMARY", "TOTAL",
    ),
    "session": ("SETTINGS", "start_session"),
    "sources": ("GrantSource", "KeySource"),
    "sql": ("register",),
}  # fmt: skip
_HOME = {name: home for home, names in _HOMES.items() for name in names}
#: What the `spark` extra brings.
EXTRA = frozenset({"numpy", "pandas", "py4j", "pyarrow", "pyspark"})


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        value: object = getattr(import_module(f".{_HOME[name]}", __name__), name)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in EXTRA:
            raise
        raise ImportError(f"the audit needs {missing}: pip install 'qsratchet[spark]'", name=missing) from None
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
