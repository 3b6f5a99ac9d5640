"""Leadership: the state that a node has only while it leads."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum

from ledgermq.model.ids import NO_INDEX, Index, NodeId
from ledgermq.raft.membership import Membership
from ledgermq.raft.roles.progress import Progress


@dataclass(frozen=True, slots=True)
class WaitingRead:
    """A read of ``reader`` that round ``round`` confirms."""

    read: int
    reader: NodeId
    index: Index
    round: int


class ReadRounds:
    """Reads by read index (thesis, section 6.4): ``waiting``, in the order of their rounds.

    A leader notes its commit index, has a majority confirm in a round of heartbeats that begins
    afterwards that it still leads, and answers. One round confirms all reads that came before it.
    """

    def __init__(self) -> None:
        self.waiting: list[WaitingRead] = []

    def add(self, read: WaitingRead) -> None:
        """Answer ``read`` when its round is confirmed."""
        assert not self.waiting or self.waiting[-1].round <= read.round, read
        self.waiting.append(read)

    def confirmed(self, round_: int) -> list[WaitingRead]:
        """Take the reads that ``round_`` confirms."""
        count = 0
        while count < len(self.waiting) and self.waiting[count].round <= round_:
            count += 1
        taken, self.waiting = self.waiting[:count], self.waiting[count:]
        return taken

    def is_idle(self) -> bool:
        """Whether no read waits."""
        return not self.waiting

    def needs_round(self, sent: int) -> bool:
        """Whether a read waits for a round that was not begun yet."""
        return bool(self.waiting) and self.waiting[-1].round > sent

    def take_all(self) -> list[WaitingRead]:
        """Take the reads that will never be confirmed: this leader's time is over."""
        taken, self.waiting = self.waiting, []
        return taken


ROUNDS_KEPT = 64
"""A majority that has answered none of so many rounds has answered none in an election timeout."""


class TransferStage(StrEnum):
    """How far a hand-over is."""

    CATCHING_UP = "target catches up"
    DRAINING = "writer stopped, target takes the rest"
    TOLD = "target was told to campaign"


@dataclass(slots=True)
class Transfer:
    """A hand-over under way.

    Attributes:
        hurried: our disk is sick: the writer's answer is not waited for, and there is no way back.
    """

    target: NodeId
    deadline: int
    hurried: bool
    stage: TransferStage = TransferStage.CATCHING_UP


@dataclass(slots=True)
class Attesting:
    """What a leader knows of those who hold bodies, while a witness of its group holds none.

    Attributes:
        leans: too few of them keep up, and a witness counts in the place of one.
        kept_up: their match at the last look, and when each was last heard of while it kept up.
        held: what we held at the last look.
        told: the last entry that a witness was told of in this term, whether it knows or not.
    """

    leans: bool = False
    kept_up: dict[NodeId, tuple[Index, int]] = field(default_factory=dict)
    held: Index = NO_INDEX
    told: Index = NO_INDEX


@dataclass(slots=True)
class Leadership:
    """Volatile state of a leader (Raft paper, figure 2).

    Attributes:
        term_begin: index of the first entry of this term; None until the writer has the grant.
        round: number of the last round of heartbeats.
        begun: the last rounds, each with the tick at which it began.
        sure_round: the last one that a majority of ``sure_of`` has answered, and no later one has
            begun; until ``sure_until`` nobody else is elected by them.
        sure_by_run: tick until which nobody else is elected by what the writer has heard.
        change_proposed: a membership is on its way into the log.
        attesting: None in a group whose voters all hold bodies.
    """

    began: int
    progress: dict[NodeId, Progress]
    next_preferred: int
    preferred_wait: int
    term_begin: Index | None = None
    next_heartbeat: int = 0
    round: int = 0
    begun: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=ROUNDS_KEPT))
    sure_round: int = 0
    sure_of: Membership | None = None
    sure_until: int = 0
    sure_by_run: int = 0
    reads: ReadRounds = field(default_factory=ReadRounds)
    transfer: Transfer | None = None
    change_proposed: bool = False
    attesting: Attesting | None = None
