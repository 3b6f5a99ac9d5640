"""Archive store in a bucket: a head that is put on condition has one writer, and counts the runs.

    _ledgermq/head.json                         runs, epoch, and who writes
    _ledgermq/manifest/RUN-EPOCH.json           of each run the document of the largest epoch counts
    _ledgermq/staging/EPOCH-RANDOM/PATH         files of a run that is under way, or was killed

Invariants: an epoch is one writer's; only the head of the largest one can be replaced; a writer
deletes nothing of an epoch above its own. So one that was held up harms nobody when it wakes.
"""

from __future__ import annotations

import os
import re
import socket
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NamedTuple

from ledgermq.buckets.bucket import NO_CONDITIONS, Bucket
from ledgermq.buckets.bucket_address import BucketPlace, parse_address
from ledgermq.buckets.bucket_opening import open_bucket
from ledgermq.model.errors import (
    ConfigError,
    CorruptLogError,
    LedgerError,
    StorageError,
    StoreLockedError,
)
from ledgermq.pipeline.archive.archive_store import (
    OWN_FOLDER,
    RunDocument,
    StagedFile,
    StagingArea,
    check_numbers,
)
from ledgermq.store.files.checked_document import decode_document, encode_document

LEASE_S = 60
"""Seconds, by the clock of the store, for which the archive stays with a writer that is not heard
of."""

RENEWALS = 4
"""Renewals within ``LEASE_S``: one that fails, or is slow, does no harm."""

HEAD_VERSION = 1
HEAD_BYTES_MAX = 4096

_HEAD = f"{OWN_FOLDER}/head.json"
_MANIFEST = f"{OWN_FOLDER}/manifest/"
_STAGING = f"{OWN_FOLDER}/staging/"
_DOCUMENT = re.compile(r"([0-9]{8,18})-([0-9]{8,18})\.json")
_STAGED = re.compile(r"([0-9]{8,18})-[0-9a-f]{32}/(.+)", re.DOTALL)
_HEAD_TRIES = 3
"""Tries to put a head that finds itself replaced by a put of its own."""


@dataclass(frozen=True, slots=True)
class ArchiveHead:
    """What the head says.

    Attributes:
        runs: so many are in the archive.
        epoch: of the writer, or the last one.
        holder: who writes: host, process and a random word; empty when nobody does.
        word: random, so that no two heads have the same ETag.
    """

    runs: int
    epoch: int
    holder: str
    word: str


class FoundHead(NamedTuple):
    """The head as it stands in a bucket.

    Attributes:
        age_s: since it was put, by the clock of the store: clocks of hosts may be apart.
    """

    head: ArchiveHead
    version: str
    age_s: float


@dataclass(frozen=True, slots=True)
class ObjectStore:
    """``ArchiveStore`` in a bucket; ``text`` is how the operator has named it."""

    text: str
    place: BucketPlace

    @classmethod
    def at(cls, text: str) -> ObjectStore:
        """That of ``s3a://BUCKET/PREFIX``, with endpoint and region as this host has them.

        Raises:
            ConfigError: no bucket, or its client is not installed.
        """
        place = parse_address(text, of="an archive", reserved=(OWN_FOLDER,))
        return cls(text, open_bucket(place).place)

    def as_text(self) -> str:
        return self.text

    def documents(self) -> Iterator[RunDocument]:
        bucket = open_bucket(self.place)
        # First the head: what it counts is listed then.
        found = _head(bucket)
        if found is None:
            return
        runs = found.head.runs
        newest = {number: key for number, _, key in _documents(bucket) if number <= runs}
        check_numbers(list(newest), directory=bucket.as_text(_MANIFEST), last=runs)
        for (number, key), stored in zip(
            newest.items(), bucket.get_all(newest.values()), strict=True
        ):
            file = bucket.as_text(key)
            if stored is None:
                raise CorruptLogError("manifest lacks a document", file=file)
            yield RunDocument(number, decode_document(stored.content, file=file), file)

    def parquet_paths(self) -> list[str]:
        return [
            key
            for key in open_bucket(self.place).listed()
            if key.endswith(".parquet") and not key.startswith(f"{OWN_FOLDER}/")
        ]

    @contextmanager
    def fetched(self, path: str) -> Iterator[Path]:
        """A copy in the temporary folder, which goes with the block."""
        with tempfile.TemporaryDirectory(prefix="ledgermq-archive-") as folder:
            file = Path(folder) / "file.parquet"
            open_bucket(self.place).fetch(path, file)
            yield file

    @contextmanager
    def written(self) -> Iterator[ObjectWriter]:
        """The archive, for this process alone; a writer that was killed holds it for ``LEASE_S``
        more.
        """
        writer = ObjectWriter(open_bucket(self.place), self.text)
        writer.begin()
        try:
            yield writer
        finally:
            writer.end()


@dataclass(frozen=True, slots=True)
class StagingPrefix:
    """A prefix for the files of one run."""

    place: BucketPlace
    prefix: str

    def as_text(self) -> str:
        """The prefix."""
        return self.place.as_text(self.prefix)

    def create(self, path: str) -> StagedFile:
        """A new file without a name here, to be written once; uploaded when it is closed."""
        bucket = open_bucket(self.place)
        file = tempfile.TemporaryFile("w+b", buffering=0)  # noqa: SIM115

        def upload() -> None:
            bucket.upload(self.prefix + path, Path(f"/proc/self/fd/{file.fileno()}"))

        return StagedFile(file, upload)

    def finish(self, paths: Iterable[str]) -> None:
        """An object is durable when it was put."""


class ObjectWriter:
    """``StoreWriter`` whose epoch the head has; a thread renews it until ``end``."""

    def __init__(self, bucket: Bucket, text: str) -> None:
        """Nothing is asked or changed yet."""
        self._bucket = bucket
        self._text = text
        self._holder = f"{socket.gethostname()[:255]}:{os.getpid()}:{uuid.uuid4().hex}"
        self._guard = threading.Lock()
        self._is_ended = threading.Event()
        self._renewing = threading.Thread(target=self._renew, name="bucket-lease", daemon=True)
        self._head = ArchiveHead(0, 0, "", "")
        self._version: str | None = None

    def begin(self) -> None:
        """Take the archive.

        Raises:
            ConfigError: there is something else, or the store does not know conditions.
            CorruptLogError: the head is damaged.
            StoreLockedError: another run writes it.
            StorageError: the store refused.
        """
        found = _head(self._bucket)
        if found is None and next(self._bucket.listed(at_most=1), None) is not None:
            # Or somebody has begun it meanwhile.
            found = _head(self._bucket)
            if found is None:
                raise ConfigError("not empty, and no archive", directory=self._text)
        if found is not None:
            if _is_held(found):
                raise self._locked(found)
            self._head, self._version = found.head, found.version
        epoch = self._head.epoch + 1
        if not self._replace(lambda head: replace(head, epoch=epoch, holder=self._holder)):
            raise self._locked(_head(self._bucket))
        try:
            self._check_conditions()
        except LedgerError:
            self.end()
            raise
        self._renewing.start()

    def end(self) -> None:
        """Let others take it; where that fails they have to wait for the lease's end."""
        self._is_ended.set()
        if self._renewing.ident is not None:
            self._renewing.join()
        with suppress(LedgerError):
            self._replace(lambda head: replace(head, holder=""))

    def staging(self) -> StagingPrefix:
        """A new area for the files of a run; the store is not asked."""
        return StagingPrefix(self._bucket.place, self._new_prefix())

    def commit(self, run: RunDocument, staged: StagingArea) -> None:
        assert isinstance(staged, StagingPrefix)
        with self._guard:
            head = self._head
            assert run.number == head.runs + 1, (run.number, head.runs)
            key = f"{_MANIFEST}{run.number:08d}-{head.epoch:08d}.json"
            if self._bucket.put(key, encode_document(run.content), over=None) is None:
                raise StorageError("document of the run is there", file=self._bucket.as_text(key))
            if not self._replace(lambda head: replace(head, runs=run.number)):
                raise StoreLockedError(
                    "another run has taken the archive over; nothing was added",
                    directory=self._text,
                    run=run.number,
                )

    def publish(self, paths: Sequence[str]) -> int:
        """Have the store copy those files of the last run that are staged to their places; how many
        there were. ``discard`` deletes what is staged.
        """
        wanted = set(paths)
        return self._bucket.copy_all(
            (key, path) for key, path in self._staged_files() if path in wanted
        )

    def discard(self) -> None:
        """Delete what is staged, and documents that were never committed."""
        epoch = self._head.epoch
        self._bucket.delete([key for key, _ in self._staged_files()])
        for key, upload in self._bucket.unended(_STAGING):
            if _is_of(key, epoch):
                self._bucket.give_up(key, upload)
        newest: dict[int, str] = {}
        stale = []
        for number, writer, key in _documents(self._bucket):
            if number > self._head.runs and writer < epoch:
                stale.append(key)
            elif number <= self._head.runs:
                stale += [newest[number]] if number in newest else []
                newest[number] = key
        self._bucket.delete(stale)

    def _staged_files(self) -> Iterator[tuple[str, str]]:
        """Keys of what is staged up to this epoch, with the path of each."""
        for key in self._bucket.listed(_STAGING):
            found = _STAGED.fullmatch(key.removeprefix(_STAGING))
            if found and int(found[1]) <= self._head.epoch:
                yield key, found[2]

    def _replace(self, change: Callable[[ArchiveHead], ArchiveHead]) -> bool:
        """Put the head, changed, if nobody else has put it since.

        A put that was given up may be done all the same, and later than that: what has our name in
        it is ours, and the change is made to it.
        """
        for _ in range(_HEAD_TRIES):
            head = replace(change(self._head), word=uuid.uuid4().hex)
            version = self._bucket.put(_HEAD, _encode(head), over=self._version)
            if version is not None:
                self._head, self._version = head, version
                return True
            found = _head(self._bucket)
            if found is None or found.head.holder != self._holder:
                return False
            self._head, self._version = found.head, found.version
        return False

    def _check_conditions(self) -> None:
        """Whether the store refuses what it must, tried with an object that is thrown away."""
        probe = f"{self._new_prefix()}probe"
        self._bucket.put(probe, b"put", over=None)
        for over, condition in ((None, "If-None-Match"), (self._bucket.no_version, "If-Match")):
            if self._bucket.put(probe, b"put in spite of it", over=over) is not None:
                raise ConfigError(
                    NO_CONDITIONS,
                    directory=self._text,
                    condition=condition,
                )
        self._bucket.delete([probe])

    def _new_prefix(self) -> str:
        return f"{_STAGING}{self._head.epoch:08d}-{uuid.uuid4().hex}/"

    def _renew(self) -> None:
        while not self._is_ended.wait(LEASE_S / RENEWALS):
            # A store that is away may be there the next time; what counts is asked by the commit.
            with suppress(LedgerError), self._guard:
                if not self._replace(lambda head: head):
                    return

    def _locked(self, found: FoundHead | None) -> StoreLockedError:
        return StoreLockedError(
            "another run writes the archive; one that was killed holds it a minute longer",
            directory=self._text,
            holder=found.head.holder if found is not None else "",
            seconds_left=round(max(0, LEASE_S - found.age_s)) if found is not None else 0,
        )


def _is_held(found: FoundHead) -> bool:
    """Whether it is somebody's by now."""
    return found.head.holder != "" and found.age_s < LEASE_S


def _head(bucket: Bucket) -> FoundHead | None:
    """The head; None without one."""
    found = bucket.get(_HEAD, bytes_max=HEAD_BYTES_MAX)
    if found is None:
        return None
    file = bucket.as_text(_HEAD)
    document = decode_document(found.content, file=file)
    version = document.get("version")
    if isinstance(version, int) and version > HEAD_VERSION:
        raise ConfigError(
            "archive is of a later layout", file=file, version=version, known=HEAD_VERSION
        )
    return FoundHead(_decode(document, file), found.version, found.age_s)


def _decode(document: Mapping[str, object], file: str) -> ArchiveHead:
    numbers = [document.get(name) for name in ("runs", "epoch")]
    texts = [document.get(name) for name in ("holder", "word")]
    runs, epoch = (one if isinstance(one, int) and one >= 0 else -1 for one in numbers)
    holder, word = (one if isinstance(one, str) else None for one in texts)
    if min(runs, epoch) < 0 or holder is None or word is None:
        raise CorruptLogError("head of the archive not read", file=file)
    return ArchiveHead(runs, epoch, holder, word)


def _encode(head: ArchiveHead) -> bytes:
    return encode_document({"version": HEAD_VERSION, **asdict(head)})


def _documents(bucket: Bucket) -> Iterator[tuple[int, int, str]]:
    """Number, epoch and key of all documents, in this order."""
    found = []
    for key in bucket.listed(_MANIFEST):
        named = _DOCUMENT.fullmatch(key.removeprefix(_MANIFEST))
        if named:
            found.append((int(named[1]), int(named[2]), key))
    yield from sorted(found)


def _is_of(key: str, epoch: int) -> bool:
    """Whether a staged key is of that epoch or an older one."""
    found = _STAGED.fullmatch(key.removeprefix(_STAGING))
    return found is not None and int(found[1]) <= epoch
