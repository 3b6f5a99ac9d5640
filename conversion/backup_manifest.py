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
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import cast

from ledgermq.formats.digest import DIGEST_SIZE, content_digest
from ledgermq.model.config.settings_rules import RULES
from ledgermq.model.errors import ConfigError, CorruptLogError, StorageError
from ledgermq.repair.check.file_family import first_nonzero
from ledgermq.store.files.checked_document import read_document, write_document

MANIFEST = "manifest.json"
CONTENT = "store"
_VERSION = 1
_STEP = 4 << 20

Told = Callable[[int], None]


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


def write_manifest(folder: Path, manifest: BackupManifest) -> None:
    """Put the manifest into the backup's folder; durable on return."""
    write_document(folder / MANIFEST, {"version": _VERSION, **asdict(manifest)})


def read_manifest(folder: Path) -> BackupManifest:
    """The manifest of the backup in ``folder``.

    Raises:
        ConfigError: no backup, or one of another version.
        CorruptLogError: the manifest is not whole.
        StorageError: it cannot be read.
    """
    path = folder / MANIFEST
    document = read_document(path)
    if document is None:
        raise ConfigError("not a backup: it has no manifest", directory=str(folder))
    version = document.pop("version", None)
    if version != _VERSION:
        raise ConfigError("backup of another version", file=str(path), version=version)
    try:
        files = cast("dict[str, dict[str, object]]", document.pop("files"))
        found = {name: BackedUpFile(**row) for name, row in files.items()}  # type: ignore[arg-type]
        manifest = BackupManifest(**document, files=found)  # type: ignore[arg-type]
    except (KeyError, TypeError, AttributeError) as error:
        raise CorruptLogError(
            "manifest lacks a field", file=str(path), reason=str(error)
        ) from error
    if manifest.self_id is not None and not RULES["node.self_id"].takes(manifest.self_id):
        # A folder is called after it.
        raise CorruptLogError(
            "manifest names a member that cannot be one", file=str(path), self_id=manifest.self_id
        )
    return manifest


def backups_in(target: Path) -> list[tuple[Path, BackupManifest]]:
    """All backups of a folder, oldest first.

    Raises:
        CorruptLogError: a manifest is not whole; names it.
        StorageError: the folder cannot be read.
    """
    if not target.is_dir():
        return []
    folders = sorted(path for path in target.iterdir() if (path / MANIFEST).exists())
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
    with source.open("rb", buffering=0) as reading, target.open("xb", buffering=0) as writing:
        at = 0
        while at < used:
            content = os.pread(reading.fileno(), min(_STEP, used - at), at)
            if not content:
                break
            digest.update(content)
            rest = memoryview(content)
            while rest:
                rest = rest[writing.write(rest) :]
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
                        file=str(path), size=size, expected=expected.size,
                    )  # fmt: skip
                digest = digest_of(file.fileno(), expected.used, told)
                stray = first_nonzero(file.fileno(), expected.used, size)
        except FileNotFoundError as error:
            raise CorruptLogError("file of a backup is missing", file=str(path)) from error
        except OSError as error:
            raise StorageError(
                "file of a backup not read",
                errno=error.errno, file=str(path), reason=error.strerror,
            ) from error  # fmt: skip
        if digest != expected.blake2b or stray is not None:
            raise CorruptLogError(
                "file of a backup is not what was backed up",
                file=str(path), digest=digest, expected=expected.blake2b,
            )  # fmt: skip
    return manifest
