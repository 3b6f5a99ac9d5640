"""Clients that repeat when others have written much since: what they sent is stored once."""

from __future__ import annotations

import os
from functools import partial

import pytest

from ledgermq.writer.duplicates.missing_records import EarlierAttempts
from tests.sim.search import failures, find
from tests.simulator.runs.runs import RepeatRun, run_seed

FIRST = int(os.environ.get("LEDGERMQ_FIRST_SEED", "0"))
COUNT = int(os.environ.get("LEDGERMQ_SEEDS", "8"))
SHARES = 4
MUTANT_SEEDS = 50


@pytest.mark.long(but=1)
@pytest.mark.slow
@pytest.mark.parametrize("share", range(SHARES))
def test_what_is_sent_again_late_is_stored_once_or_refused_as_unknown(share: int) -> None:
    seeds = range(FIRST + share, FIRST + COUNT, SHARES)

    assert failures(seeds, partial(run_seed, make=RepeatRun)) == ""


@pytest.mark.slow
def test_the_simulator_finds_a_writer_that_looks_at_the_last_bytes_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What it does not find there counts as not stored."""
    monkeypatch.setattr(EarlierAttempts, "find", lambda attempts, record, message, attempt: None)
    found = find(lambda seed: run_seed(seed, make=RepeatRun).failure, likely=0, count=MUTANT_SEEDS)

    assert found is not None, f"not found in {MUTANT_SEEDS} seeds"
