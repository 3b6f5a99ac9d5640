"""Turns of groups that may all take a message: each as often as its measured time allows.

Smooth weighted round robin: a turn adds each group's weight to its credit, takes the group with the
most of it, and takes the sum of all weights from that one's. A group's weight is 1 / (time of an
acknowledgement).

No I/O; times are handed in, by one clock.
"""

from __future__ import annotations

from collections.abc import Sequence

TURN_S = 0.001
"""Messages that come so soon after one another go to one group: they share its frames."""

WATCHED_EVERY_S = 0.02
"""Shortest time between two sends to one group that are timed."""

TIME_S_AT_FIRST = 0.002
"""Time of an acknowledgement that a group is taken to need before a send to it was timed."""

NEWEST_SHARE = 0.3
"""What the newest time counts in the average."""

SHARE_MIN = 1 / 64
"""No group's weight is less of the fastest one's: else nobody would see that it is fast again."""

STILL_S = 0.1
STILL_TIMES = 10
"""A group whose watched send waits for longer than both (the second one in times of the fastest)
gets nothing until that one has an outcome."""

NEVER_STORED = float("-inf")


class GroupTime:
    """How long acknowledgements of one group take.

    Attributes:
        average_s: of the watched sends that have an outcome.
        credit: in the turns.
        stored_at: when one of the watched sends was stored last; ``NEVER_STORED``: none was.
    """

    def __init__(self) -> None:
        self.average_s = TIME_S_AT_FIRST
        self.credit = 0.0
        self.stored_at = NEVER_STORED
        self._begun_at: float | None = None
        self._next_at = 0.0

    def begins(self, now: float) -> bool:
        """Whether to watch the send that begins now; then ``ends`` is called with its outcome."""
        if self._begun_at is not None or now < self._next_at:
            return False
        self._begun_at = now
        return True

    def ends(self, now: float, *, is_stored: bool) -> None:
        """The watched send has an outcome; what was not stored tells of no time."""
        begun_at, self._begun_at = self._begun_at, None
        self._next_at = now + WATCHED_EVERY_S
        if begun_at is not None and is_stored:
            self.average_s += NEWEST_SHARE * (now - begun_at - self.average_s)
            self.stored_at = now

    def seconds(self, now: float) -> float:
        """The time that is to be expected: that of a send without an outcome is its age, so far."""
        return max(self.average_s, self.waits_s(now), 1e-6)

    def waits_s(self, now: float) -> float:
        """For how long the watched send has no outcome."""
        begun_at = self._begun_at  # of which another thread may just have the outcome
        return 0.0 if begun_at is None else now - begun_at


def next_turn(groups: Sequence[GroupTime], now: float) -> int:
    """Which of these groups takes the next messages; there is one at least."""
    fastest = min(one.seconds(now) for one in groups)
    still = max(STILL_S, STILL_TIMES * fastest)
    total, chosen = 0.0, -1
    for number, one in enumerate(groups):
        if one.waits_s(now) > still:
            continue
        weight = max(fastest / one.seconds(now), SHARE_MIN)
        total += weight
        one.credit += weight
        if chosen < 0 or one.credit > groups[chosen].credit:
            chosen = number
    if chosen < 0:
        # The fastest one waits for less than it is allowed to, unless the clock was wrong.
        return 0
    groups[chosen].credit -= total
    return chosen
