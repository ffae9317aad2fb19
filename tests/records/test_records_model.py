"""A service over weeks, against a naive one: events, sweeps, pressure, compaction, crashes with torn writes."""

from __future__ import annotations

from datetime import date, timedelta

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from qsratchet.errors import MisuseError
from qsratchet.records import (
    EMPTY_LOG,
    Created,
    Decision,
    Deleted,
    DropBlobs,
    Event,
    LogEnd,
    MessageSent,
    OwnerSeen,
    QueueRecord,
    RetentionPolicy,
    Usage,
    append,
    apply,
    compact,
    evict,
    replay,
    sweep,
)

from . import naive
from .naive import NaiveQueue
from .strategies import FIRST, blob_sizes, happenings, policies, usages


class Service(RuleBasedStateMachine):
    """Holds what a host holds (records and the bytes of a log) beside queues that are lists of events."""

    @initialize(policy=policies)
    def start(self, policy: RetentionPolicy) -> None:
        self.policy = policy
        self.today = FIRST
        self.records: dict[bytes, QueueRecord] = {}
        self.log = b""
        self.end: LogEnd = EMPTY_LOG
        self.queues: dict[bytes, NaiveQueue] = {}
        self.created = 0
        #: How many writes each queue has had on which day for its dates alone.
        self.date_writes: dict[tuple[bytes, date], int] = {}
        for usage in Usage:
            self.create(usage, ((0, 2000), (1, 1000), (2, 9000)))

    def happen(self, event: Event) -> None:
        """What a host does with an event: fold it, write it if that is due."""
        before = self.records.get(event.queue_id)
        step = apply(before, event)
        if step.write_due:
            data, self.end = append(self.end, event)
            self.log += data
        if isinstance(event, MessageSent | OwnerSeen) and step.write_due:
            assert before is not None
            assert step.record is not None
            if step.record.link_used == before.link_used:
                key = (event.queue_id, event.day)
                self.date_writes[key] = self.date_writes.get(key, 0) + 1
        if step.record is None:
            del self.records[event.queue_id]
        else:
            self.records[event.queue_id] = step.record

    @rule(usage=usages, blobs=blob_sizes())
    def the_owner_creates(self, usage: Usage, blobs: tuple[tuple[int, int], ...]) -> None:
        self.create(usage, blobs)

    def create(self, usage: Usage, blobs: tuple[tuple[int, int], ...]) -> None:
        self.created += 1
        event = Created(queue_id=b"queue %d" % self.created, day=self.today, usage=usage, blobs=blobs)
        self.happen(event)
        self.queues[event.queue_id] = NaiveQueue(event)

    @precondition(lambda self: self.queues)
    @rule(data=st.data(), back=st.integers(0, 1), times=st.integers(1, 5))
    def something_happens(self, data: st.DataObject, back: int, times: int) -> None:
        for _ in range(times):
            queue = self.queues[data.draw(st.sampled_from(sorted(self.queues)))]
            # A clock that is put back must do no harm.
            event = data.draw(happenings(queue.queue_id, self.today - timedelta(days=back)))
            if queue.accepts(event):
                self.happen(event)
                queue.events.append(event)
            else:
                with pytest.raises(MisuseError):
                    self.happen(event)

    @precondition(lambda self: len(self.queues) > 3)
    @rule(data=st.data())
    def the_owner_deletes(self, data: st.DataObject) -> None:
        queue_id = data.draw(st.sampled_from(sorted(self.queues)))
        self.happen(Deleted(queue_id=queue_id, day=self.today))
        del self.queues[queue_id]

    @rule(days=st.integers(1, 12))
    def days_pass(self, days: int) -> None:
        self.today += timedelta(days=days)

    @rule()
    def the_service_sweeps(self) -> None:
        decisions = list(sweep(list(self.records.values()), self.today, self.policy))
        assert {decision.queue_id: decision for decision in decisions} == self.naive_decisions(self.today)
        for decision in decisions:
            self.carry_out(decision)

    @rule(need=st.integers(0, 20_000))
    def the_disk_is_full(self, need: int) -> None:
        eviction = evict(self.records.values(), need)
        expected, freed = naive.evict([queue.record() for queue in self.queues.values()], need)
        assert list(eviction.decisions) == expected
        assert (eviction.bytes_freed, eviction.enough) == (freed, freed >= need)
        for decision in eviction.decisions:
            self.carry_out(decision)

    def carry_out(self, decision: Decision) -> None:
        event = decision.done(self.today)
        self.happen(event)
        if isinstance(decision, DropBlobs):
            self.queues[decision.queue_id].events.append(event)
        else:
            del self.queues[decision.queue_id]

    @rule()
    def the_log_is_compacted(self) -> None:
        self.log = b""
        for data, end in compact(self.records.values()):
            self.log += data
            self.end = end

    @rule(piece=st.integers(1, 200), torn=st.integers(0, 40))
    def the_service_crashes_while_it_writes(self, piece: int, torn: int) -> None:
        lost = Created(queue_id=b"never answered", day=self.today, usage=Usage.CONTACT)
        data, _ = append(self.end, lost)
        disk = self.log + data[: min(torn, len(data) - 1)]
        result = replay(disk[at : at + piece] for at in range(0, len(disk), piece))
        if self.end.offset:
            assert result.end.offset == len(self.log)
            assert result.end.torn == len(disk) - len(self.log)
        self.log, self.end, self.records = disk[: result.end.offset], result.end.cut(), result.records

    def naive_decisions(self, today: date) -> dict[bytes, Decision]:
        decisions = {key: queue.decide(today, self.policy) for key, queue in self.queues.items()}
        return {key: decision for key, decision in decisions.items() if decision is not None}

    @invariant()
    def the_records_decide_as_the_whole_history_does_today_and_later(self) -> None:
        for days in (0, 5, 15, 31):
            today = self.today + timedelta(days=days)
            decisions = {decision.queue_id: decision for decision in sweep(self.records.values(), today, self.policy)}
            assert decisions == self.naive_decisions(today)

    @invariant()
    def dates_cost_one_write_a_day_and_record(self) -> None:
        assert all(writes == 1 for writes in self.date_writes.values())

    @invariant()
    def the_log_says_what_counts_of_every_record(self) -> None:
        assert replay([self.log]).end == self.end
        written = replay([self.log]).records
        assert written.keys() == self.records.keys() == self.queues.keys()
        for key, record in written.items():
            assert record.active_on == self.records[key].active_on == self.queues[key].active_on()
            assert record.blobs == self.records[key].blobs == self.queues[key].blobs()


TestService = Service.TestCase
TestService.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
