"""Groups that have a topic, with the queues that take messages in each."""

from __future__ import annotations

from typing import NamedTuple

from ledgermq.formats.java_hash import java_hash


class GroupQueue(NamedTuple):
    """One queue of a topic in one group."""

    group: str
    queue_id: int


class TopicGroups(NamedTuple):
    """What the groups have said of a topic.

    Attributes:
        queues: by the names of groups that take messages of it: how many queues, in the order of
            the names.
        unheard: groups that have not said yet whether they have it.
    """

    queues: dict[str, int]
    unheard: tuple[str, ...]

    @classmethod
    def of(cls, told: dict[str, int | None]) -> TopicGroups:
        """By what each group has said: 0: it takes no messages of the topic; None: nothing yet."""
        names = sorted(told)
        return cls(
            {name: queues for name in names if (queues := told[name])},
            tuple(name for name in names if told[name] is None),
        )

    def queue_of(self, key: str) -> GroupQueue:
        """The queue of a key among all queues of all groups.

        As in one group, by RocketMQ's rule: it stays while the groups and their queues stay. There
        is one queue at least, and no group is unheard: with a guessed number of queues a key would
        change its queue when the last group has said its own.
        """
        assert self.queues and not self.unheard
        number = abs(java_hash(key)) % sum(self.queues.values())
        for name, queues in self.queues.items():
            if number < queues:
                return GroupQueue(name, number)
            number -= queues
        raise AssertionError("a number below the sum of all")
