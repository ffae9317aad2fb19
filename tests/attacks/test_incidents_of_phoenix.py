"""What really went wrong in the one known deployment of this ratchet, and what our machines do instead.

The names are those of its public history (phnx-im/air, pull request numbers).  Nearly all of it was about state,
acknowledgement and concurrency, so a real SQLite store stands on both sides.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from qsratchet import (
    SUITES,
    Dequeuer,
    Duplicate,
    Enqueuer,
    Fork,
    Gap,
    GapTooWide,
    HeadAhead,
    Initialised,
    Message,
    MisuseError,
    ReadPolicy,
    RolledBack,
    Tampered,
    header_of,
)

from .sqlite_host import Crash, OwnerStore, ServiceStore, StaleState, connected

NONCE = bytes(16)


def crash() -> None:
    raise Crash


def damaged(frame: bytes) -> bytes:
    return frame[:-1] + bytes([frame[-1] ^ 1])


def test_548_a_frame_let_out_before_the_commit_is_told_from_the_one_that_was_committed(tmp_path: Path) -> None:
    """#548: listeners were notified before the transaction was committed, so a rollback left them with a ghost."""
    service, owner = connected(tmp_path)
    machine = service.load()
    loaded = machine.generation
    frames = machine.enqueue(b"never stored", now=0)
    with pytest.raises(Crash):
        service.store(loaded, machine, frames, crash=crash)
    # The host that kept the contract let nothing out: the number is used again, and the owner sees one frame.
    (stored,) = service.enqueue(b"stored")
    assert stored.seq == frames[0].seq
    assert owner.read(stored.data) == 2
    # The host that broke it is found out: the ghost and the stored frame are a fork, not a replay.
    with pytest.raises(Fork):
        owner.load().open(frames[0].data)
    assert owner.messages() == [(1, b"stored")]


def test_724_two_workers_never_overwrite_each_other_s_ratchet(tmp_path: Path) -> None:
    """#724: under read committed two workers loaded one ratchet and the later write won, which lost messages."""
    service, owner = connected(tmp_path)
    other = ServiceStore(tmp_path / "service.db")
    one, two = service.load(), other.load()
    loaded = one.generation
    assert two.generation == loaded
    service.store(loaded, one, one.enqueue(b"from one", now=0))
    with pytest.raises(StaleState):
        other.store(loaded, two, two.enqueue(b"from two", now=0))
    other.enqueue(b"from two")
    for frame in service.fetch(1):
        owner.read(frame)
    assert owner.messages() == [(1, b"from one"), (2, b"from two")]


def test_724_every_change_of_either_machine_moves_its_generation(tmp_path: Path) -> None:
    """#724: a compare-and-swap is worth what its counter is: any change that it missed could be overwritten."""
    service_store, owner_store = connected(tmp_path)
    service, owner = service_store.load(), owner_store.load()
    seen: dict[int, bytes] = {}

    def moved(machine: Enqueuer | Dequeuer) -> None:
        blob = machine.dump()
        assert machine.generation > max(seen, default=-1)
        assert blob not in seen.values()
        seen[machine.generation] = blob

    moved(service)
    frames = service.enqueue(b"a", now=0)
    moved(service)
    frames += service.enqueue_many([b"b", b"c"], now=0)
    moved(service)
    frames.append(service.update(now=0))
    moved(service)
    seen.clear()
    moved(owner)
    for frame in frames[:2]:
        owner.open(frame.data)
        moved(owner)
    owner.open_many([frame.data for frame in frames[2:]])
    moved(owner)
    offer = owner.offer_key()
    moved(owner)
    frames = service.accept_offer(offer, now=0) + service.enqueue(b"d", now=0)
    owner.open(frames[0].data)
    moved(owner)
    owner.discard(owner.next_seq)
    moved(owner)
    owner.reset()
    moved(owner)


def test_726_there_is_one_counter_and_it_is_the_authenticated_one(tmp_path: Path) -> None:
    """#726: the queue's row counter and the ratchet's counter were two, and drifted apart."""
    service, owner = connected(tmp_path)
    for number in range(5):
        for frame in service.enqueue(b"%d" % number):
            assert frame.seq == header_of(frame.data).seq
            owner.read(frame.data)
    assert service.numbers() == list(range(6))
    assert service.load().next_seq == owner.load().next_seq == 6
    assert [seq for seq, _ in owner.messages()] == [1, 2, 3, 4, 5]


def test_732_opening_alone_acknowledges_nothing(tmp_path: Path) -> None:
    """#732: messages were acknowledged before the ratchet was stored; after a crash they were gone on both sides."""
    service, owner = connected(tmp_path)
    frames = [frame.data for _ in range(3) for frame in service.enqueue(b"m")]
    machine = owner.load()
    for frame in frames:
        machine.open(frame)
        assert machine.acknowledge == 1
    machine.dump()
    assert machine.acknowledge == 4
    # The process ends before that dump is stored: what is stored is what may be acknowledged.
    assert owner.load().acknowledge == 1
    assert len(service.fetch(owner.load().acknowledge)) == 3


def test_764_a_message_that_the_application_cannot_parse_does_not_block_the_ratchet(tmp_path: Path) -> None:
    """#764 and #733: payloads were parsed inside the decrypting transaction, so one bad payload stopped the queue."""
    service, owner = connected(tmp_path)
    for message in (b"\xff\xfe not what was expected", b"fine"):
        service.enqueue(message)
    for frame in service.fetch(1):
        owner.read(frame)
    bodies = [body for _, body in owner.messages()]
    with pytest.raises(UnicodeDecodeError):
        bodies[0].decode()
    assert bodies[1] == b"fine"
    assert owner.load().next_seq == 3


def test_773_a_single_gap_neither_breaks_the_owner_nor_makes_it_walk_without_bound(tmp_path: Path) -> None:
    """#773: one lost message left clients "irrevocably broken", and the cure skipped ahead without any limit."""
    service, owner = connected(tmp_path)
    frames = [frame.data for _ in range(4) for frame in service.enqueue(b"m")]
    strict = owner.load()
    with pytest.raises(Gap):
        strict.open(frames[1])
    assert strict.dump() == owner.load().dump()
    tolerant = OwnerStore(owner.path, ReadPolicy(tolerant=True, forward_limit=2))
    with pytest.raises(GapTooWide):
        tolerant.load().open(frames[3])
    machine = tolerant.load()
    opened = machine.open(frames[1])
    assert isinstance(opened, Message)
    assert opened.missing == range(1, 2)


@pytest.mark.parametrize("incident", ["344", "1097", "1102", "1114"])
def test_344_1097_1102_1114_processing_may_be_cancelled_at_any_point(tmp_path: Path, incident: str) -> None:
    """#344, #1097, #1102, #1114: a task cancelled between decrypting, storing and acknowledging lost messages.

    Each of the four changes moved the point of cancellation; every point is tried, over the whole queue.
    """
    point = ["344", "1097", "1102", "1114"].index(incident)
    service, owner = connected(tmp_path)
    sent = [b"message %d" % number for number in range(1, 6)]
    for message in sent:
        service.enqueue(message)
    cancelled = 0
    while frames := service.fetch(owner.load().acknowledge):
        machine = owner.load()
        loaded = machine.generation
        # Cancelled on the first attempt at each frame: before opening, after it, in the transaction, before the ack.
        first = cancelled <= machine.next_seq - 1
        if first and point == 0:
            cancelled += 1
            continue
        opened = machine.open(frames[0])
        if first and point == 1:
            cancelled += 1
            continue
        if first and point == 2:
            cancelled += 1
            with pytest.raises(Crash):
                owner.store(loaded, machine, [opened], crash=crash)
            continue
        owner.store(loaded, machine, [opened])
        if first and point == 3:
            cancelled += 1
            continue
        service.acknowledged(machine.acknowledge)
    assert cancelled == 5
    assert [body for _, body in owner.messages()] == sent


def test_1125_what_was_fetched_but_not_processed_is_not_acknowledged(tmp_path: Path) -> None:
    """#1125: the client acknowledged everything it had fetched, though only a part was processed."""
    service, owner = connected(tmp_path)
    for _ in range(5):
        service.enqueue(b"m")
    fetched = service.fetch(1)
    for frame in fetched[:2]:
        service.acknowledged(owner.read(frame))
    assert service.numbers() == [3, 4, 5]
    assert owner.load().acknowledge == 3


def test_1125_a_frame_that_was_refused_is_not_acknowledged_either(tmp_path: Path) -> None:
    """#1125: a batch was acknowledged up to its end whatever became of the frames in it."""
    service, owner = connected(tmp_path)
    frames = [frame.data for _ in range(4) for frame in service.enqueue(b"m")]
    frames[2] = damaged(frames[2])
    machine = owner.load()
    results = machine.open_many(frames)
    assert [type(result) for result in results] == [Message, Message, Tampered, Gap]
    machine.dump()
    assert machine.acknowledge == 3


def test_1270_frames_from_a_stale_position_are_duplicates_and_do_no_harm(tmp_path: Path) -> None:
    """#1270: a listener opened at an old number while the ratchet was ahead, and that was a hard error."""
    service, owner = connected(tmp_path)
    for _ in range(4):
        service.enqueue(b"m")
    for frame in service.fetch(1)[:3]:
        owner.read(frame)
    machine = owner.load()
    results = machine.open_many(service.fetch(0))
    assert [type(result) for result in results] == [Duplicate] * 4 + [Message]


def test_1311_a_frame_that_cannot_be_opened_is_given_up_only_on_purpose_and_on_record(tmp_path: Path) -> None:
    """#1311: an undecryptable message blocked the queue; since then it is dropped and acknowledged in silence."""
    service, owner = connected(tmp_path)
    frames = [frame.data for _ in range(3) for frame in service.enqueue(b"m")]
    machine = owner.load()
    machine.open(frames[0])
    for _ in range(3):
        with pytest.raises(Tampered):
            machine.open(damaged(frames[1]))
    machine.dump()
    assert (machine.acknowledge, machine.discarded) == (2, ())
    machine.discard(2)
    assert isinstance(machine.open(frames[2]), Message)
    assert Dequeuer.load(machine.dump()).discarded == (2,)
    with pytest.raises(MisuseError):
        machine.discard(2)


@pytest.mark.parametrize("incident", ["706", "711", "814", "919"])
def test_706_711_814_919_two_readers_of_one_queue_take_each_message_once(tmp_path: Path, incident: str) -> None:
    """#706, #711, #814, #919: stale or evicted listeners read beside the new one and got in its way."""
    lag = ["706", "711", "814", "919"].index(incident)
    service, owner = connected(tmp_path)
    for number in range(6):
        service.enqueue(b"%d" % number)
    frames = service.fetch(1)
    evicted = OwnerStore(owner.path)
    stale = evicted.load()
    loaded = stale.generation
    for frame in frames[: lag + 1]:
        owner.read(frame)
    # The evicted reader wakes up with an old state: it cannot store, and nothing of what it read is kept.
    opened = stale.open(frames[0])
    with pytest.raises(StaleState):
        evicted.store(loaded, stale, [opened])
    with pytest.raises(Duplicate):
        evicted.read(frames[0])
    for frame in frames[lag + 1 :]:
        evicted.read(frame)
    assert [body for _, body in owner.messages()] == [b"%d" % number for number in range(6)]


def test_durable_acks_an_acknowledgement_that_was_lost_is_sent_again_and_changes_nothing(tmp_path: Path) -> None:
    """dima/durable-acks: acknowledgements were not durable, so after a restart neither side knew what was confirmed."""
    service, owner = connected(tmp_path)
    for _ in range(3):
        service.enqueue(b"m")
    for frame in service.fetch(1):
        owner.read(frame)
    # None of the three acknowledgements arrived.  The stored state gives the same number again, as often as asked.
    assert {owner.load().acknowledge for _ in range(3)} == {4}
    results = owner.load().open_many(service.fetch(0))
    assert all(isinstance(result, Duplicate) for result in results)
    for _ in range(2):
        service.acknowledged(owner.load().acknowledge)
    assert service.numbers() == []
    owner.read(service.enqueue(b"next")[0].data)


def test_a_failed_commit_is_not_counted_as_processed(tmp_path: Path) -> None:
    """Seen in the code of today: the counter moves before the commit, and an error of the commit is ignored."""
    service, owner = connected(tmp_path)
    service.enqueue(b"m")
    machine = owner.load()
    loaded = machine.generation
    opened = machine.open(service.fetch(1)[0])
    reader = sqlite3.connect(owner.path, isolation_level=None)
    reader.execute("BEGIN IMMEDIATE")
    owner.db.execute("PRAGMA busy_timeout = 0")
    with pytest.raises(sqlite3.OperationalError):
        owner.store(loaded, machine, [opened])
    reader.execute("ROLLBACK")
    assert owner.load().acknowledge == 1
    assert owner.read(service.fetch(owner.load().acknowledge)[0]) == 2
    assert owner.messages() == [(1, b"m")]


def test_a_service_restored_from_backup_is_a_fork_and_not_a_replay(tmp_path: Path) -> None:
    """Seen in the code of today: after a restore new messages reuse old numbers and are dropped as replays."""
    service, owner = connected(tmp_path)
    service.enqueue(b"before the backup")
    backup = sqlite3.connect(tmp_path / "backup.db")
    service.db.backup(backup)
    backup.close()
    service.enqueue(b"lost by the restore")
    for frame in service.fetch(1):
        owner.read(frame)
    restored = ServiceStore(tmp_path / "backup.db")
    machine = owner.load()
    # Its head gives the restored service away before it seals anything.
    with pytest.raises(RolledBack):
        machine.verify_head(restored.load().head(NONCE), NONCE)
    (new,) = restored.enqueue(b"new")
    assert new.seq == 2
    with pytest.raises(Fork) as fork:
        machine.open(new.data)
    assert fork.value.seq == 2
    # The way on: a reset with a new secret; nothing was dropped in silence.
    again = machine.reset()
    _, init = Enqueuer.create(again, now=0)
    assert isinstance(machine.open(init.data), Initialised)


def test_the_claim_that_the_queue_is_empty_is_authenticated(tmp_path: Path) -> None:
    """Seen in the code of today: "queue empty" is a bare message, so whoever carries it can hide the rest."""
    service, owner = connected(tmp_path)
    machine = owner.load()
    assert machine.verify_head(service.load().head(NONCE), NONCE).missing == range(1, 1)
    service.enqueue(b"hidden")
    assert machine.verify_head(service.load().head(NONCE), NONCE).missing == range(1, 2)
    sealed = service.load()
    sealed.update(now=0)
    with pytest.raises(HeadAhead):
        machine.verify_head(sealed.head(NONCE), NONCE)


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: f"0x{suite:04x}")
def test_every_label_and_context_reaches_the_derivation(suite: int) -> None:
    """Seen in the code of today: the label that should separate key types was built and then never passed on."""
    kdf, secret = SUITES[suite].kdf, bytes(range(32))
    labels = (b"ratchet", b"message", b"next", b"rotation", b"confirm", b"head")
    contexts = (b"", b"a", b"ab", b"\0", bytes(2))
    outputs = {kdf.expand(secret, label, context) for label in labels for context in contexts}
    assert len(outputs) == len(labels) * len(contexts)
    # Label and context are framed: moving a byte from one to the other gives another key.
    assert kdf.expand(secret, b"ab", b"c") != kdf.expand(secret, b"a", b"bc")
    assert kdf.step(secret) == (kdf.expand(secret, b"message"), kdf.expand(secret, b"next"))


def test_the_order_in_which_two_readers_race_does_not_matter(tmp_path: Path) -> None:
    """The upstream test of two parallel readers has been commented out since #1125; here it is, for every order."""
    for order in range(2**4):
        directory = tmp_path / str(order)
        directory.mkdir()
        service, first = connected(directory)
        second = OwnerStore(first.path)
        for number in range(4):
            service.enqueue(b"%d" % number)
        for turn in range(4):
            reader = second if order >> turn & 1 else first
            for frame in service.fetch(0):
                try:
                    reader.read(frame)
                except Duplicate:
                    continue
                break
        assert [body for _, body in first.messages()] == [b"0", b"1", b"2", b"3"]
