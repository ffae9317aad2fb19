"""Retention: who goes when, by which rule, and what never goes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from itertools import count, islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qsratchet.errors import MisuseError
from qsratchet.records import (
    DEFAULT_POLICY,
    UPSTREAM_2025,
    Blob,
    BlobsGo,
    Created,
    Decision,
    Deleted,
    DropBlobs,
    Event,
    Expire,
    MessageLimits,
    MessageSent,
    QueueRecord,
    RetentionPolicy,
    Rule,
    Usage,
    apply,
    decide,
    sweep,
)

from .naive import NaiveQueue
from .strategies import days, histories, policies, records

LAST_USE = date(2026, 1, 31)
BLOB = Blob(priority=0, size=2048, added_on=LAST_USE)
NEVER = date(9999, 12, 31)


def record(**changes: Any) -> QueueRecord:
    values: dict[str, Any] = {
        "queue_id": b"q",
        "usage": Usage.MESSAGING,
        "updated_on": LAST_USE,
        "owner_seen_on": LAST_USE,
        "blobs": (BLOB,),
    }
    return QueueRecord(**values | changes)


def rule_of(decision: Decision | None) -> Rule | None:
    return decision.rule if decision else None


# --- Each rule, on the last day of its promise and on the day after ----------------------------------


@pytest.mark.parametrize(
    ("one", "policy", "promised", "rule"),
    [
        (record(), DEFAULT_POLICY, 21, Rule.UNSECURED),
        (record(), UPSTREAM_2025, 90, Rule.UNSECURED),
        (record(usage=Usage.CONTACT), DEFAULT_POLICY, 730, Rule.OWNER_ABSENT),
        (record(usage=Usage.CONTACT), UPSTREAM_2025, 1095, Rule.OWNER_ABSENT),
        (record(secured=True, suspended=True), DEFAULT_POLICY, 21, Rule.SUSPENDED),
        (record(usage=Usage.CONTACT, suspended=True), DEFAULT_POLICY, 21, Rule.SUSPENDED),
        # A message that came with a later date than the owner's last visit does not keep a suspended address.
        (
            record(usage=Usage.CONTACT, suspended=True, updated_on=LAST_USE + timedelta(days=5)),
            DEFAULT_POLICY,
            21,
            Rule.SUSPENDED,
        ),
        (record(usage=Usage.CONTACT, suspended=True), UPSTREAM_2025, 1095, Rule.OWNER_ABSENT),
        (record(suspended=True), UPSTREAM_2025, 90, Rule.UNSECURED),
    ],
)
def test_a_queue_goes_on_the_day_after_its_last_promised_full_day(
    one: QueueRecord, policy: RetentionPolicy, promised: int, rule: Rule
) -> None:
    last_kept = LAST_USE + timedelta(days=promised)
    assert decide(one, last_kept, policy) is None
    decision = decide(one, last_kept + timedelta(days=1), policy)
    assert decision == Expire(queue_id=b"q", rule=rule, idle_since=LAST_USE)


def test_the_defaults_are_the_documented_numbers() -> None:
    assert RetentionPolicy() == DEFAULT_POLICY
    assert (DEFAULT_POLICY.unsecured_days, DEFAULT_POLICY.owner_days, DEFAULT_POLICY.suspended_days) == (21, 730, 21)
    assert DEFAULT_POLICY.messages(Usage.MESSAGING) == MessageLimits(days=21, messages=128)
    assert DEFAULT_POLICY.messages(Usage.CONTACT) == MessageLimits(days=14, messages=512)
    assert DEFAULT_POLICY.blobs_go is BlobsGo.AT_FIRST_MESSAGE
    assert (
        RetentionPolicy(
            unsecured_days=90,
            owner_days=1095,
            suspended_days=None,
            blobs_go=BlobsGo.AT_FIRST_MESSAGE,
            messaging=MessageLimits(days=21, messages=128),
            contact=MessageLimits(days=21, messages=128),
        )
        == UPSTREAM_2025
    )


def test_a_secured_messaging_queue_in_use_stays_for_ever() -> None:
    assert decide(record(secured=True, link_used=True, blobs=()), NEVER) is None


def test_a_contact_address_that_strangers_write_to_every_day_goes_two_years_after_its_owner_did() -> None:
    one = record(usage=Usage.CONTACT)
    gone = None
    day = LAST_USE
    while gone is None:
        day += timedelta(days=1)
        step = apply(one, MessageSent(queue_id=b"q", day=day))
        assert step.record is not None
        assert not step.write_due, "a stranger's message to a contact address costs no write"
        one = step.record
        gone = decide(one, day)
    assert gone == Expire(queue_id=b"q", rule=Rule.OWNER_ABSENT, idle_since=LAST_USE)
    assert (day - LAST_USE).days == 731


def test_the_first_message_after_securing_takes_the_blobs_along_and_securing_alone_does_not() -> None:
    assert decide(record(secured=True), LAST_USE) is None
    used = record(secured=True, link_used=True)
    assert decide(used, LAST_USE) == DropBlobs(queue_id=b"q", rule=Rule.LINK_USED, blobs=(BLOB,))


def test_with_the_other_setting_blobs_go_as_soon_as_the_queue_is_secured() -> None:
    policy = replace(DEFAULT_POLICY, blobs_go=BlobsGo.AT_SECURING)
    assert decide(record(), LAST_USE, policy) is None
    for used in (False, True):
        decision = decide(record(secured=True, link_used=used), LAST_USE, policy)
        assert decision == DropBlobs(queue_id=b"q", rule=Rule.SECURED, blobs=(BLOB,))


def test_the_blobs_of_a_contact_address_stay_as_long_as_it_does() -> None:
    for go in BlobsGo:
        policy = replace(DEFAULT_POLICY, blobs_go=go)
        assert decide(record(usage=Usage.CONTACT), LAST_USE + timedelta(days=730), policy) is None


def test_a_decision_that_is_carried_out_leaves_nothing_to_decide() -> None:
    used = record(secured=True, link_used=True)
    dropped = decide(used, LAST_USE)
    assert dropped is not None
    left = apply(used, dropped.done(LAST_USE)).record
    assert left == replace(used, blobs=())
    assert decide(left, NEVER) is None
    expired = decide(record(), NEVER)
    assert expired is not None
    assert expired.done(NEVER) == Deleted(queue_id=b"q", day=NEVER)
    assert apply(record(), expired.done(NEVER)).record is None


# --- Messages --------------------------------------------------------------------------------------


def test_a_message_is_kept_for_its_full_days_and_the_queue_takes_no_more_than_its_size() -> None:
    limits = MessageLimits(days=14, messages=512)
    sent_on = date(2026, 1, 1)
    assert sent_on >= limits.oldest_kept(sent_on + timedelta(days=14))
    assert sent_on < limits.oldest_kept(sent_on + timedelta(days=15))
    assert limits.accepts(511)
    assert not limits.accepts(512)


def test_a_limit_longer_than_the_calendar_keeps_everything() -> None:
    assert MessageLimits(days=10**9, messages=1).oldest_kept(NEVER) == date.min
    policy = RetentionPolicy(unsecured_days=10**9)
    assert decide(record(), NEVER, policy) is None


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: RetentionPolicy(unsecured_days=0), "unsecured_days"),
        (lambda: RetentionPolicy(owner_days=-1), "owner_days"),
        (lambda: RetentionPolicy(suspended_days=0), "suspended_days"),
        (lambda: MessageLimits(days=0, messages=1), "days"),
        (lambda: MessageLimits(days=1, messages=0), "messages"),
        (lambda: sweep([], datetime(2026, 1, 1, tzinfo=UTC)), "plain date"),
        (lambda: DEFAULT_POLICY.messaging.oldest_kept(datetime(2026, 1, 1, tzinfo=UTC)), "plain date"),
    ],
)
def test_a_limit_or_a_day_that_makes_no_sense_is_refused_at_once(make: Any, says: str) -> None:
    with pytest.raises(MisuseError, match=says):
        make()


# --- Properties ------------------------------------------------------------------------------------


@given(histories(), policies, days)
def test_decisions_are_those_of_the_whole_history(history: list[Event], policy: RetentionPolicy, today: date) -> None:
    one: QueueRecord | None = None
    first = history[0]
    assert isinstance(first, Created)
    naive = NaiveQueue(first)
    naive.events = history
    for event in history:
        one = apply(one, event).record
    assert one is not None
    assert decide(one, today, policy) == naive.decide(today, policy)


@given(records(), st.dates(min_value=date(1970, 1, 1)), policies)
def test_a_secured_messaging_queue_never_expires_by_the_unsecured_rule(
    one: QueueRecord, today: date, policy: RetentionPolicy
) -> None:
    rule = rule_of(decide(one, today, policy))
    if one.secured or one.usage is Usage.CONTACT:
        assert rule is not Rule.UNSECURED
    if one.usage is Usage.MESSAGING:
        assert rule is not Rule.OWNER_ABSENT
    if one.secured and not one.suspended:
        assert not isinstance(decide(one, today, policy), Expire)


@given(records(on=days), days, policies)
def test_no_queue_goes_before_the_promised_full_days_are_over(
    one: QueueRecord, today: date, policy: RetentionPolicy
) -> None:
    decision = decide(one, today, policy)
    if not isinstance(decision, Expire):
        return
    promised = {
        Rule.UNSECURED: policy.unsecured_days,
        Rule.OWNER_ABSENT: policy.owner_days,
        Rule.SUSPENDED: policy.suspended_days,
    }[decision.rule]
    assert promised is not None
    # From the end of the day of the last use to the beginning of today.
    used_until = datetime.combine(decision.idle_since, datetime.max.time())
    swept_from = datetime.combine(today, datetime.min.time())
    assert swept_from - used_until >= timedelta(days=promised)
    assert decision.idle_since == one.active_on


@given(records(on=days), days, days, policies)
def test_what_has_expired_stays_expired(one: QueueRecord, first: date, second: date, policy: RetentionPolicy) -> None:
    first, second = sorted([first, second])
    if isinstance(decide(one, first, policy), Expire):
        assert isinstance(decide(one, second, policy), Expire)


@given(st.lists(records(on=days), max_size=8), days, policies)
def test_a_sweep_is_the_decisions_over_each_record_in_their_order(
    many: list[QueueRecord], today: date, policy: RetentionPolicy
) -> None:
    each = [decide(one, today, policy) for one in many]
    assert list(sweep(many, today, policy)) == [decision for decision in each if decision is not None]


def test_a_sweep_takes_records_only_as_decisions_are_asked_for() -> None:
    taken = 0

    def endless() -> Iterator[QueueRecord]:
        nonlocal taken
        for number in count():
            taken += 1
            yield record(queue_id=number.to_bytes(8, "big"))

    decisions = sweep(endless(), NEVER)
    assert taken == 0
    assert len(list(islice(decisions, 1000))) == 1000
    assert taken == 1000
