"""Scrub of derived files: queues and index compared with the log in use, and put right.

Owned by the dispatcher, which alone writes these files. A thread reads the log once more, block by
block at ``scrub.rate_bytes_per_s``, makes units and keys of it as dispatch does, and compares:

found                             what is done
units that are not the messages'  written in place; what readers get is whole again at once
an index file that differs        it and all later ones are dropped, and their keys put again, a
                                  portion a turn, while dispatch goes on
a record of the log itself        told to raft, which has it repaired if anybody has it

Of the Index files are compared with the log's keys, item by item, slots and header. An item is a
function of its key and of the items before it in its file, so the keys are linked once more, into
slots of our own, and what comes out is compared byte by byte. A file whose beginning the log does
not have any more cannot be judged.

Units of queues are compared with their messages by reading the log again. Only units of messages
that the log still has are judged, in files that are there: what a start finds missing it builds
again by itself. A unit of an earlier message with the same queue offset stays, as RocketMQ lets it
(``queue_files``).
"""

from __future__ import annotations

import logging
import mmap
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ledgermq.dispatcher.log_spans import LogSpans
from ledgermq.formats.arrays import KEY_ITEM, UNIT, Units
from ledgermq.formats.index_file import (
    HEADER_SIZE,
    ITEM_SIZE,
    IndexHeader,
    IndexLayout,
    fresh_header,
    get_header,
)
from ledgermq.formats.java_hash import HASH_MIN
from ledgermq.formats.kernels.kernel import ScanStatus, link_keys, set_slots
from ledgermq.formats.queue_unit import UNIT_SIZE
from ledgermq.formats.records.message import (
    PHYSICAL_OFFSET_AT,
    QUEUE_ID_AT,
    QUEUE_OFFSET_AT,
    SIZE_MIN,
)
from ledgermq.model.config.settings import ScrubSection, Settings
from ledgermq.model.delay_levels import delay_levels_ms
from ledgermq.model.errors import CorruptLogError, DamagedLogError, StorageError
from ledgermq.model.events import Event
from ledgermq.model.ids import Position
from ledgermq.model.names.stored_name import is_file_name
from ledgermq.repair.scrub_pace import ScrubPace
from ledgermq.store.files.file_names import is_index_name, own_names
from ledgermq.store.index.index_files import KEYS_AT_ONCE, NewKeys
from ledgermq.store.queues.dispatch_build import DispatchBuilder
from ledgermq.store.queues.dispatch_tables import DispatchTables, QueueBlock

_SECONDS = slice(12, 16)
_KEYS_LEADING_MAX = 16_385

SCHEDULE_TOPIC = b"SCHEDULE_TOPIC_XXXX"
"""Its units hold times of delivery, by the delay levels of the day when they were put."""

IsMessage = Callable[[int, int, int, int], bool]
"""Whether the log has, at a position and of a size, a message of a queue id and queue offset."""


class IndexFault(NamedTuple):
    """The first byte of ``name`` that is not what the log says."""

    name: str
    offset: int


class _Shadow:
    """What one file should hold, so far; ``number`` is that of the next item."""

    def __init__(self, name: str, layout: IndexLayout, before: IndexHeader | None) -> None:
        self.name = name
        self.number = 1
        self.knows_before = before is not None
        self.begin_timestamp = fresh_header(before).begin_timestamp
        self.begin_position = self.end_position = 0
        self.end_timestamp = self.end_seconds = 0
        self.used_slots = 0
        self.slots = memoryview(bytearray(4 * layout.slots))


class IndexScrub:
    """One pass over the index; used by one thread.

    Attributes:
        fault: what was found; the pass is over then.
    """

    def __init__(self, root: Path, layout: IndexLayout) -> None:
        """Nothing is compared before ``begin``."""
        self.fault: IndexFault | None = None
        self._root = root
        self._layout = layout
        self._names: list[str] = []
        self._shadow: _Shadow | None = None
        self._first = -1
        self._heads = np.zeros(4 * KEYS_AT_ONCE, np.int32)
        self._items = bytearray(KEYS_AT_ONCE * ITEM_SIZE)

    def begin(self, first: int) -> None:
        """A pass over the log begins at position ``first``."""
        self.fault, self._shadow, self._names = None, None, []
        names = self._listed()
        before: IndexHeader | None = None
        for number, name in enumerate(names):
            header = self._header(name)
            if header is None:
                if (self._root / name).exists():
                    self.fault = IndexFault(name, 0)
                return
            content = _read(self._root / name, ITEM_SIZE, self._layout.item_at(1))
            if header.index_count > 1 and content is not None:
                begin = int(np.frombuffer(content, KEY_ITEM)["position"][0])
                if begin != header.begin_physical_offset:
                    # One of the two; where the pass is to begin, the header says.
                    self.fault = IndexFault(name, 0)
                    return
            if header.index_count > 1 and header.begin_physical_offset >= first:
                self._names = names[number:]
                self._first = header.begin_physical_offset
                self._shadow = _Shadow(name, self._layout, before)
                # In a log that has its beginning there was no file before.
                self._shadow.knows_before |= first == 0
                return
            before = header

    def stop(self) -> None:
        """Compare no more in this pass: not all keys are known."""
        self._shadow = None

    def compare(self, keys: NewKeys) -> None:
        """The keys that come next in the log.

        Raises:
            OSError: a file cannot be read.
        """
        if self._shadow is None:
            return
        first = int(np.searchsorted(keys.positions[keys.rows], self._first))
        if first < len(keys.hashes) and self._shadow.number == 1 and self._first >= 0:
            first += self._missing_before(keys, first)
        if self._first >= 0 and first < len(keys.hashes):
            self._first = -1
        while self._shadow is not None and first < len(keys.hashes):
            shadow = self._shadow
            last = min(
                len(keys.hashes), first + KEYS_AT_ONCE, first + self._layout.items - shadow.number
            )
            if last == first:
                self._finish(shadow)
                continue
            self._compare_some(shadow, keys, first, last)
            first = last

    def _missing_before(self, keys: NewKeys, first: int) -> int:
        """How many keys of the first message the file before has: that one was full."""
        assert self._shadow is not None
        row = keys.rows[first]
        count = int(np.count_nonzero(keys.rows == row))
        content = _read(self._root / self._shadow.name, count * ITEM_SIZE, self._layout.item_at(1))
        if content is None:
            return 0
        found = np.frombuffer(content, KEY_ITEM)
        return count - int(np.count_nonzero(found["position"] == keys.positions[row]))

    def _compare_some(self, shadow: _Shadow, keys: NewKeys, first: int, last: int) -> None:
        size = (last - first) * ITEM_SIZE
        items = memoryview(self._items)[:size]
        heads = self._heads[: 1 << (4 * (last - first) - 1).bit_length()]
        shadow.used_slots += link_keys(
            shadow.slots, keys.hashes.data, keys.rows.data, first, last, keys.positions.data,
            keys.store_times.data, shadow.number, shadow.begin_timestamp, items, heads.data,
        )  # fmt: skip
        set_slots(shadow.slots, keys.hashes.data, first, last, shadow.number)
        content = _read(self._root / shadow.name, size, self._layout.item_at(shadow.number))
        if content is None:
            # Deleted as too old meanwhile.
            self.stop()
            return
        if shadow.number == 1:
            if not shadow.knows_before:
                # Measured from the end of a file that is gone.
                items[_SECONDS] = content[_SECONDS]
            row = int(keys.rows[first])
            shadow.begin_timestamp = int(keys.store_times[row])
            shadow.begin_position = int(keys.positions[row])
        if content != items:
            wrong = np.frombuffer(content, np.uint8) != np.frombuffer(items, np.uint8)
            self._find(shadow, self._layout.item_at(shadow.number) + int(np.argmax(wrong)))
            return
        row = int(keys.rows[last - 1])
        shadow.end_position, shadow.end_timestamp = (
            int(keys.positions[row]),
            int(keys.store_times[row]),
        )
        shadow.end_seconds = int(np.frombuffer(items, KEY_ITEM)["seconds"][-1])
        shadow.number += last - first

    def end(self, position: int) -> None:
        """All keys of messages before ``position`` were compared: what else has the newest file?

        Its header and slots count only if nothing is being put.

        Raises:
            OSError: the file cannot be read.
        """
        shadow = self._shadow
        is_full = shadow is not None and shadow.number == self._layout.items
        if shadow is not None and is_full and self._listed()[-1:] > [shadow.name]:
            self._finish(shadow)
            shadow = self._shadow
        header = None if shadow is None else self._header(shadow.name)
        if shadow is None:
            return
        if header is None:
            if (self._root / shadow.name).exists():
                self._find(shadow, 0)
        elif header.index_count > shadow.number:
            content = _read(
                self._root / shadow.name, ITEM_SIZE, self._layout.item_at(shadow.number)
            )
            if (
                content is not None
                and int(np.frombuffer(content, KEY_ITEM)["position"][0]) < position
            ):
                self._find(shadow, self._layout.item_at(shadow.number))
        elif shadow.number > 1:
            slots = _read(self._root / shadow.name, len(shadow.slots), HEADER_SIZE)
            if slots is not None and self._header(shadow.name) == header:
                self._compare_rest(shadow, header, slots)
        self.stop()

    def _finish(self, shadow: _Shadow) -> None:
        """Compare header and slots of a full file, and go on with the next one."""
        header = self._header(shadow.name)
        slots = _read(self._root / shadow.name, len(shadow.slots), HEADER_SIZE)
        self._names = [name for name in self._listed() if name > shadow.name]
        if slots is None or not self._names:
            # Deleted meanwhile, or the newest one: its last keys may just have been put.
            self.stop()
            return
        self._compare_rest(shadow, header, slots)
        if self._shadow is not None:
            self._shadow = _Shadow(self._names[0], self._layout, header)

    def _compare_rest(self, shadow: _Shadow, header: IndexHeader | None, slots: bytes) -> None:
        # A file whose slots were repaired knows its end by the second.
        ends = (
            shadow.end_timestamp,
            shadow.begin_timestamp + shadow.end_seconds * 1_000 + 999,
        )
        wanted = (
            shadow.begin_timestamp,
            shadow.begin_position,
            shadow.end_position,
            shadow.used_slots,
            shadow.number,
        )
        if header is None or (header[0], *header[2:]) != wanted or header[1] not in ends:
            self._find(shadow, 0)
        elif slots != shadow.slots:
            wrong = np.frombuffer(slots, np.uint8) != np.frombuffer(shadow.slots, np.uint8)
            self._find(shadow, HEADER_SIZE + int(np.argmax(wrong)))

    def _find(self, shadow: _Shadow, offset: int) -> None:
        self.fault = IndexFault(shadow.name, offset)
        self.stop()

    def _listed(self) -> list[str]:
        return own_names(self._root, is_index_name)

    def _header(self, name: str) -> IndexHeader | None:
        """None when there is no file of that name any more, or its header cannot be."""
        try:
            with (self._root / name).open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                if size != self._layout.file_size:
                    return None
                page = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except FileNotFoundError:
            return None
        view = memoryview(page)
        try:
            return get_header(view, self._layout, file=name)
        except CorruptLogError:
            return None
        finally:
            view.release()
            page.close()


class UnitPatch(NamedTuple):
    """What belongs at ``offset`` of a queue file, in place of units that are wrong."""

    path: str
    offset: int
    data: bytes

    @property
    def units(self) -> int:
        """How many are wrong."""
        return len(self.data) // UNIT_SIZE


class UnitScrub:
    """Compares blocks of units with the files below one ``consumequeue`` folder; only reads."""

    def __init__(self, root: Path, file_size: int, is_message: IsMessage) -> None:
        """Nothing is read yet."""
        self._root = root
        self._file_size = file_size
        self._is_message = is_message
        self._has_extensions = root.with_name("consumequeue_ext").is_dir()

    def wrong_units(self, block: QueueBlock) -> Iterator[UnitPatch]:
        """What belongs where the block's units stand, where they are others.

        Raises:
            OSError: a queue file cannot be read.
        """
        if not is_file_name(block.topic):
            return
        offsets, units = block.queue_offsets, block.units
        starts = [0, *(np.flatnonzero(np.diff(offsets) != 1) + 1).tolist(), len(offsets)]
        per_file = self._file_size // UNIT_SIZE
        for first, last in pairwise(starts):
            at = first
            while at < last:
                offset = int(offsets[at])
                count = min(last - at, per_file - offset % per_file)
                yield from self._compare(block, offset, units[at : at + count])
                at += count

    def _compare(self, block: QueueBlock, offset: int, units: Units) -> Iterator[UnitPatch]:
        """Units side by side in one file."""
        at = offset * UNIT_SIZE % self._file_size
        folder = f"{self._root}/{os.fsdecode(block.topic)}/{block.queue_id}"
        path = f"{folder}/{offset * UNIT_SIZE - at:020d}"
        wanted = units.tobytes()
        content = _read(path, len(wanted), at)
        if content is None or content == wanted:
            return
        found = np.frombuffer(content, UNIT)
        wrong = self._is_wrong(block, units, found)
        for row in np.flatnonzero(wrong).tolist():
            position, size = int(found["position"][row]), int(found["size"][row])
            is_earlier = 0 <= position < int(units["position"][row]) and size > 0
            if is_earlier and self._is_message(position, size, block.queue_id, offset + row):
                wrong[row] = False
        edges = np.flatnonzero(np.diff(wrong.astype(np.int8))) + 1
        for first, last in pairwise([0, *edges.tolist(), len(wrong)]):
            if wrong[first]:
                data = wanted[first * UNIT_SIZE : last * UNIT_SIZE]
                yield UnitPatch(path, at + first * UNIT_SIZE, data)

    def _is_wrong(self, block: QueueBlock, units: Units, found: Units) -> npt.NDArray[np.bool_]:
        same = (found["position"] == units["position"]) & (found["size"] == units["size"])
        if block.topic != SCHEDULE_TOPIC:
            # Below all hashes are addresses of units in consumequeue_ext.
            is_address = (found["tags"] < HASH_MIN) & self._has_extensions
            same &= (found["tags"] == units["tags"]) | is_address
        wrong: npt.NDArray[np.bool_] = ~same
        return wrong


def _read(path: str | Path, size: int, at: int) -> bytes | None:
    """``size`` bytes; None where the file is not there, or ends before."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        content = os.pread(fd, size, at)
    finally:
        os.close(fd)
    return content if len(content) == size else None


logger = logging.getLogger(__name__)

KEYS_SPAN_MAX = 8 * 1024 * 1024
DAMAGE_RETRY_NS = 500_000_000

SOON_NS = 1_000_000_000
"""A step that may begin within this time is one that is waited for."""


@dataclass(slots=True)
class Checked:
    """What one step found.

    Attributes:
        position: where to go on; None at the end of the pass.
        damaged: a record of the log that is not what was written.
    """

    position: Position | None
    size: int = 0
    patches: list[UnitPatch] = field(default_factory=list)
    fault: IndexFault | None = None
    damaged: Position | None = None


class DerivedCheck:
    """The reading half; used by one thread at a time, and only reads."""

    def __init__(self, settings: Settings, builder: DispatchBuilder) -> None:
        """Compare with the files of ``builder``; it may be closed meanwhile."""
        index = builder.index
        self._spans, self._looks = LogSpans.of(settings), LogSpans.of(settings)
        self._index = None if index is None else IndexScrub(index.root, index.layout)
        self._units = UnitScrub(builder.queues.root, builder.queues.file_size, self._is_message)
        self._tables = DispatchTables(
            delay_levels_ms(settings.store.message_delay_level),
            with_keys=index is not None,
            with_tags=builder.with_tags,
        )

    def step(self, begun: Position | None, end: Position, size: int) -> Checked:
        """Read on from where the last step ended, or begin a pass; ``end`` is dispatched, too.

        Raises:
            StorageError, OSError: a file cannot be read.
        """
        at = self._spans.start() if begun is None else begun
        if begun is None and self._index is not None:
            self._index.begin(at)
        span = self._spans.span(at) if at < end else None
        if span is None:
            # Deleted as too old meanwhile.
            start = self._spans.start()
            return Checked(start) if at < start < end else self._ended(end)
        begin: int = at - span.start
        file_end: int = min(end, span.end) - span.start
        count, reached, status = 0, int(begin), ScanStatus.FULL
        # A record that is larger than a step is looked at as a whole.
        for stop in (min(begin + size, file_end), file_end):
            count, reached, status = self._tables.scan(
                span.view, begin, stop, header_size=span.header_size, base=span.start
            )
            if count or reached > begin or status.corrupt:
                break
        whole = self._tables.whole(span.view, count, header_size=span.header_size)
        found = Checked(Position(span.start + reached), reached - begin)
        self._compare(span.view, span.start, whole, found)
        if whole < count:
            row_at, row_size = self._tables.place(whole)
            found.damaged = Position(span.start + row_at - span.header_size)
            found.position = Position(span.start + row_at + row_size)
        elif reached == begin or status.corrupt:
            found.damaged = Position(span.start + reached)
            # Where the next record begins nobody knows: on with the next file.
            found.position = Position(span.end)
        if found.damaged is not None and self._index is not None:
            # Not all keys are known.
            self._index.stop()
        return found

    def close(self) -> None:
        """Unmap."""
        self._spans.close()
        self._looks.close()

    def _compare(self, view: memoryview, base: Position, count: int, found: Checked) -> None:
        for portion in self._tables.portions(view, base, count):
            for block in self._tables.blocks(view, portion):
                found.patches += self._units.wrong_units(block)
            if self._index is not None:
                self._index.compare(portion.keys)
                found.fault = self._index.fault

    def _ended(self, end: Position) -> Checked:
        self.close()
        if self._index is None:
            return Checked(None)
        self._index.end(end)
        return Checked(None, fault=self._index.fault)

    def _is_message(self, position: int, size: int, queue_id: int, queue_offset: int) -> bool:
        span = self._looks.span(Position(position))
        if span is None or size < SIZE_MIN:
            return False
        record = span.view[position - span.start : position - span.start + PHYSICAL_OFFSET_AT + 8]
        wanted = (
            (0, 4, size),
            (QUEUE_ID_AT, 4, queue_id),
            (QUEUE_OFFSET_AT, 8, queue_offset),
            (PHYSICAL_OFFSET_AT, 8, position),
        )
        return all(int.from_bytes(record[at : at + n], "big") == value for at, n, value in wanted)


@dataclass(slots=True)
class DerivedScrubCounts:
    """What was done since it was asked last."""

    bytes: int = 0
    units: int = 0
    index_files: int = 0


class DerivedScrub:
    """The writing half: called by the dispatcher once a turn."""

    def __init__(
        self,
        settings: Settings,
        now_ns: int,
        report_damage: Callable[[Position], object],
        background: Executor | None = None,
    ) -> None:
        """Nothing is read before the first pass is due.

        Args:
            report_damage: called with the position of a record that is damaged.
            background: reads; shut down with this. A thread, when nobody gives one.
        """
        self._counts = DerivedScrubCounts()
        self._settings = settings
        self._pace = ScrubPace(settings.scrub, now_ns)
        self._report_damage = report_damage
        self._thread = background or ThreadPoolExecutor(1, thread_name_prefix="scrub")
        self._spans = LogSpans.of(settings)
        self._builder: DispatchBuilder | None = None
        self._check: DerivedCheck | None = None
        self._job: Future[Checked] | None = None
        self._at: Position | None = None
        self._keys_due_ns = 0

    def change(self, settings: ScrubSection, now_ns: int) -> None:
        """Take other settings while it runs."""
        self._pace.change(settings, now_ns)

    def turn(self, builder: DispatchBuilder, end: Position, now_ns: int) -> None:
        """Go on, bounded; all before ``end`` is committed and dispatched.

        Raises:
            StorageError: what differs cannot be written.
        """
        job = self._job
        if job is not None:
            if not job.done():
                return
            self._job = None
            self._take(builder, job, now_ns)
        if builder is not self._builder:
            self._begin_anew(builder)
        if builder.keys_from is not None:
            self._put_keys(builder, now_ns)
            return
        if now_ns >= self._pace.due_ns:
            self._begin_step(end, now_ns)

    def take_counts(self) -> DerivedScrubCounts:
        """What was read and put right since the last call."""
        counts, self._counts = self._counts, DerivedScrubCounts()
        return counts

    def wants_turn(self, now_ns: int) -> bool:
        """Whether keys have to be put again now; the pass itself goes on when the process wakes
        anyway.
        """
        builder = self._builder
        is_behind = builder is not None and builder.keys_from is not None
        return is_behind and now_ns >= self._keys_due_ns

    def is_due(self, now_ns: int) -> bool:
        """Whether a step of the pass is under way, or may begin soon."""
        return self._job is not None or now_ns + SOON_NS >= self._pace.due_ns

    def close(self) -> None:
        """End the thread; what it reads is finished."""
        self._thread.shutdown(cancel_futures=True)
        self._spans.close()
        if self._check is not None:
            self._check.close()

    def _begin_anew(self, builder: DispatchBuilder) -> None:
        """The files were opened, again: the log may have become shorter meanwhile."""
        if self._check is not None:
            self._check.close()
        self._builder = builder
        self._check = DerivedCheck(self._settings, builder)
        self._go_on_at(None)

    def _go_on_at(self, position: Position | None) -> None:
        """The next step begins there; None: the pass is over."""
        self._at = position
        if position is None:
            self._pace.end_pass()

    def _begin_step(self, end: Position, now_ns: int) -> None:
        check, at = self._check, self._at
        assert check is not None
        size = self._pace.begin_step(now_ns)
        self._job = self._thread.submit(check.step, at, end, size)

    def _take(self, builder: DispatchBuilder, job: Future[Checked], now_ns: int) -> None:
        """Put right what a step has found."""
        try:
            found = job.result()
        except (StorageError, OSError) as error:
            # Whoever needs the file says so, too; a file that retention deleted nobody needs.
            logger.warning("queues and index not compared with the log: %s", error)
            self._go_on_at(None)
            return
        self._go_on_at(found.position)
        self._counts.bytes += found.size
        # The files were opened anew since: what differed may be what was cut.
        if builder is not self._builder:
            return
        if found.damaged is not None:
            self._report_damage(found.damaged)
        for patch in found.patches:
            if builder.queues.replace(patch.path, patch.offset, patch.data):
                self._counts.units += patch.units
                logger.warning(
                    "queue is repaired: file=%s offset=%d units=%d",
                    patch.path,
                    patch.offset,
                    patch.units,
                    extra={"event": Event.QUEUES_REPAIRED},
                )
        if found.fault is not None:
            self._drop_keys(builder, found.fault)
            self._go_on_at(None)

    def _drop_keys(self, builder: DispatchBuilder, fault: IndexFault) -> None:
        """Have keys put again from the index file on that differs from the log."""
        index = builder.index
        if index is None or fault.name not in index.file_names:
            return
        files = len(index.file_names) - index.file_names.index(fault.name)
        path = os.fspath(index.root / fault.name)
        builder.drop_keys(fault.name, self._spans.start())
        self._counts.index_files += files
        logger.warning(
            "index is damaged, keys are put again: file=%s offset=%d files=%d",
            path,
            fault.offset,
            files,
        )

    def _put_keys(self, builder: DispatchBuilder, now_ns: int) -> None:
        """A portion of the keys that were dropped."""
        assert builder.keys_from is not None
        if now_ns < self._keys_due_ns:
            return
        at = builder.keys_from
        if at >= builder.position:
            builder.finish_keys()
            logger.warning(
                "index is repaired: position=%d",
                builder.position,
                extra={"event": Event.QUEUES_REPAIRED},
            )
            return
        span = self._spans.span(at)
        if span is None:
            builder.keys_from = max(self._spans.start(), at)
            return
        try:
            end = Position(min(builder.position, span.end))
            near = Position(min(end, at + KEYS_SPAN_MAX))
            reached = builder.build_keys(span.view, span.start, near, header_size=span.header_size)
            if reached == at and near < end:
                reached = builder.build_keys(
                    span.view, span.start, end, header_size=span.header_size
                )
            if reached == at:
                raise DamagedLogError("committed bytes end within an entry", position=at)
        except DamagedLogError as error:
            logger.error("index waits for the repair of the log: %s", error)
            self._keys_due_ns = now_ns + DAMAGE_RETRY_NS
            self._report_damage(at)
