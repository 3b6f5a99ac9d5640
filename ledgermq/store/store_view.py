"""Read-only view of a store directory as messages: by queue, by key, by time, by position.

Read-only.

Answers are those of RocketMQ's broker for the same files (``DefaultMessageStore``): of a queue, all
units that point into the log are messages; dispatch puts a unit only when its entry is committed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ledgermq.formats.arrays import Units
from ledgermq.formats.batch_unit import BATCH_FOLDER
from ledgermq.formats.index_file import QUERY_COUNT_MAX, IndexLayout
from ledgermq.formats.queue_unit import UNIT_SIZE
from ledgermq.formats.records.inner_batch import message_at
from ledgermq.formats.records.message import Message
from ledgermq.model.errors import CorruptLogError, TopicUnknownError, refused_as
from ledgermq.model.limits import TIMESTAMP_MAX
from ledgermq.store.files.file_names import topic_folders
from ledgermq.store.index.index_reader import IndexReader
from ledgermq.store.log_reader import LogReader
from ledgermq.store.queues.batch_queue_reader import queue_reader, recount_of
from ledgermq.store.queues.batch_topics import batch_topics
from ledgermq.store.queues.queue_reader import QueueReader
from ledgermq.store.store_directory import open_directory

_EVERYTHING = (1 << 63) - 1
_UNITS_AT_ONCE = 4_096


class QueueBounds(NamedTuple):
    """One queue: offsets of its first message and behind its last one."""

    topic: str
    queue_id: int
    first: int
    end: int


class QueuedMessage(NamedTuple):
    """A message, and where in which queue it was read."""

    queue: QueueBounds
    queue_offset: int
    message: Message


class StoreView:
    """All messages of one store directory; of a running node's, as of the last ``refresh``."""

    def __init__(
        self, root: Path, *, self_id: str | None = None, index_layout: IndexLayout | None = None
    ) -> None:
        """Open the store in ``root``; nothing in it is changed.

        Args:
            self_id: which DLedger log to take where there are several.
            index_layout: of the index files, ``None`` to find it out when a key is asked for.

        Raises:
            ConfigError: no store directory.
            CorruptLogError: files of wrong sizes or names.
            StorageError: something cannot be read.
        """
        self.directory = open_directory(root, self_id=self_id)
        self.log = LogReader(self.directory)
        self._index_layout = index_layout
        self._index: IndexReader | None = None
        self._of_batches = batch_topics(root)
        self._recount = recount_of(root, self._record_at) if self._of_batches else None
        self._queues: dict[tuple[str, int], QueueReader] = {}

    def refresh(self) -> None:
        """Look for what came since."""
        self.log.refresh()
        for queue in self._queues.values():
            queue.refresh()
        if self._index is not None:
            self._index.refresh()

    def close(self) -> None:
        """Let go of the maps; messages that are held stay valid."""
        self.log.close()
        for queue in self._queues.values():
            queue.close()
        if self._index is not None:
            self._index.close()

    def queues(self, topic: str | None = None, queue_id: int | None = None) -> list[QueueBounds]:
        """Bounds of all queues, or of those that are asked for, by topic and number.

        Raises:
            TopicUnknownError: what was asked for is not there.
            CorruptLogError: a queue has messages that the log has not.
        """
        found = [
            self._bounds(*key)
            for key in self._keys()
            if topic in (None, key[0]) and queue_id in (None, key[1])
        ]
        if not found and topic is not None:
            raise TopicUnknownError("no such queue in the store", topic=topic, queue=queue_id)
        return found

    def messages(
        self, topic: str | None = None, queue_id: int | None = None
    ) -> Iterator[QueuedMessage]:
        """The messages of all queues, or of those that are asked for, queue by queue.

        Raises:
            TopicUnknownError: what was asked for is not there.
            CorruptLogError: a unit does not point to a whole message; names file, offset and field.
        """
        for queue in self.queues(topic, queue_id):
            reader = self._reader(queue.topic, queue.queue_id)
            for first in range(queue.first, queue.end, _UNITS_AT_ONCE):
                count = min(_UNITS_AT_ONCE, queue.end - first)
                units = reader.units(first, count)
                pairs = zip(units["position"].tolist(), units["size"].tolist(), strict=True)
                for number, (position, size) in enumerate(pairs, first):
                    if position < self.log.first:
                        # Among batches RocketMQ leaves numbers out.
                        continue
                    message = self.log.message_at(position, size)
                    if queue.topic in self._of_batches:
                        message = message_at(message, number)
                    yield QueuedMessage(queue, number, message)

    def units(self, topic: str, queue_id: int, first: int, count: int) -> Units:
        """Units of one queue, as ``QueueReader.units`` has them, within ``queues``' bounds."""
        return self._reader(topic, queue_id).units(first, count)

    def message_at(self, physical_offset: int) -> Message:
        """The message at a position in the log (behind its entry's header).

        Raises:
            CorruptLogError: there is none.
        """
        return self.log.message_at(physical_offset)

    def query_key(
        self,
        topic: str,
        key: str,
        *,
        count_max: int = QUERY_COUNT_MAX,
        begin_timestamp: int = 0,
        end_timestamp: int = TIMESTAMP_MAX,
    ) -> list[Message]:
        """The newest messages of ``topic`` with ``key``, a key or a unique id, by position.

        Raises:
            CorruptLogError: the index leads to what is no message.
        """
        if self._index is None:
            self._index = IndexReader(self.directory.index, layout=self._index_layout)
        offsets = self._index.query(
            topic,
            key,
            count_max=count_max,
            begin_timestamp=begin_timestamp,
            end_timestamp=end_timestamp,
        )
        messages = [
            self.log.message_at(offset)
            for offset in offsets
            if self.log.first <= offset < self.log.end
        ]
        return [
            message
            for message in messages
            if message.topic == topic and (key in message.keys or key == message.unique_id)
        ]

    def query_time(self, topic: str, queue_id: int, timestamp: int) -> int:
        """The queue offset for a store time, epoch ms: that of the nearest message.

        Raises:
            TopicUnknownError: there is no such queue.
        """
        self.queues(topic, queue_id)
        reader = self._reader(topic, queue_id)
        return reader.offset_by_time(timestamp, self.log.store_time_at, self.log.first)

    def _record_at(self, position: int, size: int) -> Message:
        return self.log.message_at(position, size, check_crc=False)

    def _keys(self) -> list[tuple[str, int]]:
        root = self.directory.consume_queues
        with refused_as("queues not read", directory=root):
            found = [
                (topic.name, int(name))
                for folder in (root, self.directory.root / BATCH_FOLDER)
                for topic, names in topic_folders(folder)
                for name in names
                if (topic.name in self._of_batches) is (folder is not root)
            ]
        return sorted(found)

    def _reader(self, topic: str, queue_id: int) -> QueueReader:
        reader = self._queues.get((topic, queue_id))
        if reader is None:
            reader = queue_reader(
                self.directory.consume_queues,
                topic,
                queue_id,
                file_size=self.directory.queue_file_size,
                of_batches=self._of_batches,
                recount=self._recount,
            )
            self._queues[topic, queue_id] = reader
        return reader

    def _bounds(self, topic: str, queue_id: int) -> QueueBounds:
        reader = self._reader(topic, queue_id)
        first, end = reader.bounds(self.log.end, log_first=self.log.first)
        if not self.directory.aborted and topic not in self._of_batches:
            # After a clean stop no unit may point behind the log: if one does, the log's end
            # was lost, and what the queue has there must not be left out in silence.
            _, whole = reader.bounds(_EVERYTHING, log_first=self.log.first)
            if whole != end:
                raise CorruptLogError(
                    "queue has messages behind the end of the log",
                    file=str(reader.files.path(end * UNIT_SIZE)),
                    offset=end * UNIT_SIZE % reader.files.file_size,
                    field="position",
                    log_end=self.log.end,
                )
        return QueueBounds(topic, queue_id, first, end)
