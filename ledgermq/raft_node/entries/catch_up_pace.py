"""Pace of entries to members that lag, beside what producers wait for.

A member lags when the group commits without it: what was sent to it ends far before what is
committed.

While producers send, a lagging member gets

* as many bytes as the log grows by, and ``raft.catch_up_bytes_per_s`` beside: so fast does it come
  nearer, however busy they are;
* beside that one short frame every ``PAUSE_TICKS``, when nobody waits for a commit and nothing else
  is under way to it: what the group has left, and less where others work, since its answers come
  later then.

All others get what the core lets be under way, as do all while producers are idle. Where a majority
needs who lags, they soon are: nothing is acknowledged, and what they may have under way is used up.
No clock: time is the core's tick.
"""

from __future__ import annotations

from dataclasses import dataclass

from ledgermq.model.ids import Position

TICKS_PER_S = 1_000
PAUSE_TICKS = 5
"""Two short frames are so far apart: a message that is sent by itself, and hardly ever in the log
without a commit, would wait for each of them otherwise."""

LOOK_TICKS = 100
IDLE_PARTS = 256
"""Producers are idle if the log has grown by less than such a part of a frame within
``LOOK_TICKS``: consumers' offsets and locks are small."""


@dataclass(slots=True)
class LaggingMember:
    """A member that lags.

    Attributes:
        credit: bytes that it may be sent.
        reached: up to where it was sent entries. What has to be sent again takes nothing from its
            credit, or it might never come nearer.
        rested: tick from which on it may have a short frame.
    """

    credit: float = 0.0
    reached: int = 0
    rested: int = 0


class CatchUpPace:
    """Owned by a leader's ``EntrySender``.

    Invariant: while producers send, all that a lagging member gets in one event is as much as the
    log has grown since the last event, its bytes for the time since then, at most ``window_bytes``
    that were left over, and less than one more frame, or entry that is larger.

    Attributes:
        lagging: who lags; while it is empty nothing has to be asked before a send.
    """

    def __init__(
        self, *, window_bytes: int, frame_bytes: int, short_frame_bytes: int, bytes_per_s: int
    ) -> None:
        """Nobody lags.

        Args:
            window_bytes: as many may be under way to a member. Who is nearer is not paced, and no
                more is left over of what a member could not take.
            frame_bytes: of a frame to members that do not lag.
            short_frame_bytes: of one to a member that does, out of what is left over.
            bytes_per_s: by which a lagging member comes nearer, if it takes them.
        """
        self._window_bytes = window_bytes
        self._frame_bytes = frame_bytes
        self._short_frame_bytes = short_frame_bytes
        self._bytes_per_tick = bytes_per_s / TICKS_PER_S
        self._idle_bytes = frame_bytes // IDLE_PARTS
        self.lagging: dict[str, LaggingMember] = {}
        self._end: Position | None = None
        self._now = self._looked = 0
        self._grown = 0
        self._is_busy = False

    def frame_bytes(self, peer: str) -> int:
        """Most bytes of the frame that ``peer`` may be sent now; a larger entry goes alone."""
        lagging = self.lagging.get(peer)
        if lagging is None or not self._is_busy or lagging.credit > 0:
            return self._frame_bytes
        return self._short_frame_bytes

    def note(self, now: int, end: Position) -> None:
        """The log ends at ``end``; to be told first in each event while somebody lags."""
        grown = passed = 0
        if self._end is not None:
            # The first event since somebody lags brings nothing: before it nothing was counted.
            grown, passed = max(0, end - self._end), max(0, now - self._now)
        self._now, self._end = max(self._now, now), end
        earned = grown + self._bytes_per_tick * passed
        for lagging in self.lagging.values():
            lagging.credit = min(lagging.credit, self._window_bytes) + earned
        self._grown += grown
        passed = now - self._looked
        if passed >= LOOK_TICKS:
            # Over all of that time: nobody may have asked meanwhile.
            self._is_busy = self._grown * LOOK_TICKS >= self._idle_bytes * passed
            self._looked, self._grown = now, 0

    def allows(self, peer: str, *, is_awaited: bool, under_way: int) -> bool:
        """Whether ``peer`` may be sent a frame now.

        Args:
            is_awaited: whether the log has entries that are not committed.
            under_way: frames to ``peer`` without an answer.
        """
        lagging = self.lagging.get(peer)
        if lagging is None or not self._is_busy:
            return True
        if lagging.credit > 0:
            return True
        return not (is_awaited or under_way) and self._now >= lagging.rested

    def sent(self, peer: str, *, begin: Position, end: Position, committed: Position) -> None:
        """``peer`` was sent what stands from ``begin`` to ``end``; the log is committed so far.

        A frame is whole, whatever the credit: the next ones wait for what it was too large by.
        """
        if committed - end <= self._window_bytes:
            self.lagging.pop(peer, None)
            return
        if not self.lagging:
            self._end = None
        lagging = self.lagging.setdefault(peer, LaggingMember())
        if lagging.credit <= 0:
            lagging.rested = self._now + PAUSE_TICKS
        fresh = max(0, end - max(begin, lagging.reached))
        lagging.reached = max(lagging.reached, end)
        lagging.credit = max(lagging.credit - fresh, -float(self._frame_bytes))

    def forget(self) -> None:
        """Another term has begun: who lags is known anew by what is sent next."""
        self.lagging.clear()
        self._end = None
