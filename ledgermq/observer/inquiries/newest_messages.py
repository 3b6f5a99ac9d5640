"""Newest messages of a topic: those of all its queues together, and those of them with a text."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress

from ledgermq.client.core.questions import asking
from ledgermq.client.core.received import ReceivedMessage
from ledgermq.model.errors import BodyUnreadableError
from ledgermq.observer.inquiries.broker_sessions import BrokerSession
from ledgermq.observer.inquiries.looks import Looks
from ledgermq.verbs.topics import QueueState, ShowTopic

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
