"""Groups of one, which become larger and of one again: what is acknowledged stays."""

from __future__ import annotations

import os
from functools import partial

import pytest

from tests.sim.search import failures
from tests.simulator.runs.runs import LoneRun, run_seed

FIRST = int(os.environ.get("LEDGERMQ_FIRST_SEED", "0"))
COUNT = int(os.environ.get("LEDGERMQ_SEEDS", "6"))
SHARES = 2


@pytest.mark.slow
@pytest.mark.parametrize("share", range(SHARES))
def test_a_writer_that_commits_by_itself_keeps_what_is_acknowledged(share: int) -> None:
    seeds = range(FIRST + share, FIRST + COUNT, SHARES)

    assert failures(seeds, partial(run_seed, make=LoneRun)) == ""
