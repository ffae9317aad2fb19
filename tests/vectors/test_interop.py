"""Library and reference in one queue: either seals, either opens, and each goes on where the other stopped.

Both sides live as stored states. For every step Hypothesis chooses which implementation loads the state and takes it,
so one schedule covers both directions, and the stored states too.
"""

from __future__ import annotations

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import qsratchet as q
from tests.vectors import peers
from tests.vectors.implementations import ALL_SUITES, Library, Reference, without_generation
from tests.vectors.reference import FRAME_LIMIT, INIT, UPDATE, Entropy, Injection, make_header
from tests.vectors.story import OFFERED, flipped

EITHER = st.sampled_from((Reference(), Library()))
AAD = st.binary(max_size=40)
NONCE = st.binary(min_size=16, max_size=64)
LIMIT = 50


class Queue(RuleBasedStateMachine):
    """A queue whose frames wait to be read; `aads` are the caller's data of each, and `lost` the numbers that went."""

    @initialize(suite=st.sampled_from(ALL_SUITES), ids=st.tuples(*[st.binary(min_size=1, max_size=40)] * 2), by=EITHER)
    def create(self, suite: int, ids: tuple[bytes, bytes], by: Reference | Library) -> None:
        self.suite, self.ids = suite, ids
        if isinstance(by, Library):
            dequeuer, request = q.Dequeuer.create(*ids, suites=OFFERED[suite])
            self.owner, encoded = dequeuer.dump(), request.encode()
        else:
            entropy = Entropy(b"".join(ids))
            owner = peers.Owner(*ids, OFFERED[suite], {0: entropy.take(32)}, entropy.take(32))
            self.owner, encoded = owner.state(), owner.request()
        self.keys = self.owner_keys()
        self.request = encoded
        self.service = b""
        self.waiting: list[tuple[bytes, bytes, bytes | None]] = []
        self.control: list[bytes] = []
        self.grants: list[bytes] = []
        self.read_seq = 0
        self.lost: list[int] = []
        self.offer: bytes | None = None

    @precondition(lambda self: not self.service)
    @rule(sealer=EITHER, reader=EITHER)
    def begin(self, sealer: Reference | Library, reader: Reference | Library) -> None:
        made = sealer.create(self.request, (self.suite,))
        assert not isinstance(made, str)
        self.service, init = made
        self.waiting.append((init, b"", None))
        self.control.append(init)
        self.read_next(reader)

    @precondition(lambda self: self.service)
    @rule(by=EITHER, message=st.binary(max_size=300), aad=AAD)
    def seal(self, by: Reference | Library, message: bytes, aad: bytes) -> None:
        self.service, frames = by.seal(self.service, message, aad)
        for frame in frames[:-1]:
            self.waiting.append((frame, b"", None))
            self.control.append(frame)
        self.waiting.append((frames[-1], aad, message))

    @precondition(lambda self: self.service)
    @rule(by=EITHER)
    def update(self, by: Reference | Library) -> None:
        self.service, frames = by.update(self.service)
        self.waiting.append((frames[0], b"", None))
        self.control += frames

    @precondition(lambda self: self.service and self.offer is None)
    @rule(by=EITHER)
    def offer_key(self, by: Reference | Library) -> None:
        if len(peers.Owner.load(self.owner).keys) == 1:
            self.owner, self.offer = by.offer_key(self.owner)
            self.keys |= self.owner_keys()

    @precondition(lambda self: self.service and self.offer is not None)
    @rule(by=EITHER, again=EITHER)
    def accept_offer(self, by: Reference | Library, again: Reference | Library) -> None:
        assert self.offer is not None
        answer = by.take_offer(self.service, self.offer)
        assert not isinstance(answer, str)
        self.service, (frame,) = answer
        self.waiting.append((frame, b"", None))
        self.control.append(frame)
        assert again.take_offer(self.service, self.offer) == (self.service, [])
        self.offer = None

    @precondition(lambda self: self.service and self.waiting)
    @rule(by=EITHER)
    def read_next(self, by: Reference | Library) -> None:
        frame, aad, message = self.waiting.pop(0)
        read = by.read(self.owner, LIMIT, frame, aad)
        assert read.verdict is None
        assert read.message == message
        assert list(read.missing) == self.lost
        self.owner, self.lost = read.state, []
        if message is None:
            self.grants.append(by.grant(self.owner))

    @precondition(
        lambda self: self.service and self.waiting and self.waiting[0][2] is not None and len(self.lost) < LIMIT
    )
    @rule()
    def lose(self) -> None:
        """A DATA frame is lost; a tolerant reader goes on."""
        frame, _, _ = self.waiting.pop(0)
        self.lost.append(int.from_bytes(frame[8:16], "big"))

    @precondition(lambda self: self.service and self.waiting)
    @rule(place=st.integers(0, 4000), bit=st.integers(0, 7), cut=st.integers(0, 4000))
    def both_refuse_what_was_altered_alike(self, place: int, bit: int, cut: int) -> None:
        frame, aad, _ = self.waiting[0]
        place %= len(frame)
        altered = frame[:place] + bytes([frame[place] ^ 1 << bit]) + frame[place + 1 :]
        # Cuts within nonce and tag are left to the vectors.
        shorter = frame[: 44 + cut % (len(frame) - 44)] if len(frame) > 44 else frame[:15]
        for bad in (altered, shorter, frame + b"\0"):
            for limit in (None, LIMIT):
                answers = [it.read(self.owner, limit, bad, aad) for it in (Reference(), Library())]
                assert answers[0] == answers[1]
                assert answers[0].verdict is not None
                assert answers[0].state == self.owner

    @precondition(lambda self: self.service)
    @rule(nonce=NONCE)
    def both_prove_and_check_the_same_head(self, nonce: bytes) -> None:
        head = Reference().head(self.service, nonce)
        assert head == Library().head(self.service, nonce)
        for bad in (head, flipped(head, -1), flipped(head, 15), flipped(head, 7)):
            answers = [it.check_head(self.owner, LIMIT, bad, nonce) for it in (Reference(), Library())]
            assert answers[0] == answers[1]

    @invariant()
    def both_load_both_states(self) -> None:
        for it in (Reference(), Library()):
            assert it.again("owner state", self.owner) == self.owner
            assert not self.service or it.again("service state", self.service) == self.service

    def owner_keys(self) -> dict[int, bytes]:
        owner = peers.Owner.load(self.owner)
        if owner.join_secret is not None:
            self.join_secret = owner.join_secret
        return dict(owner.keys)

    def teardown(self) -> None:
        """Read the rest; then both derive the same grants from the keys, and they are those that the owner gave."""
        if not getattr(self, "service", b""):
            return
        while self.waiting:
            self.read_next(Reference() if len(self.waiting) % 2 else Library())
        keys = peers.OwnerKeys(*self.ids, OFFERED[self.suite], self.join_secret, self.keys).encode()
        assert Reference().walk(keys, self.control) == Library().walk(keys, self.control) == self.grants


TestQueue = Queue.TestCase
TestQueue.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@pytest.mark.parametrize("suite", ALL_SUITES)
@given(messages=st.lists(st.binary(max_size=2000), min_size=1, max_size=12), aad=AAD)
@settings(max_examples=15, deadline=None)
def test_the_reference_opens_a_batch_and_the_padding_is_that_of_the_document(
    suite: int, messages: list[bytes], aad: bytes
) -> None:
    dequeuer, request = q.Dequeuer.create(b"s", b"q", suites=(suite,))
    enqueuer, init = q.Enqueuer.create(request, now=7, policy=q.UpdatePolicy(frames=3))
    assert peers.Service.load(enqueuer.dump(), Entropy(b"")).updated_at == 7
    owner = peers.Owner.load(dequeuer.dump())
    frames = [init, *enqueuer.enqueue_many(messages, now=7, aad=aad)]
    opened = [owner.read(frame.data, aad) for frame in frames]
    assert [message for message in opened if message is not None] == messages
    assert [frame.type for frame in frames].count(q.FrameType.UPDATE) == (len(messages) - 1) // 3
    sizes = [len(frame.data) - 44 for frame in frames if frame.type is q.FrameType.DATA]
    assert sizes == [padme(4 + len(message)) for message in messages]
    dequeuer.open_many([frame.data for frame in frames], aad=aad)
    assert without_generation(dequeuer.dump()) == without_generation(owner.state())


def padme(length: int) -> int:
    """Section 5.3, in its own words."""
    e = length.bit_length() - 1
    s = e.bit_length()
    unit = 2 ** (e - s)
    return -(-length // unit) * unit if e > s else length


def owner_and_service(suite: int) -> tuple[peers.Owner, peers.Service]:
    owner = peers.Owner(b"s", b"q", (suite,), {0: bytes(range(32))}, bytes(32))
    service, init = peers.Service.create(owner.request(), Entropy(b"limits"))
    owner.read(init)
    return owner, service


@pytest.mark.parametrize("suite", ALL_SUITES)
def test_no_single_bit_of_a_frame_can_be_flipped(suite: int) -> None:
    """Every bit of a DATA frame, and of an UPDATE one bit in each byte: both implementations give the same verdict."""
    owner, service = owner_and_service(suite)
    data = service.data(b"message", b"aad")
    state = owner.state()
    for bit in range(8 * len(data)):
        bad = data[: bit // 8] + bytes([data[bit // 8] ^ 1 << bit % 8]) + data[bit // 8 + 1 :]
        answers = [it.read(state, 9, bad, b"aad") for it in (Reference(), Library())]
        assert answers[0] == answers[1]
        assert answers[0].verdict is not None
    owner.read(data, b"aad")
    update, state = service.update(), owner.state()
    for place in range(0, len(update), 1 if suite == 1 else 7):
        bad = flipped(update, place)
        answers = [it.read(state, 9, bad, b"") for it in (Reference(), Library())]
        assert answers[0] == answers[1]
        assert answers[0].verdict is not None


def test_a_frame_at_the_limit_is_taken_by_both() -> None:
    owner, service = owner_and_service(1)
    state, zeros = owner.state(), FRAME_LIMIT - 44 - 4 - 2
    frame = service.data(b"ab", zeros=zeros)
    assert len(frame) == FRAME_LIMIT
    for it in (Reference(), Library()):
        assert it.read(state, None, frame, b"").message == b"ab"


@pytest.mark.parametrize("it", [Reference(), Library()], ids=lambda it: it.name)
def test_a_frame_over_the_limit_is_malformed(it: Reference | Library) -> None:
    owner, service = owner_and_service(1)
    state = owner.state()
    frame = service.data(b"ab", zeros=FRAME_LIMIT - 44 - 4 - 2 + 1)
    assert it.read(state, None, frame, b"").verdict == "malformed"


def test_a_frame_over_the_limit_is_malformed_wherever_it_claims_to_be() -> None:
    owner, _ = owner_and_service(1)
    frame = make_header(UPDATE, 1, 0, 1) + bytes(FRAME_LIMIT - 15)
    for it in (Reference(), Library()):
        assert it.read(owner.state(), None, frame, b"").verdict == "malformed"


def test_a_walk_takes_no_init_but_number_0_of_epoch_0() -> None:
    """Made by a service that knows join_secret and breaks the rule of section 5.2."""
    owner = peers.Owner(b"s", b"q", (1,), {0: bytes(range(32))}, bytes(32))
    service, init = peers.Service.create(owner.request(), Entropy(b"walk"))
    header = make_header(INIT, 1, 3, 5)
    confirmation = Injection(1, service.qctx, header, 0, 0).confirmation(service.ck, init[52:])
    keys = peers.OwnerKeys(b"s", b"q", (1,), bytes(32), owner.keys).encode()
    with pytest.raises(q.FrameRejected):
        q.GrantWalk(q.OwnerKeys.decode(keys)).open(header + bytes(4) + confirmation + init[52:])


# --- states that no owner dumps, with a checksum that is right ---

UNKNOWN = 0x7FFF


def odd_states() -> list[object]:
    fresh = peers.Owner(b"s", b"q", (1,), {0: bytes(range(32))}, bytes(32))
    unknown_first = copy.deepcopy(fresh)
    unknown_first.suites = (UNKNOWN, 1)
    late_key = copy.deepcopy(fresh)
    late_key.keys = {3: bytes(32)}
    reading, _ = owner_and_service(1)
    reading.suites = (1, UNKNOWN)
    assert reading.chain is not None
    reading.chain.suite = UNKNOWN
    return [
        pytest.param(unknown_first.state(), id="before INIT, the first suite unknown"),
        pytest.param(late_key.state(), id="before INIT, without key 0"),
        pytest.param(reading.state(), id="the suite in use unknown"),
    ]


@pytest.mark.parametrize("state", odd_states())
def test_a_state_that_no_owner_dumps_raises_only_this_librarys_errors(state: bytes) -> None:
    init = make_header(1, 1, 0, 0) + bytes(36 + 80)
    try:
        q.Dequeuer.load(state).open(init)
    except q.QSRatchetError:
        return
    raise AssertionError("nothing was refused")
