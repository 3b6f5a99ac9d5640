"""The simulator finds what would break the services' promises: each deliberate bug."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ledgermq.broker.consumers.share_calls import ShareCalls
from ledgermq.broker.deliveries import moves, timer_service
from ledgermq.broker.reading.applied_tables import AppliedTables
from ledgermq.broker.sinks.sink_commits import SinkCommits
from ledgermq.broker.state.state_log import StateLog
from ledgermq.broker.state.state_requests import StateRequest
from ledgermq.process.table_files import UnsettledTables
from ledgermq.rules.consumers.share_handles import ShareHandle
from ledgermq.rules.consumers.share_order import KeyLines
from ledgermq.rules.consumers.share_plans import SharePlan, _Draft
from ledgermq.rules.messages.half_table import HalfTable
from ledgermq.rules.messages.timer_index import TimerIndex, Watermark
from ledgermq.rules.state.broker_state import BrokerState
from ledgermq.rules.tables.share_queue import ShareQueue
from ledgermq.verbs.shares import DONE
from ledgermq.writer.duplicates import missing_records
from ledgermq.writer.duplicates.unique_ids import Deduplication
from ledgermq.writer.writer import WriterWorker
from tests.sim.search import find
from tests.simulator.runs.runs import run_seed
from tests.simulator.runs.service_runs import ServiceRun

SEEDS = 120

Patch = pytest.MonkeyPatch


def a_snapshot_does_not_wait_for_what_was_sent_before(patch: Patch) -> None:
    """It stands behind a command of a broker that died, and takes it back."""
    propose = StateLog._propose

    def hasty(log: StateLog, term: object, plan: object, now_ms: int) -> None:
        if log._is_snapshot_due:
            log._propose_snapshot(term, now_ms)  # type: ignore[arg-type]
        else:
            propose(log, term, plan, now_ms)  # type: ignore[arg-type]

    patch.setattr(StateLog, "_propose", hasty)


def places_are_found_anew_with_each_start(patch: Patch) -> None:
    """Decision 44: a table from outside counts as newer than what the log has when its broker
    begins, as often as that is before its file is written.
    """
    begin_at = BrokerState.begin_at

    def begin(state: BrokerState, first: int, end: int) -> int:
        for file in state.unsettled:
            state.settle(file, end)
        return begin_at(state, first, end)

    patch.setattr(BrokerState, "begin_at", begin)
    patch.setattr(UnsettledTables, "find", classmethod(lambda cls, directory: None))
    patch.setattr(AppliedTables, "settle", lambda tables: True)


def late_timers_are_passed_over(patch: Patch) -> None:
    """Decision 13, the watermark: what was due before it, and is stored later, is not done."""

    def forget(index: TimerIndex, watermark: Watermark) -> None:
        forget_delivered(index, watermark._replace(end=1 << 40))

    forget_delivered = TimerIndex.forget_delivered
    patch.setattr(TimerIndex, "forget_delivered", forget)


def a_cancellation_is_forgotten(patch: Patch) -> None:
    """It is acknowledged, and a leader that reads the queue anew does not know it."""
    patch.setattr(timer_service.TimerIndex, "cancel", lambda index, offset: False)


def commits_are_acknowledged_at_once(patch: Patch) -> None:
    """Before they are in the log: the next leader has never heard of them."""
    submit = StateLog.submit

    def told(log: StateLog, request: StateRequest, now_ms: int) -> None:
        submit(log, request, now_ms)
        if any(name.startswith("offset ") for name in request.touches):
            log._answer(request)

    patch.setattr(StateLog, "submit", told)


def rolled_back_halves_are_committed(patch: Patch) -> None:
    """A table of half messages that takes the end of one transaction for that of another."""
    messages_of = HalfTable.messages_of

    def more(table: HalfTable, key: object) -> object:
        found = messages_of(table, key)  # type: ignore[arg-type]
        return found and list(table)[: len(found)]

    patch.setattr(HalfTable, "messages_of", more)


def a_cut_move_is_made_again_from_its_beginning(patch: Patch) -> None:
    """What came into the log before its leader died is there twice."""
    patch.setattr(moves, "count_present", lambda sums, records: 0)


def a_batch_that_runs_again_is_taken_again(patch: Patch) -> None:
    """Who commits does not know that somebody did before: the rows of both attempts come."""
    patch.setattr(SinkCommits, "is_known", lambda service, name, batch: False)


def a_writer_goes_by_the_topics_that_it_knows(patch: Patch) -> None:
    """Decision 102: those of its files, or of a broker that stands still."""

    def serve(worker: WriterWorker) -> None:
        worker._serving = worker._term

    patch.setattr(WriterWorker, "_note_serving", serve)


def windows_are_not_looked_at(patch: Patch) -> None:
    """What counts once within its window is stored again."""
    patch.setattr(Deduplication, "concerns", lambda ids, frame: False)


def what_is_behind_a_record_that_was_left_out_is_taken_for_new(patch: Patch) -> None:
    """A frame of which one record was a duplicate is sent again, when its window is off."""
    patch.setattr(missing_records._Lookup, "_may_be_left_out", lambda lookup, message, topic: False)


def an_acknowledgement_is_taken_for_a_return(patch: Patch) -> None:
    """The message is told to be settled, and is handed out again."""

    def give_back(plan: SharePlan, handle: ShareHandle) -> str:
        outcome = plan.outcome(handle)
        if outcome == DONE:
            plan.release(handle, 0)
        return outcome

    patch.setattr(SharePlan, "accept", give_back)


def invisible_times_are_not_looked_at(patch: Patch) -> None:
    """What somebody has is handed to the next one who asks."""
    due = ShareQueue.due
    patch.setattr(ShareQueue, "due", lambda queue, now_ms, count: due(queue, 1 << 60, count))


def a_share_group_is_said_to_be_where_nothing_was_handed_out(patch: Patch) -> None:
    """Decision 134, low: its offset passes over what is in flight."""
    patch.setattr(_Draft, "low", lambda draft, *, with_dead: draft.next)


def keys_are_not_looked_at(patch: Patch) -> None:
    """What is behind another message of its key is handed out beside it."""
    patch.setattr(KeyLines, "first", lambda lines, key, is_settled: None)


def a_new_leader_does_not_read_the_keys(patch: Patch) -> None:
    """Of what its predecessor has handed out it does not know which others wait for it."""
    unread = KeyLines.unread
    patch.setattr(KeyLines, "unread", lambda lines, count: unread(lines, count)[:0])


def priorities_are_not_looked_at(patch: Patch) -> None:
    """Queues take turns, of a topic of which the highest comes first."""
    limits = ShareCalls._limits
    patch.setattr(
        ShareCalls,
        "_limits",
        lambda calls, gather: limits(calls, gather)._replace(priority_factor=0),
    )


MUTATIONS: tuple[Callable[[Patch], None], ...] = (
    a_snapshot_does_not_wait_for_what_was_sent_before,
    places_are_found_anew_with_each_start,
    late_timers_are_passed_over,
    a_cancellation_is_forgotten,
    commits_are_acknowledged_at_once,
    rolled_back_halves_are_committed,
    a_cut_move_is_made_again_from_its_beginning,
    a_batch_that_runs_again_is_taken_again,
    a_writer_goes_by_the_topics_that_it_knows,
    windows_are_not_looked_at,
    what_is_behind_a_record_that_was_left_out_is_taken_for_new,
    an_acknowledgement_is_taken_for_a_return,
    invisible_times_are_not_looked_at,
    a_share_group_is_said_to_be_where_nothing_was_handed_out,
    keys_are_not_looked_at,
    a_new_leader_does_not_read_the_keys,
    priorities_are_not_looked_at,
)

# Where each was found last, if not in 0: looked at first, for a search takes a while.
LIKELY: dict[Callable[[Patch], None], int] = {
    a_snapshot_does_not_wait_for_what_was_sent_before: 5,
    a_cancellation_is_forgotten: 0,
    a_cut_move_is_made_again_from_its_beginning: 7,
    a_batch_that_runs_again_is_taken_again: 17,
    rolled_back_halves_are_committed: 4,
    a_writer_goes_by_the_topics_that_it_knows: 0,
    what_is_behind_a_record_that_was_left_out_is_taken_for_new: 3,
    an_acknowledgement_is_taken_for_a_return: 5,
    invisible_times_are_not_looked_at: 19,
    a_share_group_is_said_to_be_where_nothing_was_handed_out: 96,
    keys_are_not_looked_at: 26,
    a_new_leader_does_not_read_the_keys: 26,
    priorities_are_not_looked_at: 33,
}


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_the_simulator_finds(mutation: Callable[[Patch], None], monkeypatch: Patch) -> None:
    mutation(monkeypatch)

    def fails(seed: int) -> str:
        return run_seed(seed, interrupted=False, make=ServiceRun).failure

    found = find(fails, likely=LIKELY.get(mutation, 0), count=SEEDS)

    assert found is not None, f"{mutation.__name__} was not found in {SEEDS} seeds"
