"""Release of the log: up to where raft lets the writer delete it.

The writer publishes where the log is to begin. A leader keeps what a member lacks that is not
further behind than ``retention.keep_for_members``, and files that it ships; whoever is further
behind is shipped files (docs/decisions/0008-shipping-files.md). Nothing before the position that is
published here is read by this process any more.
"""

from __future__ import annotations

from ledgermq.ipc.cursor_page import CursorPage
from ledgermq.ipc.space_slots import HeldBy
from ledgermq.model.config.amounts import amount
from ledgermq.model.config.settings import RetentionSection
from ledgermq.model.ids import Index, Position
from ledgermq.raft.core import RaftCore
from ledgermq.raft.messages import RaftRole
from ledgermq.raft_node.alone import Alone
from ledgermq.raft_node.replicated import Replicated

MEMBERS_LOOK_NS = 1_000_000_000


class KeptLog:
    """Owned by the raft process, which alone publishes ``released``.

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
