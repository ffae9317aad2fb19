"""HPKE against published vectors: the reference's, and that of `cryptography`, which the library uses.

The vectors come with the `cryptography_vectors` package: those of RFC 9180, and those of the hybrid KEMs' draft.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import cryptography_vectors
import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hpke
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305
from hypothesis import given
from hypothesis import strategies as st

from qsratchet.crypto import kem as library_kem
from tests.vectors.reference import (
    X25519,
    XWING,
    Entropy,
    decapsulate,
    hpke_open,
    hpke_seal,
    key_schedule,
    public_key_of,
)

unhex = bytes.fromhex
LIBRARY_KEMS = {X25519: library_kem.X25519, XWING: library_kem.XWING}
PYCA_KEMS = {X25519: hpke.KEM.X25519, XWING: hpke.KEM.MLKEM768_X25519}
AEADS: dict[int, tuple[type[AESGCM | ChaCha20Poly1305], hpke.AEAD]] = {
    2: (AESGCM, hpke.AEAD.AES_256_GCM),
    3: (ChaCha20Poly1305, hpke.AEAD.CHACHA20_POLY1305),
}


def applicable() -> list[Any]:
    """Base mode, our two KEMs, HKDF-SHA256, and an AEAD with 32-byte keys."""
    directory = Path(cryptography_vectors.__file__).parent / "HPKE"
    rows = [row for path in sorted(directory.glob("*.json")) for row in json.loads(path.read_text())]
    return [
        pytest.param(row, id=f"kem {row['kem_id']:#06x}, aead {row['aead_id']}")
        for row in rows
        if row["mode"] == 0 and row["kem_id"] in PYCA_KEMS and row["kdf_id"] == 1 and row["aead_id"] in AEADS
    ]


def test_there_are_vectors_for_both_kems_and_for_our_aead() -> None:
    assert {(row.values[0]["kem_id"], row.values[0]["aead_id"]) for row in applicable()} == {
        (X25519, 2),
        (X25519, 3),
        (XWING, 3),
    }


@pytest.mark.parametrize("row", applicable())
def test_the_reference_gives_the_published_keys_and_ciphertexts(row: dict[str, Any]) -> None:
    kem, aead_id, seed = row["kem_id"], row["aead_id"], unhex(row["skRm"])
    assert public_key_of(kem, seed) == unhex(row["pkRm"])
    shared_secret = decapsulate(kem, seed, unhex(row["enc"]))
    assert shared_secret == unhex(row["shared_secret"])
    key, nonce = key_schedule(kem, aead_id, shared_secret, unhex(row["info"]))
    assert (key, nonce) == (unhex(row["key"]), unhex(row["base_nonce"]))
    first = row["encryptions"][0]
    cipher = AEADS[aead_id][0](key)
    assert cipher.encrypt(nonce, unhex(first["pt"]), unhex(first["aad"])) == unhex(first["ct"])


@pytest.mark.parametrize("row", applicable())
def test_the_public_interface_opens_what_is_sealed_under_the_published_keys(row: dict[str, Any]) -> None:
    """The interface takes no AAD and the vectors have one, so the message is sealed again under the vector's key."""
    cipher, aead = AEADS[row["aead_id"]]
    message = unhex(row["encryptions"][0]["pt"])
    sealed = unhex(row["enc"]) + cipher(unhex(row["key"])).encrypt(unhex(row["base_nonce"]), message, b"")
    suite = hpke.Suite(PYCA_KEMS[row["kem_id"]], hpke.KDF.HKDF_SHA256, aead)
    private = LIBRARY_KEMS[row["kem_id"]].parse_private(unhex(row["skRm"]))
    assert suite.decrypt(sealed, private, unhex(row["info"])) == message
    with pytest.raises(InvalidTag):
        suite.decrypt(sealed, private, unhex(row["info"]) + b"\0")


@pytest.mark.parametrize("row", [row for row in applicable() if row.values[0]["aead_id"] == 2])
def test_the_library_opens_what_is_sealed_under_the_published_keys(row: dict[str, Any]) -> None:
    message = bytes(range(32))
    sealed = unhex(row["enc"]) + AESGCM(unhex(row["key"])).encrypt(unhex(row["base_nonce"]), message, b"")
    key = library_kem.PrivateKey(LIBRARY_KEMS[row["kem_id"]], unhex(row["skRm"]))
    assert key.public() == unhex(row["pkRm"])
    assert key.open(unhex(row["info"]), sealed) == message


@pytest.mark.parametrize("kem", [X25519, XWING], ids=["X25519", "X-Wing"])
@given(seed=st.binary(min_size=32, max_size=32), info=st.binary(max_size=99), message=st.binary(max_size=99))
def test_reference_and_library_seal_to_each_other(kem: int, seed: bytes, info: bytes, message: bytes) -> None:
    key = library_kem.PrivateKey(LIBRARY_KEMS[kem], seed)
    assert key.public() == public_key_of(kem, seed)
    assert key.open(info, hpke_seal(kem, key.public(), info, message, Entropy(seed))) == message
    assert hpke_open(kem, seed, info, LIBRARY_KEMS[kem].seal(key.public(), info, message)) == message
