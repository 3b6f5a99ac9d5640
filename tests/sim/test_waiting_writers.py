"""Writers that take what they can where they wait keep every promise; errors in it are found."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from ledgermq.store.log.log_writer import LogEnd
from ledgermq.writer.followed_run import FollowedRun
from ledgermq.writer.led_run import LedRun
from ledgermq.writer.steady_wait import IS_COMPILED, SteadyTurns
from tests.sim.search import failures, find
from tests.simulator.machine.steady import SimSteady
from tests.simulator.runs.runs import WaitRun, run_seed

FIRST = int(os.environ.get("LEDGERMQ_FIRST_SEED", "0"))
COUNT = int(os.environ.get("LEDGERMQ_SEEDS", "3"))
SEEDS = 200

Patch = pytest.MonkeyPatch

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not IS_COMPILED, reason="the wait is not compiled here"),
]


def test_what_is_acknowledged_stays() -> None:
    before = SimSteady.taken
    assert failures(range(FIRST, FIRST + COUNT), partial(run_seed, make=WaitRun)) == ""
    assert SimSteady.taken > before


def where_the_log_ends_is_not_given_back(patch: Patch) -> None:
    """What was appended where the writer waited is written over by its next turn."""

    def forgetful(
        turns: SteadyTurns, end: LogEnd, entries: int, marks: list[Any], durable_seen: int
    ) -> None:
        del end, entries
        assert turns._followed is not None
        turns._followed.take_back(marks, durable_seen)

    patch.setattr(SteadyTurns, "take_back", forgetful)


def ends_of_appends_are_forgotten(patch: Patch) -> None:
    """What is committed later has no end that is known, and is not published."""
    take_back = FollowedRun.take_back

    def forgetful(run: FollowedRun, marks: list[Any], durable_seen: int) -> None:
        del marks
        take_back(run, [], durable_seen)

    patch.setattr(FollowedRun, "take_back", forgetful)


def what_a_follower_says_is_counted_for_another(patch: Patch) -> None:
    """The answer of one follower is taken for that of each: no majority need hold an entry."""
    lend = LedRun.lend

    def believing(run: LedRun) -> Any:
        lent = lend(run)
        if lent is not None:
            lead = lent.line.state.leadership
            assert lead is not None
            best = max(one.match for one in lead.progress.values())
            for one in lead.progress.values():
                one.match = best
        return lent

    patch.setattr(LedRun, "lend", believing)


MUTATIONS = [
    where_the_log_ends_is_not_given_back,
    ends_of_appends_are_forgotten,
    what_a_follower_says_is_counted_for_another,
]

LIKELY = {ends_of_appends_are_forgotten: 5, what_a_follower_says_is_counted_for_another: 10}


@pytest.mark.long
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_the_simulator_finds(mutation: Callable[[Patch], None], monkeypatch: Patch) -> None:
    mutation(monkeypatch)

    def fails(seed: int) -> str:
        return run_seed(seed, make=WaitRun).failure

    found = find(fails, likely=LIKELY.get(mutation, 0), count=SEEDS)

    assert found is not None, f"{mutation.__name__} was not found in {SEEDS} seeds"
