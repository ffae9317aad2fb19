"""Output that is whole or absent: written under another name beside its place, and moved there at the end."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from qsratchet import MisuseError, QSRatchetError

__all__ = ["NotWritten", "folder_at_end", "replaced_at_end", "system_sentence"]

_ADVICE: Final = {
    errno.ENOSPC: "the disk is full; free some space, or name a place on another disk",
    errno.EDQUOT: "the disk quota is used up; free some space, or name a place on another disk",
    errno.EFBIG: "the file is larger than the system allows (see `ulimit -f`, and the limits of the file system)",
}


class NotWritten(QSRatchetError):
    """The system refused to write an output; nothing of it is left."""

    def __init__(self, place: Path, reason: str) -> None:
        super().__init__(f"{place} cannot be written: {reason}")
        self.place = place
        self.reason = reason


def system_sentence(error: OSError) -> str:
    """What the system refused, in words, with what to do where that is known."""
    if error.errno in _ADVICE:
        return _ADVICE[error.errno]
    said = error.strerror or type(error).__name__
    return said if error.filename is None else f"{said} ({error.filename})"


@contextmanager
def replaced_at_end(path: str | os.PathLike[str], *, private: bool = False) -> Iterator[IO[bytes]]:
    """A file to write to; it takes the place of `path` when the block ends well, and vanishes when it does not.

    A private file is readable by its user alone from its first byte on.
    """
    place = Path(path)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{place.name}.", suffix=".part", dir=place.parent)
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
    except BrokenPipeError:
        # That is a reader of standard output who went away; it says nothing of this place.
        raise
    except OSError as error:
        raise NotWritten(place, system_sentence(error)) from None


@contextmanager
def folder_at_end(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A folder to write into; it becomes `path`, which must not exist or be empty, when the block ends well."""
    place = Path(path)
    if (place.is_dir() and any(place.iterdir())) or (place.exists() and not place.is_dir()):
        raise MisuseError(f"{place} is there already: name a folder that does not exist, or remove it first")
    work: Path | None = None
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{place.name}.", suffix=".part", dir=place.parent))
        try:
            yield work
            umask = os.umask(0)
            os.umask(umask)
            work.chmod(0o777 & ~umask)
            work.replace(place)
        except BaseException:
            shutil.rmtree(work, ignore_errors=True)
            raise
    except BrokenPipeError:
        raise
    except OSError as error:
        raise NotWritten(place, system_sentence(error)) from None
    except NotWritten as error:
        # A file within the folder is known to nobody under its passing name.
        if work is None or not error.place.is_relative_to(work):
            raise
        raise NotWritten(place, error.reason) from None
