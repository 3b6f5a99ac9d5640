"""Creation of a backup: the log up to one position, while a node writes on behind it.

Sealed log files, which are whole below that position, are hard links: to the file of the backup
before, else to the store's own where the disk is the same; else they are copied. Always copied is
what the store may still write over: the open end, and entries that are not known to be committed,
which another leader may replace. Only when everything is durable does the folder get its name; the
node may not have synced a sealed file yet (``ack.mode``), so a link is synced, too.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from ledgermq.conversion.backup_manifest import (
    CONTENT,
    BackedUpFile,
    BackupManifest,
    backups_in,
    copy_file,
    digest_of,
    digest_of_bytes,
    write_manifest,
)
from ledgermq.formats.dledger_index import ITEM_SIZE
from ledgermq.formats.findings import Severity
from ledgermq.model.errors import ConfigError, StorageError, refused_as
from ledgermq.model.names.own_tables import OWN_TABLES
from ledgermq.repair.check.file_family import find_family
from ledgermq.store.files.disk_sync import make_directories, sync_directory, sync_file
from ledgermq.store.files.small_file import write_new_file
from ledgermq.store.log_reader import LogReader
from ledgermq.store.queues.known_ends import known_queue_ends
from ledgermq.store.queues.queue_ends import NAME as ENDS_NAME
from ledgermq.store.queues.queue_ends import QueueEnds, encode_queue_ends
from ledgermq.store.store_directory import StoreDirectory

logger = logging.getLogger(__name__)

TRIES_MAX = 3
"""Retention deletes a file at most now and then: a third attempt finds one that has just gone."""

_PARTIAL = "partial-"
_LOGS = ("commitlog", "data")
_OWN_FILES = frozenset(("members", *OWN_TABLES))
"""Files of ``ROOT/ledgermq`` in a backup: who belongs to the group, and the tables. Term, identity
and peers are made new."""


@dataclass(frozen=True, slots=True)
class Backup:
    """A backup that was made; ``linked`` and ``copied`` are bytes."""

    folder: Path
    manifest: BackupManifest
    linked: int
    copied: int


class _SourceGoneError(Exception):
    """A file of the log was deleted after it was listed."""


def create_backup(
    directory: StoreDirectory,
    target: Path,
    *,
    describe: Callable[[], BackupManifest],
    told: Callable[[int, int], None] = lambda _done, _all: None,
) -> Backup:
    """Back the store up into a new folder of ``target``, which is made if it is not there.

    Args:
        describe: what is to be taken, asked again at every attempt: the log may have lost its
            oldest file in the meantime.
        told: bytes that were read, and how many there are to be read; links to files of the backup
            before need no reading.

    Raises:
        ConfigError: the target lies in the store.
        CorruptLogError: a manifest there is not whole, or the log has not what it must have.
        StorageError: the operating system refused; nothing is left behind.
    """
    if target.resolve().is_relative_to(directory.root.resolve()):
        raise ConfigError("a backup may not lie in the store itself", target=str(target))
    with refused_as("backup not made", target=target):
        make_directories(target, mode=0o700)
    earlier = backups_in(target)
    for attempt in range(1, TRIES_MAX + 1):
        # First: it may not count messages that the backup will not have.
        ends = queue_ends_of(directory)
        manifest = describe()
        partial = target / f"{_PARTIAL}{os.getpid()}"
        try:
            made = _Creation(directory, partial, manifest, earlier[-1:], told)
            return made.run(target, ends)
        except _SourceGoneError as error:
            logger.warning("a log file was deleted meanwhile: file=%s attempt=%d", error, attempt)
            gone = str(error)
        except OSError as error:
            raise StorageError.of("backup not made", error, target=target) from error
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    raise StorageError(
        "log files are deleted faster than they can be backed up: try again", file=gone
    )


class _LogFile(NamedTuple):
    """A file of the log to be taken.

    Attributes:
        name: below the root.
        used: bytes that are of the log; behind them there may be others.
        is_sealed: nothing is written to it any more.
    """

    name: str
    path: Path
    size: int
    used: int
    is_sealed: bool


class _Creation:
    def __init__(
        self,
        directory: StoreDirectory,
        partial: Path,
        manifest: BackupManifest,
        earlier: list[tuple[Path, BackupManifest]],
        told: Callable[[int, int], None],
    ) -> None:
        self._root = directory.root
        self._directory = directory
        self._partial = partial
        self._manifest = manifest
        self._earlier = earlier
        self._told = told
        self._done = self._total = 0
        self._files: dict[str, BackedUpFile] = {}
        self._linked = self._copied = 0

    def run(self, target: Path, ends: QueueEnds | None) -> Backup:
        shutil.rmtree(self._partial, ignore_errors=True)
        make_directories(self._partial, mode=0o700)
        (self._partial / CONTENT).mkdir(mode=0o700)
        manifest = self._manifest
        settled = self._settled_end()
        families = self._families(settled)
        self._total = sum(
            file.used
            for family in families
            for file in self._family(*family)
            if self._earlier_of(file) is None
        )
        for family in families:
            # Listed again: the first ones of the index may go while the log is copied.
            for file in self._family(*family):
                self._take(file)
        self._take_documents()
        self._take_ends(ends)
        manifest = replace(manifest, files=self._files)
        write_manifest(self._partial, manifest)
        for folder in sorted(path for path in self._partial.rglob("*") if path.is_dir()):
            sync_directory(folder)
        sync_directory(self._partial)
        moment = datetime.fromtimestamp(manifest.created_ms / 1_000, UTC)
        folder = target / f"{moment:%Y%m%dT%H%M%S}.{manifest.created_ms % 1_000:03d}Z"
        if folder.exists():
            raise StorageError("a backup of this moment exists: try again", folder=str(folder))
        self._partial.rename(folder)
        sync_directory(target)
        return Backup(folder, manifest, self._linked, self._copied)

    def _take_ends(self, ends: QueueEnds | None) -> None:
        """How far the queues go of which the backed up log has no message any more."""
        starts = [int(Path(name).name) for name in self._files if Path(name).parent.name in _LOGS]
        first = min(starts, default=0)
        if first > (0 if ends is None else ends.position):
            raise _SourceGoneError(f"{first - 1:020d}")
        if ends is None:
            return
        target = self._partial / CONTENT / "ledgermq" / ENDS_NAME
        target.parent.mkdir(parents=True, exist_ok=True)
        self._write(f"ledgermq/{ENDS_NAME}", target, encode_queue_ends(ends))

    def _settled_end(self) -> int:
        """Position behind the last entry that is known to be committed."""
        if self._manifest.committed == self._manifest.index:
            return self._manifest.end
        reader = LogReader(self._directory)
        try:
            return reader.committed_end()
        finally:
            reader.close()

    def _families(self, settled: int) -> list[tuple[Path, int, int]]:
        """Folders of the log's files, up to where they are taken, and up to where they are settled:
        nothing is written over there.
        """
        manifest, directory = self._manifest, self._directory
        families: list[tuple[Path, int, int]] = []
        if directory.commit_log is not None:
            families.append((directory.commit_log, manifest.end, settled))
        if directory.dledger is not None:
            families.append((directory.dledger / "data", manifest.end, settled))
            items = (manifest.index + 1) * ITEM_SIZE, (manifest.committed + 1) * ITEM_SIZE
            families.append((directory.dledger / "index", *items))
        return families

    def _family(self, folder: Path, end: int, settled: int) -> Iterator[_LogFile]:
        """A folder's files up to ``end``."""
        family, findings = find_family(
            folder, root=self._root, file_size=None, severity=Severity.DAMAGE, remedy=""
        )
        # A last file without content is one that is just being made.
        for finding in findings:
            if finding.severity is Severity.DAMAGE:
                raise StorageError(
                    f"log not backed up: {finding.what}; ask ledgermq store check",
                    file=finding.file,
                )
        for file in family.files:
            if file.start >= end:
                break
            size = family.file_size
            used = min(size, end - file.start)
            # The last bytes of a sealed file may be a blank, which is there once the next one
            # begins.
            is_sealed = file.start + size <= settled and used == size and file != family.files[-1]
            path = Path(file.path)
            yield _LogFile(str(path.relative_to(self._root)), path, size, used, is_sealed)

    def _take(self, file: _LogFile) -> None:
        target = self._partial / CONTENT / file.name
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            earlier = self._earlier_of(file)
            if earlier is not None:
                source, known = earlier
                os.link(source, target)
                self._linked += known.size
                self._files[file.name] = known
                return
            if file.is_sealed and self._link(file.name, file.path, target, file.size):
                return
            digest = copy_file(file.path, target, used=file.used, size=file.size, told=self._count)
        except FileNotFoundError as error:
            raise _SourceGoneError(str(file.path)) from error
        self._copied += file.used
        self._files[file.name] = BackedUpFile(file.size, file.used, digest, file.is_sealed)

    def _earlier_of(self, file: _LogFile) -> tuple[Path, BackedUpFile] | None:
        """The file of the backup before, if that has it and it is known to be the same."""
        for folder, manifest in self._earlier if file.is_sealed else ():
            known = manifest.files.get(file.name)
            source = folder / CONTENT / file.name
            if known is None or not known.sealed or not _is_same(manifest, self._manifest):
                continue
            try:
                if not source.exists() or source.stat().st_size != file.path.stat().st_size:
                    continue
                if source.samefile(file.path) or _has_equal_ends(source, file.path):
                    return source, known
            except FileNotFoundError as error:
                raise _SourceGoneError(str(file.path)) from error
        return None

    def _count(self, count: int) -> None:
        self._done += count
        self._told(self._done, self._total)

    def _link(self, name: str, path: Path, target: Path, size: int) -> bool:
        """Link the store's own file; false where that cannot be."""
        try:
            os.link(path, target)
        except FileNotFoundError:
            raise
        except OSError:
            # Another file system, or one without links: it is copied.
            return False
        with target.open("rb", buffering=0) as file:
            digest = digest_of(file.fileno(), size, self._count)
            sync_file(file.fileno())
        self._linked += size
        self._files[name] = BackedUpFile(size, size, digest, sealed=True)
        return True

    def _take_documents(self) -> None:
        for name, content in documents_of(self._root):
            target = self._partial / CONTENT / name
            target.parent.mkdir(parents=True, exist_ok=True)
            self._write(name, target, content)

    def _write(self, name: str, target: Path, content: bytes) -> None:
        write_new_file(target, content)
        digest = digest_of_bytes(content)
        self._copied += len(content)
        self._files[name] = BackedUpFile(len(content), len(content), digest, sealed=False)


def documents_of(root: Path, *, without: Sequence[str] = ()) -> Iterator[tuple[str, bytes]]:
    """The broker's documents in the store at ``root``, RocketMQ's and ours: path, content.

    Args:
        without: names of ours that are left out.

    Raises:
        OSError: they cannot be read.
    """
    folders: Mapping[str, frozenset[str] | None] = {
        "config": None,
        "ledgermq": _OWN_FILES.difference(without),
    }
    for folder, wanted in folders.items():
        source = root / folder
        for path in sorted(source.iterdir()) if source.is_dir() else ():
            if not path.is_file() or path.suffix == ".tmp":
                continue
            if wanted is not None and path.name not in wanted:
                continue
            try:
                # A rename may put another one in its place: what is open is one of the two.
                content = path.read_bytes()
            except FileNotFoundError:
                # RocketMQ has none of its own for a moment; its .bak is taken, too.
                continue
            yield f"{folder}/{path.name}", content


def queue_ends_of(directory: StoreDirectory) -> QueueEnds | None:
    """What the store knows of the ends of queues that its log does not say; None if that says all.

    Raises:
        StorageError: the operating system refused.
    """
    return known_queue_ends(
        directory.root,
        queue_file_size=directory.queue_file_size,
        log_start=directory.log_family.first_file() or 0,
    )


def _is_same(earlier: BackupManifest, manifest: BackupManifest) -> bool:
    """Whether both are of the log of one node."""
    return (earlier.log, earlier.self_id, earlier.cluster, earlier.log_file_size) == (
        manifest.log,
        manifest.self_id,
        manifest.cluster,
        manifest.log_file_size,
    )


def _has_equal_ends(one: Path, other: Path) -> bool:
    """Whether two sealed log files of one name begin and end alike.

    Their entries carry position, term and the CRC of all before them, so a log that was replaced
    by another one differs in its entries' CRCs.
    """
    size = 1 << 16
    with one.open("rb", buffering=0) as first, other.open("rb", buffering=0) as second:
        end = os.fstat(first.fileno()).st_size
        return all(
            os.pread(first.fileno(), size, at) == os.pread(second.fileno(), size, at)
            for at in (0, max(0, end - size))
        )
