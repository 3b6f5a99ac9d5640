"""Rows of Arrow batches as messages to be staged: properties and queues in bulk.

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

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ledgermq.client.sending.record_encoder import Column, RowColumns
from ledgermq.formats.java_hash import java_hash
from ledgermq.formats.records.properties import KEYS, TAGS, UNIQ_KEY
from ledgermq.model.errors import ConfigError, MessageIllegalError

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
