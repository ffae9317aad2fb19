"""Guarantee 5: no (key, nonce) pair repeats, whatever crashes, is restored from backup or races.

A spy stands in for the AEAD of a suite and records what the machines seal with.  That message keys do repeat in these
histories is part of each test: otherwise it would show nothing.
"""

from __future__ import annotations

import dataclasses
from collections import Counter

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

from qsratchet import SUITES, CreationRequest, Dequeuer, Enqueuer, Fork, Message, UpdatePolicy


class Spy:
    """Records every (key, nonce) of an AEAD's encryptions."""

    def __init__(self) -> None:
        self.used: list[tuple[bytes, bytes]] = []

    def watching(self, aead: type[AESGCM | ChaCha20Poly1305]) -> type:
        used = self.used

        class Watched:
            def __init__(self, key: bytes) -> None:
                self._key, self._aead = bytes(key), aead(key)

            def encrypt(self, nonce: bytes, data: bytes, aad: bytes | None) -> bytes:
                used.append((self._key, bytes(nonce)))
                return self._aead.encrypt(nonce, data, aad)

            def decrypt(self, nonce: bytes, data: bytes, aad: bytes | None) -> bytes:
                return self._aead.decrypt(nonce, data, aad)

        return Watched

    def assert_pairs_are_fresh(self, *, keys_repeat: bool) -> None:
        assert self.used
        assert (max(Counter(key for key, _ in self.used).values()) > 1) is keys_repeat
        assert len(set(self.used)) == len(self.used)


@pytest.fixture(params=SUITES, ids=lambda suite: f"0x{suite:04x}")
def watched(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[int, Spy]:
    suite: int = request.param
    spy = Spy()
    row = SUITES[suite]
    monkeypatch.setitem(SUITES, suite, dataclasses.replace(row, aead=spy.watching(row.aead)))
    return suite, spy


SHORT = UpdatePolicy(frames=5, seconds=None)


def create(suite: int) -> tuple[Dequeuer, Enqueuer, CreationRequest]:
    owner, request = Dequeuer.create(b"service", b"queue", suites=(suite,))
    service, init = Enqueuer.create(request, now=0, policy=SHORT)
    owner.open(init.data)
    return owner, service, request


def test_an_undisturbed_service_never_repeats_even_a_key(watched: tuple[int, Spy]) -> None:
    suite, spy = watched
    _, service, _ = create(suite)
    for _ in range(20):
        service.enqueue(b"same", now=0)
    service.enqueue_many([b"same"] * 20, now=0)
    spy.assert_pairs_are_fresh(keys_repeat=False)


def test_a_service_restored_from_backup_repeats_keys_but_no_pair(watched: tuple[int, Spy]) -> None:
    suite, spy = watched
    owner, service, _ = create(suite)
    backup = service.dump()
    offer = owner.offer_key()
    for _ in range(10):
        restored = Enqueuer.load(backup, policy=SHORT)
        # Single calls, a batch, an explicit update and the answer to an offer, all from the same state.
        restored.enqueue(b"same", now=0)
        Enqueuer.load(backup, policy=SHORT).enqueue_many([b"same"] * 12, now=0)
        Enqueuer.load(backup, policy=SHORT).update(now=0)
        Enqueuer.load(backup, policy=SHORT).accept_offer(offer, now=0)
    spy.assert_pairs_are_fresh(keys_repeat=True)


def test_two_racing_writers_repeat_keys_but_no_pair_and_the_owner_sees_a_fork(watched: tuple[int, Spy]) -> None:
    suite, spy = watched
    owner, first, _ = create(suite)
    second = Enqueuer.load(first.dump(), policy=SHORT)
    for _ in range(4):
        (one,), (two,) = first.enqueue(b"same", now=0), second.enqueue(b"same", now=0)
        assert one.data != two.data
        assert isinstance(owner.open(one.data), Message)
        with pytest.raises(Fork):
            owner.open(two.data)
    spy.assert_pairs_are_fresh(keys_repeat=True)


def test_a_crash_between_sealing_and_storing_repeats_keys_but_no_pair(watched: tuple[int, Spy]) -> None:
    suite, spy = watched
    _, service, _ = create(suite)
    stored = service.dump()
    for number in range(20):
        service = Enqueuer.load(stored, policy=SHORT)
        service.enqueue(b"message %d" % number, now=0)
        if number % 3:  # Every third transaction fails, and the host loads the stored state again.
            stored = service.dump()
    spy.assert_pairs_are_fresh(keys_repeat=True)


def test_a_request_sent_twice_makes_two_queues_that_share_no_key(watched: tuple[int, Spy]) -> None:
    suite, spy = watched
    _, service, request = create(suite)
    again, _ = Enqueuer.create(request, now=0, policy=SHORT)
    for machine in (service, again):
        machine.enqueue_many([b"same"] * 12, now=0)
    spy.assert_pairs_are_fresh(keys_repeat=False)
