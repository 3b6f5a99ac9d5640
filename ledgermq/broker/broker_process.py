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
from collections.abc import Callable, Mapping, Sequence

from ledgermq.broker.broker_services import BrokerServices
from ledgermq.broker.cluster.home_questions import HomeLine, HomeQuestions
from ledgermq.broker.pulls.cold_reads import ColdReads
from ledgermq.broker.pulls.consume_service import ConsumeService
from ledgermq.broker.pulls.consumers import ClientServices, Consumers, MakeConsumers
from ledgermq.broker.reading.readable_store import ReadableStore
from ledgermq.broker.reading.store_upkeep import DamageReports, DispatcherRest, StoreUpkeep
from ledgermq.broker.service import Mailbox
from ledgermq.broker.state.broker_tables import BrokerTables, PositionCheck
from ledgermq.broker.state.state_log import StateLog
from ledgermq.broker.state.state_requests import Generations
from ledgermq.ipc.counters import BrokerCounter
from ledgermq.ipc.cursor_page import Role
from ledgermq.ipc.loop import LOOK_AGAIN_MS, SLEEP_MAX_MS, Pollable, StopFlag
from ledgermq.ipc.orders import CheckpointMade, SnapshotWanted, StateRefused, TopicsLoaded, parse
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import CorruptLogError, NotLeaderError, ProtocolError
from ledgermq.process.clock import epoch_ms
from ledgermq.process.environment import Environment
from ledgermq.process.node import Surroundings
from ledgermq.process.worker_main import run_worker
from ledgermq.sessions.leadership.standing import ReaderStanding
from ledgermq.sessions.request_faults import Contain, RequestFaults, let_through
from ledgermq.store.files.store_paths import StorePaths
from ledgermq.wire.session import Standing

logger = logging.getLogger(__name__)

ORDER_REPEAT_MS = 100
"""TOPICS_CHANGED is repeated after this long without an answer."""

QUIET_MS = 1_000
"""Longest time between two whole turns while nothing has changed: the turns between them only look
whether something has, which costs a fraction. When nobody has asked for so long, and nothing was
dispatched, it does not look any more, but has itself be woken by a bell."""

LAST_BATCH_NS = 1_000_000_000
LAST_BATCH_POLL_S = 0.002
"""A broker that stops waits so long for its last commands, and looks so often."""

LOOK_EVERY_NS = 20_000_000
"""Connections that hold too much are looked for so often."""

WHOLE_TURN_MS = 50
"""While messages come and go all the time, the services have their turn this often; where clients
ask and nothing is dispatched, when they are due."""


class BrokerWorker:
    """What one turn of the broker does."""

    def __init__(
        self,
        environment: Environment,
        tables: BrokerTables,
        make_consumers: MakeConsumers,
        *,
        contain: Contain = let_through,
        line: HomeLine | None = None,
        cold: ColdReads | None = None,
    ) -> None:
        """Make the services; nothing is served yet.

        Args:
            contain: told of a bug that a service has met (``PullService``).
            line: leads to the cluster's home, and is closed with the worker; None: there is none.
            cold: asked for what the log has no more; None: nobody has it.
        """
        settings = environment.settings
        self._line = line
        self._cold = cold
        self._environment = environment
        self._tables = tables
        tables.sign_of_life = self._give_beat
        self._writer, self._raft = environment.bell(Role.WRITER), environment.bell(Role.RAFT)
        self._rest = DispatcherRest(environment.page, environment.bell(Role.DISPATCHER))
        has_receipts = settings.receipts.key_file is not None
        self._receipts = environment.bell(Role.RECEIPTS) if has_receipts else None
        self._counts = counts = environment.page.counters(Role.BROKER)
        damage = DamageReports(self._raft, environment.clock)
        self._store = store = ReadableStore(
            environment.page,
            settings,
            damage,
            first_offset=tables.first_offset,
            elsewhere=cold,
        )
        counts[BrokerCounter.TABLES_AT] = 0
        mailbox = Mailbox()
        self._log = log = self._state_log(mailbox, contain)
        self._positions = PositionCheck(store, tables, clock=environment.clock)
        self._made = made = BrokerServices(
            *(environment, tables, store, log, mailbox),
            counts=counts,
            contain=contain,
            line=line,
            cold=cold,
            receipts=self._receipts,
        )
        self.services = made.listed
        self._service = make_consumers(ClientServices(made.pulls, made.calls, made.queries))
        made.pulls.send = self._service.send_answers
        self._standing = ReaderStanding(environment.page, settings.store.log)
        self._untold: Standing | None = None
        self._services_term, self._ordered = 0, (-1, 0)
        made.notice.look_at_writer(self._generations().writer)
        self._upkeep = StoreUpkeep(self._store)
        self._order_due_ms = self._rests_until_ms = self._whole_ms = self._look_due_ns = 0
        self._quiet_from_ms = 0
        # Of the services, by the last whole turn: between two of them nothing changes it.
        self._is_awaited, self._has_more = False, True
        # When the sleep began: whatever has come since has waked the process by a bell.
        self._is_due = True

    @property
    def state_log(self) -> StateLog:
        """The log of commands, through which the node's tables change."""
        return self._log

    @property
    def zmq_uses(self) -> Sequence[int] | None:
        """Answers leave by the consumers' socket in any turn, and questions for what is cold."""
        return self._service.zmq_uses if self._cold is None else None

    def sources(self) -> list[Pollable]:
        """The inbox, the consumers' socket, and who lets them in; answers of other groups."""
        line = [] if self._line is None else [self._line.descriptor]
        cold = [] if self._cold is None else [self._cold.line.source]
        return [*self._environment.inbox.sources, *self._service.sources, *line, *cold]

    def sleep_ms(self, now_ns: int) -> int:
        """Milliseconds until the first deadline; 0 while queues with holds wait to be looked at."""
        now_ms = now_ns // 1_000_000
        is_quiet = now_ms >= self._quiet_from_ms
        self._is_due = self._is_behind or (is_quiet and self._store.has_moved())
        if self._is_due:
            return 0
        if now_ms >= self._rests_until_ms:
            self._rests_until_ms = self._next_turn_ms(now_ns)
        wait_ms = self._rests_until_ms - now_ms
        if wait_ms > 0 and self._waits:
            self._rest.end(now_ns)
        # What a client sends that has no end wakes nobody.
        has_rest = is_quiet and not self._service.is_watched
        most_ms = SLEEP_MAX_MS if has_rest else LOOK_AGAIN_MS
        return most_ms if wait_ms > most_ms else max(0, wait_ms)

    @property
    def _waits(self) -> bool:
        """Whether somebody waits for messages, for a change, or for this node to lead."""
        return self._is_awaited or self._made.pulls.is_holding or self._standing.awaits_dispatch

    @property
    def _is_behind(self) -> bool:
        """Whether a whole turn is due at once."""
        if self._has_more or self._standing.has_news or self._made.pulls.is_behind:
            return True
        # Since the last turn looked; the bell for it may have been rung before it was listened for.
        return self._is_awaited and self._store.has_moved()

    def _next_turn_ms(self, now_ns: int) -> int:
        """When there is something to do even if nothing comes."""
        now_ms = now_ns // 1_000_000
        deadlines = [self.services.next_deadline_ms(), self._service.next_deadline_ms()]
        if not self._made.notice.is_confirmed:
            deadlines.append(self._order_due_ms)
        # One millisecond more: the clock's rest below a millisecond is not to be polled away.
        waits = [max(0, deadline - now_ms) + 1 for deadline in deadlines if deadline is not None]
        write_ms = self._tables.sleep_ms(now_ns)
        return now_ms + min([*waits, QUIET_MS if write_ms is None else write_ms, QUIET_MS])

    def hears_bells(self, now_ns: int) -> bool:
        """True while somebody waits for messages, for a change, or for this node to lead; and where
        nothing has happened for a while: then it need not look so often by itself.

        Raft rouses it when another node leads.
        """
        return self._waits or now_ns // 1_000_000 >= self._quiet_from_ms

    @property
    def _has_news(self) -> bool:
        """Whether the page tells something that no bell and no deadline does."""
        return (
            self._store.has_moved()
            or not self._store.is_ready
            or self._standing.has_news
            or self._log.is_held_up
            or self._generations().writer != self._made.notice.writer_start
        )

    def turn(self, ready: Mapping[Pollable, int], now_ns: int) -> None:
        """Orders, requests, growth of queues, deadlines; then what has to be written."""
        now_ms = now_ns // 1_000_000
        if now_ns >= self._look_due_ns:
            self._look_due_ns = now_ns + LOOK_EVERY_NS
            self._service.look(now_ns)
        if not ready and now_ms < self._rests_until_ms and not self._has_news:
            return
        if self._has_taken_messages(ready, now_ms):
            return
        self._rests_until_ms = 0
        self._whole_ms = now_ms
        for message in self._environment.inbox.drain(ready):
            self._take(message)
        # First: what it goes by is applied below.
        standing = self._standing.look() or self._untold
        if self._store.look():
            self._quiet_from_ms = now_ms + QUIET_MS
            self.services.notice_growth(now_ms)
        self._log.apply()
        # Who begins to lead goes by tables that have everything which was in the log before.
        is_early = standing is not None and self._is_early(standing)
        self._untold = standing if is_early else None
        self._log.is_beginning = self._standing.awaits_dispatch or self._untold is not None
        if standing is not None and self._untold is None:
            self._take_standing(standing, now_ms)
        self._service.let_in(ready)
        self._made.slices.others_ask = self._service.take_requests(ready, now_ms)
        if self._made.slices.others_ask:
            self._upkeep.note_use(now_ms)
        self.services.turn(now_ms, self._service.send_reply)
        self._service.flush()
        self._tell_stage()
        self._order_topics(now_ms)
        self._tables.tick(now_ns)
        self._look_after_files(now_ms)
        self._is_awaited = self.services.awaits
        self._has_more = self.services.is_behind or self._untold is not None
        if self._made.slices.others_ask or not self._is_told_all:
            self._quiet_from_ms = now_ms + QUIET_MS

    def _is_early(self, standing: Standing) -> bool:
        """Whether this node begins to lead, and its tables are not yet those to begin with."""
        if not standing.leads or standing.term == self._log.term:
            return False
        return self._log.is_behind or not self._positions.is_done(standing.term)

    @property
    def _is_told_all(self) -> bool:
        """Whether bells tell of all that it waits for."""
        is_going_on = not (self._tables.is_starting or self._log.is_held_up)
        return self._store.is_ready and is_going_on

    def _has_taken_messages(self, ready: Mapping[Pollable, int], now_ms: int) -> bool:
        """Whether this turn's work was to hand messages to the writer, or out, and answers back.

        Who sends or pulls waits for that. All that the services do costs more, and can wait a
        little while nobody waits for it.
        """
        if (
            (now_ms - self._whole_ms >= WHOLE_TURN_MS and self._has_news)
            or now_ms >= self._rests_until_ms
            or self._is_due
            or not self._service.take_messages(ready, now_ms)
        ):
            return False
        self._upkeep.note_use(now_ms)
        self._quiet_from_ms = now_ms + QUIET_MS
        for deadline in (self._service.message_deadline_ms(), self._made.pulls.next_deadline_ms()):
            if deadline is not None and deadline < self._rests_until_ms:
                self._rests_until_ms = max(deadline, now_ms) + 1
        return True

    def _state_log(self, mailbox: Mailbox, contain: Contain) -> StateLog:
        return StateLog(
            self._environment.settings,
            self._store,
            self._tables,
            self._writer,
            self._generations,
            mailbox=mailbox,
            clock=self._environment.clock,
            counts=self._counts,
            sign_of_life=self._give_sign,
            contain=contain,
        )

    def _count_waiting(self) -> None:
        counts = self._counts
        counts[BrokerCounter.TIMERS_WAITING] = self._made.timers.index.count
        counts[BrokerCounter.HALF_MESSAGES_WAITING] = self._made.transactions.waiting
        self._made.members.tell_counts(counts)
        archives = self._tables.archives
        counts[BrokerCounter.ARCHIVES] = len(archives)
        counts[BrokerCounter.ARCHIVED_POSITION] = archives.last()
        try:
            counts[BrokerCounter.DELAYED_WAITING] = self._made.delays.waiting
        except (NotLeaderError, CorruptLogError):
            # The count stays as it was; whoever delivers them says what is wrong.
            return

    def _give_beat(self) -> None:
        """This turn takes long, and goes on."""
        self._environment.page.give_sign(Role.BROKER, self._environment.clock.monotonic_ns())

    def _give_sign(self) -> None:
        """Much is applied at once, as at the first start on an old store."""
        self._counts[BrokerCounter.TABLES_AT] = self._log.next_offset + 1
        self._environment.page.give_sign(Role.BROKER, self._environment.clock.monotonic_ns())

    def _tell_stage(self) -> None:
        log = self._log
        # A damaged place may stand where the tables begin.
        is_held_up = log.is_held_up
        self._counts[BrokerCounter.TABLES_HELD_UP] = is_held_up
        self._counts[BrokerCounter.FEATURE_LEVEL] = self._tables.features.level
        self._counts[BrokerCounter.LEVEL_NEEDED] = log.level_needed
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
        """The settings were read again, and keys that were put beside them."""
        self._tables.secrets.read_again()
        self.services.take_settings(settings)
        self._service.take_settings(settings)

    def finish(self) -> None:
        """Answer everybody who waits, and write what is not written."""
        self._await_batch()
        self._store.look()
        self.services.end_all(self._service.send_reply)
        self._service.flush()

    def _await_batch(self) -> None:
        """Have in the files what is under way to the log: RocketMQ, which may begin with them, does
        not know the log, and would deliver again what was moved.
        """
        clock = self._environment.clock
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
        if self._line is not None:
            self._line.close()
        if self._cold is not None:
            self._cold.line.close()
        self._counts.release()
        self._writer.close()
        self._raft.close()
        self._rest.close()
        if self._receipts is not None:
            self._receipts.close()
        self._tables.close()

    def _generations(self) -> Generations:
        page = self._environment.page
        return Generations(
            page.read_process(Role.BROKER).generation, page.read_process(Role.WRITER).generation
        )

    def _take_standing(self, standing: Standing, now_ms: int) -> None:
        """Take note of who leads: clients are told; a new leader's tables become those of all."""
        if standing.leads and not self._log.leads:
            adopted = self._made.calls.topics.adopt(epoch_ms(self._environment.clock))
            if adopted:
                logger.info("topics taken up from the log: names=%s", ",".join(adopted))
        if self._log.lead(standing):
            self._made.members.lead(standing.leads, now_ms)
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
                self._made.timers.make_way(before)
                if self._made.receipts is not None:
                    self._made.receipts.make_way(before)
                self._log.want_snapshot(before)
            case CheckpointMade() if self._made.receipts is not None:
                self._made.receipts.take(order, self._whole_ms)
            case TopicsLoaded():
                self._made.notice.confirmed(order)
            case _:
                pass

    def _order_topics(self, now_ms: int) -> None:
        """Have the writer read the topic table, until it says that it has."""
        notice = self._made.notice
        notice.look_at_writer(self._generations().writer)
        if notice.is_confirmed:
            return
        newest = self._tables.topics_revision, notice.complete_term
        if newest == self._ordered and now_ms < self._order_due_ms:
            return
        order = notice.order()
        if order is not None:
            self._writer.send(order)
        self._ordered = newest
        self._order_due_ms = now_ms + ORDER_REPEAT_MS


AroundClients = Callable[[Consumers, Surroundings, BrokerTables, ClientServices], Consumers]
"""Puts other clients beside our own."""


def _alone(
    own: Consumers, _environment: Surroundings, _tables: BrokerTables, _services: ClientServices
) -> Consumers:
    return own


def run(settings: Settings, stop: StopFlag, *, around_clients: AroundClients = _alone) -> int:
    """Run the broker until it is told to stop; the exit status.

    Raises:
        ConfigError, CorruptLogError: a table cannot be read.
        StorageError: the disk refused.
    """

    def make(environment: Surroundings) -> BrokerWorker:
        tables = BrokerTables(StorePaths.of(settings).topics.parent, settings)

        def consumers(services: ClientServices) -> Consumers:
            own = ConsumeService(environment, services, users=tables.users, quotas=tables.quotas)
            return around_clients(own, environment, tables, services)

        faults = RequestFaults(environment.page.counters(Role.BROKER))
        worker = BrokerWorker(
            environment,
            tables,
            consumers,
            contain=lambda error: faults.refusal(error, "pull or service"),
            line=HomeQuestions(settings),
            cold=ColdReads.of(environment),
        )
        logger.info(
            "broker serves: topics=%d topics_version=%d", len(tables.topics), tables.topics.version
        )
        return worker

    return run_worker(Role.BROKER, settings, stop, make)
