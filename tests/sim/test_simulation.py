"""Groups of real nodes under random faults: a failing seed is repeated by its number.

``LEDGERMQ_SEEDS=2000 python -m pytest tests/sim`` looks at more of them, and
``LEDGERMQ_FIRST_SEED=547`` begins there. Without pytest: ``python -m tests.simulator``.
"""

from __future__ import annotations

import os

import pytest

from tests.sim.search import failures
from tests.simulator.__main__ import main
from tests.simulator.runs.runs import run_seed

FIRST = int(os.environ.get("LEDGERMQ_FIRST_SEED", "0"))
COUNT = int(os.environ.get("LEDGERMQ_SEEDS", "12"))
SHARES = 4


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("share", range(SHARES))
def test_a_group_keeps_its_promises_and_heals(share: int) -> None:
    seeds = range(FIRST + share, FIRST + COUNT, SHARES)

    assert failures(seeds, run_seed) == ""


@pytest.mark.long(but=1)
@pytest.mark.slow
@pytest.mark.parametrize("seed", [800_108, 801_061])
def test_a_seed_that_has_found_something_passes(seed: int) -> None:
    """A change of members that was proposed while the leader's writer was given the term anew; a
    mark of damage that an idle writer removes a second later.
    """
    assert run_seed(seed, interrupted=False).failure == ""


@pytest.mark.long(but=1)
@pytest.mark.slow
@pytest.mark.parametrize("interrupted", [False, True])
def test_a_seed_is_one_run(interrupted: bool) -> None:
    first, second = (run_seed(7, interrupted=interrupted, run_ms=1_500) for _ in range(2))

    # Folders of temporary files have names of their own.
    assert [line for line in first.history if "/" not in line] == [
        line for line in second.history if "/" not in line
    ]
    assert first[2:] == second[2:]


@pytest.mark.long
@pytest.mark.slow
def test_runs_do_something() -> None:
    """The faults must not keep the group from work, or nothing would be checked."""
    outcomes = [run_seed(seed) for seed in range(5)]

    assert sum(outcome.acknowledged for outcome in outcomes) > 500
    assert sum(outcome.leaders for outcome in outcomes) > 10


@pytest.mark.slow
def test_the_command_says_how_to_repeat_what_failed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ledgermq.raft.roles.follower._has_previous", lambda state, previous: True)

    status = main(["--seed", "0", "--count", "2"])

    *lines, summary = capsys.readouterr().out.splitlines()
    assert status == 1
    assert summary.startswith("seeds=2 failures=")
    assert lines
    assert all("again: python -m tests.simulator --seed" in line for line in lines)


@pytest.mark.slow
def test_the_command_ends_well_when_all_promises_were_kept(
    capsys: pytest.CaptureFixture[str],
) -> None:
    status = main(["--seed", "3"])

    assert status == 0
    assert capsys.readouterr().out.startswith("seeds=1 failures=0 ")
