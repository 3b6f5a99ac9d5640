"""Backup layout: a folder with a store's log, and a manifest that names every file.

    TARGET/20261122T003811.042Z/
        manifest.json         a checked document (store/files/checked_document.py)
        store/                the store's folders: commitlog/, dledger-ID/, config/, ledgermq/

``manifest.json`` holds

    {"version": 1, "created_ms": …, "log": "dledger", "self_id": "n0", "cluster": HEX or null,
     "first": …, "end": …, "index": …, "term": …, "committed": …, "log_file_size": …,
     "queue_file_size": …, "hash_slots": …, "index_items": …, "with_index": …, "delay_levels": …,
     "files": {"dledger-n0/data/00000000000000000000":
               {"size": 1073741824, "used": 1073741211, "blake2b": HEX, "sealed": true}, …}}

``blake2b`` is the digest (32 bytes) of the first ``used`` bytes; those behind are zeros. A sealed
file never changes again, so it is a hard link to the store's, or to that of the backup before. What
can be made from the log (queues, index, their checkpoints) is not in it: the restore makes that.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path

from ledgermq.formats.digest import DIGEST_SIZE, content_digest
from ledgermq.model.config.settings import LogKind
from ledgermq.model.config.settings_rules import JAVA_INT_MAX, RULES
from ledgermq.model.errors import ConfigError, CorruptLogError, StorageError
from ledgermq.model.names.stored_name import is_file_name
from ledgermq.repair.check.file_family import first_nonzero
from ledgermq.store.files.checked_document import read_document, write_document
from ledgermq.store.files.file_names import is_of_others
from ledgermq.store.files.small_file import create_file, write_all

MANIFEST = "manifest.json"
CONTENT = "store"
_VERSION = 1
_STEP = 4 << 20

Told = Callable[[int], None]

_NUMBERS = ("created_ms", "first", "end", "index", "term", "committed", "current_term")
_CLUSTER = re.compile("[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class BackedUpFile:
    """One file; see the module's table."""

    size: int
    used: int
    blake2b: str
    sealed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupManifest:
    """Everything that a restore has to know; see the module's table.

    Attributes:
        end, index, term: behind the last entry, and that entry; in a plain log the index is -1.
        committed: index of the last entry that is known to be committed.
        current_term: the newest term that the node had heard of.
    """

    created_ms: int
    log: str
    self_id: str | None
    cluster: str | None
    first: int
    end: int
    index: int
    term: int
    committed: int
    current_term: int
    log_file_size: int
    queue_file_size: int | None
    hash_slots: int | None
    index_items: int | None
    with_index: bool
    delay_levels: str
    files: dict[str, BackedUpFile] = field(default_factory=dict)

    @property
    def content_size(self) -> int:
        """Bytes of its files, without what is reserved in them."""
        return sum(file.used for file in self.files.values())


def _is_number(value: object) -> bool:
    return type(value) is int and -1 <= value < 1 << 63


def _is_size(value: object) -> bool:
    return type(value) is int and 0 <= value <= JAVA_INT_MAX


def _is_cluster(value: object) -> bool:
    return isinstance(value, str) and _CLUSTER.fullmatch(value) is not None


def _or_none(takes: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: value is None or takes(value)


OF_WHOM: Mapping[str, Callable[[object], bool]] = {
    "log": lambda value: value in [kind.value for kind in LogKind],
    "self_id": _or_none(RULES["node.self_id"].takes),
    "cluster": _or_none(_is_cluster),
    "log_file_size": _is_size,
}
"""Which values say whose log it is, and how large its files are: a folder gets its name of them."""

_TAKEN: Mapping[str, Callable[[object], bool]] = {
    **OF_WHOM,
    **dict.fromkeys(_NUMBERS, _is_number),
    "queue_file_size": _or_none(RULES["store.mapped_file_size_consume_queue"].takes),
    "hash_slots": _or_none(RULES["store.max_hash_slot_num"].takes),
    "index_items": _or_none(RULES["store.max_index_num"].takes),
    "with_index": RULES["store.message_index_enable"].takes,
    "delay_levels": RULES["store.message_delay_level"].takes,
}


def write_manifest(folder: Path, manifest: BackupManifest) -> None:
    """Put the manifest into the backup's folder; durable on return."""
    write_document(folder / MANIFEST, {"version": _VERSION, **asdict(manifest)})


def read_manifest(folder: Path) -> BackupManifest:
    """The manifest of the backup in ``folder``.

    Raises:
        ConfigError: no backup, or one of another version.
        CorruptLogError: the manifest is not whole, or says what no store has.
        StorageError: it cannot be read.
    """
    path = folder / MANIFEST
    document = read_document(path)
    if document is None:
        raise ConfigError("not a backup: it has no manifest", directory=str(folder))
    version = document.pop("version", None)
    if version != _VERSION:
        raise ConfigError("backup of another version", file=str(path), version=version)
    files = document.pop("files", None)
    manifest = checked_manifest(document, said_by=str(path))
    return replace(manifest, files=_checked_files(files, manifest, said_by=str(path)))


def checked_manifest(document: object, *, said_by: str) -> BackupManifest:
    """The store that ``document`` tells of, without its files: what can be that of one.

    Folders are called after what it says, and files get the sizes that it says.

    Args:
        said_by: what it was read from, as errors have it.

    Raises:
        CorruptLogError: a field is missing, or not what a store has.
    """
    known = {one.name for one in fields(BackupManifest)} - {"files"}
    if not isinstance(document, dict) or set(document) - {"files"} != known:
        raise CorruptLogError("manifest lacks a field", file=said_by)
    document = {name: document[name] for name in known}
    if not OF_WHOM["self_id"](document["self_id"]):
        raise CorruptLogError(
            "manifest names a member that cannot be one",
            file=said_by,
            self_id=repr(document["self_id"])[:100],
        )
    for name, takes in _TAKEN.items():
        if not takes(document[name]):
            raise CorruptLogError(
                "manifest says what no store has",
                file=said_by,
                field=name,
                value=repr(document[name])[:100],
            )
    manifest = BackupManifest(**document)
    if manifest.log == LogKind.DLEDGER.value and manifest.self_id is None:
        raise CorruptLogError("manifest names no member", file=said_by, log=manifest.log)
    return manifest


def _checked_files(
    rows: object, manifest: BackupManifest, *, said_by: str
) -> dict[str, BackedUpFile]:
    if not isinstance(rows, dict):
        raise CorruptLogError("manifest lacks a field", file=said_by)
    found: dict[str, BackedUpFile] = {}
    for name, row in rows.items():
        if not _is_backed_up(name, manifest):
            raise CorruptLogError(
                "manifest names a file outside of a store", file=said_by, name=name
            )
        try:
            file = BackedUpFile(**row)
            is_one = 0 <= file.used <= file.size <= JAVA_INT_MAX
        except TypeError:
            is_one = False
        if not is_one:
            raise CorruptLogError("manifest says not what a file is", file=said_by, name=name)
        found[name] = file
    return found


def _is_backed_up(name: str, manifest: BackupManifest) -> bool:
    """Whether a backup has a file of that name."""
    folder, _, file = name.rpartition("/")
    dledger = f"dledger-{manifest.self_id}"
    folders = ("commitlog", "config", "ledgermq", f"{dledger}/data", f"{dledger}/index")
    return folder in folders and is_file_name(file)


def backups_in(target: Path) -> list[tuple[Path, BackupManifest]]:
    """All backups of a folder, oldest first.

    Raises:
        CorruptLogError: a manifest is not whole; names it.
        StorageError: the folder cannot be read.
    """
    if not target.is_dir():
        return []
    folders = sorted(path for path in target.iterdir() if not is_of_others(path.name))
    folders = [path for path in folders if (path / MANIFEST).exists()]
    return [(path, read_manifest(path)) for path in folders]


def digest_of(fd: int, used: int, told: Told) -> str:
    """Digest of the first ``used`` bytes of a file.

    Raises:
        OSError: they cannot be read.
    """
    digest = hashlib.blake2b(digest_size=DIGEST_SIZE)
    at = 0
    while at < used:
        content = os.pread(fd, min(_STEP, used - at), at)
        if not content:
            break
        digest.update(content)
        at += len(content)
        told(len(content))
    return digest.hexdigest()


def digest_of_bytes(content: bytes) -> str:
    """The same of bytes in memory."""
    return content_digest(content).hex()


def copy_file(source: Path, target: Path, *, used: int, size: int, told: Told) -> str:
    """Copy the first ``used`` bytes into a new file of ``size``; their digest. Durable on return.

    Raises:
        FileNotFoundError: the source has gone.
        OSError: the operating system refused.
    """
    digest = hashlib.blake2b(digest_size=DIGEST_SIZE)
    with source.open("rb", buffering=0) as reading, create_file(target) as writing:
        at = 0
        while at < used:
            content = os.pread(reading.fileno(), min(_STEP, used - at), at)
            if not content:
                break
            digest.update(content)
            write_all(writing.fileno(), content)
            at += len(content)
            told(len(content))
        os.ftruncate(writing.fileno(), size)
        os.fsync(writing.fileno())
    return digest.hexdigest()


def verify_backup(folder: Path, *, told: Told = lambda _count: None) -> BackupManifest:
    """Read every file of a backup and compare it with the manifest.

    Raises:
        CorruptLogError: a file is missing, has another size or other bytes; names it.
        ConfigError, StorageError: as ``read_manifest``.
    """
    manifest = read_manifest(folder)
    for name, expected in manifest.files.items():
        path = folder / CONTENT / name
        try:
            with path.open("rb", buffering=0) as file:
                size = os.fstat(file.fileno()).st_size
                if size != expected.size:
                    raise CorruptLogError(
                        "file of a backup has another size",
                        file=str(path),
                        size=size,
                        expected=expected.size,
                    )
                digest = digest_of(file.fileno(), expected.used, told)
                stray = first_nonzero(file.fileno(), expected.used, size)
        except FileNotFoundError as error:
            raise CorruptLogError("file of a backup is missing", file=str(path)) from error
        except OSError as error:
            raise StorageError.of("file of a backup not read", error, file=path) from error
        if digest != expected.blake2b or stray is not None:
            raise CorruptLogError(
                "file of a backup is not what was backed up",
                file=str(path),
                digest=digest,
                expected=expected.blake2b,
            )
    return manifest
