"""Feature levels of the members, as their preambles have told: counted, and reported in a file."""

from __future__ import annotations

import logging
from pathlib import Path

from ledgermq.ipc.counters import Counts, RaftCounter
from ledgermq.members.level_report import write_levels
from ledgermq.model.features import LEVEL, MemberLevel
from ledgermq.model.ids import NodeId
from ledgermq.raft.status import CoreStatus
from ledgermq.raft_node.peers.peers import Peers

logger = logging.getLogger(__name__)

AWAY_AFTER_MS = 3_000
"""Who has said nothing to its leader for longer is away."""


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
        try:
            write_levels(self._path, members)
        except OSError as error:
            # People alone read it: whether a level may be put in force is decided by the counter.
            logger.warning("feature levels of the members are not reported: %s", error)

    def members(self, status: CoreStatus) -> list[MemberLevel]:
        """All members by name."""
        told = {**self._peers.levels, status.node: LEVEL}
        away = {one.peer for one in status.peers if one.silent_for > AWAY_AFTER_MS}
        return [
            MemberLevel(node=node, level=told.get(node), away=node in away)
            for node in sorted(status.membership.members)
        ]
