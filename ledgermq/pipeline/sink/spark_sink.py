"""Spark sink: ``df.write.format("ledgermq")`` and ``writeStream``; each row becomes one message.

Each ``write`` of a task stages its rows under a name that is drawn anew. The driver's commit names
what the tasks that count have staged; the brokers remember the last batch of each query, so that
one that Spark runs again, because it died before it had noted the commit, is not taken twice.
Numbers of attempts would not do: they begin at 0 again with each driver.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import NoReturn

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from ledgermq.client.staging import (
    ConsumedQueues,
    SinkClient,
    StagedRows,
    StageWriter,
    staging_producer,
)
from ledgermq.model.errors import ConfigError, LedgerError, ProtocolError
from ledgermq.pipeline.queue_ranges import CONSUMER, Queue, checkpoint_table, queue_table
from ledgermq.pipeline.sink.commit_plan import (
    GroupStage,
    GroupStages,
    commit_in_groups,
    drop_in_groups,
)
from ledgermq.pipeline.sink.sink_options import SinkOptions
from ledgermq.pipeline.sink.sink_rows import RowStager, check_sink_columns

logger = logging.getLogger(__name__)

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"
"""Local properties of Spark's, which its tasks are given."""

Messages = Sequence[WriterCommitMessage | None]
OFFSETS_VERSION = "v1"
FILE_SIZE_MAX = 16 * 1024 * 1024
_OPTION = "commitOffsets"


@dataclass
class StagedMessage(WriterCommitMessage):
    """What a task has staged, for the driver."""

    staged: StagedRows


@dataclass
class GroupsStagedMessage(WriterCommitMessage):
    """The same of a task whose rows are spread over groups, by their names.

    Attributes:
        sink, batch: for which it is; a task without rows has staged in no group.
    """

    sink: str
    batch: int
    groups: dict[str, GroupStage]


class BatchSink(DataSourceArrowWriter):
    """Writes one job; all of its rows become messages, or none."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        """A job of the name that the options say.

        Raises:
            ConfigError: the schema is none of a sink's.
        """
        self._options = options
        _check_schema(schema, options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of one task.

        Raises:
            LedgerError: a row cannot be a message, or the rows are not staged.
        """
        options = self._options
        return _staged_message(options, options.job, options.job_batch, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Have all rows become messages; those of a job that was committed before are dropped.

        Raises:
            LedgerError: nothing is committed, or it is not known.
        """
        options = self._options
        if options.groups is not None:
            stages = _group_stages(messages)
            commit_in_groups(
                options, options.job, options.job_batch, stages, is_once=options.is_once
            )
            return
        commit_batch(options, options.job, options.job_batch, messages, is_once=options.is_once)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Drop what was staged; when no node answers it is dropped after its time."""
        options = self._options
        if options.groups is not None:
            drop_in_groups(options, options.job, options.job_batch, _group_stages(messages))
            return
        # Nobody else writes under a name that was drawn, so tasks that failed are dropped, too.
        staged = None if options.is_once else _staged(messages)
        drop_batch(options, options.job, options.job_batch, staged)


class StreamSink(DataSourceStreamArrowWriter):
    """Writes a query's batches; each becomes messages as a whole, once."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        """Make the sink of a query, which is known when its tasks run.

        Raises:
            ConfigError: the schema is none of a sink's.
        """
        self._options = options
        _check_schema(schema, options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of one task.

        Raises:
            LedgerError: a row cannot be a message, or the rows are not staged.
        """
        context = TaskContext.get()
        assert context is not None, "write runs in a task"
        query, batch = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
        if query is None or batch is None or not batch.isdecimal():
            raise ConfigError(
                "Spark does not tell its tasks which query and batch they are of",
                properties=[QUERY_ID, BATCH_ID],
            )
        return _staged_message(self._options, f"spark-{query}", int(batch), iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Have the batch become messages; one that was committed before is dropped.

        Raises:
            ConfigError: the offsets of the batch are to be committed, and are not to be found.
            LedgerError: nothing is committed, or it is not known: the query ends, and runs the
                batch again when it is started again.
        """
        if self._options.groups is not None:
            stages = _group_stages(messages)
            for sink in _sinks_in_groups(messages, batchId):
                commit_in_groups(self._options, sink, batchId, stages)
            return
        checkpoint = self._options.checkpoint
        consumed = None if checkpoint is None else consumed_by(checkpoint, batchId)
        for sink in _sinks_of(messages, batchId):
            commit_batch(self._options, sink, batchId, messages, is_once=False, consumed=consumed)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Drop what was staged; what is not named here is dropped after its time."""
        stages = _group_stages(messages)
        for sink in _sinks_in_groups(messages, batchId):
            drop_in_groups(self._options, sink, batchId, stages)
        for sink in _sinks_of(messages, batchId):
            drop_batch(self._options, sink, batchId, _staged(messages))


def _staged_message(
    options: SinkOptions, sink: str, batch: int, batches: Iterator[pa.RecordBatch]
) -> WriterCommitMessage:
    if options.groups is None:
        return StagedMessage(stage_rows(options, sink, batch, batches))
    with closing(GroupStages(options, sink, batch)) as stages:
        stager = RowStager(
            stages, stages.queues_of, options.topic, _first_queue(), stages.open_queues
        )
        for rows in batches:
            stager.add(rows)
        return GroupsStagedMessage(sink, batch, stages.finish())


def _first_queue() -> int:
    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def stage_rows(
    options: SinkOptions, sink: str, batch: int, batches: Iterator[pa.RecordBatch]
) -> StagedRows:
    """Stage rows under a fresh name; durable on return, and seen by nobody.

    Raises:
        LedgerError: a row cannot be a message, or the rows are not staged.
    """
    with staging_producer(
        options.nodes, name="spark", timeout_s=options.timeout_ms / 1_000
    ) as producer:
        writer = StageWriter(producer, sink, batch, pack_bytes=options.pack_bytes)
        stager = RowStager(writer, producer.write_queues, options.topic, _first_queue())
        for rows in batches:
            stager.add(rows)
        return writer.finish()


def commit_batch(
    options: SinkOptions,
    sink: str,
    batch: int,
    messages: Messages,
    *,
    is_once: bool,
    consumed: ConsumedQueues | None = None,
) -> None:
    """Commit what tasks have staged, in the order of their partitions, with what was consumed.

    Raises:
        LedgerError: nothing is committed, or it is not known.
    """
    with _client(options) as client:
        committed = client.commit(
            sink, batch, _staged(messages), is_once=is_once, consumed=consumed
        )
        if committed.is_already:
            logger.warning("batch was committed before: sink=%s batch=%d", sink, batch)
        if options.awaits_messages:
            client.wait(sink, batch)


def drop_batch(
    options: SinkOptions, sink: str, batch: int, staged: Sequence[StagedRows] | None
) -> None:
    """Drop what was staged, all of the batch when it is not said what."""
    try:
        with _client(options) as client:
            client.abort(sink, batch, staged)
    except LedgerError as error:
        # The job has failed for another reason, which is more important.
        logger.warning("staged rows not dropped yet: sink=%s batch=%d: %s", sink, batch, error)


def _client(options: SinkOptions) -> SinkClient:
    return SinkClient(options.nodes, name="spark", timeout_s=options.timeout_ms / 1_000)


def _staged(messages: Messages) -> list[StagedRows]:
    """What the tasks that have a message have staged."""
    return [message.staged for message in messages if isinstance(message, StagedMessage)]


def _group_stages(messages: Messages) -> list[dict[str, GroupStage]]:
    """What tasks have staged in groups, a task each."""
    return [one.groups for one in messages if isinstance(one, GroupsStagedMessage)]


def _sinks_of(messages: Messages, batch: int) -> list[str]:
    """The sink of a batch's messages, nothing when no task has staged anything.

    Raises:
        ProtocolError: they are of another batch, or of several queries.
    """
    return _sinks_among({(one.stage.sink, one.stage.batch) for one in _staged(messages)}, batch)


def _sinks_in_groups(messages: Messages, batch: int) -> list[str]:
    """The same of tasks whose rows are spread over groups.

    Raises:
        ProtocolError: they are of another batch, or of several queries.
    """
    own = (one for one in messages if isinstance(one, GroupsStagedMessage))
    return _sinks_among({(one.sink, one.batch) for one in own}, batch)


def _sinks_among(stages: set[tuple[str, int]], batch: int) -> list[str]:
    if len(stages) > 1 or any(number != batch for _, number in stages):
        raise ProtocolError("tasks have staged for another batch", batch=batch, found=list(stages))
    return [sink for sink, _ in stages]


def _check_schema(schema: StructType, options: SinkOptions) -> None:
    types = {field.name: field.dataType.simpleString() for field in schema.fields}
    check_sink_columns(types, topic=options.topic, is_over_groups=options.groups is not None)


def consumed_by(checkpoint: Path, batch: int) -> ConsumedQueues:
    """What a batch has consumed, of all sources of its query that have a group.

    Spark writes that into its checkpoint before it runs the batch, and runs it again with the same.
    The file has a line with the version of its form, one with settings, one for each source:

        CHECKPOINT/offsets/BATCH    v1
                                    {"batchWatermarkMs": ...}
                                    {"orders": {"0": 800}, "@group": {"group": ..., "from": ...}}

    Raises:
        ConfigError: no source has one, they have several, or two of them read one queue; or the
            checkpoint is not where the driver sees it, or of a form that is not known here.
    """
    path = checkpoint / "offsets" / str(batch)
    before = path.with_name(str(batch - 1))
    lines_before = _sources_in(before) if before.exists() else []
    groups: set[str] = set()
    queues: dict[Queue, tuple[int | None, int]] = {}
    for line, line_before in zip_longest(_sources_in(path), lines_before):
        if line is None:
            break
        document = _document_in(path, line)
        consumer = document.get(CONSUMER)
        if consumer is None:
            continue
        if not isinstance(consumer, dict) or not isinstance(consumer.get("group"), str):
            _refuse(path, "not a group and where the batch begins", str(consumer))
        groups.add(consumer["group"])
        begins = queue_table(consumer.get("from"), option=_OPTION)
        ends = checkpoint_table(document, option=_OPTION)
        twice = sorted(ends.keys() & queues.keys())
        if twice:
            topic, queue_id = twice[0]
            raise ConfigError(
                "two sources of the query consume one queue for a group",
                option=_OPTION,
                topic=topic,
                queueId=queue_id,
            )
        if line == line_before:
            # The source had nothing new, and says once more what the batch before has consumed.
            begins = ends
        queues |= {queue: (begins.get(queue), end) for queue, end in ends.items()}
    if len(groups) != 1:
        raise ConfigError(
            "sources of the query need one group to commit offsets for: give them the option"
            " `group`, the same to all",
            option=_OPTION,
            groups=sorted(groups),
        )
    return ConsumedQueues(groups.pop(), queues)


def _sources_in(path: Path) -> list[str]:
    """The lines of the query's sources."""
    try:
        with path.open("rb") as file:
            content = file.read(FILE_SIZE_MAX + 1)
    except OSError as error:
        raise ConfigError(
            "offsets of the batch cannot be read: the checkpoint must be in a folder that the"
            " driver sees under its name",
            option=_OPTION,
            file=str(path),
            reason=error.strerror,
        ) from error
    if len(content) > FILE_SIZE_MAX:
        _refuse(path, f"file of more than {FILE_SIZE_MAX} bytes", "")
    version, *lines = content.decode(errors="replace").split("\n")
    if version != OFFSETS_VERSION:
        _refuse(path, "form of the file is not known", version)
    return [line for line in lines[1:] if line]


def _document_in(path: Path, line: str) -> dict[str, object]:
    """The offsets of one source; empty where they are no object, as of other sources."""
    try:
        document = json.loads(line)
    except json.JSONDecodeError:
        # "-" of a source without offsets, or a form of another source's own.
        return {}
    return document if isinstance(document, dict) else {}


def _refuse(path: Path, what: str, found: str) -> NoReturn:
    raise ConfigError(
        f"offsets of the batch cannot be read: {what}",
        option=_OPTION,
        file=str(path),
        found=found[:200],
    )
