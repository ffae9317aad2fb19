"""Turns what Spark raises into one sentence that says what to do: its own texts are pages long.

Only errors that end a job come here.  A bad row is a finding and never an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from qsratchet import QSRatchetError

__all__ = ["AuditFailed", "spark_errors_in_a_sentence"]

#: What a Python worker raised: the last line of its traceback.
_RAISED: Final = re.compile(r"^(?:[\w.]+\.)?(\w*(?:Error|Exception|WrongKey|Rejected|Exceeded)): (.+)$", re.MULTILINE)
_CAUSE: Final = re.compile(r"Caused by: [\w.$]+: (.+)")


class AuditFailed(QSRatchetError):
    """Spark could not do the work; nothing was written."""


@contextmanager
def spark_errors_in_a_sentence() -> Iterator[None]:
    """Raise `AuditFailed`, with the sentence that matters, for whatever Spark raises in the block."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise AuditFailed(_sentence(str(error))) from None


def _sentence(text: str) -> str:
    if "No space left on device" in text:
        return "the disk is full: free some space, or set --conf spark.local.dir to a larger disk; nothing was written"
    raised = _RAISED.findall(text)
    if raised:
        kind, said = raised[-1]
        return said if kind in _OURS else f"{kind}: {said}"
    causes = _CAUSE.findall(text)
    first = next((line.strip() for line in text.splitlines() if line.strip()), "Spark failed without a reason")
    said = str(causes[-1]).strip() if causes else first
    if "is not a Parquet file" in said or "Could not read footer" in text or "not a Parquet" in text:
        return f"a file of the export is damaged or cut short: {said}; export it again, or take it out of the folder"
    if "PATH_NOT_FOUND" in first:
        return f"{first.partition('] ')[2] or first} Check the path, and that every machine of the cluster sees it."
    return said


_OURS: Final = frozenset({"MisuseError", "StateError", "WrongKey", "DecodeError"})
