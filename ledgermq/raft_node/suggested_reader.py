"""Choice of the follower to which readers of old messages are sent.

One that takes the log in order, has answered lately, and holds all that was committed at the last
look: what a consumer has read at the leader it finds there, too. Who asks it for more than it has
is told so, and comes back to the leader.
"""

from __future__ import annotations

from ledgermq.ipc.cursor_page import CursorPage
from ledgermq.model.ids import Index, NodeId
from ledgermq.raft.roles.progress import ProgressMode
from ledgermq.raft.status import CoreStatus, PeerStatus

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
