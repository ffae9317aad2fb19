"""The library's KDFs, with their fast paths, against three other ways to compute the same."""

from __future__ import annotations

import hmac

import pytest
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand
from hypothesis import given
from hypothesis import strategies as st

from qsratchet.crypto.kdf import BLAKE2B, HKDF_SHA256, Kdf
from tests.vectors import reference

KEY = st.binary(min_size=32, max_size=32)
LABELS = (b"ratchet", b"message", b"next", b"rotation", b"confirm", b"head")
#: A suite of the reference that has the KDF.
KDFS = [pytest.param(HKDF_SHA256, 1, id="HKDF-SHA256"), pytest.param(BLAKE2B, 3, id="BLAKE2b")]


@pytest.mark.parametrize(("kdf", "suite"), KDFS)
@given(key=KEY, steps=st.integers(0, 40))
def test_step_and_advance_are_expand_under_their_labels(kdf: Kdf, suite: int, key: bytes, steps: int) -> None:
    assert kdf.step(key) == (kdf.expand(key, b"message"), kdf.expand(key, b"next"))
    assert kdf.step(key) == (reference.message_key(suite, key), reference.next_key(suite, key))
    assert kdf.advance(key, steps) == reference.next_key(suite, key, steps)


@pytest.mark.parametrize(("kdf", "suite"), KDFS)
@given(data=st.data(), key=KEY, label=st.sampled_from(LABELS), context=st.binary(max_size=300))
def test_all_three_functions_agree_with_the_reference(
    kdf: Kdf, suite: int, data: st.DataObject, key: bytes, label: bytes, context: bytes
) -> None:
    size = data.draw(st.integers(1, 255 * 32 if kdf is HKDF_SHA256 else 64))
    assert kdf.expand(key, label, context, size) == reference.expand(suite, key, label, context, size)
    assert kdf.expand(key, label, context) == reference.expand(suite, key, label, context)
    assert kdf.hash(context) == reference.digest(suite, context)
    assert kdf.extract(key, context) == reference.extract(suite, key, context)


@given(key=KEY, label=st.sampled_from(LABELS), context=st.binary(max_size=300), size=st.integers(1, 200))
def test_hkdf_is_that_of_cryptography_and_its_first_block_an_hmac(
    key: bytes, label: bytes, context: bytes, size: int
) -> None:
    full = b"qsratchet-v1 " + label
    info = size.to_bytes(2, "big") + bytes([len(full)]) + full + len(context).to_bytes(2, "big") + context
    expanded = HKDF_SHA256.expand(key, label, context, size)
    assert expanded == HKDFExpand(SHA256(), size, info).derive(key)
    assert expanded[:32] == hmac.digest(key, info + b"\x01", "sha256")[:size]
    assert HKDF_SHA256.extract(key, context) == hmac.digest(key, context, "sha256")


@given(key=KEY)
def test_the_hkdf_fast_path_is_hmac_and_hkdf_expand(key: bytes) -> None:
    def info(label: bytes) -> bytes:
        return b"\x00\x20" + bytes([13 + len(label)]) + b"qsratchet-v1 " + label + b"\x00\x00"

    by_hmac = [hmac.digest(key, info(label) + b"\x01", "sha256") for label in (b"message", b"next")]
    by_pyca = [HKDFExpand(SHA256(), 32, info(label)).derive(key) for label in (b"message", b"next")]
    assert list(HKDF_SHA256.step(key)) == by_hmac == by_pyca
    assert HKDF_SHA256.advance(key, 1) == by_hmac[1]
