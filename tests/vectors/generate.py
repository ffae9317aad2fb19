"""Writes the test vectors of the queue ratchet, with the reference and without the library.

Everything follows from a seed in the file, except ML-KEM encapsulations (suites 2 to 4), whose randomness the
primitive draws itself: they are recorded in the file. So a file is frozen once it is committed; the tests make it again
from its own recording and compare it byte for byte, and they verify it with the reference and with the library.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from tests.vectors.document_cases import all_document_cases
from tests.vectors.frame_cases import add_frame_cases
from tests.vectors.reference import SUITES
from tests.vectors.story import Json, Story, to_json

DIRECTORY = Path(__file__).parent
ABOUT = (
    "Test vectors of the qsratchet queue ratchet, version 1 (docs/protocol.md; tests/vectors/README.md says what is in "
    "here). Byte strings are hexadecimal."
)


def path_of(suite: int, directory: Path = DIRECTORY) -> Path:
    return directory / f"ratchet-{suite:04x}.json"


def make(suite: int, recorded: Sequence[tuple[bytes, bytes]] = ()) -> Json:
    """The content of one file; with the encapsulations recorded in it, the same content again."""
    story = Story(suite, recorded)
    story.tell()
    add_frame_cases(story)
    documents = all_document_cases(story)
    encapsulations = [{"secret": secret, "ciphertext": ct} for secret, ct in story.entropy.encapsulations]
    top: Json = {"about": ABOUT, "suite": suite, "seed": story.seed, "encapsulations": encapsulations}
    made: Json = to_json(top | story.story() | documents)
    return made


def as_text(content: Json) -> str:
    return json.dumps(content, indent=1) + "\n"


def recording(content: Json) -> list[tuple[bytes, bytes]]:
    rows = content["encapsulations"]
    return [(bytes.fromhex(row["secret"]), bytes.fromhex(row["ciphertext"])) for row in rows]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.vectors.generate", description=__doc__)
    parser.add_argument("suites", nargs="*", type=int, default=list(SUITES), help="which suites (default: all)")
    parser.add_argument("--directory", type=Path, default=DIRECTORY, help="where to write (default: beside this file)")
    parser.add_argument("--overwrite", action="store_true", help="replace files that exist; committed ones are frozen")
    options = parser.parse_args(arguments)
    paths = {suite: path_of(suite, options.directory) for suite in options.suites}
    for path in paths.values():
        if path.exists() and not options.overwrite:
            parser.error(f"{path} exists and is frozen; --overwrite replaces it")
    for suite, path in paths.items():
        path.write_text(as_text(make(suite)))
        print(path)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
