"""Groups with a witness that holds no bodies: they keep their promises, and mutants are found.

One full member is lost for good in most runs, while the leader says that the others have all that
is committed: nothing that was acknowledged may be left with a witness alone.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from dataclasses import replace

import pytest

from ledgermq.model.ids import Index, NodeId
from ledgermq.raft.messages import NO_ENTRY, VoteRefusal, VoteRequest
from ledgermq.raft.roles import attesting
from ledgermq.raft.roles.leadership import Attesting, Leadership
from ledgermq.raft.roles.node_state import NodeState
from ledgermq.raft.roles.witness import WitnessCore
from tests.raft_group.mutations import (
    it_counts_as_one_that_holds_bodies,
    it_is_always_leant_on,
    it_is_never_leant_on,
    it_votes_for_shorter_logs,
)
from tests.raft_group.witness import SimWitness
from tests.raft_group.witness_runs import WitnessRun, failure
from tests.sim.search import find

FIRST = int(os.environ.get("LEDGERMQ_FIRST_SEED", "0"))
COUNT = int(os.environ.get("LEDGERMQ_SEEDS", "40"))
SHARES = 4
MUTANT_SEEDS = 200

Patch = pytest.MonkeyPatch


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("share", range(SHARES))
def test_a_group_with_a_witness_keeps_its_promises_and_heals(share: int) -> None:
    seeds = range(FIRST + share, FIRST + COUNT, SHARES)

    failures = [found for seed in seeds if (found := failure(seed)) is not None]

    assert not failures, "\n\n".join(failures[:3])


def test_a_seed_is_one_run() -> None:
    histories = []
    for _ in range(2):
        run = WitnessRun(7)
        run.go()
        histories.append([*run.group.history])

    assert histories[0] == histories[1]


def test_runs_lose_members_and_go_on() -> None:
    """Members must be lost, and messages be taken, or nothing would be checked."""
    runs = [WitnessRun(seed) for seed in range(12)]
    for run in runs:
        run.go()

    assert sum(run.lost is not None for run in runs) >= 4
    assert sum(len(run.group.checker.acknowledged) for run in runs) > 400


def its_entry_is_forgotten(patch: Patch) -> None:
    """A witness that starts again, and votes for whoever asks."""
    start = SimWitness.start

    def forget(witness: SimWitness, now: int) -> None:
        witness.kept = replace(witness.kept, last=NO_ENTRY)
        start(witness, now)

    patch.setattr(SimWitness, "start", forget)


def it_votes_twice_in_a_term(patch: Patch) -> None:
    """Figure 2, rules for servers: whoever asks gets a vote."""
    refusal = WitnessCore._refusal

    def lenient(core: WitnessCore, source: NodeId, request: VoteRequest) -> VoteRefusal | None:
        reason = refusal(core, source, request)
        return None if reason is VoteRefusal.VOTED else reason

    patch.setattr(WitnessCore, "_refusal", lenient)


def it_answers_before_it_is_durable(patch: Patch) -> None:
    """Of what it has answered in its last turns nothing is on its disk when it dies."""
    turn, start = SimWitness.turn, SimWitness.start

    def late(witness: SimWitness, now: int) -> None:
        vars(witness).setdefault("before", deque(maxlen=10)).append(witness.kept)
        turn(witness, now)

    def early(witness: SimWitness, now: int) -> None:
        before = vars(witness).pop("before", None)
        if before:
            witness.kept = before[0]
        start(witness, now)

    patch.setattr(SimWitness, "turn", late)
    patch.setattr(SimWitness, "start", early)


def it_is_leant_on_for_ever(patch: Patch) -> None:
    """Who was away is back, and nobody waits for it again."""
    look = attesting.look

    def keep(state: NodeState, lead: Leadership, known: Attesting) -> None:
        leant = known.leans
        look(state, lead, known)
        known.leans |= leant

    patch.setattr(attesting, "look", keep)


def it_is_told_of_old_terms(patch: Patch) -> None:
    """Figure 8: what is of an older term is not committed by who holds it."""
    find_last = attesting.attestable

    def any_term(state: NodeState, lead: Leadership) -> Index:
        begin = lead.term_begin
        if begin is None:
            return Index(-1)
        lead.term_begin = Index(0)
        found = find_last(state, lead)
        lead.term_begin = begin
        return found

    patch.setattr(attesting, "attestable", any_term)


LIKELY: dict[Callable[[Patch], None], int] = {
    its_entry_is_forgotten: 18,
    it_votes_twice_in_a_term: 3,
    it_answers_before_it_is_durable: 18,
    it_votes_for_shorter_logs: 18,
    it_counts_as_one_that_holds_bodies: 0,
    it_is_always_leant_on: 1,
    it_is_never_leant_on: 1,
    it_is_leant_on_for_ever: 2,
    it_is_told_of_old_terms: 0,
}
"""Each mutant, and where it was found last: looked at first, for a search takes a while."""

IN_STORMS = (it_votes_twice_in_a_term,)
"""These need elections that follow one another at once."""


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("mutation", LIKELY, ids=lambda mutation: mutation.__name__)
def test_the_simulator_finds(mutation: Callable[[Patch], None], monkeypatch: Patch) -> None:
    mutation(monkeypatch)
    storm = mutation in IN_STORMS

    found = find(
        lambda seed: failure(seed, storm=storm), likely=LIKELY[mutation], count=MUTANT_SEEDS
    )

    assert found is not None
