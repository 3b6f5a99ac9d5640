"""Topic rows of a cluster: over which groups a topic is, and what each has of it.

A row is ``{"groups": {GROUP: {"queues": N, "phase": PHASE}, …}, "adopts": true, "fails_over": true,
"order": true}``; a flag that is left out is false (docs/decisions/0087, 0088).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import islice
from typing import NamedTuple

from ledgermq.model.errors import ConfigError, TopicUnknownError
from ledgermq.model.limits import QUEUE_ID_MAX
from ledgermq.model.names.clusters import CLUSTER_GROUPS_MAX, NAME_LENGTH_MAX
from ledgermq.rules.cluster.cluster_plans import Plan, plan_row, plan_rows
from ledgermq.rules.cluster.cluster_table import GROUP_KIND, ClusterTable
from ledgermq.rules.cluster.json_objects import Object, integer_of, text_of
from ledgermq.rules.cluster.numbered_rows import RowKey

TOPIC_KIND = "topic"
"""Rows of topics over groups."""

CLUSTER_TOPICS_MAX = 10_000

ROWS_AT_ONCE = 20
"""What one command changes at most: with 1,000 groups in each row it is 1 MB of the log."""

_PHASE_SIZE_MAX = 16

_FLAGS = ("adopts", "fails_over", "order")


class SharePhase(StrEnum):
    """What may be done with a group's queues."""

    OPEN = "open"
    CLOSED = "closed"
    """Read alone: producers are refused."""


class TopicShare(NamedTuple):
    """What one group has of a topic: so many queues, 1 to ``QUEUE_ID_MAX``."""

    queues: int
    phase: SharePhase = SharePhase.OPEN


class ClusterTopic(NamedTuple):
    """A topic over groups.

    Attributes:
        shares: by the name of the group.
        adopts: a topic of that name that a group has of its own is taken up.
        fails_over: clients may send a message to another group when one has not stored it in time;
            it may be in both then.
        order: it is an order topic in its groups, and nothing of it fails over.
    """

    shares: Mapping[str, TopicShare]
    adopts: bool = False
    fails_over: bool = False
    order: bool = False

    def to_value(self) -> Object:
        """The value of the topic's row."""
        groups = {
            group: {"queues": share.queues, "phase": share.phase.value}
            for group, share in sorted(self.shares.items())
        }
        flags = {name: True for name in _FLAGS if getattr(self, name)}
        return {"groups": groups, **flags}


def read_topic_row(value: Object) -> ClusterTopic:
    """The topic that a row is about.

    Raises:
        ConfigError: the row has another shape, or a phase of a newer version.
    """
    groups = value.get("groups")
    if not isinstance(groups, Mapping) or len(groups) > CLUSTER_GROUPS_MAX:
        raise ConfigError(
            "topic's row has no groups, or too many",
            found=repr(groups)[:64],
            limit=CLUSTER_GROUPS_MAX,
        )
    shares = {
        text_of({"group": group}, "group", size_max=NAME_LENGTH_MAX): _read_share(share)
        for group, share in groups.items()
    }
    return ClusterTopic(shares, *(value.get(name) is True for name in _FLAGS))


def topic_row(table: ClusterTable, topic: str) -> ClusterTopic | None:
    """What the rows say of a topic; None: nothing, it is each group's own.

    Raises:
        ConfigError: as ``read_topic_row``.
    """
    value = table.rows.value(RowKey(TOPIC_KIND, topic)) if table.chain is not None else None
    return None if value is None else read_topic_row(value)


class TopicPromises(NamedTuple):
    """What a topic over groups promises, see ``ClusterTopic``; None: as it is, at first not."""

    fails_over: bool | None = None
    order: bool | None = None

    def of(self, row: ClusterTopic) -> ClusterTopic:
        """The row with these promises."""
        given = {name: value for name, value in self._asdict().items() if value is not None}
        return row._replace(**given)


AS_IT_IS = TopicPromises()


def plan_topic_over(
    table: ClusterTable,
    topic: str,
    over: Sequence[str],
    *,
    queues: int,
    adopts: bool,
    promises: TopicPromises = AS_IT_IS,
) -> Plan:
    """A topic is over these groups from now on, if it is over no other ones already.

    Args:
        topic: a name that a topic may have.
        over: names of groups; none: all that there are.
        queues: in each of them.
        adopts: from now on; what adopts already goes on to.

    Raises:
        ConfigError: this is not the home, there is no such group, the topic is over other groups or
            has another number of queues, or there are too many topics.
    """
    table.check_home()
    row = ClusterTopic(dict.fromkeys(_groups(table, over), _checked_share(queues)))
    known = topic_row(table, topic)
    if known is not None and known.shares != row.shares:
        raise ConfigError(
            "topic is over groups already: give it more by `ledgermq topic spread`",
            topic=topic,
            groups=" ".join(sorted(known.shares)),
        )
    topics = sum(1 for _ in table.rows.of_kind(TOPIC_KIND))
    if known is None and topics >= CLUSTER_TOPICS_MAX:
        raise ConfigError(
            "too many topics over groups in a cluster", topics=topics, limit=CLUSTER_TOPICS_MAX
        )
    row = known or row
    row = promises.of(row._replace(adopts=adopts or row.adopts))
    return plan_row(table, RowKey(TOPIC_KIND, topic), row.to_value())


def plan_topic_spread(
    table: ClusterTable,
    topic: str,
    over: Sequence[str],
    *,
    queues: int | None,
    phase: SharePhase = SharePhase.OPEN,
) -> Plan:
    """A topic is over these groups, too; what the others have of it stays as it is.

    Args:
        over: names of groups; none: all that there are.
        queues: each of them has at least so many from now on; None: as many as the group that has
            most, where it has none yet.
        phase: of groups that have none yet.

    Raises:
        ConfigError: this is not the home, or there is no such group, or no such topic.
    """
    table.check_home()
    known = topic_row(table, topic)
    if known is None:
        raise ConfigError(
            "topic is over no groups yet: `ledgermq topic create --over`, with --adopt where a"
            " group has it",
            topic=topic,
        )
    most = max((share.queues for share in known.shares.values()), default=1)
    wanted = _checked_share(most if queues is None else queues)._replace(phase=phase)
    shares = dict(known.shares)
    for group in _groups(table, over):
        share = shares.setdefault(group, wanted)
        if queues is not None and queues > share.queues:
            shares[group] = share._replace(queues=queues)
    return plan_row(table, RowKey(TOPIC_KIND, topic), known._replace(shares=shares).to_value())


def plan_topic_promises(table: ClusterTable, topic: str, promises: TopicPromises) -> Plan:
    """A topic over groups promises this from now on.

    Raises:
        ConfigError: this is not the home.
        TopicUnknownError: the topic is over no groups.
    """
    known = _row_at_home(table, topic)
    return plan_row(table, RowKey(TOPIC_KIND, topic), promises.of(known).to_value())


def plan_topic_phase(table: ClusterTable, topic: str, phase: SharePhase) -> Plan:
    """All shares of a topic are so, of the groups that are in the cluster; nothing where they are.

    One that was removed keeps what its share was: whoever comes back finds it.

    Raises:
        ConfigError: this is not the home, or the row cannot be read.
        TopicUnknownError: the topic is over no groups.
    """
    known = _row_at_home(table, topic)
    there_are = {group for group, _ in table.rows.of_kind(GROUP_KIND)}
    shares = {
        group: share._replace(phase=phase) if group in there_are else share
        for group, share in known.shares.items()
    }
    return plan_row(table, RowKey(TOPIC_KIND, topic), known._replace(shares=shares).to_value())


def plan_group_phase(table: ClusterTable, group: str, phase: SharePhase) -> Plan:
    """The next ``ROWS_AT_ONCE`` of a group's shares are so; nothing where all are.

    Raises:
        ConfigError: this is not the home, there is no such group, or a row cannot be read.
    """
    table.check_home()
    _groups(table, [group])
    changed = islice(_in_other_phase(table, group, phase), ROWS_AT_ONCE)
    return plan_rows(table, {RowKey(TOPIC_KIND, topic): row.to_value() for topic, row in changed})


def shares_in_other_phase(table: ClusterTable, group: str, phase: SharePhase) -> int:
    """How many shares of a group are not in ``phase``.

    Raises:
        ConfigError: a row cannot be read.
    """
    return sum(1 for _ in _in_other_phase(table, group, phase))


def _in_other_phase(
    table: ClusterTable, group: str, phase: SharePhase
) -> Iterator[tuple[str, ClusterTopic]]:
    for topic, value in table.rows.of_kind(TOPIC_KIND):
        row = read_topic_row(value)
        share = row.shares.get(group)
        if share is not None and share.phase is not phase:
            shares = {**row.shares, group: share._replace(phase=phase)}
            yield topic, row._replace(shares=shares)


def plan_topic_release(table: ClusterTable, topic: str) -> Plan:
    """A topic is over no groups any more: what each has of it is its own.

    Raises:
        ConfigError: this is not the home.
        TopicUnknownError: the topic is over no groups.
    """
    table.check_home()
    key = RowKey(TOPIC_KIND, topic)
    if table.rows.value(key) is None:
        raise TopicUnknownError("topic is over no groups of a cluster", topic=topic)
    return plan_row(table, key, None)


def _checked_share(queues: int) -> TopicShare:
    if not 1 <= queues <= QUEUE_ID_MAX:
        raise ConfigError("number of queues out of range", queues=queues, limit=QUEUE_ID_MAX)
    return TopicShare(queues)


def _groups(table: ClusterTable, over: Sequence[str]) -> Sequence[str]:
    there_are = dict(table.rows.of_kind(GROUP_KIND))
    unknown = [one for one in over if one not in there_are]
    if unknown:
        raise ConfigError(
            "no group of that name is in the cluster",
            group=unknown[0],
            groups=" ".join(sorted(there_are))[:1_000],
        )
    if not there_are:
        raise ConfigError("no group is in the cluster yet: `ledgermq cluster invite`")
    return over or [*there_are]


def _read_share(value: object) -> TopicShare:
    if not isinstance(value, Mapping):
        raise ConfigError("topic's share is no object", found=repr(value)[:64])
    queues = integer_of(value, "queues", low=1)
    if queues > QUEUE_ID_MAX:
        raise ConfigError("number of queues out of range", queues=queues, limit=QUEUE_ID_MAX)
    phase = text_of(value, "phase", size_max=_PHASE_SIZE_MAX)
    try:
        return TopicShare(queues, SharePhase(phase))
    except ValueError:
        raise ConfigError("topic's share has a phase of no known name", found=phase) from None


def _row_at_home(table: ClusterTable, topic: str) -> ClusterTopic:
    table.check_home()
    known = topic_row(table, topic)
    if known is None:
        raise TopicUnknownError("topic is over no groups of a cluster", topic=topic)
    return known
