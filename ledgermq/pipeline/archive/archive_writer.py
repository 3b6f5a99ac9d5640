"""Task of ``archive``: messages of its part of the log, written as Parquet files.

Bodies go from the map of the log through Arrow into the files; only what the manifest says of them
goes back to the driver.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql.types import DataType

from ledgermq.model.errors import StorageError
from ledgermq.pipeline.archive.archive_layout import (
    ArchivedFile,
    QueueSpan,
    day_of,
    file_path,
)
from ledgermq.pipeline.archive.archive_store import StagedFile, StagingArea
from ledgermq.pipeline.chosen_columns import ChosenColumns, MakeBatches
from ledgermq.pipeline.columns.arrow_slices import Integers
from ledgermq.pipeline.columns.message_schema import (
    COLUMNS,
    SCHEMA_ID,
    TYPED_COLUMNS,
    UNPARSED,
    UNPARSED_WHY,
    VALUE,
    arrow_schema,
)
from ledgermq.pipeline.columns.queued_records import QueuedRecords, columns_of
from ledgermq.pipeline.columns.record_columns import RecordColumns
from ledgermq.pipeline.queue_ranges import MessageRange
from ledgermq.pipeline.source.row_source import open_source
from ledgermq.pipeline.source_options import SourceOptions
from ledgermq.pipeline.typed.value_columns import value_column

ARCHIVED_COLUMNS = tuple(name for name in COLUMNS if name != "topic")
"""The topic is in the name of the folder, as Spark's partitions have it."""

ARCHIVED_SCHEMA = arrow_schema(ARCHIVED_COLUMNS)

GROUP_BYTES = 16 * 1024 * 1024
"""Bytes of a row group, before it is compressed."""

PENDING_BYTES_MAX = 96 * 1024 * 1024
"""Most bytes of all rows that wait for their row group; beyond it the largest groups are written
early."""

SORTED_BYTES = 64 * 1024 * 1024
"""Bytes of a file whose rows are sorted, before it is compressed: they are sorted at once."""

RUN_ROWS_MIN = 32
"""Shorter runs of rows, on average, are copied when they are sorted: a slice costs as much."""

SORTED_PENDING_BYTES_MAX = 256 * 1024 * 1024
"""Most bytes of all rows that wait to be sorted; beyond it the largest files are written early."""

FILE_BYTES_MAX = 4 << 30
"""Behind it another file is begun: a store of objects copies 5 GiB in one go, and no more."""

OPEN_FILES_MAX = 128
"""More topics and days at once cost more files, not more descriptors."""

_DICTIONARY_COLUMNS = [
    *(
        "topic",
        "queueId",
        "tags",
        "bornHost",
        "storeHost",
        "sysFlag",
        "flag",
        "reconsumeTimes",
        "raftTerm",
    ),
    "properties.key_value.key",
]
WITHOUT_STATISTICS = ("body", "properties", "bornHost", "storeHost")
"""Columns whose least and largest values nobody asks for."""


@dataclass(frozen=True, slots=True)
class FileForm:
    """What the Parquet files of an archive are like; it goes to the workers, pickled.

    Attributes:
        columns: of the source, in the order of ``schema``.
        schema: of the files: types that those of the columns can be cast to, and field ids.
        statistics: paths of the columns whose least and largest values are written.
        order: columns that the rows of each file are sorted by; without any they stand in the order
            of the log.
        with_footers: whether the driver gets the footer of each file.
        value: type of the bodies as fields, where ``columns`` have them.
    """

    columns: tuple[str, ...]
    schema: pa.Schema
    statistics: tuple[str, ...]
    order: tuple[str, ...] = ()
    with_footers: bool = False
    value: DataType | None = None

    @property
    def chosen(self) -> ChosenColumns:
        """How the columns are made of rows."""
        return ChosenColumns(self.columns, self.value)

    @property
    def batch_bytes(self) -> int:
        """Bytes of a topic and day that are written at once."""
        return SORTED_BYTES if self.order else GROUP_BYTES

    @property
    def pending_bytes_max(self) -> int:
        """Most bytes that may wait, of all topics and days together."""
        return SORTED_PENDING_BYTES_MAX if self.order else PENDING_BYTES_MAX


PLAIN_FORM = FileForm(
    ARCHIVED_COLUMNS,
    ARCHIVED_SCHEMA,
    tuple(name for name in ARCHIVED_COLUMNS if name not in WITHOUT_STATISTICS),
)
"""Form of archives in folders and buckets."""


def typed_form(value: DataType) -> FileForm:
    """Form of archives in folders and buckets whose bodies are fields, too, of the type ``value``.

    Raises:
        ConfigError: no schema's bodies have that type.
    """
    types = {
        VALUE: value_column(value).type,
        SCHEMA_ID: pa.int32(),
        UNPARSED: pa.binary(),
        UNPARSED_WHY: pa.string(),
    }
    schema = pa.schema([*ARCHIVED_SCHEMA, *(pa.field(name, types[name]) for name in TYPED_COLUMNS)])
    statistics = (*PLAIN_FORM.statistics, SCHEMA_ID)
    return FileForm((*ARCHIVED_COLUMNS, *TYPED_COLUMNS), schema, statistics, value=value)


def parquet_writer(
    file: StagedFile,
    form: FileForm,
    topic: str,
    *,
    level: int,
    footers: list[pq.FileMetaData],
) -> pq.ParquetWriter:
    """A writer of one file of ``form``; when it is closed its footer is in ``footers``."""
    return pq.ParquetWriter(
        file,
        form.schema.with_metadata({"ledgermq.topic": topic}),
        compression="zstd",
        compression_level=level,
        use_dictionary=_DICTIONARY_COLUMNS,
        write_statistics=list(form.statistics),
        metadata_collector=footers,
    )


def write_sorted(writer: pq.ParquetWriter, table: pa.Table, form: FileForm) -> None:
    """Write all rows of a file in the order of ``form``, in row groups of ``GROUP_BYTES``."""
    rows_max = table.num_rows * GROUP_BYTES // max(table.nbytes, GROUP_BYTES)
    ordered = _in_order(table, form.order)
    writer.write_table(ordered.cast(form.schema), row_group_size=max(1, rows_max))


def _in_order(table: pa.Table, order: tuple[str, ...]) -> pa.Table:
    """The rows of ``table``, sorted.

    Messages of a queue often stand side by side in the log, in their order: such runs of rows are
    put one behind the other without a copy of their bodies.
    """
    indices = pc.sort_indices(table, sort_keys=[(name, "ascending") for name in order])
    places = indices.to_numpy()
    begins = np.concatenate(([0], np.flatnonzero(np.diff(places.astype(np.int64)) != 1) + 1))
    if len(begins) * RUN_ROWS_MIN > table.num_rows:
        return table.take(indices)
    counts = np.diff(np.append(begins, len(places)))
    runs = zip(places[begins].tolist(), counts.tolist(), strict=True)
    return pa.concat_tables([table.slice(first, count) for first, count in runs])


@dataclass(frozen=True, slots=True)
class ArchiveTask:
    """A part of what a run archives.

    Attributes:
        options: where it is read; the same in all tasks.
        generations: of the queues of ``ranges``, in their order.
        staging: of this run, the same for all workers.
        level: of zstd.
        form: of the files.
    """

    number: int
    run: int
    options: SourceOptions
    ranges: tuple[MessageRange, ...]
    generations: tuple[int, ...]
    staging: StagingArea
    level: int
    form: FileForm


class ArchivedRange(NamedTuple):
    """What was read of a range: its last ``rows`` messages; what is before them has been deleted.

    Attributes:
        position, stored: of the last one; -1 without one.
    """

    range_: MessageRange
    rows: int
    position: int
    stored: int


class ArchivedPart(NamedTuple):
    """What one task has done."""

    files: tuple[ArchivedFile, ...]
    ranges: tuple[ArchivedRange, ...]


def archive_part(task: ArchiveTask) -> ArchivedPart:
    """Write the messages of a task; its files are durable, below the staging folder.

    Raises:
        LedgerError: they cannot be read.
        StorageError: they cannot be written.
    """
    source = open_source(task.options)
    try:
        with (
            task.form.chosen.opened(task.options) as make,
            closing(_PartWriter(task, make)) as writer,
        ):
            for part in source.read(task.ranges, fail_on_data_loss=False):
                writer.add(part)
            return writer.finish()
    except OSError as error:
        raise StorageError(
            "archive not written",
            errno=error.errno,
            directory=task.staging.as_text(),
            reason=str(error),
        ) from error
    finally:
        source.close()


@dataclass(slots=True)
class _Span:
    first: int
    end: int
    rows: int


@dataclass(slots=True)
class _Stream:
    """Rows of one topic and day: those that wait, and the file that is open for them."""

    topic: str
    day: int
    batches: list[pa.RecordBatch] = field(default_factory=list)
    bytes: int = 0
    rows: int = 0
    damaged: int = 0
    unparsed: int = 0
    first_stored: int = 1 << 62
    last_stored: int = -1
    spans: dict[int, _Span] = field(default_factory=dict)
    file: StagedFile | None = None
    writer: pq.ParquetWriter | None = None
    footers: list[pq.FileMetaData] = field(default_factory=list)
    path: str = ""


class _PartWriter:
    """The files of one task.

    Invariant: ``_pending`` is the sum of ``bytes`` of all streams.
    """

    def __init__(self, task: ArchiveTask, make: MakeBatches) -> None:
        self._task = task
        self._make = make
        self._inflates = task.form.chosen.inflates(task.options)
        self._attempt = uuid.uuid4().hex[:8]
        topics = sorted({range_.topic for range_ in task.ranges})
        self._topics = topics
        codes = {topic: code for code, topic in enumerate(topics)}
        self._codes = np.array([codes[range_.topic] for range_ in task.ranges], np.int64)
        self._streams: dict[tuple[int, int], _Stream] = {}
        self._pending = 0
        self._open: dict[tuple[int, int], None] = {}
        self._files: list[ArchivedFile] = []
        count = len(task.ranges)
        self._rows = np.zeros(count, np.int64)
        self._positions = np.full(count, -1, np.int64)
        self._stored = np.full(count, -1, np.int64)

    def add(self, part: QueuedRecords) -> None:
        """Take the messages of ``part``."""
        options = self._task.options
        rows = columns_of(part, inflate=self._inflates, size_max=options.inflate_max)
        self._count(rows, part.numbers)
        at = 0
        for batch in self._make(rows):
            end = at + batch.num_rows
            self._add(batch, rows, slice(at, end), part.numbers[at:end])
            at = end

    def _add(
        self, batch: pa.RecordBatch, rows: RecordColumns, which: slice, numbers: Integers
    ) -> None:
        """Take a batch of some of the rows."""
        store_times, queue_offsets = rows.store_times[which], rows.queue_offsets[which]
        days = store_times // 86_400_000
        topics = self._codes[numbers]
        first_day = int(days.min())
        keys = topics * (int(days.max()) - first_day + 1) + days - first_day
        if keys[0] == keys[-1] and (keys == keys[0]).all():
            self._take(batch, store_times, numbers, queue_offsets)
        else:
            order = np.argsort(keys, kind="stable")
            cuts = np.flatnonzero(np.diff(keys[order])) + 1
            sorted_batch = batch.take(pa.array(order))
            times, offsets = store_times[order], queue_offsets[order]
            numbers = numbers[order]
            for begin, end in zip([0, *cuts], [*cuts, len(order)], strict=True):
                piece = slice(int(begin), int(end))
                self._take(
                    sorted_batch.slice(begin, end - begin),
                    times[piece],
                    numbers[piece],
                    offsets[piece],
                )
        while self._pending > self._task.form.pending_bytes_max:
            largest = max(self._streams, key=lambda key: self._streams[key].bytes)
            self._write_early(largest)

    def finish(self) -> ArchivedPart:
        """Close all files; what they are, and what was read."""
        for key in sorted(self._streams):
            self._write(key)
        for key in list(self._open):
            self._close(key)
        self._task.staging.finish(file.path for file in self._files)
        ranges = zip(
            self._task.ranges,
            self._rows.tolist(),
            self._positions.tolist(),
            self._stored.tolist(),
            strict=True,
        )
        return ArchivedPart(tuple(self._files), tuple(ArchivedRange(*one) for one in ranges))

    def close(self) -> None:
        """Let go of files that an error has left open."""
        for key in list(self._open):
            file = self._streams[key].file
            if file is not None:
                file.abandon()
            self._close(key)

    def _count(self, rows: RecordColumns, numbers: Integers) -> None:
        """Keep in mind what was read of each range; later messages of a queue stand later."""
        self._rows += np.bincount(numbers, minlength=len(self._rows))
        # Of an index that comes several times the last value is taken.
        self._positions[numbers] = rows.physical_offsets
        self._stored[numbers] = rows.store_times

    def _take(
        self, batch: pa.RecordBatch, times: Integers, numbers: Integers, offsets: Integers
    ) -> None:
        """Rows of one topic and day."""
        key = int(self._codes[numbers[0]]), day_of(int(times[0]))
        stream = self._streams.get(key)
        if stream is not None and stream.file is not None and stream.file.size >= FILE_BYTES_MAX:
            self._close(key)
            stream = None
        if stream is None:
            stream = self._streams[key] = _Stream(self._topics[key[0]], key[1])
        _note(stream, times, numbers, offsets)
        stream.damaged += batch.num_rows - (batch.column("crcOk").true_count or 0)
        if self._task.form.value is not None:
            unparsed = batch.column(UNPARSED)
            stream.unparsed += len(unparsed) - unparsed.null_count
        size = batch.nbytes
        stream.batches.append(batch)
        stream.bytes += size
        self._pending += size
        if stream.bytes >= self._task.form.batch_bytes:
            self._write_early(key)

    def _write_early(self, key: tuple[int, int]) -> None:
        """Write what waits, of which there will be more; a file of sorted rows ends with it."""
        if self._task.form.order:
            self._close(key)
        else:
            self._write(key)

    def _write(self, key: tuple[int, int]) -> None:
        """Write what waits: as one row group, or sorted."""
        stream = self._streams[key]
        if not stream.batches:
            return
        if stream.writer is None:
            self._start(key, stream)
        else:
            self._open[key] = self._open.pop(key)
        assert stream.writer is not None
        table = pa.Table.from_batches(stream.batches)
        form = self._task.form
        if form.order:
            write_sorted(stream.writer, table, form)
        else:
            stream.writer.write_table(table.cast(form.schema), row_group_size=table.num_rows)
        self._pending -= stream.bytes
        stream.batches, stream.bytes = [], 0

    def _start(self, key: tuple[int, int], stream: _Stream) -> None:
        """Open a file; that which was written to the longest time ago is closed for it."""
        if len(self._open) >= OPEN_FILES_MAX:
            self._close(next(iter(self._open)))
        task = self._task
        number = len(self._files) + len(self._open)
        stream.path = file_path(
            stream.topic,
            stream.day,
            run=task.run,
            task=task.number,
            number=number,
            attempt=self._attempt,
        )
        stream.file = task.staging.create(stream.path)
        stream.writer = parquet_writer(
            stream.file, task.form, stream.topic, level=task.level, footers=stream.footers
        )
        self._open[key] = None

    def _close(self, key: tuple[int, int]) -> None:
        self._write(key)
        stream = self._streams.pop(key)
        del self._open[key]
        assert stream.writer is not None, key
        assert stream.file is not None, key
        stream.writer.close()
        stream.file.close()
        self._files.append(
            ArchivedFile(
                path=stream.path,
                topic=stream.topic,
                day=stream.day,
                rows=stream.rows,
                bytes=stream.file.size,
                sha256=stream.file.sha256,
                first_stored=stream.first_stored,
                last_stored=stream.last_stored,
                damaged=stream.damaged,
                unparsed=stream.unparsed,
                spans=tuple(self._spans(stream)),
                footer=stream.footers[0] if self._task.form.with_footers else None,
            )
        )

    def _spans(self, stream: _Stream) -> Iterator[QueueSpan]:
        for number, span in sorted(stream.spans.items()):
            queue_id = self._task.ranges[number].queue_id
            generation = self._task.generations[number]
            yield QueueSpan(queue_id, generation, span.first, span.end, span.rows)


def _note(stream: _Stream, times: Integers, numbers: Integers, offsets: Integers) -> None:
    """Keep in mind what the manifest is to say of rows that a stream takes."""
    stream.rows += len(numbers)
    stream.first_stored = min(stream.first_stored, int(times.min()))
    stream.last_stored = max(stream.last_stored, int(times.max()))
    order = np.argsort(numbers, kind="stable")
    ordered, by_queue = numbers[order], offsets[order]
    begins = np.concatenate(([0], np.flatnonzero(np.diff(ordered)) + 1))
    firsts = np.minimum.reduceat(by_queue, begins).tolist()
    lasts = np.maximum.reduceat(by_queue, begins).tolist()
    counts = np.diff(np.append(begins, len(ordered))).tolist()
    for number, first, last, count in zip(
        ordered[begins].tolist(), firsts, lasts, counts, strict=True
    ):
        span = stream.spans.get(number)
        if span is None:
            stream.spans[number] = _Span(first, last + 1, count)
            continue
        span.first, span.end = min(span.first, first), max(span.end, last + 1)
        span.rows += count
