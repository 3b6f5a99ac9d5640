"""Invariants of a share group: each message at least once, and never again once it was accepted; of
one that goes by keys, the messages of each in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import count

from tests.simulator.checks.checker import require

QueueOffset = tuple[int, int]
FreshOf = Mapping[int, range]
"""By queue, offsets of messages that nobody has looked at."""


@dataclass(slots=True)
class HandedOut:
    """One delivery of a message, as an answer has told it.

    Attributes:
        until: it is its consumer's alone up to then, epoch ms.
        key: None: it waits for no other.
        is_given_back: that was asked for, and may have come through.
    """

    handle: str
    place: QueueOffset
    delivery: int
    until: int
    key: str | None = None
    is_given_back: bool = False


class ShareChecker:
    """Knows what the members of one group were handed, and what they were told.

    Attributes:
        latest_ms: the latest time of day that any node's clock has shown.
        handed: messages that somebody was handed.
        accepted: when, in the order of all that is asked, who accepted a message was told so.
        late: deliveries that were over when they were to be settled.
        again: messages that were handed out more than once.
        is_ordered: the group goes by keys.
        has_priorities: the topic's highest queue comes first.
        keyed: by queue and key, messages that somebody was handed, and when at first.
    """

    def __init__(self) -> None:
        self.latest_ms: Callable[[], int] = lambda: 0
        self.handed: set[QueueOffset] = set()
        self.accepted: dict[QueueOffset, int] = {}
        self.late = 0
        self.again: set[QueueOffset] = set()
        self.is_ordered = self.has_priorities = False
        self.keyed: dict[tuple[int, str], dict[QueueOffset, int]] = {}
        self._handles: set[str] = set()
        self._asked: set[QueueOffset] = set()
        self._doubtful: set[QueueOffset] = set()
        self._order = count()

    def now(self) -> int:
        """The place of what is asked now in the order of all that is."""
        return next(self._order)

    def hands_out(self, one: HandedOut, asked_at: int) -> None:
        """An answer to what was asked then has this message."""
        require(one.handle not in self._handles, "a delivery is one member's", one)
        accepted_at = self.accepted.get(one.place)
        is_sound = accepted_at is None or accepted_at > asked_at
        require(is_sound, "what was accepted is not handed out again", one, accepted_at, asked_at)
        if self.is_ordered and one.key is not None:
            self._check_order(one, self.keyed.setdefault((one.place[0], one.key), {}), asked_at)
        self._handles.add(one.handle)
        if one.place in self.handed:
            self.again.add(one.place)
        self.handed.add(one.place)

    def _check_order(self, one: HandedOut, handed: dict[QueueOffset, int], asked_at: int) -> None:
        before = [place for place in handed if place < one.place]
        is_sound = all(place in self._asked for place in before)
        require(is_sound, "those before it are settled first", one, before)
        # What was handed out since may come before its answer.
        behind = [place for place, at in handed.items() if place > one.place and at < asked_at]
        require(not behind, "what is behind it waits for it", one, behind)
        handed.setdefault(one.place, self.now())

    def goes_by_priority(
        self, before: FreshOf, given: Iterable[QueueOffset], after: FreshOf
    ) -> None:
        """A receive was given these, and messages were new in each queue before and after it.

        What is new there before it, and is not looked at behind it, was not handed out meanwhile,
        nor to it.
        """
        waited = {
            queue
            for queue, fresh in before.items()
            if fresh and queue in after and after[queue].start < fresh.stop
        }
        for place in given:
            higher = [queue for queue in waited if queue > place[0]]
            require(not higher, "what is higher comes first", place, before, after)

    def asks(self, one: HandedOut) -> None:
        """Somebody accepts that message."""
        self._asked.add(one.place)

    def forgets(self, held: Iterable[HandedOut]) -> None:
        """A member knows nothing any more of what it had: of what it has asked to accept nobody is
        told whether it is done.
        """
        self._doubtful |= self._asked.intersection(one.place for one in held)

    def accepts(self, one: HandedOut, *, by_other: bool) -> None:
        """It is acknowledged that the message is done with, perhaps by another delivery of it."""
        require(not by_other or one.place in self._asked, "settled is what was accepted", one)
        self.accepted.setdefault(one.place, self.now())

    def is_over(self, one: HandedOut) -> None:
        """A delivery was refused as over."""
        self.late += 1
        is_late = one.is_given_back or one.until <= self.latest_ms()
        require(is_late, "a handle is good before its time", one, self.latest_ms())

    def missing(self, ends: dict[int, int]) -> list[str]:
        """Messages below these ends of queues that nobody has accepted yet."""
        known = self.accepted.keys() | self._doubtful
        return [
            f"{queue}/{offset} is not accepted"
            for queue, end in ends.items()
            for offset in range(end)
            if (queue, offset) not in known
        ]
