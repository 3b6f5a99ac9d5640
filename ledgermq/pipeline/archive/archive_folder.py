"""Archive: the manifest, and how the files of a run become part of it.

A run writes its files into a staging area. They belong to the archive as soon as their document
of the manifest is committed, all at once; after that they are moved to where readers find them.
What a killed run leaves is put right by the next one: files that are in the manifest are moved,
all others deleted. So who reads the archive with Spark never sees a row twice.

Only the one who has opened it for writing changes anything in it. A check reads all files, compares
them with the manifest, and looks there for holes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ledgermq.buckets.bucket_address import FORM, SCHEMES, without_keys
from ledgermq.model.errors import ConfigError, CorruptLogError, StorageError
from ledgermq.pipeline.archive.archive_layout import (
    ArchivedFile,
    ArchiveRun,
    ArchiveState,
    day_of,
    decode_run,
    encode_run,
)
from ledgermq.pipeline.archive.archive_store import (
    CHUNK_BYTES,
    ArchiveStore,
    RunDocument,
    StagingArea,
    StoreWriter,
)
from ledgermq.pipeline.archive.archive_writer import PLAIN_FORM, typed_form
from ledgermq.pipeline.archive.folder_store import FolderStore
from ledgermq.pipeline.archive.object_store import ObjectStore
from ledgermq.pipeline.columns.message_schema import MILLISECONDS
from ledgermq.pipeline.jobs.job_session import Tasks
from ledgermq.pipeline.typed.lasting_type import lasting_type, type_document, type_of_document
from ledgermq.pipeline.typed.subject_type import SubjectType


class ArchiveFolder:
    """An archive in ``store``; ``state`` is what its manifest says.

    Invariant: a file of the manifest is at its place, or staged under the same path.
    """

    def __init__(self, store: ArchiveStore) -> None:
        """Read the manifest; nothing is changed, and an empty store is an empty archive.

        Raises:
            ConfigError: the layout is of a later version.
            CorruptLogError: a document cannot be read, or one is missing.
            StorageError: the store refused.
        """
        self.store = store
        self.state = ArchiveState.of(self.runs())

    def runs(self) -> Iterator[ArchiveRun]:
        """The runs, in their order, as their documents say.

        Raises:
            CorruptLogError, StorageError: as opening it.
        """
        for document in self.store.documents():
            run = decode_run(document.content, file=document.file)
            if run.number != document.number:
                raise CorruptLogError(
                    "document of another run",
                    file=document.file,
                    found=run.number,
                    expected=document.number,
                )
            yield run


class WritableArchive(ArchiveFolder):
    """An archive that this process alone may change."""

    form = PLAIN_FORM

    def __init__(self, store: ArchiveStore, writer: StoreWriter) -> None:
        """Read the manifest, and put right what a killed run has left; raises as opening it."""
        self._last: ArchiveRun | None = None
        super().__init__(store)
        self._writer = writer
        if self._last is not None:
            writer.publish([file.path for file in self._last.files])
        writer.discard()

    def as_text(self) -> str:
        """Its directory or address, as it was given."""
        return self.store.as_text()

    def runs(self) -> Iterator[ArchiveRun]:
        """The runs, in their order; the last one is kept, for its files may still be staged."""
        for run in super().runs():
            self._last = run
            yield run

    def staging(self) -> StagingArea:
        """A new area for the files of a run.

        Raises:
            StorageError: the store refused.
        """
        return self._writer.staging()

    def add_fields(self, bodies: SubjectType) -> None:
        """Let bodies of the next run be fields, too; fields that earlier files have stay.

        Raises:
            ConfigError: no schema gives the first ones.
            CorruptLogError: the manifest has no type for those of earlier runs.
        """
        known = self.state.value
        found = None if known is None else type_of_document(known, file=self.as_text())
        wanted = bodies.latest if found is not None else bodies.required()
        value = found if wanted is None else lasting_type(wanted, found)
        assert value is not None, known
        self.form = typed_form(value)

    def commit(self, run: ArchiveRun, staged: StagingArea) -> None:
        """Let the files of ``run``, which stand below ``staged``, be part of the archive.

        On return it is durable. Where it raises or dies, either all of them are or none is.

        Raises:
            StoreLockedError: another run has taken the archive over.
            StorageError: the store refused.
        """
        assert run.number == self.state.runs + 1, (run.number, self.state.runs)
        if self.form.value is not None:
            value = type_document(self.form.value)
            files = tuple(replace(file, value=value) for file in run.files)
            run = replace(run, files=files, value=value)
        self._writer.commit(RunDocument(run.number, encode_run(run), ""), staged)
        self.state.add(run)
        self._writer.publish([file.path for file in run.files])
        self._writer.discard()

    def discard(self) -> None:
        """Delete what was staged and is not to be part of the archive.

        Raises:
            StorageError: the store refused.
        """
        self._writer.discard()


def store_at(place: str) -> ArchiveStore:
    """The store that an operator names: a directory, or ``s3a://BUCKET/PREFIX``.

    Raises:
        ConfigError: no such kind of store, or its client is not installed.
    """
    scheme, colon, _ = place.partition("://")
    if not colon:
        return FolderStore(Path(place).absolute())
    if scheme not in SCHEMES:
        raise ConfigError(
            "archives are in directories, or in buckets of an object store",
            value=without_keys(place),
            allowed=f"DIR, {FORM}",
        )
    return ObjectStore.at(place)


def existing_archive(store: ArchiveStore) -> ArchiveFolder:
    """The archive in ``store``, to be read.

    Raises:
        ConfigError: there is none.
        CorruptLogError, StorageError: as opening it.
    """
    folder = ArchiveFolder(store)
    if not folder.state.runs:
        raise ConfigError("no archive in the directory", directory=store.as_text())
    return folder


@contextmanager
def writable_archive(store: ArchiveStore) -> Iterator[WritableArchive]:
    """The archive in ``store``, made if need be, for this process alone; what a killed run left is
    put right.

    Raises:
        ConfigError: there is something else.
        StoreLockedError: another run writes it.
        CorruptLogError, StorageError: as opening it.
    """
    with store.written() as writer:
        yield WritableArchive(store, writer)


def strange_files(store: ArchiveStore, known: Iterable[str]) -> list[str]:
    """Paths of Parquet files that readers see and that are not among ``known``.

    Raises:
        StorageError: the store refused.
    """
    named = set(known)
    return [path for path in store.parquet_paths() if path not in named]


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
