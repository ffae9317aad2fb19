"""The frozen vectors: the library reads and writes them, and a reader that knows only the document agrees."""

from __future__ import annotations

import json
from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qsratchet.records import EMPTY_LOG, Event, LogDamaged, QueueRecord, append, replay, sweep

from . import independent, make_vectors
from .strategies import interleaved, records

VECTORS: dict[str, Any] = json.loads(make_vectors.FILE.read_text())
LOGS = {log["name"]: log for log in VECTORS["logs"]}


def test_the_vectors_are_what_this_version_writes() -> None:
    # JSON has no tuples, so both sides are compared as JSON.
    assert json.loads(json.dumps(make_vectors.vectors())) == VECTORS


@pytest.mark.parametrize("name", LOGS)
def test_the_library_gives_the_records_and_decisions_of_the_frozen_logs(name: str) -> None:
    log = LOGS[name]
    result = replay([bytes.fromhex(log["log"])])
    assert make_vectors.plain_end(result.end) == log["end"]
    found = list(result.records.values())
    assert [make_vectors.plain_record(record) for record in found] == log["records"]
    assert [QueueRecord.decode(bytes.fromhex(stored)) for stored in log["documents"]] == found
    for case in log["sweeps"]:
        policy = make_vectors.POLICIES[case["policy"]]
        decisions = sweep(found, date.fromisoformat(case["today"]), policy)
        assert [make_vectors.plain_decision(decision) for decision in decisions] == case["decisions"]


@pytest.mark.parametrize("name", LOGS)
def test_a_reader_written_from_the_document_alone_gives_the_same(name: str) -> None:
    log = LOGS[name]
    found, end = independent.read_log(bytes.fromhex(log["log"]))
    assert end == log["end"]
    assert list(found.values()) == log["records"]
    assert [independent.read_document(bytes.fromhex(stored)) for stored in log["documents"]] == log["records"]
    for case in log["sweeps"]:
        policy = VECTORS["policies"][case["policy"]]
        decisions = [independent.decide(record, case["today"], policy) for record in found.values()]
        assert [decision for decision in decisions if decision] == case["decisions"]
    for case in log["evictions"]:
        assert independent.evict(list(found.values()), case["bytes_to_free"]) == case


def test_both_readers_name_the_same_damage_and_the_same_torn_end() -> None:
    log = bytes.fromhex(LOGS[VECTORS["broken"]["log"]]["log"])
    bits = bytes.fromhex(VECTORS["broken"]["flipped_bits"])[0]
    for case in VECTORS["broken"]["cases"]:
        if "cut" in case:
            cut = log[: case["cut"]]
            assert make_vectors.plain_end(replay([cut]).end) == case["end"]
            assert independent.read_log(cut)[1] == case["end"]
            continue
        changed = bytearray(log)
        changed[case["flip"]] ^= bits
        with pytest.raises(LogDamaged) as caught:
            replay([bytes(changed)])
        assert (caught.value.entry, caught.value.offset) == (case["entry"], case["offset"])
        with pytest.raises(independent.Damaged) as other:
            independent.read_log(bytes(changed))
        assert other.value.args == (case["entry"], case["offset"])


def test_the_vectors_hold_every_event_and_every_rule_of_a_sweep() -> None:
    tags = set()
    for log in (bytes.fromhex(log["log"]) for log in VECTORS["logs"]):
        at = 9
        while at < len(log):
            tags.add(log[at + 4])
            at += int.from_bytes(log[at : at + 2], "big") + 8
    assert tags == set(range(1, 10))
    decisions = [decision for log in VECTORS["logs"] for case in log["sweeps"] for decision in case["decisions"]]
    rules = {decision.get("expire") or decision["drop_blobs"] for decision in decisions}
    assert rules == {"UNSECURED", "OWNER_ABSENT", "SUSPENDED", "SECURED", "LINK_USED"}


@given(interleaved(), st.data())
def test_both_readers_agree_on_generated_logs_whole_cut_or_changed(events: list[Event], data: st.DataObject) -> None:
    log = bytearray(append(EMPTY_LOG, *events)[0])
    if data.draw(st.booleans()):
        log = log[: data.draw(st.integers(0, len(log)))]
    if log and data.draw(st.booleans()):
        log[data.draw(st.integers(0, len(log) - 1))] ^= data.draw(st.integers(1, 255))
    assert library_verdict(bytes(log)) == independent_verdict(bytes(log))


def library_verdict(log: bytes) -> Any:
    try:
        result = replay([log])
    except LogDamaged as damaged:
        return damaged.entry, damaged.offset
    return [make_vectors.plain_record(record) for record in result.records.values()], make_vectors.plain_end(result.end)


def independent_verdict(log: bytes) -> Any:
    try:
        found, end = independent.read_log(log)
    except independent.Damaged as damaged:
        return damaged.args
    return list(found.values()), end


@given(records())
def test_both_readers_agree_on_generated_documents(record: QueueRecord) -> None:
    assert independent.read_document(record.encode()) == make_vectors.plain_record(record)
