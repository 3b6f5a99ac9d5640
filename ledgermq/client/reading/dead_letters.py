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
from ledgermq.client.core.questions import asking
from ledgermq.client.core.received import ReceivedMessage
from ledgermq.client.core.requests import Steps
from ledgermq.client.reading.message_track import browse
from ledgermq.client.reading.start_offsets import checked_group
from ledgermq.formats.records.properties import RETRY_TOPIC
from ledgermq.model.errors import ConfigError, MessageIllegalError
from ledgermq.model.names.group_topics import dead_letter_topic
from ledgermq.verbs.dead_letters import (
    TOKEN_MAX,
    DeadLetterQueue,
    ReplayDeadLetters,
    ShowDeadLetters,
)
from ledgermq.wire.pull_frame import BYTES_MAX

READ_AT_ONCE_MAX = 1_024
REPLAYED_AT_ONCE_MAX = 256


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
        return (yield from asking(ShowDeadLetters(self.group)))

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

        Nothing counts as consumed by that. Empty behind the last one, and where the group has
        none yet.

        Args:
            bytes_max: of all of them; one is given whatever its size.

        Raises:
            GroupUnknownError: there is no such group.
            TopicUnknownError: there is no such queue of dead letters.
        """
        queues = yield from asking(ShowDeadLetters(self.group))
        if not queues:
            return []
        queue = next((one for one in queues if one.queue_id == queue_id), None)
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
        given = list(offsets) if isinstance(offsets, Iterable) else [offsets]
        if not given or not all(type(one) is int and one >= 0 for one in given):
            raise ConfigError("no offsets of dead letters", group=self.group, offsets=given)
        waiting = sorted(set(given))
        found = Replay([], [], [])
        while waiting:
            piece, waiting = waiting[:REPLAYED_AT_ONCE_MAX], waiting[REPLAYED_AT_ONCE_MAX:]
            # One move each; a piece that is asked again is known by it.
            token = secrets.randbelow(TOKEN_MAX - 1) + 1
            order = ReplayDeadLetters(
                self.group, queue_id, piece, origin=origin, again=again, token=token
            )
            done = yield from asking(order)
            found.replayed.extend(done.replayed)
            found.already.extend(done.already)
            found.missing.extend(done.missing)
            if len(done.left) == len(piece):
                raise MessageIllegalError(
                    "dead letters are not replayed", group=self.group, offsets=done.left
                )
            waiting = done.left + waiting
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
        self.group = checked_group(group)


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
        self.group = checked_group(group)
