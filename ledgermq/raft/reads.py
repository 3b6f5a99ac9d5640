"""Linearizable reads by read index (thesis, section 6.4).

A leader notes its commit index, has a majority confirm in a round of heartbeats that begins
afterwards that it still leads, and answers. One round confirms all reads that came before it.
"""

from __future__ import annotations

from dataclasses import dataclass

from ledgermq.model.ids import Index, NodeId


@dataclass(frozen=True, slots=True)
class WaitingRead:
    """A read of ``reader`` that round ``round`` confirms."""

    read: int
    reader: NodeId
    index: Index
    round: int


class ReadRounds:
    """The reads that wait at a leader, in order of their rounds: ``waiting``."""

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
