"""A writer's wait in a run: who lends the compiled wait what it goes on with, and takes it back.

The wait (``formats/kernels/_wait.pyx``) takes what nearly always comes in a run, where the process
waits for it: no turn of the loop is made for that. It is lent the run and the log for one wait, and
only while nothing else is to be done; what it leaves comes back here, and is done in a turn. Where
it is not compiled there is none, and all is done in turns.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ledgermq.ipc.append_ring import AppendRing
from ledgermq.ipc.cursor_page import PagePlaces, Role
from ledgermq.ipc.doorbell import open_bell
from ledgermq.ipc.loop import Wait
from ledgermq.members.direct_connection import DirectConnection
from ledgermq.model.config.settings import AckMode
from ledgermq.model.ids import NodeId, Position
from ledgermq.process.node import Surroundings
from ledgermq.store.log.following_entries import verify_following
from ledgermq.store.log.log_writer import LogEnd, LogWriter
from ledgermq.writer.followed_run import FollowedRun
from ledgermq.writer.led_run import LedRun
from ledgermq.writer.log.flusher import LogFlusher
from ledgermq.writer.member_feeds import DirectFeed, LedFeed
from ledgermq.writer.produce_service import ProduceService

if TYPE_CHECKING:
    from ledgermq.formats.kernels._wait import SteadyWait

    IS_COMPILED = True
else:
    try:
        if os.environ.get("LEDGERMQ_PURE") == "1":
            raise ImportError("plain kernels are wanted")
        from ledgermq.formats.kernels._wait import SteadyWait
    except ImportError:
        SteadyWait = None
    IS_COMPILED = SteadyWait is not None

MARKS_MAX = 128
"""Appends without a commit, with which nothing is lent: the wait has room for as many more."""

_NOTHING = memoryview(b"")


class Calm(NamedTuple):
    """What is known while nothing waits for a turn: sequence of the grant, and raft's ring."""

    told: int
    ring: AppendRing | None


class Descriptors(NamedTuple):
    """Of the fence's file, of this process's bell and of the dispatcher's."""

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
        """See ``Worker.zmq_uses``."""

    def calm(self) -> Calm | None:
        """What is known; None while something waits for a turn."""


class SteadyTurns:
    """Owned by the writer process.

    Attributes:
        wait: see ``WaitingWorker``.
    """

    def __init__(
        self,
        environment: Surroundings,
        writer: SteadyWriter,
        feed: DirectFeed,
        followers: LedFeed,
    ) -> None:
        """Nothing is lent.

        Args:
            feed, followers: the connections that ``writer`` was made with.
        """
        assert writer.followed is not None and writer.led is not None
        self._page = page = environment.page
        self._descriptors = descriptors = Descriptors.of(environment)
        self._writer = writer
        self._parts = parts = writer.parts
        self._due = parts.service.due
        self._followed, self._led = writer.followed, writer.led
        self._feed, self._followers = feed, followers
        self._uses = writer.zmq_uses
        self._run = page.run_cell()
        waits_for_sync = environment.settings.ack.mode is AckMode.MAJORITY_FSYNC
        self._kernel = SteadyWait(
            page.whole(),
            self,
            waits_for_sync=waits_for_sync,
            **descriptors._asdict(),
            **PagePlaces.of(Role.WRITER, Role.DISPATCHER)._asdict(),
        )
        self.wait: Wait = self._kernel.wait

    def close(self) -> None:
        """Let go of the page, and close what was opened."""
        self._kernel.close()
        os.close(self._descriptors.fence)
        os.close(self._descriptors.dispatcher_bell)

    def lend_followed(self, wait: SteadyWait) -> bool:
        """Lend the follower's run; false where there is none, or something waits for a turn."""
        if self._run[0] >= 0:
            return False
        lent, calm = self._followed.lend(), self._writer.calm()
        if lent is None or calm is None or len(lent.marks) > MARKS_MAX:
            return False
        connection = self._feed.connection_to(lent.leader)
        if connection is None:
            return False
        source = self._feed.descriptor
        wait.lend(lent.line, -lent.number, calm.told, lent.durable_seen, source, calm.ring)
        wait.lend_log(
            lent.leader,
            connection,
            verify_following,
            self._parts.flusher.wake,
            self._parts.log.end,
            self._parts.file_size,
            *self._parts.log.lend(),
            lent.marks,
        )
        return True

    def take_back(
        self, end: LogEnd, entries: int, marks: list[tuple[int, int]], durable_seen: int
    ) -> None:
        """What was lent of a follower's run is as it says; ``entries`` were appended."""
        if entries:
            self._parts.log.take_back(end)
            self._parts.service.note_entries(entries, _NOTHING)
        self._followed.take_back(marks, durable_seen)

    def lend_led(self, wait: SteadyWait) -> bool:
        """Lend the leader's run; false where there is none, or something waits for a turn."""
        if self._run[0] <= 0:
            return False
        lent, calm = self._led.lend(), self._writer.calm()
        if lent is None or calm is None:
            return False
        line, durable_seen = lent
        source = self._followers.descriptor
        wait.lend(line, self._led.cell, calm.told, durable_seen, source, calm.ring)
        return True

    def heard(self) -> list[DirectConnection]:
        """Followers that have sent something."""
        return self._followers.heard()

    def send_wanted(self) -> None:
        """Send what the leader's line wants sent."""
        self._led.send_wanted()

    def answered(self, commit: int) -> bool:
        """Commit, and answer producers; whether the wait may go on."""
        uses = self._uses[0]
        goes_on = self._led.answered(commit)
        waiting = self._due.waiting
        if commit >= 0 and waiting:
            position = self._page.read_committed_position()
            if waiting[0].position <= position:
                self._due.acknowledge(Position(position))
        return goes_on and not self._followers.has_found and self._uses[0] == uses

    def put_back_appends(self, leader: NodeId, messages: list[list[memoryview]]) -> None:
        """Leave messages of the leader to the next turn."""
        self._feed.put_back(leader, messages)

    def put_back_answers(self, peer: NodeId, messages: list[list[memoryview]]) -> None:
        """Leave messages of a follower to the next turn."""
        self._followers.put_back(peer, messages)

    def connection_ended(self, peer: NodeId) -> None:
        """A connection has ended while messages were taken of it."""
        self._feed.note_end(peer)
        self._followers.note_end(peer)

    def give_back(self, reason: str) -> None:
        """Give the follower's run back to raft."""
        self._followed.give_back(reason)


def steady_turns(
    environment: Surroundings,
    writer: SteadyWriter,
    feed: DirectFeed | None,
    followers: LedFeed | None,
) -> SteadyTurns | None:
    """The wait of ``writer``; None where it is not compiled, or no members have connections."""
    if not IS_COMPILED or feed is None or followers is None:
        return None
    return SteadyTurns(environment, writer, feed, followers)
