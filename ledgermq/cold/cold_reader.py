"""Reader of pieces: answers to questions for messages, by several threads at once.

No message is passed over. That one is in no piece is said only by a manifest that was read after it
was asked for: the log has it no more, so it was sealed before, if it ever was. A part that is not
what was sealed is read once more from the place, and then named.
"""

from __future__ import annotations

import logging
import time
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from threading import Lock
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ledgermq.broker.reading.property_scan import sql_filter
from ledgermq.cold.watched_place import WatchedPlace
from ledgermq.formats.java_hash import java_hash
from ledgermq.formats.records.inner_batch import PACKED_MAX, flags_in, is_packed, single_records
from ledgermq.formats.records.message import decode_message, properties_in
from ledgermq.formats.records.properties import TAGS, decode_properties
from ledgermq.ipc.counters import ColdCounter
from ledgermq.model.errors import (
    CorruptLogError,
    DamagedLogError,
    LedgerError,
    MessageUnknownError,
    StorageError,
)
from ledgermq.model.names.queue_name import QueueName
from ledgermq.model.units import MIB
from ledgermq.pipeline.pieces.cold_queues import ColdQueues
from ledgermq.pipeline.pieces.log_columns import LOG_COLUMNS, log_bytes
from ledgermq.pipeline.pieces.piece_file import PieceFile, PieceRecord
from ledgermq.pipeline.pieces.piece_footer import SealedRun
from ledgermq.pipeline.pieces.piece_manifest import PieceManifest, PieceRow
from ledgermq.pipeline.pieces.shared_cache import SharedCache
from ledgermq.pipeline.pieces.topic_keys import unlocking_key
from ledgermq.wire.cold_frames import (
    RECORDS_SIZE_MAX,
    RETRY_AFTER_MS,
    AnyQuestion,
    ColdHits,
    ColdNothing,
    ColdOffset,
    ColdQuestion,
    ColdRecords,
    ColdSearch,
    ColdSince,
)

logger = logging.getLogger(__name__)

PIECES_SEARCHED_MAX = 256
"""Two requests or more each; who wants older messages asks for those before a time."""


def search(queues: ColdQueues, asked: ColdSearch) -> ColdHits:
    """The messages that are asked for.

    Raises:
        CorruptLogError, StorageError: as ``ColdQueues.read``.
    """
    if asked.position >= 0:
        found = queues.at(asked.position)
        return _hits(asked, [] if found is None else [found.record], has_more=False)
    records: list[bytes] = []
    size = 0
    rows = [row for row in reversed(queues.manifest.rows) if _may_have(row, asked)]
    for row in rows[:PIECES_SEARCHED_MAX]:
        for record in _newest_first(queues, row, asked):
            size += len(record)
            if len(records) == asked.messages_max or (records and size > RECORDS_SIZE_MAX):
                return _hits(asked, records, has_more=True)
            records.append(record)
    return _hits(asked, records, has_more=len(rows) > PIECES_SEARCHED_MAX)


def _may_have(row: PieceRow, asked: ColdSearch) -> bool:
    """Whether a piece has messages of the topic and of the time that the log may lack."""
    return row.start < asked.before and any(
        one.min_ms <= asked.end_ms and asked.begin_ms <= one.max_ms
        for one in row.queues.get(asked.topic, ())
    )


def _newest_first(queues: ColdQueues, row: PieceRow, asked: ColdSearch) -> Iterator[bytes]:
    found: list[PieceRecord] = list(queues.piece(row).with_key(asked.topic, asked.key))
    for one in sorted(found, reverse=True):
        stored_ms = decode_message(memoryview(one.record)).store_timestamp
        if one.position < asked.before and asked.begin_ms <= stored_ms <= asked.end_ms:
            yield one.record


def _hits(asked: ColdSearch, newest_first: list[bytes], *, has_more: bool) -> ColdHits:
    records = newest_first[::-1]
    sizes = array("I", map(len, records))
    return ColdHits(asked.number, has_more, sizes.tobytes(), b"".join(records))


RANGES_BYTES = 16 * MIB
"""Bytes of row groups and footers as they are stored that stay in memory: the disk has more."""

GROUPS_BYTES = 64 * MIB
"""Bytes of row groups of which the records were made: a queue is read by many pulls of each."""

AHEAD_KEPT = 1_024
"""Stretches that were read ahead, of which it is remembered, so that each is once."""

MESSAGES_LOOKED_AT = 2_048
"""Messages that are taken out of records of several for one answer, where some are wanted."""

_TAG_HASHES = 2**32

Found = TypeVar("Found")
Wanted = npt.NDArray[np.bool_]


class _Group(NamedTuple):
    """A row group as it is in the log.

    Attributes:
        ends: where the records end in ``octets``, with the headers of their entries before them;
            the first one is where the first record begins.
        offsets: queue offset of each.
    """

    ends: npt.NDArray[np.int64]
    octets: memoryview
    tags: pa.Array
    offsets: npt.NDArray[np.int64]

    @property
    def weight(self) -> int:
        """Bytes that it takes."""
        numbers = self.ends.nbytes + self.offsets.nbytes
        return len(self.octets) + numbers + int(self.tags.nbytes)


class _Rows(NamedTuple):
    """Records of a queue in a row group, one behind the other.

    Attributes:
        ends, offsets: as those of the group.
        header: bytes before each record that are its entry's.
    """

    octets: memoryview
    ends: npt.NDArray[np.int64]
    tags: pa.Array
    header: int
    offsets: npt.NDArray[np.int64]

    @property
    def sizes(self) -> npt.NDArray[np.int64]:
        """Sizes of the records without the headers."""
        found: npt.NDArray[np.int64] = np.diff(self.ends) - self.header
        return found


class ColdReader:
    """Owned by the process; see the module.

    Attributes:
        begins: first offset of each queue in the pieces, by the manifest that was read last; None
            before any was.
    """

    def __init__(
        self,
        place: WatchedPlace,
        check: Callable[[PieceManifest], None] = lambda _manifest: None,
        *,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """Nothing is read yet.

        Args:
            check: refuses the pieces of another log.
        """
        self._place = place
        self._check = check
        self._monotonic_ns = monotonic_ns
        self._queues: ColdQueues | None = None
        self._groups: SharedCache[tuple[str, int], _Group] = SharedCache(
            GROUPS_BYTES, lambda group: group.weight
        )
        self._refreshing = Lock()
        self._read_ns = -1
        self._ahead: OrderedDict[tuple[str, int], None] = OrderedDict()
        self.begins: Mapping[QueueName, int] | None = None

    @property
    def read_ns(self) -> int:
        """When the manifest was read last; -1: never, or it was a copy."""
        return self._read_ns

    def refresh(self, since_ns: int) -> ColdQueues:
        """The queues by a manifest that was read at ``since_ns`` of the monotonic clock, or later.

        Raises:
            ConfigError, CorruptLogError, StorageError: the manifest cannot be read, or is of
                another log.
        """
        with self._refreshing:
            queues = self._queues
            if queues is not None and self._read_ns >= since_ns:
                return queues
            began_ns = self._monotonic_ns()
            known = None if queues is None else queues.manifest
            self._place.may_use_copy = queues is None
            if queues is None:
                queues = ColdQueues(self._place, cache_bytes=RANGES_BYTES)
            else:
                queues.refresh()
            try:
                self._check(queues.manifest)
            except LedgerError:
                # Nothing is believed of what was just read.
                self._queues, self.begins, self._read_ns = None, None, -1
                raise
            if queues.manifest != known and not self._place.is_copy:
                self._place.keep(queues.manifest)
                names = {self._place.as_text(row.name) for row in queues.manifest.rows}
                self._groups.forget(lambda key: key[0] not in names)
            self.begins = {name: bounds.first for name, bounds in queues.queues().items()}
            self._queues = queues
            # Of a copy nobody knows how old it is.
            self._read_ns = -1 if self._place.is_copy else began_ns
            return queues

    def answer(self, asked: AnyQuestion) -> ColdRecords | ColdNothing | ColdOffset | ColdHits:
        """The messages asked for, as far as one row group has them, or the offset of a time, or
        what was searched for.

        Raises:
            ColdAwayError: the place refused.
            KeyMissingError: the messages are locked with a key that is not here.
            DamagedLogError: a part of a piece is not what was sealed; names it.
            ConfigError: the manifest is of a later version, or of another log.
            FilterIllegalError: the expression is none.
        """
        asked_ns = self._monotonic_ns()
        try:
            if isinstance(asked, ColdSince):
                return self._since(asked, asked_ns)
            if isinstance(asked, ColdSearch):
                return self._anew(asked_ns, lambda queues: search(queues, asked))
            return self._answer(asked, asked_ns)
        except StorageError as error:
            raise self._place.away(error) from error
        except CorruptLogError as error:
            self._place.count(ColdCounter.DAMAGED)
            details = {**error.details, "retry_after_ms": RETRY_AFTER_MS}
            raise DamagedLogError(error.message, **details) from error

    def _since(self, asked: ColdSince, asked_ns: int) -> ColdOffset:
        found = self._anew(
            asked_ns,
            lambda queues: queues.first_since(asked.topic, asked.queue_id, asked.time_ms),
        )
        return ColdOffset(asked.number, -1 if found is None else found)

    def _anew(self, asked_ns: int, find: Callable[[ColdQueues], Found]) -> Found:
        """What is found by a manifest that is read now: older messages may have been sealed since,
        and gone from the log. What is damaged is read once more.
        """
        queues = self.refresh(asked_ns)
        try:
            return find(queues)
        except CorruptLogError as error:
            self._forget(queues, error)
            return find(queues)

    def _answer(self, asked: ColdQuestion, asked_ns: int) -> ColdRecords | ColdNothing:
        queues = self._queues or self.refresh(asked_ns)
        try:
            found = self._found(queues, asked)
        except CorruptLogError as error:
            # It may have been mended, or dropped, and what was read before be of the cache.
            self._forget(queues, error)
            found = None
        if found is None or _is_gone(found):
            queues = self.refresh(asked_ns)
            found = self._found(queues, asked)
        if _is_gone(found):
            self._place.count(ColdCounter.GONE)
        return found

    def _found(self, queues: ColdQueues, asked: ColdQuestion) -> ColdRecords | ColdNothing:
        if asked.offset < asked.floor:
            return ColdNothing(asked.number, self._first_of(asked), True)
        try:
            first = next(queues.runs(asked.topic, asked.queue_id, asked.offset), None)
        except MessageUnknownError as error:
            following = error.details["next"]
            assert isinstance(following, int)
            return ColdNothing(asked.number, following, True)
        if first is None:
            return ColdNothing(asked.number, -1, True)
        piece, run, offset = first
        is_batched = asked.topic in piece.footer.batched
        rows = self._rows(piece, run, offset, is_batched=is_batched)
        if is_batched:
            rows = _taken_apart(asked, rows, offset)
            if not len(rows.offsets):
                return ColdNothing(asked.number, run.end, False)
        return self._records(asked, rows)

    def _first_of(self, asked: ColdQuestion) -> int:
        """First offset that is shown of a queue; -1: pieces have none of it."""
        begin = (self.begins or {}).get(QueueName(asked.topic, asked.queue_id), -1)
        return begin if begin < 0 else max(asked.floor, begin)

    def _rows(self, piece: PieceFile, run: SealedRun, offset: int, *, is_batched: bool) -> _Rows:
        """The records of a run from ``offset`` on; where some have several messages, from the one
        on that may have this one.
        """
        group, end = self._group(piece, run.group), run.row + run.rows
        # Some in between may have been dropped.
        row = run.row + int(np.searchsorted(group.offsets[run.row : end], offset))
        is_there = row < end and int(group.offsets[row]) == offset
        if is_batched and not is_there and row > run.row:
            row -= 1
        ends, tags = group.ends[row : end + 1], group.tags.slice(row, end - row)
        return _Rows(*(group.octets, ends, tags, piece.footer.header_size, group.offsets[row:end]))

    def _records(self, asked: ColdQuestion, rows: _Rows) -> ColdRecords | ColdNothing:
        """What an answer gives of some records: as many as fit of those that are wanted."""
        ends, sizes, header = rows.ends, rows.sizes, rows.header
        wanted = np.flatnonzero(_wanted(asked, rows))
        # As many as fit, and the first one in any case.
        fitting = np.cumsum(sizes[wanted] + header)
        most = min(asked.bytes_max, RECORDS_SIZE_MAX)
        count = min(asked.messages_max, max(1, int(np.searchsorted(fitting, most, "right"))))
        if not len(wanted):
            return ColdNothing(asked.number, int(rows.offsets[-1]) + 1, False)
        # What comes behind the last one that is given was not looked at.
        scanned = len(sizes) if count >= len(wanted) else int(wanted[count - 1]) + 1
        wanted = wanted[:count]
        starts, stops = ends[wanted], ends[wanted + 1]
        if int(stops[-1] - starts[0]) <= 2 * int(fitting[len(wanted) - 1]):
            payload = rows.octets[int(starts[0]) : int(stops[-1])]
            at = starts - starts[0]
        else:
            parts = zip(starts.tolist(), stops.tolist(), strict=True)
            payload = memoryview(b"".join([rows.octets[one:end] for one, end in parts]))
            at = fitting[: len(wanted)] - (stops - starts)
        self._place.count(ColdCounter.MESSAGES, len(wanted))
        self._place.count(ColdCounter.BYTES, int((stops - starts).sum()))
        return ColdRecords(
            asked.number,
            int(rows.offsets[scanned - 1]) + 1,
            header,
            (at + header).astype(np.uint32).tobytes(),
            sizes[wanted].astype(np.uint32).tobytes(),
            payload,
        )

    def read_ahead(self, asked: ColdQuestion, next_offset: int) -> None:
        """Have in memory what comes behind the row group of ``next_offset``, once."""
        queues = self._queues
        if queues is None:
            # What was read is not believed any more.
            return
        try:
            runs = queues.runs(asked.topic, asked.queue_id, next_offset)
            for count, (piece, run, _) in enumerate(runs):
                key = piece.name, run.group
                if key not in self._ahead:
                    self._ahead[key] = None
                    if len(self._ahead) > AHEAD_KEPT:
                        self._ahead.popitem(last=False)
                    self._group(piece, run.group)
                    self._place.count(ColdCounter.READ_AHEAD)
                if count:
                    return
        except LedgerError as error:
            # Whoever gets there is told.
            logger.debug("not read ahead: topic=%s reason=%s", asked.topic, error)

    def _group(self, piece: PieceFile, number: int) -> _Group:
        """The records of a row group, by the cache.

        Raises:
            KeyMissingError: they are locked with a key that is not here, or not any more.
        """
        locked = piece.footer.locked.get(number)
        if locked is not None:
            # What was read before its key was deleted is not given out.
            unlocking_key(locked.topic, locked.key, where=piece.name)

        def made() -> _Group:
            table = piece.group(number, (*LOG_COLUMNS, "tags"))
            rows = log_bytes(table)
            _, bounds, octets = rows.buffers()
            ends = np.frombuffer(bounds, np.int32)[rows.offset : rows.offset + len(rows) + 1]
            view = memoryview(b"" if octets is None else octets).cast("B")
            offsets = table.column("queueOffset").to_numpy()
            return _Group(
                ends.astype(np.int64), view, table.column("tags").combine_chunks(), offsets
            )

        return self._groups.get((piece.name, number), made)

    def _forget(self, queues: ColdQueues, error: CorruptLogError) -> None:
        name = error.details.get("file")
        if isinstance(name, str):
            self._place.forget(name)
            queues.forget(name)
            self._groups.forget(lambda key: key[0] == name)


def _taken_apart(asked: ColdQuestion, rows: _Rows, offset: int) -> _Rows:
    """The messages of records from ``offset`` on, as far as one answer looks at them."""
    most = asked.messages_max
    if asked.tag_hashes or asked.expression:
        most = max(most, MESSAGES_LOOKED_AT)
    parts: list[bytes | bytearray] = []
    offsets: list[int] = []
    tags: list[str | None] = []
    size = packed = 0

    def is_enough() -> bool:
        return len(offsets) >= most or size > RECORDS_SIZE_MAX

    for begin, end in pairwise(rows.ends.tolist()):
        header, whole = (
            rows.octets[begin : begin + rows.header],
            rows.octets[begin + rows.header : end],
        )
        packed += is_packed(flags_in(whole))
        if packed > PACKED_MAX:
            break
        for number, record in single_records(whole, offset):
            if is_enough():
                break
            parts += [bytes(header), record]
            size += len(header) + len(record)
            offsets.append(number)
            tags.append(decode_properties(properties_in(memoryview(record))).get(TAGS))
        if is_enough():
            break
    ends = np.cumsum([0, *map(len, parts)])[::2]
    octets = memoryview(b"".join(parts))
    return _Rows(
        octets, ends, pa.array(tags, pa.string()), rows.header, np.array(offsets, np.int64)
    )


def _is_gone(found: ColdRecords | ColdNothing) -> bool:
    return isinstance(found, ColdNothing) and found.is_gone


def _wanted(asked: ColdQuestion, rows: _Rows) -> Wanted:
    """Which of some records are wanted, as a pull says.

    Raises:
        FilterIllegalError: the expression is none.
    """
    if asked.tag_hashes:
        words = {hash_ % _TAG_HASHES for hash_ in asked.tag_hashes}
        tags = rows.tags.dictionary_encode()
        # A message without a tag has 0 in its queue.
        known = [_is_wanted(tag, words) for tag in tags.dictionary.to_pylist()]
        chosen = np.array([*known, 0 in words], np.bool_)
        places = tags.indices.fill_null(len(known)).to_numpy(zero_copy_only=False)
        by_tag: Wanted = chosen[places]
        return by_tag
    found = np.ones(len(rows.tags), np.bool_)
    if not asked.expression:
        return found
    wanted = sql_filter(asked.expression, is_enabled=True)
    for number, (begin, end) in enumerate(pairwise(rows.ends.tolist())):
        record = rows.octets[begin + rows.header : end]
        try:
            found[number] = wanted.matches(decode_properties(properties_in(record)))
        except Exception as error:
            # As when it is in the log: it must not keep its consumers from all that is behind it.
            found[number] = False
            logger.warning(
                "expression fails for a sealed message: topic=%s queue=%d reason=%r",
                asked.topic,
                asked.queue_id,
                error,
            )
    return found


def _is_wanted(tag: str | None, words: set[int]) -> bool:
    return java_hash(tag or "") % _TAG_HASHES in words
