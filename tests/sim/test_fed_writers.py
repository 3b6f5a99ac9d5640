"""Writers of followers take what leaders send: promises are kept, and deliberate errors found."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pytest

from ledgermq.formats.kernels.kernel import SteadyLine
from ledgermq.ipc.cursor_page import CursorPage
from ledgermq.ipc.orders import FollowRun, LeadRun
from ledgermq.model.ids import Index, NodeId, Term
from ledgermq.raft.core import RaftCore
from ledgermq.raft.led_run import LedPeer, leading_state
from ledgermq.raft.membership import MembershipHistory
from ledgermq.raft.messages import EntryId
from ledgermq.raft.roles import led
from ledgermq.raft.roles.node_state import NodeState
from ledgermq.raft.roles.progress import Progress, ProgressMode
from ledgermq.store.log.log_writer import LogEnd
from ledgermq.writer import led_run
from ledgermq.writer.followed_run import FollowedRun
from ledgermq.writer.led_run import LedRun
from tests.sim.search import failures, find
from tests.simulator.runs.runs import FaultRun, LoneRun, RepeatRun, WitnessRun, run_seed
from tests.simulator.runs.service_runs import ServiceRun

FIRST = int(os.environ.get("LEDGERMQ_FIRST_SEED", "0"))
COUNT = int(os.environ.get("LEDGERMQ_SEEDS", "3"))
KINDS = (FaultRun, ServiceRun, WitnessRun, LoneRun, RepeatRun)
SEEDS = 200

Patch = pytest.MonkeyPatch


@pytest.mark.long(but=1)
@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_what_is_acknowledged_stays(kind: type[FaultRun]) -> None:
    seeds = range(FIRST, FIRST + COUNT)

    assert failures(seeds, partial(run_seed, make=kind, fed=True)) == ""


def a_vote_forgets_what_the_writer_took(patch: Patch) -> None:
    """Raft paper, section 5.4.1: it is given by the log as it was when the run began."""

    run_told = RaftCore.run_told

    def forgetful(core: RaftCore, last: EntryId, *, commit: Index, **told: Any) -> None:
        del last
        run_told(core, core.last, commit=min(commit, core.last.index), **told)

    patch.setattr(RaftCore, "run_told", forgetful)


def a_run_is_not_ended(patch: Patch) -> None:
    """The writer goes on while raft judges, votes and takes entries itself."""
    publish_run = CursorPage.publish_run

    def hasty(page: CursorPage, term: int | None) -> None:
        if page.run_cell()[0] >= 0:
            publish_run(page, term)  # type: ignore[arg-type]

    patch.setattr(CursorPage, "publish_run", hasty)


def a_writer_does_not_look_whether_the_run_lasts(patch: Patch) -> None:
    """What it takes behind the end of the run, raft does not hear of."""
    begin = FollowedRun.begin

    def hasty(run: FollowedRun, order: FollowRun, end: LogEnd) -> None:
        begin(run, order, end)
        run._run = memoryview(bytearray((-run._number).to_bytes(8, "little", signed=True))).cast(
            "q"
        )

    patch.setattr(FollowedRun, "begin", hasty)


def written_is_answered_for_as_durable(patch: Patch) -> None:
    """A power failure takes away what a majority was counted on for."""
    begin = FollowedRun.begin

    def hasty(run: FollowedRun, order: FollowRun, end: LogEnd) -> None:
        run._waits_for_sync = False
        begin(run, order, end)

    patch.setattr(FollowedRun, "begin", hasty)


def the_leaders_commit_is_published_as_it_is(patch: Patch) -> None:
    """What this node does not hold yet counts as committed here."""
    publish = FollowedRun._publish_commit

    def hasty(run: FollowedRun, commit: int) -> None:
        assert run._line is not None
        publish(run, max(commit, run._line.state.following.leader_commit))

    patch.setattr(FollowedRun, "_publish_commit", hasty)


def what_a_run_has_committed_is_forgotten(patch: Patch) -> None:
    """Raft publishes an older commit behind the run than the writer has in it."""
    run_told = RaftCore.run_told

    def forgetful(core: RaftCore, last: EntryId, *, commit: Index, **told: Any) -> None:
        del commit
        run_told(core, last, commit=core.commit, **told)

    patch.setattr(RaftCore, "run_told", forgetful)


def a_leader_commits_what_it_alone_holds(patch: Patch) -> None:
    """Nobody else is asked, as in a group of one."""
    hold = LedRun._hold

    def hasty(run: LedRun, line: SteadyLine, index: Index) -> int:
        return max(hold(run, line, index), index)

    patch.setattr(LedRun, "_hold", hasty)


def who_is_silent_is_counted_as_if_it_had_all(patch: Patch) -> None:
    def hasty(*arguments: Any, **named: Any) -> NodeState:
        state = leading_state(*arguments, **named)
        assert state.leadership is not None
        for progress in state.leadership.progress.values():
            if progress.mode is ProgressMode.PROBE:
                progress.match, progress.next = Index(1 << 40), Index(1 << 41)
        return state

    patch.setattr(led_run, "leading_state", hasty)


def who_is_silent_is_no_voter(patch: Patch) -> None:
    """A majority of those that answer is none of the group's."""

    def hasty(
        node: NodeId, term: Term, last: Index, peers: Mapping[NodeId, LedPeer], **named: Any
    ) -> NodeState:
        fed = {peer: one for peer, one in peers.items() if one.is_fed}
        return leading_state(node, term, last, fed, **named)

    patch.setattr(led_run, "leading_state", hasty)


def a_leader_counts_as_durable_what_is_written(patch: Patch) -> None:
    begin = LedRun.begin

    def hasty(run: LedRun, order: LeadRun, end: LogEnd, term: Term | None) -> None:
        run._waits_for_sync = False
        begin(run, order, end, term)

    patch.setattr(LedRun, "begin", hasty)


def what_a_leaders_run_has_committed_is_forgotten(patch: Patch) -> None:
    """Raft publishes an older commit behind the run than the writer has in it."""
    told = RaftCore.led_run_told

    def forgetful(
        core: RaftCore,
        last: EntryId,
        matches: Mapping[NodeId, Index],
        *,
        commit: Index,
        **named: Any,
    ) -> None:
        told(core, last, matches, commit=min(commit, core.commit), **named)

    patch.setattr(RaftCore, "led_run_told", forgetful)


def a_run_begins_behind_a_membership_that_a_member_lacks(patch: Patch) -> None:
    """Its writer takes it, and its raft process is told of nothing."""
    is_drained = led.is_drained

    def hasty(state: NodeState, progress: Progress) -> bool:
        known, state.history = state.history, MembershipHistory(state.history.current)
        try:
            return is_drained(state, progress)
        finally:
            state.history = known

    patch.setattr(led, "is_drained", hasty)


MUTATIONS: tuple[Callable[[Patch], None], ...] = (
    a_run_begins_behind_a_membership_that_a_member_lacks,
    a_leader_commits_what_it_alone_holds,
    who_is_silent_is_counted_as_if_it_had_all,
    who_is_silent_is_no_voter,
    a_leader_counts_as_durable_what_is_written,
    what_a_leaders_run_has_committed_is_forgotten,
    a_vote_forgets_what_the_writer_took,
    a_run_is_not_ended,
    a_writer_does_not_look_whether_the_run_lasts,
    written_is_answered_for_as_durable,
    the_leaders_commit_is_published_as_it_is,
    what_a_run_has_committed_is_forgotten,
)

# Where each was found last, if not in 0: looked at first, for a search takes a while.
LIKELY: dict[Callable[[Patch], None], int] = {
    a_run_begins_behind_a_membership_that_a_member_lacks: 83,
    who_is_silent_is_counted_as_if_it_had_all: 1,
    a_leader_counts_as_durable_what_is_written: 3,
    what_a_leaders_run_has_committed_is_forgotten: 4,
    a_vote_forgets_what_the_writer_took: 5,
    the_leaders_commit_is_published_as_it_is: 7,
    what_a_run_has_committed_is_forgotten: 26,
}


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_the_simulator_finds(mutation: Callable[[Patch], None], monkeypatch: Patch) -> None:
    mutation(monkeypatch)

    def fails(seed: int) -> str:
        return run_seed(seed, fed=True).failure

    found = find(fails, likely=LIKELY.get(mutation, 0), count=SEEDS)

    assert found is not None, f"{mutation.__name__} was not found in {SEEDS} seeds"
