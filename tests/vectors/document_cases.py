"""Heads, offers, requests, grants and stored documents, each with what must come of it, written down by hand."""

from __future__ import annotations

from collections.abc import Callable

from tests.vectors.peers import Grant, Owner, OwnerKeys, Service
from tests.vectors.reference import (
    SUITES,
    Refused,
    Request,
    digest,
    document,
    expand,
    extract,
    lv,
    message_key,
    next_key,
    offer_document,
    u8,
    u16,
    u32,
    u64,
)
from tests.vectors.story import LOW_ORDER, OFFERED, QUEUE_ID, SERVICE_ID, Json, Story, altered, flipped


def all_document_cases(story: Story) -> Json:
    return {
        "heads": heads(story),
        "offer_cases": offer_cases(story),
        "requests": request_cases(story),
        "grants": grant_cases(story),
        "malformed_documents": malformed_documents(story),
        "kdf": derivations(story),
    }


def outcome(call: Callable[[], object]) -> str | None:
    try:
        call()
    except Refused as refused:
        return refused.verdict
    return None


def heads(story: Story) -> list[Json]:
    rows: list[Json] = []
    nonce = story.entropy.take(16)
    head = story.service_at("next 17").head(nonce)

    def add(
        name: str, state: str, head: bytes, nonce: bytes, expected: str | range, limit: int = 2000, made_by: str = ""
    ) -> None:
        owner = story.owner_at(state, limit)
        row: Json = {"name": name, "state": state, "forward_limit": limit, "nonce": nonce, "head": head}
        if isinstance(expected, range):
            assert owner.check_head(head, nonce) == expected, name
            row |= {"missing": list(expected), "service_state": made_by or "next 17"}
        else:
            assert outcome(lambda: owner.check_head(head, nonce)) == expected, name
            row["verdict"] = expected
        rows.append(row)

    add("level", "next 17", head, nonce, range(17, 17))
    add("three are missing", "next 14", head, nonce, range(14, 17))
    add("as many as the limit", "next 14", head, nonce, range(14, 17), 3)
    add("more than the limit", "next 14", head, nonce, "ahead", 2)
    add("behind", "next 18", head, nonce, "rolled back")
    add("behind, in a later epoch", "next 22", head, nonce, "rolled back")
    add("of a later epoch", "next 12", head, nonce, "ahead")
    add("of an earlier epoch", "next 17", altered(head, 4, u32(1)), nonce, "ahead")
    add("another nonce", "next 17", head, flipped(nonce, 0), "head rejected")
    add("a longer nonce", "next 17", head, nonce + b"\0", "head rejected")
    add("another number", "next 17", altered(head, 8, u64(18)), nonce, "head rejected")
    add("another proof", "next 17", flipped(head, 16), nonce, "head rejected")
    add("another proof at its end", "next 17", flipped(head, -1), nonce, "head rejected")
    add("cut short", "next 17", head[:-1], nonce, "head rejected")
    add("too long", "next 17", head + b"\0", nonce, "head rejected")
    add("not even a header", "next 17", head[:15], nonce, "head rejected")
    add("type DATA", "next 17", altered(head, 1, u8(2)), nonce, "head rejected")
    add("another suite", "next 17", altered(head, 2, u16(story.suite % 4 + 1)), nonce, "head rejected")
    add("another version", "next 17", altered(head, 0, u8(2)), nonce, "head rejected")
    long = story.entropy.take(64)
    add("a nonce of 64 bytes", "next 1", story.service_at("next 1").head(long), long, range(1, 1), made_by="next 1")
    return rows


def offer_cases(story: Story) -> list[Json]:
    rows: list[Json] = []
    kem, qctx, key = SUITES[story.suite][0], story.service.qctx, story.public_key(1)
    good = story.offers[0]
    unusable = LOW_ORDER if kem == 0x20 else key[:1184] + LOW_ORDER
    for name, state, offer, expected in (
        ("the next key", "next 9", good, "update"),
        ("the key in force", "next 10", good, "repetition"),
        (
            "the key of the creation request",
            "next 9",
            offer_document(story.suite, qctx, 0, story.public_key(0)),
            "repetition",
        ),
        (
            "the id in force with another key",
            "next 10",
            offer_document(story.suite, qctx, 1, story.public_key(2)),
            "offer refused",
        ),
        ("an id that was replaced", "next 22", good, "offer refused"),
        ("an id too far", "next 9", story.offers[1], "offer refused"),
        ("another queue", "next 9", offer_document(story.suite, flipped(qctx, 0), 1, key), "offer refused"),
        ("another suite", "next 9", offer_document(story.suite % 4 + 1, qctx, 1, key), "offer refused"),
        ("a key one byte short", "next 9", offer_document(story.suite, qctx, 1, key[:-1]), "unusable key"),
        ("no key", "next 9", offer_document(story.suite, qctx, 1, b""), "unusable key"),
        ("a low-order X25519 key", "next 9", offer_document(story.suite, qctx, 1, unusable), "unusable key"),
        (
            "a byte too many",
            "next 9",
            document(b"QSRO", u16(story.suite) + qctx + u32(1) + lv(key) + b"\0"),
            "malformed",
        ),
        ("cut short", "next 9", good[:-1], "malformed"),
        ("a wrong checksum", "next 9", flipped(good, -1), "malformed"),
        ("of another kind", "next 9", story.request, "malformed"),
        ("nothing", "next 9", b"", "malformed"),
    ):
        service = story.service_at(state)
        made: list[bytes | None] = []
        verdict = outcome(lambda: made.append(service.take_offer(offer)))  # noqa: B023
        assert (verdict or ("update" if made[0] else "repetition")) == expected, name
        rows.append({"name": name, "service_state": state, "offer": offer, "expected": expected})
    if kem != 0x20:
        # The encapsulation key check of FIPS 203: a coefficient that is not reduced modulo q.
        offer = offer_document(story.suite, qctx, 1, b"\xff" * 1184 + key[1184:])
        assert outcome(lambda: story.service_at("next 9").take_offer(offer)) == "unusable key"
        rows.append(
            {
                "name": "an ML-KEM key that is not reduced",
                "service_state": "next 9",
                "offer": offer,
                "expected": "unusable key",
            }
        )
    return rows


def request_cases(story: Story) -> list[Json]:
    rows: list[Json] = []
    key, join, s = story.public_key(0), story.join_secret, story.suite
    low = LOW_ORDER if s == 1 else key[:1184] + LOW_ORDER

    def request(
        suites: tuple[int, ...] = (s,), public: bytes = key, service: bytes = b"s", queue: bytes = b"q"
    ) -> bytes:
        return Request(service, queue, suites, public, join).encode()

    for name, data, expected in (
        ("the first that is known", request((0x7FFF, s)), s),
        ("the shortest ids", request(), s),
        ("the longest ids", request(service=bytes(255), queue=b"\xff" * 255), s),
        ("sixteen suites", request((*range(0x7000, 0x700F), s)), s),
        ("only unknown suites", request((0x7FFF,)), "no common suite"),
        ("no suite", request(()), "malformed"),
        ("seventeen suites", request((*range(0x7000, 0x7010), s)), "malformed"),
        ("a suite twice", request((s, s)), "malformed"),
        ("an empty service id", request(service=b""), "malformed"),
        ("an empty queue id", request(queue=b""), "malformed"),
        ("a queue id of 256 bytes", request(queue=bytes(256)), "malformed"),
        ("a key one byte short", request(public=key[:-1]), "unusable key"),
        ("a low-order X25519 key", request(public=low), "unusable key"),
        ("cut short", request()[:-1], "malformed"),
        ("version 2", altered(request(), 4, u8(2)), "malformed"),
        ("a wrong checksum", flipped(request(), -1), "malformed"),
    ):
        made: list[Service] = []
        verdict = outcome(lambda: made.append(Service.create(data, story.entropy)[0]))  # noqa: B023
        assert (verdict or made[0].suite) == expected, name
        row: Json = {"name": name, "request": data, "expected": expected}
        if made:
            row["qctx"] = made[0].qctx
        rows.append(row)
    return rows


def grant_cases(story: Story) -> list[Json]:
    rows: list[Json] = []
    whole, fourth = story.grants[0], story.owner_at("next 16").grant()
    init, frames = story.frames[0], story.frames

    def add(
        name: str, data: bytes, frame: bytes, aad: bytes, expected: str | None, message: bytes | None = None
    ) -> None:
        grant = Grant.decode(data)
        row: Json = {"name": name, "grant": data, "frame": frame, "aad": aad}
        if expected is None:
            assert grant.open(frame, aad) == message, name
            row["message"] = message
        else:
            assert outcome(lambda: grant.open(frame, aad)) == expected, name
            row["verdict"] = expected
        rows.append(row)

    add("its INIT", whole, init, b"", None)
    add("DATA", whole, frames[2], story.aads[2], None, b"hello")
    add("its UPDATE", whole, frames[4], b"", None)
    add("from the middle of an epoch on", fourth, frames[18], story.aads[18], None, b"number 18")
    add("its first frame", fourth, frames[16], story.aads[16], None, b"number 16")
    add("a frame before it", fourth, frames[15], story.aads[15], "outside grant")
    add("a frame of the epoch before", fourth, frames[13], b"", "outside grant")
    add("a frame of the epoch after", fourth, frames[22], b"", "outside grant")
    add("INIT, for a later grant", fourth, init, b"", "outside grant")
    add("a number beyond every epoch", whole, altered(frames[2], 8, u64(1 + 65536)), b"", "outside grant")
    add("INIT, altered", whole, flipped(init, 60), b"", "tampered")
    add("INIT, cut short", whole, init[:-1], b"", "tampered")
    add("INIT, with another key id", whole, altered(init, 16, u32(1)), b"", "tampered")
    add("INIT under another number", whole, altered(init, 8, u64(2)), b"", "outside grant")
    add("a head", whole, altered(frames[2], 1, u8(4)), b"", "malformed")
    add("other data of the caller", whole, frames[2], b"", "tampered")
    add("DATA, altered", whole, flipped(frames[2], -1), story.aads[2], "tampered")
    add("UPDATE, altered", whole, flipped(frames[4], -1), b"", "tampered")
    add("another suite", whole, altered(frames[2], 2, u16(story.suite % 4 + 1)), b"", "wrong suite")
    add("another version", whole, altered(frames[2], 0, u8(9)), b"", "unknown version")
    return rows


def malformed_documents(story: Story) -> list[Json]:
    """Grants, keys and states that are not well-formed, with a checksum that is right unless it is the point."""
    good_keys = OwnerKeys(SERVICE_ID, QUEUE_ID, OFFERED[story.suite], None, story.seeds).encode()
    seeds = b"".join(u32(i) + story.seeds[i] for i in (1, 0))
    prefix = lv(SERVICE_ID) + lv(QUEUE_ID) + u8(1) + u16(story.suite)
    rows: list[Json] = []
    for name, kind, data in (
        ("cut short", "grant", story.grants[0][:-1]),
        ("a wrong checksum", "grant", flipped(story.grants[0], 9)),
        ("first number 0", "grant", renumbered(story.grants[0], 0)),
        ("first number 2^63 - 1", "grant", renumbered(story.grants[0], 2**63 - 1)),
        ("a byte too many", "grant", document(b"QSRG", story.grants[0][5:-4] + b"\0")),
        ("an unknown suite", "grant", document(b"QSRG", u16(9) + story.grants[0][7:-4])),
        ("keys not in order", "keys", document(b"QSRK", prefix + u8(0) + u16(2) + seeds)),
        ("a flag of 2", "keys", document(b"QSRK", prefix + u8(2) + story.join_secret + u16(0))),
        ("a key is missing", "keys", document(b"QSRK", good_keys[5:-40])),
        ("cut short", "owner state", story.owner_states["next 5"][:-1]),
        ("phase 3", "owner state", document(b"QSRD", owner_prefix(story) + u8(3) + bytes(32))),
        ("a byte too many", "owner state", document(b"QSRD", owner_prefix(story) + u8(1) + bytes(33))),
        ("of the other side", "owner state", story.service_states["next 5"]),
        ("of the other side", "service state", story.owner_states["next 5"]),
        ("a key one byte short", "service state", document(b"QSRE", story.service_states["next 5"][5:-5])),
        ("an unknown suite", "service state", document(b"QSRE", u16(9) + story.service_states["next 5"][7:-4])),
    ):
        decode: Callable[[bytes], object] = {
            "grant": Grant.decode,
            "keys": OwnerKeys.decode,
            "owner state": Owner.load,
            "service state": lambda raw: Service.load(raw, story.entropy),
        }[kind]
        assert outcome(lambda: decode(data)) in ("malformed", "unknown suite"), name  # noqa: B023
        rows.append({"name": name, "kind": kind, "data": data})
    return rows


def renumbered(grant: bytes, first: int) -> bytes:
    return document(b"QSRG", altered(grant[5:-4], 6, u64(first)))


def owner_prefix(story: Story) -> bytes:
    body = u64(1) + lv(SERVICE_ID) + lv(QUEUE_ID) + u8(1) + u16(story.suite)
    return body + u8(1) + u32(0) + story.seeds[0] + u16(0)


def derivations(story: Story) -> list[Json]:
    """A run of the ratchet on its own, for who begins with the KDF."""
    suite, ck = story.suite, bytes(range(32))
    rows: list[Json] = []
    for _ in range(4):
        rows.append({"ck": ck, "message_key": message_key(suite, ck), "next_ck": next_key(suite, ck)})
        ck = next_key(suite, ck)
    return [
        {"H": digest(suite, b"abc"), "of": b"abc"},
        {"Extract": extract(suite, bytes(range(32)), b"ikm"), "salt": bytes(range(32)), "ikm": b"ikm"},
        {
            "X": expand(suite, ck, b"head", b"context", 48),
            "secret": ck,
            "label": "head",
            "context": b"context",
            "L": 48,
        },
        *rows,
    ]
