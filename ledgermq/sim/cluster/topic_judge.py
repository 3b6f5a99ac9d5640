"""Judge of topics over the groups of a simulated cluster: who may serve what, and what is in reach.

A group serves what a home has given it, and keeps its own; what it has acknowledged stays readable.
"""

from __future__ import annotations

from collections import defaultdict

from ledgermq.model.errors import LedgerError
from ledgermq.rules.cluster.cluster_table import ClusterTable
from ledgermq.rules.cluster.topic_rows import TOPIC_KIND, read_topic_row
from ledgermq.rules.messages.topic_shares import plan_followed
from ledgermq.rules.tables.topics import Permission, Topic, TopicTable

Place = tuple[str, str]
"""A topic in a group."""


class TopicJudge:
    """Each check gives the promise that was broken, empty if none was."""

    def __init__(self) -> None:
        self._given: set[Place] = set()
        self._adopted: set[Place] = set()
        self._own: dict[Place, Topic] = {}
        self._acknowledged: defaultdict[str, dict[str, int]] = defaultdict(dict)

    def see_rows(self, table: ClusterTable) -> None:
        """What a home says of topics."""
        for topic, value in table.rows.of_kind(TOPIC_KIND):
            row = read_topic_row(value)
            self._given |= {(topic, group) for group in row.shares}
            if row.adopts:
                self._adopted |= {(topic, group) for group in row.shares}

    def acknowledge(self, group: str, topics: TopicTable) -> None:
        """A message is stored in each queue that the group has open."""
        for topic in topics:
            if topic.is_writable:
                known = self._acknowledged[group]
                known[topic.name] = max(topic.write_queues, known.get(topic.name, 0))

    def forget(self, group: str) -> None:
        """The group has lost the end of its log."""
        self._acknowledged.pop(group, None)
        for place in [one for one in self._own if one[1] == group]:
            del self._own[place]

    def committed(self, group: str, topics: TopicTable) -> str:
        """A group's topics have changed, or may have."""
        for topic in topics:
            place = topic.name, group
            if not topic.cluster:
                if self._own.setdefault(place, topic) != topic:
                    return f"{group}'s own topic is changed: {topic}"
                continue
            if place not in self._given:
                return f"{group} serves {topic.name}, which no home has given it"
            if self._own.pop(place, None) is not None and place not in self._adopted:
                return f"{group}'s own topic {topic.name} was taken up unasked"
        for name, queues in self._acknowledged[group].items():
            found = topics.get(name)
            if (
                found is None
                or found.read_queues < queues
                or not (found.permission & Permission.READ)
            ):
                return f"{queues} queues of {name} have messages, and {group} has {found}"
        return ""

    @staticmethod
    def check_end(table: ClusterTable, topics: TopicTable) -> str:
        """Nothing is left to follow."""
        names = {name for name, _ in table.rows.of_kind(TOPIC_KIND)} | {one.name for one in topics}
        for name in sorted(names):
            try:
                wanted = plan_followed(topics, table, name, first_offsets={})
            except LedgerError:
                continue
            if wanted is not None:
                return f"{table.group} has {topics.get(name)}, and its rows want {wanted}"
        return ""
