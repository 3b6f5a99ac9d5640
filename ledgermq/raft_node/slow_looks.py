"""Looks at what may be seen a little later than a message: disk, space, presence, levels, and how
much of the log is kept.

What changes there goes to the core, and onto the page for whoever judges this node.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from ledgermq.ipc.counters import BrokerCounter, Counts, RaftCounter
from ledgermq.ipc.cursor_page import CursorPage, Role
from ledgermq.ipc.page_slots import HeldBy, Proof, SpaceState
from ledgermq.members.reports import write_levels
from ledgermq.model.config.amounts import amount
from ledgermq.model.config.settings import RetentionSection, Settings
from ledgermq.model.events import Event
from ledgermq.model.features import LEVEL, MemberLevel
from ledgermq.model.ids import Index, NodeId, Position
from ledgermq.process.environment import Environment
from ledgermq.process.flush_watch import FlushWatch
from ledgermq.raft.core import RaftCore
from ledgermq.raft.effects import Effects
from ledgermq.raft.messages import RaftRole
from ledgermq.raft.roles.progress import ProgressMode
from ledgermq.raft.status import CoreStatus, PeerStatus
from ledgermq.raft.timing import TICK_NS
from ledgermq.raft_node.alone import Alone
from ledgermq.raft_node.peers.peers import Peers
from ledgermq.raft_node.replicated import Replicated
from ledgermq.raft_node.writer_link import WriterLink

logger = logging.getLogger(__name__)

MEMBERS_LOOK_NS = 1_000_000_000

AWAY_AFTER_MS = 3_000
"""Who has said nothing to its leader for longer is away."""


class KeptLog:
    """Release of the log: up to where raft lets the writer delete it; alone publishes ``released``.

    The writer publishes where the log is to begin. A leader keeps what a member lacks that is not
    further behind than ``retention.keep_for_members``, and files that it ships; whoever is further
    behind is shipped files (docs/decisions/0008-shipping-files.md). Nothing before the position
    that is published here is read by this process any more.

    Invariant: ``released`` grows, but for a new raft process, which begins at 0.
    """

    def __init__(
        self,
        page: CursorPage,
        core: RaftCore,
        settings: RetentionSection,
        log: Replicated | Alone,
    ) -> None:
        """Hold on to the whole log: what the process before this one had let go is read again."""
        self._page = page
        self._core = core
        self._settings = settings
        self._log = log
        self._released = Position(0)
        self._held_by = HeldBy.NOBODY
        self._looked_ns = 0
        page.publish_released(self._released, self._held_by)

    def take_settings(self, settings: RetentionSection) -> None:
        """The settings have changed."""
        self._settings = settings
        self._looked_ns = 0

    @property
    def wants_turn(self) -> bool:
        """Whether the writer waits for more than was let go."""
        return self._page.read_log_begin().wanted > self._released

    def turn(self, now_ns: int) -> Index | None:
        """Let go of what is to be deleted; the log's first entry then, None when nothing changed.

        To be called while no handshake with the writer is under way. In a plain log the first
        entry is never asked for: -1.

        Raises:
            CorruptLogError, StorageError: the log cannot be read.
        """
        wanted = self._page.read_log_begin().wanted
        if wanted <= self._released or now_ns - self._looked_ns < MEMBERS_LOOK_NS:
            return None
        self._looked_ns = now_ns
        released, held_by = wanted, HeldBy.NOBODY
        if self._core.role is RaftRole.LEADER:
            released, held_by = self._log.needed_before(wanted, self._within(), now_ns)
        if (released, held_by) == (self._released, self._held_by):
            return None
        first = self._log.forget_before(released)
        if first > self._core.commit + 1:
            # After a start nothing is known to be committed yet.
            return None
        self._released, self._held_by = max(released, self._released), held_by
        self._page.publish_released(self._released, held_by)
        return first

    def _within(self) -> int:
        """Who lacks what stands before this position gets files."""
        keep = amount(self._settings.keep_for_members).of(self._page.read_space().total)
        return max(0, self._page.read_written().position - keep)


class MemberLevels:
    """Owned by the raft process, which alone writes the report."""

    def __init__(self, peers: Peers, counters: Counts, path: Path) -> None:
        """``path`` is that of the report."""
        self._peers = peers
        self._counters = counters
        self._path = path
        self._reported: list[MemberLevel] | None = None
        self._seen: dict[NodeId, int] = {}

    @property
    def has_news(self) -> bool:
        """Whether a member has told another level since ``look``."""
        return self._peers.levels != self._seen

    def look(self, status: CoreStatus) -> None:
        """Count the highest level that all know, and report what each does where that changed.

        Who was not heard of counts as one that knows none.
        """
        self._seen = dict(self._peers.levels)
        members = self.members(status)
        self._counters[RaftCounter.MEMBERS_LEVEL] = min(
            (one["level"] or 0 for one in members), default=0
        )
        if members == self._reported:
            return
        self._reported = members
        # People alone read it: whether a level may be put in force is decided by the counter.
        write_levels(self._path, members)

    def members(self, status: CoreStatus) -> list[MemberLevel]:
        """All members by name."""
        told = {**self._peers.levels, status.node: LEVEL}
        away = {one.peer for one in status.peers if one.silent_for > AWAY_AFTER_MS}
        return [
            MemberLevel(node=node, level=told.get(node), away=node in away)
            for node in sorted(status.membership.members)
        ]


NOBODY = NodeId("")


class SuggestedReader:
    """Owned by the raft process; publishes its choice in the page."""

    def __init__(self, page: CursorPage, *, silent_max: int) -> None:
        """Nobody is suggested at first.

        Args:
            silent_max: ticks; a member that was not heard of for longer is not suggested.
        """
        self._page = page
        self._silent_max = silent_max
        self._commit = Index(0)
        self._chosen = NOBODY
        page.publish_reader(NOBODY)

    def look(self, status: CoreStatus) -> None:
        """Choose again, by what the core says now; the one chosen before stays while it can."""
        able = sorted(peer.peer for peer in status.peers if self._is_able(peer, status))
        self._commit = status.commit
        if self._chosen not in able:
            self._choose(able[0] if able else NOBODY)

    def forget(self) -> None:
        """This node does not lead."""
        self._choose(NOBODY)

    def _choose(self, node: NodeId) -> None:
        if node != self._chosen:
            self._chosen = node
            self._page.publish_reader(node)

    def _is_able(self, peer: PeerStatus, status: CoreStatus) -> bool:
        members = status.membership
        return (
            peer.peer in members.voters | members.learners
            and peer.peer not in members.witnesses
            and peer.mode is ProgressMode.REPLICATE
            and peer.silent_for <= self._silent_max
            and peer.match >= self._commit
        )


LOOK_NS = 100_000_000
BLINK_NS = 1_500_000_000
"""Who did not look for so long was stopped itself, perhaps with the whole machine."""


class DiskWatch:
    """Sick after ``sick_after_ms`` without progress; well after as long without half of that."""

    def __init__(self, *, sick_after_ms: int, now_ns: int) -> None:
        self.is_sick = False
        self._limit_ms = sick_after_ms
        self._flushes = FlushWatch()
        self._looked_ns = now_ns
        self._look_from_ns = now_ns
        self._late_ns = now_ns

    def look(self, page: CursorPage, now_ns: int) -> str | None:
        """What is wrong, or an empty text, when that has changed; None when it has not."""
        if now_ns - self._looked_ns < LOOK_NS:
            return None
        if now_ns - self._looked_ns > BLINK_NS:
            self._look_from_ns = now_ns
        self._looked_ns = now_ns
        unflushed_ms = self._flushes.waiting_ms(page, now_ns)
        unflushed_ms = min(unflushed_ms, (now_ns - self._look_from_ns) // 1_000_000)
        silent_ms = self._silence_ms(page, now_ns)
        if max(unflushed_ms, silent_ms) * 2 >= self._limit_ms:
            self._late_ns = now_ns
        if self.is_sick:
            if (now_ns - self._late_ns) // 1_000_000 < self._limit_ms:
                return None
            self.is_sick = False
            return ""
        if max(unflushed_ms, silent_ms) < self._limit_ms:
            return None
        self.is_sick = True
        if unflushed_ms >= silent_ms:
            return f"what was written is not durable after {unflushed_ms} ms"
        return f"the writer gave no sign of life for {silent_ms} ms"

    def _silence_ms(self, page: CursorPage, now_ns: int) -> int:
        """How long the writer has been silent; one that was never there is not looked at."""
        slot = page.read_process(Role.WRITER)
        if not slot.beat_ns:
            return 0
        return max(0, now_ns - max(slot.beat_ns, self._look_from_ns)) // 1_000_000


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
