"""Short links against their floor: the same primitives on the same bytes, called bare, in the same run.

    python benchmarks/bench_links.py [--quick]

For every kind and mode: derive the sender ID and the keys, seal all blobs, open all blobs, and for the text parse and
format.  The floor of a row is the bare primitives that the protocol cannot do without: HMAC-SHA256 for
derivations, ChaCha20-Poly1305 on the padded sizes, Ed25519 for bound links.  A ratio of 1.0 would be a
library that costs nothing.  Times are the best of several rounds, in microseconds.
"""

from __future__ import annotations

import argparse
import hashlib
import hmac
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from qsratchet.links import (
    BLOB_SIZES,
    LinkKind,
    LinkMode,
    Opening,
    Priority,
    ServerAddress,
    content_limit,
    create_link,
    format_link,
    parse_link,
)

SERVER = ServerAddress(hosts=("queue.example.org", "backup.example.org"), port=5223, fingerprint=bytes(range(32)))
Pair = tuple[str, Callable[[], object], Callable[[], object]]


def best(rounds: int, calls: int, *functions: Callable[[], object]) -> list[float]:
    """The best time of a call, in microseconds; the functions take turns, so that noise meets them alike."""
    times = [float("inf")] * len(functions)
    for _ in range(rounds):
        for index, function in enumerate(functions):
            start = time.perf_counter()
            for _ in range(calls):
                function()
            times[index] = min(times[index], (time.perf_counter() - start) / calls * 1e6)
    return times


def bare_derive() -> None:
    """One extract and four expands: what the sender ID and three keys cost at least."""
    secret = hmac.digest(b"qsratchet-v1 link", bytes(32), "sha256")
    for _ in range(4):
        hmac.digest(secret, bytes(80), "sha256")


def pairs(kind: LinkKind, mode: LinkMode) -> list[Pair]:
    """What is measured for one kind and mode: a name, the library's call, and its floor."""
    contents = {priority: os.urandom(content_limit(kind, priority)) for priority in Priority}
    owner, creation = create_link(server=SERVER, kind=kind, mode=mode, contents=contents)
    blobs, opening = creation.blobs, Opening.start(owner.link)
    sizes = [BLOB_SIZES[kind][priority] - 28 for priority in Priority]
    key, aad = bytes(32), bytes(28)
    plain = [bytes(size) for size in sizes]
    sealed = [(nonce := os.urandom(12), ChaCha20Poly1305(key).encrypt(nonce, text, aad)) for text in plain]
    signer = Ed25519PrivateKey.generate()
    public = signer.public_key().public_bytes_raw()
    signatures = [signer.sign(text) for text in plain]

    def bare_seal() -> None:
        bare_derive()
        for text in plain:
            if mode is LinkMode.BOUND:
                signer.sign(text)
            ChaCha20Poly1305(key).encrypt(os.urandom(12), text, aad)

    def bare_open() -> None:
        bare_derive()
        if mode is LinkMode.BOUND:
            hashlib.sha256(bytes(99)).digest()
        for (nonce, data), text, signature in zip(sealed, plain, signatures, strict=True):
            ChaCha20Poly1305(key).decrypt(nonce, data, aad)
            # What a reader remembers is a digest of each content.
            hashlib.sha256(text).digest()
            if mode is LinkMode.BOUND:
                Ed25519PublicKey.from_public_bytes(public).verify(signature, text)

    return [
        ("derive", owner.link.keys, bare_derive),
        ("seal 3 blobs", lambda: owner.replace(contents), bare_seal),
        ("open 3 blobs", lambda: opening.open(blobs), bare_open),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few calls: shows that it runs, not how fast")
    quick = parser.parse_args().quick
    rounds, calls = (3, 20) if quick else (100, 20)
    print(f"{'link':16} {'what':14} {'library µs':>11} {'bare µs':>9} {'ratio':>6}")
    for kind in LinkKind:
        for mode in LinkMode:
            name = f"{mode.name.lower()} {kind.name.lower().replace('_', '-')}"
            for what, library, bare in pairs(kind, mode):
                mine, floor = best(rounds, calls, library, bare)
                print(f"{name:16} {what:14} {mine:11.1f} {floor:9.1f} {mine / floor:6.2f}")
    owner, _ = create_link(server=SERVER, kind=LinkKind.CONTACT, contents={Priority.RATCHET_KEYS: b""})
    text = format_link(owner.link)
    for what, function in (("format text", lambda: format_link(owner.link)), ("parse text", lambda: parse_link(text))):
        (mine,) = best(rounds, calls, function)
        print(f"{'any':16} {what:14} {mine:11.1f} {'-':>9} {'-':>6}")


if __name__ == "__main__":
    main()
