"""Spark sink: ``df.write.format("ledgermq")`` and ``writeStream``; each row becomes one message.

Each ``write`` of a task stages its rows under a name that is drawn anew. The driver's commit names
what the tasks that count have staged; the brokers remember the last batch of each query, so that
one that Spark runs again, because it died before it had noted the commit, is not taken twice.
Numbers of attempts would not do: they begin at 0 again with each driver.

The columns of a sink, all but ``body`` left out at will, or null in a row:

    topic       string                    else the option ``topic``
    queueId     int                       else by ``queueKey``, else the queues take turns
    queueKey    string                    messages of one key go to one queue, as with a producer
    tags        string                    the message's tag
    keys        string or array<string>   what the index finds the message by; blanks divide them
    properties  map<string,string>        the application's own
    flag        int                       the application's number
    body        binary or string
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import NoReturn, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from ledgermq.client.sending.record_encoder import Column, RowColumns
from ledgermq.client.staging import (
    ConsumedQueues,
    SinkClient,
    StagedRows,
    StageWriter,
    staging_producer,
)
from ledgermq.formats.java_hash import java_hash
from ledgermq.formats.records.properties import KEYS, TAGS, UNIQ_KEY
from ledgermq.model.errors import ConfigError, LedgerError, MessageIllegalError, ProtocolError
from ledgermq.pipeline.queue_ranges import CONSUMER, Queue, checkpoint_table, queue_table
from ledgermq.pipeline.sink.commit_plan import (
    GroupStage,
    GroupStages,
    commit_in_groups,
    drop_in_groups,
)
from ledgermq.pipeline.sink.sink_options import SinkOptions

NAME_END, VALUE_END = "\x01", "\x02"
RESERVED = (KEYS, TAGS, UNIQ_KEY)
COLUMNS: dict[str, tuple[str, ...]] = {
    "topic": ("string",),
    "queueId": ("int",),
    "queueKey": ("string",),
    "tags": ("string",),
    "keys": ("string", "array<string>"),
    "properties": ("map<string,string>",),
    "flag": ("int",),
    "body": ("binary", "string"),
}
"""The columns, with their types in Spark's notation."""

QUEUES_MAX = 65_536
NO_FLAGS = np.zeros(0, np.int32)

Integers = npt.NDArray[np.int64]


def check_sink_columns(types: dict[str, str], *, topic: str, is_over_groups: bool = False) -> None:
    """Refuse a schema that is none of a sink's.

    Args:
        types: in Spark's notation, by the columns' names.
        topic: of rows without one.
        is_over_groups: a number alone is no queue.

    Raises:
        ConfigError: names the column and what is allowed.
    """
    for name, given in types.items():
        allowed = COLUMNS.get(name)
        if allowed is None:
            raise ConfigError("sink has no such column", column=name, columns=list(COLUMNS))
        if given not in allowed:
            raise ConfigError("column has another type", column=name, type=given, allowed=allowed)
    if is_over_groups and "queueId" in types:
        raise ConfigError(
            "a queue is one group's: rows over several groups have a queueKey, or go to any queue",
            column="queueId",
        )
    if "body" not in types:
        raise ConfigError("sink needs the column body", columns=list(types))
    if "topic" not in types and not topic:
        raise ConfigError("rows have no topic: give the column, or the option", option="topic")


class RowWriter(Protocol):
    """What stages rows: a ``StageWriter``, or one of several groups."""

    def add_rows(self, topic: str, queue_id: int, rows: RowColumns) -> None:
        """Stage rows for one queue."""


@dataclass(slots=True)
class RowStager:
    """Stages the rows of one task.

    Attributes:
        queues_of: how many queues a topic has.
        first_queue: where rows without a queue begin, so that not all tasks begin with the same.
        open_queues: which ones of a topic take turns; None: all.
    """

    writer: RowWriter
    queues_of: Callable[[str], int]
    topic: str
    first_queue: int = 0
    open_queues: Callable[[str], Sequence[int]] | None = None
    _turns: dict[str, int] = field(default_factory=dict)

    def add(self, batch: pa.RecordBatch) -> None:
        """Stage all rows of ``batch``, those of one queue in their order.

        Raises:
            MessageIllegalError: a row cannot be a message; names column and value.
            TopicUnknownError: there is no such topic, and none may be created.
            LedgerError: they are not staged, or it is not known.
        """
        if batch.num_rows == 0:
            return
        columns = {name: batch.column(name) for name in batch.schema.names}
        bodies = _bodies(columns["body"])
        properties = encoded_properties(columns, batch.num_rows)
        flags = _numbers(columns.get("flag"))
        for topic, of_topic in self._by_topic(columns.get("topic"), batch.num_rows):
            queues = self._queues(topic, columns, of_topic)
            order = np.argsort(queues, kind="stable")
            rows, queues = of_topic[order], queues[order]
            cuts = [0, *(np.flatnonzero(np.diff(queues)) + 1).tolist(), len(rows)]
            is_all = len(cuts) == 2 and len(rows) == batch.num_rows
            taken = None if is_all else pa.array(rows)
            some_bodies = _column(bodies, taken)
            some_properties = _column(properties, taken)
            some_flags = NO_FLAGS if flags is None else flags[rows].astype(np.int32)
            for first, end in pairwise(cuts):
                columns_of_queue = RowColumns(
                    _part(some_bodies, first, end),
                    _part(some_properties, first, end),
                    b"\1" * (end - first),
                    some_flags[first:end].data,
                )
                self.writer.add_rows(topic, int(queues[first]), columns_of_queue)

    def _by_topic(self, column: pa.Array | None, count: int) -> list[tuple[str, Integers]]:
        """The topics of a batch, each with its rows."""
        every = np.arange(count, dtype=np.int64)
        if column is None:
            return [(self.topic, every)]
        if column.null_count:
            if not self.topic:
                raise MessageIllegalError("row has no topic", column="topic")
            column = column.fill_null(self.topic)
        codes = column.dictionary_encode()
        names = codes.dictionary.to_pylist()
        if len(names) == 1:
            return [(names[0], every)]
        numbers = codes.indices.to_numpy()
        return [(name, np.flatnonzero(numbers == code)) for code, name in enumerate(names)]

    def _queues(self, topic: str, columns: dict[str, pa.Array], rows: Integers) -> Integers:
        """The queue of each of the rows, which are of one topic."""
        count = self.queues_of(topic)
        queues = np.full(len(rows), -1, np.int64)
        taken = pa.array(rows)
        if (column := columns.get("queueId")) is not None:
            ids = column.take(taken)
            is_given = ids.is_valid().to_numpy(zero_copy_only=False)
            queues[is_given] = ids.drop_null().to_numpy()
            wrong = queues[is_given & ((queues < 0) | (queues >= count))]
            if len(wrong):
                raise MessageIllegalError(
                    "topic has no such queue", topic=topic, queueId=int(wrong[0]), limit=count - 1
                )
        if (column := columns.get("queueKey")) is not None:
            keys = column.take(taken).dictionary_encode()
            # As a producer chooses: Java's remainder has the sign of the hash.
            chosen = [abs(java_hash(key)) % count for key in keys.dictionary.to_pylist()]
            is_open = (queues < 0) & keys.is_valid().to_numpy(zero_copy_only=False)
            numbers = keys.indices.fill_null(0).to_numpy()
            if chosen:
                queues[is_open] = np.array(chosen, np.int64)[numbers[is_open]]
        is_open = queues < 0
        if is_open.any():
            turn = self._turns.get(topic, self.first_queue)
            self._turns[topic] = turn + 1
            takers = range(count) if self.open_queues is None else self.open_queues(topic)
            queues[is_open] = takers[turn % len(takers)]
        return queues


def encoded_properties(columns: dict[str, pa.Array], count: int) -> pa.Array:
    """The properties of each row, as bytes, up to where its unique id goes.

    Raises:
        MessageIllegalError: a name or a value cannot stand on disk; names column and value.
    """
    parts: list[pa.Array] = []
    if (column := columns.get("properties")) is not None:
        parts.append(_own_properties(column))
    for name, key in (("tags", TAGS), ("keys", KEYS)):
        if (column := columns.get(name)) is None or column.null_count == count:
            continue
        if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
            _check_texts(column.flatten(), name)
            column = pc.binary_join(column, " ")
            column = pc.if_else(pc.equal(column, ""), None, column)
        _check_texts(column, name)
        part = pc.binary_join_element_wise(key + NAME_END, column, VALUE_END, "")
        parts.append(part.fill_null(""))
    last = UNIQ_KEY + NAME_END
    if not parts:
        return pa.repeat(pa.scalar(last.encode()), count)
    return pc.binary_join_element_wise(*parts, last, "").cast(pa.binary())


def _own_properties(column: pa.MapArray) -> pa.Array:
    """The application's properties of each row, each with its end; empty where there are none."""
    column = pc.if_else(column.is_valid(), column, pa.scalar([], column.type))
    first, last = column.offsets[0].as_py(), column.offsets[len(column)].as_py()
    names, values = column.keys[first:last], column.items[first:last]
    _check_texts(names, "properties")
    _check_texts(values, "properties")
    if values.null_count:
        raise MessageIllegalError("property has no value", column="properties")
    reserved = names.filter(pc.is_in(names, pa.array(RESERVED)))
    if len(reserved):
        raise MessageIllegalError(
            "property has a column of its own", column="properties", name=reserved[0].as_py()
        )
    pairs = pc.binary_join_element_wise(names, values, NAME_END)
    pairs = pc.binary_join_element_wise(pairs, VALUE_END, "")
    offsets = pc.subtract(column.offsets, first).cast(pa.int32())
    return pc.binary_join(pa.ListArray.from_arrays(offsets, pairs), "")


def _check_texts(texts: pa.Array, column: str) -> None:
    """Refuse texts that properties cannot hold: empty ones, and what divides properties."""
    for what, is_wrong in (
        ("is empty", pc.equal(texts, "")),
        ("has a separator", pc.match_substring_regex(texts, "[\x01\x02]")),
    ):
        found = texts.filter(is_wrong)
        if len(found):
            raise MessageIllegalError(f"value {what}", column=column, value=found[0].as_py())


def _bodies(column: pa.Array) -> pa.Array:
    if column.null_count:
        raise MessageIllegalError("row has no body", column="body", rows=column.null_count)
    if pa.types.is_large_string(column.type):
        return column.cast(pa.large_binary())
    return column.cast(pa.binary()) if pa.types.is_string(column.type) else column


def _numbers(column: pa.Array | None) -> Integers | None:
    """The numbers of a column, 0 where it has none; None when all are 0."""
    if column is None or column.null_count == len(column):
        return None
    found: Integers = column.fill_null(0).to_numpy().astype(np.int64)
    return found if found.any() else None


def _column(array: pa.Array, rows: pa.Array | None) -> Column:
    """The values of an array of binaries, or some of them, where they lie."""
    if rows is not None:
        array = array.take(rows)
    _, offsets, data = array.buffers()
    kind = np.int64 if pa.types.is_large_binary(array.type) else np.int32
    bounds = np.frombuffer(offsets, kind)[array.offset : array.offset + len(array) + 1]
    octets = memoryview(b"") if data is None else memoryview(data).cast("B")
    return Column(octets, bounds.astype(np.int64).data)


def _part(column: Column, first: int, end: int) -> Column:
    return Column(column.data, column.bounds[first : end + 1])


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
