"""Inquiries about dead letters: which there are, and their replay."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from ledgermq.client.core.questions import PAGE, ask
from ledgermq.client.core.requests import Steps
from ledgermq.client.reading.dead_letters import DeadLetter
from ledgermq.client.reading.received_json import dead_letter_sums
from ledgermq.model.errors import ConfigError, MessageUnknownError, NoPermissionError
from ledgermq.model.names.group_topics import DEAD_LETTER_PREFIX
from ledgermq.observer.inquiries.broker_sessions import BrokerSession, LettersOfGroup
from ledgermq.observer.inquiries.inquirer import Inquirer
from ledgermq.observer.inquiries.message_inquiries import (
    BODY_DEFAULT,
    MESSAGES_SHOWN,
    PULLED_BYTES_MAX,
    PULLED_MAX,
    Shown,
)
from ledgermq.observer.inquiries.row_pages import ROWS_DEFAULT, Json, checked_limit
from ledgermq.verbs.answers import rows, text
from ledgermq.verbs.dead_letters import DeadLetterQueue

REPLAYED_MAX = 10_000
"""Offsets of one replay of all: there may be more, and it may be asked for again."""


class DeadLetterInquiries:
    """The leader answers who may consume as the group; an admin may replay."""

    def __init__(self, inquirer: Inquirer) -> None:
        self._inquirer = inquirer

    async def groups(self, *, limit: int = ROWS_DEFAULT, after: str = "") -> Json:
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
