"""Next queue offset of every queue, as the writer stamps them.

RocketMQ's ``topicQueueTable``. A queue is looked up when it is first used: its ConsumeQueue says
how far it was dispatched; what the log holds behind the dispatched position was noted at the start
(``DefaultMessageStore.recoverTopicQueueTable``). A queue of which neither knows anything ends where
the table of ends says (``store/queues/queue_ends.py``).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

import numpy as np

from ledgermq.formats.arrays import BATCH_UNIT
from ledgermq.formats.batch_unit import BATCH_FOLDER
from ledgermq.formats.kernels.kernel import (
    NO_UNIT,
    SCAN_ROWS,
    ScanStatus,
    dispatch_span,
    scan_entries,
)
from ledgermq.formats.records.inner_batch import batch_in
from ledgermq.model.errors import CorruptLogError
from ledgermq.model.ids import Position, QueueId, QueueOffset
from ledgermq.model.names.stored_name import is_file_name
from ledgermq.store.queues.queue_end import end_below
from ledgermq.store.queues.queue_ends import Queue
from ledgermq.store.queues.queue_files import found_batch_file_size, found_file_size

_TABLE = 4 * SCAN_ROWS


class QueueOffsets:
    """Table of next offsets; owned by the writer."""

    def __init__(
        self,
        directory: Path,
        *,
        file_size: int | None,
        log_end: Position,
        ends: Mapping[Queue, int] | None = None,
        batch_topics: Collection[str] = (),
    ) -> None:
        """An empty table over the ConsumeQueues in ``directory``.

        Args:
            directory: ``consumequeue/``.
            file_size: bytes of a queue file; None: those that there are, whenever there are some,
                tell it.
            log_end: units of messages at or beyond it are of entries that were cut off.
            ends: of queues whose messages the log may have no more.
            batch_topics: topics whose queues are of batches.
        """
        self._ends = ends or {}
        self._batch_topics = frozenset(map(os.fsencode, batch_topics))
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
        starts, sizes, offsets, times, tags = (np.empty(SCAN_ROWS, np.int64) for _ in range(5))
        groups = np.empty(SCAN_ROWS, np.int32)
        topics, queues = (np.empty(SCAN_ROWS, np.int64) for _ in range(2))
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
            if self._batch_topics:
                for row in np.flatnonzero(groups[:count] == NO_UNIT).tolist():
                    begin = int(starts[row])
                    found = batch_in(span[begin : begin + int(sizes[row])])
                    if found is not None and found.topic in self._batch_topics:
                        self._note((found.topic, found.queue_id), sum(found.numbers))
            last = np.full(group_count, -1, np.int64)
            rows = groups[:count] >= 0
            np.maximum.at(last, groups[:count][rows], offsets[:count][rows])
            for group in range(group_count):
                topic_at = int(topics[group])
                topic = bytes(span[topic_at : topic_at + span[topic_at - 1]])
                self._note((topic, int(queues[group])), int(last[group]) + 1)

    @property
    def noted(self) -> dict[Queue, int]:
        """Copy of what ``note_span`` has found: where queues end."""
        return dict(self._noted)

    def note(self, noted: Mapping[Queue, int]) -> None:
        """Take what another table has ``noted`` in the same part of the log."""
        self._noted.update(noted)

    def _note(self, queue: Queue, end: int) -> None:
        self._noted[queue] = max(end, self._noted.get(queue, 0))

    @property
    def known(self) -> dict[Queue, int]:
        """Next offsets of the queues that were used, for who stamps as ``set_next`` is told."""
        return self._next

    def next_offset(self, topic: bytes, queue_id: QueueId) -> QueueOffset:
        """Queue offset of the next message of that queue.

        Raises:
            CorruptLogError: its ConsumeQueue has a file of another size.
        """
        queue: Queue = (topic, queue_id)
        known = self._next.get(queue)
        if known is None:
            known = max(self._dispatched(queue), self._noted.pop(queue, 0))
            known = known or self._ends.get(queue, 0)
            self._next[queue] = known
        return QueueOffset(known)

    def set_next(self, topic: bytes, queue_id: QueueId, offset: QueueOffset) -> None:
        """The next message of that queue gets ``offset``."""
        self._next[topic, queue_id] = offset

    def _dispatched(self, queue: Queue) -> int:
        topic, queue_id = queue
        if not is_file_name(topic):
            # Of such a one the dispatcher makes no queue.
            return 0
        if topic in self._batch_topics:
            root = self._directory.parent / BATCH_FOLDER
            size = found_batch_file_size(self._directory.parent)
            folder = root / os.fsdecode(topic) / str(queue_id)
            return 0 if size is None else end_below(folder, size, self._log_end, BATCH_UNIT)
        self._file_size = self._file_size or found_file_size(self._directory)
        if self._file_size is None:
            return 0
        directory = self._directory / os.fsdecode(topic) / str(queue_id)
        # Units of entries that the log does not hold any more: the dispatcher cuts them too.
        return end_below(directory, self._file_size, self._log_end)
