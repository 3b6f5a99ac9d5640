"""Dead letters of a group: listed, and replayed.

``DeadLetters`` waits, ``AsyncDeadLetters`` is awaited; both have the same verbs.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ledgermq.client.broker_connection import TIMEOUT_S, AsyncBrokerClient, BrokerClient
from ledgermq.client.core.address import DEFAULT_ADDRESS
from ledgermq.client.core.asked import asked
from ledgermq.client.core.nodes import AnyLink
from ledgermq.client.core.questions import ask
from ledgermq.client.core.received import ReceivedMessage
from ledgermq.client.core.requests import Steps
from ledgermq.client.reading.message_track import browse
from ledgermq.formats.records.properties import RETRY_TOPIC
from ledgermq.model.errors import ConfigError, MessageIllegalError, ProtocolError
from ledgermq.model.names.group_topics import dead_letter_topic
from ledgermq.verbs.answers import elements, integer, integers
from ledgermq.wire.pull_frame import BYTES_MAX

READ_AT_ONCE_MAX = 1_024
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


class DeadLettersVerbs:
    """What may be done with the dead letters of a group."""

    NAME = "dead-letters"
    group: str
    _link: AnyLink

    @asked
    def queues(self) -> Steps[list[DeadLetterQueue]]:
        """The queues of the group's dead letters: one, or none while it has none.

        Raises:
            GroupUnknownError: there is no such group.
        """
        told = yield from ask("dead_letters", group=self.group)
        return [dead_letter_queue(row) for row in elements(told, "queues")]

    @asked
    def read(
        self,
        offset: int,
        *,
        queue_id: int = 0,
        messages_max: int = READ_AT_ONCE_MAX,
        bytes_max: int = BYTES_MAX,
    ) -> Steps[list[DeadLetter]]:
        """Dead letters from ``offset`` on, or from the first one that is still there.

        Nothing counts as consumed by that. Empty behind the last one.

        Args:
            bytes_max: of all of them; one is given whatever its size.

        Raises:
            TopicUnknownError: the group has no dead letters.
        """
        told = yield from ask("dead_letters", group=self.group)
        known = {
            queue.queue_id: queue for queue in map(dead_letter_queue, elements(told, "queues"))
        }
        queue = known.get(queue_id)
        first = max(offset, queue.begin if queue is not None else 0)
        if queue is not None and first >= queue.end:
            return []
        topic = dead_letter_topic(self.group)
        batch = yield from browse(
            self._link, topic, queue_id, first, messages_max, bytes_max=bytes_max
        )
        return [
            DeadLetter(message, queue is not None and queue.was_replayed(message.queue_offset))
            for message in batch
        ]

    @asked
    def replay(
        self,
        offsets: Iterable[int],
        *,
        queue_id: int = 0,
        origin: bool = False,
        again: bool = False,
    ) -> Steps[Replay]:
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
        waiting = sorted(set(offsets))
        if not waiting or waiting[0] < 0:
            raise ConfigError("no offsets of dead letters", group=self.group, offsets=waiting)
        found = Replay([], [], [])
        while waiting:
            piece, waiting = waiting[:REPLAYED_AT_ONCE_MAX], waiting[REPLAYED_AT_ONCE_MAX:]
            result = yield from ask(
                "dead_letters_replay",
                group=self.group,
                queue=queue_id,
                offsets=piece,
                origin=origin,
                again=again,
                # One move each; a piece that is asked again is known by it.
                token=secrets.randbelow(2**62 - 1) + 1,
            )
            found.replayed.extend(integers(result, "replayed"))
            found.already.extend(integers(result, "already"))
            found.missing.extend(integers(result, "missing"))
            left = integers(result, "left")
            if len(left) == len(piece):
                raise MessageIllegalError(
                    "dead letters are not replayed", group=self.group, offsets=left
                )
            waiting = left + waiting
        return found


class DeadLetters(DeadLettersVerbs, BrokerClient):
    """Questions about dead letters that wait for their answer; one thread at a time may ask."""

    def __init__(
        self,
        address: str | Sequence[str] = DEFAULT_ADDRESS,
        *,
        group: str,
        name: str | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """A connection, which is made with the first question; see ``BrokerClient``.

        Args:
            group: whose dead letters.
        """
        super().__init__(address, name=name, timeout_s=timeout_s)
        self.group = group


class AsyncDeadLetters(DeadLettersVerbs, AsyncBrokerClient):
    """Questions that are awaited: ``async with AsyncDeadLetters(…) as letters:``."""

    def __init__(
        self,
        address: str | Sequence[str] = DEFAULT_ADDRESS,
        *,
        group: str,
        name: str | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        super().__init__(address, name=name, timeout_s=timeout_s)
        self.group = group


def dead_letter_queue(row: object) -> DeadLetterQueue:
    """A row of the answer to ``dead_letters``.

    Raises:
        ProtocolError: it is none.
    """
    replayed = row.get("replayed") if isinstance(row, dict) else None
    if not isinstance(row, dict) or not isinstance(replayed, list):
        raise ProtocolError("not a queue of dead letters", row=row)
    pairs = tuple((int(first), int(end)) for first, end in replayed)
    return DeadLetterQueue(integer(row, "queue"), integer(row, "min"), integer(row, "max"), pairs)
