"""Restore of a backup: into an empty folder, verified byte by byte, with its queues built anew.

Everything is made in ``ROOT/restoring/`` first: a restore that is killed meanwhile begins anew when
it is run again. Once all is made and durable, a note says so (``restore_note``), and it moves to
its place, the log last. A restore that is killed meanwhile goes on when it is run again; until then
no node starts on the store, which is not all there.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from ledgermq.conversion.backup_manifest import (
    CONTENT,
    BackupManifest,
    Told,
    copy_file,
    digest_of_bytes,
    read_manifest,
)
from ledgermq.conversion.restore_note import NAME as NOTE
from ledgermq.conversion.restore_note import RestoreNote, messages_of_begun, write_note
from ledgermq.model.config.settings import LogKind, StoreSection
from ledgermq.model.config.settings_rules import RULES
from ledgermq.model.errors import ConfigError, CorruptLogError, refused_as
from ledgermq.model.ids import Index, Term
from ledgermq.repair.rebuild import rebuild
from ledgermq.store.files.checked_document import encode_document
from ledgermq.store.files.disk_sync import sync_directory
from ledgermq.store.files.file_names import is_of_others
from ledgermq.store.files.properties_file import (
    CurrentTerm,
    DLedgerCheckpoint,
    encode_current_term,
    encode_dledger_checkpoint,
)
from ledgermq.store.files.small_file import replace_file
from ledgermq.store.state_mark import NAME as STATE_MARK
from ledgermq.store.state_mark import write_state_mark
from ledgermq.store.store_directory import open_directory

STAGING = "restoring"
_MAY_BE_THERE = frozenset({"lock", "ledgermq", STAGING})
_MAY_BE_THERE_OF_OURS = frozenset({"lock", "keys"})


def check_empty(root: Path) -> None:
    """Refuse a folder that holds a store; keys and locks may be there.

    Raises:
        ConfigError: it holds something; names it.
    """
    own = root / "ledgermq"
    found = [
        str(path.relative_to(root))
        for folder, allowed in ((root, _MAY_BE_THERE), (own, _MAY_BE_THERE_OF_OURS))
        for path in (sorted(folder.iterdir()) if folder.is_dir() else ())
        if path.name not in allowed and not is_of_others(path.name)
    ]
    if found:
        raise ConfigError(
            "a backup is restored into an empty folder only", directory=str(root), found=found
        )


def restore_backup(
    backup: Path,
    root: Path,
    *,
    self_id: str | None,
    cluster: str | None,
    prepare: Callable[[Path, BackupManifest], None],
    told: Told = lambda _count: None,
) -> tuple[BackupManifest, int]:
    """Restore ``backup`` into ``root``, which is there, empty, and locked by the caller.

    Killed at any moment, it is run again with the same arguments.

    Args:
        self_id: whose store it becomes; None: the one's that it was.
        cluster: id of the group that it begins, as text; None: it stays in the one that it was in.
        prepare: called with the store's folder before it is put in place.
        told: bytes that were copied.

    Returns:
        What the backup says of itself, and how many messages are in the queues.

    Raises:
        ConfigError: no backup, or the folder is not empty, or another restore into it is not done.
        CorruptLogError: a file of the backup is not what was backed up; names it.
        StorageError: the operating system refused.
    """
    manifest = read_manifest(backup)
    digest = digest_of_bytes(encode_document(asdict(manifest)))

    def fill(staging: Path) -> None:
        _copy(backup / CONTENT, staging, manifest, self_id, told)

    messages = restore_store(
        root, manifest, fill, digest=digest, self_id=self_id, cluster=cluster, prepare=prepare
    )
    return manifest, messages


def restore_store(
    root: Path,
    manifest: BackupManifest,
    fill: Callable[[Path], None],
    *,
    digest: str,
    self_id: str | None,
    cluster: str | None,
    prepare: Callable[[Path, BackupManifest], None],
) -> int:
    """Make the store that ``manifest`` tells of in ``root``, as ``restore_backup``; its messages.

    Args:
        fill: puts log and documents into the folder that it is given.
        digest: what is restored, in one word: a restore that was begun goes on with the same.

    Raises:
        ConfigError, CorruptLogError, StorageError: as ``restore_backup``, and what ``fill`` does.
    """
    staging = root / STAGING
    name, group = self_id or manifest.self_id, cluster or manifest.cluster
    if name is not None and not RULES["node.self_id"].takes(name):
        # A folder is called after it.
        raise ConfigError("not the id of a member: one letter and a whole number", self_id=name)
    messages = messages_of_begun(root, backup=digest, self_id=name, cluster=group)
    with refused_as("backup not restored", directory=root):
        if messages < 0:
            check_empty(root)
            shutil.rmtree(staging, ignore_errors=True)
            staging.mkdir(mode=0o700)
            fill(staging)
            _write_marks(staging, manifest, name)
            prepare(staging, manifest)
            messages = _rebuild(staging, manifest)
            note = RestoreNote(backup=digest, self_id=name, cluster=group, messages=messages)
            write_note(staging, note)
            _give_to_owner_of(root, staging)
            _tell_that_all_is_made(root, staging)
        _put_in_place(root, staging)
    return messages


def _copy(
    source: Path, staging: Path, manifest: BackupManifest, self_id: str | None, told: Told
) -> None:
    renamed = f"dledger-{self_id or manifest.self_id}"
    for name, expected in manifest.files.items():
        parts = name.split("/")
        if parts[0] == f"dledger-{manifest.self_id}":
            parts[0] = renamed
        target = staging.joinpath(*parts)
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            digest = copy_file(
                source / name, target, used=expected.used, size=expected.size, told=told
            )
        except FileNotFoundError as error:
            raise CorruptLogError("file of a backup is missing", file=str(source / name)) from error
        if digest != expected.blake2b:
            raise CorruptLogError(
                "file of a backup is not what was backed up",
                file=str(source / name),
                digest=digest,
                expected=expected.blake2b,
            )


def _write_marks(staging: Path, manifest: BackupManifest, self_id: str | None) -> None:
    """The mark of retention, and DLedger's two small files; the term's vote is not known any more,
    and nobody's.
    """
    (staging / "ledgermq").mkdir(exist_ok=True)
    write_state_mark(staging / "ledgermq" / STATE_MARK, 0)
    if manifest.log != LogKind.DLEDGER.value:
        return
    folder = staging / f"dledger-{self_id}"
    for name in ("data", "index"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    term = Term(max(manifest.current_term, manifest.term))
    checkpoint = DLedgerCheckpoint(Index(manifest.index), Index(manifest.committed))
    replace_file(folder / "checkpoint", encode_dledger_checkpoint(checkpoint))
    replace_file(folder / "currterm", encode_current_term(CurrentTerm(term, None)))


def _rebuild(staging: Path, manifest: BackupManifest) -> int:
    directory = open_directory(staging)
    section = StoreSection(
        path_root_dir=staging,
        log=directory.log,
        mapped_file_size_consume_queue=manifest.queue_file_size,
        max_hash_slot_num=manifest.hash_slots,
        max_index_num=manifest.index_items,
        message_index_enable=manifest.with_index,
        message_delay_level=manifest.delay_levels,
    )
    return rebuild(directory, section).messages


def _give_to_owner_of(root: Path, staging: Path) -> None:
    """What a superuser has restored belongs to whom the folder belongs, as the node's account."""
    owner = root.stat()
    if os.geteuid() != 0 or owner.st_uid == 0:
        return
    for path in (staging, *staging.rglob("*")):
        os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)


def _tell_that_all_is_made(root: Path, staging: Path) -> None:
    """From here on it is gone on with, and not begun anew."""
    for path in sorted(staging.rglob("*")):
        if path.is_dir():
            sync_directory(path)
    sync_directory(staging)
    sync_directory(root)
    own = root / "ledgermq"
    (staging / NOTE).rename(own / NOTE)
    sync_directory(own)


def _put_in_place(root: Path, staging: Path) -> None:
    """Move what is left in ``staging``, which may be nothing any more."""
    own = root / "ledgermq"
    if staging.is_dir():
        tables = staging / "ledgermq"
        if tables.is_dir():
            for path in sorted(tables.iterdir()):
                path.rename(own / path.name)
            tables.rmdir()
        # The logs last: without one there is no store.
        children = sorted(
            staging.iterdir(), key=lambda path: path.name.startswith(("dledger-", "commitlog"))
        )
        for path in children:
            path.rename(root / path.name)
        staging.rmdir()
    sync_directory(own)
    sync_directory(root)
    (own / NOTE).unlink()
    sync_directory(own)
