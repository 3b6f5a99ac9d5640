"""Dead letters of a group: messages that it has given up, to be looked at and replayed.

``DeadLetters`` waits, ``AsyncDeadLetters`` is awaited; both have the same methods.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ledgermq.client.address import DEFAULT_ADDRESS
from ledgermq.client.broker import integer
from ledgermq.client.broker_connection import AsyncBrokerClient, BrokerClient
from ledgermq.client.group import AnyLink
from ledgermq.client.message_track import browse
from ledgermq.client.received import ReceivedMessage
from ledgermq.client.requests import Steps, call_request, call_result
from ledgermq.formats.properties import RETRY_TOPIC
from ledgermq.model.errors import ConfigError, MessageIllegalError, ProtocolError
from ledgermq.model.group_topics import dead_letter_topic

TIMEOUT_S = 15.0
MESSAGES_MAX = 1_024
REPLAYED_AT_ONCE_MAX = 256


class DeadLetterQueue(NamedTuple):
    """A queue of dead letters, and which of them were replayed.

    Attributes:
        begin: first offset that it holds.
        end: offset behind the last one.
        replayed: offsets, half-open, ascending.
    """

    queue_id: int
    begin: int
    end: int
    replayed: tuple[tuple[int, int], ...]

    def was_replayed(self, offset: int) -> bool:
        """Whether the dead letter at ``offset`` was replayed."""
        return any(first <= offset < end for first, end in self.replayed)

    @property
    def replayed_count(self) -> int:
        """How many of those that it holds were replayed."""
        pairs = ((max(first, self.begin), min(end, self.end)) for first, end in self.replayed)
        return sum(max(0, end - first) for first, end in pairs)


class DeadLetter(NamedTuple):
    """A message that a group has given up."""

    message: ReceivedMessage
    is_replayed: bool

    @property
    def first_topic(self) -> str:
        """The topic that it was sent to; empty when it does not say."""
        return self.message.properties.get(RETRY_TOPIC, "")


class Replay(NamedTuple):
    """What became of the dead letters that were to be replayed, by their offsets.

    Attributes:
        replayed: they are in the log once more.
        already: they were replayed before, and were left alone.
        missing: the queue does not hold them (any more).
    """

    replayed: list[int]
    already: list[int]
    missing: list[int]


class DeadLetters(BrokerClient):
    """Questions about dead letters that wait for their answer; one thread at a time may ask."""

    def __init__(
        self,
        address: str | Sequence[str] = DEFAULT_ADDRESS,
        *,
        group: str,
        name: str = "dead-letters",
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """A connection, which is made with the first question.

        Args:
            address: as a ``Consumer`` takes it.
            group: whose dead letters.
            name: of this client, as the node's operator sees it.
            timeout_s: for each question.

        Raises:
            ConfigError: the address cannot be one.
        """
        super().__init__(address, name=name, timeout_s=timeout_s)
        self.group = group

    def queues(self) -> list[DeadLetterQueue]:
        """The queues of the group's dead letters: one, or none while it has none."""
        return self._broker.run(_queues(self.group))

    def read(
        self, offset: int, *, queue_id: int = 0, messages_max: int = MESSAGES_MAX
    ) -> list[DeadLetter]:
        """Dead letters from ``offset`` on, or from the first one that is still there.

        Nothing counts as consumed by that. Empty behind the last one.

        Raises:
            TopicUnknownError: the group has no dead letters.
        """
        return self._broker.run(_read(self._link, self.group, queue_id, offset, messages_max))

    def replay(
        self,
        offsets: Iterable[int],
        *,
        queue_id: int = 0,
        origin: bool = False,
        again: bool = False,
    ) -> Replay:
        """Give dead letters to the group once more; each becomes one message, whatever dies.

        Args:
            offsets: which ones; those that were replayed before are left alone.
            origin: into the topics that they were first sent to, where all groups get them; else
                the group alone gets them.
            again: also those that were replayed before.

        Raises:
            TopicUnknownError: a topic does not exist any more.
            TimedOutError: no answer; they may be replayed. Who asks anew doubles nothing, unless
                ``again`` is set.
        """
        return self._broker.run(
            _replay(self.group, queue_id, list(offsets), origin=origin, again=again)
        )


class AsyncDeadLetters(AsyncBrokerClient):
    """See ``DeadLetters``; used as ``async with AsyncDeadLetters(…) as letters:``."""

    def __init__(
        self,
        address: str | Sequence[str] = DEFAULT_ADDRESS,
        *,
        group: str,
        name: str = "dead-letters",
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        super().__init__(address, name=name, timeout_s=timeout_s)
        self.group = group

    async def queues(self) -> list[DeadLetterQueue]:
        """See ``DeadLetters.queues``."""
        return await self._open().run(_queues(self.group))

    async def read(
        self, offset: int, *, queue_id: int = 0, messages_max: int = MESSAGES_MAX
    ) -> list[DeadLetter]:
        """See ``DeadLetters.read``."""
        steps = _read(self._link, self.group, queue_id, offset, messages_max)
        return await self._open().run(steps)

    async def replay(
        self,
        offsets: Iterable[int],
        *,
        queue_id: int = 0,
        origin: bool = False,
        again: bool = False,
    ) -> Replay:
        """See ``DeadLetters.replay``."""
        steps = _replay(self.group, queue_id, list(offsets), origin=origin, again=again)
        return await self._open().run(steps)


def _queues(group: str) -> Steps[list[DeadLetterQueue]]:
    request = call_request("dead_letters", {"group": group})
    yield request
    rows = call_result(request).get("queues")
    if not isinstance(rows, list):
        raise ProtocolError("field missing or not a list", field="queues")
    return [_queue(row) for row in rows]


def _queue(row: object) -> DeadLetterQueue:
    replayed = row.get("replayed") if isinstance(row, dict) else None
    if not isinstance(row, dict) or not isinstance(replayed, list):
        raise ProtocolError("not a queue of dead letters", row=row)
    pairs = tuple((int(first), int(end)) for first, end in replayed)
    return DeadLetterQueue(integer(row, "queue"), integer(row, "min"), integer(row, "max"), pairs)


def _read(
    link: AnyLink, group: str, queue_id: int, offset: int, messages_max: int
) -> Steps[list[DeadLetter]]:
    known = {queue.queue_id: queue for queue in (yield from _queues(group))}
    queue = known.get(queue_id)
    first = max(offset, queue.begin if queue is not None else 0)
    if queue is not None and first >= queue.end:
        return []
    batch = yield from browse(link, dead_letter_topic(group), queue_id, first, messages_max)
    return [
        DeadLetter(message, queue is not None and queue.was_replayed(message.queue_offset))
        for message in batch
    ]


def _replay(
    group: str, queue_id: int, offsets: Sequence[int], *, origin: bool, again: bool
) -> Steps[Replay]:
    """In pieces of one move each; a piece that is asked again is known by its token."""
    if not offsets or min(offsets) < 0:
        raise ConfigError("no offsets of dead letters", group=group, offsets=list(offsets))
    found = Replay([], [], [])
    waiting = sorted(set(offsets))
    while waiting:
        piece, waiting = waiting[:REPLAYED_AT_ONCE_MAX], waiting[REPLAYED_AT_ONCE_MAX:]
        request = call_request(
            "dead_letters_replay",
            {
                "group": group,
                "queue": queue_id,
                "offsets": piece,
                "origin": origin,
                "again": again,
                "token": secrets.randbelow(2**62 - 1) + 1,
            },
        )
        yield request
        result = call_result(request)
        found.replayed.extend(_numbers(result, "replayed"))
        found.already.extend(_numbers(result, "already"))
        found.missing.extend(_numbers(result, "missing"))
        left = _numbers(result, "left")
        if len(left) == len(piece):
            raise MessageIllegalError("dead letters are not replayed", group=group, offsets=left)
        waiting = left + waiting
    return found


def _numbers(result: dict[str, object], name: str) -> list[int]:
    values = result.get(name)
    if not isinstance(values, list):
        raise ProtocolError("field missing or not a list", field=name)
    return [int(value) for value in values]
