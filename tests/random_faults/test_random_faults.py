"""A group keeps its promises to clients of all kinds under random faults, with three nodes or five.

`LEDGERMQ_RANDOM_FAULTS_S` says for how many seconds faults happen to each of the two groups, in
runs of twenty minutes at most; without it there is a short run. `LEDGERMQ_RANDOM_FAULTS_SEED` is
the first run's seed; each run prints its own, and keeps records and logs of what was wrong.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.random_faults import own_machine

SECONDS = float(os.environ.get("LEDGERMQ_RANDOM_FAULTS_S") or 0)
SEED = int(os.environ.get("LEDGERMQ_RANDOM_FAULTS_SEED") or random.SystemRandom().randrange(10**6))
SHORT_S = 45.0
RUN_S_MAX = 1_200.0
ROOT = Path(__file__).resolve().parents[2]


def undergo(members: int, seconds: float, seed: int) -> None:
    """One run, in a process of its own.

    Raises:
        AssertionError: something is wrong; what it has printed says what, and where the records
            are.
    """
    if reason := own_machine.why_not():
        pytest.skip(reason)
    words = ["--seed", str(seed), "--members", str(members), "--minutes", str(seconds / 60)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.random_faults", *words],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    print(done.stdout, flush=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
@pytest.mark.long
def test_three_members_keep_their_promises_for_a_moment() -> None:
    undergo(3, SHORT_S, SEED)


@pytest.mark.slow
@pytest.mark.skipif(not SECONDS, reason="random faults: LEDGERMQ_RANDOM_FAULTS_S, make check-all")
@pytest.mark.parametrize("members", [3, 5])
def test_members_keep_their_promises(members: int) -> None:
    left_s, seed = SECONDS, SEED + 1_000 * members
    while left_s > 0:
        undergo(members, min(left_s, RUN_S_MAX), seed)
        left_s, seed = left_s - RUN_S_MAX, seed + 1
