"""Plans of how far a group has consumed: those of its members, and those of a sink's batches."""

from __future__ import annotations

from collections.abc import Mapping

from ledgermq.broker.reading.known_topics import KnownTopics
from ledgermq.model.config.settings import TopicsSection
from ledgermq.model.errors import MessageIllegalError
from ledgermq.model.names.queue_name import QueueName
from ledgermq.rules.tables.group_offsets import GroupOffsets
from ledgermq.rules.tables.table_changes import Change, GroupSet, OffsetsSet

OffsetsByTopic = Mapping[str, Mapping[int, int]]


def plan_consumed(
    known: KnownTopics,
    rules: TopicsSection,
    group: str,
    topics: OffsetsByTopic,
    *,
    may_go_back: bool = False,
) -> list[Change]:
    """What has the group be there; it is made if there is none. Nothing where all is known.

    Raises:
        TopicUnknownError, NoPermissionError: there is no such queue, or none may read it.
        GroupUnknownError: there is no such group, and none may be made by its use.
        GroupActiveError: it is a share group.
        MessageIllegalError: see ``GroupOffsets.check``.
    """
    tables = known.tables
    if not may_go_back:
        # A reset by an operator's tool is one of a share group, too.
        tables.shares.check_queue_by_queue(group)
    ends: dict[str, dict[int, int]] = {}
    for topic, offsets in topics.items():
        ends[topic] = {}
        for queue_id in offsets:
            queue = QueueName(topic, queue_id)
            known.check_queue(queue)
            bounds = known.store.bounds(queue)
            ends[topic][queue_id] = bounds.end + bounds.pending_max
    wished = tables.groups.plan_use(group, rules)
    found: list[Change] = []
    if tables.groups.get(group) is None:
        found.append(GroupSet(group, wished.to_fields()))
    for topic, offsets in topics.items():
        if tables.offsets.check(group, topic, offsets, ends=ends[topic], may_go_back=may_go_back):
            found.append(OffsetsSet(group, topic, offsets))
    return found


def touched_offsets(group: str, topics: OffsetsByTopic) -> frozenset[str]:
    """What such a plan looks at and changes, as a request to the state log names it."""
    return frozenset(
        f"offset {group}@{topic}/{queue_id}" for topic, of in topics.items() for queue_id in of
    )


def check_begins(
    offsets: GroupOffsets, group: str, topics: Mapping[str, Mapping[int, int | None]]
) -> None:
    """Whether the group is where a batch begins.

    Args:
        topics: the offset of each queue up to which the batches before have consumed; None where
            there was none before it.

    Raises:
        MessageIllegalError: it is elsewhere, so the batch would have messages a second time, or
            pass some over.
    """
    for topic, begins in topics.items():
        stored = offsets.offsets(group, topic)
        for queue_id, begin in begins.items():
            committed = stored.get(queue_id)
            if committed is not None and committed != begin:
                raise MessageIllegalError(
                    "group is not where the batch begins: another one consumes for it, or it was"
                    " reset",
                    group=group,
                    topic=topic,
                    queue=queue_id,
                    begin=begin,
                    committed=committed,
                )
