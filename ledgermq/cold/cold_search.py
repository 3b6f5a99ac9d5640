"""Search in pieces: messages by key or position, the newest ones, in a bounded number of pieces."""

from __future__ import annotations

from array import array
from collections.abc import Iterator

from ledgermq.formats.records.message import decode_message
from ledgermq.pipeline.pieces.cold_queues import ColdQueues
from ledgermq.pipeline.pieces.piece_file import PieceRecord
from ledgermq.pipeline.pieces.piece_manifest import PieceRow
from ledgermq.wire.cold_frames import RECORDS_SIZE_MAX, ColdHits, ColdSearch

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
