"""The package of the audit: its names, and what is said where Spark is not installed."""

from __future__ import annotations

import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import pyspark_udfs

ROOT = Path(__file__).parents[2]


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)


def test_every_name_of_the_package_is_there() -> None:
    assert [name for name in pyspark_udfs.__all__ if not hasattr(pyspark_udfs, name)] == []
    assert set(pyspark_udfs.__all__) == set(pyspark_udfs._HOME)
    assert set(pyspark_udfs.__all__) <= set(dir(pyspark_udfs))
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = pyspark_udfs.no_such_name


def test_no_name_is_that_of_a_file_too() -> None:
    """Importing a file puts it into the package under its name, in the place of whatever was there."""
    files = {module.name for module in pkgutil.iter_modules(pyspark_udfs.__path__)}
    assert len(files) > 20
    assert files.isdisjoint(pyspark_udfs.__all__)


@pytest.mark.parametrize("missing", ["pyspark", "pyarrow"])
def test_without_spark_one_sentence_says_what_to_install(missing: str) -> None:
    gone = f"import sys; sys.modules[{missing!r}] = None\n"
    done = run(gone + "from pyspark_udfs import audit")
    assert done.stderr.splitlines()[-1] == f"ImportError: the audit needs {missing}: pip install 'qsratchet[spark]'"
    done = run(gone + "from pyspark_udfs.cli import main; sys.exit(main(['demo']))")
    assert (done.returncode, done.stderr) == (
        2,
        f"pyspark_udfs: {missing} is missing: pip install 'qsratchet[spark]'\n",
    )
