"""Dispatch: ConsumeQueues and Index as a function of the committed log, in bulk.

The dispatcher process alone has a ``DispatchBuilder``. What it writes is derived: whatever is lost
or damaged behind the checkpoint is built again from the log. RocketMQ's rules are those of
``ReputMessageService`` and of its two dispatchers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

from ledgermq.formats.kernels.kernel import ScanStatus
from ledgermq.formats.queue_unit import UNIT_SIZE
from ledgermq.model.config.settings import StoreSection
from ledgermq.model.delay_levels import delay_levels_ms
from ledgermq.model.errors import (
    CorruptLogError,
    DamagedLogError,
    DiskFullError,
    StorageError,
    refused_as,
)
from ledgermq.model.ids import Position
from ledgermq.model.names.stored_name import is_file_name
from ledgermq.store.files.disk_sync import make_folder, sync_content, sync_directory
from ledgermq.store.files.small_file import replace_file
from ledgermq.store.files.store_checkpoint import (
    StoreCheckpoint,
    encode_checkpoint,
    read_checkpoint,
)
from ledgermq.store.index.index_files import IndexFiles
from ledgermq.store.log_family import LogFamily, MappedLog
from ledgermq.store.queues import dispatch_checkpoint
from ledgermq.store.queues.derived_files import (
    DerivedFiles,
    clear_incomplete,
    keeps_tags,
    load_derived_files,
    mark_incomplete,
    own_path,
    settle,
)
from ledgermq.store.queues.dispatch_checkpoint import INDEX_NOT_KEPT, DispatchCheckpoint
from ledgermq.store.queues.dispatch_tables import DispatchTables, Portion
from ledgermq.store.queues.queue_ends import QueueEnds, ends_path, write_queue_ends
from ledgermq.store.queues.queue_files import QueueFiles

SYNCED_ALONE_MAX = 64
SYNCERS = 8
"""Many files are synced side by side: those that wait together share one commit of the file
system's journal: 2,000 new files took 0.3 s instead of 3.5 s (ext4, a busy machine)."""


class Built(NamedTuple):
    """What one call of ``build`` did.

    Attributes:
        position: first one of the log that was not taken.
        messages: messages taken.
        units: queue units that were not there before.
        keys: index keys that were not there before.
        skipped: messages that cannot be parsed, or whose topic is no name of a folder.
    """

    position: Position
    messages: int
    units: int
    keys: int
    skipped: int


@dataclass(frozen=True, slots=True)
class FlushJob:
    """What must be synced for the checkpoints it then writes; may run in any thread, once.

    Jobs run in the order in which they were made.
    """

    root: Path
    files: frozenset[str]
    directories: frozenset[str]
    checkpoint: DispatchCheckpoint
    store_checkpoint: StoreCheckpoint
    ends: QueueEnds | None = None

    def run(self, sign_of_life: Callable[[], None] = lambda: None) -> None:
        """Sync, then write both checkpoints, then the table of ends if there is a new one.

        Args:
            sign_of_life: called again and again while many files are synced.

        Raises:
            DiskFullError: there is no space for the checkpoints, and no reserve; the rest is done.
            StorageError: a sync failed. The page cache can no longer be trusted: end the process.
        """
        _for_all(_sync_file, sorted(self.files), sign_of_life)
        _for_all(_sync_folder, sorted(self.directories), sign_of_life)
        replace_file(self.root / "checkpoint", encode_checkpoint(self.store_checkpoint))
        replace_file(own_path(self.root), dispatch_checkpoint.encode(self.checkpoint))
        if self.ends is not None:
            write_queue_ends(ends_path(self.root), self.ends)


class DispatchBuilder:
    """Queues and index of one store, built up to ``position``.

    Attributes:
        position: everything in the log before it is dispatched.
        store_timestamp: store time of the last message with a queue unit, epoch ms, 0 at first.
        truncated: queues from which units were taken away when the store was opened.
        with_tags: whether messages get index items of their tags (``tag_items``).
        keys_from: keys of messages from here on are being put again (``build_keys``); None when
            the index has all that is dispatched.
    """

    def __init__(
        self,
        store: StoreSection,
        queues: QueueFiles,
        index: IndexFiles | None,
        *,
        position: Position,
        store_timestamp: int,
        truncated: int,
        kept: tuple[int, int] = (0, 0),
        with_tags: bool = False,
    ) -> None:
        """Use ``open``.

        Args:
            kept: ``master_flushed`` and ``confirmed`` of the store's checkpoint.
        """
        self.position = position
        self.store_timestamp = store_timestamp
        self.truncated = truncated
        self.keys_from: Position | None = None
        self.queues = queues
        self.index = index
        self._root = store.path_root_dir
        self._tables = DispatchTables(
            delay_levels_ms(store.message_delay_level),
            with_keys=index is not None,
            with_tags=with_tags,
        )
        self.with_tags = with_tags
        self._kept = kept
        self._flushed = Position(-1)
        self._boot_id = dispatch_checkpoint.boot_id()

    @classmethod
    def open(
        cls,
        store: StoreSection,
        *,
        log_start: Position,
        log_end: Position,
        published: Position | None,
        files: DerivedFiles | None = None,
        log: LogFamily | None = None,
        with_tags: bool = False,
        again_from: Position | None = None,
    ) -> Self:
        """Find where to go on (``derived_files``), and take away what the log does not have.

        Args:
            log_start, log_end: the log's first position, and the one behind its last entry.
            published: cursor ``dispatched`` of the node's page, None when it was never published.
            files: what was found before the log's end was known; the builder owns them now.
            log: what the index points to, to find out whether it has items of tags.
            with_tags: whether they are put in any case.
            again_from: as ``settle`` takes it.

        Raises:
            ConfigError: all files have another size than the settings say.
            StorageError: the operating system refused.
        """
        if files is None:
            files = load_derived_files(store, published=published)
        assert files.published == published, (files.published, published)
        root = store.path_root_dir
        try:
            with_tags = with_tags or keeps_tags(root, files, log)
            position, truncated = settle(
                files, log_start=log_start, log_end=log_end, again_from=again_from
            )
        except DiskFullError:
            files.close()
            raise
        found = read_checkpoint(root / "checkpoint")
        builder = cls(
            store,
            files.queues,
            files.index,
            position=position,
            store_timestamp=found.queues_timestamp,
            truncated=truncated,
            # They may be of a log that was longer.
            kept=(min(found.master_flushed, log_end), min(found.confirmed, log_end)),
            with_tags=with_tags,
        )
        try:
            # The old checkpoint may promise what was just taken away.
            builder.flush()
            if published is None:
                # Who has published more says first that it has less now.
                clear_incomplete(root)
        except DiskFullError:
            builder.close()
            raise
        return builder

    @property
    def dirty(self) -> bool:
        """Whether ``flush`` has something to do."""
        return self.position != self._flushed or bool(self.queues.dirty_files)

    def build(self, span: memoryview, base: Position, end: Position, *, header_size: int) -> Built:
        """Dispatch the messages of ``span`` up to ``end``; what is there already is passed.

        Args:
            span: bytes of the log inside one of its files, from ``position`` on or from before.
            base: position of the span's first byte.
            end: position behind the last committed entry, or behind the span.
            header_size: 48 in a DLedger log, 0 in a plain one.

        Raises:
            DamagedLogError: the log has no entry where one must begin; what is before it is
                dispatched, and ``position`` stands at it.
            StorageError: the operating system refused; ``position`` stands before the span.
        """
        assert base <= self.position <= end <= base + len(span)
        before = self.position
        messages = units = keys = skipped = 0
        at = self.position - base
        status = ScanStatus.FULL
        while status is ScanStatus.FULL:
            # However few queues there are: thousands of messages are read before each.
            self.queues.sign_of_life()
            count, at, status = self._tables.scan(
                span, at, end - base, header_size=header_size, base=base
            )
            for portion in self._tables.portions(span, base, count):
                put, unnamed = self._put_units(span, portion)
                units += put
                skipped += portion.malformed + unnamed
                if self.index is not None and self.keys_from is None:
                    keys += self.index.put(portion.keys, portion.rows)
            messages += count
            self.position = Position(base + at)
        if status.corrupt:
            raise DamagedLogError(
                "no entry where one must begin",
                position=self.position,
                field=status.name.removeprefix("BAD_").lower(),
                dispatched=self.position - before,
            )
        return Built(self.position, messages, units, keys, skipped)

    def drop_keys(self, name: str, log_start: Position) -> None:
        """Take away the index from the file ``name`` on, to be put again by ``build_keys``.

        Killed before that is done, a start dispatches from the log's beginning.

        Args:
            log_start: position of the log's first record; what is there already is passed.

        Raises:
            StorageError: the operating system refused.
        """
        assert self.index is not None
        mark_incomplete(self._root)
        # First: on a full disk the rest may be refused, when files are gone already.
        self.keys_from = log_start
        self.index.drop_from(name)

    def build_keys(
        self, span: memoryview, base: Position, end: Position, *, header_size: int
    ) -> Position:
        """Put keys again from ``keys_from`` on, of at most one portion; where that ended.

        Arguments and errors are those of ``build``.
        """
        assert self.index is not None and self.keys_from is not None
        at = self.keys_from - base
        count, reached, status = self._tables.scan(
            span, at, end - base, header_size=header_size, base=base
        )
        if status.corrupt:
            raise DamagedLogError("no entry where one must begin", position=base + reached)
        for portion in self._tables.portions(span, base, count):
            self.index.put(portion.keys, portion.rows)
        self.keys_from = Position(base + reached)
        return self.keys_from

    def finish_keys(self) -> None:
        """All keys up to ``position`` are put again: make them durable, and say so.

        Raises:
            StorageError: the operating system refused.
        """
        assert self.keys_from == self.position
        self.keys_from = None
        self.flush()
        clear_incomplete(self._root)

    def all_ends(self, known: QueueEnds | None) -> QueueEnds:
        """Where all queues end, as of ``position``.

        Args:
            known: of a position before: a queue that has no unit ends where it did then.
        """
        return QueueEnds(self.position, {**(known.ends if known else {}), **self.queues.ends()})

    def begin_flush(self, *, ends: QueueEnds | None = None) -> FlushJob:
        """What makes everything up to ``position`` durable; from now on that counts as clean.

        Args:
            ends: is to be written when that is done.
        """
        files = frozenset(self.queues.dirty_files)
        directories = frozenset(self.queues.dirty_directories)
        self.queues.dirty_files.clear()
        self.queues.dirty_directories.clear()
        index_timestamp = 0
        if self.index is not None:
            files |= self.index.dirty_files
            directories |= self.index.dirty_directories
            self.index.dirty_files.clear()
            self.index.dirty_directories.clear()
            index_timestamp = self.index.end_timestamp
        self._flushed = self.position
        return FlushJob(
            self._root,
            files,
            directories,
            DispatchCheckpoint(
                self.position,
                self.queues.log_end,
                self._boot_id,
                self.queues.units,
                INDEX_NOT_KEPT if self.index is None else self.index.end_position,
            ),
            StoreCheckpoint(
                self.store_timestamp,
                self.store_timestamp,
                index_timestamp,
                *self._kept,
                queues_position=self.position,
            ),
            ends,
        )

    def flush(self, *, ends: QueueEnds | None = None) -> None:
        """Make everything up to ``position`` durable, and write the checkpoints; and ``ends``."""
        make_folder(own_path(self._root).parent)
        self.begin_flush(ends=ends).run(self.queues.give_sign)

    def delete_before(self, position: Position) -> int:
        """Delete queue and index files that only point before ``position``; how many.

        The log must begin there already: what it holds must be found.
        """
        index = 0 if self.index is None else self.index.delete_before(position)
        return index + self.queues.delete_before(position)

    def close(self) -> None:
        """Close the files, without a flush."""
        self.queues.close()
        if self.index is not None:
            self.index.close()

    def _put_units(self, span: memoryview, portion: Portion) -> tuple[int, int]:
        put = unnamed = start = 0
        grouped = self._tables.grouped(span, portion)
        topics, queue_ids, ends, offsets, units = grouped
        queues = self.queues
        if len(topics) > 1:
            numbers = offsets.tolist()
            positions, sizes = units["position"].tolist(), units["size"].tolist()
            data = memoryview(units.tobytes())
        for topic, queue_id, end in zip(topics, queue_ids, ends, strict=True):
            # With thousands of queues most have one unit: arrays would cost more than its write.
            if topic in queues.batch_topics:
                # With the records of several messages, below.
                pass
            elif end - start == 1 < len(topics) and queues.append_next(
                (topic, queue_id),
                numbers[start],
                positions[start] + sizes[start],
                data[start * UNIT_SIZE : end * UNIT_SIZE],
            ):
                put += 1
            elif is_file_name(topic):
                put += queues.append(topic, queue_id, offsets[start:end], units[start:end])
            else:
                unnamed += end - start
            start = end
        batches = self._tables.batches(span, portion, grouped, queues.batch_topics)
        for (topic, queue_id), found in batches.items():
            put += queues.append_batches(topic, queue_id, found)
        queues.give_sign()
        row = self._tables.last_unit_row(portion)
        if row >= 0:
            self.store_timestamp = int(self._tables.store_times[row])
        return put, unnamed


def _for_all(
    sync: Callable[[str], None], paths: Sequence[str], sign_of_life: Callable[[], None]
) -> None:
    if len(paths) < SYNCED_ALONE_MAX:
        for path in paths:
            sync(path)
        return
    with ThreadPoolExecutor(SYNCERS, thread_name_prefix="queue-syncs") as pool:
        for _ in pool.map(sync, paths):
            sign_of_life()


def _sync_folder(path: str) -> None:
    with refused_as("folder not synced", file=path):
        sync_directory(Path(path))


def _sync_file(path: str) -> None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        # Taken away since, as too old or as cut off.
        return
    except OSError as error:
        raise StorageError.of("file not synced", error, file=path) from error
    try:
        sync_content(fd)
    except OSError as error:
        raise StorageError.of("file not synced", error, file=path) from error
    finally:
        os.close(fd)


Progress = Callable[[int, int], None]
"""Called with bytes done, and bytes to do."""


def dispatch_log(
    builder: DispatchBuilder, log: MappedLog, end: Position, progress: Progress
) -> int:
    """Dispatch from where ``builder`` stands up to ``end``, file by file; how many messages.

    What is built is not flushed.

    Args:
        log: its parts stand right behind one another.
        end: behind the last record, or behind the blank of its file.

    Raises:
        CorruptLogError: the log has no record where one must begin.
        StorageError: the operating system refused.
    """
    begun = builder.position
    messages = 0
    while builder.position < end:
        part = log.part_with(builder.position)
        if part is None:
            raise CorruptLogError(
                "not within the log",
                position=builder.position,
                folders=[str(part.files.directory) for part in log.parts],
            )
        start = part.files.start_of(builder.position)
        upto = min(end, start + part.files.file_size)
        before = builder.position
        built = builder.build(
            part.files.view(start, part.files.file_size),
            Position(start),
            Position(upto),
            header_size=part.header_size,
        )
        messages += built.messages
        part.files.release_pages()
        if built.position == before:
            raise CorruptLogError(
                "log ends within a record", file=str(part.files.path(start)), offset=before - start
            )
        progress(built.position - begun, end - begun)
    return messages
