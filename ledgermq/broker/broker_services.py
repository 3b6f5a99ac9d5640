"""Services of one broker: made in the order in which they need one another, and listed once."""

from __future__ import annotations

from functools import partial

from ledgermq.broker.administration.access_calls import AccessCalls
from ledgermq.broker.administration.feature_calls import ArchiveCalls, FeatureCalls, NameCalls
from ledgermq.broker.administration.group_calls import GroupCalls, GroupLags
from ledgermq.broker.administration.node_calls import NodeCalls
from ledgermq.broker.administration.offset_calls import OffsetCalls
from ledgermq.broker.administration.schema_calls import SchemaCalls
from ledgermq.broker.administration.topic_calls import QueueCalls, SendTopicCalls, TopicCalls
from ledgermq.broker.call_service import CallService
from ledgermq.broker.cluster.cluster_calls import DrainCalls, Unfinished
from ledgermq.broker.cluster.cluster_service import ClusterService
from ledgermq.broker.cluster.home_questions import HomeLine
from ledgermq.broker.consumers.dead_letter_calls import DeadLetterCalls
from ledgermq.broker.consumers.member_calls import MemberCalls
from ledgermq.broker.consumers.other_members import OtherMembers
from ledgermq.broker.consumers.retry_topics import PreparedGroups, RetryCalls, RetryTopics
from ledgermq.broker.consumers.share_calls import ShareCalls
from ledgermq.broker.deliveries.delay_service import DelayService
from ledgermq.broker.deliveries.moves import Moves
from ledgermq.broker.deliveries.pop_service import PopService
from ledgermq.broker.deliveries.timer_calls import TimerCalls
from ledgermq.broker.deliveries.timer_service import TimerService
from ledgermq.broker.deliveries.wheel_service import Find, WheelService
from ledgermq.broker.pulls.cold_reads import ColdReads
from ledgermq.broker.pulls.pull_service import PullService
from ledgermq.broker.pulls.query_service import QueryService
from ledgermq.broker.pulls.queue_messages import QueueMessages
from ledgermq.broker.reading.known_topics import KnownTopics
from ledgermq.broker.reading.readable_store import ReadableStore
from ledgermq.broker.receipts.receipt_service import ReceiptService
from ledgermq.broker.service import Mailbox, Services
from ledgermq.broker.sinks.sink_calls import SinkCalls
from ledgermq.broker.sinks.sink_service import SinkService
from ledgermq.broker.sliced_answers import SlicedAnswers
from ledgermq.broker.state.broker_tables import BrokerTables
from ledgermq.broker.state.state_log import StateLog
from ledgermq.broker.state.writer_notice import WriterNotice
from ledgermq.broker.transactions.transaction_service import TransactionService
from ledgermq.ipc.counters import Counts
from ledgermq.ipc.cursor_page import Role
from ledgermq.process.clock import NS_PER_MS, Clock
from ledgermq.process.environment import Environment, OrderBell
from ledgermq.sessions.request_faults import Contain


class BrokerServices:
    """Owned by the broker process.

    Attributes:
        listed: all that have turns.
        pulls, calls, queries: what clients are answered by.
        delays, timers, transactions, members, notice, slices, receipts: those of ``listed`` that
            the worker has something else to do with, too; a node without a key has no ``receipts``.
    """

    def __init__(
        self,
        environment: Environment,
        tables: BrokerTables,
        store: ReadableStore,
        log: StateLog,
        mailbox: Mailbox,
        *,
        counts: Counts,
        contain: Contain,
        line: HomeLine | None,
        cold: ColdReads | None,
        receipts: OrderBell | None = None,
    ) -> None:
        """Make the services; none has had a turn.

        Args:
            contain: told of a bug that a service has met (``PullService``).
            line, cold, receipts: lead to the cluster's home, to what the log has no more, and to
                who makes checkpoints of receipts; None: nowhere.
        """
        settings, clock = environment.settings, environment.clock
        known, rules = KnownTopics(store, tables), settings.topics
        self.queries = queries = QueryService(store, settings, known.check_queue, cold=cold)
        moves, find = Moves(store, tables, log, counts), queries.with_key
        self.delays = DelayService(store, moves, log, clock, settings.store.message_delay_level)
        _, wheel = of_five = _of_rocketmq_5(known, moves, log, environment, find)
        self.timers = TimerService(store, moves, log, clock, is_held=lambda: wheel.holds_timers)
        sinks = SinkService(
            store, tables, log, moves, settings, mailbox=mailbox, clock=clock, counts=counts
        )
        for keeper in (self.delays, self.timers, wheel, sinks):
            log.keep_log_from(keeper.oldest_position)
        self.transactions = TransactionService(
            known, log, moves, settings, mailbox=mailbox, clock=clock, counts=counts, find=find
        )
        self.notice = WriterNotice(tables, mailbox, log)
        self.slices = SlicedAnswers(clock, contain, mailbox)
        self.members = members = MemberCalls(
            known, settings, log, elsewhere := OtherMembers(), self.slices,
            mailbox=mailbox, clock=clock, counts=counts, contain=contain,
        )  # fmt: skip
        dead_letters = DeadLetterCalls(known, log, moves, settings, mailbox=mailbox, counts=counts)
        self.pulls = PullService.made(
            known, settings, cold=cold, counts=counts, contain=contain, clock=clock
        )
        topics = TopicCalls(known, rules, log, self.notice, self.slices)
        # A group with members consumes queue by queue.
        shares = ShareCalls(
            known, log, QueueMessages(store, moves, cold), settings, members.queue_by_queue,
            mailbox=mailbox, clock=clock, counts=counts, contain=contain,
        )  # fmt: skip
        counted = partial(_members_counted, members, shares, clock)
        groups = GroupCalls(
            known, rules, log, self.slices,
            members=members.clients, warnings=members.warnings, counts=counted,
        )  # fmt: skip
        self.calls = CallService(
            known, log, topics=topics, groups=groups, slices=self.slices, others=elsewhere
        )
        cluster = ClusterService(
            known, tables, log, line, settings.access, mailbox=mailbox, clock=clock, counts=counts
        )
        self.calls.on_gone.append(shares.cancel)
        self.calls.on_untold.append(shares.take_back)
        lags = GroupLags(tables.offsets, groups.lag)
        for answering in (
            topics,
            groups,
            members,
            OffsetCalls(known, rules, log, members.consuming, counts),
            *_without_turns(known, tables, log, self.notice, environment),
            self.transactions,
            TimerCalls(self.timers, log, find, settings, clock=clock, counts=counts),
            RetryCalls(
                known, log, queries.record_at, settings, mailbox=mailbox, clock=clock, counts=counts
            ),
            dead_letters,
            shares,
            SinkCalls(sinks, known, rules),
            cluster,
            DrainCalls(
                tables, log, self.notice, Unfinished(self.timers, self.delays, self.transactions)
            ),
            features := FeatureCalls(environment, tables, log, counts),
            NodeCalls(environment, lags, members=counted, differing=members.differing),
        ):
            self.calls.register(answering.verbs)
        # They have their turn before the log proposes what it is asked for.
        self.receipts = _receipts(store, tables, log, receipts, environment)
        own = (*filter(None, (self.receipts,)), features, cluster, log, self.notice, members)
        early = (dead_letters, moves, self.transactions, sinks, shares, *of_five, self.delays)
        turns = (self.pulls, *early, self.timers, *own, self.slices)
        self.listed = Services(turns, mailbox, contain)


def _receipts(
    store: ReadableStore,
    tables: BrokerTables,
    log: StateLog,
    maker: OrderBell | None,
    environment: Environment,
) -> ReceiptService | None:
    """What has checkpoints made; None where nobody makes any."""
    if maker is None:
        return None
    made = ReceiptService(
        *(store, tables, log, maker),
        settings=environment.settings,
        clock=environment.clock,
        generation=lambda: environment.page.read_process(Role.RECEIPTS).generation,
    )
    log.keep_log_from(made.oldest_position)
    return made


def _without_turns(
    known: KnownTopics,
    tables: BrokerTables,
    log: StateLog,
    notice: WriterNotice,
    environment: Environment,
) -> tuple[
    AccessCalls, NameCalls, SchemaCalls, SendTopicCalls, QueueCalls, PreparedGroups, ArchiveCalls
]:
    """Calls that no service looks into."""
    rules = environment.settings.topics
    return (
        AccessCalls(tables, log, notice),
        NameCalls(tables, log),
        SchemaCalls(tables, log),
        SendTopicCalls(known, rules, log, notice),
        QueueCalls(known),
        PreparedGroups(known, rules, log),
        ArchiveCalls(known.store, tables, log, environment.clock),
    )


def _members_counted(members: MemberCalls, shares: ShareCalls, clock: Clock) -> dict[str, int]:
    """How many consume for each group: those that say so, or else who takes messages singly."""
    now_ms = clock.monotonic_ns() // NS_PER_MS
    return {**shares.members.counts(now_ms), **members.counts()}


def _of_rocketmq_5(
    known: KnownTopics, moves: Moves, log: StateLog, environment: Environment, find: Find
) -> tuple[PopService, WheelService]:
    """The services that take over what a store of RocketMQ 5 has in flight."""
    settings = environment.settings
    lacking = RetryTopics(known, settings.topics).lacking
    pop = PopService(known, moves, log, settings, lacking)
    clock = environment.clock
    wheel = WheelService(known.store, moves, log, clock, settings=settings, find=find, pop=pop)
    return pop, wheel
