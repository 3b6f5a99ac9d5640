"""Peers of a mirror: one, which leads: the source (docs/decisions/0086).

To the core this node is a learner in a group of two. What the source's members have committed comes
as appends of that leader, whichever of them was asked; what the core answers says how far its log
is, and whether it has taken what it was given. Nothing is sent to the source but questions.
"""

from __future__ import annotations

import json
import logging
import math
import os
import time
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from ledgermq.ipc.counters import RaftCounter
from ledgermq.ipc.cursor_page import CursorPage, Role
from ledgermq.ipc.loop import Pollable
from ledgermq.ipc.orders import AwaitFollower, FeedFrom
from ledgermq.members.mirrors.mirror_promotion import LAST_WORD, last_word
from ledgermq.members.mirrors.mirror_report import MirrorReport, write_mirror_report
from ledgermq.members.roster import MIRROR_SOURCE
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import ConfigError, ProtocolError, StorageError
from ledgermq.model.features import LEVEL
from ledgermq.model.group_epoch import epoch_of
from ledgermq.model.ids import Index, NodeId, Position, Term
from ledgermq.raft.message_codec import decode_message
from ledgermq.raft.messages import AppendReply, EntryId, LogTail
from ledgermq.raft_node.mirroring.mirror_lag import Lag
from ledgermq.raft_node.mirroring.source_feed import FeedStatus, SourceFeed
from ledgermq.raft_node.mirroring.source_link import SourceLink
from ledgermq.raft_node.peers.peer_admission import agreed_settings
from ledgermq.raft_node.peers.peer_presence import ABSENT_S
from ledgermq.raft_node.peers.peers import Arrived, PeerMessage
from ledgermq.store.files.small_file import replace_file
from ledgermq.store.files.store_paths import StorePaths
from ledgermq.wire.mirror_frames import SourceState
from ledgermq.wire.ship_frames import is_ship_frame

logger = logging.getLogger(__name__)

REPORT_S = 1.0
"""Seconds between two reports of how far behind the mirror is."""

NOTE_S = 10.0
"""Seconds between two of these reports that are kept in the store."""


class MirrorPeers:
    """``Peers`` of a mirror, owned by the raft process. Nothing here blocks: the feed has a thread.

    Attributes:
        voters: the source alone; this node is none.
    """

    def __init__(self, settings: Settings, page: CursorPage, report: Path) -> None:
        """Begin to ask the source.

        Args:
            report: file of the report.

        Raises:
            ConfigError: token or certificates cannot be read.
            CorruptLogError: the log's files have not all one size.
        """
        self.voters: Sequence[NodeId] = (MIRROR_SOURCE,)
        self._settings = settings
        self._page = page
        self._report = report
        self._report_at = 0.0
        self._note = StorePaths.of(settings).own / LAST_WORD
        self._noted_at = time.monotonic()
        self._told: MirrorReport | None = None
        self._counters = page.counters(Role.RAFT)
        self._received_before = self._counters[RaftCounter.MIRRORED_BYTES]
        self._silent_s: float | None = None
        self._term = Term(0)
        # What is there has a size already; without any, the settings or the default say so.
        self._file_size = agreed_settings(settings).log_file_size
        self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        link = SourceLink(settings.mirror)
        link.check = self._check
        self._feed = SourceFeed(settings.mirror, link, wake=self._wake)
        word = last_word(StorePaths.of(settings).own)
        if word is not None:
            self._feed.remember(Index(word["source_index"]), Position(word["source_position"]))
        self._feed.start()

    @property
    def sources(self) -> list[Pollable]:
        return [self._event]

    @property
    def refusals(self) -> Mapping[NodeId, str]:
        """Why nothing comes from the source, under its name; empty when something does."""
        trouble = self._feed.trouble
        return {MIRROR_SOURCE: trouble} if trouble else {}

    @property
    def levels(self) -> Mapping[NodeId, int]:
        """This version's own level, as the source's: its members agree there on what they know."""
        return {MIRROR_SOURCE: LEVEL}

    @property
    def direct(self) -> Collection[NodeId]:
        return ()

    @property
    def absent(self) -> Sequence[NodeId]:
        is_absent = self._silent_s is None or self._silent_s > ABSENT_S
        return (MIRROR_SOURCE,) if is_absent else ()

    def need_level(self, level: int) -> None:
        """Do nothing: the source knows what it knows."""

    def send(self, peer: NodeId, parts: Sequence[bytes]) -> bool:
        """Act on an answer of the core, or ask the source for files or damaged entries."""
        if peer != MIRROR_SOURCE:
            return False
        if is_ship_frame(parts[0]):
            # Of files, or of entries that are damaged here.
            return self._feed.ask(parts[0])
        reply = decode_message(parts[0])
        if not isinstance(reply, AppendReply):
            return False
        self._term = reply.term
        if reply.accepted:
            self._feed.accepted(reply.verified)
            self._feed.held(reply.held, reply.term)
        elif reply.tail is not None:
            self._feed.begin_after(_last_of(reply.tail), reply.term)
        else:
            # Of an older term than the core's: a process that begins knows none, and a member that
            # is behind names a lesser one. In that nothing would ever be taken.
            self._feed.follow_term(reply.term)
        return True

    def may_feed(self, leader: NodeId) -> bool:
        """False: a source knows no writer of a mirror."""
        del leader
        return False

    def await_follower(self, peer: NodeId) -> AwaitFollower | None:
        """None: a mirror leads nobody."""
        del peer
        return None

    def feed_from(self, peer: NodeId, port: int) -> FeedFrom | None:
        """None: nobody awaits the writer of a mirror."""
        del peer, port
        return None

    def ended(self) -> Sequence[NodeId]:
        return ()

    def arrived(self) -> deque[Arrived]:
        """Nothing: ``receive`` gives what comes, one by one."""
        return deque()

    def receive(self) -> PeerMessage | None:
        parts = self._feed.take()
        if parts is None:
            try:
                os.eventfd_read(self._event)
            except BlockingIOError:
                return None
            # What came between the two has rung before it was read.
            parts = self._feed.take()
        return None if parts is None else PeerMessage(MIRROR_SOURCE, parts)

    def watch(self) -> None:
        """Tell the feed what is held, and others how far that is, once a second."""
        now = time.monotonic()
        if now < self._report_at:
            return
        self._report_at = now + REPORT_S
        committed, durable = self._page.read_committed(), self._page.read_durable()[0]
        held = min(committed.position, durable.position)
        self._feed.tell_held(held)
        index = committed.index if self._page.has_committed() else Index(-1)
        status, lag = self._feed.look(index, committed.position, now)
        self._silent_s = lag.silent_s
        self._count(status, lag)
        report = _report(status, lag, held)
        if lag.silent_s is not None:
            self._told = report
        write_mirror_report(self._report, report)
        try:
            if now >= self._noted_at + NOTE_S:
                self._noted_at = now
                self._write_note()
        except StorageError as error:
            logger.warning("how far the mirror is, is not noted: %s", error)

    def _write_note(self) -> None:
        """Keep the last report for who promotes this mirror, perhaps after the machine was started
        anew.

        While no source has answered, what was noted before is the last word of it.
        """
        if self._told is not None:
            replace_file(self._note, json.dumps([self._told]).encode())

    def forget(self, node: NodeId) -> bool:
        """False: the source is not known by a disk."""
        return False

    def set_members(self, addresses: Mapping[NodeId, str]) -> None:
        """Do nothing: the members that the log names are those of the other site."""

    def check_new(self, node: NodeId) -> bool:
        """Refuse every new member.

        Raises:
            ConfigError: always.
        """
        raise ConfigError("a mirror has no members of its own", node=node, setting="mirror.sources")

    def check_level(self, node: NodeId) -> bool:
        return False

    def close(self) -> None:
        """End the feed."""
        self._feed.close()
        with suppress(StorageError):
            self._write_note()
        os.close(self._event)

    def _wake(self) -> None:
        os.eventfd_write(self._event, 1)

    def _check(self, state: SourceState) -> None:
        """Refuse a source of which this node may be no mirror; in the feed's thread.

        Raises:
            ConfigError: it is another group, or its files have another size.
        """
        node = self._settings.node
        if (state.cluster, state.group) != (node.broker_cluster_name, node.group):
            raise ConfigError(
                "the source is another group than this node's settings name",
                source=(state.cluster, state.group),
                settings=(node.broker_cluster_name, node.group),
            )
        if state.file_size not in (0, self._file_size):
            raise ConfigError(
                "the source's log has files of another size",
                size=state.file_size,
                expected=self._file_size,
                setting="store.mapped_file_size_commit_log",
            )
        if epoch_of(state.term) < epoch_of(self._term):
            raise ConfigError(
                "the source is a group that was left: a mirror of it was promoted, and this node"
                " has its log",
                epoch=epoch_of(state.term),
                epoch_here=epoch_of(self._term),
            )
        if state.file_size and state.first < 0:
            raise ProtocolError("a source has files and no entry", node=state.node)

    def _count(self, status: FeedStatus, lag: Lag) -> None:
        counters = self._counters
        counters[RaftCounter.MIRRORED_BYTES] = self._received_before + status.received
        counters[RaftCounter.MIRROR_LAG_MESSAGES] = lag.messages
        counters[RaftCounter.MIRROR_LAG_BYTES] = lag.size
        # Not known yet counts as long: nobody is to take it for none. 0 says a node that is none.
        seconds = time.monotonic() if lag.seconds is None else lag.seconds
        counters[RaftCounter.MIRROR_LAG_SECONDS] = max(1, math.ceil(seconds))


def _last_of(tail: LogTail) -> EntryId:
    """The last entry of a log that ends so."""
    index = Index(tail.before.index + sum(run.count for run in tail.runs))
    return EntryId(tail.runs[-1].term if tail.runs else tail.before.term, index)


def _report(status: FeedStatus, lag: Lag, held: Position) -> MirrorReport:
    state = status.state
    return MirrorReport(
        source=status.url,
        node="" if state is None else state.node,
        leads=state is not None and state.leads,
        hears=state is not None and state.hears,
        trouble=status.trouble,
        lag_messages=lag.messages,
        lag_bytes=lag.size,
        lag_s=None if lag.seconds is None else round(lag.seconds, 3),
        silent_s=None if lag.silent_s is None else round(lag.silent_s, 3),
        held=held,
        source_position=lag.known_position,
        source_index=lag.known_index,
        received_bytes=status.received,
        marked=status.mark,
        mark_trouble=status.mark_trouble,
        at_ms=time.time_ns() // 1_000_000,
    )
