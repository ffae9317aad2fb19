"""Four thefts, side by side: what the literal design gives away, and what ours does.

A: the queue was recorded, and at the end the owner's state is stolen.  B: the service's state is stolen in the middle.
C: B, and the owner's state at the end.  D: the owner's state is stolen in the middle.  23 messages, 13 after the
middle, the next update three messages after it.
"""

from __future__ import annotations

import pytest

from qsratchet import SUITES, Enqueuer

from .runs import COLUMNS, Run, SeedRun, record, record_seed
from .thief import SeedThief, Thief, by_library

suites = pytest.mark.parametrize("suite", SUITES, ids=lambda suite: f"0x{suite:04x}")


def seed_counts(run: SeedRun, suite: int) -> dict[str, tuple[int, int]]:
    """Messages read before and after the middle, per column."""
    end = max(run.owner)

    def stolen(*, service: bool, owner: int | None) -> tuple[int, int]:
        thief = SeedThief(suite, run.frames)
        if service:
            state = run.service[run.theft]
            thief.ratchet_keys.append((state.seq, state.ratchet_key))
        if owner is not None:
            clone = run.owner[owner]
            thief.private_keys.append(clone.private_key)
            thief.ratchet_keys.append((clone.seq, clone.ratchet_key))
        opened = thief.read()
        return len(opened & run.before), len(opened & run.after)

    return {
        "A": stolen(service=False, owner=end),
        "B": stolen(service=True, owner=None),
        "C": stolen(service=True, owner=end),
        "D": stolen(service=False, owner=run.theft),
    }


def our_counts(run: Run) -> dict[str, tuple[int, int]]:
    end = max(run.owner)
    qctx = Enqueuer.load(run.service[1])._qctx

    def stolen(*, service: bool, owner: int | None) -> tuple[int, int]:
        thief = Thief(run.suite, qctx, run.frames)
        service_blob = run.service[run.theft] if service else None
        owner_blob = run.owner[owner] if owner is not None else None
        if service_blob is not None:
            thief.chain_keys.add(Enqueuer.load(service_blob)._chain_key)
        if owner_blob is not None:
            thief.add_owner(owner_blob)
        opened = thief.read() | by_library(
            run.frames, suite=run.suite, qctx=qctx, service=service_blob, owner=owner_blob
        )
        return len(opened & run.before), len(opened & run.after)

    return {
        "A": stolen(service=False, owner=end),
        "B": stolen(service=True, owner=None),
        "C": stolen(service=True, owner=end),
        "D": stolen(service=False, owner=run.theft),
    }


@suites
def test_the_literal_design_heals_only_from_a_theft_at_the_service(suite: int) -> None:
    run = record_seed(COLUMNS, suite)
    assert (len(run.before), len(run.after)) == (10, 13)
    assert seed_counts(run, suite) == {"A": (10, 13), "B": (0, 3), "C": (10, 13), "D": (10, 13)}


@suites
def test_ours_heals_from_every_theft_and_gives_away_nothing_before_it(suite: int) -> None:
    run = record(COLUMNS, suite)
    assert (len(run.before), len(run.after)) == (10, 13)
    assert our_counts(run) == {"A": (0, 0), "B": (0, 3), "C": (0, 3), "D": (0, 3)}


@suites
def test_without_key_offers_ours_still_keeps_the_past_but_does_not_heal_the_owner(suite: int) -> None:
    """The limit that the offers are there for: updates alone do not help against a stolen private key."""
    run = record(COLUMNS.replace("K", "U"), suite)
    assert our_counts(run) == {"A": (0, 0), "B": (0, 3), "C": (0, 13), "D": (0, 13)}


def test_the_thief_is_able_it_reads_all_of_our_queue_with_all_of_its_secrets() -> None:
    """Without this, the zeros above could mean a clumsy thief."""
    for suite in SUITES:
        run = record(COLUMNS, suite)
        thief = Thief.of_owner(run.owner[0], suite, Enqueuer.load(run.service[1])._qctx, run.frames)
        for blob in run.offering.values():
            thief.add_owner(blob)
        thief.chain_keys.clear()
        assert thief.read() == set(run.messages)
