"""Cold queues: messages of queues out of pieces, for many readers at once, by a bounded cache.

What was read of a piece stays in memory, up to a number of bytes, and is asked for once, however
many readers want it at the same time. No message is passed over: where one is missing between two
pieces, that is an error which says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ledgermq.model.names.queue_name import QueueName
from ledgermq.pipeline.pieces.piece_file import PieceFile, PieceRecord, following
from ledgermq.pipeline.pieces.piece_footer import QueueStretch, SealedRun
from ledgermq.pipeline.pieces.piece_manifest import (
    PieceManifest,
    PieceRow,
    read_manifest,
)
from ledgermq.pipeline.pieces.piece_places import ReadPlace
from ledgermq.pipeline.pieces.shared_cache import KeptRanges, SharedCache

CACHE_BYTES = 64 << 20
"""Bytes of row groups, filters and footers that stay in memory, as they are stored."""

FOOTERS_MAX = 64
"""Pieces whose footers stay in memory ready to be used, some hundred KiB each."""


class ColdBounds(NamedTuple):
    """Offsets of a queue in the pieces: the first message, and behind the last one."""

    first: int
    end: int


class _Stretch(NamedTuple):
    row: PieceRow
    offset: int
    end: int
    max_ms: int


class ColdQueues:
    """The queues of a place of pieces, as its manifest was when it was read last.

    It may be used by several threads.
    """

    def __init__(
        self, place: ReadPlace, *, cache_bytes: int = CACHE_BYTES, is_sealed: bool = False
    ) -> None:
        """Read the manifest: one request.

        Args:
            cache_bytes: that stay in memory, of what was read.
            is_sealed: a place without a manifest is refused.

        Raises:
            ConfigError, CorruptLogError, StorageError: as ``read_manifest``.
        """
        self._place = place
        self._is_sealed = is_sealed
        self._ranges: SharedCache[tuple[str, int, int], bytes] = SharedCache(cache_bytes, len)
        self._pieces: SharedCache[str, PieceFile] = SharedCache(FOOTERS_MAX, lambda _piece: 1)
        self.manifest: PieceManifest = PieceManifest(())
        self._stretches: dict[QueueName, list[_Stretch]] = {}
        self.refresh()

    def refresh(self) -> None:
        """Read the manifest again: pieces may have come, and gone.

        Raises:
            ConfigError, CorruptLogError, StorageError: as ``read_manifest``.
        """
        manifest = read_manifest(self._place, is_sealed=self._is_sealed)
        stretches: dict[QueueName, list[_Stretch]] = {}
        for row, topic, one in _stretches_of(manifest):
            found = stretches.setdefault(QueueName(topic, one.queue_id), [])
            found.append(_Stretch(row, one.offset, one.end, one.max_ms))
        self.manifest, self._stretches = manifest, stretches

    def queues(self) -> dict[QueueName, ColdBounds]:
        """All queues, and what there is of each."""
        return {
            queue: ColdBounds(min(one.offset for one in found), max(one.end for one in found))
            for queue, found in sorted(self._stretches.items())
        }

    def read(self, topic: str, queue_id: int, offset: int) -> Iterator[PieceRecord]:
        """The messages of a queue from ``offset`` on, to the last one that the pieces have.

        Of an offset that comes twice, as in a queue that RocketMQ has made anew, the last one
        counts, and one that was dropped on purpose is passed over. The first message is there after
        two requests at most.

        Raises:
            MessageUnknownError: the pieces have no such message, and later ones of the queue, or
                lack some in between (retention was faster than who sealed).
            CorruptLogError: a piece is not what was sealed; names the part.
            StorageError: the place refused, or does not answer.
        """
        for piece, run, begin in self.runs(topic, queue_id, offset):
            yield from piece.messages(run, begin)

    def runs(
        self, topic: str, queue_id: int, offset: int
    ) -> Iterator[tuple[PieceFile, SealedRun, int]]:
        """Where the messages of a queue from ``offset`` on are: runs of pieces, and from which
        offset on they are wanted.

        Raises:
            MessageUnknownError, CorruptLogError, StorageError: as ``read``.
        """
        found = self._stretches.get(QueueName(topic, queue_id), [])
        for one, first in following(found, offset, topic=topic, queue_id=queue_id):
            piece = self.piece(one.row)
            for run, begin in piece.runs_from(topic, queue_id, first):
                if begin < one.end:
                    yield piece, run, begin

    def with_key(self, topic: str, key: str) -> Iterator[PieceRecord]:
        """Messages of ``topic`` with ``key``, or with this id of their client's: piece by piece,
        and within one queue by queue.

        Each piece that has the topic is asked for its filters: two requests.

        Raises:
            CorruptLogError, StorageError: as ``read``.
        """
        for row in self.manifest.rows:
            if topic in row.queues:
                yield from self.piece(row).with_key(topic, key)

    def at(self, position: int) -> PieceRecord | None:
        """The message whose record begins at ``position`` of the log; None: the pieces have none.

        Raises:
            CorruptLogError, StorageError: as ``read``.
        """
        for row in self.manifest.rows:
            if row.start <= position < row.end:
                return self.piece(row).at(position)
        return None

    def first_since(self, topic: str, queue_id: int, time_ms: int) -> int | None:
        """Queue offset of the first message that was stored then or later, epoch ms; None where all
        are older, or there are none.

        Raises:
            CorruptLogError, StorageError: as ``read``.
        """
        for one in self._stretches.get(QueueName(topic, queue_id), []):
            if one.max_ms >= time_ms:
                found = self.piece(one.row).first_since(topic, queue_id, time_ms)
                if found is not None:
                    return found
        return None

    def piece(self, row: PieceRow) -> PieceFile:
        """The piece of a row of the manifest, by the cache.

        Raises:
            ConfigError, CorruptLogError, StorageError: as ``PieceFile``.
        """

        def opened() -> PieceFile:
            ranges = KeptRanges(self._place.ranges(row.name, row.size), self._ranges)
            return PieceFile(ranges, tail=row.tail)

        return self._pieces.get(row.name, opened)

    def forget(self, name: str) -> None:
        """What was read of the piece of that name, as ``PieceFile`` has it, is not to be believed:
        it is read again when it is asked for next.
        """
        self._ranges.forget(lambda key: key[0] == name)
        self._pieces.forget(lambda kept: self._place.as_text(kept) == name)


def _stretches_of(manifest: PieceManifest) -> Iterator[tuple[PieceRow, str, QueueStretch]]:
    for row in manifest.rows:
        for topic, stretches in row.queues.items():
            for one in stretches:
                yield row, topic, one
