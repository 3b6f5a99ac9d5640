"""Calls about a cluster of groups: begun, joined, left, drained; which groups there are.

Those of groups are asked of the home, the others of the group that begins, joins or leaves. What is
left in a group that is drained is told by the group itself, from behind a command of its log, so
that nothing which was acknowledged before is missing in it (docs/decisions/0087).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from ledgermq.broker.call_arguments import optional_integer
from ledgermq.broker.calls import AnsweredVerb, Call, Result, Verbs
from ledgermq.broker.cluster.home_keys import home_key, new_home_key
from ledgermq.broker.deliveries.delay_service import DelayService
from ledgermq.broker.deliveries.timer_calls import TOUCHES
from ledgermq.broker.deliveries.timer_service import TimerService
from ledgermq.broker.state.broker_tables import BrokerTables
from ledgermq.broker.state.state_log import StateLog
from ledgermq.broker.state.state_requests import StateRequest
from ledgermq.broker.state.writer_notice import WriterNotice
from ledgermq.broker.transactions.transaction_service import TransactionService
from ledgermq.broker.verb_arguments import answered
from ledgermq.formats.ed25519 import PUBLIC_SIZE
from ledgermq.model.errors import ConfigError, ProtocolError
from ledgermq.model.names.clusters import CERTIFICATE_SIZE_MAX, NAME_LENGTH_MAX
from ledgermq.model.names.group_topics import DEAD_LETTER_PREFIX, RETRY_PREFIX
from ledgermq.process.clock import Clock, epoch_ms
from ledgermq.rules.cluster import cluster_plans
from ledgermq.rules.cluster.cluster_commands import ClusterJoined, RightsAged
from ledgermq.rules.cluster.cluster_plans import Plan
from ledgermq.rules.cluster.cluster_table import GROUP_KIND, ClusterTable
from ledgermq.rules.cluster.document_desk import DocumentRequest
from ledgermq.rules.cluster.json_objects import NUMBER_MAX, decoded, encoded
from ledgermq.rules.cluster.signatures import SigningKey
from ledgermq.rules.cluster.topic_rows import (
    SharePhase,
    plan_group_phase,
    shares_in_other_phase,
)
from ledgermq.rules.state.cluster_copy import FILE
from ledgermq.rules.tables.table_changes import Change
from ledgermq.rules.tables.topics import Topic
from ledgermq.verbs import clusters as verbs
from ledgermq.verbs.clusters import SetGroupPhase, ShowRemains
from ledgermq.verbs.needs import USER, shown

CLUSTER_TOUCHES = frozenset({FILE})
"""What a request about the cluster changes: of two of them the second waits for the first."""


class ClusterAge(NamedTuple):
    """How old a group's rows are, as its leader knows.

    Attributes:
        current_ms: how long ago they were all that the home had committed; None: not since this
            node leads.
        is_parted: the group has rows that the home has lost.
        failure: why the last member that was asked gave nothing; empty: it has answered.
    """

    current_ms: int | None
    is_parted: bool
    failure: str


class ClusterCalls:
    """Changes go through the log, and are those of all members when they are answered."""

    def __init__(
        self,
        tables: BrokerTables,
        log: StateLog,
        age: Callable[[int], ClusterAge],
        waiting: Callable[[], Iterable[DocumentRequest]],
        clock: Clock,
    ) -> None:
        """``age`` is that of the rows, at a time (monotonic ms); ``waiting`` who waits for news."""
        self._tables = tables
        self._log = log
        self._age = age
        self._waiting = waiting
        self._clock = clock
        self.verbs: Verbs = (
            answered(verbs.ShowCluster, self._show),
            AnsweredVerb("cluster_groups", self._groups, shown(USER)),
            answered(verbs.ShowOwnKey, self._key),
            answered(verbs.BeginCluster, self._begin),
            answered(verbs.JoinCluster, self._join),
            answered(verbs.LeaveCluster, self._leave),
            answered(verbs.HandHomeOver, self._hand_over),
            answered(verbs.TakeHomeOver, self._take_over),
            answered(verbs.SetClusterGroup, self._set_group),
            answered(verbs.RemoveClusterGroup, self._remove_group),
        )

    @property
    def _table(self) -> ClusterTable:
        return self._tables.cluster.table

    @property
    def _own_name(self) -> str:
        return self._tables.node.broker_name

    def _show(self, call: Call, _asked: verbs.ShowCluster) -> Result:
        """What this node knows of the cluster: all but users and their rights."""
        self._log.check_newest()
        return {**self._shown(), **self._age(call.now_ms)._asdict()}

    def _shown(self) -> Result:
        table, chain = self._table, self._table.chain
        told: dict[str, object] = {"node": self._tables.node.self_id, "group": self._own_name}
        if chain is None:
            return {**told, "cluster": ""}
        home = chain.greatest
        return {
            **told,
            "group": table.group,
            "cluster": chain.cluster,
            "root": encoded(chain.root),
            "chain": [encoded(one) for one in chain.signed()],
            "home": table.home,
            "home_nodes": table.nodes_of(table.home) or [*table.first_nodes],
            "is_home": table.is_home,
            "signs": home is not None and self._has_key(home.key),
            "epoch": home.epoch if home is not None else 0,
            "by_root": home is not None and home.by_root,
            "rank": chain.rank,
            "rows_rank": table.rows_rank,
            "number": table.at.number,
            "rights_too_old": table.rights_too_old,
            "groups": [
                {"group": name, "nodes": table.nodes_of(name), "user": str(row.get("user", ""))}
                for name, row in sorted(table.rows.of_kind(GROUP_KIND))
            ],
        }

    def _has_key(self, public: bytes) -> bool:
        return home_key(self._tables.secrets, public) is not None

    def _groups(self, call: Call) -> Result:
        """Where clients find the groups; none where whoever asks knows of the last change."""
        known = optional_integer(call.arguments, "known", 0, NUMBER_MAX)
        self._log.check_newest()
        told: Result = {"group": self._own_name, "cluster": "", "number": 0, "groups": []}
        table = self._table
        if table.chain is None:
            return told
        number, groups = table.at.number, None
        if known != number:
            groups = [
                {"group": name, "nodes": table.nodes_of(name)}
                for name, _ in sorted(table.rows.of_kind(GROUP_KIND))
            ]
        return {
            **told,
            "group": table.group,
            "cluster": table.chain.cluster,
            "number": number,
            "groups": groups,
        }

    def _key(self, _call: Call, _asked: verbs.ShowOwnKey) -> Result:
        """The public key that this group would be certified with as a home."""
        self._log.check_leads()
        return {"group": self._own_name, "key": encoded(new_home_key(self._tables.secrets).public)}

    def _begin(self, call: Call, asked: verbs.BeginCluster) -> Result | None:
        joined, chain = self._joined(asked, nodes=()), _chain(asked.chain)

        def plan() -> Plan:
            return cluster_plans.plan_beginning(self._table, joined, chain, asked.nodes)

        return self._submit(call, plan)

    def _join(self, call: Call, asked: verbs.JoinCluster) -> Result | None:
        joined, chain = self._joined(asked, nodes=asked.nodes), _chain(asked.chain)

        def plan() -> Plan:
            return cluster_plans.plan_joining(self._table, joined, chain)

        return self._submit(call, plan)

    def _leave(self, call: Call, _asked: verbs.LeaveCluster) -> Result | None:
        return self._submit(call, lambda: cluster_plans.plan_leaving(self._table))

    def _hand_over(self, call: Call, asked: verbs.HandHomeOver) -> Result | None:
        group = _name(asked.group, "group")

        def plan() -> Plan:
            waiting = self._waiting()
            plan = cluster_plans.plan_handing_over(self._table, self._signer, group, waiting)
            # It is no home from then on, and its rights are as old as those of any other group.
            return [RightsAged(epoch_ms(self._clock), False), *plan] if plan else plan

        return self._submit(call, plan)

    def _signer(self, public: bytes) -> SigningKey:
        found = home_key(self._tables.secrets, public)
        if found is None:
            raise ConfigError(
                "node has not the key of the home: see users.key of the other members",
                node=self._tables.node.self_id,
            )
        return found

    def _take_over(self, call: Call, asked: verbs.TakeHomeOver) -> Result | None:
        chain = _chain(asked.chain)
        return self._submit(call, lambda: cluster_plans.plan_taking_over(self._table, chain))

    def _set_group(self, call: Call, asked: verbs.SetClusterGroup) -> Result | None:
        group, user = _name(asked.group, "group"), asked.user or ""

        def plan() -> Plan:
            if user and self._tables.users.get(user) is None:
                raise ConfigError("user does not exist: add it first", user=user)
            return cluster_plans.plan_group(self._table, group, asked.nodes, user=user)

        return self._submit(call, plan)

    def _remove_group(self, call: Call, asked: verbs.RemoveClusterGroup) -> Result | None:
        group = _name(asked.group, "group")
        return self._submit(call, lambda: cluster_plans.plan_without_group(self._table, group))

    def _joined(self, asked: verbs.BeginCluster, *, nodes: Sequence[str]) -> ClusterJoined:
        cluster = _name(asked.cluster, "cluster")
        try:
            root = decoded(asked.root, size_max=PUBLIC_SIZE)
        except ConfigError as error:
            raise ProtocolError("argument not a key", argument="root", **error.details) from None
        return ClusterJoined(cluster, root, self._own_name, nodes)

    def _submit(self, call: Call, plan: Callable[[], Plan]) -> Result | None:
        self._log.check_leads()
        plan()  # refuses at once what cannot be made

        self._log.submit(StateRequest(call.caller, plan, CLUSTER_TOUCHES, self._shown), call.now_ms)
        return None


def _name(found: str, argument: str) -> str:
    if len(found) > NAME_LENGTH_MAX or not found.isprintable():
        raise ProtocolError(
            "argument not a name", argument=argument, size=len(found), limit=NAME_LENGTH_MAX
        )
    return found


def _chain(links: Sequence[str]) -> list[bytes]:
    try:
        return [decoded(one, size_max=CERTIFICATE_SIZE_MAX) for one in links]
    except ConfigError as error:
        raise ProtocolError("argument not certificates", **error.details) from None


TOPICS_SHOWN_MAX = 100


class Unfinished(NamedTuple):
    """Services in which messages wait for something else than a consumer."""

    timers: TimerService
    delays: DelayService
    transactions: TransactionService


class DrainCalls:
    """The first verb is asked of the home, the second of the group that is drained."""

    def __init__(
        self, tables: BrokerTables, log: StateLog, notice: WriterNotice, waiting: Unfinished
    ) -> None:
        self._tables = tables
        self._log = log
        self._notice = notice
        self._waiting = waiting
        self.verbs: Verbs = (
            answered(SetGroupPhase, self._set_phase),
            answered(ShowRemains, self._remains),
        )

    def _set_phase(self, call: Call, asked: SetGroupPhase) -> Result | None:
        group, phase = asked.group, SharePhase.OPEN if asked.is_open else SharePhase.CLOSED
        table = self._tables.cluster.table

        def plan() -> Plan:
            return plan_group_phase(table, group, phase)

        def answer() -> Result:
            return {"group": group, "left": shares_in_other_phase(table, group, phase)}

        self._log.check_leads()
        plan()  # refuses at once what cannot be made
        self._log.submit(StateRequest(call.caller, plan, CLUSTER_TOUCHES, answer), call.now_ms)
        return None

    def _remains(self, call: Call, _asked: ShowRemains) -> None:
        found: dict[str, object] = {}

        def plan() -> Sequence[Change]:
            topics = self._writable()
            own = [topic for topic in topics if not topic.cluster]
            # Before the command that stands behind all: what the writer took until it knew that
            # the topics are closed is in front of it.
            found.update(
                topic_count=len(topics),
                own=[
                    {"topic": topic.name, "perm": int(topic.permission)}
                    for topic in own[:TOPICS_SHOWN_MAX]
                ],
                is_known=self._notice.is_confirmed and not self._tables.has_news,
            )
            self._waiting.timers.follow()
            return [self._waiting.timers.nothing_moved()]

        def answer() -> Result:
            timers, delays, transactions = self._waiting
            timers.follow()
            timers.forget_delivered()
            return {
                **found,
                "group": self._tables.node.broker_name,
                "timers": timers.index.count,
                "delayed": delays.waiting,
                "half_messages": len(transactions.table()),
            }

        self._log.check_leads()
        self._log.submit(StateRequest(call.caller, plan, TOUCHES, answer), call.now_ms)

    def _writable(self) -> list[Topic]:
        """Topics of users that take messages; what is sent back to a consumer is its group's."""
        topics = self._tables.topics
        return [
            topic
            for topic in topics
            if topic.is_writable
            and not topics.is_system(topic.name)
            and not topic.name.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX))
        ]
