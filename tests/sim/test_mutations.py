"""The simulator finds what would break the group: each deliberate bug within 500 seeds."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ledgermq.ipc.cursor_page import CursorPage
from ledgermq.ipc.run_fence import RunFence
from ledgermq.model.ids import Index
from ledgermq.process.environment import Environment, OrderBell
from ledgermq.raft.core import RaftCore
from ledgermq.raft.effects import AppendEntries
from ledgermq.raft.roles import follower, leader
from ledgermq.raft.roles.node_state import NodeState, WriterState
from ledgermq.raft_node import term_file
from ledgermq.raft_node.peers.peers import Peers
from ledgermq.raft_node.raft_process import RaftWorker
from ledgermq.raft_node.term_file import TermFile
from ledgermq.store.log.log_writer import LogEnd
from ledgermq.store.recovery import recovery
from ledgermq.writer.log.flusher import FlushRule
from ledgermq.writer.own_commits import OwnCommits
from tests.raft_group.mutations import (
    commit_follows_the_end_of_the_log,
    old_terms_are_committed_by_counting,
    previous_term_is_not_checked,
    shorter_logs_get_votes,
)
from tests.sim.search import find
from tests.simulator.runs.runs import FaultRun, LoneRun, run_seed

SEEDS = 500

Patch = pytest.MonkeyPatch


def votes_are_not_synced(patch: Patch) -> None:
    """Figure 2, persistent state: a node that forgets its vote votes twice in a term."""
    patch.setattr(term_file, "sync_content", lambda fd: None)
    # The mirror for DLedger is synced, and read, too.
    patch.setattr(term_file, "replace_file", lambda path, content: None)


def committed_entries_are_cut(patch: Patch) -> None:
    """Figure 3, state machine safety: the cut goes further back than the conflict."""

    def cut(state: NodeState, after: Index) -> None:
        after = Index(max(after - 8, state.log.before.index))
        state.log.truncate(after)
        state.history.roll_back(after)
        state.held = min(state.held, after)
        state.writer = WriterState.TRUNCATING
        state.out.truncate = state.log.last
        state.following.verified = after

    patch.setattr(follower, "_cut", cut)


def the_lease_has_a_stale_clock(patch: Patch) -> None:
    """Thesis, section 6.2: the leader counts who was heard of ever, and not lately."""

    def horizon(state: NodeState) -> int:
        assert state.leadership is not None
        return state.leadership.began - state.policy.timing.election_max

    patch.setattr(leader, "_quorum_horizon", horizon)


def written_counts_as_durable(patch: Patch) -> None:
    """Acknowledged before it is synced: a power failure takes it away."""

    begin = RaftWorker.__init__

    def hasty(worker: RaftWorker, environment: Environment, files: TermFile, peers: Peers) -> None:
        begin(worker, environment, files, peers)
        worker._waits_for_sync = False

    patch.setattr(RaftWorker, "__init__", hasty)


def a_sync_counts_for_what_came_meanwhile(patch: Patch) -> None:
    """It makes durable what was written when it began."""
    end_sync = FlushRule.end_sync

    def hasty(rule: FlushRule, now_ns: int) -> None:
        rule._target = rule._wanted
        end_sync(rule, now_ns)

    patch.setattr(FlushRule, "end_sync", hasty)


def a_cut_takes_back_nothing_that_is_durable(patch: Patch) -> None:
    """What is written in the place of entries that were cut counts as synced before it is."""

    def cut(rule: FlushRule, end: LogEnd, now_ns: int) -> None:
        rule._wanted = end

    patch.setattr(FlushRule, "cut", cut)


def what_is_recovered_counts_as_synced(patch: Patch) -> None:
    """A writer that was killed left it in the page cache: the next one must sync it."""
    patch.setattr(recovery, "_sync", lambda directory, file_size, begin: None)


def entries_go_to_a_writer_that_was_not_heard_of(patch: Patch) -> None:
    """They follow what was in the ring of the one before, which died with it."""
    append = RaftWorker._append

    def hasty(worker: RaftWorker, accepted: AppendEntries) -> None:
        is_read, worker._writer.is_read = worker._writer.is_read, True
        try:
            append(worker, accepted)
        finally:
            worker._writer.is_read = is_read

    patch.setattr(RaftWorker, "_append", hasty)


def durable_is_read_behind_written(patch: Patch) -> None:
    """What became durable meanwhile is sent before anybody looks whether it is a membership."""

    def look(worker: RaftWorker, now_ns: int) -> None:
        if not worker._writer.is_settled:
            worker._writer.repeat_when_due(now_ns)
            return
        if worker._written_cell[0] != worker._written_seen:
            worker._written_seen = worker._written_cell[0]
            worker._look_at_written()
        if worker._waits_for_sync and worker._durable_cell[0] != worker._durable_seen:
            worker._durable_seen = worker._durable_cell[0]
            worker._look_at_held(worker._page.read_durable()[0])

    patch.setattr(RaftWorker, "_look_at_cursors", look)


def a_run_begins_beside_other_members(patch: Patch) -> None:
    """Decision 133: the writer commits by itself what others have to hold, too."""

    def commits_alone(core: RaftCore) -> bool:
        return core.granted and core.commit >= 0

    patch.setattr(RaftCore, "commits_alone", property(commits_alone))


def a_run_outlives_its_membership(patch: Patch) -> None:
    """Decision 133: raft counts others again, and the writer is not told."""
    patch.setattr(RaftWorker, "_stop_run", lambda worker: setattr(worker, "_runs", False))


def a_run_does_not_wait_for_a_sync(patch: Patch) -> None:
    """Decision 133: the writer commits what it has written, and a power failure takes it away."""
    begin = OwnCommits.__init__

    def hasty(
        commits: OwnCommits,
        page: CursorPage,
        fence: RunFence,
        dispatcher: OrderBell,
        *,
        waits_for_sync: bool,
    ) -> None:
        del waits_for_sync
        begin(commits, page, fence, dispatcher, waits_for_sync=False)

    patch.setattr(OwnCommits, "__init__", hasty)


def damaged_nodes_vote_by_their_cut_log(patch: Patch) -> None:
    """Decision 10, rule 1: who lost an entry elects one that never had it."""
    patch.setattr(NodeState, "last_held_ever", property(lambda state: state.log.last))


def damaged_nodes_campaign(patch: Patch) -> None:
    """Decision 10, rule 2: it takes its own vote, which it would give to nobody else."""
    barriers = NodeState.barriers

    def lenient(state: NodeState) -> list[str]:
        lost, state.lost = state.lost, None
        try:
            return barriers(state)
        finally:
            state.lost = lost

    patch.setattr(NodeState, "barriers", lenient)


def damage_is_cut_like_a_torn_tail(patch: Patch) -> None:
    """Decision 9: nobody is told that entries are lost which others count on."""
    patch.setattr(recovery, "_damage", lambda *_, **__: None)


MUTATIONS: tuple[Callable[[Patch], None], ...] = (
    votes_are_not_synced,
    old_terms_are_committed_by_counting,
    previous_term_is_not_checked,
    committed_entries_are_cut,
    the_lease_has_a_stale_clock,
    commit_follows_the_end_of_the_log,
    shorter_logs_get_votes,
    written_counts_as_durable,
    a_sync_counts_for_what_came_meanwhile,
    a_cut_takes_back_nothing_that_is_durable,
    what_is_recovered_counts_as_synced,
    entries_go_to_a_writer_that_was_not_heard_of,
    durable_is_read_behind_written,
    damaged_nodes_vote_by_their_cut_log,
    damaged_nodes_campaign,
    damage_is_cut_like_a_torn_tail,
    a_run_begins_beside_other_members,
    a_run_outlives_its_membership,
    a_run_does_not_wait_for_a_sync,
)

# Where no writers feed one another, raft does not ask whether one may commit alone.
FED = (a_run_begins_beside_other_members,)

# These need a group of one that becomes larger.
OF_LONE_NODES = (a_run_outlives_its_membership, a_run_does_not_wait_for_a_sync)

# These need elections that follow one another at once.
IN_STORMS = (old_terms_are_committed_by_counting, what_is_recovered_counts_as_synced)

# These need disks that spoil what was synced.
ON_BAD_DISKS = (
    damaged_nodes_vote_by_their_cut_log,
    damaged_nodes_campaign,
    damage_is_cut_like_a_torn_tail,
)

# These need others that go on within a turn; with the rest seeds stay what they were.
WITHIN_TURNS = (durable_is_read_behind_written,)

# Where each was found last, if not in 0: looked at first, for a search takes a while.
LIKELY: dict[Callable[[Patch], None], int] = {
    votes_are_not_synced: 2,
    previous_term_is_not_checked: 6,
    committed_entries_are_cut: 13,
    the_lease_has_a_stale_clock: 8,
    commit_follows_the_end_of_the_log: 24,
    shorter_logs_get_votes: 1,
    a_sync_counts_for_what_came_meanwhile: 3,
    a_cut_takes_back_nothing_that_is_durable: 2,
    what_is_recovered_counts_as_synced: 40,
    entries_go_to_a_writer_that_was_not_heard_of: 442,
    durable_is_read_behind_written: 4,
    damaged_nodes_vote_by_their_cut_log: 8,
    damage_is_cut_like_a_torn_tail: 22,
    damaged_nodes_campaign: 18,
}


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_the_simulator_finds(mutation: Callable[[Patch], None], monkeypatch: Patch) -> None:
    mutation(monkeypatch)
    storm = mutation in IN_STORMS
    interrupted = mutation in WITHIN_TURNS
    # Or what the seed says, as it was found.
    spoils = None if interrupted else mutation in ON_BAD_DISKS
    make = LoneRun if mutation in OF_LONE_NODES else FaultRun

    def fails(seed: int) -> str:
        return run_seed(
            seed,
            storm=storm,
            spoils=spoils,
            interrupted=interrupted,
            fed=mutation in FED,
            make=make,
        ).failure

    found = find(fails, likely=LIKELY.get(mutation, 0), count=SEEDS)

    assert found is not None, f"{mutation.__name__} was not found in {SEEDS} seeds"
