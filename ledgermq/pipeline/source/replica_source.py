"""Source on store directories of several replicas, read as one store. Read-only.

Replicas have the same entries at the same positions, so what one lacks another one has:

- a queue holds what any of them holds of it, from the smallest offset to the largest; its units
  come from the first replica in the order of the directories that has them;
- a file of the log comes from the first replica that has it. Each record is compared with its unit
  and its CRCs before it is given away; where one is not whole, the next replica's copy is taken,
  and only for what is damaged.

A message that all replicas have, none of them whole, is given as a single directory gives it: an
error, or a row whose ``crcOk`` is false when nothing but its CRC is wrong.
"""

from __future__ import annotations

import logging
import mmap
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ledgermq.formats.arrays import UNIT, Units
from ledgermq.formats.batch_unit import BATCH_TAGS
from ledgermq.formats.head_field import HeadField
from ledgermq.formats.kernels.crc32 import crc32
from ledgermq.formats.kernels.kernel import whole_records
from ledgermq.formats.records.message import HEAD_SIZE, Message, decode_message
from ledgermq.model.errors import ConfigError, CorruptLogError, LedgerError, StorageError
from ledgermq.pipeline.columns.arrow_slices import Integers
from ledgermq.pipeline.columns.queued_records import QueuedRecords, each_message
from ledgermq.pipeline.columns.record_columns import RecordBlock, heads_of
from ledgermq.pipeline.queue_ranges import MessageRange, Queue
from ledgermq.pipeline.source.data_loss import report_loss
from ledgermq.pipeline.source.file_source import BATCH_BYTES, BATCH_ROWS, FileSource, Loaded, steady
from ledgermq.pipeline.source.store_source import (
    StoreSource,
    points_to,
    queues_in,
)
from ledgermq.store.files.mapped_files import VanishedError
from ledgermq.store.log_family import LogFile, LogFolder
from ledgermq.store.queues.batch_queue_reader import queue_reader, recount_of
from ledgermq.store.queues.batch_topics import batch_topics
from ledgermq.store.queues.queue_reader import QueueReader
from ledgermq.store.store_directory import log_in, names_in


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


logger = logging.getLogger(__name__)

_QUEUES_COMPARED = 64
"""Queues of which some messages are compared, to see that directories are of one group."""


_Held = tuple[Replica, int, int]
"""A replica, and the queue offsets of a queue that it has, half-open."""


class _Copy(NamedTuple):
    """A replica's file of the log, and up to where it counts."""

    replica: Replica
    file: LogFile
    view: memoryview
    end: int


class ReplicaSource(FileSource):
    """The stores in ``roots``, in the order in which they are preferred."""

    def __init__(self, roots: Sequence[Path]) -> None:
        """Look at them; one that cannot be used is left out, and a warning says so.

        Raises:
            ConfigError: none of them is a store directory.
        """
        self._replicas = [Replica(root) for root in roots]
        self._held: dict[Queue, list[_Held]] = {}
        self._whole_end: int | None = None
        if not any(replica.log.starts for replica in self._replicas):
            # Stores that are new have no log; else the error of the first one says what is wrong.
            self._replicas[0].opened().close()

    def refresh(self) -> None:
        self._whole_end = None
        for replica in self._replicas:
            replica.refresh()

    def close(self) -> None:
        for replica in self._replicas:
            replica.close()
        self._held.clear()

    @property
    def place(self) -> str:
        """The directories."""
        return ",".join(str(replica.root) for replica in self._replicas)

    @property
    def has_queues(self) -> bool:
        """Whether a replica has a ConsumeQueue."""
        return any(replica.has_queues for replica in self._replicas)

    def queues(self) -> list[Queue]:
        """All queues that any replica has."""
        return sorted(set(chain.from_iterable(replica.queues() for replica in self._replicas)))

    def has_batches(self, topic: str) -> bool:
        return any(topic in replica.of_batches for replica in self._replicas)

    def bounds(self, queues: Iterable[Queue]) -> dict[Queue, MessageRange]:
        """What the replicas hold together of each of ``queues``."""
        first, end = self._log_bounds()
        return {queue: self._bounds(queue, first, end) for queue in queues}

    def units_of(self, queue: Queue, first: int, count: int) -> Units:
        """The units of a queue, each from the first replica that has it."""
        held, end = self._held.get(queue, []), first + count
        parts: list[Units] = []
        while first < end:
            found = next((one for one in held if one[1] <= first < one[2]), None)
            if found is None:
                break
            part = found[0].units(queue, first, min(end, found[2]) - first)
            if not len(part):
                break
            parts.append(part)
            first += len(part)
        if len(parts) == 1:
            return parts[0]
        return np.concatenate(parts) if parts else np.empty(0, UNIT)

    def store_time_at(self, position: int, size: int) -> int:
        for replica, file, view, end in self._copies_at(position):
            at = position - file.start
            if position + size > end:
                continue
            try:
                message = decode_message(view, at, check_crc=False, file=str(file.path))
            except CorruptLogError as error:
                replica.log.tell(file.path, error)
                continue
            if message.physical_offset == position:
                return message.store_timestamp
        raise CorruptLogError("no replica has the message", position=position, size=size)

    def check_same_group(self) -> None:
        """Refuse directories that are not replicas of one group, by some messages of some queues.

        Raises:
            ConfigError: two of them have different messages wherever they were compared.
        """
        queues = self.queues()
        self.bounds(queues)
        agree: dict[tuple[Path, Path], bool] = {}
        shared = [queue for queue in queues if len(self._held[queue]) > 1]
        for queue in shared[:_QUEUES_COMPARED]:
            for one, other in pairwise(self._held[queue]):
                is_same = _same_messages(queue, one, other)
                if is_same is not None:
                    pair = one[0].root, other[0].root
                    agree[pair] = agree.get(pair, False) or is_same
        for pair, is_same in agree.items():
            if not is_same:
                raise ConfigError(
                    "directories are not replicas of one group: their messages differ",
                    option="path",
                    directories=[str(root) for root in pair],
                )

    def read(
        self, ranges: Sequence[MessageRange], *, fail_on_data_loss: bool
    ) -> Iterator[QueuedRecords]:
        load = partial(self._load, ranges, fail=fail_on_data_loss)
        loaded = steady(load, again=self.refresh)
        at, looked_at = 0, -1
        while at < len(loaded.positions):
            found = self._whole(loaded, at) or self._damaged(ranges, loaded, at)
            if found is not None:
                count = len(found.starts)
                numbers = loaded.numbers[at : at + count]
                yield from each_message(QueuedRecords(found, ranges, numbers))
                at += count
            elif looked_at != at:
                # Files may have come and gone since they were looked for.
                self.refresh()
                looked_at = at
            else:
                gone = self._next_held(loaded, at)
                report_loss(
                    fail=fail_on_data_loss,
                    directories=self.place,
                    position=int(loaded.positions[at]),
                    missing=gone - at,
                )
                at = gone

    def walk(self, first: int, end: int) -> Iterator[RecordBlock]:
        """The records of a stretch, each from the first replica that has it whole."""
        failures: list[LedgerError] = []
        for replica, source in self._each(failures):
            try:
                upto = min(end, source.walk_bounds()[-1])
                for records in source.walk(first, upto) if first < upto else ():
                    yield records
                    first = int(records.starts[-1] + records.sizes[-1]) + (records.base or 0)
            except (ConfigError, CorruptLogError, StorageError) as error:
                logger.warning("replica is replaced by another: %s: %s", replica.root, error)
                failures.append(error)
            else:
                # Behind the last record of a file there may be a blank.
                first = max(first, upto)
            if first >= end:
                return
        raise failures[0]

    def walk_bounds(self) -> list[int]:
        """Where files begin, of the replica whose log is committed furthest."""
        found: list[list[int]] = []
        failures: list[LedgerError] = []
        for _, source in self._each(failures):
            try:
                found.append(source.walk_bounds())
            except LedgerError as error:
                failures.append(error)
        if not found:
            raise failures[0]
        begins = {begin for bounds in found for begin in bounds[:-1]}
        end = max(bounds[-1] for bounds in found)
        return [*sorted(begin for begin in begins if begin < end), end]

    def _each(self, failures: list[LedgerError]) -> Iterator[tuple[Replica, StoreSource]]:
        """Each replica with its store, open for its turn of a loop; why others cannot be opened."""
        for replica in self._replicas:
            try:
                source = replica.opened()
            except LedgerError as error:
                failures.append(error)
                continue
            try:
                yield replica, source
            finally:
                source.close()

    def _log_bounds(self) -> tuple[int, int]:
        starts = [replica.log.first for replica in self._replicas if replica.log.first is not None]
        ends = [replica.log.end for replica in self._replicas if replica.log.end is not None]
        return min(starts, default=0), max(ends, default=0)

    def _bounds(self, queue: Queue, log_first: int, log_end: int) -> MessageRange:
        held: list[_Held] = []
        for replica in self._replicas:
            first, end = replica.bounds(queue, log_first, log_end)
            if first < end and not self._has(replica, queue, end - 1):
                # A copy in use, or a crash: units of messages that no replica has.
                first, end = replica.bounds(queue, log_first, self._end())
            if first < end:
                held.append((replica, first, end))
        self._held[queue] = held
        first = end = max((high for _, _, high in held), default=0)
        for _, low, high in sorted(held, key=lambda one: -one[2]):
            # What lies before messages that no replica has counts as deleted, like them.
            first = min(first, low) if high >= first else first
        return MessageRange(*queue, first, end)

    def _end(self) -> int:
        """Position behind the last whole record that any replica has."""
        if self._whole_end is None:
            self._whole_end = max(replica.whole_end() for replica in self._replicas)
        return self._whole_end

    def _has(self, replica: Replica, queue: Queue, offset: int) -> bool:
        """Whether some replica has the message of a unit."""
        unit = replica.units(queue, offset, 1)
        if not len(unit):
            return False
        position, size = int(unit["position"][0]), int(unit["size"][0])
        if self.has_batches(queue[0]):
            offset -= int(unit["tags"][0]) - BATCH_TAGS
        return any(
            points_to(
                view[position - file.start :], queue_offset=offset, position=position, size=size
            )
            for _, file, view, _ in self._copies_at(position)
        )

    def _copies_at(self, position: int) -> Iterator[_Copy]:
        """Where a committed message may be; what is behind a replica's own commit may be another's.

        A leader that was deposed has entries, whole ones, that the group has never committed.
        """
        for replica in self._replicas:
            file = replica.log.file_at(position)
            if file is None:
                continue
            end = min(file.end, replica.committed_end(position))
            view = replica.log.view(file) if position < end else None
            if view is not None:
                yield _Copy(replica, file, view, end)

    def _whole(self, loaded: Loaded, at: int) -> RecordBlock | None:
        """The messages from number ``at`` on that the first replica with a whole one has whole."""
        for copy in self._copies_at(int(loaded.positions[at])):
            records = _records(loaded, at, copy)
            count = _count_whole(records, loaded.offsets[at : at + len(records.starts)])
            if count:
                return _head_of(records, count)
            reason = f"message not whole at position {loaded.positions[at]}"
            copy.replica.log.tell(copy.file.path, reason)
        return None

    def _damaged(
        self, ranges: Sequence[MessageRange], loaded: Loaded, at: int
    ) -> RecordBlock | None:
        """One message that no replica has whole where the first one's unit says it is.

        It may be the unit that is wrong: then another replica's unit leads to the message. Else
        the message is as damaged as it is; what reads it says so.
        """
        range_, offset = ranges[int(loaded.numbers[at])], int(loaded.offsets[at])
        held = self._held[range_.queue]
        for unit in (
            replica.units(range_.queue, offset, 1)
            for replica, low, high in held
            if low <= offset < high
        ):
            if not len(unit) or unit["position"][0] == loaded.positions[at]:
                continue
            one = Loaded(
                unit["position"].astype(np.int64),
                unit["size"].astype(np.int64),
                loaded.numbers[at : at + 1],
                loaded.offsets[at : at + 1],
            )
            found = self._whole(one, 0)
            if found is not None:
                return found
        for copy in self._copies_at(int(loaded.positions[at])):
            if loaded.positions[at] + loaded.sizes[at] <= copy.end:
                return _head_of(_records(loaded, at, copy), 1)
        return None

    def _next_held(self, loaded: Loaded, at: int) -> int:
        """Number of the first message behind ``at`` whose file some replica has."""
        starts = np.array(
            sorted({start for replica in self._replicas for start in replica.log.starts})
        )
        later = starts[starts > loaded.positions[at]]
        if not len(later):
            return len(loaded.positions)
        return max(at + 1, int(np.searchsorted(loaded.positions, later[0])))


def _same_messages(queue: Queue, one: _Held, other: _Held) -> bool | None:
    """Whether two replicas have any of three messages in common; None if none can be compared."""
    low, high = max(one[1], other[1]), min(one[2], other[2])
    if low >= high:
        return None
    pairs = [
        (one[0].head(queue, offset), other[0].head(queue, offset))
        for offset in {low, (low + high) // 2, high - 1}
    ]
    compared = [left == right for left, right in pairs if left is not None and right is not None]
    return any(compared) if compared else None


def _records(loaded: Loaded, at: int, copy: _Copy) -> RecordBlock:
    """The messages from number ``at`` on that one batch holds, in one file."""
    file = copy.file
    base = int(loaded.positions[at])
    limit = min(copy.end, base + BATCH_BYTES)
    rows = slice(at, at + BATCH_ROWS)
    ends = loaded.positions[rows] + loaded.sizes[rows]
    count = max(1, int(np.searchsorted(ends, limit, "right")))
    rows = slice(at, at + count)
    start = max(base - file.header_size, file.start)
    reach = min(int(ends[count - 1]), file.end)
    return RecordBlock(
        view=copy.view[start - file.start : reach - file.start],
        base=start,
        starts=loaded.positions[rows] - start,
        sizes=loaded.sizes[rows],
        header_size=file.header_size,
        file=str(file.path),
    )


def _count_whole(records: RecordBlock, offsets: Integers) -> int:
    """How many records, from the first on, are the messages that their units say, bit for bit."""
    heads, count = heads_of(records)
    is_right = heads[HeadField.QUEUE_OFFSET, :count] == offsets[:count]
    if not is_right.all():
        count = int(np.argmin(is_right))
    if not count:
        return 0
    return whole_records(
        records.view,
        np.ascontiguousarray(records.starts[:count]).data,
        np.ascontiguousarray(records.sizes[:count]).data,
        records.header_size,
        crc32,
    )


def _head_of(records: RecordBlock, count: int) -> RecordBlock:
    """The first ``count`` of some records."""
    starts, sizes = records.starts[:count], records.sizes[:count]
    return RecordBlock(
        view=records.view[: int(starts[-1] + sizes[-1])],
        base=records.base,
        starts=starts,
        sizes=sizes,
        header_size=records.header_size,
        file=records.file,
    )
