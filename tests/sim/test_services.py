"""Groups with brokers under random faults: what the services promise, whatever dies when.

``LEDGERMQ_SEEDS=2000 python -m pytest tests/sim`` looks at more seeds, and
``LEDGERMQ_FIRST_SEED=547`` begins there. Without pytest: ``python -m tests.simulator --services``.
"""

from __future__ import annotations

import os
from functools import partial

import pytest

from tests.sim.search import failures
from tests.simulator.runs.runs import run_seed
from tests.simulator.runs.service_runs import ServiceRun

FIRST = int(os.environ.get("LEDGERMQ_FIRST_SEED", "0"))
COUNT = int(os.environ.get("LEDGERMQ_SEEDS", "4"))
SHARES = 2

FOUND = (1, 3, 129)
"""A snapshot that took back what a dead broker had sent; files ahead of what is dispatched, applied
to again; a resent half message that was asked for meanwhile.
"""


@pytest.mark.long(but=1)
@pytest.mark.slow
@pytest.mark.parametrize("share", range(SHARES))
def test_the_services_keep_their_promises(share: int) -> None:
    seeds = range(FIRST + share, FIRST + COUNT, SHARES)

    assert failures(seeds, partial(run_seed, make=ServiceRun)) == ""


@pytest.mark.long(but=1)
@pytest.mark.slow
@pytest.mark.parametrize("seed", FOUND)
def test_what_was_found_once_stays_away(seed: int) -> None:
    outcome = run_seed(seed, interrupted=False, make=ServiceRun)

    assert outcome.failure == ""


@pytest.mark.long
@pytest.mark.slow
def test_services_do_something() -> None:
    """The faults must not keep them from work, or nothing would be checked."""
    run = ServiceRun(30, interrupted=False)
    run.go()
    checker = run.checker

    kinds = {sent.first for name, sent in checker.sent_as.items() if name in checker.delivered}
    assert kinds >= {"SCHEDULE_TOPIC_XXXX", "LEDGERMQ_TIMER", "RMQ_SYS_TRANS_HALF_TOPIC"}
    assert checker.cancelled
    assert any(one.is_ended for one in checker.transactions.values())
    assert all(checker.retried[one] for one in checker.given_back)
    assert checker.given_back
    assert min(committer.acknowledged for committer in run.committers) > 0


@pytest.mark.long(but=1)
@pytest.mark.slow
@pytest.mark.parametrize("seed", [5, 12, 96])
def test_share_groups_hand_out_all_and_nothing_again_that_was_accepted(seed: int) -> None:
    outcome = run_seed(seed, interrupted=False, make=ServiceRun)

    assert outcome.failure == ""


@pytest.mark.long
@pytest.mark.slow
def test_members_of_share_groups_are_late_and_are_handed_what_others_had() -> None:
    run = ServiceRun(152, interrupted=False)
    run.go()
    shares = run.checker.shares

    assert shares.again
    assert shares.late
    assert shares.accepted.keys() == shares.handed


@pytest.mark.slow
def test_operators_make_topics() -> None:
    """In most runs the faults keep them from nearly all that they ask for."""
    run = ServiceRun(22, interrupted=False)
    run.go()

    assert any(run.operator.topics.values())


@pytest.mark.slow
def test_topics_change_and_are_sent_to_all_the_time() -> None:
    run = ServiceRun(22, interrupted=False)
    run.go()
    topics = run.checker.topics

    assert topics.refused > 0
    assert topics.known > 0
    assert any(one.shut_since is not None for one in topics.topics.values())


@pytest.mark.long
@pytest.mark.slow
def test_sinks_write_batches_and_ask_for_them_again() -> None:
    run = ServiceRun(8, interrupted=False)
    run.go()
    sinks = run.checker.sinks

    assert sinks.committed
    assert all(sinks.is_visible(batch) for batch in sinks.committed)
    asked = [one.batch for one in sinks.attempts.values() if one.is_asked]
    assert len(asked) > len(set(asked))
    assert any(not one.arrived for one in sinks.attempts.values() if one.is_asked)


@pytest.mark.slow
def test_a_seed_is_one_run_with_services_too() -> None:
    first, second = (run_seed(4, make=ServiceRun, run_ms=1_500) for _ in range(2))

    # Folders of temporary files have names of their own.
    assert [line for line in first.history if "/" not in line] == [
        line for line in second.history if "/" not in line
    ]
    assert first[2:] == second[2:]
