"""Staging in several groups: rows go to queues of all groups that have their topic."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from ledgermq.client.blocking.producer import Producer
from ledgermq.client.clusters.group_watch import GroupWatch
from ledgermq.client.clusters.topic_groups import TopicGroups
from ledgermq.client.sending.record_encoder import RowColumns
from ledgermq.client.staging import StageWriter, staging_producer
from ledgermq.model.errors import ConfigError, LedgerError, NotLeaderError, TopicUnknownError
from ledgermq.pipeline.clusters.cluster_groups import without_options
from ledgermq.pipeline.sink.commit_plan import GroupStage
from ledgermq.pipeline.sink.sink_options import SinkOptions

ANSWERS_S = 1.0
"""A group that is there has answered by then; others get no rows that may go to any queue."""


class TopicQueues(NamedTuple):
    """Queues of a topic, counted through in the order of the names of their groups.

    Attributes:
        ends: behind the last queue of each group.
        open: those of groups that answer, each group's first ones before all second ones.
    """

    groups: tuple[str, ...]
    ends: tuple[int, ...]
    open: tuple[int, ...]

    def place_of(self, number: int) -> tuple[str, int]:
        """Group and queue id of a queue."""
        at = bisect_right(self.ends, number)
        return self.groups[at], number - (self.ends[at - 1] if at else 0)


class GroupStages:
    """Stages the rows of one task; used by one thread, closed by whoever made it."""

    def __init__(self, options: SinkOptions, sink: str, batch: int) -> None:
        """Nothing is staged.

        Raises:
            ConfigError: an address cannot be one.
        """
        assert options.groups is not None, "groups are chosen"
        self._options = options
        self._choice = options.groups
        self._sink, self._batch = sink, batch
        self._timeout_s = options.timeout_ms / 1_000
        self._topics: dict[str, TopicQueues] = {}
        self._producers: dict[str, Producer] = {}
        self._writers: dict[str, StageWriter] = {}
        self._nodes: dict[str, str] = {}
        self._watch = GroupWatch(options.groups.seeds, client="spark")

    def queues_of(self, topic: str) -> int:
        """How many queues a topic has in all groups.

        Raises:
            TopicUnknownError: no group has it; none is made.
            NotLeaderError: it is not known which groups have it.
        """
        return self._known(topic).ends[-1]

    def open_queues(self, topic: str) -> Sequence[int]:
        """Numbers of the queues that take turns."""
        return self._known(topic).open

    def add_rows(self, topic: str, number: int, rows: RowColumns) -> None:
        """Stage rows for one queue, by its number among all.

        Raises:
            LedgerError: they are not staged, or it is not known; the attempt has failed.
        """
        name, queue_id = self._known(topic).place_of(number)
        try:
            self._writer(name).add_rows(topic, queue_id, rows)
        except LedgerError as error:
            error.details["broker_group"] = name
            raise

    def finish(self) -> dict[str, GroupStage]:
        """What is staged in each group, once a majority of it has all of it.

        Raises:
            LedgerError: rows are not staged, or it is not known; the attempt has failed.
        """
        found: dict[str, GroupStage] = {}
        for name, writer in sorted(self._writers.items()):
            try:
                found[name] = GroupStage(without_options(self._nodes[name]), (writer.finish(),))
            except LedgerError as error:
                error.details["broker_group"] = name
                raise
        return found

    def close(self) -> None:
        """Say goodbye to all nodes."""
        for producer in self._producers.values():
            producer.close(0.0)
        self._watch.close()

    def _known(self, topic: str) -> TopicQueues:
        """What a topic had when its first row came: a key keeps its queue within a task."""
        known = self._topics.get(topic)
        if known is None:
            until = time.monotonic() + self._timeout_s
            self._watch.wait_for_groups(until, whole=True)
            # From now on it is asked for.
            self._watch.topic_groups(topic)
            said = self._watch.wait_for(topic, lambda told: told.is_whole, until)
            if not said.is_whole:
                raise NotLeaderError(
                    "it is not known which groups have the topic",
                    topic=topic,
                    unheard=list(said.unheard),
                )
            known = self._topics[topic] = self._counted(topic, said)
        return known

    def _counted(self, topic: str, said: TopicGroups) -> TopicQueues:
        queues = {name: count for name, count in said.queues.items() if self._choice.has(name)}
        if not queues:
            raise TopicUnknownError("no group takes messages of the topic", topic=topic)
        self._watch.wait_for_answers(time.monotonic() + min(ANSWERS_S, self._timeout_s))
        ends = tuple(accumulate(queues.values()))
        answering = {one.name for one in self._watch.groups() if one.answers} & queues.keys()
        places = [
            (queue_id, name, end - count + queue_id)
            for (name, count), end in zip(queues.items(), ends, strict=True)
            if not answering or name in answering
            for queue_id in range(count)
        ]
        return TopicQueues(tuple(queues), ends, tuple(number for *_, number in sorted(places)))

    def _writer(self, name: str) -> StageWriter:
        writer = self._writers.get(name)
        if writer is None:
            group = self._watch.group(name)
            if group is None:
                raise ConfigError("group has left the cluster")
            producer = self._producers[name] = staging_producer(
                group.address, name="spark", timeout_s=self._timeout_s
            )
            writer = self._writers[name] = StageWriter(
                producer, self._sink, self._batch, pack_bytes=self._options.pack_bytes
            )
            self._nodes[name] = group.address
        return writer
