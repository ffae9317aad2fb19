"""Attackers who hold what was recorded and what they stole, and try everything that can be derived from it.

They follow no rule of the protocol: every key is tried on every frame, every private key on every ciphertext, every
stolen secret in every role.  The derivations are written from docs/protocol.md on the bare primitives; `by_library`
turns the library itself against its owner.  `SeedThief` does the same to the literal design.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress

from cryptography.exceptions import InvalidTag

from qsratchet import (
    Dequeuer,
    Enqueuer,
    Grant,
    GrantWalk,
    Message,
    OwnerKeys,
    QSRatchetError,
    ReadPolicy,
    Suite,
)
from qsratchet.codec import u32, u64
from qsratchet.crypto.kem import PrivateKey
from qsratchet.crypto.suites import SUITES

from . import literal_seed as seed

__all__ = ["SeedThief", "Thief", "by_library", "windows"]

HEADER = 16
BODY = HEADER + 12


class Thief:
    """Knows frames and secrets of one queue; `read` is what it makes of them."""

    def __init__(self, suite: int, qctx: bytes, frames: Iterable[bytes]) -> None:
        self.suite: Suite = SUITES[suite]
        self.qctx = qctx
        self.frames = list(frames)
        self.chain_keys: set[bytes] = set()
        self.join_secrets: set[bytes] = set()
        self.seeds: set[bytes] = set()
        self.loot: set[bytes] = set()

    @classmethod
    def of_service(cls, blob: bytes, frames: Iterable[bytes]) -> Thief:
        """Stole the service's stored state."""
        machine = Enqueuer.load(blob)
        self = cls(machine.suite.id, machine._qctx, frames)
        self.chain_keys.add(machine._chain_key)
        return self

    @classmethod
    def of_owner(cls, blob: bytes, suite: int, qctx: bytes, frames: Iterable[bytes]) -> Thief:
        """Stole the owner's stored state."""
        self = cls(suite, qctx, frames)
        self.add_owner(blob)
        return self

    def add_owner(self, blob: bytes) -> None:
        machine = Dequeuer.load(blob)
        self.seeds |= {key.seed for key in machine._keys.values()}
        if machine.ready:
            self.chain_keys.add(machine._chain_key)
        if machine._join_secret is not None:
            self.join_secrets.add(machine._join_secret)

    def add_bytes(self, blob: bytes) -> None:
        """Take every 32 bytes of a blob for a key of some frame: whatever hides in it, under any offset."""
        self.loot |= windows(blob)

    def read(self) -> set[int]:
        """The numbers of the DATA frames that open, whichever key did it."""
        opened: set[int] = set()
        fresh = set(self.chain_keys)
        # Any secret may be tried in any role: as the join secret, and as the chain key.
        guesses = self.join_secrets | self.chain_keys | self.seeds | {bytes(32)}
        fresh |= {bytes(32)} | self.join_secrets | self.seeds
        for frame in self.frames:
            fresh |= set(self._injected_by_init(frame, guesses))
        for key in self.loot:
            fresh |= set(self._try(key, opened))
        seen: set[bytes] = set()
        while fresh:
            chain_key = fresh.pop()
            # Every key is walked past the end of the recording, and tried on every frame on the way.
            for _ in range(len(self.frames) + 1):
                if chain_key in seen:
                    break
                seen.add(chain_key)
                fresh |= set(self._try(chain_key, opened))
                chain_key = self.suite.kdf.expand(chain_key, b"next")
        return opened

    def _try(self, chain_key: bytes, opened: set[int]) -> Iterator[bytes]:
        """Try a chain key on every frame; what an opened UPDATE injects comes out, if a stolen seed opens it."""
        # A stolen secret might be a message key, too.
        for key in (self.suite.kdf.expand(chain_key, b"message"), chain_key):
            aead = self.suite.aead(key)
            for frame in self.frames:
                try:
                    body = aead.decrypt(frame[HEADER:BODY], frame[BODY:], self.qctx + frame[:HEADER])
                except (InvalidTag, ValueError):
                    continue
                if frame[1] == 2:
                    opened.add(int.from_bytes(frame[8:HEADER]))
                else:
                    opened |= self._without_randomness(frame, body, chain_key)
                yield from self._injected_by_update(frame, body, chain_key)

    def _without_randomness(self, frame: bytes, body: bytes, chain_key: bytes) -> set[int]:
        """A derivation that forgot its randomness would be as good as none: what opens next to such an UPDATE."""
        epoch, seq = int.from_bytes(frame[4:8]), int.from_bytes(frame[8:HEADER])
        rotation = self.suite.kdf.expand(chain_key, b"rotation", self.qctx + u32(epoch) + u64(seq))
        guessed = self._epoch_key(rotation, b"", epoch + 1, seq + 1, body[40:])
        aead = self.suite.aead(self.suite.kdf.expand(guessed, b"message"))
        opened: set[int] = set()
        for other in self.frames:
            with suppress(InvalidTag, ValueError):
                aead.decrypt(other[HEADER:BODY], other[BODY:], self.qctx + other[:HEADER])
                opened.add(int.from_bytes(other[8:HEADER]))
        return opened

    def _injected_by_update(self, frame: bytes, body: bytes, chain_key: bytes) -> Iterator[bytes]:
        epoch, seq = int.from_bytes(frame[4:8]), int.from_bytes(frame[8:HEADER])
        key_id, sealed = body[:4], body[40:]
        info = b"qsratchet-v1 update" + self.qctx + u32(epoch + 1) + u64(seq) + key_id
        rotation = self.suite.kdf.expand(chain_key, b"rotation", self.qctx + u32(epoch) + u64(seq))
        for fresh in self._unsealed(info, sealed):
            yield self._epoch_key(rotation, fresh, epoch + 1, seq + 1, sealed)

    def _injected_by_init(self, frame: bytes, guesses: set[bytes]) -> Iterator[bytes]:
        sealed = frame[HEADER + 36 :]
        for fresh in self._unsealed(b"qsratchet-v1 init" + self.qctx + u32(0), sealed):
            yield fresh
            for guess in guesses:
                yield self._epoch_key(guess, fresh, 0, 1, sealed)

    def _unsealed(self, info: bytes, sealed: bytes) -> Iterator[bytes]:
        for stolen in self.seeds:
            fresh = PrivateKey(self.suite.kem, stolen).open(info, sealed)
            if fresh is not None:
                yield fresh

    def _epoch_key(self, salt: bytes, fresh: bytes, epoch: int, seq: int, sealed: bytes) -> bytes:
        kdf = self.suite.kdf
        return kdf.expand(kdf.extract(salt, fresh), b"ratchet", self.qctx + u32(epoch) + u64(seq) + kdf.hash(sealed))


def windows(blob: bytes) -> set[bytes]:
    return {blob[at : at + 32] for at in range(len(blob) - 31)}


def by_library(
    frames: list[bytes], *, suite: int, qctx: bytes, service: bytes | None = None, owner: bytes | None = None
) -> set[int]:
    """Give stolen states to the library itself, in every way that it can be asked to open a frame."""
    opened: set[int] = set()
    tolerant = ReadPolicy(tolerant=True, forward_limit=65_535)
    chain_keys: set[bytes] = set()
    if service is not None:
        chain_keys.add(Enqueuer.load(service)._chain_key)
    if owner is not None:
        machine = Dequeuer.load(owner, policy=tolerant)
        if machine.ready:
            chain_keys.add(machine._chain_key)
        opened |= _messages(machine.open_many(frames))
        for frame in frames:
            # A fresh copy for each frame, so that no earlier frame stands in its way.
            with suppress(QSRatchetError):
                opened |= _messages([Dequeuer.load(owner, policy=tolerant).open(frame)])
        opened |= _walk(Dequeuer.load(owner).owner_keys(), frames)
        # The keys alone, with a join secret made up, as if the thief had been there at the start.
        keys = Dequeuer.load(owner).owner_keys()
        keys._join_secret = keys._join_secret or bytes(32)
        opened |= _walk(keys, frames)
    for frame in frames:
        epoch, seq = int.from_bytes(frame[4:8]), int.from_bytes(frame[8:HEADER])
        for chain_key in chain_keys:
            # A grant that claims to begin at this very frame, and one that claims the whole epoch before it.
            for first in {max(seq, 1), 1}:
                grant = Grant(
                    suite=SUITES[suite],
                    service_id=b"service",
                    queue_id=b"queue",
                    suites=(suite,),
                    key_hash=bytes(32),
                    epoch=epoch,
                    first_seq=first,
                    chain_key=chain_key,
                )
                grant.qctx = qctx
                with suppress(QSRatchetError):
                    opened |= _messages([grant.open(frame)])
    return opened


def _messages(results: Iterable[object]) -> set[int]:
    return {result.seq for result in results if isinstance(result, Message)}


def _walk(keys: OwnerKeys, frames: list[bytes]) -> set[int]:
    opened: set[int] = set()
    with suppress(QSRatchetError):
        walk = GrantWalk(keys)
        for frame in frames:
            with suppress(QSRatchetError):
                opened |= _messages(walk.open(frame).open_many(frames))
    return opened


class SeedThief:
    """Knows frames and secrets of a queue of the literal design."""

    def __init__(self, suite: int, frames: Iterable[bytes]) -> None:
        self.suite: Suite = SUITES[suite]
        self.frames = list(frames)
        #: Ratchet keys, and the number that each is for.
        self.ratchet_keys: list[tuple[int, bytes]] = []
        self.private_keys: list[PrivateKey] = []

    def read(self) -> set[int]:
        opened: set[int] = set()
        starts = list(self.ratchet_keys)
        for frame in self.frames:
            seq, type, _, payload = seed.split(frame)
            if type is seed.SeedFrameType.INIT:
                starts += [(seq + 1, fresh) for fresh in self._unsealed(payload)]
        for first, ratchet_key in starts:
            for frame in self.frames[first:]:
                # Every key is tried on every frame; only then it moves on, as the frame says.
                message_key, next_key = self.suite.kdf.step(ratchet_key)
                opened |= self._opened(message_key)
                _, type, _, payload = seed.split(frame)
                if type is seed.SeedFrameType.UPDATE:
                    for fresh in self._unsealed(payload):
                        next_key = seed.rotated(self.suite, ratchet_key, fresh)
                ratchet_key = next_key
        return opened

    def _unsealed(self, payload: bytes) -> list[bytes]:
        results = [key.open(b"", payload) for key in self.private_keys]
        return [fresh for fresh in results if fresh is not None]

    def _opened(self, message_key: bytes) -> set[int]:
        aead = self.suite.aead(message_key)
        opened: set[int] = set()
        for frame in self.frames:
            seq, _, _, payload = seed.split(frame)
            with suppress(InvalidTag, ValueError):
                aead.decrypt(payload[: seed.NONCE_SIZE], payload[seed.NONCE_SIZE :], None)
                opened.add(seq)
        return opened
