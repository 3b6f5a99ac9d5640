"""Check of an archive: its files against its manifest, and the manifest for holes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ledgermq.model.errors import StorageError
from ledgermq.pipeline.archive.archive_folder import existing_archive, strange_files
from ledgermq.pipeline.archive.archive_layout import ArchivedFile, ArchiveState, day_of
from ledgermq.pipeline.archive.archive_store import CHUNK_BYTES, ArchiveStore
from ledgermq.pipeline.archive.archive_writer import PLAIN_FORM, typed_form
from ledgermq.pipeline.columns.message_schema import MILLISECONDS
from ledgermq.pipeline.jobs.job_session import Tasks
from ledgermq.pipeline.typed.lasting_type import type_of_document


class ArchiveFault(NamedTuple):
    """Something that is not as the manifest says.

    Attributes:
        path: of a file below the archive's folder; empty where it is about a queue.
    """

    path: str
    what: str

    def as_text(self) -> str:
        """One line for people."""
        return f"{self.path}: {self.what}" if self.path else self.what


class CheckedArchive(NamedTuple):
    """What was checked, and what is wrong with it."""

    runs: int
    files: int
    rows: int
    bytes: int
    missing: int
    faults: tuple[ArchiveFault, ...]


def check_archive(job: Tasks, store: ArchiveStore, *, split_bytes: int) -> CheckedArchive:
    """Read all files of the archive in ``store``; nothing is changed.

    Args:
        split_bytes: of files, for one task.

    Raises:
        ConfigError: there is no archive.
        CorruptLogError: a document of the manifest is damaged.
        StorageError: something cannot be read.
        JobFailedError: Spark gave up.
    """
    state = existing_archive(store).state
    size = sum(file.bytes for file in state.files)
    found = job.each(state.files, partial(file_faults, store), size=size, split_bytes=split_bytes)
    faults = [fault for of_file in found for fault in of_file]
    known = {file.path for file in state.files}
    faults += [
        ArchiveFault(path, "not of this archive: readers of the folder see its rows")
        for path in strange_files(store, known)
    ]
    faults += [ArchiveFault("", text) for text in _holes(state)]
    return CheckedArchive(
        runs=state.runs,
        files=len(state.files),
        rows=sum(file.rows for file in state.files),
        bytes=size,
        missing=sum(gap.end - gap.first for gap in state.gaps),
        faults=tuple(faults),
    )


def file_faults(store: ArchiveStore, file: ArchivedFile) -> list[ArchiveFault]:
    """What is wrong with one file.

    Raises:
        StorageError: the store refused.
    """
    try:
        with store.fetched(file.path) as path:
            return _faults_of(path, file)
    except FileNotFoundError:
        return [ArchiveFault(file.path, "missing")]
    except OSError as error:
        raise StorageError(
            "file of the archive not read",
            errno=error.errno,
            file=f"{store.as_text()}/{file.path}",
            reason=str(error),
        ) from error


def _faults_of(path: Path, file: ArchivedFile) -> list[ArchiveFault]:
    """What is wrong with the file that stands at ``path``."""
    content = path.stat().st_size, _sha256(path)
    if content == (file.bytes, file.sha256):
        return [ArchiveFault(file.path, text) for text in _row_faults(path, file)]
    if content[0] != file.bytes:
        return [ArchiveFault(file.path, f"has {content[0]:,} bytes, and not {file.bytes:,}")]
    return [ArchiveFault(file.path, f"has other bytes: SHA-256 {content[1]}, not {file.sha256}")]


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as content:
        while chunk := content.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def _row_faults(path: Path, file: ArchivedFile) -> Iterator[str]:
    """Whether whole files hold what the manifest says: that is about a bug, or a wrong manifest."""
    known = file.value
    form = PLAIN_FORM if known is None else typed_form(type_of_document(known, file=file.path))
    with pq.ParquetFile(path) as parquet:
        if not parquet.schema_arrow.equals(form.schema):
            yield "has other columns"
            return
        table = parquet.read(["queueId", "queueOffset", "storeTimestamp"])
    if table.num_rows != file.rows:
        yield f"has {table.num_rows:,} rows, and not {file.rows:,}"
        return
    times = table.column("storeTimestamp").cast(MILLISECONDS).cast(pa.int64()).to_numpy()
    if {day_of(int(times.min())), day_of(int(times.max()))} != {file.day}:
        yield "has rows of another day"
    queue_ids = table.column("queueId").to_numpy()
    offsets = table.column("queueOffset").to_numpy()
    found = {}
    for queue_id in np.unique(queue_ids).tolist():
        of_queue = offsets[queue_ids == queue_id]
        found[queue_id] = int(of_queue.min()), int(of_queue.max()) + 1, len(of_queue)
    expected: dict[int, tuple[int, int, int]] = {}
    for span in file.spans:
        first, end, rows = expected.get(span.queue_id, (span.first, span.end, 0))
        expected[span.queue_id] = min(first, span.first), max(end, span.end), rows + span.rows
    if found != expected:
        yield "has messages of other queues, or other queue offsets"


def _holes(state: ArchiveState) -> Iterable[str]:
    """Where files and gaps of a queue do not make up what it is said to have."""
    counted: dict[tuple[str, int, int], int] = {}
    for file in state.files:
        for span in file.spans:
            key = file.topic, span.queue_id, span.generation
            counted[key] = counted.get(key, 0) + span.rows
    for gap in state.gaps:
        key = gap.topic, gap.queue_id, gap.generation
        counted[key] = counted.get(key, 0) + gap.end - gap.first
    for (topic, queue_id), mark in sorted(state.marks.items()):
        rows = counted.get((topic, queue_id, mark.generation), 0)
        if rows != mark.end - mark.first:
            yield (
                f"queue {queue_id} of {topic}: files and gaps have {rows:,} messages of"
                f" {mark.first:,} to {mark.end:,}"
            )
