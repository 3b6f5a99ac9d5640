"""Groups of real processes with a witness without bodies, and the mutants that are found there.

A full member is lost for good in most runs (``sim/runs/runs.py``): nothing that was
acknowledged may be left with a witness alone. ``tests/raft_group/test_witnesses.py`` tries more,
with the core alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from ledgermq.model.ids import Index, NodeId
from ledgermq.raft.membership import Membership
from ledgermq.raft.messages import VoteRefusal, VoteRequest
from ledgermq.raft.quorum import majority
from ledgermq.raft.roles import attesting
from ledgermq.raft.roles.leadership import Leadership
from ledgermq.raft.roles.node_state import NodeState
from ledgermq.raft.roles.witness import WitnessCore
from ledgermq.raft_node import term_file
from ledgermq.sim.__main__ import main
from ledgermq.sim.runs.runs import WitnessRun, run_seed
from tests.sim.search import find

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
    failures = []
    for seed in range(FIRST + share, FIRST + COUNT, SHARES):
        outcome = run_seed(seed, make=WitnessRun)
        if outcome.failure:
            failures.append("\n".join([f"seed {seed}: {outcome.failure}", *outcome.history[-80:]]))

    assert not failures, "\n\n".join(failures[:3])


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


def it_votes_for_shorter_logs(patch: Patch) -> None:
    """Section 5.4.1, election restriction: a witness knows one entry that counts."""
    refusal = WitnessCore._refusal

    def lenient(core: WitnessCore, source: NodeId, request: VoteRequest) -> VoteRefusal | None:
        reason = refusal(core, source, request)
        return None if reason is VoteRefusal.LOG_BEHIND else reason

    patch.setattr(WitnessCore, "_refusal", lenient)


def it_counts_as_one_that_holds_bodies(patch: Patch) -> None:
    """Told of everything at once, as a voter with bodies is sent it."""

    def at_once(state: NodeState, lead: Leadership) -> Index:
        return state.log.last_index if lead.term_begin is not None else Index(-1)

    patch.setattr(attesting, "attestable", at_once)


def it_is_always_leant_on(patch: Patch) -> None:
    """Committed with it and one body less while all keep up: nobody waits for the other site."""

    def fewest(membership: Membership, *, leans: bool) -> int:
        del leans
        return majority(len(membership.voters)) - 1

    patch.setattr(attesting, "bodies_needed", fewest)


def it_is_never_leant_on(patch: Patch) -> None:
    """Who is lost for good stops the group, and the witness is for nothing."""
    patch.setattr(attesting, "look", lambda state, lead, known: None)


LIKELY: dict[Callable[[Patch], None], int] = {
    its_file_is_not_synced: 1,
    it_votes_for_shorter_logs: 14,
    it_counts_as_one_that_holds_bodies: 0,
    it_is_always_leant_on: 0,
    it_is_never_leant_on: 2,
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
