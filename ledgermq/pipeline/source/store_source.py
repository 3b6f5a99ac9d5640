"""Source on a store directory, beside a node or without one. Read-only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from struct import Struct

import numpy as np

from ledgermq.formats.arrays import Units
from ledgermq.formats.batch_unit import BATCH_FOLDER, BATCH_TAGS
from ledgermq.formats.kernels.kernel import ScanStatus, scan_entries
from ledgermq.formats.records.message import MAGICS, Message
from ledgermq.model.errors import ConfigError, CorruptLogError, StorageError
from ledgermq.pipeline.columns.queued_records import QueuedRecords, each_message
from ledgermq.pipeline.columns.record_columns import RecordBlock
from ledgermq.pipeline.queue_ranges import MessageRange, Queue, Queued
from ledgermq.pipeline.source.data_loss import report_loss
from ledgermq.pipeline.source.file_source import BATCH_BYTES, BATCH_ROWS, FileSource, steady
from ledgermq.store.files.file_names import is_topic_name, topic_folders
from ledgermq.store.files.mapped_files import VanishedError
from ledgermq.store.log_reader import LogReader
from ledgermq.store.origin import refuse_hidden_queues
from ledgermq.store.queues import dispatch_checkpoint
from ledgermq.store.queues.batch_queue_reader import queue_reader, recount_of
from ledgermq.store.queues.batch_topics import batch_topics
from ledgermq.store.queues.derived_files import own_path
from ledgermq.store.queues.queue_reader import QueueReader
from ledgermq.store.store_directory import open_directory

_HEAD = Struct(">iI12xqq")
"""Head of a message: size, magic, queue offset, physical offset."""


class StoreSource(FileSource):
    """The store in ``root``; what it holds is as of the last ``refresh``."""

    def __init__(self, root: Path, *, self_id: str | None = None) -> None:
        """Open it; nothing in it is changed.

        Args:
            self_id: which DLedger log to take where there are several.

        Raises:
            ConfigError: no store directory, or one of RocketMQ 5 with other queues.
            CorruptLogError: files of wrong sizes or names.
            StorageError: something cannot be read.
        """
        refuse_hidden_queues(root)
        self.directory = open_directory(root, self_id=self_id)
        self.log = steady(lambda: LogReader(self.directory))
        self._of_batches = batch_topics(root)
        self._recount = recount_of(root, self._record_at) if self._of_batches else None
        self._readers: dict[Queue, QueueReader] = {}

    def refresh(self) -> None:
        steady(self.log.refresh)
        of_batches = batch_topics(self.directory.root)
        if of_batches != self._of_batches:
            # Their queues are elsewhere, with other units.
            self._of_batches = of_batches
            self._readers.clear()
            self._recount = recount_of(self.directory.root, self._record_at)
        for reader in self._readers.values():
            reader.refresh()

    def close(self) -> None:
        self.log.close()
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()

    @property
    def place(self) -> str:
        return str(self.directory.root)

    @property
    def has_queues(self) -> bool:
        return self.directory.consume_queues.is_dir()

    def queues(self) -> list[Queue]:
        return queues_in(self.directory.root, self._of_batches)

    def has_batches(self, topic: str) -> bool:
        return topic in self._of_batches

    def bounds(self, queues: Iterable[Queue]) -> dict[Queue, MessageRange]:
        return {queue: self._bounds(queue) for queue in queues}

    def units_of(self, queue: Queue, first: int, count: int) -> Units:
        return self._reader(queue).units(first, count)

    def queued(self) -> Queued | None:
        """Position up to which our dispatcher has made its queues durable; None without one."""
        saved = dispatch_checkpoint.read(own_path(self.directory.root))
        return None if saved is None else Queued(str(self.directory.root), saved.position)

    def store_time_at(self, position: int, size: int) -> int:
        return self._record_at(position, size).store_timestamp

    def _record_at(self, position: int, size: int) -> Message:
        return self.log.message_at(position, size, check_crc=False)

    def read(
        self, ranges: Sequence[MessageRange], *, fail_on_data_loss: bool
    ) -> Iterator[QueuedRecords]:
        load = partial(self._load, ranges, fail=fail_on_data_loss)
        positions, sizes, numbers, _ = steady(load, again=self.refresh)
        at = 0
        while at < len(positions):
            try:
                span = self.log.span(int(positions[at]))
            except (VanishedError, CorruptLogError):
                before = self.log.first
                self.refresh()
                if self.log.first <= positions[at] or self.log.first == before:
                    raise
                gone = int(np.searchsorted(positions, self.log.first))
                report_loss(
                    fail=fail_on_data_loss,
                    directory=str(self.directory.root),
                    position=int(positions[at]),
                    oldest=int(self.log.first),
                    missing=gone - at,
                )
                at = gone
                continue
            base = int(positions[at])
            limit = min(base + len(span.view), base + BATCH_BYTES)
            count = max(1, int(np.searchsorted(positions + sizes, limit, "right")) - at)
            end = at + min(count, BATCH_ROWS)
            # The entry's header stands before the first record.
            start = base - span.header_size
            whole = self.log.span(start).view if span.header_size else span.view
            reach = int(positions[end - 1] + sizes[end - 1]) - start
            records = RecordBlock(
                view=whole[:reach],
                base=start,
                starts=positions[at:end] - start,
                sizes=sizes[at:end],
                header_size=span.header_size,
                file=str(span.path),
            )
            yield from each_message(QueuedRecords(records, ranges, numbers[at:end]))
            at = end

    def walk(self, first: int, end: int) -> Iterator[RecordBlock]:
        starts, sizes = np.empty(BATCH_ROWS, np.int64), np.empty(BATCH_ROWS, np.int64)
        position = first
        while position < end:
            span = self.log.span(position)
            upto = min(len(span.view), end - position, BATCH_BYTES)
            count, reached, number = scan_entries(
                span.view, 0, upto, span.header_size, position, starts.data, sizes.data
            )
            status = ScanStatus(number)
            file = str(span.path)
            if count:
                yield RecordBlock(
                    view=span.view[:reached],
                    base=position,
                    starts=starts[:count].copy(),
                    sizes=sizes[:count].copy(),
                    header_size=span.header_size,
                    file=file,
                )
            if status.corrupt or reached == 0:
                raise CorruptLogError(
                    "record is not whole",
                    file=file,
                    offset=position + reached,
                    field=status.name.lower().removeprefix("bad_"),
                )
            position += reached

    def walk_bounds(self) -> list[int]:
        if self.directory.aborted and self.directory.dledger is None:
            raise ConfigError(
                "plain log of an open store without queues: nothing says how far it is committed",
                directory=str(self.directory.root),
            )
        end = int(self.log.committed_end())
        starts = [start for part in self.log.parts for start in part.files.starts]
        begins = [max(start, int(self.log.first)) for start in sorted(starts)]
        return [*(begin for begin in begins if begin < end), end]

    def _bounds(self, queue: Queue) -> MessageRange:
        reader = self._reader(queue)
        log_end = max(part.files.end for part in self.log.parts)
        first, end = reader.bounds(log_end, log_first=self.log.first)
        if end > first and not self._is_whole(reader, queue, end - 1):
            # A copy in use, or a crash: units of messages that the log does not have.
            first, end = reader.bounds(self.log.end, log_first=self.log.first)
        return MessageRange(*queue, first, end)

    def _is_whole(self, reader: QueueReader, queue: Queue, offset: int) -> bool:
        """Whether the log has the message of a unit."""
        unit = reader.units(offset, 1)
        if not len(unit):
            return False
        if self.has_batches(queue[0]):
            offset -= int(unit["tags"][0]) - BATCH_TAGS
        position, size = int(unit["position"][0]), int(unit["size"][0])
        try:
            view = self.log.span(position).view
        except CorruptLogError:
            return False
        return points_to(view, queue_offset=offset, position=position, size=size)

    def _reader(self, queue: Queue) -> QueueReader:
        reader = self._readers.get(queue)
        if reader is None:
            reader = queue_reader(
                self.directory.consume_queues,
                *queue,
                file_size=self.directory.queue_file_size,
                of_batches=self._of_batches,
                fills=True,
                recount=self._recount,
            )
            self._readers[queue] = reader
        return reader


def queues_in(root: Path, of_batches: frozenset[str]) -> list[Queue]:
    """The topics' queues that have a folder in the store ``root``. Light queues have messages of
    topics once more.

    Args:
        of_batches: topics whose queues are of batches.

    Raises:
        StorageError: the folders cannot be read.
        CorruptLogError: one is not named as a queue is.
    """
    found: list[Queue] = []
    try:
        for folder in ("consumequeue", BATCH_FOLDER):
            for topic, names in topic_folders(root / folder):
                is_of_batches = topic.name in of_batches
                if is_topic_name(topic.name) and is_of_batches is (folder == BATCH_FOLDER):
                    found += [(topic.name, int(name)) for name in names]
    except FileNotFoundError:
        # A topic was deleted while we looked.
        return queues_in(root, of_batches)
    except OSError as error:
        raise StorageError.of("queues not read", error, directory=root) from error
    return sorted(found)


def points_to(view: memoryview, *, queue_offset: int, position: int, size: int) -> bool:
    """Whether ``view`` begins with the message that a unit says is there, as far as that is."""
    if len(view) < max(size, _HEAD.size):
        return False
    told, magic, *place = _HEAD.unpack_from(view)
    return told == size and magic in MAGICS and place == [queue_offset, position]
