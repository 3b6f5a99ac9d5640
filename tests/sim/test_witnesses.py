"""Groups of real processes with a witness without bodies, and the mutants that are found there.

A full member is lost for good in most runs (``sim/runs/runs.py``): nothing that was
acknowledged may be left with a witness alone. ``tests/raft_group/test_witnesses.py`` tries more,
with the core alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

import pytest

from ledgermq.raft_node import term_file
from tests.raft_group.mutations import (
    it_counts_as_one_that_holds_bodies,
    it_is_always_leant_on,
    it_is_never_leant_on,
    it_votes_for_shorter_logs,
)
from tests.sim.search import failures, find
from tests.simulator.__main__ import main
from tests.simulator.runs.runs import WitnessRun, run_seed

FIRST = int(os.environ.get("LEDGERMQ_FIRST_SEED", "0"))
COUNT = int(os.environ.get("LEDGERMQ_SEEDS", "8"))
SHARES = 4
MUTANT_SEEDS = 200

SEEDS_FOR_A_LOSS = 60

Patch = pytest.MonkeyPatch


@pytest.mark.long(but=1)
@pytest.mark.slow
@pytest.mark.parametrize("share", range(SHARES))
def test_a_group_with_a_witness_keeps_its_promises_and_heals(share: int) -> None:
    seeds = range(FIRST + share, FIRST + COUNT, SHARES)

    assert failures(seeds, partial(run_seed, make=WitnessRun)) == ""


@pytest.mark.long
@pytest.mark.slow
def test_a_member_is_lost_and_the_group_goes_on_leaning(
    capsys: pytest.CaptureFixture[str],
) -> None:
    # Which seeds come to that, one of ten or so, changes with whatever draws of the same numbers.
    for seed in range(22, 22 + SEEDS_FOR_A_LOSS):
        status = main(["--witness", "--seed", str(seed), "--count", "1", "--trace"])
        said = capsys.readouterr().out
        assert status == 0, said
        if "is lost for good" in said and "leans on its witness" in said:
            return
    pytest.fail(f"no member was lost in {SEEDS_FOR_A_LOSS} seeds")


def its_file_is_not_synced(patch: Patch) -> None:
    """A power failure takes what it has promised."""
    patch.setattr(term_file, "sync_content", lambda fd: None)


LIKELY: dict[Callable[[Patch], None], int] = {
    its_file_is_not_synced: 1,
    it_votes_for_shorter_logs: 69,
    it_counts_as_one_that_holds_bodies: 0,
    it_is_always_leant_on: 0,
    it_is_never_leant_on: 1,
}
"""Each mutant, and where it was found last: looked at first, for a search takes a while."""


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("mutation", LIKELY, ids=lambda mutation: mutation.__name__)
def test_the_simulator_finds(mutation: Callable[[Patch], None], monkeypatch: Patch) -> None:
    mutation(monkeypatch)

    found = find(
        lambda seed: run_seed(seed, make=WitnessRun).failure,
        likely=LIKELY[mutation],
        count=MUTANT_SEEDS,
    )

    assert found is not None
