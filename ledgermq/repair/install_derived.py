"""Installation of ConsumeQueues and Index that were built elsewhere from this store's log.

``ledgermq spark rebuild`` writes them into a folder, and ``derived.json`` last, which says from
what they were built. Here they are opened as a dispatcher opens them, compared with that and with
the log, made durable, and put in place as ``rebuild`` does. The old ones are kept aside.
"""

from __future__ import annotations

import json
import os
import stat
import zlib
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from ledgermq.formats.batch_unit import BATCH_FOLDER
from ledgermq.model.config.settings import StoreSection
from ledgermq.model.errors import ConfigError, CorruptLogError
from ledgermq.model.ids import Position
from ledgermq.repair.rebuild import keep_queue_ends, put_in_place, put_queue_ends
from ledgermq.store.files.file_names import queue_files
from ledgermq.store.files.folders import delete_folder
from ledgermq.store.files.small_file import read_file, replace_file
from ledgermq.store.index.tag_items import has_tag_items, keep_tags
from ledgermq.store.log_reader import LogReader
from ledgermq.store.queues.derived_files import load_derived_files
from ledgermq.store.queues.dispatch_build import DispatchBuilder
from ledgermq.store.queues.queue_ends import QueueEnds
from ledgermq.store.store_directory import StoreDirectory

NAME = "derived.json"
_QUEUES = ("consumequeue", BATCH_FOLDER)
_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class StagedDerived:
    """What ``derived.json`` says of the files beside it.

    Attributes:
        first, end: positions of the log from which, and up to which.
        ends: queue offsets of all queues' ends, summed up.
        queue_files: files of all queues.
        index_end: position of the last message that has a key, -1 when none has.
        store_timestamp: store time of the last message with a queue unit, epoch ms.
        last: position of the last message, -1 without one; ``last_crc`` is of its bytes.
        hash_slots, index_items: geometry of the index, None when the store has none.
        complete: false while they are being built.
    """

    version: int = _VERSION
    complete: bool
    first: int = 0
    end: int = 0
    messages: int = 0
    units: int = 0
    keys: int = 0
    skipped: int = 0
    ends: int = 0
    queue_files: int = 0
    index_end: int = -1
    store_timestamp: int = 0
    last: int = -1
    last_crc: int = 0
    queue_file_size: int = 0
    hash_slots: int | None = None
    index_items: int | None = None


def write_staged(folder: Path, staged: StagedDerived) -> None:
    """Write ``derived.json``; durable on return.

    Raises:
        StorageError: the operating system refused.
    """
    replace_file(folder / NAME, json.dumps(asdict(staged), indent=2).encode() + b"\n")


def read_staged(folder: Path) -> StagedDerived | None:
    """What ``derived.json`` says; None when there is none.

    Raises:
        ConfigError: it is not one that this version writes.
        StorageError: it cannot be read.
    """
    content = read_file(folder / NAME)
    if content is None:
        return None
    path = str(folder / NAME)
    try:
        said = json.loads(content)
    except ValueError as error:
        raise ConfigError("not a description of derived files", file=path) from error
    names = {field.name for field in fields(StagedDerived)}
    if not isinstance(said, dict) or set(said) != names or said["version"] != _VERSION:
        raise ConfigError("not a description of derived files", file=path, version=_VERSION)
    return StagedDerived(**said)


def queue_paths(folder: Path) -> list[Path]:
    """The files of all queues in ``folder``."""
    return [path for name in _QUEUES for path in queue_files(folder / name)]


def message_crc(reader: LogReader, position: int) -> int:
    """CRC-32 of the bytes of the message at ``position``: tells one log from another.

    Raises:
        CorruptLogError: no message is there.
    """
    size = reader.message_at(position, check_crc=False).size
    return zlib.crc32(reader.span(position).view[:size])


def install_derived(directory: StoreDirectory, folder: Path) -> tuple[StagedDerived, list[Path]]:
    """Put the files of ``folder`` in place; what they are, and where the old ones are now.

    The caller has the store's locks. Killed while files are moved, there is no ``consumequeue/``,
    and a node that is started builds everything from the log; the old ones are kept aside by then.

    Raises:
        ConfigError: the folder is not complete, of another log, or on another file system.
        CorruptLogError: its files are not what it says.
        StorageError: the operating system refused.
    """
    staged = read_staged(folder)
    if staged is None or not staged.complete:
        raise ConfigError("no complete derived files: run the job again", directory=str(folder))
    root = directory.root
    _check_place(root, folder)
    reader = LogReader(directory)
    try:
        _check_log(reader, staged)
        ends = keep_queue_ends(directory, reader)
        log_start = reader.parts[0].files.first
    finally:
        reader.close()
    if has_tag_items(folder, directory.log_family):
        keep_tags(directory.root)
    _let_nobody_else_in(folder)
    _make_durable(folder, staged, ends, log_start=log_start, batches_of=root)
    aside = put_in_place(root, folder)
    delete_folder(folder)
    return staged, list(aside)


def _check_place(root: Path, folder: Path) -> None:
    there, here = folder.stat(), root.stat()
    if there.st_dev != here.st_dev:
        raise ConfigError(
            "derived files are on another file system: copy the folder beside the store",
            directory=str(folder),
            store=str(root),
        )
    if there.st_uid != here.st_uid:
        raise ConfigError(
            "derived files belong to another user than the store: change their owner",
            directory=str(folder),
            uid=there.st_uid,
            store_uid=here.st_uid,
        )


def _check_log(reader: LogReader, staged: StagedDerived) -> None:
    """The log may have grown, and lost its oldest files, and must be the same one."""
    first, end = int(reader.first), int(reader.committed_end())
    wrong = {"first": first, "end": end, "built_from": staged.first, "built_to": staged.end}
    if not staged.first <= first <= staged.end <= max(end, first):
        raise ConfigError("derived files are of other positions than the log has", **wrong)
    if staged.last >= first and message_crc(reader, staged.last) != staged.last_crc:
        raise ConfigError("derived files are of another log", position=staged.last)


def _let_nobody_else_in(folder: Path) -> None:
    """Workers of Spark make files as their hosts do; in a store they are the node's alone.

    Raises:
        CorruptLogError: there is a link, by which something elsewhere would be closed, or kept.
    """
    for path in (folder, *folder.rglob("*")):
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            raise CorruptLogError("derived files have a link among them", file=str(path))
        if mode & 0o077:
            path.chmod(mode & 0o700)


def _make_durable(
    folder: Path,
    staged: StagedDerived,
    ends: QueueEnds | None,
    *,
    log_start: int,
    batches_of: Path,
) -> None:
    """Open the files as a dispatcher does, sync them, and write the checkpoints beside them.

    Queues that the log has no message of any more are added, as far as ``ends`` knows them. Which
    ones are of batches the store ``batches_of`` says.
    """
    section = StoreSection(
        path_root_dir=folder,
        mapped_file_size_consume_queue=staged.queue_file_size,
        max_hash_slot_num=staged.hash_slots,
        max_index_num=staged.index_items,
        message_index_enable=staged.hash_slots is not None,
    )
    files = load_derived_files(section, published=None, batches_of=batches_of)
    queues, index = files.queues, files.index
    index_end = -1 if index is None else index.end_position
    found = (queues.all_units, len(queue_paths(folder)), index_end)
    lost = bool(queues.lost) or (index is not None and index.lost)
    if lost or found != (staged.ends, staged.queue_files, staged.index_end):
        files.close()
        raise CorruptLogError(
            "derived files are not what their description says: run the job again",
            file=str(folder),
            found=found,
            expected=(staged.ends, staged.queue_files, staged.index_end),
        )
    builder = DispatchBuilder(
        section,
        queues,
        index,
        position=Position(staged.end),
        store_timestamp=staged.store_timestamp,
        truncated=0,
    )
    try:
        for queues_folder in _QUEUES:
            for place, names, _ in os.walk(folder / queues_folder):
                queues.dirty_directories.update([place, *(f"{place}/{name}" for name in names)])
        queues.dirty_directories.add(str(folder))
        queues.dirty_files.update(map(str, queue_paths(folder)))
        if index is not None:
            index.dirty_files.update(str(index.root / name) for name in index.file_names)
            if index.root.exists():
                index.dirty_directories.add(str(index.root))
        put_queue_ends(queues, ends, end=staged.end, log_start=log_start)
        builder.flush()
    finally:
        builder.close()
