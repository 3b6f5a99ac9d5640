"""Looks at what may be seen a little later than a message: disk, space, presence and levels.

What changes there goes to the core, and onto the page for whoever judges this node.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from ledgermq.ipc.counters import BrokerCounter, RaftCounter
from ledgermq.ipc.cursor_page import Role
from ledgermq.ipc.process_slots import Proof
from ledgermq.ipc.space_slots import SpaceState
from ledgermq.model.config.settings import Settings
from ledgermq.model.events import Event
from ledgermq.model.ids import NodeId
from ledgermq.process.environment import Environment
from ledgermq.raft.core import RaftCore
from ledgermq.raft.effects import Effects
from ledgermq.raft.messages import RaftRole
from ledgermq.raft.status import CoreStatus
from ledgermq.raft_node.alone import Alone
from ledgermq.raft_node.disk_watch import DiskWatch
from ledgermq.raft_node.entries.kept_log import KeptLog
from ledgermq.raft_node.member_levels import MemberLevels
from ledgermq.raft_node.peers.peers import Peers
from ledgermq.raft_node.raft_core import TICK_NS
from ledgermq.raft_node.replicated import Replicated
from ledgermq.raft_node.suggested_reader import SuggestedReader
from ledgermq.raft_node.writer_link import WriterLink

logger = logging.getLogger(__name__)

EVERY_NS = 100_000_000

LEVELS_EVERY_NS = 500_000_000
"""What members and the broker say of feature levels is looked at so often, and who may be read."""


class SlowLooks:
    """Owned by the raft process, which alone publishes ``proof``, ``absent`` and ``reader``.

    Attributes:
        due_ns: ``turn`` has something to do from then on.
    """

    def __init__(
        self,
        environment: Environment,
        core: RaftCore,
        peers: Peers,
        writer: WriterLink,
        log: Replicated | Alone,
        *,
        carry_out: Callable[[Effects], None],
    ) -> None:
        settings, page = environment.settings, environment.page
        self.due_ns = 0
        self._page = page
        self._core = core
        self._peers = peers
        self._writer = writer
        self._carry_out = carry_out
        self._kept = KeptLog(page, core, settings.retention, log)
        self._reader = SuggestedReader(page, silent_max=settings.raft.election_timeout_min_ms)
        self._disk = DiskWatch(
            sick_after_ms=settings.raft.disk_sick_after_ms, now_ns=environment.clock.monotonic_ns()
        )
        self._broker = page.counters(Role.BROKER)
        self._counters = page.counters(Role.RAFT)
        self._levels = MemberLevels(peers, self._counters, environment.paths.levels)
        self._levels_due_ns = 0
        self._is_full = False
        # The page may be older than this process.
        self._absent: Sequence[NodeId] = ()
        page.publish_absent(())
        self._count_copies(core.status())
        self._proof = page.read_proof()
        self._majority_ns = self._proof.majority_ns
        self._look_at_levels(core.status())

    def take_settings(self, settings: Settings) -> None:
        """The settings were read again: those of retention count from now on."""
        self._kept.take_settings(settings.retention)

    def role_changed(self) -> None:
        """Look soon; nobody reads at a follower of a node that leads no more."""
        self.due_ns = 0
        if self._core.role is not RaftRole.LEADER:
            self._reader.forget()

    def turn(self, now_ns: int) -> None:
        """Look, and say what has changed."""
        self.due_ns = now_ns + EVERY_NS
        self._peers.watch()
        absent = self._peers.absent
        if absent != self._absent:
            self._absent = absent
            self._page.publish_absent(absent)
        if self._broker[BrokerCounter.LEVEL_NEEDED] > 0:
            # A broker that was started again counts anew; the version stays what it is.
            self._carry_out(self._core.version_is_outdated())
        if now_ns >= self._levels_due_ns or self._levels.has_news:
            self._levels_due_ns = now_ns + LEVELS_EVERY_NS
            status = self._core.status()
            self._look_at_levels(status)
            self._count_copies(status)
            if status.role is RaftRole.LEADER:
                self._reader.look(status)
        trouble = self._disk.look(self._page, now_ns)
        if trouble is not None:
            event = Event.DISK_SICK if trouble else Event.DISK_WELL
            logger.warning("disk: %s", trouble or "well again", extra={"event": event})
            self._carry_out(self._core.disk_is_sick(self._disk.is_sick))
        self._look_at_space(now_ns)
        self._publish_proof(now_ns)

    def _look_at_levels(self, status: CoreStatus) -> None:
        """Say which feature level all members know; let in nobody who lacks the one in force."""
        self._levels.look(status)
        self._peers.need_level(self._broker[BrokerCounter.FEATURE_LEVEL])

    def _count_copies(self, status: CoreStatus) -> None:
        """Publish whether a witness without bodies is leant on, and how many copies there are."""
        self._counters[RaftCounter.LEANS_ON_WITNESS] = int(status.leans)
        self._counters[RaftCounter.COPIES] = status.copies or 0

    def _look_at_space(self, now_ns: int) -> None:
        """A full disk is no place for a leader, and old files go when nobody needs them."""
        space = self._page.read_space()
        is_full = space.state is not SpaceState.ROOMY
        if is_full != self._is_full:
            self._is_full = is_full
            self._carry_out(self._core.disk_is_full(is_full))
        if not (self._kept.wants_turn and self._writer.is_settled):
            return
        first = self._kept.turn(now_ns)
        if first is not None:
            if first > 0:
                self._carry_out(self._core.log_compacted(first))
            self._writer.ring()

    def _publish_proof(self, now_ns: int) -> None:
        """Publish what the node's health is judged by: nothing is asked or written for it."""
        heard = self._core.majority_heard(now_ns // TICK_NS)
        if heard is not None:
            # In an election what was heard before it stands, and grows old.
            self._majority_ns = max(self._majority_ns, heard * TICK_NS)
        proof = Proof(self._majority_ns, self._disk.is_sick, self._core.lacks_entries)
        if proof != self._proof:
            self._proof = proof
            self._page.publish_proof(proof)
