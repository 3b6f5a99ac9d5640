"""The raft process: the consensus core at work between its peers and this node's writer.

It alone writes ``ROOT/ledgermq/term``, DLedger's ``currterm``, the cursors ``committed`` and
``grant``, and the append ring; while all is steady it lets the writer run, and
publish ``committed`` itself (docs/decisions/0133). It reads the cursors ``written`` and
``durable``, and the log. It never writes the log: what it wants in it goes through the append ring
to the writer.
"""

from __future__ import annotations

import logging
from collections import defaultdict, deque
from collections.abc import Mapping
from functools import partial
from typing import Final

from ledgermq.ipc.counters import BrokerCounter, RaftCounter
from ledgermq.ipc.cursor_page import Grant, LogCursor, Role
from ledgermq.ipc.cursor_page import PublishedRole as PageRole
from ledgermq.ipc.loop import LOOK_AGAIN_MS, SLEEP_MAX_MS, Pollable, StopFlag
from ledgermq.ipc.orders import (
    Damaged,
    Followed,
    FollowerStands,
    Granted,
    Ready,
    Repaired,
    RunGivenBack,
    parse,
)
from ledgermq.members.log_replacement import is_complete
from ledgermq.members.log_trouble import LogDamagedError, has_others, report
from ledgermq.members.roster import ToldGroup, encode_group
from ledgermq.members.system_entries import no_op_record
from ledgermq.model.config.settings import AckMode, Settings
from ledgermq.model.errors import CorruptLogError, ProtocolError
from ledgermq.model.events import Event
from ledgermq.model.exit_status import EXIT_REOPEN
from ledgermq.model.ids import Index, NodeId, Position, Term
from ledgermq.process.environment import Environment
from ledgermq.process.node import Surroundings
from ledgermq.process.port_roles import port_roles
from ledgermq.process.worker_main import run_worker
from ledgermq.raft.core import RaftCore
from ledgermq.raft.effects import NO_EFFECTS, AppendEntries, Effects, LeaderChange
from ledgermq.raft.message_codec import decode_message, encode_message, is_accepted
from ledgermq.raft.messages import Append, Attest, EntryId, Message, RaftRole
from ledgermq.raft.roles.node_state import WriterState
from ledgermq.raft.timing import NEVER, TICK_NS
from ledgermq.raft_node.alone import Alone
from ledgermq.raft_node.entries.membership_log import Told
from ledgermq.raft_node.followed_runs import FollowedRuns
from ledgermq.raft_node.led_runs import LedRuns
from ledgermq.raft_node.peers.peer_group import PeerGroup
from ledgermq.raft_node.peers.peers import Peers
from ledgermq.raft_node.raft_control import RaftControl
from ledgermq.raft_node.raft_core import MESSAGES_PER_TURN_MAX, new_core
from ledgermq.raft_node.replicated import Replicated
from ledgermq.raft_node.shipping.shipping import LogArrivedError
from ledgermq.raft_node.slow_looks import SlowLooks
from ledgermq.raft_node.term_file import TermFile, when_there_is_space
from ledgermq.raft_node.witness import witness_process
from ledgermq.raft_node.writer_link import KEEP_ALL, WriterLink
from ledgermq.store.files.store_paths import StorePaths
from ledgermq.store.recovery.log_damage import damage_path, read_damage
from ledgermq.wire.run_frames import RunFrame, RunKind, decode_run_frame, is_run_frame

logger = logging.getLogger(__name__)

_INBOX, _PEERS, _CONTROL, _LOG = 1, 2, 4, 8

HELD_LOOK_MS = 5
"""While entries are held back for a run, it is looked so often whether it can begin."""

_UNSEEN = LogCursor(Position(-1), Index(-2), Term(-1))
"""No cursor is like that: the next look at the page finds a change."""

_PAGE_ROLES = {
    RaftRole.FOLLOWER: PageRole.FOLLOWER,
    RaftRole.PRE_CANDIDATE: PageRole.CANDIDATE,
    RaftRole.CANDIDATE: PageRole.CANDIDATE,
    RaftRole.LEADER: PageRole.LEADER,
}


class RaftWorker:
    """Carries events from the page, the writer and the peers into the core, and its effects out."""

    stop = StopFlag()  # The process's, where there is one.
    # Any: others wait for what it does.
    hears_bells: Final = None
    zmq_uses: Final = None

    def __init__(self, environment: Environment, term_file: TermFile, peers: Peers) -> None:
        settings = environment.settings
        self._environment = environment
        self._page = environment.page
        self._counters = environment.page.counters(Role.RAFT)
        self._broker_counters = environment.page.counters(Role.BROKER)
        self._term_file = term_file
        self._peers = peers
        # Nothing rings when a peer refuses this node, or its handshake fails.
        self._look_again_ms = LOOK_AGAIN_MS if peers.sources else SLEEP_MAX_MS
        # An earlier raft process may have let the writer run: what is committed stands still now.
        self._fence = environment.run_fence()
        self._runs = False
        self._take_run_back()
        writer_bell = environment.bell(Role.WRITER)
        self._writer = WriterLink(writer_bell, environment.append_ring, environment.clock)
        self._dispatcher = environment.bell(Role.DISPATCHER)
        self._readers = [environment.bell(role) for role in (Role.BROKER, *port_roles(settings))]
        self._is_fed = settings.raft.direct_writers and settings.store.log.has_terms
        self._waits_for_sync = settings.ack.mode is AckMode.MAJORITY_FSYNC
        self._core = new_core(environment, term_file)
        self._log: Replicated | Alone = (
            Replicated(environment, self._core, peers, self._writer, send=peers.send)
            if settings.store.log.has_terms
            else Alone(environment)
        )
        self._memberships = self._log.memberships
        self._looks = SlowLooks(
            environment, self._core, peers, self._writer, self._log, carry_out=self._carry_out_look
        )
        self._inbox = environment.inbox
        self._control = RaftControl(
            environment.paths.raft_control,
            settings.listen.socket_mode,
            self._core,
            self._carry_out,
            peers,
            memberships=self._memberships,
            level_in_force=self._level_in_force,
            before_change=self._stop_run,
        )
        # Which part of the process each source is for; 0: the loop's own.
        self._parts: defaultdict[Pollable, int] = defaultdict(int)
        self._parts |= dict.fromkeys(environment.inbox.sources, _INBOX)
        self._parts |= dict.fromkeys(peers.sources, _PEERS)
        self._parts |= dict.fromkeys(self._log.sources, _LOG)
        self._parts[self._control.source] = _CONTROL
        self._log_due_ns = self._log_wake_ns = 0
        # The core's, as it was before the sleep: the straight line only makes it later.
        self._core_due = 0
        self._noted = ""
        self._is_cutting = self._was_recovered = False
        self._held = self._written = _UNSEEN
        # Cells of the page: one that has not changed since says that its cursor has not.
        self._written_cell, self._durable_cell, self._committed_cell, _ = self._page.cursor_cells()
        self._committed_seen = -1
        self._written_seen = self._durable_seen = -1
        self._marks: deque[LogCursor] = deque()
        self._entries: memoryview | None = None
        self._announced: tuple[Index, ...] = ()
        self._told_group = (-1, b"")
        self._followed = FollowedRuns(
            environment.page,
            self._fence,
            self._core,
            writer=writer_bell,
            peers=peers,
            waits_for_sync=self._waits_for_sync,
        )
        self._led = LedRuns(
            environment.page,
            self._fence,
            self._core,
            writer=writer_bell,
            peers=peers,
            heartbeat=settings.raft.heartbeat_ms,
            window_bytes=settings.raft.in_flight_bytes,
            position_behind=self._log.cursor_at,
            waits_for_sync=self._waits_for_sync,
        )
        # The page may be older than this process.
        self._alone_until: int | None = -1
        self._publish_alone()
        # Whatever an earlier raft process had granted ends here.
        self._writer.follow(term_file.state.term, KEEP_ALL)
        self._publish_grant()

    @property
    def core(self) -> RaftCore:
        """Its consensus core."""
        return self._core

    def sources(self) -> list[Pollable]:
        """The inbox, the operator and the peers."""
        inbox, peers = self._inbox.sources, self._peers.sources
        return [*inbox, self._control.source, *peers, *self._log.sources]

    def sleep_ms(self, now_ns: int) -> int:
        """Nothing to do while the cursors stand still, every order is answered and none is due."""
        if self._is_left_to_writer:
            repeat = None
        elif self._writer.is_settled:
            if self._written_cell[0] != self._written_seen:
                return 0
            if self._waits_for_sync and self._durable_cell[0] != self._durable_seen:
                return 0
            repeat = None
        else:
            repeat = self._writer.repeat_ms(now_ns)
        self._core_due = self._core.deadline
        wait = min(self._look_again_ms, self._core_due - now_ns // TICK_NS)
        if repeat is not None and repeat < wait:
            wait = repeat
        if self._led.holds and wait > HELD_LOOK_MS:
            wait = HELD_LOOK_MS
        if self._log_wake_ns != NEVER and self._log_wake_ns - now_ns < wait * 1_000_000:
            wait = (self._log_wake_ns - now_ns) // 1_000_000
        return wait if wait > 0 else 0

    def turn(self, ready: Mapping[Pollable, int], now_ns: int) -> None:
        """Answers first, then the peers, then the cursors, then what time brings."""
        now = now_ns // TICK_NS
        heard, parts = 0, self._parts
        for source in ready:
            heard |= parts[source]
        if self._runs and (heard & ~_LOG or self._is_run_news(now_ns)):
            self._stop_run()
        if heard & _INBOX:
            for message in self._inbox.drain(ready):
                self._take_order(message)
        if heard & _PEERS:
            self._hear_peers(now)
            self._hear_ends(now)
        if not self._is_left_to_writer:
            self._look_at_cursors(now_ns)
        if now >= self._core_due and now >= self._core.deadline:
            self._tick(now)
        lead = self._core.line.state.leadership
        if (lead is not None or self._alone_until is not None) and not self._led.is_running:
            self._publish_alone()
        if now_ns >= self._looks.due_ns:
            self._look_around(now_ns)
        if heard & _CONTROL:
            self._learn()
            self._control.serve(now_ns)
        if (
            heard & _LOG
            or self._log.wants_turn
            or now_ns >= self._log_due_ns
            or now_ns >= self._log_wake_ns
        ):
            self._learn()
            self._log.turn(ready, now_ns)
            self._log_due_ns = self._log.due_ns
            wait = self._log.sleep_ms(now_ns)
            self._log_wake_ns = NEVER if wait is None else now_ns + wait * 1_000_000
        if self._is_fed or (lead is not None and not lead.progress):
            self._look_whether_it_runs(now_ns)

    @property
    def _is_left_to_writer(self) -> bool:
        """Whether the writer does by itself what is of the steady state."""
        return self._runs or self._followed.is_running or self._led.is_running

    def _learn(self) -> None:
        """Tell the core what the writer has done by itself, in a run with other members."""
        self._followed.learn()
        self._led.learn()

    def _tick(self, now: int) -> None:
        """Time has come to the core's deadline; in a run the core may not know yet whom the writer
        has heard of since.
        """
        if self._followed.is_running:
            self._followed.learn()
            if now < self._core.deadline:
                return
            self._stop_run()
        elif self._led.is_running:
            self._led.learn()
            effects = self._core.led_tick(now, self._led.fed) if self._led.is_alive(now) else None
            if effects is not None:
                for peer, message in effects.send:
                    self._send(peer, message)
                return
            self._stop_run()
        self._carry_out(self._core.tick(now))

    def _carry_out_look(self, effects: Effects) -> None:
        """Something is wrong with this node, or right again: its writer has not been told."""
        if self._followed.is_running or self._led.is_running:
            self._stop_run()
        self._carry_out(effects)

    def _look_around(self, now_ns: int) -> None:
        self._learn()
        self._looks.turn(now_ns)

    def _look_whether_it_runs(self, now_ns: int) -> None:
        if self._is_left_to_writer:
            return
        core = self._core
        if self._led.holds or (self._is_fed and core.granted and not core.commits_alone):
            if self._led.look(now_ns):
                self._carry_out(core.resume_sends())
        elif not self._writer.is_settled:
            return
        elif core.commits_alone:
            self._begin_run()
        elif self._is_fed:
            self._followed.look(now_ns)

    def _look_at_cursors(self, now_ns: int) -> None:
        """Look at what the writer has written and synced; or have it answer what it was told."""
        if not self._writer.is_settled:
            self._writer.repeat_when_due(now_ns)
        # The cells first: what is read behind them is as new, or newer, and then seen again.
        elif self._waits_for_sync and self._durable_cell[0] != self._durable_seen:
            self._durable_seen = self._durable_cell[0]
            # Before what is written: a membership has to be known before it is sent.
            held = self._page.read_durable()[0]
            self._written_seen = self._written_cell[0]
            self._look_at_written()
            self._look_at_held(held)
        elif self._written_cell[0] != self._written_seen:
            self._written_seen = self._written_cell[0]
            self._look_at_written()

    def _is_run_news(self, now_ns: int) -> bool:
        """Whether it is time to look what the writer has committed: what is let go of the log, and
        what operators are told, goes by that.
        """
        return now_ns >= self._looks.due_ns and self._committed_cell[0] != self._committed_seen

    def _begin_run(self) -> None:
        """Let the writer commit by itself: until the run ends it needs nothing of this process."""
        self._runs = True
        self._committed_seen = self._committed_cell[0]
        with self._fence:
            self._page.publish_run(self._core.term)
        # What it has written before it knew of the run is for it to commit.
        self._writer.ring()

    def _stop_run(self) -> None:
        """Commit here again, and take entries; on return the core knows all that the writer has
        committed, or taken.
        """
        if self._followed.is_running:
            written = self._followed.end(self._environment.clock.monotonic_ns())
            if written is not None:
                self._log.grown_to(written.index, written.position)
            # What was on its way to the writer is lost.
            self._carry_out(self._core.run_ended())
        elif self._led.is_running:
            fed = self._led.fed
            self._led.end(self._environment.clock.monotonic_ns())
            # The writer has published it meanwhile.
            self._alone_until = -1
            self._carry_out(self._core.led_run_ended(fed))
        elif self._runs:
            self._take_run_back()
        else:
            return
        self._held = self._written = _UNSEEN
        self._written_seen = self._durable_seen = -1
        self._marks.clear()
        if self._core.granted:
            self._look_at_held(self._page.read_committed())

    def _take_run_back(self) -> None:
        """Let no writer commit by itself any more."""
        self._runs = False
        with self._fence:
            self._page.publish_run(None)

    def _hear_peers(self, now: int) -> None:
        """A bounded number of messages: those of direct connections, or else the others."""
        arrived, line = self._peers.arrived(), self._core.line
        is_direct = bool(arrived)
        for _ in range(MESSAGES_PER_TURN_MAX):
            if arrived:
                source, parts = arrived.popleft()
            else:
                received = None if is_direct else self._peers.receive()
                if received is None:
                    return
                source, parts = received
            first, *rest = parts
            if self._followed.is_running:
                self._stop_run()
            elif self._led.is_running and not is_run_frame(first):
                if source in self._led.fed and is_accepted(first, self._core.term):
                    # It is older than the run, or of a member that has just ended its own.
                    continue
                self._stop_run()
            if not rest[1:] and line.receive(now, source, first, bool(rest)):
                self._counters[RaftCounter.MESSAGES_RECEIVED] += 1
                self._entries = rest[0] if rest else None
                self._carry_out_line()
                self._entries = None
            else:
                self._take_message(now, source, parts)

    def _hear_ends(self, now: int) -> None:
        for peer in self._peers.ended():
            # Whom the writer has heard of since counts.
            self._followed.learn()
            wait = self._core.peer_gone(now, peer)
            if wait is not None:
                logger.info(
                    "connection to the leader has ended: leader=%s campaigns_in_ms=%d", peer, wait
                )

    def take_settings(self, settings: Settings) -> None:
        """The settings were read again: those of retention and scrub count from now on."""
        self._looks.take_settings(settings)
        self._log.take_settings(settings)

    def finish(self) -> None:
        """Nothing: what is under way goes on elsewhere, or after a restart."""

    def close(self) -> None:
        """Close files, sockets and the ring; whoever looks at the page sees that nobody leads."""
        # Without the core, which may be what has failed.
        self._take_run_back()
        self._fence.close()
        self._page.publish_alone(0)
        self._page.publish_grant(Grant(self._core.term, False, PageRole.FOLLOWER))
        self._writer.close()
        self._dispatcher.close()
        for bell in self._readers:
            bell.close()
        self._control.close()
        self._peers.close()
        self._term_file.close()
        self._log.close()

    def _look_at_written(self) -> None:
        written = self._page.read_written()
        if written is not self._written:
            self._written = written
            if self._core.line.state.writer is WriterState.GRANTED:
                # Before the entries are told: a membership counts from its own entry on (thesis,
                # section 4.1), and they may be committed at once.
                told = self._memberships.written(written.index)
                if told:
                    self._tell_memberships(told)
                if self._core.line.written(written.index):
                    self._carry_out_line()
                else:
                    last = EntryId(written.term, written.index)
                    self._carry_out(self._core.entries_written(last))
        if not self._waits_for_sync:
            self._look_at_held(written)

    def _look_at_held(self, counted: LogCursor) -> None:
        """Look at the cursor that an acknowledgement needs (``ack.mode``)."""
        if counted is not self._held:
            self._held = counted
            self._marks.append(counted)
            if self._core.line.held(counted.index):
                self._carry_out_line()
            else:
                self._carry_out(self._core.entries_held(self._core.node, counted.index))

    def _take_order(self, message: bytes) -> None:
        try:
            order = parse(message)
        except ProtocolError as error:
            self._counters[RaftCounter.ORDERS_REFUSED] += 1
            logger.warning("order refused: %s", error)
            return
        # The writer is another one, or has given the run back.
        if isinstance(order, Ready):
            self._led.forget()
            self._stop_run()
        elif isinstance(order, RunGivenBack) and (
            self._followed.given_back(order.number) or self._led.given_back(order.number)
        ):
            self._stop_run()
        match order:
            case FollowerStands():
                self._led.stands(order)
            case Damaged() | Repaired():
                self._log.take_order(order)
            case Ready():
                # A writer that has just recovered the log: nobody has told it what to do.
                self._writer.is_read = self._is_cutting = self._was_recovered = False
                self._writer.follow(self._core.term, KEEP_ALL)
            case Granted() | Followed() if self._writer.take_answer(order):
                self._take_answer(order)
            case _:
                pass

    def _take_answer(self, answer: Granted | Followed) -> None:
        """The writer has done what a handshake asked.

        Raises:
            LogDamagedError: the log that it has left cannot be read.
        """
        last = EntryId(answer.last_term, answer.last_index)
        try:
            self._settle(answer, last)
        except LogDamagedError:
            raise
        except CorruptLogError as error:
            end = (answer.end, last.index, last.term)
            raise report(self._environment.settings, error, last=end) from error

    def _settle(self, answer: Granted | Followed, last: EntryId) -> None:
        self._log.open_at(last.index, answer.end)
        # What the log holds already may be committed now.
        self._held = self._written = _UNSEEN
        self._written_seen = self._durable_seen = -1
        self._marks.clear()
        if isinstance(answer, Granted):
            # An election may have been won before a new writer had said where its log ends.
            self._writer.is_read = True
        if not self._was_recovered:
            self._was_recovered = True
            lost = self._lost_entry()
            if lost is not None:
                self._carry_out(self._core.log_damaged(lost))
                if self._writer.awaits_answer:
                    # It led, and its writer is told to stop. The answer to that settles all.
                    return
        if self._writer.is_read:
            self._tell_memberships(self._memberships.settled(last))
        if isinstance(answer, Granted):
            self._log.granted(last.index)
            effects = self._core.writer_granted(answer.term, last)
        elif not self._writer.is_read:
            self._writer.is_read = True
            terms = self._log.terms(last)
            if terms is not None:
                told = self._memberships.recovered(terms)
                # After a new writer's recovery the core knows those that it was told before.
                known = self._core.status().membership_index
                self._tell_memberships([one for one in told if one[0] > known])
            effects = self._core.log_ready(last, terms)
        elif self._is_cutting:
            self._is_cutting = False
            effects = self._core.log_truncated(last)
        else:
            effects = self._core.writer_revoked(last)
        self._carry_out(effects)
        self._publish_grant()

    def _lost_entry(self) -> EntryId | None:
        """The last entry that the log held before it was damaged; None when it lacks nothing."""
        damage = read_damage(damage_path(self._environment.settings.store.path_root_dir))
        return None if damage is None else EntryId(damage.last_term, damage.last_index)

    def _take_message(self, now: int, source: NodeId, parts: list[memoryview]) -> None:
        self._counters[RaftCounter.MESSAGES_RECEIVED] += 1
        try:
            if is_run_frame(parts[0]):
                self._take_run_frame(source, decode_run_frame(parts[0]))
                return
            if self._log.take(source, parts):
                return
            message = decode_message(parts[0])
            has_entries = isinstance(message, Append) and bool(message.runs)
            has_second = has_entries or isinstance(message, Attest)
            if has_second != (len(parts) == 2):
                raise ProtocolError("append without its entries, or entries without one")
        except ProtocolError as error:
            self._counters[RaftCounter.MESSAGES_REFUSED] += 1
            logger.warning("message of a peer refused: peer=%s error=%s", source, error)
            return
        self._entries = parts[1] if has_entries else None
        self._announced = message.memberships if isinstance(message, Append) else ()
        self._carry_out(self._core.receive(now, source, message))
        self._entries, self._announced = None, ()

    def _take_run_frame(self, source: NodeId, frame: RunFrame) -> None:
        if frame.kind is RunKind.BEGINS:
            self._followed.begins(source, frame.number)
        elif frame.kind is RunKind.INVITED:
            now_ns = self._environment.clock.monotonic_ns()
            self._followed.invited(source, frame.number, now_ns)
        elif self._led.take(source, frame):
            self._stop_run()

    def _carry_out(self, effects: Effects) -> None:
        """Carry out effects in the order that ``Effects`` demands."""
        # Whatever goes the long way may have work for the core at once: a new leader says so.
        self._core_due = 0
        if effects is NO_EFFECTS:
            return
        self._stop_run()
        # Before anybody hears of it that this node leads no more, or hands over.
        self._publish_alone()
        if effects.persist is not None:
            when_there_is_space(
                partial(self._term_file.persist, effects.persist),
                lambda: self._page.give_sign(Role.RAFT, self._environment.clock.monotonic_ns()),
                self.stop,
            )
            self._counters[RaftCounter.ELECTIONS] += 1
        self._direct_writer(effects)
        for peer, message in effects.send:
            self._send(peer, message)
        if effects.replicate or effects.ship_files:
            self._log.replicate(effects)
        if effects.commit is not None:
            self._commit(effects.commit)
        if effects.leader is not None:
            self._tell_leader(effects.leader)
        for note in effects.notes:
            # Why it is no candidate is said with each election that is due, for days if need be.
            if note != self._noted:
                logger.info("%s", note)
            self._noted = note

    def _publish_alone(self) -> None:
        """Asked in every turn: answers to a round of heartbeats come by many ways. In a leader's
        run it is the writer's to publish, which knows of them at once.
        """
        until = self._core.alone_until()
        if until != self._alone_until:
            self._alone_until = until
            self._page.publish_alone(0 if until is None else min(until * TICK_NS, NEVER))

    def _carry_out_line(self) -> None:
        """What the straight line wants done, in the order of ``_carry_out``."""
        line = self._core.line
        # Read before the line is gone through again, by what follows.
        reply, wants, commit = line.reply, line.wants, line.commit
        if line.first >= 0:
            self._append(AppendEntries(Index(line.first), Index(line.last)))
        if reply is not None:
            leader = line.state.leader
            assert leader is not None
            self._say(leader, reply)
        if wants:
            self._log.feed(wants)
        if commit >= 0:
            self._commit(Index(commit))

    def _direct_writer(self, effects: Effects) -> None:
        """What the writer has to do, in the order that ``Effects`` demands."""
        if effects.revoke:
            self._writer.follow(self._core.term, KEEP_ALL)
        if effects.truncate is not None:
            self._is_cutting = True
            self._writer.follow(self._core.term, effects.truncate.index)
        if effects.grant is not None:
            self._counters[RaftCounter.GRANTS] += 1
            # Members have voted for this end: what of it the writer has not got cannot be led.
            self._writer.grant(effects.grant, self._core.last)
        if effects.propose is not None or effects.propose_membership is not None:
            self._propose(effects)
        if effects.append is not None:
            self._append(effects.append)

    def _propose(self, effects: Effects) -> None:
        """Entries of the leader's own: the one that begins a term, and a new membership."""
        now_ms = self._environment.clock.epoch_ns() // 1_000_000
        if effects.propose is not None:
            settings = self._environment.settings
            record = no_op_record(effects.propose, self._core.node, settings, now_ms=now_ms)
            self._writer.propose(effects.propose, record)
        if effects.propose_membership is not None:
            term, after = self._core.term, self._core.last.index
            record = self._memberships.propose(
                effects.propose_membership, term=term, after=after, now_ms=now_ms
            )
            self._writer.propose(term, record)

    def _append(self, accepted: AppendEntries) -> None:
        """Verify the entries beside the message, and hand them to the writer."""
        assert self._entries is not None
        told = None
        # A new writer has not said yet where its log ends: it may lack what the old ring held.
        if self._writer.is_settled or self._writer.is_read:
            told = self._log.append(accepted, self._entries, self._announced)
        if told is None:
            self._carry_out(self._core.entries_dropped(self._log.end))
        elif told:
            self._tell_memberships(told)

    def _tell_memberships(self, told: Told) -> None:
        """The core first, then the sockets: it may send at once to whom it has just heard of."""
        if not told:
            return
        self._know_members(self._core.commit)
        for index, membership in told:
            logger.info(
                "membership: index=%d %s",
                index,
                membership.describe(),
                extra={"event": Event.MEMBERSHIP_CHANGED},
            )
            self._carry_out(self._core.membership_appended(index, membership))

    def _know_members(self, commit: Index) -> None:
        self._peers.set_members(self._memberships.addresses(commit=commit))
        self._told_group = (-1, b"")

    def _level_in_force(self) -> int:
        return self._broker_counters[BrokerCounter.FEATURE_LEVEL]

    def _group(self) -> bytes:
        """What a witness without bodies is told of its group, made anew where it has changed."""
        level, known = self._level_in_force(), self._told_group
        if level != known[0]:
            addresses = self._memberships.addresses(commit=self._core.commit)
            self._told_group = known = (level, encode_group(ToldGroup(level, addresses)))
        return known[1]

    def _send(self, peer: NodeId, message: Message) -> None:
        if message.__class__ is Attest:
            # A witness without bodies sees no entry that says who belongs to the group.
            self._say(peer, encode_message(message), self._group())
        else:
            self._say(peer, encode_message(message))

    def _say(self, peer: NodeId, *parts: bytes) -> None:
        sent = self._peers.send(peer, parts)
        self._counters[RaftCounter.MESSAGES_SENT if sent else RaftCounter.MESSAGES_UNSENT] += 1

    def _commit(self, index: Index) -> None:
        self._page.publish_committed(self._cursor_of(index))
        if self._memberships.becomes_certain(index):
            self._know_members(index)
        self._counters[RaftCounter.COMMITS] += 1
        if self._core.line.state.role is RaftRole.LEADER:
            # It has acknowledgements to give; a follower's has not.
            self._writer.ring()
        self._dispatcher.ring()

    def _cursor_of(self, index: Index) -> LogCursor:
        """Where entry ``index`` ends; mostly one of the cursors that were counted."""
        cursor: LogCursor | None = None
        while self._marks and self._marks[0].index <= index:
            cursor = self._marks.popleft()
        if cursor is not None and cursor.index == index:
            return cursor
        return self._log.cursor_at(index)

    def _tell_leader(self, change: LeaderChange) -> None:
        # What was said before is news again.
        self._noted = ""
        self._led.forget()
        logger.info(
            "term=%d role=%s leader=%s",
            change.term,
            self._core.role.value,
            change.leader or "none",
            extra={"event": Event.ROLE_CHANGED},
        )
        self._publish_grant()

    def _publish_grant(self) -> None:
        self._looks.role_changed()
        self._page.publish_grant(
            Grant(
                self._core.term,
                self._core.granted,
                _PAGE_ROLES[self._core.role],
                self._core.leader or NodeId(""),
            )
        )
        # All tell their clients. A broker for which dispatch changes nothing hears no bells.
        self._writer.ring()
        for bell in self._readers:
            bell.rouse()


def run(settings: Settings, stop: StopFlag) -> int:
    """Run the raft process until it is told to stop; the exit status."""
    if settings.node.witness:
        return witness_process.run(settings, stop)
    paths = StorePaths.of(settings)
    if settings.store.log.has_terms and is_complete(paths):
        # Killed before it could say so: nobody may use the old log any more.
        return EXIT_REOPEN

    def make(environment: Surroundings) -> RaftWorker:
        is_alone = not has_others(settings)
        term_file = TermFile(paths.term, paths.current_term, is_alone=is_alone)
        worker = RaftWorker(environment, term_file, _peers_of(environment))
        worker.stop = stop
        return worker

    try:
        return run_worker(Role.RAFT, settings, stop, make)
    except LogArrivedError:
        logger.info("the leader's log is here: it takes the place of the one in use")
        return EXIT_REOPEN


def _peers_of(environment: Surroundings) -> Peers:
    """The members of the group; of a mirror its source."""
    settings = environment.settings
    if not settings.mirror.sources:
        return PeerGroup.of(settings, environment.context)
    # A node that is no mirror carries nothing of it.
    from ledgermq.raft_node.mirroring.mirror_peers import MirrorPeers

    return MirrorPeers(settings, environment.page, environment.paths.mirror)
