"""Turns what Spark raises into one sentence that says what to do: its own texts are pages long.

Only errors that end a job come here.  A bad row is a finding and never an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException

from qsratchet import QSRatchetError

__all__ = ["AuditFailed", "spark_errors_in_a_sentence"]

#: What a Python worker raised: the last line of its traceback.
_RAISED: Final = re.compile(r"^(?:[\w.]+\.)?(\w*(?:Error|Exception|WrongKey|Rejected|Exceeded)): (.+)$", re.MULTILINE)
_CAUSE: Final = re.compile(r"Caused by: [\w.$]+: (.+)")


#: What the systems of Spark's processes say when a disk takes no more, and what that is called here.
_FULL: Final = {
    "No space left on device": "the disk is full",
    "Disk quota exceeded": "the disk quota is used up",
    "File too large": "a file grew larger than the system allows (`ulimit -f`)",
}


class AuditFailed(QSRatchetError):
    """Spark could not do the work."""


@contextmanager
def spark_errors_in_a_sentence(left: str = "nothing was written") -> Iterator[None]:
    """Raise `AuditFailed`, with the sentence that matters, for whatever Spark raises in the block.

    `left` says what is left of the work; it ends sentences that could leave a person in doubt about that.
    """
    try:
        yield
    except BrokenPipeError:
        # Whoever reads the answers has gone away, not Spark.
        raise
    except (PySparkException, Py4JError, ConnectionError) as error:
        raise AuditFailed(_sentence(error, left)) from None


def _sentence(error: Exception, left: str) -> str:
    text = str(error)
    for said, meaning in _FULL.items():
        if said in text:
            return (
                f"{meaning}: free some space where the output goes, or give Spark's own files a larger disk with "
                f"--conf spark.local.dir=FOLDER; {left}"
            )
    if isinstance(error, (Py4JNetworkError, ConnectionError)):
        return (
            "Spark's Java process ended in the middle: it was stopped, or the machine had no memory left for it "
            f"(--conf spark.driver.memory=… changes how much it takes); {left}"
        )
    # Py4J's own errors only wrap what Java raised, which stands further on as a cause.
    raised = [(kind, said) for kind, said in _RAISED.findall(text) if not kind.startswith("Py4J")]
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
