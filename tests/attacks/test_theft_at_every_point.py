"""Guarantees 1 and 2, exhaustively: a state stolen before any frame of a run, and the exact set that opens.

The run mixes messages, updates and key offers: two updates in a row, an offer next to an update, one at either end.
"""

from __future__ import annotations

import pytest

from qsratchet import SUITES, Dequeuer, Enqueuer

from .runs import Run, record
from .thief import Thief, by_library

SCRIPT = "K..U...K.UU..K.U..KU...K"


@pytest.fixture(scope="module", params=SUITES, ids=lambda suite: f"0x{suite:04x}")
def run(request: pytest.FixtureRequest) -> Run:
    suite: int = request.param
    return record(SCRIPT, suite)


def qctx(run: Run) -> bytes:
    return Enqueuer.load(run.service[1])._qctx


def until(run: Run, start: int, end: int | None) -> set[int]:
    return {seq for seq in run.messages if seq >= start and (end is None or seq < end)}


def test_the_service_state_stolen_at_n_opens_the_rest_of_its_epoch_and_nothing_else(run: Run) -> None:
    for stolen, blob in run.service.items():
        expected = until(run, stolen, min((seq for seq in run.updates if seq >= stolen), default=None))
        thief = Thief.of_service(blob, run.frames)
        if run.suite == 0x0001:
            thief.add_bytes(blob)
        assert thief.read() == expected, stolen
        assert by_library(run.frames, suite=run.suite, qctx=qctx(run), service=blob) <= expected, stolen


def owner_thefts(run: Run) -> list[tuple[int, bytes, int | None]]:
    """Every blob the owner ever stored, where it stood, and the update to the first key that is not in it."""
    thefts = []
    for stolen, blob in run.owner.items():
        later = [seq for seq in run.offers if seq >= stolen]
        thefts.append((stolen, blob, later[0] if later else None))
    for stolen, blob in run.offering.items():
        # The new key is in this blob already, so only the offer after this one heals.
        later = [seq for seq in run.offers if seq > stolen]
        thefts.append((stolen, blob, later[0] if later else None))
    return thefts


def test_the_owner_state_stolen_at_n_opens_from_n_to_the_next_new_key_and_nothing_else(run: Run) -> None:
    for stolen, blob, healed in owner_thefts(run):
        expected = until(run, stolen, healed)
        thief = Thief.of_owner(blob, run.suite, qctx(run), run.frames)
        if run.suite == 0x0001:
            thief.add_bytes(blob)
        assert thief.read() == expected, stolen
        library = by_library(run.frames, suite=run.suite, qctx=qctx(run), owner=blob)
        assert library == expected, stolen


def test_the_service_state_at_any_n_with_the_owner_state_of_the_end_heals_at_the_next_new_key(run: Run) -> None:
    """Keys older than the last are deleted, so what was sealed to them stays sealed."""
    end = max(run.owner)
    for stolen, blob in run.service.items():
        # The key of the end was offered last: updates to any earlier one stay closed, updates to it open.
        healed = min((seq for seq in run.updates if stolen <= seq < run.offers[-1]), default=None)
        thief = Thief.of_service(blob, run.frames)
        thief.add_owner(run.owner[end])
        assert thief.read() == until(run, stolen, healed), stolen


def test_all_states_stolen_from_one_new_key_on_open_nothing_before_it(run: Run) -> None:
    """Guarantee 2 at its hardest: every later state of both sides together, against the messages before the offer."""
    for offer in run.offers:
        thief = Thief(run.suite, qctx(run), run.frames)
        for stolen, blob in run.owner.items():
            if stolen > offer:
                thief.add_owner(blob)
        thief.chain_keys |= {Enqueuer.load(blob)._chain_key for stolen, blob in run.service.items() if stolen > offer}
        assert thief.read() == until(run, offer + 1, None), offer


def test_no_stored_state_holds_a_secret_that_was_superseded(run: Run) -> None:
    """Forward secrecy where it lives: in the bytes that are stored."""
    older: set[bytes] = set()
    for stolen in sorted(run.owner):
        owner = Dequeuer.load(run.owner[stolen])
        seeds = {key.seed for key in owner._keys.values()}
        for blob in (run.owner[stolen], run.service.get(stolen, b"")):
            assert not any(secret in blob for secret in older - seeds), stolen
        older |= seeds | ({owner._join_secret} if owner._join_secret else {owner._chain_key})
    # One join secret, one chain key for each number but the first, and one seed for each key.
    assert len(older) == 1 + (len(run.owner) - 1) + (1 + len(run.offers))
