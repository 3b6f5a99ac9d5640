"""Query service: messages by position and key, and the times of the oldest ones.

Nothing is shown that is not dispatched, and what is shown is whole: RocketMQ looks at four bytes
wherever a client points, and hands out what follows.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from typing import NamedTuple

from ledgermq.broker.pulls.cold_reads import ColdReads
from ledgermq.broker.pulls.pull_service import CheckQueue
from ledgermq.broker.reading.readable_store import ReadableStore
from ledgermq.formats.index_file import ITEMS_DEFAULT, SLOTS_DEFAULT, IndexLayout
from ledgermq.formats.records.message import Message, decode_message
from ledgermq.formats.records.properties import UNIQ_KEY
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import ConfigError, MessageIllegalError, TopicUnknownError
from ledgermq.model.names.queue_name import QueueName
from ledgermq.store.index.index_reader import IndexReader
from ledgermq.wire.cold_frames import ColdHits, ColdSearch
from ledgermq.wire.query_frame import AnyQuery, KeyQuery, PositionQuery, encode_queried

ANSWER_SIZE_MAX = 16 * 1024 * 1024
"""Most bytes of one answer, unless its only message is larger; the newest messages are given."""

HITS_PER_MESSAGE = 4
HITS_MORE = 256
"""Messages that only share a key's hash, or are of other times, are looked at and passed over."""

INDEX_SECOND_MS = 1_000
"""The index knows a store time by the second."""

CLOCK_STEP_MS = 24 * 3_600_000
"""Milliseconds by which a clock may be put back while all messages are still found by their times;
what the index says of these is wrong around such a moment, as in RocketMQ."""

CheckRead = Callable[[str], None]


class QueryAnswer(NamedTuple):
    """The parts of a QUERIED behind the client's name."""

    head: bytes
    payload: bytes


class QueryService:
    """Looks up what is asked for outside of the queues' order. It knows no socket."""

    def __init__(
        self,
        store: ReadableStore,
        settings: Settings,
        check_queue: CheckQueue,
        *,
        cold: ColdReads | None = None,
    ) -> None:
        """Nothing is opened yet.

        Args:
            cold: asked for what the log has no more; None: nobody has it.
        """
        self._store = store
        self._cold = cold
        self._check_queue = check_queue
        self._has_index = settings.store.message_index_enable
        self._folder = settings.store.path_root_dir / "index"
        self._layout = IndexLayout(
            slots=settings.store.max_hash_slot_num or SLOTS_DEFAULT,
            items=settings.store.max_index_num or ITEMS_DEFAULT,
        )
        self._index: IndexReader | None = None

    def answer(self, request_id: int, query: AnyQuery, check_read: CheckRead) -> QueryAnswer:
        """The messages that ``query`` asks for; none is no error.

        Args:
            check_read: refuses a topic that the client may not read.

        Raises:
            TopicUnknownError, NoPermissionError: the topic is none, or not for reading.
            ConfigError: the node keeps no index.
            NotLeaderError: the node is starting.
            CorruptLogError: the index or a message is not what it should be.
            ColdAwayError: older messages are in pieces alone, and not here yet.
        """
        if isinstance(query, PositionQuery):
            record = self.record_at(query.position) or self._cold_record_at(query.position)
            if record is not None:
                check_read(decode_message(record, 0).topic)
            return _answer(request_id, [] if record is None else [record])
        check_read(query.topic)
        return self._by_key(request_id, query)

    def _by_key(self, request_id: int, query: KeyQuery) -> QueryAnswer:
        if not self._has_index:
            raise ConfigError("node keeps no index by key", setting="store.message_index_enable")
        self._check_queue(QueueName(query.topic, 0))
        index = self._refreshed()
        hits_max = HITS_PER_MESSAGE * query.messages_max + HITS_MORE
        hits = index.query(
            query.topic,
            query.key,
            count_max=hits_max,
            begin_timestamp=max(0, query.begin - INDEX_SECOND_MS + 1),
            end_timestamp=query.end,
            clock_step_ms=CLOCK_STEP_MS,
        )
        found: list[memoryview] = []
        size, has_more = 0, len(hits) >= hits_max
        for record in self._having(query, hits):
            size += len(record)
            if len(found) == query.messages_max or (found and size > ANSWER_SIZE_MAX):
                has_more = True
                break
            found.append(record)
        records = found[::-1]
        if self._cold is not None and not has_more and len(records) < query.messages_max:
            older, has_more = self._older(self._cold, query, query.messages_max - len(records))
            records = older + records
        newest = index.newest
        return _answer(
            request_id,
            records,
            has_more=has_more,
            index_timestamp=newest.end_timestamp if newest else 0,
            index_position=newest.end_physical_offset if newest else 0,
        )

    def _older(
        self, cold: ColdReads, query: KeyQuery, count_max: int
    ) -> tuple[list[memoryview], bool]:
        """What pieces alone have of a query, in the order of the log, and whether there is more."""
        before = self._store.log.first_position
        if before == 0:
            return [], False
        wanted = ColdSearch(
            number=0,
            before=before,
            topic=query.topic,
            key=query.key,
            begin_ms=query.begin,
            end_ms=query.end,
            messages_max=count_max,
        )
        found = cold.search(wanted)
        return [record for record in _records_of(found) if self._is_shown(record)], found.has_more

    def _cold_record_at(self, position: int) -> memoryview | None:
        """The record there that pieces alone have."""
        before = self._store.log.first_position
        if self._cold is None or position >= before:
            return None
        found = self._cold.search(ColdSearch(0, before, position))
        return next(filter(self._is_shown, _records_of(found)), None)

    def _is_shown(self, record: memoryview) -> bool:
        """Whether a record out of pieces belongs to a topic of today."""
        message = decode_message(record, 0)
        queue = QueueName(message.topic, message.queue_id)
        try:
            self._check_queue(queue)
        except (TopicUnknownError, MessageIllegalError):
            return False
        return message.queue_offset >= self._store.floor(queue)

    def _having(self, query: KeyQuery, hits: list[int]) -> Iterator[memoryview]:
        """The records among ``hits`` that are asked for, newest first."""
        for position in reversed(hits):
            record = self._store.record_at(position)
            if record is None:
                # Removed since, or of a log that was cut: the index learns of it later.
                continue
            message = decode_message(record, 0)
            in_time = query.begin <= message.store_timestamp <= query.end
            if in_time and message.topic == query.topic and _has_key(message, query.key):
                yield record

    def with_key(self, topic: str, key: str) -> list[memoryview]:
        """The newest records of a topic that have a key or a unique id; few of them have it.

        Raises:
            ConfigError: the node keeps no index.
        """
        if not self._has_index:
            raise ConfigError("node keeps no index by key", setting="store.message_index_enable")
        query = KeyQuery(topic, key, messages_max=HITS_MORE)
        hits = self._refreshed().query(topic, key, count_max=HITS_MORE)
        return list(self._having(query, hits))

    def record_at(self, position: int) -> memoryview | None:
        """The record that begins at ``position``; a queue has to know it, too."""
        record = self._store.record_at(position)
        if record is None:
            return None
        message = decode_message(record, 0)
        queue = QueueName(message.topic, message.queue_id)
        try:
            self._check_queue(queue)
        except (TopicUnknownError, MessageIllegalError):
            # Bytes within a body that only look like a message.
            return None
        first, end, _ = self._store.bounds(queue)
        if not first <= message.queue_offset < end:
            # A queue has units of all messages that the log has; whoever forges one in a body may
            # choose an offset that the queue has no more.
            return None
        units = self._store.units(queue, message.queue_offset, 1)
        if units is None or not len(units) or int(units["position"][0]) != position:
            return None
        return record

    def _refreshed(self) -> IndexReader:
        if self._index is None:
            self._index = IndexReader(self._folder, layout=self._layout)
        else:
            self._index.refresh()
        return self._index


def _records_of(found: ColdHits) -> Iterator[memoryview]:
    """The records that a search in pieces has found."""
    at, payload = 0, memoryview(found.payload)
    for size in memoryview(found.sizes).cast("I").tolist():
        yield payload[at : at + size]
        at += size


def _has_key(message: Message, key: str) -> bool:
    return key in message.keys or message.parsed_properties().get(UNIQ_KEY) == key


def _answer(
    request_id: int,
    records: list[memoryview],
    *,
    has_more: bool = False,
    index_timestamp: int = 0,
    index_position: int = 0,
) -> QueryAnswer:
    starts, sizes, at = array("I"), array("I"), 0
    for record in records:
        starts.append(at)
        sizes.append(len(record))
        at += len(record)
    head = encode_queried(
        request_id,
        starts=starts.tobytes(),
        sizes=sizes.tobytes(),
        has_more=has_more,
        index_timestamp=index_timestamp,
        index_position=index_position,
    )
    return QueryAnswer(head, b"".join(records))
