"""Groups that have a topic, with the queues that take messages in each."""

from __future__ import annotations

from typing import NamedTuple

from ledgermq.client.clusters.told_topics import ToldTopic
from ledgermq.client.core.link import NEVER
from ledgermq.formats.java_hash import java_hash


class GroupQueue(NamedTuple):
    """One queue of a topic in one group."""

    group: str
    queue_id: int


class TopicGroups(NamedTuple):
    """What the groups, and the cluster's rows, have said of a topic.

    Attributes:
        queues: by the names of groups that take messages of it: how many queues, in the order of
            the names.
        unheard: groups of which nobody has said yet whether they have it.
        has_row: it is known what the rows say, or that none is about the topic.
        is_over: they say over which groups it is.
        fails_over: and that a message may be sent to another one when one has not stored it.
        by_row: what keys go by where the topic is over groups: the queues that take messages by
            the row alone, of the groups that are known. It changes at once for all groups, while
            these follow one after the other, and are heard when it comes.
        good_until: keys go by the row until then.
    """

    queues: dict[str, int]
    unheard: tuple[str, ...]
    has_row: bool = True
    is_over: bool = False
    fails_over: bool = False
    by_row: dict[str, int] | None = None
    good_until: float = NEVER

    @classmethod
    def of(
        cls, said: dict[str, int | None], row: ToldTopic | None, *, good_until: float = NEVER
    ) -> TopicGroups:
        """What is known of a topic.

        Args:
            said: by each group of itself; 0: it takes no messages of the topic; None: nothing yet.
            row: what the rows say; None: nobody has told it yet. Where they say over which groups
                a topic is, others that have one of its name do not count; and what a group has
                not said itself is as the row says.
            good_until: keys go by the row until then.
        """
        names, found = sorted(said), dict(said)
        is_over = row is not None and bool(row.queues)
        by_row = None
        if row is not None and is_over:
            by_row = {name: queues for name in names if (queues := row.queues.get(name))}
            for name in names:
                own = said[name] if name in row.queues else 0
                found[name] = row.queues[name] if own is None else own
        return cls(
            {name: queues for name in names if (queues := found[name])},
            tuple(name for name in names if found[name] is None),
            row is not None,
            is_over,
            row is not None and row.fails_over,
            by_row,
            good_until if is_over else NEVER,
        )

    @property
    def is_whole(self) -> bool:
        """Whether all is known that a key's queue depends on, though perhaps not any more."""
        return self.has_row and not self.unheard

    @property
    def of_keys(self) -> dict[str, int]:
        """The queues that keys go to, as ``queues`` has them."""
        return self.queues if self.by_row is None else self.by_row

    def is_good(self, now: float) -> bool:
        """Whether a key's queue can be told: all is known, and was confirmed lately."""
        return self.is_whole and now < self.good_until

    def queue_of(self, key: str) -> GroupQueue:
        """The queue of a key among all queues of all groups.

        As in one group, by RocketMQ's rule: it stays while the groups and their queues stay. There
        is one queue at least, and all is known: with a guessed number of queues a key would change
        its queue when the last group has said its own.
        """
        assert self.of_keys and self.is_whole
        number = abs(java_hash(key)) % sum(self.of_keys.values())
        for name, queues in self.of_keys.items():
            if number < queues:
                return GroupQueue(name, number)
            number -= queues
        raise AssertionError("a number below the sum of all")
