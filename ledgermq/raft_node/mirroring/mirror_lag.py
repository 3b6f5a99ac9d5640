"""Lag of a mirror: what the source is known to have committed, and this node has not.

In time it goes by this machine's monotonic clock alone: what a source has told is noted with when
it came, and the lag is the age of the latest word of which everything is here. So it grows, too,
while no source answers, and is a bound of what would be missing if none ever did.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from ledgermq.model.ids import NO_INDEX, Index, Position

WORDS_MAX = 1_024
"""Words of the source that are kept; of more, every second one goes: the lag may be told as more
than it is, and never as less."""


class Lag(NamedTuple):
    """How far a mirror is behind.

    Attributes:
        messages: entries that it lacks, those of the system among them.
        size: their bytes.
        seconds: since it had all that the source had then; None: not since this process began.
        silent_s: since a source answered last; None: not since this process began.
        known_index, known_position: the furthest that the source is known to have committed; -1
            and 0: nothing is known.
    """

    messages: int
    size: int
    seconds: float | None
    silent_s: float | None
    known_index: Index
    known_position: Position


class MirrorLag:
    """Owned by the raft process. Invariant: words are in the order of time, and so are indexes."""

    def __init__(self) -> None:
        """Nothing was heard yet."""
        self._words: deque[tuple[float, Index]] = deque()
        self._complete_at: float | None = None
        self._heard_at: float | None = None
        self.index: Index = NO_INDEX
        self.position = Position(0)

    def remember(self, index: Index, position: Position) -> None:
        """The source was known to have that before this process began."""
        self.index, self.position = index, position

    def heard(self, index: Index, position: Position, now: float, *, hears: bool) -> None:
        """A member of the source has said that it has committed up to there.

        What another one has said before stays: this one may be behind, and its word tells nothing.

        Args:
            hears: that member hears a leader: what it says is all that there is.
        """
        self._heard_at = now
        if index < self.index:
            return
        if not hears:
            if index > self.index:
                self.index, self.position = index, position
            return
        if index == self.index and self._words:
            # The same end at a later time: who has it has all that there was then.
            self._words[-1] = (now, index)
        else:
            self._words.append((now, index))
        self.index, self.position = index, position
        if len(self._words) > WORDS_MAX:
            self._words = deque(list(self._words)[1::2])

    def look(self, held: Index, held_position: Position, now: float) -> Lag:
        """The lag of a mirror that holds everything up to ``held``."""
        words = self._words
        while words and words[0][1] <= held:
            self._complete_at = words.popleft()[0]
        complete, heard = self._complete_at, self._heard_at
        return Lag(
            max(0, self.index - held),
            max(0, self.position - held_position),
            None if complete is None else max(0.0, now - complete),
            None if heard is None else max(0.0, now - heard),
            self.index,
            self.position,
        )
