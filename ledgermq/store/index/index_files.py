"""Append side of the Index: many keys a call. The dispatcher alone has one.

The newest file takes keys until it holds ``items - 1``; the next one is created when something
follows, a key or just a message, as in RocketMQ. Items are written before the header counts them,
and the header before the slots name them: a reader that follows a slot always finds its item. A new
file has its size last: a reader that sees it finds its header.

Header and slots are mapped, so their blocks are reserved before they are written: on a full disk
that is an error of a call here, where a write to the map would kill the process.
"""

from __future__ import annotations

import logging
import mmap
import os
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ledgermq.formats.arrays import I32, I64, KEY_ITEM
from ledgermq.formats.index_file import (
    HEADER_SIZE,
    ITEM_SIZE,
    IndexHeader,
    IndexLayout,
    fresh_header,
    get_header,
    put_header,
)
from ledgermq.formats.kernels.kernel import link_keys, set_slots
from ledgermq.model.errors import (
    ConfigError,
    CorruptLogError,
    DiskFullError,
    refused_as,
)
from ledgermq.store.files.descriptor_cache import write_fully
from ledgermq.store.files.disk_space import storage_error
from ledgermq.store.files.disk_sync import make_folder
from ledgermq.store.files.file_names import is_index_name, own_names, tell_foreign
from ledgermq.store.files.kept_aside import keep_aside

logger = logging.getLogger(__name__)

KEYS_AT_ONCE = 16_384
"""Keys linked in one call: their scratch table stays in the processor's cache."""

_REPAIR_ITEMS = 1_000_000
_PIECE = 1024 * 1024
"""Bytes of slots that are written, or reserved, between two signs of life."""


class NewKeys(NamedTuple):
    """Keys of some messages, in the order of the log.

    Attributes:
        hashes: each key's non-negative hash.
        rows: each key's message, as an index of the two columns below; ascending.
        positions: where the messages are; ascending.
        store_times: their store times, epoch ms.
    """

    hashes: I32
    rows: I32
    positions: I64
    store_times: I64


assert KEY_ITEM.itemsize == ITEM_SIZE


class IndexFiles:
    """All Index files of a store, and the open newest one.

    Invariant: positions put are ascending; ``end_position`` is that of the last message with a
    key, -1 when there is none.

    A file that is none is kept aside, and so are all later ones: keys are put in the order of the
    log, so all of theirs are to be put again.

    Attributes:
        lost: whether files were kept aside.
        dirty_files, dirty_directories: paths that must be synced; ``DispatchBuilder`` takes them.
    """

    def __init__(
        self,
        root: Path,
        layout: IndexLayout,
        *,
        aside: Path,
        clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        follows: IndexHeader | None = None,
        sign_of_life: Callable[[], None] = lambda: None,
    ) -> None:
        """Open the newest file of the folder ``root``, if there is one.

        Args:
            aside: folder for files that are no whole ones.
            clock_ms: epoch milliseconds; names new files, in local time.
            follows: header of the full file before the first one here, which is elsewhere.
            sign_of_life: called again and again while many items are read.

        Raises:
            ConfigError: the files there have another geometry, all the same one.
            StorageError: the operating system refused.
        """
        self.root = root
        self.layout = layout
        self.dirty_files: set[str] = set()
        self.dirty_directories: set[str] = set()
        self._clock_ms = clock_ms
        self._follows = follows
        self._sign_of_life = sign_of_life
        self._heads = np.zeros(4 * KEYS_AT_ONCE, np.int32)
        self._items = bytearray(KEYS_AT_ONCE * ITEM_SIZE)
        self._names, self.lost = _index_names(root, layout, aside)
        self._file: _OpenFile | None = None
        while self._names and self._file is None:
            path = root / self._names[-1]
            try:
                self._file = _OpenFile(path, layout)
            except CorruptLogError as error:
                keep_aside(path, aside, reason=f"keys are put again: {error}")
                del self._names[-1]
                self.lost = True
            if self._file is not None and len(self._names) > 1 and not any(self._file.header[:5]):
                # A crash came before the header: it begins with the end of the file before, and
                # nothing was put. Without it the index would seem to end at the log's beginning.
                self.close()
                path.unlink()
                del self._names[-1]
        if self.lost and self.end_position >= 0:
            # Other keys of the last message may have been in the next file: it is put again.
            self.truncate_beyond(self.end_position)

    @property
    def file_names(self) -> tuple[str, ...]:
        """Names of the files, oldest first."""
        return tuple(self._names)

    @property
    def end_position(self) -> int:
        """Position of the last message that has a key here, -1 when none has."""
        if self._file is None or (len(self._names) == 1 and self._file.empty):
            return -1
        return self._file.header.end_physical_offset

    @property
    def end_timestamp(self) -> int:
        """Store time of that message, 0 when there is none."""
        return 0 if self._file is None else self._file.header.end_timestamp

    def put(self, keys: NewKeys, rows: range) -> int:
        """Put the keys of some messages, in the order of the log; how many were new.

        Messages at or below ``end_position`` are passed: their keys are there.

        Args:
            rows: the messages that are put, also those without a key.

        Raises:
            DiskFullError: there is no space; of some messages all keys may have been put, of the
                others none.
            StorageError: the operating system refused; a part of the keys may have been put.
        """
        first_row = rows.start + int(
            np.searchsorted(keys.positions[rows.start : rows.stop], self.end_position, side="right")
        )
        if first_row == rows.stop:
            return 0
        key = first_key = int(np.searchsorted(keys.rows, first_row))
        count = len(keys.hashes)
        try:
            while key < count:
                file = self._with_room()
                last = min(count, key + KEYS_AT_ONCE, key + file.room)
                self._put_some(file, keys, key, last)
                key = last
        except DiskFullError:
            if key > first_key and keys.rows[key - 1] == keys.rows[key]:
                # A message whose keys are there in part would be passed when it is put again.
                self.truncate_beyond(int(keys.positions[keys.rows[key]]))
            raise
        if key == first_key or keys.rows[-1] < rows.stop - 1:
            self._with_room()
        return key - first_key

    def truncate_beyond(self, position: int, *, repair: bool = False) -> None:
        """Take away the keys of messages from ``position`` on.

        Args:
            repair: compute the slots of the newest file again in any case; after a power failure
                they may name items that were not kept.
        """
        if not repair and self.end_position < position:
            return
        while self._file is not None:
            header = self._file.header
            if (
                not self._file.empty
                and header.begin_physical_offset < position
                and self._file.repair(position, self._sign_of_life)
            ):
                self.dirty_files.add(str(self._file.path))
                return
            self._remove(len(self._names) - 1)

    def drop_from(self, name: str) -> None:
        """Delete the file ``name`` and all later ones; what is left goes up to ``end_position``.

        The last message that has a key left is one whose keys are all to be put again, or none.
        """
        kept = self._names.index(name)
        self.close()
        while self._file is None and self._names:
            while len(self._names) > kept:
                self._remove(len(self._names) - 1)
            if not self._names:
                return
            try:
                self._file = _OpenFile(self.root / self._names[-1], self.layout)
            except CorruptLogError:
                kept -= 1
        if self.end_position >= 0:
            # Other keys of the last message may have been in the next file.
            self.truncate_beyond(self.end_position)

    def delete_before(self, position: int) -> int:
        """Delete the oldest files whose messages all lie below ``position``; how many.

        The newest file stays, whatever it holds, and so does one that does not tell its end, with
        all behind it: who compares the index with the log has their keys put again.
        """
        deleted = 0
        while len(self._names) > 1:
            try:
                file = _OpenFile(self.root / self._names[0], self.layout)
            except CorruptLogError as error:
                logger.warning("index files kept, the oldest one is damaged: %s", error)
                break
            end = file.header.end_physical_offset
            file.close()
            if end >= position:
                break
            self._remove(0)
            deleted += 1
        return deleted

    def close(self) -> None:
        """Unmap; what is dirty stays in the page cache."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _put_some(self, file: _OpenFile, keys: NewKeys, first: int, last: int) -> None:
        header = file.header
        number = header.index_count
        items = memoryview(self._items)[: (last - first) * ITEM_SIZE]
        fresh = link_keys(
            file.slots,
            keys.hashes.data,
            keys.rows.data,
            first,
            last,
            keys.positions.data,
            keys.store_times.data,
            number,
            header.begin_timestamp,
            items,
            self._heads[: 1 << (4 * (last - first) - 1).bit_length()].data,
        )
        write_fully(file.fd, items, self.layout.item_at(number), str(file.path))
        if number == 1:
            row = int(keys.rows[first])
            header = header._replace(
                begin_timestamp=int(keys.store_times[row]),
                begin_physical_offset=int(keys.positions[row]),
            )
        row = int(keys.rows[last - 1])
        file.set_header(
            header._replace(
                end_timestamp=int(keys.store_times[row]),
                end_physical_offset=int(keys.positions[row]),
                slot_count=header.slot_count + fresh,
                index_count=number + last - first,
            )
        )
        set_slots(file.slots, keys.hashes.data, first, last, number)
        self.dirty_files.add(str(file.path))

    def _with_room(self) -> _OpenFile:
        """The newest file, a fresh one when it is full or there is none."""
        if self._file is not None and self._file.room > 0:
            self._file.have_blocks(self._sign_of_life)
            return self._file
        header = fresh_header(self._follows if self._file is None else self._file.header)
        name = self._fresh_name()
        if not self.root.is_dir():
            make_folder(self.root)
        file = _OpenFile.create(self.root / name, self.layout, header, self._sign_of_life)
        if self._file is not None:
            self._file.close()
        self._file = file
        self._names.append(name)
        self.dirty_files.add(str(file.path))
        self.dirty_directories.add(str(self.root))
        return file

    def _fresh_name(self) -> str:
        name = index_file_name(self._clock_ms())
        if self._names and name <= self._names[-1]:
            # Two files within a millisecond, or a clock that was set back: names must ascend.
            name = f"{int(self._names[-1]) + 1:017d}"
        return name

    def _remove(self, number: int) -> None:
        self._sign_of_life()
        path = self.root / self._names[number]
        newest = number == len(self._names) - 1
        was_open = self._file is not None
        if newest and self._file is not None:
            self._file.close()
            self._file = None
        with refused_as("index file not removed", why="", file=path):
            path.unlink()
        del self._names[number]
        self.dirty_files.discard(str(path))
        self.dirty_directories.add(str(self.root))
        if newest and self._names and was_open:
            self._file = _OpenFile(self.root / self._names[-1], self.layout)


class _OpenFile:
    """The newest file. It is mapped for header and slots; items are written, never through the map.

    Only the blocks of header and slots are reserved: a file of the default size is 420 MB.
    """

    def __init__(self, path: Path, layout: IndexLayout) -> None:
        self.path = path
        self.layout = layout
        with refused_as("index file not opened", why="", file=path):
            self.fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            self._map = mmap.mmap(self.fd, layout.file_size)
        self._has_blocks = False
        self._page = memoryview(self._map)
        self.slots = self._page[HEADER_SIZE : layout.item_at(0)]
        try:
            self.header = get_header(self._page, layout, file=str(path))
        except CorruptLogError:
            self.close()
            raise

    @classmethod
    def create(
        cls,
        path: Path,
        layout: IndexLayout,
        header: IndexHeader,
        sign_of_life: Callable[[], None],
    ) -> _OpenFile:
        """A new file of full size with reserved slots; none is left when the disk is full."""
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                _reserve(fd, layout.item_at(0), sign_of_life)
                page = bytearray(HEADER_SIZE)
                put_header(memoryview(page), header)
                os.pwrite(fd, page, 0)
                # Readers take it for an index file from here on, and have its header then.
                os.ftruncate(fd, layout.file_size)
            except OSError:
                path.unlink()
                raise
            finally:
                os.close(fd)
        except OSError as error:
            raise storage_error("index file not created", error, file=str(path)) from error
        return cls(path, layout)

    def have_blocks(self, sign_of_life: Callable[[], None]) -> None:
        """Have blocks for header and slots, to be called before either is written.

        A file that RocketMQ has begun, or that was copied, has holes there.

        Args:
            sign_of_life: called again and again meanwhile.

        Raises:
            DiskFullError: there is no space; what was there stays.
        """
        if self._has_blocks:
            return
        try:
            _reserve(self.fd, self.layout.item_at(0), sign_of_life)
        except OSError as error:
            raise storage_error(
                "no space for the slots of the index", error, file=str(self.path)
            ) from error
        self._has_blocks = True

    @property
    def room(self) -> int:
        """Keys that still fit."""
        return self.layout.items - self.header.index_count

    @property
    def empty(self) -> bool:
        """Whether no key was put yet."""
        return self.header.index_count <= 1

    def set_header(self, header: IndexHeader) -> None:
        """Write the header through."""
        self.header = header
        put_header(self._page, header)

    def repair(self, position: int, sign_of_life: Callable[[], None]) -> bool:
        """Keep the items of messages below ``position``, and compute all slots from them.

        False when there are none: nothing was changed then.

        Raises:
            DiskFullError: there is no space for the slots; nothing was changed.
        """
        kept = self._count_below(position, sign_of_life)
        if not kept:
            return False
        self.have_blocks(sign_of_life)
        slots = np.zeros(self.layout.slots, ">i4")
        last = np.zeros(1, KEY_ITEM)
        for first in range(1, kept + 1, _REPAIR_ITEMS):
            sign_of_life()
            items = self._read_items(first, min(_REPAIR_ITEMS, kept + 1 - first))
            slots[items["hash"] % self.layout.slots] = np.arange(first, first + len(items))
            last = items[-1:]
        begin = self.header.begin_timestamp
        # An item knows its time by the second; the header must not say less than it was.
        end = begin + int(last["seconds"][0]) * 1_000 + 999
        octets = slots.view(np.uint8).data
        for at in range(0, len(octets), _PIECE):
            # Not through the map: a page that is written whole need not be read first, and to read
            # five thousand of them takes a slow disk longer than anybody waits for a sign.
            sign_of_life()
            piece = octets[at : at + _PIECE]
            write_fully(self.fd, piece, HEADER_SIZE + at, str(self.path))
        self.set_header(
            self.header._replace(
                end_timestamp=min(self.header.end_timestamp, end),
                end_physical_offset=int(last["position"][0]),
                slot_count=int(np.count_nonzero(slots)),
                index_count=kept + 1,
            )
        )
        return True

    def close(self) -> None:
        """Unmap and close."""
        self.slots.release()
        self._page.release()
        self._map.close()
        os.close(self.fd)

    def _count_below(self, position: int, sign_of_life: Callable[[], None]) -> int:
        """How many items are of messages below ``position``.

        After a power failure the header may count items that were not kept, and are zeros, or
        those of an older state: positions go back there. So they are not searched by halves.
        """
        count, before = self.header.index_count, self.header.begin_physical_offset
        for first in range(1, count, _REPAIR_ITEMS):
            sign_of_life()
            items = self._read_items(first, min(_REPAIR_ITEMS, count - first))
            positions = items["position"]
            begins = np.concatenate(([before], positions[:-1]))
            # The log's first message has position 0, too, but no key the hash of which is 0.
            is_lost = (positions < begins) | ((positions == 0) & (items["hash"] == 0))
            beyond = np.flatnonzero((positions >= position) | is_lost)
            if beyond.size:
                return first + int(beyond[0]) - 1
            before = int(positions[-1])
        return count - 1

    def _read_items(self, first: int, count: int) -> npt.NDArray[np.void]:
        data = os.pread(self.fd, count * ITEM_SIZE, self.layout.item_at(first))
        return np.frombuffer(data, KEY_ITEM)


def _reserve(fd: int, size: int, sign_of_life: Callable[[], None]) -> None:
    """Have blocks for the first ``size`` bytes: where a file system cannot reserve, the C library
    writes to each block.

    Raises:
        OSError: there is no space.
    """
    for at in range(0, size, _PIECE):
        sign_of_life()
        os.posix_fallocate(fd, at, min(_PIECE, size - at))


def _index_names(root: Path, layout: IndexLayout, aside: Path) -> tuple[list[str], bool]:
    """Names of the files that can be used, ascending, and whether keys were lost with others."""
    sizes: dict[str, int] = {}
    foreign: list[Path] = []
    for name in own_names(root, is_index_name, foreign=foreign):
        size = (root / name).stat().st_size
        if size in (0, layout.item_at(0)):
            # A crash came before the file had its size: nothing was put into it yet.
            (root / name).unlink()
            continue
        sizes[name] = size
    tell_foreign(foreign)
    names = sorted(sizes)
    wrong = [name for name in names if sizes[name] != layout.file_size]
    if len(wrong) == len(names) > 1 and len(set(sizes.values())) == 1:
        # No crash gives all files one other size: a setting was changed.
        raise ConfigError(
            "index files of another size than max_hash_slot_num and max_index_num make",
            file=str(root / names[0]),
            size=sizes[names[0]],
            expected=layout.file_size,
        )
    if not wrong:
        return names, False
    kept = names.index(wrong[0])
    for name in reversed(names[kept:]):
        reason = (
            f"keys are put again: size={sizes[name]} expected={layout.file_size} "
            f"first_wrong_file={wrong[0]}"
        )
        keep_aside(root / name, aside, reason=reason)
    return names[:kept], True


def index_file_name(milliseconds: int) -> str:
    """RocketMQ's name of a file created then: local time, to the millisecond."""
    moment = datetime.fromtimestamp(milliseconds // 1_000)
    return f"{moment:%Y%m%d%H%M%S}{milliseconds % 1_000:03d}"
