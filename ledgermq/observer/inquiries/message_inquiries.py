"""Inquiries about messages: by id, key, time or place, and which groups have consumed one."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import NamedTuple

from ledgermq.client.core.received import ReceivedMessage
from ledgermq.client.reading.message_life import life_of, traced_events, traced_id
from ledgermq.client.reading.received_json import life_as_json, received_as_json
from ledgermq.model.errors import ConfigError, MessageUnknownError
from ledgermq.model.limits import TIMESTAMP_MAX
from ledgermq.observer.inquiries.broker_sessions import BrokerSession
from ledgermq.observer.inquiries.inquirer import Inquirer
from ledgermq.observer.inquiries.looks import Looks
from ledgermq.observer.inquiries.row_pages import Json, checked_limit

MESSAGES_SHOWN = 32
PULLED_MAX = 32
PULLED_BYTES_MAX = 1024 * 1024
"""What is fetched at once: there is one answer of the broker in memory for each inquiry."""

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
        begin: int = 0,
        end: int = TIMESTAMP_MAX,
        limit: int = MESSAGES_SHOWN,
        body_max: int = BODY_DEFAULT,
    ) -> Json:
        """What ``ledgermq message find --key`` tells: the newest of a key, in the order of the log.

        Args:
            begin, end: store times, epoch ms, both included.
        """
        count = checked_limit(limit)

        async def inquire(session: BrokerSession) -> Json:
            found = await session.by_key(topic, key, messages_max=count, begin=begin, end=end)
            shown = self._shown(body_max)
            for message in reversed(found.messages):
                if shown.is_full:
                    break
                await shown.add(message)
            index = {"timestamp": found.index_timestamp, "physicalOffset": found.index_position}
            more = found.has_more or len(shown.rows) < len(found.messages)
            return {"messages": shown.rows[::-1], "more": more, "index": index}

        return await self._inquirer.look(inquire)

    async def by_time(
        self,
        topic: str,
        *,
        begin: int,
        end: int = TIMESTAMP_MAX,
        limit: int = MESSAGES_SHOWN,
        body_max: int = BODY_DEFAULT,
    ) -> Json:
        """What ``ledgermq message find --from --to`` tells: the first of each queue that were
        stored then, both included (epoch ms), in the order of the log; ``more``: there may be
        others.
        """
        count = checked_limit(limit)

        async def inquire(session: BrokerSession) -> Json:
            found: list[_Told] = []
            more = False
            for queue_id in range(await session.read_queues(topic)):
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
    offset = max(begin, first)
    while offset < end:
        batch = await session.browse(
            topic, queue_id, offset, messages_max=PULLED_MAX, bytes_max=PULLED_BYTES_MAX
        )
        for message in batch:
            yield message
        if batch.next_offset <= offset:
            return
        offset = batch.next_offset


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
