"""One replica's store directory among several: whatever can be read of it."""

from __future__ import annotations

import logging
import mmap
from bisect import bisect_right
from pathlib import Path

import numpy as np

from ledgermq.formats.arrays import UNIT, Units
from ledgermq.formats.records.message import HEAD_SIZE, Message, decode_message
from ledgermq.model.errors import CorruptLogError, LedgerError, StorageError
from ledgermq.pipeline.queue_ranges import Queue
from ledgermq.pipeline.source.store_source import StoreSource, queues_in
from ledgermq.store.files.mapped_files import VanishedError
from ledgermq.store.log_family import LogFile, LogFolder
from ledgermq.store.queues.batch_queue_reader import queue_reader, recount_of
from ledgermq.store.queues.batch_topics import batch_topics
from ledgermq.store.queues.queue_reader import QueueReader
from ledgermq.store.store_directory import log_in, names_in

logger = logging.getLogger(__name__)


class LooseLog:
    """The log files in ``root``, as of the last ``refresh``; what cannot be read is not there.

    ``LogReader`` reads a log that is whole, and refuses gaps and files of wrong sizes. Where other
    replicas have what one lacks, each of its files is worth something.
    """

    def __init__(self, root: Path, *, self_id: str | None) -> None:
        """Look for them; a folder that cannot be read has none, and a warning says so."""
        self._root = root
        self._self_id = self_id
        self._files: list[LogFile] = []
        self._starts: list[int] = []
        self._views: dict[Path, memoryview] = {}
        self._told: set[str] = set()
        self.refresh()

    @property
    def first(self) -> int | None:
        """Position of the first byte; None without a file."""
        return self._files[0].start if self._files else None

    @property
    def end(self) -> int | None:
        """Position behind the last byte; None without a file."""
        return self._files[-1].end if self._files else None

    @property
    def starts(self) -> list[int]:
        """First positions of the files, ascending."""
        return self._starts

    def refresh(self) -> None:
        """Look for files that came or went."""
        try:
            folders = log_in(self._root, names_in(self._root), self._self_id).folders
        except LedgerError as error:
            self._tell(str(self._root), error)
            folders = ()
        self._files = sorted(file for folder in folders for file in self._listed(folder))
        self._starts = [file.start for file in self._files]
        kept = {file.path for file in self._files}
        self._views = {path: view for path, view in self._views.items() if path in kept}

    def close(self) -> None:
        """Let go of the maps; views that are held stay valid."""
        self._views.clear()

    def file_at(self, position: int) -> LogFile | None:
        """The file that holds ``position``, None without one."""
        at = bisect_right(self._starts, position) - 1
        if at < 0 or position >= self._files[at].end:
            return None
        return self._files[at]

    def view(self, file: LogFile) -> memoryview | None:
        """All bytes of a file, valid as long as held; None if they cannot be had."""
        view = self._views.get(file.path)
        if view is not None and len(view) == file.size:
            return view
        try:
            with file.path.open("rb") as opened:
                map_ = mmap.mmap(opened.fileno(), file.size, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            # ValueError: the file has become shorter.
            self.tell(file.path, error)
            return None
        view = self._views[file.path] = memoryview(map_)
        return view

    def tell(self, path: Path, reason: object) -> None:
        """Say once that another replica is read in place of a file."""
        self._tell(str(path), reason)

    def _listed(self, folder: LogFolder) -> list[LogFile]:
        try:
            return folder.files()
        except StorageError as error:
            self._tell(str(folder.path), error)
            return []

    def _tell(self, place: str, reason: object) -> None:
        if place not in self._told:
            self._told.add(place)
            logger.warning("replica is replaced by another: %s: %s", place, reason)


class Replica:
    """The store in ``root``; a queue that cannot be read holds nothing."""

    def __init__(self, root: Path) -> None:
        """Look for its log files; nothing is raised, whatever is wrong with it."""
        self.root = root
        self.log = LooseLog(root, self_id=None)
        self._readers: dict[Queue, QueueReader | None] = {}
        self.of_batches = self._batch_topics()
        self._recount = recount_of(root, self._record_at) if self.of_batches else None
        self._dispatched_end = 0
        self._committed: tuple[object, int] | None = None

    @property
    def _queues(self) -> Path:
        return self.root / "consumequeue"

    @property
    def has_queues(self) -> bool:
        """Whether there is a ConsumeQueue."""
        return self._queues.is_dir()

    def refresh(self) -> None:
        """Look for what came and went since."""
        self.log.refresh()
        for queue, reader in list(self._readers.items()):
            if reader is None:
                # It may have been repaired.
                del self._readers[queue]
                continue
            try:
                reader.refresh()
            except LedgerError as error:
                self._give_up(queue, error)

    def close(self) -> None:
        """Let go of the maps."""
        self.log.close()
        for reader in self._readers.values():
            if reader is not None:
                reader.close()
        self._readers.clear()

    def opened(self) -> StoreSource:
        """The same directory as a store that is whole; the caller closes it.

        Raises:
            LedgerError: it is not.
        """
        return StoreSource(self.root)

    def whole_end(self) -> int:
        """Position behind the last whole record of its log; 0 if the log cannot be read."""
        try:
            source = self.opened()
        except LedgerError as error:
            logger.warning("replica is replaced by another: %s: %s", self.root, error)
            return 0
        end = int(source.log.end)
        source.close()
        return end

    def queues(self) -> list[Queue]:
        """The queues that it has."""
        try:
            return queues_in(self.root, self.of_batches)
        except LedgerError as error:
            self.log.tell(self._queues, error)
            return []

    def bounds(self, queue: Queue, log_first: int, log_end: int) -> tuple[int, int]:
        """Queue offsets of its units that point to ``[log_first, log_end)``; equal without one."""
        reader = self._reader(queue)
        if reader is None:
            return 0, 0
        try:
            first, end = reader.bounds(log_end, log_first=log_first)
            last = reader.units(end - 1, 1) if first < end else ()
        except VanishedError:
            raise
        except LedgerError as error:
            self._give_up(queue, error)
            return 0, 0
        for unit in last:
            unit_end = int(unit["position"]) + int(unit["size"])
            self._dispatched_end = max(self._dispatched_end, unit_end)
        return first, end

    def committed_end(self, position: int) -> int:
        """Position up to which it knows the entries from ``position`` on to be committed; 0 for not
        at all.

        It does so of what is in its queues; else its checkpoint tells, and of a plain log that was
        closed, its end.
        """
        if position < self._dispatched_end:
            return self._dispatched_end
        told = self._last_told()
        if self._committed is None or self._committed[0] != told:
            # To find it, the last file is read: not again for a replica that has not moved.
            self._committed = told, self._find_committed_end()
        return self._committed[1]

    def units(self, queue: Queue, first: int, count: int) -> Units:
        """Units within ``bounds``.

        Raises:
            VanishedError: a file was deleted meanwhile.
        """
        reader = self._reader(queue)
        return np.empty(0, UNIT) if reader is None else reader.units(first, count)

    def head(self, queue: Queue, offset: int) -> bytes | None:
        """Where a message of a queue lies, and the fixed part of it; None if it is not there."""
        unit = self.units(queue, offset, 1)
        if not len(unit):
            return None
        position = int(unit["position"][0])
        file = self.log.file_at(position)
        view = None if file is None else self.log.view(file)
        if file is None or view is None:
            return None
        at = position - file.start
        return unit.tobytes() + bytes(view[at : at + HEAD_SIZE])

    def _last_told(self) -> object:
        """Changes when the store may say something else of its committed end."""
        times: list[int] = []
        for path in (self.root / "abort", *self.root.glob("dledger-*/checkpoint")):
            try:
                times.append(path.stat().st_mtime_ns)
            except FileNotFoundError:
                times.append(0)
            except OSError as error:
                self.log.tell(path, error)
        return times, self.log.end

    def _find_committed_end(self) -> int:
        try:
            source = self.opened()
        except LedgerError as error:
            self.log.tell(self.root, error)
            return 0
        try:
            return source.walk_bounds()[-1]
        except LedgerError as error:
            self.log.tell(self.root, error)
            return 0
        finally:
            source.close()

    def _reader(self, queue: Queue) -> QueueReader | None:
        if queue not in self._readers:
            try:
                self._readers[queue] = queue_reader(
                    self._queues,
                    *queue,
                    file_size=None,
                    of_batches=self.of_batches,
                    fills=True,
                    recount=self._recount,
                )
            except LedgerError as error:
                self._give_up(queue, error)
        return self._readers[queue]

    def _give_up(self, queue: Queue, error: LedgerError) -> None:
        self._readers[queue] = None
        self.log.tell(self._queues / queue[0] / str(queue[1]), error)

    def _record_at(self, position: int, size: int) -> Message:
        """The record at a position of this replica, whose body need not be whole."""
        file = self.log.file_at(position)
        view = None if file is None else self.log.view(file)
        if file is None or view is None:
            raise CorruptLogError("no file of the log has it", position=position)
        return decode_message(view, position - file.start, check_crc=False, file=str(file.path))

    def _batch_topics(self) -> frozenset[str]:
        try:
            return batch_topics(self.root)
        except LedgerError as error:
            self.log.tell(self.root, error)
            return frozenset()
