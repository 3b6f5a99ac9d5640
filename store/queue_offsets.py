"""The next queue offset of every queue, as the writer stamps them.

RocketMQ's ``topicQueueTable``. A queue is looked up when it is first used: its ConsumeQueue says
how far it was dispatched; what the log holds behind the dispatched position was noted at the start
(``DefaultMessageStore.recoverTopicQueueTable``).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from ledgermq.formats.kernel import NO_UNIT, ScanStatus, dispatch_span, scan_entries
from ledgermq.model.errors import CorruptLogError
from ledgermq.model.ids import Position, QueueId, QueueOffset
from ledgermq.store.queue_end import UNIT_SIZE, count_below, file_starts, find_end

_ROWS = 16_384
_TABLE = 4 * _ROWS

Queue = tuple[bytes, QueueId]


class QueueOffsets:
    """Table of next offsets; owned by the writer."""

    def __init__(self, directory: Path, *, file_size: int, log_end: Position) -> None:
        """An empty table over the ConsumeQueues in ``directory``.

        Args:
            directory: ``consumequeue/``.
            log_end: units of messages at or beyond it are of entries that were cut off.
        """
        self._directory = directory
        self._file_size = file_size
        self._log_end = log_end
        self._next: dict[Queue, int] = {}
        self._noted: dict[Queue, int] = {}

    def note_span(
        self,
        span: memoryview,
        *,
        base: int,
        header_size: int,
        sign_of_life: Callable[[], None] = lambda: None,
    ) -> None:
        """Take the offsets of the messages in ``span``, which stands at ``base`` in the log.

        Args:
            sign_of_life: called again and again meanwhile.

        Raises:
            CorruptLogError: the span is not one of whole records.
        """
        starts, sizes, offsets, times, tags = (np.empty(_ROWS, np.int64) for _ in range(5))
        groups = np.empty(_ROWS, np.int32)
        topics, queues = (np.empty(_ROWS, np.int64) for _ in range(2))
        table = np.empty(_TABLE, np.int32)
        none = np.empty(0, np.int32)
        at = 0
        while at < len(span):
            sign_of_life()
            count, at, status = scan_entries(
                span, at, len(span), header_size, base, starts.data, sizes.data
            )
            if ScanStatus(status).corrupt:
                raise CorruptLogError(
                    "record not whole", position=base + at, field=ScanStatus(status).name.lower()
                )
            if count == 0:
                return
            _, _, group_count, _ = dispatch_span(
                span,
                base,
                starts.data,
                sizes.data,
                0,
                count,
                np.zeros(1, np.int64).data,
                False,
                offsets.data,
                times.data,
                tags.data,
                groups.data,
                none.data,
                none.data,
                topics.data,
                queues.data,
                table.data,
                np.empty(10, np.int64).data,
            )
            assert NO_UNIT < 0
            last = np.full(group_count, -1, np.int64)
            rows = groups[:count] >= 0
            np.maximum.at(last, groups[:count][rows], offsets[:count][rows])
            for group in range(group_count):
                topic_at = int(topics[group])
                topic = bytes(span[topic_at : topic_at + span[topic_at - 1]])
                queue = (topic, QueueId(int(queues[group])))
                self._noted[queue] = max(int(last[group]) + 1, self._noted.get(queue, 0))

    def next_offset(self, topic: bytes, queue_id: QueueId) -> QueueOffset:
        """Queue offset of the next message of that queue.

        Raises:
            CorruptLogError: its ConsumeQueue has a file of another size.
        """
        queue = (topic, queue_id)
        known = self._next.get(queue)
        if known is None:
            known = max(self._dispatched(queue), self._noted.pop(queue, 0))
            self._next[queue] = known
        return QueueOffset(known)

    def set_next(self, topic: bytes, queue_id: QueueId, offset: QueueOffset) -> None:
        """The next message of that queue gets ``offset``."""
        self._next[topic, queue_id] = offset

    def _dispatched(self, queue: Queue) -> int:
        topic, queue_id = queue
        directory = self._directory / topic.decode("ascii") / str(queue_id)
        if not directory.is_dir():
            return 0
        end = find_end(directory, self._file_size, whole_below=None)
        if end.log_end <= self._log_end:
            return end.end
        # Units of entries that the log does not hold any more: the dispatcher cuts them too.
        for start in reversed(file_starts(directory, self._file_size)):
            used = min(end.end - start // UNIT_SIZE, self._file_size // UNIT_SIZE)
            if used <= 0:
                continue
            kept = count_below(end.path_of(start), used, self._log_end)
            if kept:
                return start // UNIT_SIZE + kept
        return 0
