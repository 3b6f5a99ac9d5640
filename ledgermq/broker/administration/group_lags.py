"""Lags of all groups, found a part at a time.

There may be thousands of groups, and to look at a queue takes microseconds: whoever asks gets the
figures that are known, and makes this look at the next few, in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from ledgermq.rules.tables.group_offsets import GroupOffsets, GroupTopic

TOPICS_PER_LOOK_MAX = 250
"""Pairs of group and topic that one question looks at: some thousand queues at most."""


class TopicLag(NamedTuple):
    """A group in a topic: messages that wait for it, and the sum of its offsets."""

    lag: int
    consumed: int


Lag = Callable[[str, Mapping[int, int]], int]


class GroupLags:
    """What is known of all groups' lag.

    Invariant: ``_found`` has no group of which no offset was known when the last round began.
    """

    def __init__(self, offsets: GroupOffsets, lag: Lag) -> None:
        """Nothing is known yet.

        Args:
            offsets: of all groups.
            lag: messages that wait in a topic, behind offsets by queue.
        """
        self._offsets = offsets
        self._lag = lag
        self._found: dict[GroupTopic, TopicLag] = {}
        self._waiting: list[GroupTopic] = []
        self.is_complete = False
        """Whether every group was looked at once."""

    def look(self) -> None:
        """Look at the next few."""
        left = TOPICS_PER_LOOK_MAX
        if not self._waiting:
            self._begin_round()
        while self._waiting and left:
            owner = self._waiting.pop()
            offsets = self._offsets.offsets(owner.group, owner.topic)
            if offsets:
                lag = self._lag(owner.topic, offsets)
                self._found[owner] = TopicLag(lag, sum(offsets.values()))
            else:
                self._found.pop(owner, None)
            left -= 1
        if not self._waiting:
            self.is_complete = True

    def by_group(self) -> dict[str, dict[str, TopicLag]]:
        """What was found last, by group and topic."""
        groups: dict[str, dict[str, TopicLag]] = {}
        for owner, found in self._found.items():
            groups.setdefault(owner.group, {})[owner.topic] = found
        return groups

    def _begin_round(self) -> None:
        self._waiting = [owner for owner, _ in self._offsets]
        for gone in self._found.keys() - set(self._waiting):
            del self._found[gone]
