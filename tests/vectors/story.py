"""The queue that the test vectors tell of, made with the reference alone.

`frame_cases.py` and `document_cases.py` add what must be refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.vectors.peers import Owner, OwnerKeys, Service
from tests.vectors.reference import Entropy, Refused, Request, public_key_of

#: What the owner offers for the sake of each suite; the service accepts that suite only.
OFFERED = {1: (1,), 2: (2, 3, 4), 3: (3, 2), 4: (2, 3, 4)}
SERVICE_ID, QUEUE_ID = b"queue.example", bytes.fromhex("0011223344556677")

Json = dict[str, Any]

#: The X25519 point that gives an all-zero secret with every private key.
LOW_ORDER = bytes(32)


class Story:
    """One queue from its creation on, and everything that is recorded of it."""

    def __init__(self, suite: int, recorded: Sequence[tuple[bytes, bytes]] = ()) -> None:
        self.suite = suite
        self.seed = b"qsratchet test vectors, suite %d" % suite
        self.entropy = Entropy(self.seed, recorded)
        self.seeds = {0: self.entropy.take(32)}
        self.join_secret = self.entropy.take(32)
        self.owner = Owner(SERVICE_ID, QUEUE_ID, OFFERED[suite], dict(self.seeds), self.join_secret)
        self.request = self.owner.request()
        self.frames: list[bytes] = []
        self.aads: list[bytes] = []
        self.offers: list[bytes] = []
        self.owner_states: dict[str, bytes] = {}
        self.service_states: dict[str, bytes] = {}
        self.frame_rows: list[Json] = []
        self.reads: list[Json] = []
        self.grants: list[bytes] = []
        self.keep_owner("before init")
        self.service, init = Service.create(self.request, self.entropy, (suite,))
        self.take(init, "INIT")

    def tell(self) -> None:
        """Every kind of frame, several epochs, two key offers."""
        self.data(b"")
        self.data(b"hello", b"caller's data")
        self.data(b"padded to sixty-four bytes", b"", 64 - 4 - 26)
        self.update()  # 4
        self.data(bytes(range(256)), bytes(300))
        self.update()  # 6
        self.data(b"before the offer is read")
        self.offer()
        self.data(b"the owner holds two keys")
        self.accept()  # 9
        self.data(b"under the new key")
        self.data(b"second under the new key")
        self.update()  # 12
        self.update()  # 13: an epoch of one frame, its UPDATE.
        for number in range(14, 21):
            self.data(b"number %d" % number, b"numbered")
        self.offer()
        self.accept()  # 21
        self.data(b"under the third key")

    def data(self, message: bytes, aad: bytes = b"", zeros: int = 0) -> None:
        self.take(self.service.data(message, aad, zeros), "DATA", message=message, aad=aad)

    def update(self) -> None:
        self.take(self.service.update(), "UPDATE")

    def offer(self) -> None:
        key_id = len(self.seeds)
        self.seeds[key_id] = self.entropy.take(32)
        self.offers.append(self.owner.offer(self.seeds[key_id]))
        self.keep_owner(f"next {len(self.frames)}, key {key_id} offered")

    def accept(self) -> None:
        frame = self.service.take_offer(self.offers[-1])
        assert frame is not None
        self.take(frame, "UPDATE")

    def take(self, frame: bytes, type_: str, message: bytes | None = None, aad: bytes = b"") -> None:
        """Record the frame that the service made last, and have the owner read it."""
        seq = len(self.frames)
        row: Json = {"seq": seq, "epoch": int.from_bytes(frame[4:8], "big"), "type": type_, "frame": frame}
        if message is not None:
            row |= {"message": message, "aad": aad}
        self.frame_rows.append(row | self.service.trace)
        self.frames.append(frame)
        self.aads.append(aad)
        before = self.last_owner
        assert self.owner.read(frame, aad) == message
        self.keep_owner(f"next {seq + 1}")
        self.service_states[f"next {seq + 1}"] = self.service.state()
        self.read(f"frame {seq} in its turn", before, frame, aad, opens=message, after=self.last_owner)
        if type_ != "DATA":
            self.grants.append(self.owner.grant())

    def keep_owner(self, name: str) -> None:
        self.owner_states[name] = self.owner.state()
        self.last_owner = name

    def owner_at(self, name: str, limit: int | None = None) -> Owner:
        return Owner.load(self.owner_states[name], limit)

    def service_at(self, name: str) -> Service:
        return Service.load(self.service_states[name], self.entropy)

    def read(
        self,
        name: str,
        state: str,
        frame: bytes,
        aad: bytes = b"",
        *,
        opens: bytes | None = None,
        verdict: str | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> None:
        """A case for readers: what this frame is in this state. The reference must agree with what is written here."""
        owner = self.owner_at(state, limit)
        before = owner.chain.next if owner.chain else 0
        row: Json = {"name": name, "state": state, "forward_limit": limit, "frame": frame, "aad": aad}
        if verdict is not None:
            assert verdict_of(owner, frame, aad) == verdict, (name, verdict)
            assert owner.state() == self.owner_states[state], name
            row["verdict"] = verdict
        else:
            assert owner.read(frame, aad) == opens, name
            seq = int.from_bytes(frame[8:16], "big")
            after = after or f"after: {name}"
            self.owner_states.setdefault(after, owner.state())
            assert owner.state() == self.owner_states[after], name
            row |= {"message": opens, "missing": list(range(before, seq)), "after": after}
        self.reads.append(row)

    def story(self) -> Json:
        """The queue itself: without the cases that must be refused, and without heads."""
        request = Request.decode(self.request)
        keys = OwnerKeys(SERVICE_ID, QUEUE_ID, OFFERED[self.suite], self.join_secret, self.seeds)
        control = [row["frame"] for row in self.frame_rows if row["type"] != "DATA"]
        assert keys.grants(control) == self.grants
        return {
            "creation": {
                "service_id": SERVICE_ID,
                "queue_id": QUEUE_ID,
                "suites": list(request.suites),
                "accepted": [self.suite],
                "key_seed": self.seeds[0],
                "public_key": request.public_key,
                "join_secret": self.join_secret,
                "request": self.request,
                "qctx": self.service.qctx,
            },
            "frames": self.frame_rows,
            "offers": [
                {"key_id": i + 1, "key_seed": self.seeds[i + 1], "public_key": self.public_key(i + 1), "offer": offer}
                for i, offer in enumerate(self.offers)
            ],
            "owner_keys": {"document": keys.encode(), "control_frames": control, "grants": self.grants},
            "owner_states": self.owner_states,
            "service_states": self.service_states,
            "reads": self.reads,
        }

    def public_key(self, key_id: int) -> bytes:
        return public_key_of(self.owner.kem, self.seeds[key_id])


def verdict_of(owner: Owner, frame: bytes, aad: bytes = b"") -> str | None:
    try:
        owner.read(frame, aad)
    except Refused as refused:
        return refused.verdict
    return None


def altered(frame: bytes, offset: int, new: bytes) -> bytes:
    return frame[:offset] + new + frame[offset + len(new) :]


def flipped(frame: bytes, offset: int) -> bytes:
    offset %= len(frame)
    return altered(frame, offset, bytes([frame[offset] ^ 1]))


def to_json(value: Any) -> Any:
    """Bytes become hexadecimal text."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Mapping):
        return {key: to_json(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(inner) for inner in value]
    return value
