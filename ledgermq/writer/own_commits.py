"""Commits of a writer that raft lets run: nobody else has to hold what it has written.

A run is of one term (``CursorPage.publish_run``). While it lasts the writer publishes ``committed``
in place of raft, behind ``written``, or behind ``durable`` where a commit waits for a sync: so a
message needs no other process of its node before it is answered. Whether the run lasts is looked at
with the fence held, and raft ends it so (docs/decisions/0133).
"""

from __future__ import annotations

from ledgermq.ipc.cursor_page import CursorPage, Role
from ledgermq.ipc.page_slots import lone_run
from ledgermq.ipc.run_fence import RunFence
from ledgermq.model.ids import Term
from ledgermq.process.environment import Environment, OrderBell

_UNSEEN = -1


class OwnCommits:
    """Owned by the writer process; all is called from its main thread."""

    def __init__(
        self, page: CursorPage, fence: RunFence, dispatcher: OrderBell, *, waits_for_sync: bool
    ) -> None:
        """Nothing is committed.

        Args:
            dispatcher: rung with each commit.
            waits_for_sync: what is durable is committed, and not what is written.
        """
        self._page = page
        self._fence = fence
        self._dispatcher = dispatcher
        self._waits_for_sync = waits_for_sync
        self._run = page.run_cell()
        written, durable, *_ = page.cursor_cells()
        self._held = durable if waits_for_sync else written
        self._seen: tuple[Term | None, int] = None, _UNSEEN

    def is_run(self, term: Term | None) -> bool:
        """Whether raft lets a writer that stamps in ``term`` commit by itself."""
        return term is not None and self._run[0] == lone_run(term)

    def has_news(self, term: Term | None) -> bool:
        """Whether there may be something to commit in ``term``."""
        return self.is_run(term) and self._seen != (term, self._held[0])

    def commit(self, term: Term | None) -> None:
        """Commit what this node holds, unless raft has ended the run."""
        # The cell first: what is held behind it is as new, or newer, and then committed again.
        self._seen = term, self._held[0]
        page = self._page
        held = page.read_durable()[0] if self._waits_for_sync else page.read_written()
        with self._fence:
            if not self.is_run(term) or held.position <= page.read_committed_position():
                return
            page.publish_committed(held)
        self._dispatcher.ring()

    def close(self) -> None:
        """Close the fence."""
        self._fence.close()


class DurableBell:
    """Who has to hear that more of the log is durable: raft, or in a run this very writer."""

    def __init__(self, environment: Environment) -> None:
        """To be made, rung and closed by one thread."""
        self._run = environment.page.run_cell()
        self._raft = environment.bell(Role.RAFT)
        self._writer = environment.bell(Role.WRITER)

    def ring(self) -> None:
        """Wake who commits what is durable now."""
        if self._run[0]:
            self._writer.ring()
        else:
            self._raft.ring()

    def close(self) -> None:
        """Disconnect."""
        self._raft.close()
        self._writer.close()
