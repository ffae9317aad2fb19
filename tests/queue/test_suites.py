"""The table of suites and the derivations under it."""

from __future__ import annotations

import hmac
import os

import pytest
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from qsratchet import DEFAULT_SUITE, SUITES, LimitExceeded
from qsratchet.crypto.kdf import BLAKE2B, HKDF_SHA256, Kdf
from qsratchet.crypto.secret import Sensitive


def test_the_table_has_the_four_suites_of_the_protocol_document() -> None:
    assert {id: suite.name for id, suite in SUITES.items()} == {
        0x0001: "X25519 / HKDF-SHA256 / AESGCM",
        0x0002: "X-Wing / HKDF-SHA256 / AESGCM",
        0x0003: "X-Wing / BLAKE2b / AESGCM",
        0x0004: "X-Wing / BLAKE2b / ChaCha20Poly1305",
    }
    assert DEFAULT_SUITE == 0x0002


@pytest.mark.parametrize("kdf", [HKDF_SHA256, BLAKE2B], ids=lambda kdf: kdf.name)
def test_a_step_is_two_derivations_under_distinct_labels(kdf: Kdf) -> None:
    for _ in range(200):
        key = os.urandom(32)
        assert kdf.step(key) == (kdf.expand(key, b"message"), kdf.expand(key, b"next"))
        assert kdf.advance(key, 3) == kdf.step(kdf.step(kdf.step(key)[1])[1])[1]
        assert kdf.advance(key, 0) == key


@pytest.mark.parametrize("length", [1, 32, 33, 64, 100])
def test_hkdf_is_that_of_the_cryptography_package(length: int) -> None:
    key = os.urandom(32)
    info = length.to_bytes(2, "big") + b"\x12qsratchet-v1 label\x00\x07context"
    expected = HKDFExpand(SHA256(), length, info).derive(key)
    assert HKDF_SHA256.expand(key, b"label", b"context", length) == expected
    assert HKDF_SHA256.extract(b"salt", b"ikm") == hmac.digest(b"salt", b"ikm", "sha256")


def test_outputs_longer_than_a_function_gives_are_refused() -> None:
    with pytest.raises(LimitExceeded):
        HKDF_SHA256.expand(bytes(32), b"label", b"", 255 * 32 + 1)
    with pytest.raises(LimitExceeded):
        BLAKE2B.expand(bytes(32), b"label", b"", 65)


def test_every_label_and_length_gives_another_key() -> None:
    labels = (b"ratchet", b"message", b"next", b"rotation", b"confirm", b"head")
    for kdf in (HKDF_SHA256, BLAKE2B):
        outputs = [kdf.expand(bytes(32), label, context, 32) for label in labels for context in (b"", b"\0", b"\0\0")]
        outputs += [kdf.expand(bytes(32), label, b"", 33)[:32] for label in labels]
        outputs += [kdf.hash(b""), kdf.extract(bytes(32), b"")]
        assert len(set(outputs)) == len(outputs)


def test_an_object_that_says_nothing_of_itself_shows_only_its_name() -> None:
    assert repr(Sensitive()) == "<Sensitive>"
