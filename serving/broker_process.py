"""The broker process: serves consumers and calls, and runs the broker's services.

It alone writes ``ROOT/config/topics.json``, ``subscriptionGroup.json`` and ``consumerOffset.json``,
from what the log says of them (``state_log``), which the leader's broker proposes to the writer. It
reads the cursors ``dispatched`` and ``written``, and shows nothing of the log beyond the former.
A bell of the dispatcher makes it look at the queues that somebody waits for; the writer's
TOPICS_LOADED releases the answers about new topics.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from functools import partial

from ledgermq.broker.holds import Holds
from ledgermq.ipc.counters import BrokerCounter
from ledgermq.ipc.cursor_page import Role
from ledgermq.ipc.orders import SnapshotWanted, StateRefused, TopicsLoaded, parse
from ledgermq.model.errors import CorruptLogError, NotLeaderError, ProtocolError
from ledgermq.model.settings import LogKind, Settings
from ledgermq.process import reload
from ledgermq.process.environment import Environment
from ledgermq.process.loop import SLEEP_MAX_MS, Pollable, StopFlag
from ledgermq.process.loop import run as run_loop
from ledgermq.process.node import Surroundings
from ledgermq.process.request_faults import RequestFaults
from ledgermq.process.standing import ReaderStanding
from ledgermq.process.store_paths import StorePaths
from ledgermq.serving.broker_tables import BrokerTables
from ledgermq.serving.call_service import CallService
from ledgermq.serving.consume_service import ConsumeService
from ledgermq.serving.consumers import Consumers, MakeConsumers
from ledgermq.serving.damage_reports import DamageReports
from ledgermq.serving.dead_letter_calls import DeadLetterCalls
from ledgermq.serving.delay_service import DelayService
from ledgermq.serving.group_lags import GroupLags
from ledgermq.serving.member_calls import MemberCalls
from ledgermq.serving.moves import Moves
from ledgermq.serving.node_calls import NodeCalls
from ledgermq.serving.pull_service import Contain, PullService, let_through
from ledgermq.serving.query_service import QueryService
from ledgermq.serving.readable_store import ReadableStore
from ledgermq.serving.retry_calls import RetryCalls
from ledgermq.serving.service_turns import ServiceTurns
from ledgermq.serving.sink_calls import SinkCalls
from ledgermq.serving.sink_service import SinkService
from ledgermq.serving.state_log import Generations, StateLog
from ledgermq.serving.state_requests import Reply
from ledgermq.serving.store_upkeep import StoreUpkeep
from ledgermq.serving.timer_calls import TimerCalls
from ledgermq.serving.timer_service import TimerService
from ledgermq.serving.transaction_calls import TransactionCalls
from ledgermq.serving.transaction_service import TransactionService
from ledgermq.wire.session import Standing

logger = logging.getLogger(__name__)

ORDER_REPEAT_MS = 100
"""TOPICS_CHANGED is repeated after this long without an answer."""

REST_MS = 1_000
"""A turn that finds no news does nothing but find that out, for so long; a whole one costs
several times as much."""

LAST_BATCH_NS = 1_000_000_000
LAST_BATCH_POLL_S = 0.002
"""A broker that stops waits so long for its last commands, and looks so often."""

DEAD_LETTERS, MOVES, TRANSACTIONS = "dead letters", "moves", "transactions"
SINKS, DELAYS, TIMERS = "sinks", "delays", "timers"

WHOLE_TURN_MS = 20
"""While messages come and go all the time, the services have their turn this often."""


class BrokerWorker:
    """What one turn of the broker does."""

    def __init__(
        self,
        around: Environment,
        tables: BrokerTables,
        make_consumers: MakeConsumers,
        *,
        contain: Contain = let_through,
    ) -> None:
        """See ``PullService`` for ``contain``."""
        settings = around.settings
        self._around = around
        self._tables = tables
        tables.sign_of_life = self._give_beat
        self._writer, self._raft = around.bell(Role.WRITER), around.bell(Role.RAFT)
        self._counts = around.page.counters(Role.BROKER)
        damage = DamageReports(self._raft, around.clock)
        self._store = ReadableStore(around.page, settings, damage, first_offset=tables.first_offset)
        self._log = self._state_log(contain)
        self._counts[BrokerCounter.TABLES_AT] = 0
        self._moves = Moves(self._store, tables, self._log)
        self._delays = DelayService(
            self._store, self._moves, self._log, settings.store.message_delay_level
        )
        self._timers = TimerService(self._store, self._moves, self._log)
        self._sinks = SinkService(self._store, tables, self._log, self._moves, settings)
        for keeper in (self._delays, self._timers, self._sinks):
            self._log.keep_log_from(keeper.oldest_position)
        self._calls = CallService(
            self._store,
            tables,
            settings.topics,
            self._log,
            members=self._clients_of,
            consuming=self._consuming,
            warnings=self._warnings_of,
            contain=contain,
        )
        queries = QueryService(self._store, settings, self._calls.known.check_queue)
        self._transactions = TransactionService(
            self._store, tables, self._log, self._moves, settings, find=queries.with_key
        )
        self._calls.register(TransactionCalls(self._transactions).verbs)
        calls = self._calls
        self._members = MemberCalls(
            calls.known, settings, self._log, calls.others, calls.slices, contain=contain
        )
        self._calls.register(self._members.verbs)
        self._pulls = self._pull_service(contain)
        timer_calls = TimerCalls(self._timers, self._log, queries.with_key, settings)
        self._calls.register(timer_calls.verbs)
        self._retries = RetryCalls(self._calls.known, self._log, queries.record_at, settings)
        self._dead_letters = DeadLetterCalls(self._calls.known, self._log, self._moves, settings)
        sinks = SinkCalls(self._sinks, tables)
        for answering in (self._retries, self._dead_letters, sinks, self._node_calls()):
            self._calls.register(answering.verbs)
        self._turns = ServiceTurns(contain)
        self._service = make_consumers(self._pulls, self._calls, queries)
        self._standing = ReaderStanding(
            around.page, entries_have_terms=settings.store.log is LogKind.DLEDGER
        )
        self._untold: Standing | None = None
        self._services_term, self._ordered_revision = 0, -1
        self._writer_generation = self._around.page.read_process(Role.WRITER).generation
        self._upkeep = StoreUpkeep(self._store)
        self._order_due_ms = self._rests_until_ms = self._whole_ms = 0

    @property
    def state_log(self) -> StateLog:
        """Through which its tables change."""
        return self._log

    def sources(self) -> list[Pollable]:
        """The inbox, the consumers' socket, and who lets them in."""
        return [*self._around.inbox.sources, *self._service.sources]

    def sleep_ms(self, now_ns: int) -> int:
        """Until the first deadline; 0 while queues with holds wait to be looked at."""
        if self._is_behind:
            return 0
        now_ms = now_ns // 1_000_000
        if now_ms >= self._rests_until_ms:
            self._rests_until_ms = self._next_turn_ms(now_ns)
        return min(max(0, self._rests_until_ms - now_ms), SLEEP_MAX_MS)

    @property
    def _is_behind(self) -> bool:
        """Whether a whole turn is due at once."""
        if self._pulls.is_behind() or self._standing.has_news or self._log.is_behind:
            return True
        if self._transactions.is_behind and not self._turns.rests(TRANSACTIONS):
            return True
        # Since the last turn looked; the bell for it may have been rung before it was listened for.
        has_moved = self._awaits_dispatch and self._store.has_moved()
        return has_moved or (self._sinks.is_behind and not self._turns.rests(SINKS))

    def _next_turn_ms(self, now_ns: int) -> int:
        """When there is something to do even if nothing comes."""
        now_ms = now_ns // 1_000_000
        deadlines = [
            self._pulls.next_deadline_ms(),
            self._calls.notice.next_deadline_ms(),
            self._log.next_deadline_ms(),
            self._turns.deadline_ms(MOVES, self._moves.next_deadline_ms),
            self._turns.deadline_ms(TRANSACTIONS, self._transactions.next_deadline_ms),
            self._turns.deadline_ms(DELAYS, self._delays.next_deadline_ms),
            self._turns.deadline_ms(TIMERS, self._timers.next_deadline_ms),
            self._turns.deadline_ms(SINKS, self._sinks.next_deadline_ms),
            self._members.next_deadline_ms(),
            self._service.next_deadline_ms(),
            self._calls.slices.next_deadline_ms(),
        ]
        if not self._calls.notice.is_confirmed:
            deadlines.append(self._order_due_ms)
        # One millisecond more: the clock's rest below a millisecond is not to be polled away.
        waits = [max(0, deadline - now_ms) + 1 for deadline in deadlines if deadline is not None]
        write_ms = self._tables.sleep_ms(now_ns)
        return now_ms + min([*waits, REST_MS if write_ms is None else write_ms, REST_MS])

    def hears_bells(self, now_ns: int) -> bool:
        """While somebody waits for messages, for a change, or for this node to lead.

        Raft rouses it when another node leads.
        """
        del now_ns
        return self._awaits_dispatch or self._pulls.held > 0 or self._standing.awaits_dispatch

    @property
    def _awaits_dispatch(self) -> bool:
        waits = self._log.awaits or self._transactions.awaits or self._timers.awaits
        return waits or self._sinks.awaits

    @property
    def _has_news(self) -> bool:
        """Whether the page tells something that no bell and no deadline does."""
        generation = self._around.page.read_process(Role.WRITER).generation
        return (
            self._store.has_moved()
            or not self._store.is_ready
            or self._standing.has_news
            or self._log.is_held_up
            or generation != self._writer_generation
        )

    def turn(self, ready: Mapping[Pollable, int], now_ns: int) -> None:
        """Orders, requests, growth of queues, deadlines; then what has to be written."""
        now_ms = now_ns // 1_000_000
        self._service.look(now_ns)
        if not ready and now_ms < self._rests_until_ms and not self._has_news:
            return
        if self._has_taken_messages(ready, now_ms):
            return
        self._rests_until_ms = 0
        self._whole_ms = now_ms
        for message in self._around.inbox.drain(ready):
            self._take(message)
        # First: what it goes by is applied below.
        standing = self._standing.look() or self._untold
        if self._store.look():
            self._pulls.notice_growth()
            self._delays.notice_growth(now_ms)
            self._timers.notice_growth(now_ms)
            self._sinks.notice_growth(now_ms)
        self._log.apply()
        # Who begins to lead goes by tables that have everything which was in the log before.
        begins = standing is not None and standing.leads and standing.term != self._log.term
        self._untold = standing if begins and self._log.is_behind else None
        self._log.is_beginning = self._standing.awaits_dispatch or self._untold is not None
        if standing is not None and self._untold is None:
            self._take_standing(standing, now_ms)
        self._service.let_in(ready)
        others_ask = self._service.take_requests(ready, now_ms)
        if others_ask:
            self._upkeep.note_use(now_ms)
        self._service.send_answers(self._pulls.grown(now_ms))
        self._service.send_answers(self._pulls.due(now_ms))
        self._serve(now_ms)
        replies = (
            *self._log.turn(now_ms),
            *self._calls.notice.late(now_ms),
            *self._members.turn(now_ms),
            *self._calls.slices.turn(now_ms, others_ask=others_ask),
        )
        for reply in replies:
            self._service.send_reply(reply)
        for reply in (*self._retries.take_replies(), *self._dead_letters.take_replies()):
            self._service.send_reply(reply)
        self._service.flush()
        self._tell_stage()
        self._order_topics(now_ms)
        self._tables.tick(now_ns)
        self._look_after_files(now_ms)

    def _serve(self, now_ms: int) -> None:
        """The turns of the services that read what is stored, none of which ends another one."""
        run = partial(self._turns.run, now_ms=now_ms)
        again: Callable[[], None] = lambda: None  # noqa: E731 - what keeps nothing begins anew
        run(DEAD_LETTERS, self._dead_letters.turn, nothing=None, begin_again=again)
        moves = partial(self._moves.turn, now_ms)
        run(MOVES, moves, nothing=None, begin_again=again)
        for name, service in ((TRANSACTIONS, self._transactions), (SINKS, self._sinks)):
            none: list[Reply] = []
            turn = partial(service.turn, now_ms)
            for reply in run(name, turn, nothing=none, begin_again=service.begin_again):
                self._service.send_reply(reply)
        for name, one in ((DELAYS, self._delays), (TIMERS, self._timers)):
            run(name, partial(one.turn, now_ms), nothing=None, begin_again=one.begin_again)

    def _has_taken_messages(self, ready: Mapping[Pollable, int], now_ms: int) -> bool:
        """Whether this turn's work was to hand messages to the writer, or out, and answers back.

        Who sends or pulls waits for that. All that the services do costs more, and can wait a
        little while nobody waits for it.
        """
        if (
            now_ms - self._whole_ms >= WHOLE_TURN_MS
            or now_ms >= self._rests_until_ms
            or self._is_behind
            or not self._service.take_messages(ready, now_ms)
        ):
            return False
        self._upkeep.note_use(now_ms)
        for deadline in (self._service.next_deadline_ms(), self._pulls.next_deadline_ms()):
            if deadline is not None:
                self._rests_until_ms = min(self._rests_until_ms, max(deadline, now_ms) + 1)
        return True

    def _state_log(self, contain: Contain) -> StateLog:
        return StateLog(
            self._around.settings,
            self._store,
            self._tables,
            self._writer,
            self._generations,
            clock=self._around.clock,
            counts=self._counts,
            sign_of_life=self._give_sign,
            contain=contain,
        )

    def _pull_service(self, contain: Contain) -> PullService:
        settings = self._around.settings
        return PullService(
            self._store,
            Holds(
                limit=settings.limits.held_pulls_max, share=settings.limits.held_pulls_per_client
            ),
            self._calls.known.check_queue,
            filters_properties=settings.reads.enable_property_filter,
            counts=self._counts,
            contain=contain,
            clock=self._around.clock,
        )

    def _node_calls(self) -> NodeCalls:
        members = self._members
        return NodeCalls(
            self._around,
            GroupLags(self._tables.offsets, self._calls.groups.lag),
            members=members.counts,
            differing=members.differing,
        )

    def _clients_of(self, group: str) -> list[str]:
        # Made after the calls, which it needs.
        return self._members.clients(group)

    def _consuming(self, group: str) -> list[str]:
        return self._members.consuming(group)

    def _warnings_of(self, group: str) -> list[str]:
        return self._members.warnings(group)

    def _count_waiting(self) -> None:
        counts = self._counts
        counts[BrokerCounter.TIMERS_WAITING] = self._timers.index.count
        counts[BrokerCounter.HALF_MESSAGES_WAITING] = self._transactions.waiting
        self._members.tell_counts(counts)
        archives = self._tables.archives
        counts[BrokerCounter.ARCHIVES] = len(archives)
        counts[BrokerCounter.ARCHIVED_POSITION] = archives.last()
        try:
            counts[BrokerCounter.DELAYED_WAITING] = self._delays.waiting
        except (NotLeaderError, CorruptLogError):
            # The count stays as it was; whoever delivers them says what is wrong.
            return

    def _give_beat(self) -> None:
        """This turn takes long, and goes on."""
        self._around.page.give_sign(Role.BROKER, self._around.clock.monotonic_ns())

    def _give_sign(self) -> None:
        """Much is applied at once, as at the first start on an old store."""
        self._counts[BrokerCounter.TABLES_AT] = self._log.next_offset + 1
        self._around.page.give_sign(Role.BROKER, self._around.clock.monotonic_ns())

    def _tell_stage(self) -> None:
        log = self._log
        # A damaged place may stand where the tables begin.
        is_held_up = log.is_held_up
        self._counts[BrokerCounter.TABLES_HELD_UP] = is_held_up
        self._counts[BrokerCounter.TABLES_AT] = max(log.next_offset + 1, is_held_up)
        if log.is_settled:
            self._services_term = log.tables_term
        self._service.tell_stage(
            serves=log.term,
            tables=log.tables_term,
            services=self._services_term if self._services_term == log.term else 0,
        )

    def _look_after_files(self, now_ms: int) -> None:
        if self._upkeep.let_go(now_ms):
            self._count_waiting()
            self._service.tidy()
        self._upkeep.tidy(now_ms)

    def take_settings(self, settings: Settings) -> None:
        """The settings were read again: those of transactions and sinks count from now on, and keys
        that were put beside them.
        """
        self._tables.secrets.read_again()
        self._transactions.take_settings(settings)
        self._sinks.take_settings(settings)
        self._pulls.take_limits(settings.limits)
        self._log.room.limits = settings.limits
        self._members.take_limits(settings.limits)

    def finish(self) -> None:
        """Answer everybody who waits, and write what is not written."""
        self._await_batch()
        self._store.look()
        self._service.send_answers(self._pulls.end_all())
        for reply in (
            *self._transactions.end_all(),
            *self._log.end_all(),
            *self._sinks.end_all(),
            *self._calls.notice.end_all(),
            *self._calls.slices.end_all(),
            *self._members.end_all(),
        ):
            self._service.send_reply(reply)
        for reply in (*self._retries.take_replies(), *self._dead_letters.take_replies()):
            self._service.send_reply(reply)

        self._service.flush()

    def _await_batch(self) -> None:
        """Have in the files what is under way to the log: RocketMQ, which may begin with them, does
        not know the log, and would deliver again what was moved.
        """
        clock = self._around.clock
        until_ns = clock.monotonic_ns() + LAST_BATCH_NS
        while self._log.awaits and clock.monotonic_ns() < until_ns:
            time.sleep(LAST_BATCH_POLL_S)
            self._store.look()
            self._log.apply()
        while self._log.is_behind:
            self._log.apply()

    def close(self) -> None:
        """Close the socket, write the offsets."""
        self._service.close()
        self._counts.release()
        self._writer.close()
        self._raft.close()
        self._tables.close()

    def _generations(self) -> Generations:
        page = self._around.page
        return Generations(
            page.read_process(Role.BROKER).generation, page.read_process(Role.WRITER).generation
        )

    def _take_standing(self, standing: Standing, now_ms: int) -> None:
        """Take note of who leads: clients are told; a new leader's tables become those of all."""
        if standing.leads and not self._log.leads:
            adopted = self._calls.topics.adopt()
            if adopted:
                logger.info("topics taken up from the log: names=%s", ",".join(adopted))
        if self._log.lead(standing):
            self._members.lead(standing.leads, now_ms)
        self._service.tell_standing(standing)

    def _take(self, message: bytes) -> None:
        try:
            order = parse(message)
        except ProtocolError as error:
            logger.warning("order refused: %s", error)
            return
        match order:
            case StateRefused(sequence=sequence):
                self._log.take_refusal(sequence)
            case SnapshotWanted(before):
                self._timers.make_way(before)
                self._log.want_snapshot(before)
            case TopicsLoaded(version):
                for reply in self._calls.notice.confirmed(version):
                    self._service.send_reply(reply)
            case _:
                pass

    def _order_topics(self, now_ms: int) -> None:
        """Have the writer read the topic table, until it says that it has."""
        notice, revision = self._calls.notice, self._tables.topics_revision
        generation = self._around.page.read_process(Role.WRITER).generation
        if generation != self._writer_generation:
            self._writer_generation = generation
            notice.forget()
        if notice.is_confirmed:
            return
        if revision == self._ordered_revision and now_ms < self._order_due_ms:
            return
        order = self._tables.order_for_writer(notice.known)
        if order is not None:
            self._writer.send(order)
        self._ordered_revision = revision
        self._order_due_ms = now_ms + ORDER_REPEAT_MS


Services = tuple[PullService, CallService, QueryService]
AroundClients = Callable[[Consumers, Surroundings, BrokerTables, Services], Consumers]
"""Puts other clients beside our own."""


def _alone(
    own: Consumers, _around: Surroundings, _tables: BrokerTables, _services: Services
) -> Consumers:
    return own


def run(settings: Settings, stop: StopFlag, *, around_clients: AroundClients = _alone) -> int:
    """Run the broker until it is told to stop; the exit status.

    Raises:
        ConfigError, CorruptLogError: a table cannot be read.
        StorageError: the disk refused.
    """
    around = Surroundings.enter(Role.BROKER, settings)
    tables = BrokerTables(StorePaths.of(settings).topics.parent, settings)

    services: list[Consumers] = []

    def consumers(pulls: PullService, calls: CallService, queries: QueryService) -> Consumers:
        made = ConsumeService(
            around, pulls, calls, queries, users=tables.users, quotas=tables.quotas
        )
        services.append(around_clients(made, around, tables, (pulls, calls, queries)))
        return services[0]

    faults = RequestFaults(around.page.counters(Role.BROKER))
    worker = BrokerWorker(
        around, tables, consumers, contain=lambda error: faults.refusal(error, "pull or service")
    )

    def read_again() -> None:
        fresh = reload.take_published(settings)
        worker.take_settings(fresh)
        for service in services:
            service.take_settings(fresh)

    stop.on_reload = read_again
    logger.info(
        "broker serves: topics=%d topics_version=%d", len(tables.topics), tables.topics.version
    )
    try:
        run_loop(worker, page=around.page, role=Role.BROKER, stop=stop)
        worker.finish()
    finally:
        worker.close()
        around.leave()
    return 0
