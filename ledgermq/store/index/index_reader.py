"""Key look-up in the index files of a store (``IndexService.queryOffset``).

The files are named by the local time of their creation, 17 digits, and do not say how many slots
they have. Unless it is told, the geometry is found out: with S slots and M items a file has
40 + 4*S + 20*M bytes, and only with the right S are the newest items where the header and the slots
say they are.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from ledgermq.formats.arrays import KEY_ITEM
from ledgermq.formats.index_file import (
    HEADER_SIZE,
    ITEM_SIZE,
    ITEMS_DEFAULT,
    QUERY_COUNT_MAX,
    SLOT_SIZE,
    SLOTS_DEFAULT,
    IndexHeader,
    IndexLayout,
    get_header,
    query_key,
)
from ledgermq.model.errors import ConfigError, CorruptLogError, StorageError
from ledgermq.model.limits import TIMESTAMP_MAX
from ledgermq.store.files.file_names import is_index_name, own_names

_ITEMS_CHECKED = 4_096
"""Newest items that are looked at to tell one geometry from another."""

assert KEY_ITEM.itemsize == ITEM_SIZE


class IndexReader:
    """The index files in ``directory``, which need not exist; read-only."""

    def __init__(self, directory: Path, *, layout: IndexLayout | None = None) -> None:
        """Map the files.

        Args:
            layout: what the settings say, ``None`` to find it out.

        Raises:
            CorruptLogError: a stray file, or files of different sizes.
            ConfigError: the geometry cannot be told from the files alone.
            StorageError: a file cannot be read.
        """
        self.directory = directory
        self._given = layout
        self._layout: IndexLayout | None = None
        self._files: list[tuple[Path, memoryview]] = []
        self.refresh()

    @property
    def layout(self) -> IndexLayout | None:
        """Slots and items of a file; ``None`` while no file has a key that could tell."""
        return self._layout

    @property
    def newest(self) -> IndexHeader | None:
        """Header of the newest file that has a key; ``None`` when none has."""
        layout = self._layout
        if layout is not None:
            for path, view in reversed(self._files):
                header = get_header(view, layout, file=str(path))
                if header.index_count > 1:
                    return header
        return None

    def refresh(self) -> None:
        """Look which files were created or deleted since."""
        mapped = dict(self._files)
        paths = _listed(self.directory)
        found = [(path, mapped[path] if path in mapped else _map(path)) for path in paths]
        # The writer of a new file reserves its slots, and then gives it its size.
        begun = 0 if self._given is None else self._given.item_at(0)
        self._files = [(path, view) for path, view in found if len(view) not in (0, begun)]
        if self._given is not None:
            expected = self._given.file_size
        else:
            expected = len(self._files[0][1]) if self._files else 0
        for path, view in self._files:
            if len(view) != expected:
                raise CorruptLogError(
                    "index file of another size",
                    file=str(path),
                    offset=0,
                    field="size",
                    value=len(view),
                    expected=expected,
                )
        self._layout = self._given or self._layout or _layout_of(self._files)

    def query(
        self,
        topic: str,
        key: str,
        *,
        count_max: int = QUERY_COUNT_MAX,
        begin_timestamp: int = 0,
        end_timestamp: int = TIMESTAMP_MAX,
        clock_step_ms: int = 0,
    ) -> list[int]:
        """Physical offsets of messages that may have ``key``, ascending.

        Only the key's hash is compared: who asks compares the key itself.

        Args:
            count_max: the newest are found first; RocketMQ takes no more than 64.
            begin_timestamp: oldest store time wanted, epoch ms.
            end_timestamp: newest one wanted, itself included.
            clock_step_ms: see ``query_key``.

        Raises:
            CorruptLogError: a header or a chain that cannot be.
        """
        found: list[int] = []
        layout = self._layout
        if layout is None:
            return found
        doubtful = 0
        for path, view in reversed(self._files):
            header = get_header(view, layout, file=str(path))
            is_between = _overlap(header, begin_timestamp, end_timestamp)
            if is_between or _overlap(
                header, begin_timestamp - clock_step_ms, end_timestamp + clock_step_ms
            ):
                left = count_max - len(found)
                hits = query_key(
                    view,
                    layout,
                    f"{topic}#{key}",
                    # Files of other times leave room for those that are wanted.
                    count_max=left if is_between else min(left, count_max // 2 - doubtful),
                    begin_timestamp=begin_timestamp,
                    end_timestamp=end_timestamp,
                    clock_step_ms=clock_step_ms,
                    file=str(path),
                )
                doubtful += 0 if is_between else len(hits)
                found += hits
            # A file in which nothing is yet says nothing of those before it.
            is_older = (
                header.index_count > 1 and header.begin_timestamp < begin_timestamp - clock_step_ms
            )
            if is_older or len(found) >= count_max:
                break
        return sorted(set(found))

    def newest_first(self) -> Iterator[tuple[IndexHeader, memoryview]]:
        """Header and bytes of each file; nothing while no file has a key that tells the layout.

        Raises:
            CorruptLogError: a header that cannot be.
        """
        if self._layout is not None:
            for path, view in reversed(self._files):
                yield get_header(view, self._layout, file=str(path)), view

    def close(self) -> None:
        """Let go of the maps."""
        self._files = []


def layout_of(paths: Iterable[Path]) -> IndexLayout | None:
    """Geometry of these index files, as far as they tell it; those that are gone tell nothing.

    Raises:
        ConfigError: the files fit more than one, or none.
        StorageError: a file cannot be read.
    """
    files = [(path, _map(path)) for path in paths]
    return _layout_of([(path, view) for path, view in files if len(view)])


def _overlap(header: IndexHeader, begin: int, end: int) -> bool:
    return begin <= header.end_timestamp and end >= header.begin_timestamp


def _listed(directory: Path) -> list[Path]:
    try:
        return [directory / name for name in own_names(directory, is_index_name)]
    except OSError as error:
        raise StorageError.of("index not read", error, directory=directory) from error


def _map(path: Path) -> memoryview:
    """The file's content; empty as long as its writer has not extended it."""
    try:
        with path.open("rb") as file:
            if not path.stat().st_size:
                return memoryview(b"")
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except FileNotFoundError:
        return memoryview(b"")
    except OSError as error:
        raise StorageError.of("index file not mapped", error, file=path) from error


def _layout_of(files: list[tuple[Path, memoryview]]) -> IndexLayout | None:
    """The only geometry that fits all files; the default one wherever the size is its size."""
    if not files:
        return None
    default = IndexLayout(slots=SLOTS_DEFAULT, items=ITEMS_DEFAULT)
    if len(files[0][1]) == default.file_size:
        return default
    used = [view for _, view in files if int.from_bytes(view[36:40], "big") > 1]
    if not used:
        return None
    # The file with most keys leaves the fewest candidates.
    used.sort(key=lambda view: int.from_bytes(view[36:40], "big"), reverse=True)
    fitting = [
        layout
        for layout in _candidates(used[0])
        if all(_fits(view, layout, file="") for view in used)
    ]
    if len(fitting) == 1:
        return fitting[0]
    raise ConfigError(
        "number of slots of the index files cannot be told: say it"
        if fitting
        else "index files fit no number of slots",
        file=str(files[0][0]),
        size=len(files[0][1]),
        slots=[layout.slots for layout in fitting[:8]],
        setting="store.max_hash_slot_num",
    )


def _candidates(view: memoryview) -> Iterator[IndexLayout]:
    """Geometries with which the newest item names the position that the header has for it."""
    if len(view) % SLOT_SIZE:
        # A file that was cut: slots and items are words.
        return
    numbers = np.frombuffer(view, ">u4")
    space = len(view) - HEADER_SIZE
    number = int.from_bytes(view[36:40], "big") - 1
    # Words of the last position, upper half first, at the same place modulo a word everywhere.
    high, low = int(numbers[6]), int(numbers[7])
    at = np.flatnonzero((numbers[:-1] == high) & (numbers[1:] == low)) * SLOT_SIZE
    slots = (at - 4 - ITEM_SIZE * number - HEADER_SIZE) // SLOT_SIZE
    left = space - SLOT_SIZE * slots
    for count in slots[(slots > 0) & (left > ITEM_SIZE * number) & (left % ITEM_SIZE == 0)]:
        yield IndexLayout(slots=int(count), items=(space - SLOT_SIZE * int(count)) // ITEM_SIZE)


def _fits(view: memoryview, layout: IndexLayout, *, file: str) -> bool:
    """Whether the newest items of a file hang in the slots where this geometry has them."""
    count = int.from_bytes(view[36:40], "big")
    if count > layout.items or int.from_bytes(view[32:36], "big") > layout.slots:
        return False
    header = get_header(view, layout, file=file)
    first = max(1, count - _ITEMS_CHECKED)
    items = np.frombuffer(view, KEY_ITEM, count - first, layout.item_at(first))
    if not (
        (items["hash"] >= 0).all()
        and (items["seconds"] >= 0).all()
        and (items["position"] >= 0).all()
        and (items["position"] <= header.end_physical_offset).all()
    ):
        return False
    slots = np.frombuffer(view, ">i4", layout.slots, HEADER_SIZE)
    newest: dict[int, int] = {}
    for number, item in enumerate(items.tolist(), first):
        slot, previous = item[0] % layout.slots, item[3]
        before = newest.get(slot, previous if previous < first else -1)
        if previous != before:
            return False
        newest[slot] = number
    return all(int(slots[slot]) == number for slot, number in newest.items())
