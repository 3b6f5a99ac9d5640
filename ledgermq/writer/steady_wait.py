"""A writer's wait in a run: who lends the compiled wait what it goes on with, and takes it back.

The wait (``formats/kernels/_wait.pyx``) takes what nearly always comes in a run, where the process
waits for it: no turn of the loop is made for that. It is lent the run and the log for one wait, and
only while nothing else is to be done; what it leaves comes back here, and is done in a turn. Where
it is not compiled there is none, and all is done in turns.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Container, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ledgermq.formats.kernels.crc32 import crc32
from ledgermq.formats.kernels.kernel import compiled_only, read_plain, stamp_run
from ledgermq.formats.store_markers import BLANK_SIZE
from ledgermq.ipc.append_ring import AppendRing
from ledgermq.ipc.cursor_page import LogCursor, PagePlaces, Role
from ledgermq.ipc.doorbell import open_bell
from ledgermq.ipc.loop import Wait
from ledgermq.ipc.page_slots import lone_run
from ledgermq.ipc.time_histogram import TimeKind, place_of
from ledgermq.members.direct_connection import IS_COMPILED as ARE_STREAMS_COMPILED
from ledgermq.members.direct_connection import DirectConnection
from ledgermq.model.config.settings import AckMode
from ledgermq.model.ids import NodeId, Position, Term
from ledgermq.process.environment import Environment
from ledgermq.process.node import Surroundings
from ledgermq.sessions.joined_sockets import JoinedSockets
from ledgermq.sessions.local_connections import LocalConnection, LocalConnections
from ledgermq.sessions.session_server import SessionServer
from ledgermq.store.files.append_files import FileTail
from ledgermq.store.log.following_entries import verify_following
from ledgermq.store.log.log_writer import LogEnd, LogWriter
from ledgermq.wire.send_frame import encode_sent
from ledgermq.writer.due_answers import Due, ProducerSession, Unanswered
from ledgermq.writer.duplicates.recent_messages import NOTHING
from ledgermq.writer.followed_run import FollowedRun
from ledgermq.writer.led_run import LedRun, LentLead
from ledgermq.writer.log.flusher import LogFlusher
from ledgermq.writer.member_feeds import DirectFeed, LedFeed
from ledgermq.writer.produce_service import ProduceService

if TYPE_CHECKING:
    from ledgermq.formats.kernels._produce import PlainTurns
    from ledgermq.formats.kernels._wait import SteadyWait

    IS_COMPILED = True
else:
    _wait, _produce = compiled_only("_wait"), compiled_only("_produce")
    IS_COMPILED = _wait is not None and _produce is not None
    SteadyWait = _wait.SteadyWait if IS_COMPILED else None
    PlainTurns = _produce.PlainTurns if IS_COMPILED else None

MARKS_MAX = 128
"""Appends without a commit, with which nothing is lent: the wait has room for as many more."""

_NO_MARKS: deque[LogCursor] = deque()


class Calm(NamedTuple):
    """What is known while nothing waits for a turn: sequence of the grant, raft's ring, and the
    term in which frames are taken.
    """

    told: int
    ring: AppendRing | None
    term: Term | None


class Descriptors(NamedTuple):
    """Descriptors of the fence's file, of this process's bell and of the dispatcher's."""

    fence: int
    bell: int
    dispatcher_bell: int

    @classmethod
    def of(cls, environment: Surroundings) -> Descriptors:
        """Those of the writer; its own bell is that of its inbox, the others are the caller's."""
        return cls(
            environment.run_fence().fileno(),
            environment.inbox.bell,
            open_bell(environment.paths.directory, Role.DISPATCHER),
        )


class SteadyParts(NamedTuple):
    """What the writer has, and the wait works with; ``file_size``: bytes of a file of the log."""

    log: LogWriter
    service: ProduceService
    flusher: LogFlusher
    file_size: int


class SteadyWriter(Protocol):
    """The writer, as its wait knows it."""

    followed: FollowedRun | None
    led: LedRun | None

    @property
    def parts(self) -> SteadyParts:
        """What it has."""

    @property
    def zmq_uses(self) -> Sequence[int]:
        """The cell of ``Worker.zmq_uses``."""

    def calm(self) -> Calm | None:
        """What is known; None while something waits for a turn."""


class PlainFixed(NamedTuple):
    """What the kernel of plain frames needs, and stays as it is.

    Attributes:
        local_epoll: of local producers' connections.
        times_at: first cell of the histograms of times.
        by_descriptor, by_identity: local connections.
        placed, use: see ``SessionServer``.
        waiting: answers that are due.
        functions: ``read_plain``, ``stamp_run``, ``crc32`` and ``encode_sent``.
        form: see ``read_plain``.
        blank_size: bytes that a file of the log keeps for a blank.
    """

    local_epoll: int
    times_at: int
    waits_for_sync: bool
    pid: int
    by_descriptor: dict[int, LocalConnection]
    by_identity: dict[bytes, LocalConnection]
    sessions: dict[bytes, ProducerSession]
    placed: Container[bytes]
    use: Callable[[bytes], None]
    unanswered: Unanswered
    waiting: deque[Due]
    types: tuple[type[Due], type[LogCursor], type[LogEnd]]
    functions: tuple[object, ...]
    form: tuple[int, int, int, int]
    blank_size: int
    store_host: bytes
    ack: int


class PlainLent(NamedTuple):
    """What the kernel of plain frames is lent for one wait.

    Attributes:
        run: what the cell of runs says as long as the run lasts.
        end: where the log ends.
        tails: the open files of the log and its index.
        topics, offsets, client_max, total_max, put_lock: see ``LentFrames``.
        followers: connections by member.
        sent, frame_bytes: see ``LentLead``.
        wake: told of each end of the log.
    """

    run: int
    term: int
    end: LogEnd
    tails: tuple[FileTail, FileTail | None]
    topics: dict[bytes, int]
    offsets: dict[tuple[bytes, int], int]
    client_max: int
    total_max: int
    put_lock: tuple[int, int, int, int]
    followers: dict[NodeId, DirectConnection]
    sent: dict[NodeId, Position]
    frame_bytes: int
    wake: Callable[[LogEnd], None]


class SteadyTurns:
    """Owned by the writer process.

    Attributes:
        wait: see ``WaitingWorker``.
    """

    def __init__(
        self,
        environment: Environment,
        writer: SteadyWriter,
        feed: DirectFeed | None,
        followers: LedFeed | None,
        descriptors: Descriptors,
    ) -> None:
        """Nothing is lent.

        Args:
            feed, followers: the connections that ``writer`` was made with.
            descriptors: closed by ``close``, but for this process's bell.
        """
        self._page = page = environment.page
        self._descriptors = descriptors
        self._writer = writer
        self._parts = parts = writer.parts
        self._due, self._clients = parts.service.due, parts.service.clients
        self._followed, self._led = writer.followed, writer.led
        self._feed, self._followers = feed, followers
        self._uses = writer.zmq_uses
        _, self._durable, *_ = page.cursor_cells()
        self._waits_for_sync = environment.settings.ack.mode is AckMode.MAJORITY_FSYNC
        places = PagePlaces.of(Role.WRITER, Role.DISPATCHER)
        self._wait = SteadyWait(
            page.whole(),
            self,
            places,
            descriptors,
            waits_for_sync=self._waits_for_sync,
        )
        self._local = local = local_of(self._clients)
        self._plain: PlainTurns | None = None
        if local is not None:
            fixed = self._fixed(local)
            self._plain = PlainTurns(self._wait.address, self, places, descriptors, fixed)
        self._has_lent = False
        self.wait: Wait = self._wait.wait

    def close(self) -> None:
        """Let go of the page, and close what was opened."""
        self._wait.close()
        os.close(self._descriptors.fence)
        os.close(self._descriptors.dispatcher_bell)

    def step(self, now_ns: int, is_fed: bool, heard: list[object]) -> bool:
        """Do once what is done in a wait; see ``SteadyWait``."""
        return self._wait.step(now_ns, is_fed, heard)

    def lend_followed(self, wait: SteadyWait) -> bool:
        """Lend the follower's run; false where there is none, or something waits for a turn."""
        if self._followed is None or self._feed is None:
            return False
        lent, calm = self._followed.lend(), self._writer.calm()
        if lent is None or calm is None or len(lent.marks) > MARKS_MAX:
            return False
        connection = self._feed.connection_to(lent.leader)
        if connection is None:
            return False
        source = self._feed.descriptor
        wait.lend(lent.line, -lent.number, calm.told, lent.durable_seen, source, calm.ring)
        log = self._parts.log
        wait.lend_log(
            lent.leader,
            connection,
            verify_following,
            self._parts.flusher.wake,
            log.end,
            self._parts.file_size,
            *log.lend(),
            lent.marks,
        )
        return True

    def take_back(
        self, end: LogEnd, entries: int, marks: list[tuple[int, int]], durable_seen: int
    ) -> None:
        """What was lent of a follower's run is as it says; ``entries`` were appended."""
        if entries:
            self._parts.log.take_back(end)
            self._parts.service.note_entries(entries, NOTHING)
        assert self._followed is not None
        self._followed.take_back(marks, durable_seen)

    def lend_led(self, wait: SteadyWait) -> bool:
        """Lend the run of who leads, with others or alone; false where there is none, or something
        waits for a turn.
        """
        calm = self._writer.calm()
        if calm is None:
            return False
        lent = self._led.lend() if self._led is not None else None
        if lent is not None:
            assert self._led is not None and self._followers is not None
            run, source, seen = self._led.cell, self._followers.descriptor, lent.durable_seen
            wait.lend(lent.line, run, calm.told, seen, source, calm.ring)
        elif calm.term is not None and self._page.run_is(lone_run(calm.term)):
            run = lone_run(calm.term)
            # Looked at anew: it may have been committed up to there, or not.
            wait.lend(None, run, calm.told, self._durable[0] - 1, -1, calm.ring)
        else:
            return False
        plain = self._lend_plain(calm.term, run, lent)
        if lent is None and plain is None:
            return False
        wait.lend_led(
            None if lent is None else self._led,
            {} if self._followers is None else self._followers.by_descriptor,
            _NO_MARKS if lent is None else lent.marks,
            plain,
            -1 if plain is None or self._local is None else self._local.source,
            () if self._local is None else self._local.ready,
            self._uses,
        )
        return True

    def take_back_led(self) -> None:
        """What was lent of the log is as the kernel of plain frames says."""
        if self._has_lent and self._plain is not None:
            self._has_lent = False
            end, taken = self._plain.take_back()
            self._parts.service.take_back(taken)
            if end is not None:
                self.log_ends(end)

    def log_ends(self, end: LogEnd) -> None:
        """The log was written up to ``end``."""
        self._parts.log.take_back(end)

    def send_wanted(self) -> None:
        """Send what the leader's line wants sent."""
        assert self._led is not None
        self._led.send_wanted()

    def acknowledge(self, position: int) -> None:
        """Answer every frame that is stored before ``position``."""
        self._due.acknowledge(Position(position))

    def answer(self, identity: bytes, answer: bytes) -> None:
        """Send an answer that the client's socket has not taken, or that goes another way."""
        self._clients.send(identity, [answer])

    def keep_unsent(self, connection: LocalConnection, rest: bytes) -> None:
        """An answer was sent but for its end."""
        assert self._local is not None
        self._local.keep_unsent(connection, rest)

    def feed_producer(self, connection: LocalConnection, data: bytes) -> None:
        """Leave what was read of a producer to the next turn."""
        assert self._local is not None
        self._local.feed(connection, data)

    def read_producer(self, connection: LocalConnection) -> bool:
        """Read what a producer has sent of a frame that has begun; see ``LocalConnections``."""
        assert self._local is not None
        return self._local.read_begun(connection)

    def leave_producer(self, connection: LocalConnection) -> None:
        """Leave what was read of a producer, and not taken, to the next turn."""
        assert self._local is not None
        self._local.leave(connection)

    def put_back_frame(self, connection: LocalConnection, head: bytes, payload: bytes) -> None:
        """Leave a frame that was taken of a producer to the next turn, before all that is left."""
        assert self._local is not None
        self._local.put_back(connection, [head, payload])

    def put_was_slow(self, held_ns: int) -> None:
        """The put lock was held for long."""
        self._parts.service.note_slow_put(held_ns)

    def put_back_appends(self, leader: NodeId, messages: list[list[memoryview]]) -> None:
        """Leave messages of the leader to the next turn."""
        assert self._feed is not None
        self._feed.put_back(leader, messages)

    def put_back_answers(self, peer: NodeId, messages: list[list[memoryview]]) -> None:
        """Leave messages of a follower to the next turn."""
        assert self._followers is not None
        self._followers.put_back(peer, messages)

    def connection_ended(self, peer: NodeId) -> None:
        """A connection has ended while messages were taken of it, or sent."""
        for feed in (self._feed, self._followers):
            if feed is not None:
                feed.note_end(peer)

    def give_back(self, reason: str) -> None:
        """Give the follower's run back to raft."""
        assert self._followed is not None
        self._followed.give_back(reason)

    def _lend_plain(self, term: Term | None, run: int, lead: LentLead | None) -> PlainTurns | None:
        """The kernel of plain frames, with what it needs; None where more is asked of frames."""
        frames = self._parts.service.lend() if term is not None else None
        local, plain = self._local, self._plain
        if frames is None or term is None or local is None or plain is None or local.is_watched:
            return None
        log = self._parts.log
        lent = PlainLent(
            run,
            term,
            log.end,
            log.lend(),
            *frames,
            {} if self._followers is None else self._followers.open,
            {} if lead is None else lead.sent,
            0 if lead is None else lead.frame_bytes,
            self._parts.flusher.wake,
        )
        line, led = (None, None) if lead is None else (lead.line, self._led)
        plain.lend(lent, line, led)
        self._has_lent = True
        return plain

    def _fixed(self, local: LocalConnections) -> PlainFixed:
        service, clients = self._parts.service, self._clients
        return PlainFixed(
            local.source,
            place_of(TimeKind.SYNC),
            self._waits_for_sync,
            os.getpid(),
            local.by_descriptor,
            local.by_identity,
            clients.sessions,
            clients.placed,
            clients.use,
            self._due.unanswered,
            self._due.waiting,
            (Due, LogCursor, LogEnd),
            (read_plain, stamp_run, crc32, encode_sent),
            service.form,
            BLANK_SIZE,
            service.store_host,
            self._due.ack,
        )


def local_of(clients: SessionServer[ProducerSession]) -> LocalConnections | None:
    """The local connections of the producers' socket; None where it has none."""
    socket = clients.socket
    return socket.local if isinstance(socket, JoinedSockets) else None


def steady_turns(
    environment: Surroundings,
    writer: SteadyWriter,
    feed: DirectFeed | None,
    followers: LedFeed | None,
) -> SteadyTurns | None:
    """The wait of ``writer``; None where it is not compiled, or connections are not."""
    if not IS_COMPILED or not ARE_STREAMS_COMPILED:
        return None
    return SteadyTurns(environment, writer, feed, followers, Descriptors.of(environment))
