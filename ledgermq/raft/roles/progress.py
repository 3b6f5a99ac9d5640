"""Progress of one peer, as its leader knows it: match index, and appends in flight."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum

from ledgermq.model.ids import NO_INDEX, Index
from ledgermq.raft.timing import FlowLimits


class ProgressMode(StrEnum):
    """How a peer is fed."""

    PROBE = "probe"
    REPLICATE = "replicate"
    FILES = "files"


@dataclass(slots=True)
class Progress:
    """Invariant: ``match < next``.

    Attributes:
        next: the first entry that was not sent yet.
        match: last index that counts for a commit.
        mode: PROBE: where its log parts from ours is not known, heartbeats find out; REPLICATE:
            entries are sent ahead of replies; FILES: it needs what our log has no more.
        heard: tick of its last reply.
        round: the last heartbeat round that it has answered.
        fit: it says that it could lead.
        rewound: refusals of earlier rounds are from before ``next`` was set back.
    """

    next: Index
    heard: int
    match: Index = NO_INDEX
    mode: ProgressMode = ProgressMode.PROBE
    round: int = 0
    fit: bool = False
    rewound: int = 0
    inflight: deque[tuple[Index, int]] = field(default_factory=deque)
    inflight_bytes: int = 0

    def has_room(self, limits: FlowLimits) -> bool:
        """Whether one more append may be sent."""
        return (
            self.mode is ProgressMode.REPLICATE
            and not limits.is_held
            and len(self.inflight) < limits.inflight_count_max
            and self.inflight_bytes < limits.inflight_bytes_max
        )

    def sent(self, last: Index, size: int) -> None:
        """Entries up to ``last`` are under way, ``size`` bytes of them in one append."""
        assert self.mode is ProgressMode.REPLICATE and last >= self.next, (self, last)
        self.next = Index(last + 1)
        self.inflight.append((last, size))
        self.inflight_bytes += size

    def held(self, last: Index) -> None:
        """It holds the entries up to ``last``."""
        self.match = max(self.match, last)
        if last >= self.next:
            self.next = Index(last + 1)
        while self.inflight and self.inflight[0][0] <= last:
            self.inflight_bytes -= self.inflight.popleft()[1]

    def turn(self, mode: ProgressMode, following: Index) -> None:
        """Go on in ``mode`` from entry ``following`` on; what was under way is forgotten."""
        assert following > self.match, (self, following)
        self.mode = mode
        self.next = following
        self.inflight.clear()
        self.inflight_bytes = 0
