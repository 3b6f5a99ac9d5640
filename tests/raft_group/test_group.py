"""Groups under random faults: seeds are runs, and a failing one is repeated by its number.

``LEDGERMQ_SEEDS=2000 python -m pytest tests/raft_group`` looks at more of them, and
``LEDGERMQ_FIRST_SEED=547`` begins there.
"""

from __future__ import annotations

import os

import pytest

from tests.raft_group.runs import RefusedRun, Run, failure

FIRST = int(os.environ.get("LEDGERMQ_FIRST_SEED", "0"))
COUNT = int(os.environ.get("LEDGERMQ_SEEDS", "40"))
SHARES = 4


@pytest.mark.long(but=1)
@pytest.mark.slow
@pytest.mark.parametrize("share", range(SHARES))
def test_a_group_keeps_its_promises_and_heals(share: int) -> None:
    seeds = range(FIRST + share, FIRST + COUNT, SHARES)

    failures = [found for seed in seeds if (found := failure(seed)) is not None]

    assert not failures, "\n\n".join(failures[:3])


@pytest.mark.long
@pytest.mark.slow
def test_a_member_that_is_too_old_for_its_log_does_not_lead_and_the_group_heals() -> None:
    seeds = range(FIRST, FIRST + COUNT // 4)

    failures = [found for seed in seeds if (found := failure(seed, outdated=True)) is not None]

    assert not failures, "\n\n".join(failures[:3])


@pytest.mark.slow
def test_a_leader_that_is_cut_off_and_refused_keeps_its_lease() -> None:
    found = [failure(seed, make=RefusedRun) for seed in range(FIRST, FIRST + COUNT // 8)]

    assert [one for one in found if one is not None] == []


def test_a_seed_is_one_run() -> None:
    histories = []
    for _ in range(2):
        run = Run(7)
        run.go()
        histories.append([*run.group.history])

    assert histories[0] == histories[1]


def test_runs_do_something() -> None:
    """The faults must not keep the group from work, or nothing would be checked."""
    acknowledged = 0
    leaders = 0
    alone = 0
    for seed in range(10):
        run = Run(seed)
        run.go()
        acknowledged += len(run.group.checker.acknowledged)
        leaders += len(run.group.checker.leaders)
        alone += run.group.looks_alone

    assert acknowledged > 200
    assert leaders > 20
    assert alone > 200
