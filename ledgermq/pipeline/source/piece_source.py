"""Source on sealed pieces, in a folder or a bucket: no broker is asked.

A store may be named whose log goes on where the pieces end. Each message comes from one of them:
out of the pieces where they have it, and else out of the store.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from ledgermq.model.errors import MessageUnknownError
from ledgermq.model.names.queue_name import QueueName
from ledgermq.pipeline.columns.queued_records import QueuedRecords, each_message
from ledgermq.pipeline.columns.record_columns import RecordBlock
from ledgermq.pipeline.pieces.cold_queues import ColdQueues
from ledgermq.pipeline.pieces.live_place import LivePlace, told_end
from ledgermq.pipeline.pieces.log_columns import LOG_COLUMNS, log_bytes
from ledgermq.pipeline.pieces.log_sealing import check_same
from ledgermq.pipeline.pieces.moments import end_at, moment_as_told
from ledgermq.pipeline.pieces.piece_file import rows_of
from ledgermq.pipeline.pieces.piece_places import place_at
from ledgermq.pipeline.queue_ranges import MessageRange, Queue, Queued
from ledgermq.pipeline.source.data_loss import report_loss
from ledgermq.pipeline.source.split_plan import split_by_count, split_count
from ledgermq.pipeline.source.store_source import StoreSource


class PieceSource:
    """The queues of a place of pieces, as of the last ``refresh``."""

    def __init__(self, place: str, *, as_of: str = "", store: StoreSource | None = None) -> None:
        """Read the manifest.

        Args:
            as_of: a moment, as ``moment_as_told`` takes it: queues end where they ended then.
            store: of the same log; it is closed with this.

        Raises:
            ConfigError: ``place`` is none, or nothing was sealed there, or the store's client is
                not installed; or ``store`` has another log.
            CorruptLogError, StorageError: the manifest cannot be read.
        """
        self._place = place
        self._sealed = place_at(place)
        self._queues = ColdQueues(self._sealed, is_sealed=True)
        self._known = self._queues.queues()
        self._as_of = as_of
        self._store = store
        if store is not None:
            check_same(self._sealed, self._queues.manifest, store.log)

    def refresh(self) -> None:
        """Look for pieces that came since, and for what is behind them."""
        if self._store is not None:
            self._store.refresh()
        self._refresh_sealed()

    def _refresh_sealed(self) -> None:
        self._queues.refresh()
        self._known = self._queues.queues()

    def close(self) -> None:
        """Let go of the store."""
        if self._store is not None:
            self._store.close()

    def queues(self) -> list[Queue]:
        """All queues, those of the system, too."""
        found = {(name.topic, name.queue_id) for name in self._known}
        return sorted(found.union(self._store.queues() if self._store else ()))

    def bounds(self, queues: Iterable[Queue]) -> dict[Queue, MessageRange]:
        """What each of ``queues`` has in the pieces, and in the log behind them; one that is in
        none has nothing.
        """
        found = {queue: self._bounds(queue) for queue in queues}
        if not self._as_of:
            return found
        live = None
        if self._store is not None:
            live = LivePlace(self._sealed, self._store.log, told_end)
        there, moment = moment_as_told(self._queues, self._as_of, option="asOf", live=live)
        return {
            queue: range_._replace(
                end=max(range_.first, min(range_.end, end_at(there, *queue, moment)))
            )
            for queue, range_ in found.items()
        }

    def _bounds(self, queue: Queue) -> MessageRange:
        sealed = self._known.get(QueueName(*queue))
        live = None if self._store is None else self._store.bounds([queue])[queue]
        if sealed is None:
            return live or MessageRange(*queue, 0, 0)
        end = sealed.end if live is None else max(sealed.end, live.end)
        return MessageRange(*queue, sealed.first, end)

    def _divided(self, range_: MessageRange) -> tuple[MessageRange, MessageRange]:
        """What of a range the pieces have, or had, and what is in the log behind them."""
        sealed = self._known.get(QueueName(*range_.queue))
        end = range_.end
        if self._store is not None:
            end = max(range_.first, min(end, 0 if sealed is None else sealed.end))
        return range_._replace(end=end), range_._replace(first=end)

    def offset_at_time(self, range_: MessageRange, timestamp_ms: int) -> int:
        """Queue offset of the first message of a range that was stored at that time or later."""
        sealed, live = self._divided(range_)
        found = self._queues.first_since(*range_.queue, timestamp_ms)
        if found is not None and (found < sealed.end or self._store is None):
            return min(max(found, range_.first), range_.end)
        if self._store is None or live.first == live.end:
            return range_.end
        return self._store.offset_at_time(live, timestamp_ms)

    def position_of(self, range_: MessageRange, offset: int) -> int:
        """Where a message that a range has stands in the log."""
        if self._store is not None and offset >= self._divided(range_)[0].end:
            return self._store.position_of(range_, offset)
        return next(self._queues.read(*range_.queue, offset)).position

    def queued(self) -> Queued | None:
        """What the store says of it: what is sealed was queued before."""
        return None if self._store is None else self._store.queued()

    def plan(
        self, ranges: Sequence[MessageRange], *, split_bytes: int, splits_min: int
    ) -> list[tuple[MessageRange, ...]]:
        """``ranges`` divided into parts of as many messages."""
        messages = sum(range_.end - range_.first for range_ in ranges)
        if not messages:
            return []
        rows = self._queues.manifest.rows
        records = max(1, sum(row.facts.records for row in rows))
        size = messages * sum(row.end - row.start for row in rows) // records
        count = split_count(size, split_bytes=split_bytes, splits_min=splits_min, messages=messages)
        return split_by_count(ranges, count)

    def read(
        self, ranges: Sequence[MessageRange], *, fail_on_data_loss: bool
    ) -> Iterator[QueuedRecords]:
        """The messages of ``ranges``, queue by queue; each part is of one row group.

        Raises:
            CorruptLogError: a piece is not what was sealed; names the part.
            DataLossError: some are in no piece, and that is to fail.
            StorageError: the place refused, or does not answer.
        """
        self._find_sealed(ranges)
        divided = [self._divided(range_) for range_ in ranges]
        yield from self._read_sealed([one for one, _ in divided], fail=fail_on_data_loss)
        live = [one for _, one in divided if one.first < one.end]
        if live and self._store is not None:
            yield from self._store.read(live, fail_on_data_loss=fail_on_data_loss)

    def _find_sealed(self, ranges: Sequence[MessageRange]) -> None:
        """Have a manifest that names what the log has no more, if it ever was sealed."""
        if self._store is None:
            return
        live = [
            one for one in (self._divided(range_)[1] for range_ in ranges) if one.first < one.end
        ]
        held = self._store.bounds(one.queue for one in live)
        if any(held[one.queue].first > one.first for one in live):
            self._refresh_sealed()

    def _read_sealed(
        self, ranges: Sequence[MessageRange], *, fail: bool
    ) -> Iterator[QueuedRecords]:
        for number, range_ in enumerate(ranges):
            offset = range_.first
            while offset < range_.end:
                try:
                    for part, end in self._read(range_, offset):
                        rows = len(part.starts)
                        numbers = np.full(rows, number, np.int64)
                        yield from each_message(QueuedRecords(part, ranges, numbers))
                        offset = end
                    break
                except MessageUnknownError as error:
                    # What ``runs`` has found missing, and where the queue goes on.
                    missing, following = error.details["offset"], error.details["next"]
                    assert isinstance(missing, int)
                    assert isinstance(following, int)
                    if missing >= range_.end:
                        break
                    report_loss(
                        fail=fail,
                        directory=self._place,
                        topic=range_.topic,
                        queue=range_.queue_id,
                        offset=missing,
                        missing=min(following, range_.end) - missing,
                    )
                    offset = following

    def _read(self, range_: MessageRange, offset: int) -> Iterator[tuple[RecordBlock, int]]:
        """Records of a range, a run at once, and the offset behind them."""
        for piece, run, begin in self._queues.runs(*range_.queue, offset):
            if begin >= range_.end:
                return
            end = min(run.end, range_.end)
            table = rows_of(piece.group(run.group, LOG_COLUMNS), run, begin, end)
            rows = log_bytes(table)
            _, bounds, content = rows.buffers()
            ends = np.frombuffer(bounds, np.int32)[: len(rows) + 1].astype(np.int64)
            header = piece.footer.header_size
            yield (
                RecordBlock(
                    view=memoryview(content).cast("B"),
                    base=None,
                    starts=ends[:-1] + header,
                    sizes=np.diff(ends) - header,
                    header_size=header,
                    file=piece.name,
                ),
                end,
            )
