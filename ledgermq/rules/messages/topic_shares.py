"""Plans for a topic over groups: what one group's share of it changes in the group's own table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ledgermq.model.errors import ConfigError
from ledgermq.rules.cluster.cluster_table import ClusterTable
from ledgermq.rules.cluster.topic_rows import ClusterTopic, SharePhase, TopicShare, topic_row
from ledgermq.rules.tables.topics import Permission, Topic, TopicTable


def plan_followed(
    topics: TopicTable, cluster: ClusterTable, name: str, *, first_offsets: Mapping[int, int]
) -> Topic | None:
    """The topic as the cluster's rows want it in this group; None: as it is.

    What follows no row any more is as it was, and the group's own.

    Args:
        first_offsets: where its queues begin, if there was a topic of that name before.

    Raises:
        ConfigError: the group has a topic of that name of its own, or the row cannot be read.
        MessageIllegalError: the name breaks a rule, or it would get fewer queues.
        NoPermissionError: the name is reserved for the broker.
    """
    existing = topics.get(name)
    row = topic_row(cluster, name)
    share = None if row is None else row.shares.get(cluster.group)
    if row is not None and share is not None:
        wanted = _with_share(topics, cluster, name, row, share, first_offsets=first_offsets)
    elif existing is None or not existing.cluster or not _is_confirmed(cluster):
        return None
    else:
        wanted = replace(existing, cluster="")
    return None if wanted == existing else wanted


def _is_confirmed(cluster: ClusterTable) -> bool:
    """Whether a row that is not there is none: not in a group that waits for its first document."""
    return cluster.chain is None or cluster.rows_rank > 0


def _with_share(
    topics: TopicTable,
    cluster: ClusterTable,
    name: str,
    row: ClusterTopic,
    share: TopicShare,
    *,
    first_offsets: Mapping[int, int],
) -> Topic:
    existing = topics.get(name)
    assert cluster.chain is not None, "who has rows belongs to a cluster"
    own = cluster.chain.cluster
    if existing is not None and existing.cluster != own and not row.adopts:
        raise ConfigError(
            "group has a topic of that name of its own: `ledgermq topic create --over … --adopt` at"
            " the home takes it up",
            topic=name,
            group=cluster.group,
        )
    planned = topics.plan(name, share.queues)
    if existing is None and first_offsets:
        planned = planned.beginning_at(first_offsets)
    may = planned.permission | Permission.READ
    may = may | Permission.WRITE if share.phase is SharePhase.OPEN else may & ~Permission.WRITE
    is_ordered = planned.is_ordered or row.order
    return replace(planned, permission=may, is_ordered=is_ordered, cluster=own)
