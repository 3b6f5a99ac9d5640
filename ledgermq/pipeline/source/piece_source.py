"""Source on sealed pieces, in a folder or a bucket: no broker and no store is asked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from ledgermq.model.errors import MessageUnknownError
from ledgermq.model.names.queue_name import QueueName
from ledgermq.pipeline.columns.queued_records import QueuedRecords
from ledgermq.pipeline.columns.record_columns import RecordBlock
from ledgermq.pipeline.pieces.cold_queues import ColdQueues
from ledgermq.pipeline.pieces.log_columns import LOG_COLUMNS, log_bytes
from ledgermq.pipeline.pieces.moments import end_at, moment_as_told
from ledgermq.pipeline.pieces.piece_file import rows_of
from ledgermq.pipeline.pieces.piece_places import place_at
from ledgermq.pipeline.queue_ranges import MessageRange, Queue, Queued
from ledgermq.pipeline.source.data_loss import report_loss
from ledgermq.pipeline.source.split_plan import split_by_count, split_count


class PieceSource:
    """The queues of a place of pieces, as of the last ``refresh``."""

    def __init__(self, place: str, *, as_of: str = "") -> None:
        """Read the manifest.

        Args:
            as_of: a moment, as ``moment_as_told`` takes it: queues end where they ended then.

        Raises:
            ConfigError: ``place`` is none, or nothing was sealed there, or the store's client is
                not installed.
            CorruptLogError, StorageError: the manifest cannot be read.
        """
        self._place = place
        self._queues = ColdQueues(place_at(place), is_sealed=True)
        self._as_of = as_of

    def refresh(self) -> None:
        """Look for pieces that came since."""
        self._queues.refresh()

    def close(self) -> None:
        """Nothing is held open."""

    def queues(self) -> list[Queue]:
        """All queues, those of the system, too."""
        return [(name.topic, name.queue_id) for name in self._queues.queues()]

    def bounds(self, queues: Iterable[Queue]) -> dict[Queue, MessageRange]:
        """What each of ``queues`` has in the pieces; one that is in none has nothing."""
        known = self._queues.queues()
        found = {
            queue: MessageRange(*queue, *(known.get(QueueName(*queue)) or (0, 0)))
            for queue in queues
        }
        if not self._as_of:
            return found
        moment = moment_as_told(self._queues, self._as_of, option="asOf")
        return {
            queue: range_._replace(end=max(range_.first, end_at(self._queues, *queue, moment)))
            for queue, range_ in found.items()
        }

    def offset_at_time(self, range_: MessageRange, timestamp_ms: int) -> int:
        """Queue offset of the first message of a range that was stored at that time or later."""
        found = self._queues.first_since(*range_.queue, timestamp_ms)
        return range_.end if found is None else min(max(found, range_.first), range_.end)

    def position_of(self, range_: MessageRange, offset: int) -> int:
        """Where a message that a range has stands in the log."""
        return next(self._queues.read(*range_.queue, offset)).position

    def queued(self) -> Queued | None:
        """None: what is sealed says nothing of what a node has queued."""
        return None

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
        for number, range_ in enumerate(ranges):
            offset = range_.first
            while offset < range_.end:
                try:
                    for part, end in self._read(range_, offset):
                        rows = len(part.starts)
                        numbers = np.full(rows, number, np.int64)
                        yield QueuedRecords(part, ranges, numbers)
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
                        fail=fail_on_data_loss,
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
            table = rows_of(piece.group(run.group, LOG_COLUMNS), run, begin).slice(0, end - begin)
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
