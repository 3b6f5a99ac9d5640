"""Scrub of ConsumeQueues and Index: what is derived, compared with the log.

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

import mmap
import os
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

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
from ledgermq.formats.kernels.kernel import link_keys, set_slots
from ledgermq.formats.queue_unit import UNIT_SIZE
from ledgermq.model.errors import CorruptLogError
from ledgermq.model.names.stored_name import is_file_name
from ledgermq.store.files.file_names import is_index_name, own_names
from ledgermq.store.index.index_files import KEYS_AT_ONCE, NewKeys
from ledgermq.store.queues.dispatch_tables import QueueBlock

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
