"""Committed view of the store: queues and records up to the cursor ``dispatched``."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ledgermq.broker.reading.old_pages import HOT_TAIL_SIZE, OldPages, OldReadPace
from ledgermq.broker.reading.property_scan import Poison, Wanted, wanted_messages
from ledgermq.formats.arrays import Units
from ledgermq.formats.batch_unit import BATCH_FOLDER
from ledgermq.formats.queue_unit import UNIT_SIZE
from ledgermq.formats.records.inner_batch import PACKED_MAX, is_packed, messages_in, record_of_one
from ledgermq.formats.records.message import Message, decode_message
from ledgermq.ipc.cursor_page import CursorPage, PublishedRole
from ledgermq.members.log_trouble import KnownMembers
from ledgermq.model.config.settings import LogKind, ReadsSection, Settings
from ledgermq.model.errors import DamagedLogError, NotLeaderError, StorageError
from ledgermq.model.names.queue_name import QueueName
from ledgermq.model.names.stored_name import is_file_name
from ledgermq.rules.messages.pull_rules import ReadableRange, TransferLimits, pending_messages_max
from ledgermq.rules.sql.sql_filter import SqlFilter
from ledgermq.store.files.file_names import is_topic_name
from ledgermq.store.files.mapped_files import VanishedError
from ledgermq.store.files.store_paths import StorePaths
from ledgermq.store.log_view import LogView
from ledgermq.store.queues.batch_queue_reader import queue_reader
from ledgermq.store.queues.batch_topics import batch_topics
from ledgermq.store.queues.queue_reader import QueueReader
from ledgermq.store.record_parts import GATHERED_SIZE_MAX, RecordParts, take_records

READERS_MAX = 8_192
"""Queues kept open; each has a map or more, of which the kernel allows a process 65,530."""

STORING_NS = 1_000_000_000
"""Messages are being stored when the last ones came no longer ago."""

PAGES_RELEASED_AFTER = 64 * 1024 * 1024
"""Pages of the log's maps count as memory of this process until they are given back."""

Integers = npt.NDArray[np.int64]


def transfer_limits(reads: ReadsSection) -> TransferLimits:
    """What one answer may hold on this machine, whose memory is part of the rule."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return TransferLimits(
        reads.max_transfer_bytes_on_message_in_memory,
        reads.max_transfer_count_on_message_in_memory,
        reads.max_transfer_bytes_on_message_in_disk,
        reads.max_transfer_count_on_message_in_disk,
        memory * reads.access_message_in_memory_max_ratio // 100,
    )


class BeginsElsewhere(Protocol):
    """Knows where queues begin whose first messages the log has no more, and somebody else has."""

    def note_deleted(self, log_first: int) -> None:
        """The log begins at this position."""
        ...

    def begin_of(self, queue: QueueName, first: int, log_first: int) -> int:
        """First offset of a queue, of which the log, that begins at ``log_first``, has those from
        ``first`` on.

        Raises:
            ColdAwayError: that is not known now.
        """
        ...

    def first_since(self, queue: QueueName, time_ms: int, first: int) -> int | None:
        """Offset of the first message of a time or later, of those before ``first``; None: there is
        none.

        Raises:
            ColdAwayError: that is not known now.
        """
        ...

    def known_begin_of(self, queue: QueueName, first: int) -> int:
        """The same as ``begin_of``, as far as it is known."""
        ...


class ReadableStore:
    """The queues in use and the log, as far as both are dispatched.

    Invariant: nothing is shown at or beyond the dispatched position that ``look`` read last.
    """

    def __init__(
        self,
        page: CursorPage,
        settings: Settings,
        report_damage: Callable[[int], None],
        *,
        first_offset: Callable[[QueueName], int] = lambda _queue: 0,
        elsewhere: BeginsElsewhere | None = None,
    ) -> None:
        """Nothing is opened yet.

        Args:
            report_damage: called with the position of a record that is damaged, as often as it is
                asked for.
            first_offset: of what belongs to the topic of today: what is before is not shown.
            elsewhere: who has what the log has no more; None: nobody.
        """
        self._first_offset = first_offset
        self._elsewhere = elsewhere
        self._page = page
        self._report_damage = report_damage
        self._root = StorePaths.of(settings).consume_queues
        size = settings.store.mapped_file_size_consume_queue
        self._file_size = None if size is None else -(-size // UNIT_SIZE) * UNIT_SIZE
        self.of_batches = batch_topics(self._root.parent)
        self._readers: dict[QueueName, QueueReader] = {}
        # While the cursor stands: where there are no files yet, each look lists a folder.
        self._seen: dict[QueueName, tuple[int, int, int]] = {}
        self.log = LogView.of(settings)
        self.limits = transfer_limits(settings.reads)
        self._self_id = settings.node.self_id
        self._has_terms = settings.store.log is LogKind.DLEDGER
        self._old_pages = OldPages(self.log, settings.reads.old_read_cache_bytes)
        self._pace = OldReadPace(settings.reads.old_read_bytes_per_s)
        self._moved_ns = 0
        self._is_cold = False
        self._is_ready = False
        self._peers = KnownMembers(settings)
        self._has_caught_up = False
        self._until = -1
        self._position = 0
        self._generation = page.read_dispatched().log_generation
        self._begin = (page.read_log_begin().position, page.read_queue_begin().position)
        self._shown_size = 0
        self._touched = False

    @property
    def position(self) -> int:
        """Position up to which the log is in the queues that are shown."""
        return self._position

    def look(self) -> bool:
        """Read the cursor; true when it has moved since the last call."""
        page = self._page
        if not self._is_ready:
            # An empty log has nothing to dispatch, and its dispatcher publishes nothing.
            is_empty = page.has_written() and page.read_written().position == 0
            self._is_ready = page.has_dispatched() or is_empty
        begin = (page.read_log_begin().position, page.read_queue_begin().position)
        if begin != self._begin:
            # Files are gone: maps of them would keep their blocks.
            self._begin = begin
            self._seen.clear()
            self.log.refresh()
            for reader in self._readers.values():
                reader.refresh()
            if self._elsewhere is not None:
                self._elsewhere.note_deleted(self.log.first_position)
        dispatched = page.read_dispatched()
        if dispatched.log_generation != self._generation:
            self._generation = dispatched.log_generation
            self._readers.clear()
            self.log.drop()
        elif dispatched.position == self._position:
            return False
        self._position = dispatched.position
        self._seen.clear()
        self._moved_ns = time.monotonic_ns()
        return True

    def has_all_committed(self) -> bool:
        """Whether everything is shown that was ever committed before: there is nothing behind it
        but what nobody has seen yet. Known once an entry of the present term is committed.
        """
        committed = self._page.read_committed()
        is_known = committed.term == self._page.read_grant().term or not self._has_terms
        return is_known and self._position >= committed.position

    def leads_alone(self, now_ns: int) -> bool:
        """Whether no other member can have been elected by now: a comparison, nobody is asked."""
        return now_ns < self._page.read_alone_until_ns()

    def may_be_behind_a_leader(self, now_ns: int) -> bool:
        """Whether this node takes itself for the leader, and another one may lead by now."""
        leads = self._page.read_grant().role is PublishedRole.LEADER
        return self._has_terms and leads and not self.leads_alone(now_ns)

    def as_of(self) -> dict[str, object]:
        """What is told here by a node that does not surely lead is as of: its role and term, whom
        it takes for the leader, and the position up to which it has applied the log.
        """
        grant = self._page.read_grant()
        role = grant.role.name.lower()
        told = {"role": role, "term": grant.term, "leader": grant.leader}
        return {"as_of": {**told, "position": self._position}}

    def has_caught_up(self) -> bool:
        """Whether everything is shown that was committed when this process began.

        A node that is alone has committed what it has written. A member knows it once an entry of
        the present term is committed.
        """
        page = self._page
        if not self._has_caught_up and page.has_committed():
            if self._peers.are_there(page.read_grant().leader):
                self._has_caught_up = self.has_all_committed()
            else:
                if self._until < 0:
                    self._until = page.read_written_position()
                self._has_caught_up = self._position >= self._until
        return self._has_caught_up

    @property
    def is_ready(self) -> bool:
        """Whether the dispatcher has told how far it is, as far as ``look`` knows."""
        return self._is_ready

    def has_moved(self) -> bool:
        """Whether ``look`` would find something new; changes nothing."""
        dispatched = self._page.read_dispatched()
        return (dispatched.position, dispatched.log_generation) != (
            self._position,
            self._generation,
        )

    def bounds(self, queue: QueueName) -> ReadableRange:
        """Which queue offsets can be read; the topic's name must have been checked.

        Raises:
            NotLeaderError: the dispatcher has not told yet how far it is.
            CorruptLogError: the queue's files are not what a queue has.
        """
        if not self._is_ready:
            raise NotLeaderError("node is starting: it does not know yet what is dispatched")
        try:
            first, end = self._bounds(queue)
        except VanishedError:
            # A file was deleted since it was listed.
            self.log.refresh()
            self._reader(queue).refresh()
            first, end = self._bounds(queue)
        written = self._page.read_written_position()
        return ReadableRange(first, end, pending_messages_max(self._position, written))

    def told_bounds(self, queue: QueueName, *, surely: bool = False) -> ReadableRange:
        """Which queue offsets may be asked for, by pulls that others than the log may answer.

        Args:
            surely: somebody begins where this says: without it, what is not known yet is told as if
                there were nothing but the log.

        Raises:
            NotLeaderError, CorruptLogError: as ``bounds``.
            ColdAwayError: ``surely``, and where it begins is not known now.
        """
        bounds = self.bounds(queue)
        if self._elsewhere is None:
            return bounds
        return bounds._replace(first=self.told_begin(queue, bounds.first, surely=surely))

    def told_begin(self, queue: QueueName, first: int, *, surely: bool = False) -> int:
        """Where ``told_bounds`` has a queue begin whose first offset in the log is ``first``.

        Raises:
            ColdAwayError: as there.
        """
        floor = self._first_offset(queue)
        if self._elsewhere is None or floor >= first:
            return first
        if surely:
            begin = self._elsewhere.begin_of(queue, first, self.log.first_position)
        else:
            begin = self._elsewhere.known_begin_of(queue, first)
        return max(begin, floor)

    def floor(self, queue: QueueName) -> int:
        """First offset of a queue that belongs to the topic of today, wherever its messages are."""
        return self._first_offset(queue)

    def end(self, queue: QueueName) -> int | None:
        """End of a queue whose name nobody has checked; None: it can be no queue's.

        Raises:
            NotLeaderError, CorruptLogError: as ``bounds``.
        """
        return self.bounds(queue).end if is_file_name(queue.topic) else None

    def _bounds(self, queue: QueueName) -> tuple[int, int]:
        log_first = self.log.first_position
        seen = self._seen.get(queue)
        if seen is not None and seen[0] == log_first:
            _, first, end = seen
        else:
            first, end = self._reader(queue).bounds(self._position, log_first=log_first)
            if len(self._seen) >= READERS_MAX:
                self._seen.clear()
            self._seen[queue] = log_first, first, end
        return max(first, min(self._first_offset(queue), end)), end

    def is_pending(self, position: int) -> bool:
        """Whether ``position`` is written, and may be shown soon."""
        return self._position <= position < self._page.read_written().position

    @property
    def disk_below(self) -> int:
        """Position below which messages count as on disk, as RocketMQ reckons it."""
        return self._position - self.limits.memory_share

    def is_young(self, queue: QueueName) -> bool:
        """Whether a queue has all messages that it ever had, and the first one still in memory.

        RocketMQ lets a group that is new to such a queue begin with the first message, whatever it
        wants: nothing that was sent before it came for the first time is passed over.

        Raises:
            NotLeaderError, CorruptLogError: as ``bounds``.
        """
        bounds = self.bounds(queue)
        if bounds.first > 0:
            return False
        units = self.units(queue, 0, 1) if bounds.end else None
        if units is None or not len(units):
            return True
        return int(units["position"][0]) >= self.disk_below

    def suggested(self, looked_at: int) -> str:
        """Id of the member to ask for what follows ``looked_at``; empty = the leader.

        Who reads what is on disk is sent to a follower that holds all that is committed, and a
        follower keeps such a reader for itself.
        """
        if looked_at >= self.disk_below:
            return ""
        grant = self._page.read_grant()
        if grant.role is PublishedRole.LEADER:
            return self._page.read_reader()
        return self._self_id if grant.leader else ""

    def units(self, queue: QueueName, offset: int, count: int) -> Units | None:
        """Units of ``queue`` from ``offset`` on, within what ``bounds`` says.

        ``None`` when their file was deleted since.

        Raises:
            NotLeaderError, CorruptLogError: as ``bounds``.
        """
        if queue not in self._seen:
            # A reader knows no unit before its bounds are asked for: what is there looked deleted.
            self.bounds(queue)
        reader = self._reader(queue)
        try:
            return reader.units(offset, count)
        except VanishedError:
            self._seen.pop(queue, None)
            reader.refresh()
            self.log.refresh()
            return None

    def next_file(self, queue: QueueName, offset: int) -> int:
        """First queue offset of the file behind the one of ``offset``."""
        return self._reader(queue).next_file(offset)

    def old_read_wait_ms(self, first: int, end: int) -> int:
        """How long to wait before positions ``first`` to ``end`` are read; 0 for not at all.

        What is not in memory is being fetched from now on, and does not stay in the page cache. It
        is read in measure while others store messages, who need disk and processors, too.
        """
        self._is_cold = first < self._position - HOT_TAIL_SIZE and self._old_pages.touch(first, end)
        now_ns = time.monotonic_ns()
        if not self._is_cold or now_ns - self._moved_ns > STORING_NS:
            return 0
        return self._pace.wait_ms(now_ns)

    def records(
        self, positions: Integers, sizes: Integers, *, with_headers: bool = False
    ) -> RecordParts | None:
        """The records from the first one on that are whole and fit into one part
        (``take_records``), once ``old_read_wait_ms`` was asked about them.
        """
        try:
            parts = take_records(self.log, positions, sizes, with_headers=with_headers)
        except DamagedLogError:
            self._report_damage(int(positions[0]))
            raise
        if parts is None:
            return None
        if self._is_cold:
            self._pace.spend(len(parts.payload), time.monotonic_ns())
        self._note_touched(len(parts.payload))
        return parts

    def batch_records(
        self, offset: int, units: Units, rows: Sequence[int], *, size_max: int = GATHERED_SIZE_MAX
    ) -> RecordParts | None:
        """The messages of some units of a topic in ``of_batches``, each as a record of its own.

        ``None`` when the first one was removed.

        Args:
            offset: that of the first unit.
            rows: ascending; those that are before the log must not be among them.
            size_max: what comes behind so many bytes is left out.

        Raises:
            DamagedLogError: the first one is not what was written.
        """
        made: list[bytes | bytearray] = []
        size, packed, last, whole = 0, 0, -1, memoryview(b"")
        messages: list[Message] = []
        for row in rows:
            position = int(units["position"][row])
            if position != last:
                found = self._whole_record(position, int(units["size"][row]), is_first=not made)
                if found is None:
                    break
                whole, last = found, position
                message = decode_message(whole)
                packed += is_packed(message.sys_flag)
                if made and packed > PACKED_MAX:
                    break
                messages = messages_in(message)
            record = record_of_one(messages, whole, offset + row)
            if made and size + len(record) > size_max:
                break
            made.append(record)
            size += len(record)
        if not made:
            return None
        sizes = np.array([len(record) for record in made], np.uint32)
        starts = (np.cumsum(sizes) - sizes).astype(np.uint32)
        return RecordParts(b"".join(made), starts, sizes, size)

    def _whole_record(self, position: int, size: int, *, is_first: bool) -> memoryview | None:
        """A record of several messages; ``None`` where it was removed, or is to be asked for
        again.
        """
        try:
            parts = self.records(np.array([position]), np.array([size]))
        except DamagedLogError:
            if is_first:
                raise
            return None
        if parts is None:
            return None
        start = int(parts.starts[0])
        return memoryview(parts.payload)[start : start + size]

    def wanted(
        self,
        positions: Integers,
        sizes: Integers,
        sql: SqlFilter,
        *,
        count_max: int,
        size_max: int,
        poison: Poison,
        numbers: Integers | None = None,
    ) -> Wanted | None:
        """Which of the first messages are wanted (``wanted_messages``), once ``old_read_wait_ms``
        was asked about them.
        """
        try:
            found = wanted_messages(
                self.log,
                positions,
                sizes,
                sql,
                count_max=count_max,
                size_max=size_max,
                poison=poison,
                numbers=numbers,
            )
        except DamagedLogError:
            self._report_damage(int(positions[0]))
            raise
        if found is not None:
            firsts = np.unique(positions[: len(found)], return_index=True)[1]
            size = int(sizes[firsts].sum())
            if self._is_cold:
                self._pace.spend(size, time.monotonic_ns())
            self._note_touched(size)
        return found

    def _note_touched(self, size: int) -> None:
        self._shown_size += size
        self._touched = True
        if self._shown_size >= PAGES_RELEASED_AFTER:
            self._shown_size = 0
            self.log.release_pages()

    def record_at(self, position: int) -> memoryview | None:
        """The record that begins at ``position``; ``None`` when none does, or none that is shown.

        That size, magic and its own position are right is known; the rest is not looked at.
        """
        if not self._is_ready:
            raise NotLeaderError("node is starting: it does not know yet what is dispatched")
        if not self.log.first_position <= position < self._position:
            return None
        return self.log.record_at(position, end=self._position)

    def earliest_time(self, queue: QueueName | None) -> int:
        """Store time of the first message of a queue, or of the whole log; -1 without any."""
        if queue is None:
            first = self.log.first_message
            record = None if first is None else self.record_at(first)
            return -1 if record is None else self.log.store_time(first or 0, len(record))
        while True:
            first, end, _ = self.bounds(queue)
            if first == end:
                return -1
            units = self.units(queue, first, 1)
            if units is None:
                continue
            time = self.log.store_time(int(units["position"][0]), int(units["size"][0]))
            if time >= 0 or self.bounds(queue).first == first:
                return time

    def offset_by_time(self, queue: QueueName, timestamp_ms: int) -> int:
        """Queue offset that a time leads to, as RocketMQ finds it."""
        reader = self._reader(queue)
        while True:
            first = self.log.first_position
            try:
                self.bounds(queue)
                offset = reader.offset_by_time(timestamp_ms, self.log.store_time, first)
            except VanishedError:
                self._seen.pop(queue, None)
                reader.refresh()
                self.log.refresh()
                continue
            if self.log.first_position == first:
                return max(offset, self.bounds(queue).first)

    def first_since(self, queue: QueueName, timestamp_ms: int) -> int:
        """Offset of the first message stored at a time or later; the queue's end without one."""
        first, end, _ = self.bounds(queue)
        while first < end:
            middle = (first + end) // 2
            # What was deleted meanwhile is older than what is asked for.
            if self.store_time(queue, middle) < timestamp_ms:
                first = middle + 1
            else:
                end = middle
        return first

    def told_since(self, queue: QueueName, timestamp_ms: int, offset: int) -> int:
        """``offset``, which the log has for a time; an earlier one where the messages of that time
        are not in the log any more, and others have them.

        Raises:
            NotLeaderError, CorruptLogError: as ``bounds``.
            ColdAwayError: who has them cannot tell now.
        """
        first = self.bounds(queue).first
        if self._elsewhere is None or offset > first:
            return offset
        if self.told_begin(queue, first, surely=True) == first:
            return offset
        found = self._elsewhere.first_since(queue, timestamp_ms, first)
        return offset if found is None else max(found, self._first_offset(queue))

    def store_time(self, queue: QueueName, offset: int) -> int:
        """When the message at ``offset``, within the queue's bounds, was stored; -1: it is gone."""
        units = self.units(queue, offset, 1)
        if units is None or len(units) == 0:
            return -1
        return self.log.store_time(int(units["position"][0]), int(units["size"][0]))

    def topics(self) -> list[str]:
        """The topics that have a folder, whether the topic table knows them or not; a folder of
        another name is nobody's here (``file_names.queues_of_no_topic``).
        """
        names = [name for name in _folders(self._root) if is_topic_name(name)]
        return names + sorted(self.of_batches.difference(names))

    def topics_changed_ns(self) -> int:
        """Changes when a topic gets its folder; -1 before there is any."""
        try:
            return self._root.stat().st_mtime_ns
        except FileNotFoundError:
            return -1

    def queue_ids(self, topic: str) -> list[int]:
        """The queues of ``topic`` that have a folder, ascending; a path has none."""
        if not is_file_name(topic):
            return []
        root = self._root.parent / BATCH_FOLDER if topic in self.of_batches else self._root
        return sorted(int(name) for name in _folders(root / topic) if name.isdecimal())

    def message_count(self, topic: str) -> int:
        """Messages in all queues of ``topic``."""
        bounds = (self.bounds(QueueName(topic, number)) for number in self.queue_ids(topic))
        return sum(end - first for first, end, _ in bounds)

    def take_touched(self) -> bool:
        """Whether anything was read since the last call, by whomever."""
        touched, self._touched = self._touched, False
        return touched

    def tidy(self) -> None:
        """When nobody reads: give back what was touched."""
        self.log.release_pages()
        self._old_pages.give_back_all()
        for reader in self._readers.values():
            reader.files.release_pages()

    def notice_deleted(self) -> None:
        """Now and then: let go of files that were deleted, whose space is not free before."""
        before = self.log.first_position
        self.log.refresh()
        if self.log.first_position != before:
            self._seen.clear()
            for reader in self._readers.values():
                reader.refresh()

    def _reader(self, queue: QueueName) -> QueueReader:
        reader = self._readers.get(queue)
        if reader is None:
            if len(self._readers) >= READERS_MAX:
                oldest = next(iter(self._readers))
                # A reader knows units up to where it was asked for the bounds.
                self._seen.pop(oldest, None)
                del self._readers[oldest]
            reader = queue_reader(
                self._root,
                queue.topic,
                queue.queue_id,
                file_size=self._file_size,
                of_batches=self.of_batches,
            )
            self._readers[queue] = reader
        return reader


def _folders(parent: Path) -> list[str]:
    try:
        with os.scandir(parent) as entries:
            return [entry.name for entry in entries if entry.is_dir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise StorageError.of("folder not listed", error, why="", folder=parent) from error
