"""Survey of a store for retention: its files, who needs them, how full the disk is.

Everything is read from the files, in a thread of the writer, which alone deletes files of the log:
none goes away meanwhile. Files of queues and of the broker may change under the survey.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ledgermq.formats.batch_unit import BATCH_FOLDER
from ledgermq.ipc.counters import ColdCounter
from ledgermq.ipc.cursor_page import CursorPage, Role
from ledgermq.model.config.settings import LogKind, RetentionSection, Settings
from ledgermq.rules.tables import archives
from ledgermq.rules.tables.archives import ArchiveTable
from ledgermq.rules.tables.group_offsets import GroupOffsets
from ledgermq.store.files.config_file import ConfigFile
from ledgermq.store.files.disk_space import bytes_on_disk, measure
from ledgermq.store.files.offsets_file import OffsetsFile
from ledgermq.store.files.store_paths import StorePaths
from ledgermq.store.log_family import first_store_ms
from ledgermq.store.queues import dispatch_checkpoint
from ledgermq.store.queues.batch_queue_reader import queue_reader
from ledgermq.store.queues.batch_topics import batch_topics
from ledgermq.store.queues.queue_ends import ends_path, read_queue_ends
from ledgermq.store.queues.queue_reader import QueueReader
from ledgermq.store.retention import NOTHING, Guard, LogFileAge, Survey
from ledgermq.store.state_mark import read_state_mark

_EVERYTHING = 2**62


def take_survey(
    settings: Settings,
    retention: RetentionSection,
    page: CursorPage,
    *,
    now_ms: int | None = None,
) -> Survey:
    """The store as it is now.

    Args:
        retention: the settings in force.
        page: of the node; only cursors are read.
        now_ms: by which messages are old, epoch ms; the machine's clock's if left out.

    Raises:
        StorageError, CorruptLogError: something cannot be read.
    """
    paths = StorePaths.of(settings)
    disk = measure(paths.root)
    files = tuple(_files(settings))
    least = _least_archive(settings, page)
    return Survey(
        files=files,
        guards=tuple(_guards(settings, retention, page, files)),
        disk=disk,
        store_bytes=_store_bytes(paths) if retention.bytes_max is not None else 0,
        archived=least.position if least else None,
        archive=least.name if least else "",
        now_ms=time.time_ns() // 1_000_000 if now_ms is None else now_ms,
        hour=time.localtime().tm_hour,
        is_dledger=settings.store.log is LogKind.DLEDGER,
    )


def _files(settings: Settings) -> Iterator[LogFileAge]:
    found = StorePaths.of(settings).log.files()
    times = [first_store_ms(file) for file in found]
    newest_ms = 0
    for number, file in enumerate(found):
        status = file.path.stat()
        later = [time_ms for time_ms in times[number + 1 :] if time_ms is not None]
        last_ms = later[0] if later else status.st_mtime_ns // 1_000_000
        # What stands behind a message is not older, whatever the clock of its leader said.
        newest_ms = max(newest_ms, times[number] or 0, last_ms)
        yield LogFileAge(file.start, file.end, status.st_blocks * 512, newest_ms)


def _guards(
    settings: Settings,
    retention: RetentionSection,
    page: CursorPage,
    files: tuple[LogFileAge, ...],
) -> Iterator[Guard]:
    if not files:
        return
    paths = StorePaths.of(settings)
    file_size = files[-1].end - files[-1].start
    committed = page.read_committed().position
    yield Guard("a restart", max(0, committed - file_size), "the last file before the commit")
    saved = dispatch_checkpoint.read(paths.dispatch_checkpoint)
    dispatched = 0 if saved is None else saved.position
    yield Guard("dispatch", dispatched, "its checkpoint on the disk")
    ends = read_queue_ends(ends_path(paths.root))
    counted = 0 if ends is None else ends.position
    yield Guard("dispatch", counted, "its table of the queues' ends on the disk")
    if retention.keep_groups:
        offsets = _group_offsets(paths)
        for group in retention.keep_groups:
            yield _group_guard(group, offsets, settings)
    mark = read_state_mark(paths.state_mark)
    if mark is not None:
        yield Guard("the broker", mark, "the last snapshot of its topics, groups and offsets")


def _group_offsets(paths: StorePaths) -> GroupOffsets:
    return GroupOffsets.read(OffsetsFile(paths.topics.parent).load())


def _group_guard(group: str, offsets: GroupOffsets, settings: Settings) -> Guard:
    """Guard of what ``group`` has not read of the log; one that has never committed needs all."""
    paths = StorePaths.of(settings)
    setting = "retention.keep_groups"
    topics = [(owner.topic, queues) for owner, queues in offsets if owner.group == group]
    if not topics:
        return Guard(f"group {group}, which has committed no offset yet,", 0, setting, reads=True)
    needed, name = NOTHING, f"group {group}"
    of_batches = batch_topics(paths.root)
    for topic, queues in topics:
        root = paths.root / BATCH_FOLDER if topic in of_batches else paths.consume_queues
        for number in _queue_ids(root / topic):
            reader = queue_reader(
                paths.consume_queues,
                topic,
                number,
                file_size=settings.store.mapped_file_size_consume_queue,
                of_batches=of_batches,
            )
            position = _unread(reader, queues.get(number, 0))
            if position < needed:
                offset = queues.get(number, 0)
                needed = position
                name = f"group {group}, at {offset} of queue {number} of {topic},"
    return Guard(name, needed, setting, reads=True)


def _queue_ids(folder: Path) -> list[int]:
    if not folder.is_dir():
        return []
    return sorted(int(path.name) for path in folder.iterdir() if path.name.isdecimal())


def _unread(reader: QueueReader, offset: int) -> int:
    """Position of the message that a group reads next; ``NOTHING`` at the queue's end."""
    try:
        first, end = reader.bounds(_EVERYTHING)
        if offset >= end:
            return NOTHING
        return int(reader.units(max(first, offset), 1)["position"][0])
    finally:
        reader.close()


class _Archive(NamedTuple):
    position: int
    name: str


def _least_archive(settings: Settings, page: CursorPage) -> _Archive | None:
    """The archive that has least of the log, sealed pieces among them; None without one.

    The broker writes its file a moment after the command, and the process that reads pieces has
    read them, so neither says more than is so.

    Raises:
        ConfigError: the file says something else: nothing may be deleted.
    """
    table = ArchiveTable.read(ConfigFile(StorePaths.of(settings).own / archives.FILE).load())
    found = [_Archive(mark.position, f"archive {name}") for name, mark in table]
    place = settings.cold.place
    if place is not None:
        sealed = page.read_counters(Role.COLD)[ColdCounter.SEALED_POSITION]
        found.append(_Archive(sealed, f"the place of pieces {place}"))
    return min(found, default=None)


def _store_bytes(paths: StorePaths) -> int:
    """Bytes on disk of log, queues and index; what goes away meanwhile counts nothing."""
    folders = [paths.root / "commitlog", paths.data, paths.consume_queues, paths.index_files]
    if paths.index is not None:
        folders.append(paths.index)
    return bytes_on_disk(*folders)
