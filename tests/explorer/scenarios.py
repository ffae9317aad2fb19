"""What is explored: a quick set for the test command, and the long set for `python -m tests.explorer`."""

from __future__ import annotations

from .shape import Scenario

_NOBODY = (0, 0)
_BOB = (0, 1)
_BOTH = (1, 1)
_FAST = (True, True)

#: Every search here is complete: no world of the scenario is left out.
QUICK = (
    Scenario(name="no fault, every reply under way", submits=_BOB, faults=0),
    Scenario(name="no fault, fast path", submits=_BOB, faults=0, fast=_FAST),
    Scenario(name="1 crash or lost reply", submits=_BOB, faults=1, atomic=True),
    Scenario(
        name="2 of abort, force, early deadline", submits=_BOB, faults=2, atomic=True, crash=False, lost_reply=False,
        early_deadlines=True, forces=True, aborts=1,
    ),
    Scenario(name="1 lost message", submits=_BOB, faults=1, crash=False, lost_reply=False, drop=True, atomic=True),
    Scenario(name="both sides rotate, no fault", submits=_NOBODY, starts=_BOTH, faults=0, atomic=True),
)  # fmt: skip

LONG = (
    *QUICK,
    Scenario(name="empty replies out of date", submits=_NOBODY, faults=0, flag=False, eager_empty=True),
    Scenario(name="1 repeated request or reply", submits=_NOBODY, repeat=True, crash=False, lost_reply=False),
    Scenario(name="2 crashes or lost replies", submits=_BOB, faults=2, atomic=True),
    Scenario(name="2 crashes or lost replies, fast path", submits=_BOB, faults=2, atomic=True, fast=_FAST),
    Scenario(name="2 crashes or lost replies, one side fast", submits=_BOB, faults=2, atomic=True, fast=(True, False)),
    Scenario(
        name="2 crashes or lost replies, full queues", submits=(0, 2), faults=2, atomic=True, capacity=1, crash=False
    ),
    Scenario(
        name="2 of dead server, deadline, crash", submits=_BOB, faults=2, atomic=True, lost_reply=False,
        death=(0, 1, 2), early_deadlines=True,
    ),
    Scenario(
        name="1 dead server", submits=_NOBODY, faults=1, atomic=True, crash=False, lost_reply=False, death=(0, 1, 2)
    ),
    Scenario(
        name="1 dead server, fast path", submits=_NOBODY, faults=1, atomic=True, crash=False, lost_reply=False,
        death=(0, 1, 2), fast=_FAST,
    ),
    Scenario(
        name="the old server dies with a message", submits=_BOB, faults=1, atomic=True, crash=False, lost_reply=False,
        death=(0,),
    ),
    Scenario(
        name="2 outages", submits=_BOB, faults=2, atomic=True, crash=False, lost_reply=False, outage=True
    ),
    Scenario(
        name="abort and start again, 2 faults", submits=_BOB, starts=(2, 0), aborts=1, faults=2, lost_reply=False,
        atomic=True, crash=False,
    ),
    Scenario(name="an intruder, 2 faults", submits=_BOB, faults=2, intruder=True, atomic=True, crash=False),
    Scenario(name="both sides rotate, 1 crash or lost reply", submits=_NOBODY, starts=_BOTH, faults=1, atomic=True),
    Scenario(
        name="both sides rotate, 2 aborts", submits=_NOBODY, starts=_BOTH, faults=2, aborts=2, atomic=True,
        crash=False, lost_reply=False,
    ),
    Scenario(
        name="both sides rotate, 2 deadlines or forces", submits=_NOBODY, starts=_BOTH, faults=2, atomic=True,
        crash=False, lost_reply=False, early_deadlines=True, forces=True,
    ),
    Scenario(
        name="both sides rotate, 2 dead servers", submits=_NOBODY, starts=_BOTH, faults=2, atomic=True,
        crash=False, lost_reply=False, death=(0, 1, 2, 3),
    ),
)  # fmt: skip
