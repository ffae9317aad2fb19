"""What a reader must refuse, and by which verdict: the cases about frames.

Each verdict is written down by hand here, from section 6 of `docs/protocol.md`; `Story.read` makes sure that the
reference agrees.
"""

from __future__ import annotations

from tests.vectors.peers import Owner, Service
from tests.vectors.reference import Injection, Request, make_header, u8, u16, u32, u64
from tests.vectors.story import LOW_ORDER, OFFERED, QUEUE_ID, SERVICE_ID, Story, altered, flipped

LAST_SEQ, LAST_EPOCH = 2**63 - 2, 2**32 - 1
#: A list that has the suite too, but is not the one that was offered. Suite 1 is the only one with its KEM.
OTHER_LIST = {2: (2, 4, 3), 3: (2, 3), 4: (4,)}


def add_frame_cases(story: Story) -> None:
    init_cases(story)
    header_cases(story)
    sealed_cases(story)
    history_cases(story)
    update_cases(story)
    limit_cases(story)


def resealed(service: Service, frame: bytes, body: bytes) -> bytes:
    """The frame made last, authentic, with another body."""
    ck = service.trace["ck"]
    assert isinstance(ck, bytes)
    return service._seal(frame[:16], ck, body, b"")


def header_cases(story: Story) -> None:
    """Frame 5, of epoch 1, in the state that awaits it, with one field changed."""
    frame, aad, state = story.frames[5], story.aads[5], "next 5"
    for name, offset, new, verdict in (
        ("version 0", 0, u8(0), "unknown version"),
        ("version 2", 0, u8(2), "unknown version"),
        ("type 0", 1, u8(0), "unknown type"),
        ("type 5", 1, u8(5), "unknown type"),
        ("type INIT", 1, u8(1), "unexpected init"),
        ("type UPDATE", 1, u8(3), "tampered"),
        ("type HEAD", 1, u8(4), "malformed"),
        ("suite 0", 2, u16(0), "unknown suite"),
        ("suite of the high byte", 2, u16(story.suite + 0x100), "unknown suite"),
        ("another known suite", 2, u16(story.suite % 4 + 1), "wrong suite"),
        ("epoch before", 4, u32(0), "wrong epoch"),
        ("epoch after", 4, u32(2), "wrong epoch"),
        ("epoch with the high bit", 4, u32(2**31 + 1), "wrong epoch"),
        ("number before", 8, u64(4), "fork"),
        ("number after", 8, u64(6), "gap"),
        ("number 0", 8, u64(0), "fork"),
        ("the last DATA number of the epoch", 8, u64(5 + 65534), "gap"),
        ("one over the last DATA number of the epoch", 8, u64(5 + 65535), "malformed"),
        ("the greatest number", 8, u64(LAST_SEQ), "malformed"),
        ("the number 2^63 - 1", 8, u64(2**63 - 1), "malformed"),
        ("the number 2^64 - 1", 8, u64(2**64 - 1), "malformed"),
        ("epoch and number after", 4, u32(2) + u64(6), "epoch gap"),
    ):
        story.read(f"header: {name}", state, altered(frame, offset, new), aad, verdict=verdict)
    moved = altered(frame, 8, u64(6))
    story.read("tolerant: a moved frame", state, moved, aad, verdict="tampered", limit=2000)
    far = altered(frame, 8, u64(5 + 2001))
    story.read("tolerant: beyond the forward limit", state, far, aad, verdict="gap too wide", limit=2000)
    story.read("tolerant: at the forward limit", state, altered(far, 8, u64(2005)), aad, verdict="tampered", limit=2000)
    later = altered(frame, 4, u32(2) + u64(6))
    story.read("tolerant: a later epoch", state, later, aad, verdict="epoch gap", limit=2000)


def sealed_cases(story: Story) -> None:
    frame, aad, state = story.frames[5], story.aads[5], "next 5"
    for name, changed in (
        ("first byte of the nonce", flipped(frame, 16)),
        ("last byte of the nonce", flipped(frame, 27)),
        ("first byte of the ciphertext", flipped(frame, 28)),
        ("last byte of the ciphertext", flipped(frame, -17)),
        ("first byte of the tag", flipped(frame, -16)),
        ("last byte of the tag", flipped(frame, -1)),
        ("a byte is missing", frame[:-1]),
        ("a byte too many", frame + b"\0"),
        ("a tag alone", frame[:44]),
    ):
        story.read(f"sealed: {name}", state, changed, aad, verdict="tampered")
    for size in (0, 1, 15, 16, 17, 23, 24, 27, 28, 43):
        story.read(f"cut to {size} bytes", state, frame[:size], aad, verdict="malformed")
    story.read("other data of the caller", state, frame, aad[:-1], verdict="tampered")
    story.read("no data of the caller", state, frame, b"", verdict="tampered")
    story.read("the frame of another number", state, altered(story.frames[7], 4, frame[4:16]), verdict="tampered")
    other, _ = Service.create(
        Request(SERVICE_ID, b"another queue", OFFERED[story.suite], story.public_key(0), story.join_secret).encode(),
        story.entropy,
        (story.suite,),
    )
    other.ck = story.service_at("next 1").ck
    story.read("the same chain key in another queue", "next 1", other.data(b"hello"), verdict="tampered")
    service = story.service_at("next 5")
    service.data(b"")
    for name, body, opens in (
        ("an empty body", b"", None),
        ("three bytes of a length", bytes(3), None),
        ("a length one over the body", u32(3) + b"ab", None),
        ("the greatest length", b"\xff" * 4 + b"ab", None),
        ("a length and nothing else", u32(0), b""),
        ("padding that is not zero", u32(2) + b"abcdef", b"ab"),
    ):
        made = resealed(service, make_header(2, story.suite, 1, 5), body)
        verdict = "malformed" if opens is None else None
        story.read(f"authentic: {name}", state, made, opens=opens, verdict=verdict)


def history_cases(story: Story) -> None:
    frames, aads = story.frames, story.aads
    for seq in (0, 4, 5):
        story.read(f"frame {seq} again", "next 6", frames[seq], aads[seq], verdict="duplicate")
    story.read("another frame 5", "next 6", story.service_at("next 5").data(b"other"), verdict="fork")
    _, init = Service.create(story.request, story.entropy, (story.suite,))
    story.read("a second INIT with number 0", "next 6", init, verdict="fork")
    story.read("a second INIT with the next number", "next 6", altered(init, 8, u64(6)), verdict="unexpected init")
    story.read("a second INIT further on", "next 6", altered(init, 8, u64(9)), verdict="unexpected init", limit=9)
    story.read("one frame is missing", "next 14", frames[15], aads[15], verdict="gap")
    story.read("an UPDATE is missing", "next 3", frames[5], aads[5], verdict="epoch gap")
    story.read("the UPDATE that is due is missing", "next 4", frames[5], aads[5], verdict="epoch gap")
    story.read("tolerant: over two frames", "next 14", frames[16], aads[16], opens=b"number 16", limit=2)
    story.read("tolerant: over one too many", "next 14", frames[17], aads[17], verdict="gap too wide", limit=2)
    story.read("tolerant: an UPDATE over a gap", "next 1", frames[4], limit=2000)
    skipped = "after: tolerant: over two frames"
    story.read("a frame that was skipped", skipped, frames[15], aads[15], verdict="passed")
    story.read("the frame after a skip, again", skipped, frames[16], aads[16], verdict="duplicate")
    story.read("the frame after the skip", skipped, frames[17], aads[17], opens=b"number 17")
    owner = story.owner_at("next 14")
    owner.discard()
    story.owner_states["next 15, 14 discarded"] = owner.state()
    story.read("a discarded frame", "next 15, 14 discarded", frames[14], aads[14], verdict="passed")
    story.read("after a discarded frame", "next 15, 14 discarded", frames[15], aads[15], opens=b"number 15")
    owner, service = story.owner_at("next 15"), story.service_at("next 15")
    made = [service.data(b"") for _ in range(70)]
    for frame in made:
        owner.read(frame)
    story.owner_states["next 85"] = owner.state()
    story.read("64 numbers back", "next 85", made[85 - 64 - 15], verdict="duplicate")
    story.read("65 numbers back", "next 85", made[85 - 65 - 15], verdict="passed")


def init_cases(story: Story) -> None:
    init, start = story.frames[0], "before init"
    for name, frame, verdict in (
        ("confirmation", flipped(init, 20), "tampered"),
        ("last byte of the confirmation", flipped(init, 51), "tampered"),
        ("first byte of enc", flipped(init, 52), "tampered"),
        ("last byte of enc", flipped(init, -49), "tampered"),
        ("first byte of ct", flipped(init, -48), "tampered"),
        ("last byte of ct", flipped(init, -1), "tampered"),
        ("key id 1", altered(init, 16, u32(1)), "tampered"),
        ("epoch 1", altered(init, 4, u32(1)), "tampered"),
        ("number 1", altered(init, 8, u64(1)), "malformed"),
        ("a byte is missing", init[:-1], "malformed"),
        ("a byte too many", init + b"\0", "malformed"),
        ("a header alone", init[:16], "malformed"),
        ("type DATA", altered(init, 1, u8(2)), "malformed"),
        ("type UPDATE", altered(init, 1, u8(3)), "malformed"),
        ("type HEAD", altered(init, 1, u8(4)), "malformed"),
        ("a suite that was not offered", altered(init, 2, u16(1 if story.suite > 1 else 2)), "wrong suite"),
        ("a low-order X25519 share", altered(init, len(init) - 80, LOW_ORDER), "tampered"),
        ("DATA comes first", story.frames[1], "gap"),
        ("DATA of the greatest number comes first", altered(story.frames[1], 8, u64(LAST_SEQ)), "gap"),
        ("DATA of the number 2^63 - 1 comes first", altered(story.frames[1], 8, u64(LAST_SEQ + 1)), "malformed"),
        ("UPDATE comes first", story.frames[4], "gap"),
    ):
        story.read(f"INIT: {name}", start, frame, verdict=verdict)
    if len(OFFERED[story.suite]) > 1:
        other = next(suite for suite in OFFERED[story.suite] if suite != story.suite)
        story.read("INIT: another offered suite", start, altered(init, 2, u16(other)), verdict="tampered")
    # A service that knows join_secret, and breaks the rule that INIT is of epoch 0.
    ct, header = init[52:], make_header(1, story.suite, 7, 0)
    injection = Injection(story.suite, story.service.qctx, header, 0, 0)
    confirmed = injection.confirmation(story.service_at("next 1").ck, ct)
    wrong_epoch = header + u32(0) + confirmed + ct
    story.read("INIT: confirmed for epoch 7", start, wrong_epoch, verdict="tampered")
    key, other_key, offered = {0: story.seeds[0]}, {0: story.seeds[1]}, OFFERED[story.suite]
    owners = {
        "another join_secret": Owner(SERVICE_ID, QUEUE_ID, offered, key, bytes(32)),
        "another key": Owner(SERVICE_ID, QUEUE_ID, offered, other_key, story.join_secret),
        "another queue id": Owner(SERVICE_ID, b"q", offered, key, story.join_secret),
        "another service id": Owner(b"s", QUEUE_ID, offered, key, story.join_secret),
    }
    if story.suite in OTHER_LIST:
        owners["another list of suites"] = Owner(SERVICE_ID, QUEUE_ID, OTHER_LIST[story.suite], key, story.join_secret)
    for name, owner in owners.items():
        story.owner_states[f"before init, {name}"] = owner.state()
        story.read(f"INIT: {name}", f"before init, {name}", init, verdict="tampered")


def update_cases(story: Story) -> None:
    update, state = story.frames[4], "next 4"
    for name, offset in (("nonce", 16), ("key id", 28), ("ended", 35), ("confirmation", 36), ("ct", 68), ("tag", -1)):
        story.read(f"UPDATE: {name}", state, flipped(update, offset), verdict="tampered")
    story.read("UPDATE: type DATA", state, altered(update, 1, u8(2)), verdict="tampered")
    story.read("UPDATE: the caller's data does not matter", state, update, b"any", after="next 5")
    for size in (16, 28, 43):
        story.read(f"UPDATE: cut to {size} bytes", state, update[:size], verdict="malformed")
    story.read("UPDATE: a byte is missing", state, update[:-1], verdict="tampered")
    service = story.service_at(state)
    service.update()
    body = service.trace["body"]
    assert isinstance(body, bytes)
    for name, changed, verdict in (
        ("an empty body", b"", "malformed"),
        ("a body one byte short", body[:-1], "malformed"),
        ("a body one byte long", body + b"\0", "malformed"),
        ("the length of another epoch", altered(body, 4, u32(5)), "malformed"),
        ("a key that nobody offered", altered(body, 0, u32(1)), "missing key"),
        ("another confirmation", flipped(body, 8), "tampered"),
        ("another enc", flipped(body, 40), "missing key"),
        ("another ct", flipped(body, -1), "missing key"),
        ("a low-order X25519 share", altered(body, len(body) - 80, LOW_ORDER), "missing key"),
    ):
        story.read(f"UPDATE: authentic, {name}", state, resealed(service, update, changed), verdict=verdict)
    service = story.service_at(state)
    stray = service.update(0, story.public_key(1))
    story.read("UPDATE: sealed to another key", state, stray, verdict="missing key")
    two_keys = "next 9, to the old key"
    owner = story.owner_at("next 9")
    story.owner_states[two_keys] = owner.state()
    old = story.service_at("next 9").update()
    story.read("UPDATE: to the old key while the new one is offered", two_keys, old)
    assert len(story.owner_at("after: UPDATE: to the old key while the new one is offered").keys) == 2
    service = story.service_at("next 11")
    late = service.update(0, story.public_key(0))
    story.read("UPDATE: to a key that was replaced", "next 11", late, verdict="missing key")
    skip = story.service_at("next 9").update(2, story.public_key(2))
    story.read("UPDATE: to a key after the offered one", two_keys, skip, verdict="missing key")


def edge(story: Story, name: str, epoch: int, first: int, next_seq: int) -> Service:
    """Both sides at the edge of a limit, with a chain of their own."""
    owner, service = story.owner_at("next 22"), story.service_at("next 22")
    assert owner.chain is not None
    owner.chain.ck = service.ck = story.entropy.take(32)
    owner.chain.epoch, owner.chain.first, owner.chain.next = epoch, first, next_seq
    service.epoch, service.first, service.next = epoch, first, next_seq
    owner.chain.tags = {n: story.entropy.take(16) for n in owner.chain.remembered()}
    story.owner_states[name] = owner.state()
    return service


def limit_cases(story: Story) -> None:
    service = edge(story, "full epoch", 3, 1000, 1000 + 65534)
    last = service.data(b"the last of its epoch")
    over = service.data(b"one too many")
    story.read("limit: the last DATA frame of an epoch", "full epoch", last, opens=b"the last of its epoch")
    filled = "after: limit: the last DATA frame of an epoch"
    story.read("limit: a DATA frame too many", filled, over, verdict="malformed")
    service.next, service.ck = 1000 + 65535, story_ck(story, filled)
    end = service.update()
    story.read("limit: the UPDATE of a full epoch", filled, end)
    late = altered(end, 8, u64(1000 + 65536))
    story.read("limit: an UPDATE too late", filled, late, verdict="malformed", limit=9)
    service = edge(story, "last epoch", LAST_EPOCH, 5000, 5001)
    story.read("limit: DATA of the last epoch", "last epoch", service.data(b"end"), opens=b"end")
    forged = make_header(3, story.suite, LAST_EPOCH, 5001) + bytes(60)
    story.read("limit: UPDATE of the last epoch", "last epoch", forged, verdict="malformed")
    service = edge(story, "last number", 9, LAST_SEQ - 1, LAST_SEQ)
    story.read("limit: the last number", "last number", service.data(b"last"), opens=b"last")
    none_left = "after: limit: the last number"
    story.read("limit: no number is left", none_left, service.data(b"over"), verdict="malformed")


def story_ck(story: Story, name: str) -> bytes:
    chain = story.owner_at(name).chain
    assert chain is not None
    return chain.ck
