"""The store log: the same records come back, a torn end is dropped, and any other damage is named."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from datetime import date, timedelta
from itertools import pairwise
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qsratchet.errors import MisuseError, StateError
from qsratchet.records import (
    EMPTY_LOG,
    BlobReplaced,
    BlobsDropped,
    Created,
    Deleted,
    Event,
    Kept,
    LogDamaged,
    LogEnd,
    LogReader,
    MessageSent,
    OwnerSeen,
    QueueRecord,
    RetentionPolicy,
    Secured,
    Suspended,
    Usage,
    append,
    apply,
    compact,
    replay,
    sweep,
)

from .strategies import days, interleaved, policies, records

DAY = date(2026, 11, 18)
A, B = b"a" * 24, b"b" * 24

#: One entry of every kind but `Kept`.
HISTORY: list[Event] = [
    Created(queue_id=A, day=DAY, usage=Usage.MESSAGING, blobs=((0, 2048), (1, 1500), (2, 13000))),
    Created(queue_id=B, day=DAY, usage=Usage.CONTACT, blobs=((0, 2048),)),
    BlobReplaced(queue_id=B, day=DAY, priority=2, size=9000),
    OwnerSeen(queue_id=B, day=DAY + timedelta(days=1)),
    Secured(queue_id=A, day=DAY + timedelta(days=2)),
    MessageSent(queue_id=A, day=DAY + timedelta(days=3)),
    BlobsDropped(queue_id=A, day=DAY + timedelta(days=3), priorities=(0, 1, 2)),
    Suspended(queue_id=B, day=DAY + timedelta(days=4)),
    Deleted(queue_id=B, day=DAY + timedelta(days=5)),
]


def log_of(events: list[Event]) -> tuple[bytes, list[LogEnd]]:
    """The log, and where each entry of it ends; the first one is the end of the header."""
    data, end = append(EMPTY_LOG)
    ends = [end]
    for event in events:
        more, end = append(end, event)
        data += more
        ends.append(end)
    return data, ends


LOG, ENDS = log_of(HISTORY)


def folded(events: list[Event]) -> dict[bytes, QueueRecord]:
    kept: dict[bytes, QueueRecord] = {}
    for event in events:
        record = apply(kept.get(event.queue_id), event).record
        if record is None:
            del kept[event.queue_id]
        else:
            kept[event.queue_id] = record
    return kept


def pieces(data: bytes, sizes: list[int]) -> Iterator[bytes]:
    at = 0
    for size in sizes:
        yield data[at : at + size]
        at += size
    yield data[at:]


def events_of(data: bytes) -> list[Event]:
    return list(LogReader().feed(data))


# --- Whole logs ------------------------------------------------------------------------------------


def test_every_event_comes_back_as_it_was() -> None:
    assert events_of(LOG) == HISTORY
    kept = Kept(record=folded(HISTORY)[A])
    assert events_of(append(EMPTY_LOG, kept)[0]) == [kept]


def test_appending_one_by_one_or_all_at_once_gives_the_same_log() -> None:
    assert append(EMPTY_LOG, *HISTORY) == (LOG, ENDS[-1])
    assert ENDS[-1].offset == len(LOG)
    assert ENDS[-1].entries == len(HISTORY)


def test_a_log_of_no_bytes_is_an_empty_log_that_can_be_appended_to() -> None:
    result = replay([])
    assert result.records == {}
    assert result.end == EMPTY_LOG
    assert append(result.end, *HISTORY)[0] == LOG


def test_a_log_with_nothing_but_its_header_does_not_get_another_one() -> None:
    header, end = append(EMPTY_LOG)
    assert replay([header]).end == end
    assert append(end)[0] == b""


@given(interleaved(), st.lists(st.integers(0, 40)))
def test_a_replayed_log_gives_the_records_that_the_fold_gives(events: list[Event], sizes: list[int]) -> None:
    data, end = append(EMPTY_LOG, *events)
    result = replay(pieces(data, sizes))
    assert result.records == folded(events)
    assert result.end == end


@given(interleaved(), policies, days)
def test_a_log_of_the_due_writes_alone_gives_the_same_decisions(
    events: list[Event], policy: RetentionPolicy, today: date
) -> None:
    kept: dict[bytes, QueueRecord] = {}
    data, end = append(EMPTY_LOG)
    for event in events:
        step = apply(kept.get(event.queue_id), event)
        if step.write_due:
            more, end = append(end, event)
            data += more
        if step.record is None:
            del kept[event.queue_id]
        else:
            kept[event.queue_id] = step.record
    again = replay([data]).records
    assert again.keys() == kept.keys()
    assert list(sweep([again[key] for key in sorted(again)], today, policy)) == list(
        sweep([kept[key] for key in sorted(kept)], today, policy)
    )


@given(interleaved(), policies, days)
def test_a_compacted_log_gives_the_same_records_and_decisions_and_can_be_appended_to(
    events: list[Event], policy: RetentionPolicy, today: date
) -> None:
    kept = folded(events)
    data, end = b"", EMPTY_LOG
    for more, end in compact(kept.values()):  # noqa: B007
        data += more
    result = replay([data])
    assert result.records == kept
    assert result.end == end
    assert list(sweep(result.records.values(), today, policy)) == list(sweep(kept.values(), today, policy))
    fresh = Created(queue_id=b"fresh", day=today, usage=Usage.CONTACT)
    data += append(end, fresh)[0]
    assert replay([data]).records == folded([*map(_kept, kept.values()), fresh])


def _kept(record: QueueRecord) -> Kept:
    return Kept(record=record)


def test_compaction_of_nothing_is_a_log_of_no_entries() -> None:
    ((data, end),) = compact([])
    assert (data, end) == append(EMPTY_LOG)


def test_a_compacted_log_tells_nothing_of_the_sequence_of_events() -> None:
    busy = [*HISTORY[:1], HISTORY[4], *(MessageSent(queue_id=A, day=DAY + timedelta(days=n)) for n in range(2, 30))]
    direct = [*HISTORY[:1], HISTORY[4], MessageSent(queue_id=A, day=DAY + timedelta(days=29))]
    assert list(compact(folded(busy).values())) == list(compact(folded(direct).values()))


def test_a_long_compaction_comes_in_pieces() -> None:
    many = (
        QueueRecord(queue_id=number.to_bytes(4, "big"), usage=Usage.CONTACT, updated_on=DAY, owner_seen_on=DAY)
        for number in range(3000)
    )
    given_pieces = list(compact(many))
    assert [end.entries for _, end in given_pieces] == [0, 1024, 2048, 3000]
    assert len(replay([data for data, _ in given_pieces]).records) == 3000


# --- Torn and damaged logs, at every byte ------------------------------------------------------------


@pytest.mark.parametrize("piece", [1, 7, 1 << 16])
def test_a_log_cut_at_any_byte_loses_the_torn_entry_and_says_where(piece: int) -> None:
    for cut in range(len(LOG) + 1):
        whole = [end for end in ENDS if end.offset <= cut]
        expected = whole[-1] if whole else EMPTY_LOG
        result = replay(LOG[at : min(at + piece, cut)] for at in range(0, cut, piece))
        assert (result.end.entries, result.end.offset) == (expected.entries, expected.offset)
        assert result.end.torn == cut - expected.offset
        assert result.records == folded(HISTORY[: expected.entries])


def test_after_the_torn_bytes_are_cut_off_the_log_goes_on() -> None:
    for cut in range(len(LOG) + 1):
        end = replay([LOG[:cut]]).end
        if end.torn:
            with pytest.raises(MisuseError, match=f"cut the file to {end.offset} bytes"):
                append(end, HISTORY[0])
        repaired = LOG[: end.offset] + append(end.cut(), *HISTORY[end.entries :])[0]
        assert repaired == LOG


@pytest.mark.parametrize("flip", [0x01, 0x80, 0xFF])
def test_a_changed_byte_anywhere_is_an_error_that_names_its_entry(flip: int) -> None:
    for at in range(len(LOG)):
        damaged = bytearray(LOG)
        damaged[at] ^= flip
        entry = sum(end.offset <= at for end in ENDS)
        with pytest.raises(LogDamaged) as caught:
            replay([bytes(damaged)])
        assert caught.value.entry == entry
        assert caught.value.offset == (ENDS[entry - 1].offset if entry else 0)
        assert f"byte {caught.value.offset}:" in str(caught.value)
        # What is before the damage is whole, and is what the error offers to keep.
        assert replay([LOG[: caught.value.offset]]).end.entries == max(entry - 1, 0)


def test_a_changed_byte_is_never_taken_for_a_torn_end_however_the_log_is_cut() -> None:
    # The last entry is damaged and cut short as well: its length is the only thing that can be checked.
    start = ENDS[-2].offset
    for at in range(start, start + 4):
        damaged = bytearray(LOG)
        damaged[at] ^= 0x01
        with pytest.raises(LogDamaged, match=f"entry {len(HISTORY)} at byte {start}: its length is damaged"):
            replay([bytes(damaged[:-1])])


def test_entries_left_out_repeated_or_exchanged_are_damage() -> None:
    parts = [LOG[a.offset : b.offset] for a, b in pairwise(ENDS)]
    head = LOG[: ENDS[0].offset]
    for index in range(len(parts)):
        if index + 1 < len(parts):
            left_out = parts[:index] + parts[index + 1 :]
            exchanged = [*parts[:index], parts[index + 1], parts[index], *parts[index + 2 :]]
            for changed in (left_out, exchanged):
                with pytest.raises(LogDamaged, match=f"entry {index + 1} at byte {ENDS[index].offset}: its checksum"):
                    replay([head + b"".join(changed)])
        repeated = parts[: index + 1] + parts[index:]
        with pytest.raises(LogDamaged, match=f"entry {index + 2} at byte {ENDS[index + 1].offset}: its checksum"):
            replay([head + b"".join(repeated)])


def test_writing_on_behind_a_torn_entry_is_damage_and_not_a_shorter_log() -> None:
    torn = LOG[: ENDS[2].offset + 5]
    more = append(ENDS[2], *HISTORY[2:])[0]
    with pytest.raises(LogDamaged, match=f"entry 3 at byte {ENDS[2].offset}"):
        replay([torn + more])


def test_zeros_behind_the_log_are_damage() -> None:
    with pytest.raises(LogDamaged, match=f"entry {len(HISTORY) + 1} at byte {len(LOG)}"):
        replay([LOG + bytes(4)])


@pytest.mark.parametrize("data", [b"\x00", b"QSRX", b"QSRQ\x01\x00\x00\x00\x00", bytes(9), b"QSRS\x02"])
def test_what_does_not_begin_like_a_store_log_is_refused(data: bytes) -> None:
    with pytest.raises(LogDamaged, match="its header at byte 0") as caught:
        replay([data])
    assert (caught.value.entry, caught.value.offset) == (0, 0)


def entry_with(body: bytes, before: LogEnd) -> bytes:
    head = len(body).to_bytes(2, "big") + (len(body) ^ 0xFFFF).to_bytes(2, "big") + body
    return head + crc32(head, before.checksum).to_bytes(4, "big")


PLAIN = bytes.fromhex("00005125 0001 71")


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "cut short"),
        (b"\x00" + PLAIN, "tag 0"),
        (b"\x0a" + PLAIN, "tag 10"),
        (b"\x03" + PLAIN + b"\x00", "left over"),
        (b"\x03" + PLAIN[:-1], "cut short"),
        (b"\x03\xff\xff\xff\xff" + PLAIN[4:], "year 9999"),
        (b"\x03\x00\x00\x51\x25\x00\x00", "queue id"),
        (b"\x03" + PLAIN, "no record"),
        (b"\x01" + PLAIN + b"\x03\x00", "usage 3"),
        (b"\x01" + PLAIN + bytes.fromhex("01 01 01 00000800"), "one of priority 0"),
        (b"\x01" + PLAIN + bytes.fromhex("01 02 00 00000800"), "cut short"),
        (b"\x07" + PLAIN + bytes.fromhex("03 00000800"), "priority"),
        (b"\x08" + PLAIN + b"\x00", "not none"),
        (b"\x08" + PLAIN + b"\x02\x02\x01", "in order"),
        (b"\x09\x01\x02" + PLAIN[:4] + PLAIN + b"\x00", "needs a secured queue"),
        (b"\x09\x01\x00" + PLAIN[:4] + PLAIN + b"\x00\x00", "left over"),
        (bytes(513), "length is damaged"),
    ],
)
def test_a_whole_entry_that_says_something_impossible_is_named(body: bytes, says: str) -> None:
    data, ends = log_of(HISTORY[:2])
    with pytest.raises(LogDamaged, match=f"entry 3 at byte {len(data)}: .*{says}") as caught:
        replay([data + entry_with(body, ends[-1])])
    assert (caught.value.entry, caught.value.offset) == (3, len(data))
    assert isinstance(caught.value, StateError)


@given(st.binary(max_size=60), st.booleans())
def test_any_entry_at_all_gives_an_event_or_the_error_of_a_damaged_log(body: bytes, with_tag: bool) -> None:
    if with_tag and body:
        body = bytes([body[0] % 10]) + PLAIN + body[1:]
    _, ends = log_of([])
    data = append(EMPTY_LOG)[0] + entry_with(body, ends[-1])
    try:
        (event,) = events_of(data)
    except LogDamaged:
        return
    assert append(EMPTY_LOG, event)[0] == data


@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_at_all_raise_only_the_error_of_a_damaged_log(data: bytes, with_header: bool) -> None:
    if with_header:
        data = append(EMPTY_LOG)[0] + data
    try:
        result = replay([data])
    except LogDamaged:
        return
    assert result.end.offset + result.end.torn == len(data)


# --- The reader ------------------------------------------------------------------------------------


def test_the_reader_always_knows_where_the_last_event_ended() -> None:
    reader = LogReader()
    seen = []
    for at in range(len(LOG)):
        for _ in reader.feed(memoryview(LOG)[at : at + 1]):
            seen.append(reader.end)
            assert reader.end.offset == at + 1
    assert seen == ENDS[1:]
    assert reader.finish() == ENDS[-1]


def test_events_that_were_not_taken_are_not_lost() -> None:
    reader = LogReader()
    reader.feed(LOG[:100])
    events = reader.feed(LOG[100:])
    with pytest.raises(MisuseError, match="not been taken yet"):
        reader.finish()
    assert list(events) == HISTORY
    assert reader.finish() == ENDS[-1]


def test_a_reader_is_spent_after_its_log_is_finished_or_damaged() -> None:
    reader = LogReader()
    reader.finish()
    for again in (reader.finish, lambda: reader.feed(LOG)):
        with pytest.raises(MisuseError, match="another LogReader"):
            again()
    broken = LogReader()
    with pytest.raises(LogDamaged):
        broken.feed(bytes(9))
    for again in (broken.finish, lambda: broken.feed(LOG)):
        with pytest.raises(LogDamaged, match="its header"):
            again()


@given(st.lists(records(), max_size=4))
def test_no_entry_is_longer_than_the_limit_that_the_reader_keeps(many: list[QueueRecord]) -> None:
    data, end = append(EMPTY_LOG, *map(_kept, many))
    assert len(events_of(data)) == end.entries == len(many)


def test_a_log_of_any_length_is_read_in_the_memory_of_one_piece() -> None:
    def long_log(entries: int) -> Iterator[bytes]:
        data, end = append(EMPTY_LOG, HISTORY[0])
        yield data
        for _ in range(entries // 100):
            data, end = append(end, *[OwnerSeen(queue_id=A, day=DAY)] * 100)
            yield data

    def peak(entries: int) -> int:
        tracemalloc.start()
        assert replay(long_log(entries)).end.entries == entries + 1
        size = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return size

    peak(2_000)
    assert peak(10_000) < 1.5 * peak(1_000)
