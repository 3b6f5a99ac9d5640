"""Runs of a whole cluster: groups come, part and rejoin, homes move, die and lose what they had.

``python -m tests.simulator --cluster --seed N --count M``. Then the faults end, and all groups that
are left have to have the rows of the home within a bound.
"""

from __future__ import annotations

import bisect
import math
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from random import Random

from ledgermq.formats.digest import content_digest
from ledgermq.formats.ed25519 import SECRET_SIZE
from ledgermq.model.errors import LedgerError
from ledgermq.rules.cluster.certificates import Certificate, certify
from ledgermq.rules.cluster.cluster_commands import (
    ClusterJoined,
    HomeCertified,
    HomeHandedOver,
    RowChanged,
    TombstonesForgotten,
)
from ledgermq.rules.cluster.cluster_plans import Plan, plan_handing_over
from ledgermq.rules.cluster.cluster_table import GROUP_KIND, ClusterTable
from ledgermq.rules.cluster.document_asker import HOLD_MS
from ledgermq.rules.cluster.json_objects import Object, to_json
from ledgermq.rules.cluster.numbered_rows import Point, RowKey
from ledgermq.rules.cluster.signatures import SigningKey
from ledgermq.rules.cluster.topic_rows import (
    TOPIC_KIND,
    SharePhase,
    plan_topic_over,
    plan_topic_release,
    plan_topic_spread,
    read_topic_row,
    topic_row,
)
from ledgermq.rules.messages.topic_plans import plan_followed
from ledgermq.rules.tables.table_changes import TopicSet
from ledgermq.rules.tables.topics import Permission, Topic, TopicTable
from tests.simulator.cluster.cluster_network import ClusterNetwork
from tests.simulator.cluster.model_group import (
    DRIFT_PER_MILLE,
    MEMBERS,
    HeldQuestion,
    ModelGroup,
    ModelMember,
)

Place = tuple[str, str]
"""A topic in a group."""

NOTED_MS = 3_000
"""Within so long a leader that has just been elected has noted that rights are too old."""

Rows = bytes
CLUSTER = "cluster"
FAULTS_MS = 120_000
SETTLE_MS = 5 * HOLD_MS
GROUPS_OFTEN_MAX = 12
GROUPS_MAX = 300

LARGE_ONE_IN = 100
"""One seed in so many has hundreds of groups."""

USERS = 12

RIGHTS_AGES_MS = (0, 60_000, 90_000)
"""Bounds of groups; the home is heard every 40 s at least, as long as nothing fails."""

TOPICS = 4

TOPICS_ONE_IN = 3
"""One seed in so many has topics over groups."""


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


class ClusterRun:
    """One run.

    Attributes:
        groups: all groups by name, also those that are gone.
        judge: what it has seen.
        moves: how often the home was handed over or forced.
    """

    def __init__(self, seed: int) -> None:
        """Some groups, the first of which is the home."""
        self.chance = Random(seed)
        self._has_topics = seed % TOPICS_ONE_IN == 1
        self._bounds = Random(f"bounds {seed}")
        self.network: ClusterNetwork[HeldQuestion] = ClusterNetwork(self.chance)
        self.groups: dict[str, ModelGroup] = {}
        self.judge = ClusterJudge()
        self.moves = 0
        self._root = SigningKey(self._secret())
        self._loses = self.chance.randrange(4) == 0
        self._homes: list[ModelGroup] = []
        self._signed_epoch = 0
        self._is_over = False
        self.network.loss = self.chance.choice((0, 0, 20, 200))
        large = self.chance.randrange(LARGE_ONE_IN) == 0
        count = self.chance.randint(100, GROUPS_MAX) if large else self.chance.randint(2, 12)
        home = self._new_group([])
        self._certify(home, 0)
        for _ in range(count - 1):
            self._join()

    @property
    def home(self) -> ModelGroup:
        """The group that was made the home last."""
        return self._homes[-1]

    def go(self) -> None:
        """Let faults happen, end them, and wait.

        Raises:
            BrokenClusterError: a promise was broken.
        """
        self._act()
        self._fault()
        if self._has_topics:
            self._act_on_topics()
        self.network.after(500, self._look)
        self.network.events.run(FAULTS_MS * 1_000_000)
        self._end_faults()
        self.network.events.run(SETTLE_MS * 1_000_000)
        self._judge_end()

    def _secret(self) -> bytes:
        return self.chance.randbytes(SECRET_SIZE)

    def _new_group(self, nodes: list[str]) -> ModelGroup:
        name = f"g{len(self.groups)}"
        group = ModelGroup(name, SigningKey(self._secret()), self.network, self.judge)
        self.groups[name] = group
        group.rights_max_age_ms = self._bounds.choice(RIGHTS_AGES_MS)
        group.propose(ClusterJoined(CLUSTER, self._root.public, name, nodes))
        if self._has_topics and self.chance.randrange(3) == 0:
            own = Topic(f"t{self.chance.randrange(TOPICS)}", 2, 2)
            group.propose(TopicSet(own.name, own.to_fields()))
        return group

    def _join(self) -> None:
        """A group joins; the home is told of it by its operator."""
        if len(self.groups) < GROUPS_MAX:
            self._until_it_has_a_row(self._new_group(self.home.nodes))

    def _until_it_has_a_row(self, group: ModelGroup) -> None:
        """An operator repeats what he asks the home for."""
        if self.home.can_commit and self.home.table.is_home:
            if self.home.table.nodes_of(group.name):
                return
            self._change(RowKey(GROUP_KIND, group.name), {"nodes": group.nodes})
        self.network.after(1_000, partial(self._until_it_has_a_row, group))

    def _change(self, key: RowKey, value: Object | None) -> None:
        self.home.propose(RowChanged(key, self.home.table.at.number + 1, value))

    def _certify(self, group: ModelGroup, known: int) -> None:
        """Certify with the root key the first home, or one in the place of a home that is lost.

        Args:
            known: greatest epoch of any group; beside the key stands the last one that it signed.
        """
        epoch = self._signed_epoch = max(known, self._signed_epoch) + 1
        wanted = Certificate(
            CLUSTER, epoch, True, group.name, group.key.public, group.table.at.number, b""
        )
        chain = [certify(self._root, wanted).signed]
        self._homes.append(group)
        self.moves += 1
        self._until_it_is_home(group, chain, epoch)

    def _until_it_is_home(self, group: ModelGroup, chain: list[bytes], epoch: int) -> None:
        """An operator repeats a command until it has done what it is for."""
        if group.is_gone or group is not self.home:
            return
        known = group.table.chain
        if known is not None and known.rank == 2 * epoch + 1:
            self._until_it_has_a_row(group)
            return
        if known is None:
            group.propose(ClusterJoined(CLUSTER, self._root.public, group.name, []))
        group.propose(HomeCertified(chain))
        self.network.after(1_000, partial(self._until_it_is_home, group, chain, epoch))

    def _hand_over(self) -> None:
        """An operator has the home hand its place over to a group that has asked it."""
        home = self.home
        others = [one for one in self.groups.values() if one is not home]
        if not others or home.leader is None or not home.table.is_home:
            return
        next_one = self.chance.choice(others)
        heard = home.leader.heard.values()
        try:
            plan = plan_handing_over(home.table, lambda _: home.key, next_one.name, heard)
        except LedgerError:
            return
        (command,) = plan
        assert isinstance(command, HomeHandedOver)
        links = command.chain

        def look() -> None:
            known = home.table.chain
            if home is self.home and known is not None and known.signed() == links:
                self.judge.handed_over(home, next_one)
                self._homes.append(next_one)
                self.moves += 1

        if self.chance.randrange(2):
            # Somebody changes a row in the same moment.
            self._change(RowKey("user", "u0"), {"rights": self.moves})
        home.propose(command, look)

    def _force(self) -> None:
        """The home's hosts are lost, and an operator makes another group the home."""
        alive = [one for one in self.groups.values() if one is not self.home and not one.is_gone]
        if len(alive) < 2:
            return
        self._lose_for_good(self.home)
        best = max(alive, key=lambda one: (one.table.rows_rank, one.table.at.number))
        self._certify(best, self._known_epoch())

    def _known_epoch(self) -> int:
        chains = [one.table.chain for one in self.groups.values() if not one.is_gone]
        return max((chain.rank // 2 for chain in chains if chain is not None), default=0)

    def _lose_for_good(self, group: ModelGroup) -> None:
        group.is_gone = self.chance.randrange(2) == 0
        for member in group.members:
            group.fall(member)

    def _act(self) -> None:
        """What operators do: rights mostly."""
        if self._is_over:
            return
        self.network.after(self.chance.randint(100, 3_000), self._act)
        user = RowKey("user", f"u{self.chance.randrange(USERS)}")
        acts: list[Callable[[], None]] = [
            *[lambda: self._change(user, {"rights": self.chance.randrange(100)})] * 12,
            *[lambda: self._change(user, None)] * 4,
            *[self._forget] * 2,
            *[self._hand_over] * 2,
            self._join,
        ]
        self.chance.choice(acts)()

    def _forget(self) -> None:
        number = self.home.table.at.number
        self.home.propose(TombstonesForgotten(self.chance.randint(0, number)))

    def _act_on_topics(self) -> None:
        """Topics are made, spread, closed, opened and released at the home."""
        if self._is_over:
            return
        self.network.after(self.chance.randint(500, 6_000), self._act_on_topics)
        home = self.home
        if home.can_commit and home.table.is_home:
            try:
                plan = self._topic_plan(home.table, f"t{self.chance.randrange(TOPICS)}")
            except LedgerError:
                return
            for command in plan:
                home.propose(command)

    def _topic_plan(self, table: ClusterTable, topic: str) -> Plan:
        known, chance = topic_row(table, topic), self.chance
        groups = [name for name, _ in table.rows.of_kind(GROUP_KIND)]
        over = chance.sample(groups, chance.randint(1, min(len(groups), 3))) if groups else []
        if known is None:
            adopts = chance.randrange(3) == 0
            return plan_topic_over(table, topic, over, queues=chance.randint(1, 4), adopts=adopts)
        if chance.randrange(8) == 0:
            return plan_topic_release(table, topic)
        if chance.randrange(2):
            queues = chance.choice((None, chance.randint(1, 4)))
            return plan_topic_spread(table, topic, over, queues=queues)
        group = chance.choice([*known.shares])
        phase = chance.choice([*SharePhase])
        shares = {**known.shares, group: known.shares[group]._replace(phase=phase)}
        key = RowKey(TOPIC_KIND, topic)
        return [RowChanged(key, table.at.number + 1, known._replace(shares=shares).to_value())]

    def _fault(self) -> None:
        if self._is_over:
            return
        self.network.after(self.chance.randint(200, 8_000), self._fault)
        group = self.chance.choice([*self.groups.values(), self.home])
        faults: list[Callable[[], None]] = [
            *[lambda: self._fall(group, 1)] * 6,
            *[lambda: self._fall(group, MEMBERS)] * 2,
            *[self._part] * 3,
            *[self._force] * (self.chance.randrange(6) == 0),
        ]
        if self._loses and group.table.chain is not None:
            faults.append(lambda: self._lose(group))
        self.chance.choice(faults)()

    def _fall(self, group: ModelGroup, count: int) -> None:
        for member in self.chance.sample(group.members, count):
            group.fall(member)
            self.network.after(self.chance.randint(500, 30_000), partial(group.rise, member))

    def _lose(self, group: ModelGroup) -> None:
        group.lose(self.chance.randint(1, 4))
        self.judge.forgot(group)

    def _part(self) -> None:
        names = [*self.groups]
        self.network.cut = set(self.chance.sample(names, self.chance.randint(1, len(names))))
        self.network.events.trace(f"cut off: {sorted(self.network.cut)}")
        self.network.after(self.chance.randint(1_000, 40_000), self.network.cut.clear)

    def _look(self) -> None:
        self.network.after(500, self._look)
        for group in self.groups.values():
            self.judge.check_claim(group)
            self.judge.check_rights(group)
            if group.leader is not None and group.can_commit:
                self.judge.topics.acknowledge(group.name, group.leader.topics)

    def _end_faults(self) -> None:
        self.network.loss = 0
        self._is_over = True
        self.network.cut.clear()
        for group in self.groups.values():
            for member in group.members:
                group.rise(member)
        self.network.after(HOLD_MS, self._mend_home)
        self.network.after(2 * HOLD_MS, self._rejoin_all)

    def _rejoin_all(self) -> None:
        """Whoever knows homes that are lost, and nobody else, is told of the next one."""
        for group in self.groups.values():
            if not group.is_gone and group.table.rows_rank != self.home.table.rows_rank:
                self._rejoin(group)

    def _mend_home(self) -> None:
        """A home that has lost its certificate, or rows with which it began, is certified anew."""
        if not self.home.table.is_home:
            self._certify(self.home, self._known_epoch())

    def _rejoin(self, group: ModelGroup) -> None:
        if [*group.table.first_nodes] != self.home.nodes:
            joined = ClusterJoined(CLUSTER, self._root.public, group.name, self.home.nodes)
            group.propose(joined)
            self.network.after(1_000, partial(self._rejoin, group))

    def _judge_end(self) -> None:
        home = self.home
        if home.is_gone or not home.table.is_home:
            raise BrokenClusterError(f"{home.name} was made the home, and is none")
        for group in self.groups.values():
            if group.leader is not None and not group.is_gone:
                broken = self.judge.topics.check_end(group.table, group.leader.topics)
                if broken:
                    raise BrokenClusterError(broken)
        for group in self.groups.values():
            if group.is_gone or group is home:
                continue
            if group.table.at != home.table.at or group.table.rows_rank != home.table.rows_rank:
                self._check_parted(group)
            elif group.table.rights_too_old:
                raise BrokenClusterError(f"{group.name} hears its home, and refuses the rights")

    def _check_parted(self, group: ModelGroup) -> None:
        if self.judge.losses and group.asker is not None and group.asker.is_parted:
            return
        raise BrokenClusterError(
            f"{group.name} is at {group.table.at} of rank {group.table.rows_rank}, and its home"
            f" {self.home.name} at {self.home.table.at} of {self.home.table.rows_rank}:"
            f" {group.table.refused}"
        )


def run_cluster_seed(seed: int) -> tuple[str, ClusterRun]:
    """Run one seed; the promise that was broken, empty if none was, and the run."""
    run = ClusterRun(seed)
    try:
        run.go()
    except BrokenClusterError as error:
        return str(error), run
    return "", run
