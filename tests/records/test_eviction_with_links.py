"""Records and links together: whatever a service evicts, the links to its queues still open."""

from __future__ import annotations

from datetime import date

from hypothesis import given
from hypothesis import strategies as st

from qsratchet.links import LinkKind, LinkMode, Opening, OwnerLink, Priority
from qsratchet.records import Created, QueueRecord, Usage, apply, evict
from tests.links.shelf import CONTENTS, make

DAY = date(2026, 11, 18)
USAGE = {LinkKind.ONE_TIME: Usage.MESSAGING, LinkKind.CONTACT: Usage.CONTACT}


@given(
    shapes=st.lists(
        st.tuples(st.sampled_from(LinkKind), st.sampled_from(LinkMode), st.sets(st.sampled_from(Priority))), max_size=5
    ),
    bytes_to_free=st.integers(0, 200_000),
)
def test_a_queue_stays_connectable_after_any_eviction(
    shapes: list[tuple[LinkKind, LinkMode, set[Priority]]], bytes_to_free: int
) -> None:
    owners: dict[bytes, OwnerLink] = {}
    shelves: dict[bytes, dict[Priority, bytes]] = {}
    records: dict[bytes, QueueRecord] = {}
    for kind, mode, optional in shapes:
        contents = {priority: CONTENTS[priority] for priority in {Priority.RATCHET_KEYS, *optional}}
        owner, blobs = make(kind, mode, contents)
        id = owner.recipient_id
        owners[id], shelves[id] = owner, blobs
        sizes = tuple(sorted((int(priority), len(blob)) for priority, blob in blobs.items()))
        record = apply(None, Created(queue_id=id, day=DAY, usage=USAGE[kind], blobs=sizes)).record
        assert record is not None
        records[id] = record
    eviction = evict(records.values(), bytes_to_free)
    freed = 0
    for decision in eviction.decisions:
        for blob in decision.blobs:
            freed += len(shelves[decision.queue_id].pop(Priority(blob.priority)))
        after = apply(records[decision.queue_id], decision.done(DAY)).record
        assert after is not None
        records[decision.queue_id] = after
    assert freed == eviction.bytes_freed
    assert eviction.enough == (freed >= bytes_to_free)
    for id, owner in owners.items():
        opened = Opening.start(owner.link).open(shelves[id])
        assert opened.contents == {priority: CONTENTS[priority] for priority in shelves[id]}
        assert Priority.RATCHET_KEYS in opened.contents
        assert [blob.priority for blob in records[id].blobs] == sorted(shelves[id])
