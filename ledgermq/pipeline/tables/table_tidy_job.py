"""``table-tidy`` job: small files put together, old snapshots expired, files of nobody deleted.

A table that is archived to each minute has a file a minute for each topic. Each step leaves the
rows, and what runs say of themselves, as they are; who dies in the midst has lost nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as file_systems
import pyarrow.parquet as pq
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import ArrowScan, PyArrowFileIO
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.metadata import TableMetadata

from ledgermq.model.errors import ConfigError, StorageError, StoreLockedError
from ledgermq.pipeline.archive.archive_layout import ArchivedFile, day_text, escaped
from ledgermq.pipeline.archive.archive_writer import FileForm, parquet_writer, write_sorted
from ledgermq.pipeline.jobs.job_session import Tasks
from ledgermq.pipeline.source.split_plan import packed
from ledgermq.pipeline.tables.iceberg_table import IcebergTable
from ledgermq.pipeline.tables.table_catalog import asked
from ledgermq.pipeline.tables.table_columns import (
    DAY,
    data_file,
    place_of,
    whole_form_of,
)
from ledgermq.pipeline.tables.table_files import TableFiles
from ledgermq.store.steady_time import confirmed_ms

TASK_BYTES = 128 << 20
"""Bytes of files, as they are, for one task."""

MERGED_BYTES = 128 << 20
"""Bytes of rows, before they are compressed, that become one file: they are sorted at once."""


class Tidied(NamedTuple):
    """What has been done.

    Attributes:
        merged, into: small files, and files that have taken their place.
        expired: snapshots.
        deleted, bytes: files that no snapshot named any more.
    """

    merged: int
    into: int
    expired: int
    deleted: int
    bytes: int


def tidy(
    job: Tasks, table: IcebergTable, *, small_bytes: int, keep: timedelta, level: int
) -> Tidied:
    """Put the files of ``table`` in order.

    Args:
        small_bytes: files of less are put together, within their partition.
        keep: how long snapshots, and files that none names, stay. A run that takes longer would
            lose its files. Where the newest snapshot is a day old, it is reckoned from that.
        level: of zstd.

    Raises:
        ConfigError: the table's files are read by something that cannot list them.
        StoreLockedError: somebody else has changed what was put together; nothing is lost.
        StorageError: the catalog or the store refused.
        JobFailedError: Spark gave up.
    """
    # Before this run adds a snapshot: what a clock that is set wrong makes old, goes for good.
    newest_ms = max((one.timestamp_ms for one in table.table.snapshots()), default=0)
    merged, into = _merge(job, table, small_bytes=small_bytes, level=level)
    oldest = datetime.fromtimestamp(confirmed_ms(newest_ms) / 1_000, UTC) - keep
    expired = _expire(table, oldest)
    strange = list(_files_of_nobody(table, oldest))
    table.delete(location for location, _ in strange)
    return Tidied(merged, into, expired, len(strange), sum(size for _, size in strange))


def _merge(job: Tasks, table: IcebergTable, *, small_bytes: int, level: int) -> tuple[int, int]:
    """How many files were put together, and into how many."""
    loaded = table.table
    metadata = loaded.metadata
    files = table.whole_files()
    form = whole_form_of(loaded.schema())
    tasks = [
        MergeTask(
            number=number,
            metadata=_without_snapshots(metadata),
            files=tuple(group),
            place=place_of(metadata, group[0]),
            form=form,
            staging=table.staging(),
            level=level,
        )
        for number, group in enumerate(_groups(metadata, list(files.values()), small_bytes))
    ]
    done = [
        one for part in job.each(tasks, merge_files, size=len(tasks), split_bytes=1) for one in part
    ]
    if not done:
        return 0, 0
    old = [files[location] for one in done for location in one.old]
    staging = table.staging()
    new = [data_file(metadata, one.file, staging.location_of(one.file.path)) for one in done]
    table.exchange(old, new)
    return len(old), len(new)


def _groups(
    metadata: TableMetadata, files: Sequence[DataFile], small_bytes: int
) -> Iterator[list[DataFile]]:
    """Small files of one partition, in the order of their runs; two at least, for a task each."""
    by_partition: dict[tuple[object, ...], list[DataFile]] = {}
    for file in sorted(files, key=lambda one: one.file_path):
        is_ours = (
            file.spec_id == metadata.default_spec_id
            and file.file_format == FileFormat.PARQUET
            and all(file.partition[number] is not None for number in range(len(file.partition)))
        )
        if is_ours and file.file_size_in_bytes < small_bytes:
            by_partition.setdefault(place_of(metadata, file), []).append(file)
    for of_partition in by_partition.values():
        groups = packed(of_partition, lambda file: file.file_size_in_bytes, size_max=TASK_BYTES)
        yield from (group for group in groups if len(group) > 1)


def _without_snapshots(metadata: TableMetadata) -> TableMetadata:
    """What a worker needs of it, which does not grow with the table."""
    return metadata.model_copy(
        update={
            "snapshots": [],
            "snapshot_log": [],
            "metadata_log": [],
            "refs": {},
            "current_snapshot_id": None,
        }
    )


def _expire(table: IcebergTable, oldest: datetime) -> int:
    """Let snapshots that are older expire, but those of branches and tags; how many."""
    loaded = table.table
    before = len(loaded.snapshots())
    with asked("snapshots not expired", table=table.as_text()):
        named = {ref.snapshot_id for ref in loaded.refs().values()}
        limit = int(oldest.timestamp() * 1_000)
        if not any(
            one.timestamp_ms < limit and one.snapshot_id not in named for one in loaded.snapshots()
        ):
            return 0
        try:
            loaded.maintenance.expire_snapshots().older_than(oldest).commit()
        except CommitFailedException as error:
            raise StoreLockedError(
                "table was changed while its snapshots expired: run it again",
                table=table.as_text(),
            ) from error
        loaded.refresh()
    return before - len(loaded.snapshots())


def _files_of_nobody(table: IcebergTable, oldest: datetime) -> Iterator[tuple[str, int]]:
    """Location and size of files below the table that are older, and that nothing in it names."""
    name = table.as_text()
    with asked("files below the table not listed", table=name):
        found = list(_listed(table.table))
    # What was committed while they were listed is known then.
    with asked("table not opened", table=name):
        table.table.refresh()
    with asked("manifests of the table not read", table=name):
        named = {_path_of(table.table, location) for location in _named(table.table)}
    for location, size, changed in found:
        if _path_of(table.table, location) not in named and changed < oldest:
            yield location, size


def _listed(table: Table) -> Iterator[tuple[str, int, datetime]]:
    """Location, size and time of all files below the table's own place.

    Not below another one that it may write to, for that may be of several tables.
    """
    io = table.io
    if not isinstance(io, PyArrowFileIO):
        raise ConfigError(
            "files of a table are listed by PyArrow only",
            property="py-io-impl",
            found=str(type(io)),
        )
    root = table.location().rstrip("/")
    scheme, netloc, path = PyArrowFileIO.parse_location(root, io.properties)
    system = io.fs_by_scheme(scheme, netloc)
    for info in system.get_file_info(file_systems.FileSelector(path, recursive=True)):
        if info.type == file_systems.FileType.File:
            yield f"{root}{info.path.removeprefix(path)}", int(info.size), info.mtime


def _path_of(table: Table, location: str) -> str:
    """What is the same of all names that a file has: ``file:/a``, ``file:///a``, ``s3a://b/a``."""
    return PyArrowFileIO.parse_location(location, table.io.properties)[2]


def _named(table: Table) -> Iterator[str]:
    """Locations of all files that the table's metadata names."""
    metadata = table.metadata
    yield table.metadata_location
    yield from (entry.metadata_file for entry in metadata.metadata_log)
    yield from (one.statistics_path for one in metadata.statistics)
    yield from (one.statistics_path for one in metadata.partition_statistics)
    known = set()
    for snapshot in metadata.snapshots:
        yield snapshot.manifest_list
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path in known:
                continue
            known.add(manifest.manifest_path)
            yield manifest.manifest_path
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                yield entry.data_file.file_path


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
        packs = packed(task.files, partial(_row_bytes, io), size_max=MERGED_BYTES)
        groups = [group for group in packs if len(group) > 1]
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


def _row_bytes(io: FileIO, file: DataFile) -> int:
    with io.new_input(file.file_path).open() as opened, pq.ParquetFile(opened) as parquet:
        footer = parquet.metadata
        return sum(
            footer.row_group(number).total_byte_size for number in range(footer.num_row_groups)
        )


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
