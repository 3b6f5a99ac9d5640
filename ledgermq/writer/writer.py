"""The writer process: takes messages from producers, and is the only one that writes the log.

It alone writes the log's files, DLedger's index files and ``checkpoint``, our ``log-checkpoint``,
says in tables from outside where in the log they stand before the broker takes them up, and removes
the mark of a damage, ``log-damage``; it publishes the cursors ``written``, ``durable`` and
``put_lock``. It stamps only in a term that raft has granted, and answers a producer only when
``committed`` has passed the frame (with ``ack.mode = lossy-leader``: when the log has it). While
raft lets it run it publishes ``committed``, too.
"""

from __future__ import annotations

import errno
import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from ledgermq.formats.dledger_index import ITEM_SIZE as INDEX_ITEM_SIZE
from ledgermq.ipc.append_ring import (
    AppendRing,
    LeaderEntries,
    ProposedRecord,
    RepairedBytes,
    RingRecord,
)
from ledgermq.ipc.cursor_page import LogCursor, Role
from ledgermq.ipc.loop import SLEEP_MAX_MS, Pollable, Wait
from ledgermq.ipc.orders import (
    AwaitFollower,
    FeedFrom,
    Follow,
    Followed,
    FollowerStands,
    FollowRun,
    Granted,
    GrantTerm,
    LeadRun,
    ProposeState,
    Ready,
    Repaired,
    StateRefused,
    TopicsChanged,
    TopicsLoaded,
    encode,
    kind_of,
    parse,
)
from ledgermq.ipc.page_slots import SpaceState
from ledgermq.members.log_trouble import report
from ledgermq.model.config.settings import AckMode, Settings
from ledgermq.model.errors import (
    CorruptLogError,
    DiskFullError,
    MessageIllegalError,
    NotLeaderError,
    ProtocolError,
    StorageError,
)
from ledgermq.model.events import Event
from ledgermq.model.ids import Index, NodeId, Position, Term
from ledgermq.process.environment import Environment
from ledgermq.process.table_files import UnsettledTables
from ledgermq.sessions.leadership.standing import standing_of
from ledgermq.store.files.append_files import overwrite
from ledgermq.store.files.disk_space import with_reserve
from ledgermq.store.log.following_entries import verify_following
from ledgermq.store.log.log_writer import LogEnd
from ledgermq.store.recovery.log_checkpoint import write_checkpoints
from ledgermq.store.recovery.log_damage import LogDamage, damage_path, read_damage, remove_damage
from ledgermq.wire.session import LEADER, Standing
from ledgermq.writer.admission.frame_admission import FrameAdmission
from ledgermq.writer.admission.writable_topics import WritableTopics
from ledgermq.writer.followed_run import FollowedRun, MemberFeed
from ledgermq.writer.led_run import FollowerFeed, LedLimits, LedRun
from ledgermq.writer.log.flusher import FlushPlan, MakeFlusher
from ledgermq.writer.log.log_opening import OpenLog, entry_files, open_queue_offsets
from ledgermq.writer.log.put_lock import PutLockHolder
from ledgermq.writer.log.resume import certain_state_end, dispatched_position, ends_of_queues
from ledgermq.writer.own_commits import DurableBell, OwnCommits
from ledgermq.writer.produce_service import ProduceService
from ledgermq.writer.retention.log_retention import Retention
from ledgermq.writer.retention.space_gate import RareLooks, SpaceGate
from ledgermq.writer.steady_wait import Calm, SteadyParts, SteadyTurns

logger = logging.getLogger(__name__)

REPAIRS_DATA = 0
"""REPAIR's number of the data files; 1 are the index files."""

SMALL_APPEND = 4_096
"""An append of no more bytes may take all of the reserve."""

READY_REPEAT_NS = 200_000_000

_ORDERS, _GUARD, _FEED, _FOLLOWERS = 1, 2, 4, 8


class WriterWorker:
    """Orders from raft and the broker on one side, the producers on the other.

    Attributes:
        followed: what it does by itself as a follower; None where nobody feeds it.
        led: what it does by itself as a leader; None where it feeds nobody.
        steady: does what is of the steady state where it is waited for; None: all is done in turns.
    """

    # Any: others wait for what it does.
    hears_bells: Final = None

    def __init__(
        self,
        environment: Environment,
        log: OpenLog,
        make_flusher: MakeFlusher,
        gate: SpaceGate,
        retention: Retention | None = None,
        *,
        feed: MemberFeed | None = None,
        followers: FollowerFeed | None = None,
    ) -> None:
        """Publish where the log ends.

        Args:
            gate: knows whether the disk has room.
            retention: deletes what is old; None: nothing is deleted.
            feed: what leaders' writers send to this one; None: nothing, all comes from raft.
            followers: connections of the writers that this one feeds while it leads; None: raft
                feeds all members.
        """
        settings = environment.settings
        self._environment = environment
        self._page = environment.page
        self._counters = environment.page.counters(Role.WRITER)
        self._log = log.writer
        self._paths = log.paths
        self._data_file_size = log.recovered.data.file_size
        self._raft = environment.bell(Role.RAFT)
        self._broker = environment.bell(Role.BROKER)
        self._dispatcher = environment.bell(Role.DISPATCHER)
        self._postponed: GrantTerm | Follow | None = None
        self._term: Term | None = None
        self._told_term: Term | None = None
        self._told_version = -1
        *_, self._committed_cell, self._grant_cell = environment.page.cursor_cells()
        self._committed_version, self._committed = -1, Position(0)
        self._known_by_raft = False
        self._ready_sent_ns = 0
        self._follows = False
        self._sequence = 0
        self._tables_term: int | None = None
        self._serving: Term | None = None
        self._start = environment.page.read_process(Role.WRITER).generation
        self._broker_start = 0
        self._ring: AppendRing | None = None
        self._gate = gate
        self._retention = retention
        self._starved: RingRecord | None = None
        self._own = OwnCommits(
            environment.page,
            environment.run_fence(),
            self._dispatcher,
            waits_for_sync=settings.ack.mode is AckMode.MAJORITY_FSYNC,
        )
        self.followed = None if feed is None else self._followed_run(gate, feed)
        self.led = None if followers is None else self._led_run(log, followers)
        self._run = environment.page.run_cell()
        self._put_lock = PutLockHolder(environment.page, settings.limits.put_lock_warn_ms)
        self._topics = WritableTopics(log.paths.topics)
        self._topics_version = 0
        self._damage = read_damage(damage_path(log.paths.root))
        self._unsettled = UnsettledTables.find(log.paths.topics.parent)
        self._publish_written()
        self._flusher = make_flusher(
            log.writer,
            environment.page,
            lambda: DurableBell(environment),
            _flush_plan(settings),
            self._write_checkpoint,
        )
        self._open_log = log
        # It waits with its queues for where the log ends, the broker to tell of topics.
        self._dispatcher.ring()
        self._broker.rouse()
        self._admission = FrameAdmission(settings, log.paths.own, environment.clock.monotonic_ns)
        self._service = ProduceService(
            environment,
            log,
            topics=self._topics,
            put_lock=self._put_lock,
            gate=gate,
            admission=self._admission,
        )

        forget = self._service.forget_before
        self._socket, self._due = self._service.socket, self._service.due.waiting
        self._parts = self._parts_of_sources()
        self._looks = RareLooks(self._socket, gate, retention, log.writer, forget_before=forget)
        self.steady: SteadyTurns | None = None

    @property
    def wait(self) -> Wait | None:
        """That of ``steady``."""
        return None if self.steady is None else self.steady.wait

    def _parts_of_sources(self) -> defaultdict[Pollable, int]:
        """What each source is for; 0: the producers' own."""
        parts: defaultdict[Pollable, int] = defaultdict(int)
        parts |= dict.fromkeys(self._socket.guards, _GUARD)
        parts |= dict.fromkeys(self._environment.inbox.sources, _ORDERS)
        parts |= dict.fromkeys(self._fed_by, _FEED)
        parts |= dict.fromkeys(self._feeds, _FOLLOWERS)
        return parts

    def _followed_run(self, gate: SpaceGate, feed: MemberFeed) -> FollowedRun:
        settings = self._environment.settings
        return FollowedRun(
            NodeId(settings.node.self_id),
            self._page,
            self._environment.run_fence(),
            raft=self._raft,
            dispatcher=self._dispatcher,
            feed=feed,
            append=self._append_fed,
            is_full=lambda: gate.state is not SpaceState.ROOMY,
            monotonic_ns=self._environment.clock.monotonic_ns,
            waits_for_sync=settings.ack.mode is AckMode.MAJORITY_FSYNC,
        )

    def _led_run(self, log: OpenLog, followers: FollowerFeed) -> LedRun:
        settings, files = self._environment.settings, entry_files(log)
        assert files is not None, "a plain log has no followers"
        return LedRun(
            NodeId(settings.node.self_id),
            self._page,
            self._environment.run_fence(),
            raft=self._raft,
            dispatcher=self._dispatcher,
            feed=followers,
            files=files,
            fresh=log.writer.fresh,
            limits=LedLimits.of(settings),
            monotonic_ns=self._environment.clock.monotonic_ns,
            waits_for_sync=settings.ack.mode is AckMode.MAJORITY_FSYNC,
        )

    @property
    def zmq_uses(self) -> Sequence[int]:
        """Answers leave by the producers' socket in any turn; the inbox is read when it tells."""
        return self._socket.zmq_uses

    def sources(self) -> list[Pollable]:
        """The inbox, the producers' socket, who lets them in, and other members' connections."""
        clients = self._service.socket
        inbox = self._environment.inbox.sources
        return [*inbox, *clients.sources, *clients.guards, *self._fed_by, *self._feeds]

    @property
    def _fed_by(self) -> list[Pollable]:
        return [] if self.followed is None else self.followed.sources

    @property
    def _feeds(self) -> list[Pollable]:
        return [] if self.led is None else self.led.sources

    def sleep_ms(self, now_ns: int) -> int:
        """Nothing to do while no acknowledgement is due, raft has put nothing into the ring, and
        clients know what this node is.

        Raft rings only a sleeper: what it does after the turn and before the sleep is seen here.
        """
        due = self._due
        if due and self._committed_cell[0] != self._committed_version:
            self._look_at_committed()
            if due[0].position <= self._committed:
                return 0
        is_told = self._grant_cell[0] == self._told_version
        run = self._run[0]
        if (run and self._has_run_news(run)) or self._socket.waiting or not is_told:
            return 0
        ring = self._ring
        if self._starved is None and ring is not None and ring.head[0] != ring.taken:
            return 0
        if self._unsettled is not None:
            # The dispatcher rings when it has looked at the queues.
            return 0 if self._page.has_queues() else SLEEP_MAX_MS
        return self._rest_ms(now_ns)

    def _rest_ms(self, now_ns: int) -> int:
        """Milliseconds until something is due by time alone."""
        if not self._known_by_raft:
            return max(0, (self._ready_sent_ns + READY_REPEAT_NS - now_ns) // 1_000_000)
        wait_ms = self._looks.sleep_ms(now_ns)
        led, run = self.led, self._run[0]
        if led is not None and run == led.cell:
            until_round = led.sleep_ms(now_ns)
            return until_round if until_round < wait_ms else wait_ms
        return wait_ms

    def _has_run_news(self, run: int) -> bool:
        """Whether there is more to do by itself, as far as raft lets it by ``run``."""
        if run < 0:
            return self.followed is not None and self.followed.has_news
        # The order to begin a leader's run may come later than what the cell says.
        if self.led is not None and run == self.led.cell:
            return self.led.has_news
        return self._own.has_news(self._term)

    def calm(self) -> Calm | None:
        """What is known of the grant, and raft's ring; None while something waits for a turn."""
        if (
            self._starved is not None
            or self._unsettled is not None
            or self._postponed is not None
            or self._damage is not None
            or not self._known_by_raft
            or self._gate.state is not SpaceState.ROOMY
            or self._serving != self._told_term
            or self._socket.waiting
        ):
            return None
        return Calm(self._told_version, self._ring, self._serving)

    @property
    def parts(self) -> SteadyParts:
        """What ``steady`` works with."""
        return SteadyParts(self._log, self._service, self._flusher, self._data_file_size)

    def turn(self, ready: Mapping[Pollable, int], now_ns: int) -> None:
        """Orders, raft's entries, frames (staged, written and published once), then answers."""
        is_due = now_ns >= self._looks.due_ns or self._gate.state is not SpaceState.ROOMY
        has_room = is_due and self._look_around(now_ns)
        heard = 0
        for source in ready:
            heard |= self._parts[source]
        if heard & _ORDERS:
            self._take_orders(ready)
        if self._unsettled is not None or self._postponed is not None:
            self._do_what_waited()
        if self._grant_cell[0] != self._told_version or self._serving != self._told_term:
            self._tell_standing()
        ring = self._ring
        if ring is not None and (
            has_room or (self._starved is None and ring.head[0] != ring.taken)
        ):
            self._take_entries(ring)
        if heard & (_GUARD | _FEED) or self._run[0] < 0:
            self._hear_others(heard)
        if self._socket.hears(ready) and self._service.take_frames(self._serving):
            self._published()
        if self._run[0] > 0 or heard & _FOLLOWERS:
            self._lead_by_itself(is_heard=bool(heard & _FOLLOWERS))
        due = self._due
        if due:
            if self._committed_cell[0] != self._committed_version:
                self._look_at_committed()
            if due[0].position <= self._committed:
                self._service.due.acknowledge(self._committed)
        if self._damage is not None or not self._known_by_raft:
            self._look_at_beginnings(now_ns)

    def _look_around(self, now_ns: int) -> bool:
        """Look at what changes seldom; whether the disk has room again."""
        if self.led is not None:
            self.led.look()
        return self._looks.turn(now_ns)

    def _lead_by_itself(self, *, is_heard: bool) -> None:
        """Commit what this node alone has to hold; or feed the other members, and count."""
        led = self.led
        if led is not None and (is_heard or self._run[0] == led.cell):
            led.turn(is_heard=is_heard)
        elif self._own.has_news(self._term):
            self._own.commit(self._term)

    def _hear_others(self, heard: int) -> None:
        """Who wants to be let in, and what a leader sends right to this writer."""
        if heard & _GUARD:
            self._socket.let_in()
            self._looks.hasten()
        if self.followed is not None and (heard & _FEED or self._run[0] < 0):
            self.followed.turn(is_heard=bool(heard & _FEED))

    def finish(self) -> None:
        """Nothing: ``close`` answers whoever waits."""

    def close(self) -> None:
        """Refuse what cannot be answered any more, make the log durable, close."""
        self._service.close()
        if self._retention is not None:
            self._retention.close()
        # It syncs through the log's files: they are closed behind it.
        self._flusher.stop()
        self._log.close()
        self._own.close()
        if self.followed is not None:
            self.followed.close()
        if self.led is not None:
            self.led.close()
        if self.steady is not None:
            self.steady.close()
        self._change_ring(attach=False)

    def take_settings(self, settings: Settings) -> None:
        """The settings were read again: those of space, retention, access and quotas count now."""
        self._service.take_settings(settings)
        self._gate.take_settings(settings.retention)
        if self._retention is not None:
            self._retention.take_settings(settings.retention)
        self._looks.hasten()

    def _take_orders(self, ready: Mapping[Pollable, int]) -> None:
        for message in self._environment.inbox.drain(ready):
            self._take(message)

    def _do_what_waited(self) -> None:
        """What had to wait until the dispatcher has looked at the queues."""
        if self._unsettled is not None and self._page.has_queues():
            self._settle_tables(self._unsettled)
        if self._postponed is not None and self._can_obey(self._postponed):
            order, self._postponed = self._postponed, None
            self._carry_out(order)

    def _look_at_beginnings(self, now_ns: int) -> None:
        """Look at damage that is to be repaired; and tell raft where the log ends: it answers."""
        if self._damage is not None:
            self._look_at_damage(self._damage)
        is_late = now_ns - self._ready_sent_ns >= READY_REPEAT_NS
        if not self._known_by_raft and self._unsettled is None and is_late:
            self._ready_sent_ns = now_ns
            end = self._log.end
            self._raft.send(encode(Ready(end.index_, end.position, end.term)))

    def _look_at_committed(self) -> None:
        # The version first: what comes between the two is looked at once more.
        self._committed_version = self._committed_cell[0]
        self._committed = self._page.read_committed_position()

    def _tell_standing(self) -> None:
        """Tell the clients what raft has made of this node, before their next frames are taken."""
        self._told_version, self._told_term = self._grant_cell[0], self._serving
        if self._serving is None:
            standing = standing_of(self._page.read_grant(), serves=False)
        else:
            # The page may say so later than raft's order.
            standing = Standing(LEADER, self._serving, self._environment.settings.node.self_id)
        self._service.tell_standing(standing)

    def _published(self) -> None:
        """Publish that the log has grown: the cursor first, then the bells."""
        self._publish_written()
        if not self._run[0]:
            self._raft.ring()
        self._flusher.wake(self._log.end)
        self._looks.note_grown()

    def _publish_written(self) -> None:
        end = self._log.end
        messages = self._counters[0]
        self._page.publish_written(LogCursor(end.position, end.index_, end.term), messages)

    def _take(self, message: bytes) -> None:
        try:
            order = parse(message)
        except ProtocolError as error:
            logger.warning("order refused: %s", error)
            return
        match order:
            case TopicsChanged():
                self._take_topics(order)
            case GrantTerm() | Follow():
                self._known_by_raft = True
                self._postponed = None if self._can_obey(order) else order
                if self._postponed is None:
                    self._carry_out(order)
            case ProposeState():
                self._take_proposal(order)
            case FeedFrom() | FollowRun() | AwaitFollower() | LeadRun():
                self._take_feed_order(order)
            case _:
                kind = kind_of(order).name
                logger.warning("order refused: not one for a writer: kind=%s", kind)

    def _take_feed_order(self, order: FeedFrom | FollowRun | AwaitFollower | LeadRun) -> None:
        followed, led = self.followed, self.led
        if followed is None or led is None:
            return
        match order:
            case FeedFrom():
                followed.dial(order)
            case FollowRun() if self._follows:
                followed.begin(order, self._log.end)
            case AwaitFollower():
                port = led.await_follower(order)
                self._raft.send(encode(FollowerStands(order.peer, port)))
            case LeadRun():
                led.begin(order, self._log.end, self._term)
            case _:
                pass

    def _note_serving(self) -> None:
        """Frames are taken in a term in which the broker has told all that was acknowledged before:
        a topic that was deleted or closed, its window, a user. What is in files may be older.
        """
        self._serving = self._term if self._term == self._tables_term else None

    def _take_topics(self, order: TopicsChanged) -> None:
        """Know the topics of a version, told or from their file; say which one is known.

        Users and quotas are always in files: a change of them is told without topics.
        """
        if order.writer_start != self._start or order.version < self._topics_version:
            # Meant for an earlier writer, or by an earlier broker: what came since is not in it.
            return
        if self._serving is not None and order.term != self._serving:
            # A broker that was just started has not read yet what was acknowledged before.
            return
        if order.topics is None:
            self._topics.read_as_told()
            self._admission.reload()
        elif order.since <= self._topics_version:
            self._topics.take(order.topics)
        else:
            # A writer that was started since knows the file alone, which may be older.
            self._broker.send(encode(TopicsLoaded(0, order.term, self._start)))
            return
        self._topics_version, self._tables_term = order.version, order.term
        self._note_serving()
        self._broker.send(encode(TopicsLoaded(order.version, order.term, self._start)))

    def _can_obey(self, order: GrantTerm | Follow) -> bool:
        """Whether an order of raft need not wait.

        Nothing new comes into the log before tables from outside have their place in it. How to
        number messages is known once the dispatcher has looked at the queues.
        """
        if self._unsettled is not None:
            return False
        return isinstance(order, Follow) or self._page.has_queues()

    def _settle_tables(self, unsettled: UnsettledTables) -> None:
        given = self._open_log, self._environment.settings, self._page
        end = certain_state_end(*given, sign_of_life=self._give_sign)
        unsettled.settle(end, ends_of_queues(*given, sign_of_life=self._give_sign))
        self._unsettled = None

    def _carry_out(self, order: GrantTerm | Follow) -> None:
        """Obey, and answer; an order that came before is answered again, and not obeyed again."""
        if order.sequence > self._sequence:
            self._sequence = order.sequence
            self._obey(order)
            self._note_serving()
        answer = Granted if isinstance(order, GrantTerm) else Followed
        end = self._log.end
        self._raft.send(
            encode(answer(order.term, end.index_, end.position, end.term, order.sequence))
        )

    def _take_proposal(self, order: ProposeState) -> None:
        """Records of the broker's own, which come back to it through the log, or a refusal."""
        try:
            if self._term is None or order.term != self._term:
                raise NotLeaderError("node does not stamp in that term", term=order.term)
            if order.writer_start != self._start or order.broker_start < self._broker_start:
                raise NotLeaderError(
                    "order of an earlier process", meant_for=order.writer_start, own=self._start
                )
            self._broker_start = order.broker_start
            self._service.append_own(
                order.records, self._term, has_reserve=False, written=self._published
            )
        except (NotLeaderError, DiskFullError, MessageIllegalError) as error:
            logger.warning("records of the broker's own refused: %s", error)
            refusal = StateRefused(
                order.term, order.broker_start, order.writer_start, order.sequence
            )
            self._broker.send(encode(refusal))

    def _obey(self, order: GrantTerm | Follow) -> None:
        """Raft decides who stamps: this writer in its term, or the leader whose entries come."""
        if isinstance(order, GrantTerm) and self._ring is not None:
            # Raft counts what the ring has as part of the log.
            self._take_entries(self._ring)
        self._term = None
        self._follows = False
        if self.followed is not None:
            self.followed.drop()
        if self.led is not None:
            self.led.drop()
        self._change_ring(attach=True)
        if isinstance(order, GrantTerm):
            end = self._log.end
            found, granted = (end.index_, end.term), (order.last_index, order.last_term)
            if found != granted:
                logger.warning(
                    "grant not used: the log ends with index=%d term=%d and not index=%d term=%d",
                    *(*found, *granted),
                )
                return
            try:
                offsets = open_queue_offsets(
                    self._open_log,
                    self._environment.settings,
                    begin=dispatched_position(self._page, end=end.position),
                    end=end.position,
                    sign_of_life=self._give_sign,
                )
            except CorruptLogError as error:
                last = (end.position, end.index_, end.term)
                raise report(self._environment.settings, error, last=last) from error
            self._service.begin_term(offsets)
            self._term = order.term
        else:
            self._service.end_term()
            if order.keep < self._log.end.index_:
                self._truncate(order.keep)
            self._service.begin_following()
            self._follows = True

    def _look_at_damage(self, damage: LogDamage) -> None:
        """Remove the mark when the log has durably again what it once had."""
        durable = self._page.read_durable()[0]
        if not damage.is_mended_by(durable.term, durable.index):
            return
        self._damage = None
        remove_damage(damage_path(self._paths.root))
        logger.info(
            "log has again what it had lost: index=%d",
            durable.index,
            extra={"event": Event.LOG_COMPLETE},
        )

    def _give_sign(self) -> None:
        self._page.give_sign(Role.WRITER, self._environment.clock.monotonic_ns())

    def _change_ring(self, *, attach: bool) -> None:
        if self._ring is not None:
            self._ring.close()
        # What an older ring had is raft's to send again.
        self._starved = None
        self._ring = AppendRing.attach(self._environment.paths.append_ring) if attach else None

    def _truncate(self, last: Index) -> None:
        """Cut entries that no majority has; their senders were told that nothing is certain."""
        before = self._log.end
        files = entry_files(self._open_log)
        assert files is not None
        end = files.end_of(last)
        files.forget()

        def cut() -> LogEnd:
            # A power failure may leave the cut of one file and not that of another. Recovery must
            # begin before it, and not trust a checkpoint that lies behind.
            self._log.sync()
            self._write_checkpoint(end)
            self._log.truncate(end)
            return end

        self._flusher.truncate(cut)
        self._publish_written()
        logger.info(
            "log cut: index=%d term=%d instead of index=%d term=%d",
            *(end.index_, end.term, before.index_, before.term),
            extra={"event": Event.LOG_CUT},
        )

    def _take_entries(self, ring: AppendRing) -> None:
        """What raft has put into the ring, as long as the disk has room for it."""
        has_grown = False
        while (record := self._starved or ring.take()) is not None:
            is_fresh = self._starved is None
            try:
                has_grown |= self._take_entry(record)
                self._starved = None
            except DiskFullError as error:
                self._gate.strike(error)
                # The ring is raft's for what comes next; this waits until the disk has room.
                self._starved = record._replace(data=memoryview(bytes(record.data)))
            # What had to wait was copied out of the ring, and released there at once.
            if is_fresh:
                ring.release(record)
            if self._starved is not None:
                break
        if has_grown:
            self._published()

    def _take_entry(self, record: RingRecord) -> bool:
        """Append one record of the ring; whether the log has grown.

        Raises:
            DiskFullError: there is no space; nothing has changed.
        """
        match record.content:
            case LeaderEntries() as content if self._follows:
                self._append(content, record.data)
                return True
            case ProposedRecord(term) if term == self._term:
                self._service.append_own(
                    [bytes(record.data)], term, has_reserve=True, written=self._published
                )
            case RepairedBytes() as content:
                self._repair(content, record.data)
            case _:
                pass
        return False

    def _append(self, content: LeaderEntries, data: memoryview) -> None:
        """Entries of the leader that this node follows; raft has verified them."""
        end = LogEnd(content.position, content.last_index, content.last_term, content.chain)
        size = content.items_size
        with data[:size] as items, data[size:] as entries:
            self._append_verified(end, items, entries)

    def _append_fed(self, data: memoryview, first: Index, last: Index) -> LogEnd:
        """Entries of the leader that it has sent to this writer; see ``followed_run.Append``."""
        verified = verify_following(data, first, last, end=self._log.end, size=self._data_file_size)
        try:
            self._append_verified(verified.end, memoryview(verified.items), verified.entries)
        except DiskFullError as error:
            self._gate.strike(error)
            raise
        self._published()
        return self._log.end

    def _append_verified(self, end: LogEnd, items: memoryview, entries: memoryview) -> None:
        # A leader takes nothing of producers out of its reserve. Half of what followers have in
        # theirs lets them take what it has, the rest the entry of the next leader, which comes by
        # itself: a full group can elect, and commits what was acknowledged.
        size = len(items) + len(entries)
        keep = (
            0 if size <= SMALL_APPEND else self._environment.settings.retention.reserve_bytes // 2
        )
        with_reserve(lambda: self._log.reserve_entries(end), keep=keep)
        self._log.append_entries(entries, items, end=end)
        self._service.note_entries(len(items) // INDEX_ITEM_SIZE, entries)

    def _repair(self, content: RepairedBytes, data: memoryview) -> None:
        """Write over committed bytes that are damaged; raft has verified what belongs there."""
        position = content.position
        committed = self._page.read_committed()
        if content.family == REPAIRS_DATA:
            folder, size, end = self._paths.data, self._data_file_size, int(committed.position)
        else:
            index = self._open_log.recovered.index
            assert index is not None
            folder, size = index.directory, index.file_size
            end = (committed.index + 1) * INDEX_ITEM_SIZE
        if position < 0 or position + len(data) > end:
            logger.error(
                "repair refused: not of committed bytes: position=%d size=%d end=%d",
                *(position, len(data), end),
            )
            return
        try:
            overwrite(folder, size, position, data)
        except StorageError as error:
            if error.errno not in (errno.ENOSPC, errno.ENOENT):
                raise
            # Raft gets no answer, reads again, and has it written again later.
            logger.error("repair not written: %s", error)
            return
        self._raft.send(encode(Repaired(content.number)))

    def _write_checkpoint(self, end: LogEnd) -> None:
        write_checkpoints(self._paths, end, self._data_file_size, self._page.read_committed().index)


def _flush_plan(settings: Settings) -> FlushPlan:
    return FlushPlan(
        at_once=settings.ack.mode is AckMode.MAJORITY_FSYNC,
        interval_s=settings.store.flush_interval_ms / 1000,
        checkpoint_interval_s=settings.store.checkpoint_interval_ms / 1000,
    )
