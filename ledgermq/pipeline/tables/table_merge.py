"""Task of ``table-tidy``: small files of one topic and day, written as a few larger ones."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.manifest import DataFile
from pyiceberg.table import FileScanTask
from pyiceberg.table.metadata import TableMetadata

from ledgermq.model.errors import StorageError
from ledgermq.pipeline.archive.archive_layout import ArchivedFile, day_text, escaped
from ledgermq.pipeline.archive.archive_writer import FileForm, parquet_writer, write_sorted
from ledgermq.pipeline.tables.table_columns import DAY
from ledgermq.pipeline.tables.table_files import TableFiles

MERGED_BYTES = 128 << 20
"""Bytes of rows, before they are compressed, that become one file: they are sorted at once."""


@dataclass(frozen=True, slots=True)
class MergeTask:
    """Files to put together.

    Attributes:
        metadata: of the table, without snapshots.
        place: day and topic of all of them.
    """

    number: int
    metadata: TableMetadata
    files: tuple[DataFile, ...]
    place: tuple[int, str]
    form: FileForm
    staging: TableFiles
    level: int


class Merged(NamedTuple):
    """One new file, and the locations of those whose rows it has."""

    old: tuple[str, ...]
    file: ArchivedFile


def merge_files(task: MergeTask) -> list[Merged]:
    """Write the rows of a task's files into others; those that would stay alone are left out.

    Raises:
        StorageError: something cannot be read or written.
    """
    io = task.staging.io()
    try:
        groups = [group for group in _groups(io, task.files) if len(group) > 1]
        merged = [_merged(task, io, number, group) for number, group in enumerate(groups)]
        task.staging.finish(one.file.path for one in merged)
        return merged
    except (OSError, pa.ArrowInvalid) as error:
        raise StorageError(
            "files of the table not put together",
            errno=error.errno if isinstance(error, OSError) else None,
            table=task.staging.as_text(),
            reason=str(error)[:300],
        ) from error


def _groups(io: FileIO, files: tuple[DataFile, ...]) -> Iterator[list[DataFile]]:
    """Files whose rows are sorted at once."""
    group: list[DataFile] = []
    size = 0
    for file in files:
        with io.new_input(file.file_path).open() as opened, pq.ParquetFile(opened) as parquet:
            footer = parquet.metadata
            of_file = sum(
                footer.row_group(number).total_byte_size for number in range(footer.num_row_groups)
            )
        if group and size + of_file > MERGED_BYTES:
            yield group
            group, size = [], 0
        group.append(file)
        size += of_file
    yield group


def _merged(task: MergeTask, io: FileIO, number: int, group: list[DataFile]) -> Merged:
    # PyIceberg gives files of earlier columns the ones that the table has now.
    scan = ArrowScan(task.metadata, io, task.metadata.schema(), AlwaysTrue())
    table = scan.to_table([FileScanTask(file) for file in group])
    times = pc.min_max(table.column(DAY).cast(pa.int64())).as_py()
    day, topic = task.place
    name = f"tidied-{task.number:05d}-{number:05d}-{uuid.uuid4().hex}.parquet"
    path = f"topic={escaped(topic)}/day={day_text(day)}/{name}"
    footers: list[pq.FileMetaData] = []
    file = task.staging.create(path)
    try:
        with parquet_writer(file, task.form, topic, level=task.level, footers=footers) as writer:
            write_sorted(writer, table, task.form)
    except BaseException:
        file.abandon()
        raise
    finally:
        file.close()
    return Merged(
        tuple(one.file_path for one in group),
        ArchivedFile(
            path=path,
            topic=topic,
            day=day,
            rows=table.num_rows,
            bytes=file.size,
            sha256=file.sha256,
            first_stored=times["min"] // 1_000,
            last_stored=times["max"] // 1_000,
            damaged=0,
            spans=(),
            footer=footers[0],
        ),
    )
