"""Inquiries about messages: by id, key, time or place, and by who consumed them; dead letters."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from ledgermq.client.core.questions import PAGE, ask, asking
from ledgermq.client.core.received import ReceivedMessage
from ledgermq.client.core.requests import Steps
from ledgermq.client.reading.dead_letters import DeadLetter
from ledgermq.client.reading.message_life import life_of, traced_events, traced_id
from ledgermq.client.reading.received_json import dead_letter_sums, life_as_json, received_as_json
from ledgermq.model.errors import (
    BodyUnreadableError,
    ConfigError,
    MessageUnknownError,
    NoPermissionError,
)
from ledgermq.model.limits import TIMESTAMP_MAX
from ledgermq.model.names.group_topics import DEAD_LETTER_PREFIX
from ledgermq.observer.inquiries.broker_sessions import BrokerSession, LettersOfGroup
from ledgermq.observer.inquiries.inquirer import Inquirer
from ledgermq.observer.inquiries.looks import Looks
from ledgermq.observer.inquiries.row_pages import ROWS_DEFAULT, Json, checked_limit
from ledgermq.verbs.answers import rows, text
from ledgermq.verbs.dead_letters import DeadLetterQueue
from ledgermq.verbs.topics import QueueState, ShowTopic
from ledgermq.wire.query_frame import MESSAGES_MAX

PULLED_MAX = 32
PULLED_BYTES_MAX = 1024 * 1024
"""What is fetched at once: there is one answer of the broker in memory for each inquiry."""

SEARCHED_MAX = 5_000
SEARCHED_BYTES_MAX = 32 * 1024 * 1024
SEARCHED_S = 6.0
"""Messages of one search, bytes of their records, and time: it ends with the round that reaches one
of them.
"""

SEARCHED_BODY_MAX = 64 * 1024
"""Bytes of a body that are searched."""


async def queues_of(session: BrokerSession, topic: str) -> list[QueueState]:
    """Queues of a topic that hold messages, the one with the newest first."""
    state = await session.run(asking(ShowTopic(topic)))
    held = (queue for queue in state.queues if queue.end > queue.begin)
    return sorted(held, key=lambda queue: -(queue.last_stored or 0))


async def last_messages(
    session: BrokerSession, topic: str, queue: QueueState, count: int
) -> list[ReceivedMessage]:
    """The last ones of a queue, ``count`` of them or about ``PULLED_BYTES_MAX``; at least one."""
    first = max(queue.begin, queue.end - count)
    batch = await session.browse(
        topic, queue.queue, first, messages_max=count, bytes_max=PULLED_BYTES_MAX
    )
    if batch.next_offset >= queue.end:
        return list(batch)
    # They are large: as many as fitted are about as many as fit.
    first = queue.end - max(1, len(list(batch)))
    return [one async for one in span(session, topic, queue.queue, first, queue.end)]


async def span(
    session: BrokerSession, topic: str, queue_id: int, first: int, end: int
) -> AsyncIterator[ReceivedMessage]:
    """Messages of a queue from an offset up to another one."""
    offset = first
    while offset < end:
        batch = await session.browse(
            topic, queue_id, offset, messages_max=PULLED_MAX, bytes_max=PULLED_BYTES_MAX
        )
        for message in batch:
            if message.queue_offset < end:
                yield message
        if batch.next_offset <= offset:
            return
        offset = batch.next_offset


class TextSearch:
    """One search for messages that contain a text, from the ends of queues backwards.

    Attributes:
        looked: messages that were looked at.
        is_cut: there are older ones, which were not.
    """

    def __init__(
        self,
        session: BrokerSession,
        looks: Looks,
        topic: str,
        text: str,
        queue: int | None = None,
    ) -> None:
        """Nothing is asked yet.

        Args:
            queue: the only one that is looked through; None: all are.
        """
        self.looked = 0
        self.is_cut = False
        self._session = session
        self._looks = looks
        self._topic = topic
        self._queue = queue
        self._text = text.lower()
        self._bytes = 0

    async def found(self, count: int) -> list[ReceivedMessage]:
        """The newest that contain it, at least ``count`` where there are, in no order."""
        left = [
            (queue.queue, queue.begin, queue.end)
            for queue in await queues_of(self._session, self._topic)
            if self._queue in (None, queue.queue)
        ]
        found: list[ReceivedMessage] = []
        loop = asyncio.get_running_loop()
        until = loop.time() + SEARCHED_S
        while left:
            if len(found) >= count or self._is_enough or loop.time() >= until:
                self.is_cut = True
                break
            found += await self._round(left)
            left = [
                (queue, begin, end - PULLED_MAX)
                for queue, begin, end in left
                if end - PULLED_MAX > begin
            ]
        return found

    @property
    def _is_enough(self) -> bool:
        return self.looked >= SEARCHED_MAX or self._bytes >= SEARCHED_BYTES_MAX

    async def _round(self, queues: Sequence[tuple[int, int, int]]) -> list[ReceivedMessage]:
        """The next messages of each queue, as far as there is room for that."""
        found: list[ReceivedMessage] = []
        for queue_id, begin, end in queues:
            first = max(begin, end - PULLED_MAX)
            async for message in span(self._session, self._topic, queue_id, first, end):
                self.looked += 1
                self._bytes += len(message.record)
                if await self._looks.make(_contains, message, self._text):
                    found.append(message)
            if self._is_enough:
                break
        return found


def _contains(message: ReceivedMessage, text: str) -> bool:
    """Whether the beginning of its body, or a property, has ``text``, whatever case it is in."""
    if any(text in value.lower() for value in message.properties.values()):
        return True
    body = message.stored_body[:SEARCHED_BODY_MAX]
    # What cannot be decompressed is searched as it is stored, as it is shown.
    with suppress(BodyUnreadableError):
        if message.is_compressed:
            body = memoryview(message.body_start(SEARCHED_BODY_MAX).content)
    return text in bytes(body).decode(errors="replace").lower()


MESSAGES_SHOWN = 32
BODY_DEFAULT = 64 * 1024
BODY_MAX = 1024 * 1024
ROWS_SIZE_MAX = 4 * 1024 * 1024
RECORDS_SIZE_MAX = 32 * 1024 * 1024
"""Characters of the JSON of all messages of one answer, and bytes of their records, also where few
of them are told: it ends with the message that reaches either.
"""


class MessageInquiries:
    """The leader answers who may consume the topic. Bodies are text, else base64, as
    ``received_as_json`` has them; of longer ones than ``body_max`` bytes the beginning is told, and
    their size as ``bodySize``, or that they are longer as ``bodyLongerThan``.
    """

    def __init__(self, inquirer: Inquirer) -> None:
        self._inquirer = inquirer

    async def show(
        self, id_: str, topic: str | None = None, *, body_max: int = BODY_DEFAULT
    ) -> Json:
        """What ``ledgermq message show`` tells: by offset id, or with ``topic`` by the producer's
        id.

        Raises:
            MessageUnknownError: there is none of that id.
        """

        async def inquire(session: BrokerSession) -> Json:
            found = await _by_id(session, id_, topic)
            return {"message": await self._shown(body_max).add(found)}

        return await self._inquirer.look(inquire)

    async def track(
        self, id_: str, topic: str | None = None, *, body_max: int = BODY_DEFAULT
    ) -> Json:
        """What ``ledgermq message track`` tells: the message, where each group stands with it, and
        what has happened to it, as far as the log and the traces that the caller may read tell.

        Raises:
            MessageUnknownError: there is none of that id.
        """

        async def inquire(session: BrokerSession) -> Json:
            message = await _by_id(session, id_, topic)
            tracks = await session.track(message)
            groups = [
                {"group": one.group, "state": one.state.value, "consumedTo": one.consumed_to}
                for one in tracks
            ]
            make = self._inquirer.sources.looks.make
            told = await self._shown(body_max).add(message)
            traces, fault = await session.traces(message)
            traced = await make(traced_events, traced_id(message), traces)
            copied = await session.copied(message, {*(one.group for one in tracks), *traced.groups})
            life = life_of(message, copied, traced._replace(fault=fault or traced.fault))
            return {"message": told, "groups": groups, **life_as_json(life)}

        return await self._inquirer.look(inquire)

    async def by_key(
        self,
        topic: str,
        key: str,
        *,
        queue: int | None = None,
        begin: int = 0,
        end: int = TIMESTAMP_MAX,
        limit: int = MESSAGES_SHOWN,
        body_max: int = BODY_DEFAULT,
    ) -> Json:
        """What ``ledgermq message find --key`` tells: the newest of a key, in the order of the log.

        Args:
            queue: of this one alone, among the newest ``MESSAGES_MAX`` of the key.
            begin, end: store times, epoch ms, both included.

        Raises:
            TopicUnknownError: there is no such queue.
        """
        count = checked_limit(limit)

        async def inquire(session: BrokerSession) -> Json:
            asked = count
            if queue is not None:
                await session.offsets(topic, queue)
                # The index knows no queues.
                asked = MESSAGES_MAX
            found = await session.by_key(topic, key, messages_max=asked, begin=begin, end=end)
            messages = [one for one in found.messages if queue in (None, one.queue_id)]
            shown = self._shown(body_max)
            for message in messages[: -count - 1 : -1]:
                if shown.is_full:
                    break
                await shown.add(message)
            index = {"timestamp": found.index_timestamp, "physicalOffset": found.index_position}
            more = found.has_more or len(shown.rows) < len(messages)
            return {"messages": shown.rows[::-1], "more": more, "index": index}

        return await self._inquirer.look(inquire)

    async def by_time(
        self,
        topic: str,
        *,
        begin: int,
        end: int = TIMESTAMP_MAX,
        queue: int | None = None,
        limit: int = MESSAGES_SHOWN,
        body_max: int = BODY_DEFAULT,
    ) -> Json:
        """What ``ledgermq message find --from --to`` tells: the first of each queue that were
        stored then, both included (epoch ms), in the order of the log; ``more``: there may be
        others.

        Args:
            queue: of this one alone.

        Raises:
            TopicUnknownError: there is no such queue.
        """
        count = checked_limit(limit)

        async def inquire(session: BrokerSession) -> Json:
            found: list[_Told] = []
            more = False
            wanted = range(await session.read_queues(topic)) if queue is None else (queue,)
            for queue_id in wanted:
                first = await session.offset_since(topic, queue_id, begin)
                shown = self._shown(body_max, ROWS_SIZE_MAX // 4)
                async for message in _walk(session, topic, queue_id, first):
                    if message.store_timestamp > end:
                        break
                    if message.store_timestamp < begin:
                        continue
                    if len(shown.rows) == count or shown.is_full:
                        more = True
                        break
                    await shown.add(message)
                merged = sorted([*found, *shown.told], key=_position)
                found = _within(merged[:count])
                more = more or len(found) < len(merged)
            return {"messages": [one.row for one in found], "more": more}

        return await self._inquirer.look(inquire)

    async def newest(
        self, topic: str, *, limit: int = MESSAGES_SHOWN, body_max: int = BODY_DEFAULT
    ) -> Json:
        """The newest of all queues of a topic, the newest first; ``more``: there are older ones."""
        count = checked_limit(limit)

        async def inquire(session: BrokerSession) -> Json:
            found: list[_Told] = []
            queues = await queues_of(session, topic)
            for queue in queues:
                if len(found) == count and _stored(found[-1]) > (queue.last_stored or 0):
                    break
                shown = self._shown(body_max, ROWS_SIZE_MAX // 4)
                for message in await last_messages(session, topic, queue, count):
                    await shown.add(message)
                found = _newest([*found, *shown.told], count)
            held = sum(queue.end - queue.begin for queue in queues)
            return {"messages": [one.row for one in found], "more": held > len(found)}

        return await self._inquirer.look(inquire)

    async def by_text(
        self,
        topic: str,
        text: str,
        *,
        queue: int | None = None,
        limit: int = MESSAGES_SHOWN,
        body_max: int = BODY_DEFAULT,
    ) -> Json:
        """The newest messages with a text in their bodies or properties, the newest first.

        ``looked``: among how many; ``more``: there are older ones, which were not looked at.

        Args:
            queue: of this one alone.

        Raises:
            ConfigError: there is no text to look for.
            TopicUnknownError: there is no such queue.
        """
        count = checked_limit(limit)
        if not text:
            raise ConfigError("a text is needed to find messages that contain it")

        async def inquire(session: BrokerSession) -> Json:
            if queue is not None:
                await session.offsets(topic, queue)
            search = TextSearch(session, self._inquirer.sources.looks, topic, text, queue)
            found = await search.found(count)
            found.sort(key=lambda message: -message.physical_offset)
            shown = self._shown(body_max)
            for message in found[:count]:
                if shown.is_full:
                    break
                await shown.add(message)
            return {"messages": shown.rows, "looked": search.looked, "more": search.is_cut}

        return await self._inquirer.look(inquire)

    async def browse(
        self,
        topic: str,
        queue: int = 0,
        *,
        offset: int | None = None,
        time: int | None = None,
        last: bool = False,
        limit: int = MESSAGES_SHOWN,
        body_max: int = BODY_DEFAULT,
    ) -> Json:
        """What ``ledgermq message browse`` tells: messages of a queue, from its first one on, from
        an ``offset``, from a ``time`` (epoch ms), or its ``last`` ones. ``next`` is the ``offset``
        of the next page, None at the end; ``min`` and ``max`` are what the queue holds, half-open.
        """
        if (offset is not None) + (time is not None) + last > 1:
            raise ConfigError("offset, time and last exclude one another")
        count = checked_limit(limit)

        async def inquire(session: BrokerSession) -> Json:
            begin, end = await session.offsets(topic, queue)
            first = begin if offset is None else offset
            if last:
                first = max(begin, end - count)
            elif time is not None:
                first = await session.offset_since(topic, queue, time)
            shown = self._shown(body_max)
            next_: int | None = None
            async for message in _walk(session, topic, queue, first):
                if len(shown.rows) == count or shown.is_full:
                    next_ = message.queue_offset
                    break
                await shown.add(message)
            return {"messages": shown.rows, "min": begin, "max": end, "next": next_}

        return await self._inquirer.look(inquire)

    def _shown(self, body_max: int, size_max: int = ROWS_SIZE_MAX) -> Shown:
        return Shown(self._inquirer.sources.looks, body_max, size_max)


class _Told(NamedTuple):
    row: Json
    size: int


class Shown:
    """Messages of one answer.

    Attributes:
        told: their rows, and the size of each as JSON.
    """

    def __init__(self, looks: Looks, body_max: int, size_max: int = ROWS_SIZE_MAX) -> None:
        """None yet.

        Args:
            looks: whose thread makes the rows.
            body_max: bytes of each body that are told.

        Raises:
            ConfigError: ``body_max`` is out of range.
        """
        if not 0 <= body_max <= BODY_MAX:
            raise ConfigError("body_max out of range", body_max=body_max, limit=BODY_MAX)
        self.told: list[_Told] = []
        self._looks = looks
        self._body_max = body_max
        self._left = size_max
        self._unread = RECORDS_SIZE_MAX

    @property
    def rows(self) -> list[Json]:
        """The rows."""
        return [one.row for one in self.told]

    @property
    def is_full(self) -> bool:
        """Whether there is no room for one more, or enough was read for one answer."""
        return self._left <= 0 or self._unread <= 0

    async def add(self, message: ReceivedMessage, more: Json | None = None) -> Json:
        """Take one more, whose row is returned; ``more`` is told of it besides."""
        told = await self._looks.make(_told, message, self._body_max, more or {})
        self._left -= told.size
        self._unread -= len(message.record)
        self.told.append(told)
        return told.row


def _told(message: ReceivedMessage, body_max: int, more: Json) -> _Told:
    row = {**received_as_json(message, body_max=body_max), **more}
    return _Told(row, len(json.dumps(row)))


async def _by_id(session: BrokerSession, id_: str, topic: str | None) -> ReceivedMessage:
    found = await session.message_by_id(id_, topic=topic)
    if found is None:
        raise MessageUnknownError("no such message", id=id_[:64])
    return found


async def _walk(
    session: BrokerSession, topic: str, queue_id: int, first: int
) -> AsyncIterator[ReceivedMessage]:
    """All messages of a queue from an offset up to where it ends now."""
    begin, end = await session.offsets(topic, queue_id)
    async for message in span(session, topic, queue_id, max(begin, first), end):
        yield message


def _newest(told: list[_Told], count: int) -> list[_Told]:
    """The ``count`` that stand last in the log, the last one first."""
    return _within(sorted(told, key=_position, reverse=True)[:count])


def _stored(told: _Told) -> int:
    stored = told.row["storeTimestamp"]
    assert isinstance(stored, int)
    return stored


def _within(told: list[_Told]) -> list[_Told]:
    """The first ones, as many as have room in one answer."""
    left = ROWS_SIZE_MAX
    for number, one in enumerate(told):
        if left <= 0:
            return told[:number]
        left -= one.size
    return told


def _position(told: _Told) -> int:
    position = told.row["physicalOffset"]
    assert isinstance(position, int)
    return position


REPLAYED_MAX = 10_000
"""Offsets of one replay of all: there may be more, and it may be asked for again."""


class DeadLetterInquiries:
    """The leader answers who may consume as the group; an admin may replay."""

    def __init__(self, inquirer: Inquirer) -> None:
        self._inquirer = inquirer

    async def groups(self, limit: int = ROWS_DEFAULT, after: str = "") -> Json:
        """What ``ledgermq dlq list`` tells: groups that have dead letters and that the caller may
        consume as, by name; ``next`` is the ``after`` of the next page, or None.
        """
        count = checked_limit(limit)

        async def inquire(session: BrokerSession) -> Json:
            names, next_ = await session.run(_page(count, after))
            found = []
            for group in names:
                with suppress(NoPermissionError):
                    queues = await session.letters(group).queues()
                    found.append({"group": group, "queues": dead_letter_sums(queues)})
            return {"groups": found, "next": next_}

        return await self._inquirer.leader(inquire)

    async def list(
        self,
        group: str,
        *,
        offset: int = 0,
        limit: int = MESSAGES_SHOWN,
        body_max: int = BODY_DEFAULT,
    ) -> Json:
        """What ``ledgermq dlq list GROUP`` tells: ``next`` is the ``offset`` of the next page, or
        None.
        """
        count = checked_limit(limit)

        async def inquire(session: BrokerSession) -> Json:
            letters = session.letters(group)
            queues = await letters.queues()
            shown = Shown(self._inquirer.sources.looks, body_max)
            next_: int | None = None
            for queue in queues:
                next_ = await _read(letters, queue, offset, shown, count)
                if next_ is not None:
                    break
            sums = dead_letter_sums(queues)
            return {"group": group, "queues": sums, "messages": shown.rows, "next": next_}

        return await self._inquirer.look(inquire)

    async def show(
        self, group: str, offset: int, *, queue: int = 0, body_max: int = BODY_DEFAULT
    ) -> Json:
        """What ``ledgermq dlq show`` tells.

        Raises:
            MessageUnknownError: there is none at that offset.
        """

        async def inquire(session: BrokerSession) -> Json:
            found = await session.letters(group).read(offset, queue_id=queue, messages_max=1)
            if not found or found[0].message.queue_offset != offset:
                raise MessageUnknownError("no dead letter there", group=group, offset=offset)
            shown = Shown(self._inquirer.sources.looks, body_max)
            return {"message": await _add(shown, found[0])}

        return await self._inquirer.look(inquire)

    async def replay(
        self,
        group: str,
        offsets: Sequence[int] | None = None,
        *,
        queue: int = 0,
        origin: bool = False,
        again: bool = False,
    ) -> Json:
        """What ``ledgermq dlq replay`` tells; ``DeadLetters.replay`` explains it.

        Args:
            offsets: these, at most ``REPLAYED_MAX``; None: all, or the first ``REPLAYED_MAX``, that
                were not replayed yet.
        """
        if offsets is not None and len(offsets) > REPLAYED_MAX:
            raise ConfigError("too many offsets", offsets=len(offsets), limit=REPLAYED_MAX)

        async def inquire(session: BrokerSession) -> Json:
            letters = session.letters(group)
            wanted = offsets
            if wanted is None:
                wanted = _left(await letters.queues(), queue, again=again)
            if not wanted:
                return {"group": group, "replayed": [], "already": [], "missing": []}
            done = await letters.replay(wanted, queue_id=queue, origin=origin, again=again)
            return {"group": group, **done._asdict()}

        return await self._inquirer.leader(inquire)


async def _read(
    letters: LettersOfGroup, queue: DeadLetterQueue, first: int, shown: Shown, count: int
) -> int | None:
    """Add those of a queue until there are ``count``; the offset of the next one, or None."""
    offset = max(first, queue.begin)
    while offset < queue.end:
        batch = await letters.read(
            offset,
            queue_id=queue.queue_id,
            messages_max=PULLED_MAX,
            bytes_max=PULLED_BYTES_MAX,
        )
        if not batch:
            return None
        for letter in batch:
            if len(shown.rows) == count or shown.is_full:
                return letter.message.queue_offset
            await _add(shown, letter)
        offset = batch[-1].message.queue_offset + 1
    return None


async def _add(shown: Shown, letter: DeadLetter) -> Json:
    more = {"firstTopic": letter.first_topic, "replayed": letter.is_replayed}
    return await shown.add(letter.message, more)


def _left(queues: Sequence[DeadLetterQueue], number: int, *, again: bool) -> Sequence[int]:
    """Offsets of a queue that were not replayed, or all with ``again``; the first ones."""
    found: list[int] = []
    for queue in queues:
        if queue.queue_id != number:
            continue
        at = queue.begin
        for first, end in () if again else queue.replayed:
            # A range at a time: of millions that were replayed each costs no look.
            found += range(at, min(first, at + REPLAYED_MAX - len(found), queue.end))
            at = max(at, end)
        found += range(at, min(queue.end, at + REPLAYED_MAX - len(found)))
    return found


def _page(limit: int, after: str) -> Steps[tuple[list[str], str | None]]:
    """Groups behind ``after`` with a topic of dead letters; the last one if there are more."""
    found: list[str] = []
    # Behind all names that sort before the first topic of dead letters.
    at = DEAD_LETTER_PREFIX + after
    while True:
        page = yield from ask("topics", limit=PAGE, after=at)
        for topic in rows(page, "topics", lambda row: text(row, "topic")):
            if not topic.startswith(DEAD_LETTER_PREFIX):
                return found, None
            if len(found) == limit:
                return found, found[-1]
            at = topic
            found.append(topic.removeprefix(DEAD_LETTER_PREFIX))
        if not page.get("more"):
            return found, None
