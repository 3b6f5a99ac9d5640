"""Look-up of resent messages among the last bytes of the log, by unique id.

A producer that was cut off does not know what became of its unanswered frames, and sends them
again. Those are looked up among the last messages of the log: as many bytes as clients may have had
in flight. A leader extends its table when the first such frame comes, and takes older messages from
the log's end backwards as far as is needed. A follower keeps up with what is appended: when it
leads all of a sudden, everybody sends again at once, and waits for that table.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from struct import Struct
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from ledgermq.formats.java_hash import index_key_hash
from ledgermq.formats.records.message import (
    BORN_HOST_AT,
    MAGICS,
    PHYSICAL_OFFSET_AT,
    QUEUE_OFFSET_AT,
    SYS_FLAG_AT,
    WORD,
    decode_message,
    store_fields_at,
)
from ledgermq.model.errors import AttemptUnknownError, CorruptLogError
from ledgermq.model.ids import Position
from ledgermq.store.files.file_names import file_name
from ledgermq.store.log.verified_span import check_one, check_span
from ledgermq.store.queues.dispatch_tables import DispatchTables
from ledgermq.writer.log.log_ids import is_older

assert PHYSICAL_OFFSET_AT == QUEUE_OFFSET_AT + 8
assert SYS_FLAG_AT == PHYSICAL_OFFSET_AT + 8

STEP_SIZE = 8 * 1024 * 1024
STEP_GROWTH = 4
"""Factor by which each further step back in the log is longer when something is not found; the
first step is ``STEP_SIZE`` bytes."""

SORTED_PARTS_MAX = 8
"""Most sorted parts that are searched one after the other before they become one."""

CANDIDATES_MAX = 4_096
"""Most messages that are compared with one."""

NOTHING = memoryview(b"")

FOLLOW_SIZE = 1024 * 1024
"""A follower takes so much at a time: a scan that short costs as little a message as a long one."""


class MessageKey(NamedTuple):
    """What a message is known by: its topic and its unique id."""

    topic: str
    unique_id: str


class StoredMessage(NamedTuple):
    """Where a message stands: queue, queue offset and physical offset; and since when, epoch ms."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    store_timestamp: int


class _Part(NamedTuple):
    """Hashes of the keys of messages, ascending, and the position of the record of each.

    The messages are those before ``end``, back to the part before.
    """

    hashes: npt.NDArray[np.int32]
    positions: npt.NDArray[np.int64]
    end: int


class RecentMessages:
    """Table of the messages between two positions of the log; owned by the writer.

    Invariant: ``_low <= _end``, and the table has every message between them.

    It holds 12 bytes a key: the hash that the index has, too, and where the record begins. What is
    found by it is read from the log and compared.
    """

    def __init__(
        self,
        directory: Path,
        *,
        file_size: int,
        header_size: int,
        first: int,
        window: int,
        end: Position,
        entry_before: Callable[[int], int],
    ) -> None:
        """An empty table.

        Args:
            directory: the log's files.
            first: where the log begins.
            window: bytes before the end of the log in which messages are looked for.
            end: the log's end; what comes behind it is taken by ``extend`` and ``follow``.
            entry_before: where an entry begins, at or before a position that the log has.
        """
        self._directory = directory
        self._file_size = file_size
        self._header_size = header_size
        self._first = first
        self._window = window
        self._begin = max(first, end - window)
        self._low = self._end = int(end)
        self._entry_before = entry_before
        self._step = STEP_SIZE
        self._parts: list[_Part] = []
        # Made when it is used first, and kept: a follower scans each megabyte by itself.
        self._tables: DispatchTables | None = None

    def extend(self, end: Position) -> None:
        """Take the messages up to ``end``, the log's end.

        What is new in the table is compared with its checksums first.

        Raises:
            CorruptLogError: the log cannot be read there.
        """
        self._extend(end, is_fresh=False)

    def _extend(self, end: Position, *, is_fresh: bool) -> None:
        if end - self._end > self._window:
            # Nobody has asked for long: what is needed of it is taken from the end backwards.
            self._parts.clear()
            self._low = self._end = int(end)
            self._step = STEP_SIZE
        elif self._end < end:
            self._parts.append(self._scan(self._end, end, is_fresh=is_fresh))
            self._end = int(end)
        self._forget_early(end)

    def _forget_early(self, end: Position) -> None:
        """Let go of what is before the window."""
        self._begin = max(self._first, end - self._window)
        gone = 0
        while gone < len(self._parts) and self._parts[gone].end <= self._begin:
            self._low = self._parts[gone].end
            gone += 1
        del self._parts[:gone]

    def follow(self, end: Position, entries: memoryview = NOTHING) -> None:
        """Take what was written up to ``end``, in steps that are worth it: the table may lag behind
        by one.

        To be called when the messages were just written, by this process: they are not compared
        again.

        Args:
            entries: the last bytes before ``end``, of one file: many need not be read again.

        Raises:
            CorruptLogError: the log cannot be read there.
        """
        begin = end - len(entries)
        if begin == self._end and len(entries) >= FOLLOW_SIZE // 2:
            parts = list(self._scan_file(self._columns(), entries, begin, 0))
            self._parts.append(_sorted(parts, end))
            self._end = int(end)
            self._forget_early(end)
        elif end - self._end >= FOLLOW_SIZE:
            self._extend(end, is_fresh=True)

    def forget_before(self, position: int) -> None:
        """The log is about to begin at ``position``: what was before is not looked for any more."""
        self._first = max(self._first, position)
        self._begin = max(self._begin, position)
        self._parts = [_since(part, position) for part in self._parts if part.end > position]
        # A follower's table lags behind the log: what it has not taken may be gone, too.
        self._end = max(self._end, position)
        self._low = min(max(self._low, position), self._end)

    @property
    def begin(self) -> int:
        """What stands before it is not looked at."""
        return self._begin

    def begins_before(self, time_ms: int) -> bool:
        """Whether all messages are looked at that were stored at a time or later.

        Raises:
            CorruptLogError: the log cannot be read there.
        """
        if not self._begin:
            return True
        begin = self._entry_before(self._begin)
        if not self._first <= begin < self._end:
            return False
        start = begin - begin % self._file_size
        with self._mapped(start) as view:
            return is_older(view, begin - start + self._header_size, time_ms)

    def find(
        self, keys: Sequence[MessageKey], records: Sequence[memoryview] = ()
    ) -> list[StoredMessage | None]:
        """The last message of each key.

        Most that are asked for are near the log's end: what is further back is taken when one is
        not found.

        Args:
            records: one for each key: the messages as clients send them. Then the last one counts
                that is the very same: applications give ids, too, and others may have this one.

        Raises:
            AttemptUnknownError: too many messages have the key.
            CorruptLogError: the log cannot be read there.
        """
        if len(self._parts) > SORTED_PARTS_MAX:
            self._parts = [_since(_sorted(self._parts, self._end), self._begin)]
            self._low = max(self._low, self._begin)
        found = self._find_in(self._parts, keys, records)
        while self._low > self._begin:
            missing = [row for row, key in enumerate(keys) if key.unique_id and found[row] is None]
            if not missing:
                break
            older = self._take_older()
            again = self._find_in(
                [older],
                [keys[row] for row in missing],
                [records[row] for row in missing] if records else (),
            )
            for row, stored in zip(missing, again, strict=True):
                found[row] = stored
        return found

    def _take_older(self) -> _Part:
        """Take some more of what is before the table."""
        target = max(self._begin, self._low - self._step)
        begin = self._entry_before(target)
        if begin > target:
            # The log begins there by now.
            self._begin = begin
        part = self._scan(begin, self._low, is_fresh=False)
        self._step *= STEP_GROWTH
        self._low = begin
        self._parts.insert(0, part)
        return part

    def _find_in(
        self, parts: Sequence[_Part], keys: Sequence[MessageKey], records: Sequence[memoryview]
    ) -> list[StoredMessage | None]:
        found: list[StoredMessage | None] = [None] * len(keys)
        candidates = sorted(
            (position, number)
            for number, key in enumerate(keys)
            if key.unique_id
            for position in _candidates(parts, key)
        )
        at = 0
        while at < len(candidates):
            start = candidates[at][0] - candidates[at][0] % self._file_size
            with self._mapped(start) as view:
                while at < len(candidates) and candidates[at][0] < start + self._file_size:
                    position, number = candidates[at]
                    record = position - start
                    self._check(view, record, start)
                    place = _read(view, record, keys[number])
                    if place is not None and records:
                        with view[record : record + len(records[number])] as stored:
                            if not _is_stamped(
                                stored, records[number], place.queue_offset, position
                            ):
                                place = None
                    # Positions ascend: the last message that counts stays.
                    found[number] = place or found[number]
                    at += 1
        return found

    def count_behind(self, place: StoredMessage, size: int, messages: Iterable[memoryview]) -> int:
        """How many of ``messages`` follow the one at ``place``, in the log and in its queue.

        They are as clients send them: what only the leader knows is not compared.

        Args:
            size: of the message at ``place``.
        """
        start = place.physical_offset - place.physical_offset % self._file_size
        at = place.physical_offset - start + size
        count = 0
        with self._mapped(start) as view:
            for message in messages:
                at += self._header_size
                with view[at : at + len(message)] as stored:
                    if not _is_stamped(stored, message, place.queue_offset + count + 1, start + at):
                        self._check(view, at, start)
                        break
                at += len(message)
                count += 1
        return count

    def _check(self, view: memoryview, at: int, start: int) -> None:
        """Compare the record at ``at`` of the file at ``start``, if one can begin there.

        Behind the log's end, and where a file ends, there is none.

        Raises:
            CorruptLogError: it is not what was written.
        """
        at -= self._header_size
        if not 0 <= start + at < self._end or at + WORD.size > len(view):
            return
        if self._header_size:
            # DLedger's blank entry (magic -1) fills a file up, and has no checksum.
            if WORD.unpack_from(view, at)[0] != _ONES:
                check_one(view, at, base=start)
            return
        size = WORD.unpack_from(view, at)[0]
        if at + 2 * WORD.size > len(view) or WORD.unpack_from(view, at + 4)[0] not in MAGICS:
            return
        check_span(view, at, min(at + size, len(view)), header_size=0, base=start)

    def _scan(self, begin: int, end: int, *, is_fresh: bool) -> _Part:
        """The messages between two positions where entries begin."""
        tables = self._columns()
        parts: list[_Part] = []
        at = begin
        while at < end:
            start = at - at % self._file_size
            high = min(end - start, self._file_size)
            with self._mapped(start) as view, view[:high] as span:
                if not is_fresh:
                    check_span(view, at - start, high, header_size=self._header_size, base=start)
                parts += self._scan_file(tables, span, start, at - start)
            at = start + high
        return _sorted(parts, end)

    def _columns(self) -> DispatchTables:
        if self._tables is None:
            self._tables = DispatchTables((0,), with_keys=True)
        return self._tables

    def _scan_file(
        self, tables: DispatchTables, span: memoryview, base: int, at: int
    ) -> Iterator[_Part]:
        while at < len(span):
            count, reached, _ = tables.scan(
                span, at, len(span), header_size=self._header_size, base=base
            )
            if reached == at:
                raise CorruptLogError("record not whole", position=base + at)
            at = reached
            for portion in tables.portions(span, base, count):
                positions = tables.positions[portion.keys.rows]
                yield _Part(portion.keys.hashes.copy(), positions, reached)

    @contextmanager
    def _mapped(self, start: int) -> Iterator[memoryview]:
        """The file that begins at ``start``, not longer than needed: it may be deleted one day."""
        with (self._directory / file_name(start)).open("rb") as file:
            map_ = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        with map_, memoryview(map_) as view:
            yield view


def _is_stamped(stored: memoryview, message: memoryview, queue_offset: int, position: int) -> bool:
    """Whether ``stored`` is ``message`` with this queue offset at this position of the log."""
    if len(stored) != len(message) or stored[:QUEUE_OFFSET_AT] != message[:QUEUE_OFFSET_AT]:
        return False
    if _OFFSETS.unpack_from(stored, QUEUE_OFFSET_AT) != (queue_offset, position):
        return False
    if stored[SYS_FLAG_AT:BORN_HOST_AT] != message[SYS_FLAG_AT:BORN_HOST_AT]:
        return False
    store_timestamp, behind_store_host = store_fields_at(message)
    return (
        stored[BORN_HOST_AT:store_timestamp] == message[BORN_HOST_AT:store_timestamp]
        and stored[behind_store_host:] == message[behind_store_host:]
    )


def _read(view: memoryview, at: int, key: MessageKey) -> StoredMessage | None:
    """Where the message at ``at`` stands if it has this key; nothing of ``view`` is kept."""
    message = decode_message(view, at, check_crc=False)
    if (message.topic, message.unique_id) != key:
        return None
    return StoredMessage(
        message.topic,
        message.queue_id,
        message.queue_offset,
        message.physical_offset,
        message.store_timestamp,
    )


_OFFSETS = Struct(">qq")
_ONES = 0xFFFF_FFFF
_SIDES: tuple[Literal["left", "right"], ...] = ("left", "right")


def _candidates(parts: Sequence[_Part], key: MessageKey) -> Iterator[int]:
    wanted = index_key_hash(f"{key.topic}#{key.unique_id}")
    count = 0
    for part in parts:
        first, last = (int(np.searchsorted(part.hashes, wanted, side)) for side in _SIDES)
        count += last - first
        if count > CANDIDATES_MAX:
            raise AttemptUnknownError(
                "more messages have this unique id than are compared",
                unique_id=key.unique_id,
                limit=CANDIDATES_MAX,
            )
        yield from part.positions[first:last].tolist()


def _sorted(parts: Sequence[_Part], end: int) -> _Part:
    if not parts:
        return _Part(np.empty(0, np.int32), np.empty(0, np.int64), end)
    hashes = np.concatenate([part.hashes for part in parts])
    positions = np.concatenate([part.positions for part in parts])
    order = np.argsort(hashes)
    return _Part(hashes[order], positions[order], end)


def _since(part: _Part, begin: int) -> _Part:
    """What is not before ``begin``."""
    kept = part.positions >= begin
    return _Part(part.hashes[kept], part.positions[kept], part.end)
