"""Messages of share groups as the log has them: which are wanted, what is told, dead letters."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from typing import Any

from ledgermq.broker.consumers.retry_topics import RetryTopics
from ledgermq.broker.pulls.queue_messages import QueueMessages
from ledgermq.broker.reading.property_scan import sql_filter
from ledgermq.formats.records.message import decode_message, encode_message, properties_in
from ledgermq.formats.records.properties import MESSAGE_GROUP, TAGS, decode_properties
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import ColdAwayError, DamagedLogError
from ledgermq.model.message_filter import SQL_MARK, MessageFilter
from ledgermq.model.names.answer_keys import PAYLOAD
from ledgermq.model.names.queue_name import QueueName
from ledgermq.rules.consumers.share_handles import handle_ends
from ledgermq.rules.consumers.share_plans import Fresh, LookedAt, TakenPlace
from ledgermq.rules.messages.retries import give_back
from ledgermq.verbs.shares import RUNS

SCANNED_MAX = 1_024
"""Messages that a filter looks at in one go."""

ORDER_KEY_MAX = 64
"""Characters; a longer key, which no gRPC client may send, is remembered by its digest."""

READ_AT_ONCE = 64
"""Messages that are looked at by their keys are read so many at once."""

RECEIVED_SIZE_MAX = 1024 * 1024
"""Bytes of the records of one answer; the first one is given however large it is."""

IsWanted = Callable[[Mapping[str, str]], bool]
"""Whether a message with these properties is wanted."""


def read_filter(text: str, *, settings: Settings) -> IsWanted | None:
    """What a filter wants; None: all.

    Raises:
        FilterIllegalError: it is none, or the settings allow none.
    """
    if text.startswith(SQL_MARK):
        expression = MessageFilter.by_sql(text.removeprefix(SQL_MARK)).expression
        is_enabled = settings.reads.enable_property_filter
        return sql_filter(expression, is_enabled=is_enabled).matches
    tags = MessageFilter.by_tags(text).tags
    return (lambda properties: properties.get(TAGS) in tags) if tags else None


class Basket:
    """What one answer may still have: ``left`` messages, of ``size_left`` bytes."""

    def __init__(self, count_max: int) -> None:
        self.left = count_max
        self.size_left = RECEIVED_SIZE_MAX
        self.is_empty = True

    def take(self, size: int) -> bool:
        """Whether a message of that size finds room, which it takes."""
        if self.left <= 0 or (size > self.size_left and not self.is_empty):
            self.left = 0
            return False
        self.left -= 1
        self.size_left -= size
        self.is_empty = False
        return True

    def take_all(self, sizes: Sequence[int]) -> bool:
        """Whether messages of these sizes find room together, which they take then."""
        size = sum(sizes)
        if len(sizes) > self.left or size > self.size_left:
            return False
        self.left -= len(sizes)
        self.size_left -= size
        self.is_empty = self.is_empty and not sizes
        return True


class ShareMessages:
    """Owned by the broker process; keeps nothing.

    Attributes:
        queues: of all topics, wherever their messages are.
    """

    def __init__(self, queues: QueueMessages, topics: RetryTopics, settings: Settings) -> None:
        self.queues = queues
        self._poison = queues.poison
        self._topics = topics
        self._address = settings.node.broker_ip, settings.node.listen_port

    def choose(
        self, topic: str, wanted: IsWanted | None, basket: Basket, *, end: int
    ) -> Callable[[int, int, int], Fresh]:
        """Chooses of what was never handed out, for one answer; ``end`` is the queue's."""

        def choose(queue_id: int, first: int, count: int) -> Fresh:
            looked_at = count if wanted is None else min(end - first, SCANNED_MAX)
            queue = QueueName(topic, queue_id)
            sizes, end_looked_at = self.queues.sizes(queue, first, looked_at)
            if wanted is None and basket.take_all(sizes):
                return Fresh(range(first, first + len(sizes)), end_looked_at)
            passed = () if wanted is None else self._unwanted(queue, first, len(sizes), wanted)
            chosen: list[int] = []
            for offset, size in enumerate(sizes, first):
                if offset in passed:
                    continue
                if len(chosen) == count or not basket.take(size):
                    return Fresh(chosen, offset)
                chosen.append(offset)
            return Fresh(chosen, end_looked_at)

        return choose

    def look(
        self, topic: str, queue_id: int, wanted: IsWanted | None, *, end: int
    ) -> Callable[[int], Iterator[LookedAt]]:
        """Looks at what was never handed out, with the keys; ``end`` is the queue's."""

        def look(first: int) -> Iterator[LookedAt]:
            queue, stop = QueueName(topic, queue_id), min(end, first + SCANNED_MAX)
            at = first
            while at < stop:
                part = range(at, min(at + READ_AT_ONCE, stop))
                try:
                    for offset, record in self.queues.read(queue, part):
                        # What is gone is looked at, too.
                        yield from (_of_no_use(gone) for gone in range(at, offset))
                        key, is_wanted = self._key_of(queue, offset, record, wanted)
                        yield LookedAt(offset, len(record), key, is_wanted)
                        at = offset + 1
                except (ColdAwayError, DamagedLogError):
                    if at == first:
                        raise
                    # What was looked at is handed out.
                    return
                yield from (_of_no_use(gone) for gone in range(at, part.stop))
                at = part.stop

        return look

    def keys(self, topic: str, queue_id: int, offsets: Sequence[int]) -> dict[int, str]:
        """The keys of these messages, of those that have one and are there.

        Raises:
            DamagedLogError: one is not what was written.
        """
        queue = QueueName(topic, queue_id)
        found = (
            (offset, self._key_of(queue, offset, record, None)[0])
            for offset, record in self.queues.read(queue, offsets)
        )
        return {offset: key for offset, key in found if key is not None}

    def _key_of(
        self, queue: QueueName, offset: int, record: memoryview, wanted: IsWanted | None
    ) -> tuple[str | None, bool]:
        """The key of a message, and whether it is wanted; nobody can make anything of some."""

        def look() -> tuple[str | None, bool]:
            properties = decode_properties(properties_in(record))
            is_wanted = wanted is None or wanted(properties)
            key = properties.get(MESSAGE_GROUP)
            if key is not None and len(key) > ORDER_KEY_MAX:
                key = blake2b(key.encode(), digest_size=16).hexdigest()
            return key, is_wanted

        place = f"{queue.topic}/{queue.queue_id}/{offset}"
        nothing: tuple[str | None, bool] = None, wanted is None
        return self._poison.guarded(place, look, nothing)

    def fitting(self, topic: str, places: Sequence[TakenPlace], basket: Basket) -> list[TakenPlace]:
        """The first of these that an answer has room for."""
        found: list[TakenPlace] = []
        for place in places:
            queue = QueueName(topic, place.queue_id)
            try:
                sizes = self.queues.sizes(queue, place.offset, 1).sizes
            except ColdAwayError:
                if found:
                    break
                raise
            if not basket.take(sizes[0] if sizes else 0):
                break
            found.append(place)
        return found

    def _unwanted(
        self, queue: QueueName, first: int, count: int, wanted: IsWanted
    ) -> Collection[int]:
        """Offsets of messages that a filter leaves out; those that are gone or damaged are none."""
        found: set[int] = set()
        for offset, record in self._readable(queue, range(first, first + count)):
            look = partial(_is_wanted, record, wanted)
            place = f"{queue.topic}/{queue.queue_id}/{offset}"
            if not self._poison.guarded(place, look, False):
                found.add(offset)
        return found

    def told(
        self,
        group: str,
        topic: str,
        places: Sequence[TakenPlace],
        *,
        until: int,
        mark: int,
        in_runs: bool,
    ) -> dict[str, object]:
        """The answer of a receive, queues in the order of ``places``, each in that of its offsets,
        without messages that are damaged: those are handed out again when their time is over,
        repaired perhaps.

        Args:
            in_runs: messages that follow one another are told in one row.

        Raises:
            DamagedLogError: none of them is what was written.
        """
        runs: list[dict[str, object]] = []
        records: list[memoryview] = []
        for queue_id, deliveries in _by_queue(places).items():
            end, last, sizes = -1, 0, list[int]()
            offsets = _ascending(deliveries)
            for offset, record in self._readable(QueueName(topic, queue_id), offsets):
                delivery = deliveries[offset]
                if offset != end or delivery != last:
                    last, sizes = delivery, []
                    before, behind = handle_ends(group, topic, queue_id, delivery, mark)
                    runs.append(
                        {
                            "before": before,
                            "behind": behind,
                            "queue": queue_id,
                            "offset": offset,
                            "delivery": delivery,
                            "until": until,
                            "sizes": sizes,
                        }
                    )
                end = offset + 1
                sizes.append(len(record))
                records.append(record)
        if not records:
            for place in places:
                # One that is damaged raises here.
                read = self.queues.read(QueueName(topic, place.queue_id), place.offsets)
                deque(read, maxlen=0)
        told = {RUNS: runs} if in_runs else {"messages": list(_rows(runs))}
        return {"topic": topic, **told, PAYLOAD: b"".join(records)}

    def _readable(
        self, queue: QueueName, offsets: Sequence[int]
    ) -> Iterator[tuple[int, memoryview]]:
        """The records at ``offsets``, which ascend, without those that are gone or damaged."""
        last = -1
        try:
            for last, record in self.queues.read(queue, offsets):
                yield last, record
        except DamagedLogError:
            for offset in offsets:
                if offset > last:
                    with suppress(DamagedLogError):
                        yield from self.queues.read(queue, (offset,))

    def dead_letters(self, group: str, topic: str, places: Sequence[TakenPlace]) -> Iterator[bytes]:
        """The records that messages become which a group has given up; none of those that are gone,
        that nobody can read, or that are in a group without retry queues: it drops them.

        Raises:
            DamagedLogError: one is not what was written.
        """
        for queue_id, deliveries in _by_queue(places).items():
            queue = QueueName(topic, queue_id)
            for offset, record in self.queues.read(queue, sorted(deliveries)):
                make = partial(self._dead_letter, group, bytes(record), deliveries[offset])
                name = f"{topic}/{queue_id}/{offset}"
                made = self._poison.guarded(name, make, None)
                if made is not None:
                    yield made

    def _dead_letter(self, group: str, record: bytes, delivery: int) -> bytes | None:
        message = decode_message(memoryview(record))
        tried = replace(message, reconsume_times=max(0, delivery - 1))
        returned = give_back(
            tried,
            self._topics.group(group),
            level=-1,
            times_max=None,
            level_max=0,
            existing=None,
            chance=0,
        )
        if returned is None:
            return None
        return encode_message(replace(returned.message, store_host=self._address))


def _of_no_use(offset: int) -> LookedAt:
    """A message that is there no more."""
    return LookedAt(offset, 0, None, False)


def _is_wanted(record: memoryview, wanted: IsWanted) -> bool:
    return wanted(decode_properties(properties_in(record)))


def _by_queue(places: Sequence[TakenPlace]) -> dict[int, dict[int, int]]:
    """How often each message was handed out, by queue and offset."""
    found: dict[int, dict[int, int]] = {}
    for place in places:
        of = found.setdefault(place.queue_id, {})
        of.update(dict.fromkeys(place.offsets, place.delivery))
    return found


def _ascending(offsets: Collection[int]) -> Sequence[int]:
    """The same in their order; mostly they follow one another, and are read in one go."""
    first, last = min(offsets), max(offsets)
    return range(first, last + 1) if last - first == len(offsets) - 1 else sorted(offsets)


def _rows(runs: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, object]]:
    """A row for each message, as those read them who know no others."""
    for run in runs:
        told = {name: run[name] for name in ("queue", "delivery", "until")}
        for offset, size in enumerate(run["sizes"], run["offset"]):
            handle = f"{run['before']}{offset}{run['behind']}"
            yield {"handle": handle, "offset": offset, "size": size, **told}
