"""Judge of simulated clusters: what has to hold whenever something is committed or applied."""

from __future__ import annotations

import bisect
import math
from collections import defaultdict

from ledgermq.formats.digest import content_digest
from ledgermq.model.errors import LedgerError
from ledgermq.rules.cluster.cluster_table import ClusterTable
from ledgermq.rules.cluster.json_objects import to_json
from ledgermq.rules.cluster.numbered_rows import Point
from ledgermq.rules.cluster.topic_rows import TOPIC_KIND, read_topic_row
from ledgermq.rules.messages.topic_shares import plan_followed
from ledgermq.rules.tables.topics import Permission, Topic, TopicTable
from ledgermq.sim.cluster.model_group import DRIFT_PER_MILLE, ModelGroup, ModelMember

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


NOTED_MS = 3_000
"""Within so long a leader that has just been elected has noted that rights are too old."""

Rows = bytes


class BrokenClusterError(Exception):
    """A promise was broken."""


class ClusterJudge:
    """``Judge`` of a cluster, who sees everything.

    Attributes:
        written: of each rank, when its home was at which number, in the order of time.
        losses: how often a home has lost what it had committed.
    """

    def __init__(self) -> None:
        self.written: dict[int, list[tuple[int, int]]] = {}
        self.losses = 0
        self._changes: dict[int, list[tuple[int, int]]] = {}
        self.topics = TopicJudge()
        self._rows: dict[Point, Rows] = {}
        self._homes: dict[int, str] = {}
        self._reached: dict[str, tuple[int, int]] = {}

    def committed(self, group: ModelGroup) -> None:
        table = group.table
        reached = table.rows_rank, table.at.number
        before = self._reached.get(group.name, (0, 0))
        if reached < before:
            raise BrokenClusterError(f"{group.name} went back from {before} to {reached}")
        self._reached[group.name] = reached
        if table.is_home and table.chain is not None:
            self._see_home(group, table.chain.rank, table.at.number)
        if table.is_home:
            self.topics.see_rows(table)
        if group.leader is not None:
            broken = self.topics.committed(group.name, group.leader.topics)
            if broken:
                raise BrokenClusterError(broken)

    def applied(self, member: ModelMember) -> None:
        """Check that members at the same point have the same rows."""
        table = member.table
        if table.rows_rank:
            rows = self._rows.setdefault(table.at, (found := _digest(member)))
            if rows != found:
                raise BrokenClusterError(f"{member.address} has other rows at {table.at}")

    def handed_over(self, home: ModelGroup, next_one: ModelGroup) -> None:
        """A home signs nothing any more: the next one has to have all rows by then, for good."""
        start = home.table.at.number
        if next_one.table.at.number < start and not self.losses:
            raise BrokenClusterError(
                f"{home.name} was at {start} when it handed its place over to {next_one.name},"
                f" which is at {next_one.table.at.number}, and gets no more"
            )

    def forgot(self, group: ModelGroup) -> None:
        """The group has lost the end of its log."""
        self.losses += 1
        self._reached.pop(group.name, None)
        self.topics.forget(group.name)

    def check_claim(self, group: ModelGroup) -> None:
        """Whoever says that its rows were current at a time has what the home had by then."""
        asker, table = group.asker, group.table
        if asker is None or asker.current_ms is None or table.chain is None:
            return
        written = self.written.get(table.rows_rank, [])
        last = bisect.bisect_right(written, (group.true_ms(asker.current_ms), 0)) - 1
        if last >= 0 and table.at.number < written[last][1] and not self.losses:
            raise BrokenClusterError(
                f"{group.name} says that it was current at {asker.current_ms}, is at"
                f" {table.at.number} of rank {table.rows_rank}, and the home was at"
                f" {written[last][1]}"
            )

    def check_rights(self, group: ModelGroup) -> None:
        """No group that can commit serves by rights that the home has changed too long ago."""
        table, now_ms = group.table, group.network.now_ms
        if not group.rights_max_age_ms:
            if table.rights_too_old:
                raise BrokenClusterError(f"{group.name} refuses rights, and has no bound for them")
            return
        if not group.can_commit or now_ms - group.leads_since_ms < NOTED_MS:
            return
        changed_ms = self._changed_after(table.rows_rank, table.at.number)
        bound_ms = group.rights_max_age_ms * (1_000 + DRIFT_PER_MILLE) // 1_000 + NOTED_MS
        is_old = changed_ms is not None and now_ms - changed_ms > bound_ms
        if is_old and not (table.rights_too_old or table.is_home or self.losses):
            raise BrokenClusterError(
                f"{group.name} serves by rights of rank {table.rows_rank} and number"
                f" {table.at.number}, which the home has changed at {changed_ms}"
            )

    def _changed_after(self, rank: int, number: int) -> int | None:
        """When the home of that rank, or one that was handed its place, changed rows first."""
        for one in sorted(self.written):
            if one > rank and one % 2:
                # The home before it was taken for lost, and goes on until it hears of this one.
                return None
            changes = self._changes[one]
            last = number if one == rank else changes[0][0]
            place = bisect.bisect_right(changes, (last, math.inf))
            if one >= rank and place < len(changes):
                return changes[place][1]
        return None

    def _see_home(self, group: ModelGroup, rank: int, number: int) -> None:
        first = self._homes.setdefault(rank, group.name)
        if first != group.name:
            raise BrokenClusterError(f"{first} and {group.name} are both the home of rank {rank}")
        if rank not in self.written:
            self._check_begin(group, rank, number)
        history = self.written.setdefault(rank, [])
        history.append((group.network.now_ms, number))
        changes = self._changes.setdefault(rank, [])
        if not changes or number > changes[-1][0]:
            changes.append((number, group.network.now_ms))

    def _check_begin(self, group: ModelGroup, rank: int, number: int) -> None:
        """A home that was handed its place has all that the one before it has committed."""
        before = [one for one in (rank - 2, rank - 1) if one in self.written]
        if rank % 2 or len(before) != 1 or self.losses:
            return
        last = self.written[before[0]][-1][1]
        if number < last:
            raise BrokenClusterError(
                f"{group.name} was handed the place of a home that was at {last}, and begins at"
                f" {number}"
            )


def _digest(member: ModelMember) -> Rows:
    rows = [[*row.key, row.value] for row in member.table.rows]
    return content_digest(to_json({"rows": sorted(rows, key=str)}))
