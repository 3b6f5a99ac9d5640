"""Check of the Index: chains of each file against its items, and items against the log.

An item is a function of a message and of the items before it, so both directions can be compared
exactly: ``check_index_file`` looks at one file alone, ``KeyComparison`` at the items of the
messages of one log file.
"""

from __future__ import annotations

import mmap
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ledgermq.formats.arrays import I64, KEY_ITEM
from ledgermq.formats.findings import FINDINGS_MAX, REBUILD, Finding, Severity
from ledgermq.formats.index_file import (
    HEADER_SIZE,
    ITEM_SIZE,
    SLOT_SIZE,
    TIME_DIFFERENCE_MAX,
    IndexHeader,
    IndexLayout,
    get_header,
)
from ledgermq.model.errors import ConfigError, CorruptLogError
from ledgermq.repair.check.file_family import derived, first_nonzero
from ledgermq.store.files.file_names import is_index_name, own_names
from ledgermq.store.index.index_files import NewKeys
from ledgermq.store.index.index_reader import layout_of

_ATTEMPTS_MAX = 10
_PAUSE_S = 0.02
KEYS_HELD_MAX = 400_000


def index_files(folder: Path) -> list[Path]:
    """The index files in ``folder``, which need not exist, oldest first."""
    return [folder / name for name in own_names(folder, is_index_name)]


def find_geometry(folder: Path, *, is_open: bool) -> IndexLayout | Finding | None:
    """The geometry of all index files in ``folder``, or why they cannot be compared.

    ``None`` while no file has a key: they have nothing that could be compared.

    Args:
        is_open: a node may be writing to the newest file, and put keys again that a crash has
            taken from the others. When the newest alone has keys, and cannot be understood however
            often it is read, that is noted, and no fault.

    Raises:
        StorageError: a file cannot be read.
    """
    for attempt in range(_ATTEMPTS_MAX if is_open else 1):
        if attempt:
            time.sleep(_PAUSE_S)
        paths = index_files(folder)
        settled, newest = (paths[:-1], paths[-1:]) if is_open else (paths, ())
        severity, why = Severity.DERIVED, ""
        try:
            layout = layout_of(settled)
            severity, why = Severity.NOTE, "the only one with keys is being written"
            return layout_of(newest) if layout is None else layout
        except (ConfigError, CorruptLogError) as error:
            why = why or error.message
    return _not_compared(severity, why)


def _not_compared(severity: Severity, why: str) -> Finding:
    remedy = "say --hash-slots and --index-items, or " + REBUILD
    return Finding(severity, "index", None, f"index files not compared: {why}", remedy=remedy)


assert KEY_ITEM.itemsize == ITEM_SIZE


class IndexSummary(NamedTuple):
    """What other checks need of one index file.

    Attributes:
        name: path below the store's folder.
        before: ``end_timestamp`` of the file before, None when that is not there any more.
        growing: whether keys may be put into it at this moment.
    """

    path: str
    name: str
    header: IndexHeader
    before: int | None
    growing: bool


class _Rows(NamedTuple):
    positions: I64
    hashes: I64
    times: I64


class _Items(NamedTuple):
    """Items of one file; ``first`` is the number of the first one."""

    summary: IndexSummary
    first: int
    items: npt.NDArray[np.void]


class IndexTask(NamedTuple):
    """One index file to be looked at; ``name`` is its path below the store's folder."""

    path: Path
    name: str
    layout: IndexLayout


def read_header(task: IndexTask, *, again: bool = False) -> IndexHeader | Finding:
    """The header of a file of the right size, or what is wrong with it.

    ``again``: it may be written at this moment; what is wrong is wrong twice.
    """
    with task.path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as map_:
        page = memoryview(map_)
        try:
            return get_header(page, task.layout, file=task.name)
        except CorruptLogError as error:
            if again:
                return read_header(task)
            offset = int(str(error.details["offset"]))
            return derived(task.name, offset, error.message, None, error.details.get("value"))
        finally:
            page.release()


def check_index_file(task: IndexTask) -> list[Finding]:
    """Slots, chains and the unused rest of a file whose header can be believed.

    Nothing of one that is gone: a node deletes old ones, and replaces all with its log.
    """
    path, name, layout = task
    try:
        return _check_content(path, name, layout)
    except FileNotFoundError:
        return []


def _check_content(path: Path, name: str, layout: IndexLayout) -> list[Finding]:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as map_:
        page = memoryview(map_)
        try:
            header = get_header(page, layout, file=name)
            findings = _check_chains(page, layout, header, name)
        finally:
            page.release()
        for first, end, text in (
            (0, 1, "item 0, which is never used, is not zero"),
            (header.index_count, layout.items, "bytes behind the last item"),
        ):
            stray = first_nonzero(file.fileno(), layout.item_at(first), layout.item_at(end))
            if stray is not None:
                findings.append(derived(name, stray, text))
    return findings


def _check_chains(
    page: memoryview, layout: IndexLayout, header: IndexHeader, name: str
) -> list[Finding]:
    count = header.index_count - 1
    slots = np.frombuffer(page, ">i4", layout.slots, HEADER_SIZE)
    items = np.frombuffer(page, KEY_ITEM, count, layout.item_at(1))
    hashes = items["hash"].astype(np.int64)
    slot_of = np.where(hashes >= 0, hashes, 0) % layout.slots
    order = np.argsort(slot_of, kind="stable")
    numbers = order + 1
    same_as_before = np.concatenate(([False], slot_of[order][1:] == slot_of[order][:-1]))[:count]
    previous = np.zeros(count, np.int64)
    previous[order] = np.where(same_as_before, np.concatenate(([0], numbers[:-1]))[:count], 0)
    heads = np.zeros(layout.slots, np.int64)
    heads[slot_of] = np.arange(1, count + 1)
    findings = []
    for field, at, wrong in (
        ("previous item", 16, np.flatnonzero(items["previous"] != previous)),
        ("key hash", 0, np.flatnonzero(hashes < 0)),
        ("position", 4, np.flatnonzero(np.diff(items["position"].astype(np.int64)) < 0) + 1),
    ):
        findings += [
            derived(name, layout.item_at(number + 1) + at, f"{field} of an item is wrong")
            for number in wrong[:FINDINGS_MAX].tolist()
        ]
    findings += [
        derived(
            name,
            HEADER_SIZE + SLOT_SIZE * number,
            "slot does not name the newest item of its chain",
            int(heads[number]),
            int(slots[number]),
        )
        for number in np.flatnonzero(slots != heads)[:FINDINGS_MAX].tolist()
    ]
    used = int(np.count_nonzero(heads))
    if header.slot_count != used:
        findings.append(derived(name, 32, "slot count is wrong", used, header.slot_count))
    return findings + _check_stamps(items, header, name)


def _check_stamps(items: npt.NDArray[np.void], header: IndexHeader, name: str) -> list[Finding]:
    """Begin and end, as far as the items know them; times are compared by ``KeyComparison``."""
    if not len(items):
        return []
    findings = []
    for field, at, number, said in (
        ("begin", 16, 0, header.begin_physical_offset),
        ("end", 24, -1, header.end_physical_offset),
    ):
        position = int(items["position"][number])
        if position != said:
            text = f"{field} position is not that of the item"
            findings.append(derived(name, at, text, position, said))
    return findings


class KeyComparison:
    """Compares keys of messages, in the order of the log, with the items that the index has."""

    def __init__(
        self,
        files: list[IndexSummary],
        layout: IndexLayout,
        *,
        first: int,
        required_end: int,
        damaged: Sequence[tuple[int, int]],
        is_tag_item: Callable[[int, int], bool],
    ) -> None:
        """Nothing is read yet.

        Args:
            files: all index files that can be believed, oldest first.
            first: position of the first message that will come.
            required_end: messages from this position on need not have items yet.
            damaged: spans of the log without a whole record, which may grow in the meantime.
            is_tag_item: whether position and hash are those of an item that RocketMQ 5 writes for
                a tag: such a one is sound where others have none, and may be missing.
        """
        self._files = files
        self._layout = layout
        self._done = first
        self._damaged = damaged
        self._is_tag_item = is_tag_item
        self._required_end = required_end
        self._held: list[_Rows] = []
        self._held_count = 0
        self._maps: dict[str, npt.NDArray[np.void]] = {}
        self.findings: list[Finding] = []
        self.missing = 0

    def add(self, keys: NewKeys) -> None:
        """Take the keys of some messages."""
        rows = _Rows(
            keys.positions[keys.rows],
            keys.hashes.astype(np.int64),
            keys.store_times[keys.rows],
        )
        self._held.append(rows)
        self._held_count += len(rows.hashes)
        if self._held_count >= KEYS_HELD_MAX:
            self._compare(int(rows.positions[-1]) + 1)

    def finish(self, end: int) -> None:
        """Compare what is left, up to position ``end``, where no message is any more."""
        self._compare(end)
        self._maps.clear()

    def _compare(self, until: int) -> None:
        held, self._held, self._held_count = self._held, [], 0
        begin, self._done = self._done, until
        columns = [np.concatenate(column) for column in zip(*held, strict=True)] if held else []
        rows = _Rows(*columns) if columns else _Rows(*(np.empty(0, np.int64) for _ in range(3)))
        due = int(np.searchsorted(rows.positions, self._required_end))
        rows = _Rows(*(column[:due] for column in rows))
        try:
            items = self._items_of(begin, min(until, self._required_end))
        except FileNotFoundError:
            # The node that runs has deleted a file, or replaced all: there is nothing to compare.
            return
        found = np.concatenate([part.items for part in items]) if items else np.empty(0, KEY_ITEM)
        if (
            len(found) == len(rows.hashes)
            and (found["position"] == rows.positions).all()
            and (found["hash"] == rows.hashes).all()
        ):
            self._compare_times(rows, items)
            return
        self._name_differences(rows, items)

    def _items_of(self, begin: int, end: int) -> list[_Items]:
        """The items of messages in ``[begin, end)``, file by file."""
        parts = []
        for summary in self._files:
            header = summary.header
            if header.end_physical_offset < begin or header.begin_physical_offset >= end:
                continue
            items = self._mapped(summary)
            first, last = _count_below(items, begin), _count_below(items, end)
            if first < last:
                parts.append(_Items(summary, first + 1, items[first:last]))
        return parts

    def _mapped(self, summary: IndexSummary) -> npt.NDArray[np.void]:
        items = self._maps.get(summary.path)
        if items is None:
            with Path(summary.path).open("rb") as file:
                map_ = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            count = summary.header.index_count - 1
            items = np.frombuffer(map_, KEY_ITEM, count, self._layout.item_at(1))
            self._maps[summary.path] = items
        return items

    def _compare_times(self, rows: _Rows, items: list[_Items]) -> None:
        """Seconds of the items, and the two times of the header, of which items know less."""
        done = 0
        for summary, first, part in items:
            times = rows.times[done : done + len(part)]
            done += len(part)
            header = summary.header
            begins = np.full(len(part), header.begin_timestamp)
            if first == 1:
                # Measured before the begin was set: against the end of the file before.
                begins[0] = header.begin_timestamp if summary.before is None else summary.before
                self._compare_stamp(summary, 0, int(times[0]), header.begin_timestamp)
            milliseconds = np.clip(times - begins, 0, None)
            seconds = np.where(
                begins > 0, np.minimum(milliseconds // 1_000, TIME_DIFFERENCE_MAX), 0
            )
            wrong = part["seconds"] != seconds
            if first == 1 and summary.before is None:
                wrong[0] = False
            for number in np.flatnonzero(wrong)[:FINDINGS_MAX].tolist():
                at = self._layout.item_at(first + number) + 12
                self._add(
                    summary,
                    at,
                    "time of an item is wrong",
                    int(seconds[number]),
                    int(part["seconds"][number]),
                )
            if first + len(part) == header.index_count and not summary.growing:
                # A file whose slots were repaired knows its end by the second.
                repaired = header.begin_timestamp + int(seconds[-1]) * 1_000 + 999
                if header.end_timestamp != repaired:
                    self._compare_stamp(summary, 8, int(times[-1]), header.end_timestamp)

    def _compare_stamp(self, summary: IndexSummary, at: int, expected: int, found: int) -> None:
        if expected != found:
            self._add(summary, at, "time of the header is wrong", expected, found)

    def _name_differences(self, rows: _Rows, items: list[_Items]) -> None:
        wanted = Counter(zip(rows.positions.tolist(), rows.hashes.tolist(), strict=True))
        for summary, first, part in items:
            pairs = zip(part["position"].tolist(), part["hash"].tolist(), strict=True)
            for number, pair in enumerate(pairs, first):
                if wanted[pair]:
                    wanted[pair] -= 1
                elif not self._is_damaged(pair[0]) and not self._is_tag_item(*pair):
                    at = self._layout.item_at(number)
                    self._add(summary, at, "item of a key that its message does not have")
        self.missing += sum(
            count for pair, count in wanted.items() if count and not self._is_tag_item(*pair)
        )

    def _is_damaged(self, position: int) -> bool:
        return any(begin <= position < end for begin, end in self._damaged)

    def _add(
        self,
        summary: IndexSummary,
        at: int,
        what: str,
        expected: object = None,
        found: object = None,
    ) -> None:
        if len(self.findings) < FINDINGS_MAX:
            self.findings.append(derived(summary.name, at, what, expected, found))


def _count_below(items: npt.NDArray[np.void], position: int) -> int:
    low, high = 0, len(items)
    while low < high:
        middle = (low + high) // 2
        if int(items[middle]["position"]) < position:
            low = middle + 1
        else:
            high = middle
    return low
