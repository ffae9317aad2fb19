"""Eviction under pressure: what goes, in which order, how much of it, and that links can still be opened."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qsratchet.errors import MisuseError
from qsratchet.records import Blob, DropBlobs, QueueRecord, Rule, Usage, apply, evict

from . import naive
from .strategies import days, records

OLD, NEW = date(2026, 1, 1), date(2026, 6, 1)


def contact(queue_id: bytes, *blobs: tuple[int, int, date]) -> QueueRecord:
    return QueueRecord(
        queue_id=queue_id,
        usage=Usage.CONTACT,
        updated_on=NEW,
        owner_seen_on=NEW,
        blobs=tuple(Blob(priority=priority, size=size, added_on=day) for priority, size, day in blobs),
    )


def chosen(decisions: tuple[DropBlobs, ...]) -> list[tuple[bytes, int]]:
    assert all(decision.rule is Rule.PRESSURE for decision in decisions)
    return [(decision.queue_id, blob.priority) for decision in decisions for blob in decision.blobs]


FOUR = [
    contact(b"a", (0, 10, OLD), (1, 10, NEW), (2, 10, OLD)),
    contact(b"b", (0, 10, NEW), (1, 10, OLD), (2, 10, NEW)),
    contact(b"c", (0, 10, NEW), (2, 10, NEW)),
    contact(b"d", (0, 10, NEW)),
]
ORDER = [(b"b", 2), (b"c", 2), (b"a", 2), (b"a", 1), (b"b", 1)]


@pytest.mark.parametrize("blobs", range(6))
def test_profiles_go_before_post_quantum_keys_and_new_ones_before_old_ones(blobs: int) -> None:
    eviction = evict(FOUR, blobs * 10)
    assert chosen(eviction.decisions) == ORDER[:blobs]
    assert eviction.bytes_freed == blobs * 10
    assert eviction.enough


def test_no_more_goes_than_is_needed() -> None:
    assert chosen(evict(FOUR, 11).decisions) == ORDER[:2]
    assert evict(FOUR, 11).bytes_freed == 20


def test_it_says_when_there_is_not_enough() -> None:
    eviction = evict(FOUR, 51)
    assert chosen(eviction.decisions) == ORDER
    assert (eviction.bytes_freed, eviction.enough) == (50, False)
    assert not evict([], 1).enough
    assert evict([], 0).enough


def test_a_negative_need_is_refused() -> None:
    with pytest.raises(MisuseError, match="bytes_to_free"):
        evict(FOUR, -1)


@st.composite
def crowds(draw: st.DrawFn) -> list[QueueRecord]:
    ids = draw(st.lists(st.binary(min_size=1, max_size=2), unique=True, max_size=12))
    return [draw(records(ids=st.just(queue_id), on=days)) for queue_id in ids]


@given(crowds(), st.integers(0, 40_000))
def test_one_pass_chooses_what_sorting_everything_would(crowd: list[QueueRecord], need: int) -> None:
    eviction = evict(iter(crowd), need)
    decisions, freed = naive.evict(crowd, need)
    assert list(eviction.decisions) == decisions
    assert eviction.bytes_freed == freed
    assert eviction.enough == (freed >= need)


@given(crowds(), st.integers(0, 40_000), st.randoms())
def test_the_order_of_the_records_does_not_matter(crowd: list[QueueRecord], need: int, random: object) -> None:
    shuffled = list(crowd)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert evict(crowd, need) == evict(shuffled, need)


@given(crowds(), st.integers(0, 1 << 40))
def test_after_any_eviction_every_queue_still_has_what_its_link_is_opened_with(
    crowd: list[QueueRecord], need: int
) -> None:
    left = {record.queue_id: record for record in crowd}
    for decision in evict(crowd, need).decisions:
        record = apply(left[decision.queue_id], decision.done(NEW)).record
        assert record is not None
        left[decision.queue_id] = record
    for record in crowd:
        assert left[record.queue_id].blobs[:1] == record.blobs[:1]
        assert [blob.priority for blob in record.blobs[:1]] in ([], [0])
        # Nothing but blobs is touched: no date, no flag.
        assert left[record.queue_id].active_on == record.active_on
    assert sum(blob.size for record in left.values() for blob in record.blobs) == (
        sum(blob.size for record in crowd for blob in record.blobs) - evict(crowd, need).bytes_freed
    )


def test_memory_grows_with_what_is_evicted_and_not_with_the_records() -> None:
    def many(number: int) -> Iterator[QueueRecord]:
        for index in range(number):
            # The newest come last, so that every one of them takes the place of another.
            day = OLD + timedelta(days=index * 100 // number)
            yield contact(index.to_bytes(8, "big"), (0, 10, day), (1, 10, day), (2, 10, day))

    def peak(number: int) -> int:
        tracemalloc.start()
        eviction = evict(many(number), 100)
        size = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert len(eviction.decisions) == 10
        return size

    # The interpreter keeps some thousands of freed tuples for reuse; fill that store before measuring.
    peak(10_000)
    assert peak(10_000) < 2 * peak(500)
