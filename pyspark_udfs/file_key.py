"""Where the key of a sealed file comes from: a passphrase, or a key service of the host's.

The objects here are references: they say where a secret is found and are safe to pickle, print and ship to executors,
which look it up for themselves.  The exception is `Passphrase`, which holds the secret, stays in its process and
refuses to be pickled.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, assert_never

from qsratchet import MisuseError
from qsratchet.crypto.kdf import HKDF_SHA256, KEY_SIZE
from qsratchet.crypto.passphrase import ScryptCost, stretch
from qsratchet.crypto.secret import Sensitive

__all__ = ["FileKey", "KeyService", "Passphrase", "PassphraseFile", "PassphraseVariable", "root_key"]


class Passphrase(Sensitive):
    """A passphrase that is at hand, for work in this process only."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text


@dataclass(frozen=True, slots=True)
class PassphraseFile:
    """A passphrase in a file, such as a mounted secret; one newline at its end does not count."""

    path: str


@dataclass(frozen=True, slots=True)
class PassphraseVariable:
    """A passphrase in an environment variable of the process that reads the file."""

    name: str = "QSRATCHET_PASSPHRASE"


@dataclass(frozen=True, slots=True)
class KeyService:
    """A function of the host's, by its name `module:function`: it takes the file's hint and returns 32 secret bytes.

    The hint is stored in the file in clear: the name of a key, or a data key that the service has wrapped.
    """

    function: str


FileKey: TypeAlias = Passphrase | PassphraseFile | PassphraseVariable | KeyService


def root_key(source: FileKey, salt: bytes, cost: ScryptCost | None, hint: bytes) -> bytes:
    """The key that all others of a file follow from; `cost` is None for a file of a key service."""
    if isinstance(source, KeyService):
        if cost is not None:
            raise MisuseError("this file was sealed with a passphrase, not by a key service: give the passphrase")
        return HKDF_SHA256.extract(salt, _service_key(source, hint))
    if cost is None:
        raise MisuseError("this file was sealed with a key service's key: name the function that asks the service")
    return stretch(_passphrase(source), salt, cost)


def _passphrase(source: Passphrase | PassphraseFile | PassphraseVariable) -> bytes:
    match source:
        case Passphrase():
            text = source._text
        case PassphraseFile():
            try:
                text = Path(source.path).read_text(encoding="utf-8").removesuffix("\n").removesuffix("\r")
            except (OSError, UnicodeDecodeError) as error:
                reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
                raise MisuseError(f"the passphrase file {source.path} cannot be read here: {reason}") from None
        case PassphraseVariable():
            text = os.environ.get(source.name, "")
            if not text:
                raise MisuseError(
                    f"the environment variable {source.name} is not set in process {os.getpid()}: export the "
                    "passphrase in it before Spark starts, on every machine that runs executors, or name a file"
                )
        case _:
            assert_never(source)
    if not text:
        raise MisuseError("the passphrase is empty")
    return text.encode()


def _service_key(source: KeyService, hint: bytes) -> bytes:
    module, _, name = source.function.partition(":")
    try:
        function: Callable[[bytes], object] = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError):
        raise MisuseError(
            f"the key function {source.function!r} cannot be imported here: write it as module:function and ship the "
            "module to the executors (spark-submit --py-files)"
        ) from None
    try:
        key = function(hint)
    except Exception as error:  # noqa: BLE001 - whatever the host raises may quote the key, so only its type is told.
        raise MisuseError(f"the key function {source.function!r} failed with {type(error).__name__}") from None
    if not isinstance(key, bytes) or len(key) != KEY_SIZE:
        raise MisuseError(f"the key function {source.function!r} must return {KEY_SIZE} bytes")
    return key
