"""What the owner sends to the service: the request that creates a queue, and the offer of a new key.

Both must reach the service over a channel that authenticates the owner, and the request also over one that
hides it: it carries `join_secret`.  How the owner is authenticated is the host's business.
"""

from __future__ import annotations

from operator import index
from typing import Final

from ..codec import Buffer, Kind, Reader, as_bytes, document, lv, open_document, u8, u16, u32
from ..crypto.kdf import KEY_SIZE, same
from ..crypto.kem import Kem
from ..crypto.secret import Sensitive
from ..crypto.suites import SUITES, Suite, one_kem
from ..errors import DecodeError, MisuseError, RejectedError

__all__ = ["ID_LIMIT", "CreationRequest", "KeyOffer", "OfferRejected"]

FORMAT: Final = 1
#: Service and queue ids have 1 to 255 bytes.
ID_LIMIT: Final = 255
#: An owner offers 1 to 16 suites.
SUITE_COUNT_LIMIT: Final = 16


class OfferRejected(RejectedError):
    """A key offer is stale, of another queue, or skips a key id."""


def checked_id(what: str, value: Buffer) -> bytes:
    raw = as_bytes(value)
    if not 1 <= len(raw) <= ID_LIMIT:
        raise MisuseError(f"{what} must have 1 to {ID_LIMIT} bytes, not {len(raw)}")
    return raw


def checked_suites(suites: tuple[int, ...]) -> tuple[tuple[int, ...], Kem]:
    """Suites that one public key can serve, and their KEM."""
    suites = tuple(index(id) for id in suites)
    if not 1 <= len(suites) <= SUITE_COUNT_LIMIT or len(set(suites)) != len(suites):
        raise MisuseError(f"offer 1 to {SUITE_COUNT_LIMIT} suites, each once, the preferred one first")
    unknown = [id for id in suites if id not in SUITES]
    if unknown:
        raise MisuseError(f"unknown suite 0x{unknown[0]:04x}; known are {', '.join(f'0x{id:04x}' for id in SUITES)}")
    kem = one_kem(suites)
    if kem is None:
        raise MisuseError("the suites of one request share one public key, so they must have the same KEM")
    return suites, kem


def read_id(reader: Reader) -> bytes:
    value = reader.lv()
    if not 1 <= len(value) <= ID_LIMIT:
        reader.fail(f"an id has 1 to {ID_LIMIT} bytes, not {len(value)}")
    return value


def write_suites(suites: tuple[int, ...]) -> bytes:
    return u8(len(suites)) + b"".join(map(u16, suites))


def read_suites(reader: Reader) -> tuple[int, ...]:
    suites = tuple(reader.u16() for _ in range(reader.u8()))
    if not 1 <= len(suites) <= SUITE_COUNT_LIMIT or len(set(suites)) != len(suites):
        reader.fail(f"a list of suites has 1 to {SUITE_COUNT_LIMIT} entries, each once")
    return suites


class CreationRequest(Sensitive):
    """The owner's request: make this queue, for this public key, with one of these suites."""

    __slots__ = ("join_secret", "public_key", "queue_id", "service_id", "suites")

    def __init__(
        self, service_id: bytes, queue_id: bytes, suites: tuple[int, ...], public_key: bytes, join_secret: bytes
    ) -> None:
        if len(join_secret) != KEY_SIZE:
            raise MisuseError(f"a join secret has {KEY_SIZE} bytes, not {len(join_secret)}")
        self.service_id = service_id
        self.queue_id = queue_id
        self.suites = suites
        self.public_key = public_key
        self.join_secret = join_secret

    def describe(self) -> str:
        return f"queue={self.queue_id.hex()} suites={','.join(f'0x{id:04x}' for id in self.suites)}"

    def encode(self) -> bytes:
        return document(
            Kind.CREATION_REQUEST,
            FORMAT,
            lv(self.service_id)
            + lv(self.queue_id)
            + write_suites(self.suites)
            + lv(self.public_key)
            + self.join_secret,
        )

    @classmethod
    def decode(cls, data: Buffer) -> CreationRequest:
        reader = open_document(Kind.CREATION_REQUEST, FORMAT, data, stored=False)
        request = cls(read_id(reader), read_id(reader), read_suites(reader), reader.lv(), reader.take(KEY_SIZE))
        reader.end()
        return request

    def choose(self, accepted: tuple[int, ...]) -> Suite:
        """The first suite that the owner offers and the service accepts.

        A suite that this release does not know is passed over: the owner may be newer.
        """
        for id in self.suites:
            suite = SUITES.get(id)
            if suite is not None and id in accepted:
                return suite
        raise DecodeError(
            "creation request",
            f"it offers the suites {', '.join(f'0x{id:04x}' for id in self.suites)}, and none of them is accepted here",
        )


class KeyOffer:
    """The owner's new public key: the service answers it with an UPDATE to that key.

    Its bytes name the queue through `qctx`, so a signature over them cannot be used for another queue.
    """

    __slots__ = ("key_id", "public_key", "qctx", "suite")

    def __init__(self, suite: int, qctx: bytes, key_id: int, public_key: bytes) -> None:
        self.suite = suite
        self.qctx = qctx
        self.key_id = key_id
        self.public_key = public_key

    def __repr__(self) -> str:
        return f"<KeyOffer key_id={self.key_id} suite=0x{self.suite:04x}>"

    def encode(self) -> bytes:
        return document(Kind.KEY_OFFER, FORMAT, u16(self.suite) + self.qctx + u32(self.key_id) + lv(self.public_key))

    @classmethod
    def decode(cls, data: Buffer) -> KeyOffer:
        reader = open_document(Kind.KEY_OFFER, FORMAT, data, stored=False)
        offer = cls(reader.u16(), reader.take(32), reader.u32(), reader.lv())
        reader.end()
        return offer

    def check(self, suite: Suite, qctx: bytes, key_id: int, public_key: bytes) -> bool:
        """True: a new offer.  False: the offer that is in force already, sent again.  Otherwise `OfferRejected`."""
        if self.suite != suite.id or not same(self.qctx, qctx):
            raise OfferRejected("this key offer was made for another queue")
        if self.key_id == key_id and same(self.public_key, public_key):
            return False
        if self.key_id <= key_id:
            raise OfferRejected(f"this offer has key id {self.key_id}, and key {key_id} is in force: it is stale")
        if self.key_id != key_id + 1:
            raise OfferRejected(f"this offer has key id {self.key_id}, but the next one is {key_id + 1}")
        return True
