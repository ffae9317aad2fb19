"""The queue ratchet beside other ratchets that Python can use, in the same run; peers that are not installed are named.

    pip install doubleratchet vodozemac noiseprotocol
    python -m benchmarks.bench_peers

They do not do the same job: a double ratchet is for two people in a conversation and protects against the server, a
queue ratchet is for a service that stores; Noise has no ratchet at all.  What is compared is the cost of sealing and
opening one message after another in one direction.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
from collections.abc import Callable, Coroutine
from typing import Any

from benchmarks.measure import arguments, interleaved, table
from qsratchet import Dequeuer, Enqueuer, Message

COUNT = 50


def ours(suite: int) -> Callable[[bytes], None]:
    owner, request = Dequeuer.create(b"service", b"queue", suites=(suite,))
    service, init = Enqueuer.create(request, now=0)
    owner.open(init.data)

    def run(message: bytes) -> None:
        for frame in service.enqueue(message, now=0):
            opened = owner.open(frame.data)
        assert isinstance(opened, Message)
        assert opened.body == message

    return run


def finished(step: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine that never waits, without an event loop: favourable to the peer."""
    try:
        step.send(None)
    except StopIteration as stop:
        return stop.value
    raise RuntimeError("it waits")


def doubleratchet() -> Callable[[bytes], None]:
    peer = importlib.import_module("doubleratchet")
    recommended = "doubleratchet.recommended."
    aead_module = importlib.import_module(recommended + "aead_aes_hmac")
    kdf_module = importlib.import_module(recommended + "kdf_hkdf")
    separate_module = importlib.import_module(recommended + "kdf_separate_hmacs")
    dh_module = importlib.import_module(recommended + "diffie_hellman_ratchet_curve25519")
    hash_function = importlib.import_module("doubleratchet.recommended").HashFunction.SHA_256
    aead = type(
        "A",
        (aead_module.AEAD,),
        {"_get_hash_function": staticmethod(lambda: hash_function), "_get_info": staticmethod(lambda: b"a")},
    )
    root = type(
        "R",
        (kdf_module.KDF,),
        {"_get_hash_function": staticmethod(lambda: hash_function), "_get_info": staticmethod(lambda: b"r")},
    )
    chain = type("C", (separate_module.KDF,), {"_get_hash_function": staticmethod(lambda: hash_function)})
    ratchet: Any = type(
        "D",
        (peer.DoubleRatchet,),
        {"_build_associated_data": staticmethod(lambda data, header: data + header.ratchet_pub)},
    )
    x25519 = importlib.import_module("cryptography.hazmat.primitives.asymmetric.x25519")
    private = x25519.X25519PrivateKey.generate()
    settings = (dh_module.DiffieHellmanRatchet, root, chain, b"\1\2", 100, 1000, aead, bytes(32))
    alice, first = asyncio.run(
        ratchet.encrypt_initial_message(*settings, private.public_key().public_bytes_raw(), b"hello", b"")
    )
    bob, _ = asyncio.run(ratchet.decrypt_initial_message(*settings, private.private_bytes_raw(), first, b""))

    def run(message: bytes) -> None:
        assert finished(bob.decrypt_message(finished(alice.encrypt_message(message, b"")), b"")) == message

    return run


def vodozemac() -> Callable[[bytes], None]:
    peer = importlib.import_module("vodozemac")
    alice, bob = peer.Account(), peer.Account()
    bob.generate_one_time_keys(1)
    key = next(iter(bob.one_time_keys.values()))
    sender = alice.create_outbound_session(bob.curve25519_key, key)
    receiver, _ = bob.create_inbound_session(alice.curve25519_key, sender.encrypt(b"hello").to_pre_key())
    sender.decrypt(receiver.encrypt(b"hello back"))

    def run(message: bytes) -> None:
        assert receiver.decrypt(sender.encrypt(message)) == message

    return run


def noise() -> Callable[[bytes], None]:
    connection = importlib.import_module("noise.connection").NoiseConnection
    left, right = (connection.from_name(b"Noise_NN_25519_AESGCM_SHA256") for _ in range(2))
    left.set_as_initiator()
    right.set_as_responder()
    left.start_handshake()
    right.start_handshake()
    right.read_message(left.write_message())
    left.read_message(right.write_message())

    def run(message: bytes) -> None:
        assert right.decrypt(left.encrypt(message)) == message

    return run


PEERS: dict[str, Callable[[], Callable[[bytes], None]]] = {
    "qsratchet 0x0002": lambda: ours(0x0002),
    "qsratchet 0x0003": lambda: ours(0x0003),
    "doubleratchet (Python), one chain": doubleratchet,
    "vodozemac Olm (Rust)": vodozemac,
    "noiseprotocol AESGCM, no ratchet": noise,
}


def main() -> int:
    options = arguments(__doc__ or "")
    contestants, missing = {}, []
    for name, make in PEERS.items():
        try:
            contestants[name] = make()
        except ImportError as error:
            missing.append(f"{name} ({error.name} is not installed)")
    rows: list[tuple[str, ...]] = []
    for size in (256, 1024, 16384):
        message = os.urandom(size)

        def many(run: Callable[[bytes], None], message: bytes = message) -> None:
            for _ in range(COUNT):
                run(message)

        runs = {name: (lambda run=run: many(run)) for name, run in contestants.items()}
        time = interleaved(runs, per=COUNT, rounds=3 if options.quick else 60)
        base = time["qsratchet 0x0002"]
        rows += [(name, f"{size}", f"{value:.1f}", f"{value / base:.2f}") for name, value in time.items()]
    print(table("Seal and open, single calls", ("ratchet", "bytes", "µs", "÷ qsratchet 0x0002"), rows))
    for line in missing:
        print("left out:", line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
