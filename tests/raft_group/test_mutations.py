"""The simulator finds what would break the group: each deliberate bug within 500 seeds."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ledgermq.model.ids import NodeId
from ledgermq.raft.messages import HardState
from ledgermq.raft.roles import leader
from ledgermq.raft.roles.leadership import Leadership
from ledgermq.raft.roles.node_state import NodeState
from ledgermq.raft.timing import LAST_WAITS, Timing
from tests.raft_group.mutations import (
    commit_follows_the_end_of_the_log,
    old_terms_are_committed_by_counting,
    previous_term_is_not_checked,
    shorter_logs_get_votes,
)
from tests.raft_group.node import SimNode
from tests.raft_group.runs import RefusedRun, Run, failure

SEEDS = 500

Patch = pytest.MonkeyPatch


def vote_is_not_persisted(patch: Patch) -> None:
    """Figure 2, persistent state: a node that forgets its vote votes twice in a term."""
    start = SimNode.start

    def forget(node: SimNode, now: int, seed: int) -> None:
        node.disk.hard_state = HardState(node.disk.hard_state.term, None)
        start(node, now, seed)

    patch.setattr(SimNode, "start", forget)


def written_counts_as_durable(patch: Patch) -> None:
    """Acknowledged before it is synced: a crash takes it away."""

    def look(node: SimNode) -> None:
        core = node.core
        if core is None or not node.connected:
            return
        if core.granted:
            node.tell_memberships(leading=True)
            node.carry_out(core.entries_written(node.disk.last))
        node.fsync = False
        node.carry_out(core.entries_held(node.name, node.disk.last.index))

    def crash(node: SimNode, lost: int) -> None:
        node.core = None
        node.stop_writer()
        node.disk.truncate(node.disk.durable)

    patch.setattr(SimNode, "look", look)
    patch.setattr(SimNode, "crash", crash)


def reads_are_not_confirmed(patch: Patch) -> None:
    """A leader that was replaced answers reads from what it knew (thesis, section 6.4)."""

    def at_once(state: NodeState, lead: Leadership, reader: NodeId, read: int) -> None:
        state.answer_read(reader, read, state.commit)

    patch.setattr(leader, "read_for", at_once)


def a_leader_is_sure_for_too_long(patch: Patch) -> None:
    """It counts from whenever it is asked (docs/decisions/0118)."""

    def for_ever(state: NodeState, _lead: Leadership) -> int:
        return state.now + state.policy.timing.election_min

    patch.setattr(leader, "alone_until", for_ever)


def a_lease_is_not_honoured(patch: Patch) -> None:
    """A connection that has ended counts as a leader that has died (docs/decisions/0118)."""
    patch.setattr(Timing, "lease_honoured", 0)


def outdated_members_campaign_after_a_while(patch: Patch) -> None:
    """As those with a sick disk do (docs/decisions/0060)."""
    barriers = NodeState.barriers

    def forget(state: NodeState) -> list[str]:
        outdated = state.outdated
        state.outdated = outdated and state.waits_without_leader <= LAST_WAITS
        found = barriers(state)
        state.outdated = outdated
        return found

    patch.setattr(NodeState, "barriers", forget)


MUTATIONS: tuple[Callable[[Patch], None], ...] = (
    vote_is_not_persisted,
    old_terms_are_committed_by_counting,
    previous_term_is_not_checked,
    commit_follows_the_end_of_the_log,
    shorter_logs_get_votes,
    written_counts_as_durable,
    reads_are_not_confirmed,
    a_leader_is_sure_for_too_long,
    a_lease_is_not_honoured,
    outdated_members_campaign_after_a_while,
)


# These two need elections that follow one another at once.
IN_STORMS = (vote_is_not_persisted, old_terms_are_committed_by_counting)

# Where the rare ones were found last: looked at first, for a search from 0 takes a while.
LIKELY: dict[Callable[[Patch], None], int] = {
    vote_is_not_persisted: 321,
    old_terms_are_committed_by_counting: 410,
    reads_are_not_confirmed: 119,
}


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_the_simulator_finds(mutation: Callable[[Patch], None], monkeypatch: Patch) -> None:
    mutation(monkeypatch)

    storm = mutation in IN_STORMS
    outdated = mutation is outdated_members_campaign_after_a_while
    make = RefusedRun if mutation is a_lease_is_not_honoured else Run

    def is_found(seed: int) -> bool:
        return failure(seed, storm=storm, outdated=outdated, make=make) is not None

    seeds = [LIKELY.get(mutation, 0), *range(SEEDS)]
    found = next((seed for seed in seeds if is_found(seed)), None)

    assert found is not None, f"{mutation.__name__} was not found in {SEEDS} seeds"
