"""When queues are rotated by themselves."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qsratchet.errors import MisuseError
from qsratchet.rotation import QueueAddress, QueueFacts, Reason, RotationPolicy, advise

_DAY = 86400
_POLICY = RotationPolicy()


def _facts(
    number: int, *, server: str = "a", created: int = 0, messages: int = 0, rotating: bool = False
) -> QueueFacts:
    queue = QueueAddress(server=server, sender_id=number.to_bytes(24, "big"))
    return QueueFacts(queue=queue, created=created, messages=messages, rotating=rotating)


def test_a_queue_is_rotated_when_it_is_old_full_or_its_server_was_left() -> None:
    old, full, left, young = _facts(1), _facts(2, messages=10_000, created=30 * _DAY), _facts(3, server="z"), _facts(4)
    young = replace(young, created=20 * _DAY)
    advice = advise([old, full, left, young], ["a", "b"], _POLICY, 30 * _DAY)
    assert [(item.queue, item.reason) for item in advice] == [
        (left.queue, Reason.SERVER_LEFT),
        (full.queue, Reason.MESSAGES),
        (old.queue, Reason.AGE),
    ]
    assert all(item.server == "b" for item in advice if item.queue.server == "a")


@given(st.integers(0, 2**32))
def test_the_age_has_jitter_within_its_bounds_and_the_same_answer_each_time(number: int) -> None:
    fact = _facts(number)
    assert advise([fact], ["b", "a"], _POLICY, 22 * _DAY) == ()
    assert len(advise([fact], ["b", "a"], _POLICY, 30 * _DAY)) == 1
    day = next(day for day in range(22, 31) if advise([fact], ["b", "a"], _POLICY, day * _DAY))
    assert all(advise([fact], ["b", "a"], _POLICY, later * _DAY) for later in range(day, 40))


def test_jitter_spreads_queues_that_were_made_together() -> None:
    policy = replace(_POLICY, at_once=1000)
    due = [len(advise(map(_facts, range(200)), ["a", "b"], policy, day * _DAY)) for day in range(22, 31)]
    assert due[0] == 0
    assert due[-1] == 200
    assert max(later - earlier for earlier, later in pairwise(due)) < 80


def test_only_so_many_rotate_at_once_and_those_under_way_count() -> None:
    queues = [_facts(number) for number in range(10)] + [_facts(20, rotating=True), _facts(21, rotating=True)]
    assert len(advise(queues, ["b"], _POLICY, 100 * _DAY)) == 2
    assert advise(queues, ["b"], replace(_POLICY, at_once=1), 100 * _DAY) == ()


def test_the_only_server_is_used_again_and_no_server_means_no_advice() -> None:
    assert advise([_facts(1)], ["a"], _POLICY, 100 * _DAY)[0].server == "a"
    assert advise([_facts(1)], [], _POLICY, 100 * _DAY) == ()


@pytest.mark.parametrize("changes", [{"max_age": 0}, {"max_messages": 0}, {"at_once": -1}, {"jitter": 1.0}])
def test_a_policy_out_of_range_is_misuse(changes: dict[str, int]) -> None:
    with pytest.raises(MisuseError):
        RotationPolicy(**changes)
