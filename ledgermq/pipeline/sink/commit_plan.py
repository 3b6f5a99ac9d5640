"""Batches over several groups: rows are staged in each, and committed as one file has decided.

A batch over several groups is committed by a command in each of them. Which rows it has is decided
before the first one, by a file that is there as a whole or not at all:

    FOLDER/SINK-BATCH.json    {"version": 1, "groups": {"orders-a": {"nodes": …, "stages": […]}}}

Whoever runs the batch again finds it, and commits what it names in the groups that have not yet.
"""

from __future__ import annotations

import json
import logging
import time
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple, NoReturn

from ledgermq.client.blocking.producer import Producer
from ledgermq.client.clusters.group_watch import GroupWatch
from ledgermq.client.clusters.topic_groups import TopicGroups
from ledgermq.client.sending.record_encoder import RowColumns
from ledgermq.client.staging import (
    SinkClient,
    StagedRows,
    StageWriter,
    commit_arguments,
    staging_producer,
)
from ledgermq.model.errors import ConfigError, LedgerError, NotLeaderError, TopicUnknownError
from ledgermq.model.names.stages import Stage
from ledgermq.model.offset_ranges import offsets_in, ranges_of
from ledgermq.pipeline.clusters.cluster_groups import GROUPS_AT_ONCE, with_keys_of, without_options
from ledgermq.pipeline.sink.sink_options import SinkOptions
from ledgermq.store.files.disk_sync import make_directories
from ledgermq.store.files.small_file import read_file, replace_file

ANSWERS_S = 1.0
"""A group that is there has answered by then; others get no rows that may go to any queue."""

VERSION = 1

KEPT_BATCHES = 100
"""Plans of batches before these are removed, as Spark's own notes are."""

PLANNED_PACKS_MAX = 1_000_000
logger = logging.getLogger(__name__)


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


class GroupStage(NamedTuple):
    """What is staged in one group, by one task or by all.

    Attributes:
        nodes: addresses of its nodes without options, with commas.
        staged: in the order in which it becomes messages.
    """

    nodes: str
    staged: tuple[StagedRows, ...]


Plan = Mapping[str, GroupStage]
"""Stages by the names of the groups; those that get no rows of the batch are not among them."""


class PlanFolder:
    """Plans of all batches, of which a sink has one at a time."""

    def __init__(self, folder: Path) -> None:
        """It is made with the first plan."""
        self._folder = folder

    def read(self, sink: str, batch: int) -> Plan | None:
        """The plan of a batch; None: nothing of it is committed.

        Raises:
            StorageError: the file cannot be read.
            ConfigError: it is none of ours.
        """
        path = self._path(sink, batch)
        content = read_file(path)
        if content is None:
            return None
        try:
            document = json.loads(content)
            if document["version"] != VERSION:
                _refuse(path, f"version {document['version']}")
            return {
                str(name): GroupStage(
                    str(group["nodes"]),
                    tuple(_staged(path, sink, batch, one) for one in group["stages"]),
                )
                for name, group in document["groups"].items()
            }
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            _refuse(path, repr(error))

    def write(self, sink: str, batch: int, plan: Plan) -> None:
        """Decide what a batch is; durable on return.

        Raises:
            StorageError: it is not decided.
        """
        groups = {
            name: {
                "nodes": group.nodes,
                "stages": [
                    [one.stage.name, one.rows, ranges_of(one.offsets)] for one in group.staged
                ],
            }
            for name, group in sorted(plan.items())
        }
        make_directories(self._folder)
        document = {"version": VERSION, "groups": groups}
        replace_file(self._path(sink, batch), json.dumps(document).encode())
        self._path(sink, batch - KEPT_BATCHES).unlink(missing_ok=True)

    def _path(self, sink: str, batch: int) -> Path:
        return self._folder / f"{sink}-{batch}.json"


def joined(stages: Sequence[Mapping[str, GroupStage]]) -> Plan:
    """What all tasks have staged, in their order."""
    plan: dict[str, GroupStage] = {}
    for of_task in stages:
        for name, group in of_task.items():
            before = plan[name].staged if name in plan else ()
            plan[name] = GroupStage(group.nodes, (*before, *group.staged))
    return plan


def _staged(path: Path, sink: str, batch: int, value: Sequence[object]) -> StagedRows:
    name, rows, ranges = value

    def refuse(found: object) -> LedgerError:
        return _not_ours(path, f"offsets {found!r}")

    if not isinstance(name, str) or not isinstance(rows, int):
        _refuse(path, "a stage has no name or no number of rows")
    offsets = tuple(offsets_in(ranges, limit=PLANNED_PACKS_MAX, refuse=refuse))
    return StagedRows(Stage(sink, batch, name), offsets, rows)


def _refuse(path: Path, what: str) -> NoReturn:
    raise _not_ours(path, what)


def _not_ours(path: Path, what: str) -> ConfigError:
    return ConfigError("file is no plan of a batch's commits", file=str(path), found=what[:200])


Stages = Sequence[Mapping[str, GroupStage]]
"""What each task has staged in each group."""


def commit_in_groups(
    options: SinkOptions, sink: str, batch: int, stages: Stages, *, is_once: bool = False
) -> None:
    """Have a batch become messages in all of its groups, once.

    Where an earlier attempt has planned the batch, it is what that one has staged: what it has not
    committed is committed now, and ``stages`` are dropped.

    Raises:
        LedgerError: of the first group that has not committed its part, or of which it is not
            known; ``broker_group`` in its details is its name. All others have, and the rest
            follows when the batch is committed again.
    """
    folder = None if options.plans is None else PlanFolder(options.plans)
    own = joined(stages)
    plan = None if folder is None else folder.read(sink, batch)
    if plan is not None:
        logger.warning("batch was planned before: sink=%s batch=%d", sink, batch)
        drop_in_groups(options, sink, batch, stages)
    elif folder is not None and own:
        for group in own.values():
            # What no commit could say must not be decided.
            commit_arguments(group.staged)
        folder.write(sink, batch, own)
    _each(options, own if plan is None else plan, _Commit(options, sink, batch, is_once))


def drop_in_groups(options: SinkOptions, sink: str, batch: int, stages: Stages) -> None:
    """Drop what was staged, but for what a plan names: that is going to be committed."""
    planned: set[str] = set()
    try:
        plan = PlanFolder(options.plans).read(sink, batch) if options.plans is not None else None
        if plan is not None:
            planned = {one.stage.name for group in plan.values() for one in group.staged}
        rest = {
            name: GroupStage(
                group.nodes,
                tuple(one for one in group.staged if one.stage.name not in planned),
            )
            for name, group in joined(stages).items()
        }
        _each(options, rest, _Drop(sink, batch))
    except LedgerError as error:
        # They are dropped after their time; what else has failed is more important.
        logger.warning("staged rows not dropped yet: sink=%s batch=%d: %s", sink, batch, error)


class _Commit:
    """The commit of one group's part."""

    def __init__(self, options: SinkOptions, sink: str, batch: int, is_once: bool) -> None:
        self._sink, self._batch, self._is_once = sink, batch, is_once
        self._awaits = options.awaits_messages

    def __call__(self, client: SinkClient, group: GroupStage) -> None:
        client.commit(self._sink, self._batch, group.staged, is_once=self._is_once)
        if self._awaits:
            client.wait(self._sink, self._batch)


class _Drop:
    """The end of one group's part that is not committed."""

    def __init__(self, sink: str, batch: int) -> None:
        self._sink, self._batch = sink, batch

    def __call__(self, client: SinkClient, group: GroupStage) -> None:
        client.abort(self._sink, self._batch, group.staged)


def _each(options: SinkOptions, plan: Plan, act: _Commit | _Drop) -> None:
    """Do something in each group, in all at once, whatever has come of the others.

    Raises:
        LedgerError: of the first one, by their names, that could not.
    """

    def acted(one: tuple[str, GroupStage]) -> LedgerError | None:
        name, group = one
        assert options.groups is not None, "groups are chosen"
        nodes = with_keys_of(options.groups.seeds[0], group.nodes)
        try:
            timeout_s = options.timeout_ms / 1_000
            with SinkClient(nodes, name="spark", timeout_s=timeout_s) as client:
                act(client, group)
        except LedgerError as error:
            error.details["broker_group"] = name
            return error
        return None

    with ThreadPoolExecutor(GROUPS_AT_ONCE, thread_name_prefix="spark-groups") as threads:
        failures = [one for one in threads.map(acted, sorted(plan.items())) if one is not None]
    if failures:
        raise failures[0]
