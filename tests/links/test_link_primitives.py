"""Ed25519, X25519 and sealing: published answers, and what they refuse."""

from __future__ import annotations

import copy
import pickle

import pytest

from qsratchet.crypto.dh import DhKey
from qsratchet.crypto.sealing import SEAL_OVERHEAD, SealRejected, seal, unseal
from qsratchet.crypto.signing import SignatureRejected, SigningKey, verify
from qsratchet.errors import KeyRejected, MisuseError


def test_ed25519_gives_the_answers_of_rfc_8032() -> None:
    key = SigningKey(bytes.fromhex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb"))
    public = bytes.fromhex("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c")
    signature = bytes.fromhex(
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
        "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
    )
    assert key.public() == public
    assert key.sign(bytearray(b"\x72")) == signature
    verify(public, memoryview(b"\x72"), signature)


@pytest.mark.parametrize("change", ["message", "signature", "key", "short signature"])
def test_a_signature_over_anything_else_is_rejected(change: str) -> None:
    key, other = SigningKey.generate(), SigningKey.generate()
    message, signature, public = b"message", key.sign(b"message"), key.public()
    if change == "message":
        message = b"another"
    elif change == "signature":
        signature = other.sign(message)
    elif change == "key":
        public = other.public()
    else:
        signature = signature[:-1]
    with pytest.raises(SignatureRejected):
        verify(public, message, signature)


def test_x25519_gives_the_answers_of_rfc_7748() -> None:
    scalar = DhKey(bytes.fromhex("a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4"))
    point = bytes.fromhex("e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c")
    shared = bytes.fromhex("c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552")
    assert scalar.exchange(bytearray(point)) == shared
    # The public key is the exchange with the base point, 9.
    nine = (9).to_bytes(32, "little")
    assert DhKey(nine).public().hex() == "422c8e7a6227d7bca1350b3e2bb7279f7897b87bb6854b783c60e80311ae3079"


def test_two_key_pairs_agree() -> None:
    alice, bob = DhKey.generate(), DhKey.generate()
    assert alice.exchange(bob.public()) == bob.exchange(alice.public())


def test_sealing_is_the_nonce_and_then_chacha20_poly1305_of_rfc_8439() -> None:
    key = bytes.fromhex("808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9f")
    nonce = bytes.fromhex("070000004041424344454647")
    message = (
        b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the future, "
        b"sunscreen would be it."
    )
    aad = bytes.fromhex("50515253c0c1c2c3c4c5c6c7")
    expected = bytes.fromhex(
        "d31a8d34648e60db7b86afbc53ef7ec2a4aded51296e08fea9e2b5a736ee62d63dbea45e8ca9671282fafb69da92728b"
        "1a71de0a9e060b2905d6a5b67ecd3b3692ddbd7f2d778b8c9803aee328091b58fab324e4fad675945585808b4831d7bc"
        "3ff4def08e4b7a9de576d26586cec64b61161ae10b594f09e26a7e902ecbd0600691"
    )
    sealed = seal(key, message, aad, lambda size: nonce[:size])
    assert sealed == nonce + expected
    assert len(sealed) == len(message) + SEAL_OVERHEAD
    assert unseal(key, sealed, aad) == message


def test_what_was_sealed_otherwise_does_not_open() -> None:
    key, other = bytes(32), bytes(31) + b"1"
    sealed = seal(key, b"message", b"aad")
    assert unseal(key, sealed, b"aad") == b"message"
    short = [(key, sealed[:size], b"aad") for size in range(len(sealed))]
    for arguments in ((other, sealed, b"aad"), (key, sealed, b"other"), (key, sealed + b"1", b"aad"), *short):
        with pytest.raises(SealRejected):
            unseal(*arguments)


@pytest.mark.parametrize("size", [0, 16, 31, 33])
def test_a_key_of_another_length_neither_seals_nor_opens(size: int) -> None:
    with pytest.raises(MisuseError, match=f"32 bytes, not {size}"):
        seal(bytes(size), b"message", b"aad")
    with pytest.raises(MisuseError, match=f"32 bytes, not {size}"):
        unseal(bytes(size), bytes(SEAL_OVERHEAD), b"aad")


def test_sealing_twice_uses_two_nonces() -> None:
    assert len({seal(bytes(32), b"", b"")[:12] for _ in range(100)}) == 100


def test_low_order_points_and_wrong_lengths_are_rejected_as_keys() -> None:
    with pytest.raises(KeyRejected, match="low order"):
        DhKey.generate().exchange(bytes(32))
    with pytest.raises(KeyRejected, match="32 bytes, not 31"):
        DhKey.generate().exchange(bytes(31))
    with pytest.raises(KeyRejected, match="32 bytes, not 33"):
        verify(bytes(33), b"", bytes(64))
    with pytest.raises(MisuseError, match="32 bytes, not 5"):
        SigningKey(b"short")
    with pytest.raises(MisuseError, match="32 bytes, not 5"):
        DhKey(b"short")


@pytest.mark.parametrize("key", [SigningKey.generate(), DhKey.generate()])
def test_a_private_key_is_not_printed_pickled_or_copied(key: SigningKey | DhKey) -> None:
    assert key.seed.hex() not in repr(key)
    with pytest.raises(TypeError, match="holds secrets"):
        pickle.dumps(key)
    with pytest.raises(TypeError, match="holds secrets"):
        copy.deepcopy(key)
