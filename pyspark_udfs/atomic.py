"""Output that is whole or absent: written under another name beside its place, and moved there at the end."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from qsratchet import MisuseError

__all__ = ["folder_at_end", "replaced_at_end"]


@contextmanager
def replaced_at_end(path: str | os.PathLike[str], *, private: bool = False) -> Iterator[IO[bytes]]:
    """A file to write to; it takes the place of `path` when the block ends well, and vanishes when it does not.

    A private file is readable by its user alone from its first byte on.
    """
    place = Path(path)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{place.name}.", suffix=".part", dir=place.parent)
    except OSError as error:
        raise MisuseError(f"{place} cannot be written: {error.strerror}") from None
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if not private:
            umask = os.umask(0)
            os.umask(umask)
            os.chmod(name, 0o666 & ~umask)
        os.replace(name, place)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


@contextmanager
def folder_at_end(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A folder to write into; it becomes `path`, which must not exist or be empty, when the block ends well."""
    place = Path(path)
    if (place.is_dir() and any(place.iterdir())) or (place.exists() and not place.is_dir()):
        raise MisuseError(f"{place} is there already: name a folder that does not exist, or remove it first")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{place.name}.", suffix=".part", dir=place.parent))
    except OSError as error:
        raise MisuseError(f"{place} cannot be written: {error.strerror}") from None
    try:
        yield work
        umask = os.umask(0)
        os.umask(umask)
        work.chmod(0o777 & ~umask)
        work.replace(place)
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise
