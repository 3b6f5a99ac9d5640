"""Services of one broker: made in the order in which they need one another, and listed once."""

from __future__ import annotations

from ledgermq.broker.holds import Holds
from ledgermq.ipc.counters import Counts
from ledgermq.process.environment import Environment
from ledgermq.process.request_faults import Contain
from ledgermq.serving.broker_tables import BrokerTables
from ledgermq.serving.call_service import CallService
from ledgermq.serving.dead_letter_calls import DeadLetterCalls
from ledgermq.serving.delay_service import DelayService
from ledgermq.serving.group_lags import GroupLags
from ledgermq.serving.known_topics import KnownTopics
from ledgermq.serving.member_calls import MemberCalls
from ledgermq.serving.moves import Moves
from ledgermq.serving.node_calls import NodeCalls
from ledgermq.serving.other_members import OtherMembers
from ledgermq.serving.pull_service import PullService
from ledgermq.serving.query_service import QueryService
from ledgermq.serving.readable_store import ReadableStore
from ledgermq.serving.retry_calls import RetryCalls
from ledgermq.serving.service import Mailbox
from ledgermq.serving.services import Services
from ledgermq.serving.sink_calls import SinkCalls
from ledgermq.serving.sink_service import SinkService
from ledgermq.serving.sliced_answers import SlicedAnswers
from ledgermq.serving.state_log import StateLog
from ledgermq.serving.timer_calls import TimerCalls
from ledgermq.serving.timer_service import TimerService
from ledgermq.serving.transaction_calls import TransactionCalls
from ledgermq.serving.transaction_service import TransactionService
from ledgermq.serving.writer_notice import WriterNotice


class BrokerServices:
    """Owned by the broker process.

    Attributes:
        listed: all that have turns.
        pulls, calls, queries: what clients are answered by.
        delays, timers, transactions, members, notice, slices: those of ``listed`` that the worker
            has something else to do with, too.
    """

    def __init__(
        self,
        around: Environment,
        tables: BrokerTables,
        store: ReadableStore,
        log: StateLog,
        *,
        counts: Counts,
        mailbox: Mailbox,
        contain: Contain,
    ) -> None:
        """See ``PullService`` for ``contain``."""
        settings, clock = around.settings, around.clock
        known = KnownTopics(store, tables)
        self.queries = queries = QueryService(store, settings, known.check_queue)
        moves = Moves(store, tables, log, counts)
        self.delays = DelayService(store, moves, log, clock, settings.store.message_delay_level)
        self.timers = TimerService(store, moves, log, clock)
        sinks = SinkService(
            store, tables, log, moves, settings, mailbox=mailbox, clock=clock, counts=counts
        )
        for keeper in (self.delays, self.timers, sinks):
            log.keep_log_from(keeper.oldest_position)
        self.transactions = TransactionService(
            store, tables, log, moves, settings,
            mailbox=mailbox, clock=clock, counts=counts, find=queries.with_key,
        )  # fmt: skip
        self.notice = WriterNotice(tables, mailbox)
        self.slices = SlicedAnswers(clock, contain, mailbox)
        others = OtherMembers()
        self.members = members = MemberCalls(
            known, settings, log, others, self.slices,
            mailbox=mailbox, clock=clock, counts=counts, contain=contain,
        )  # fmt: skip
        dead_letters = DeadLetterCalls(known, log, moves, settings, mailbox=mailbox, counts=counts)
        self.pulls = PullService(
            store,
            Holds(
                limit=settings.limits.held_pulls_max, share=settings.limits.held_pulls_per_client
            ),
            known.check_queue,
            filters_properties=settings.reads.enable_property_filter,
            counts=counts,
            contain=contain,
            clock=clock,
        )
        self.calls = calls = CallService(
            known, tables, settings.topics, log,
            notice=self.notice, slices=self.slices, others=others, members=members, counts=counts,
        )  # fmt: skip
        retries = RetryCalls(
            known, log, queries.record_at, settings, mailbox=mailbox, clock=clock, counts=counts
        )
        lags = GroupLags(tables.offsets, calls.groups.lag)
        for answering in (
            TransactionCalls(self.transactions),
            TimerCalls(self.timers, log, queries.with_key, settings, clock=clock, counts=counts),
            retries,
            dead_letters,
            SinkCalls(sinks, tables),
            NodeCalls(around, lags, members=members.counts, differing=members.differing),
        ):
            calls.register(answering.verbs)
        # Those that ask for moves have their turn before the log proposes what it is asked for.
        self.listed = Services(
            (self.pulls, dead_letters, moves, self.transactions, sinks, self.delays, self.timers,
             log, self.notice, members, self.slices),
            mailbox,
            contain,
        )  # fmt: skip
