"""Parts of a transaction under way, shared by both kinds of transactional producer."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

from ledgermq.client.sending.message_options import QueueChoice
from ledgermq.client.sending.outgoing import OutgoingMessage
from ledgermq.client.sending.sender import RECORD_AROUND
from ledgermq.client.sending.transaction_requests import half_message
from ledgermq.model.errors import ConfigError, LedgerError, MessageIllegalError
from ledgermq.model.limits import GROUP_SIZE_MAX
from ledgermq.model.names.transactions import HALF_TOPIC, MESSAGES_MAX, SIZE_MAX

HALF = QueueChoice(HALF_TOPIC.encode(), 0)


def check_group(group: str) -> str:
    """The name of a producer group.

    Raises:
        ConfigError: it is empty, too long, or has a character that divides properties.
    """
    if not isinstance(group, str):
        raise ConfigError("producer group is not a text", group=group)
    if not 0 < len(group) <= GROUP_SIZE_MAX or not group.isprintable():
        raise ConfigError(
            "producer group is empty, too long or not printable", group=group, limit=GROUP_SIZE_MAX
        )
    return group


def check_listener(listener: object) -> None:
    """Refuse what cannot be asked about a transaction.

    Raises:
        ConfigError: it is no function.
    """
    if listener is not None and not callable(listener):
        raise ConfigError(
            "listener is no function of an UndecidedTransaction to a Decision", listener=listener
        )


@dataclass(slots=True)
class Turns:
    """Which queue of a topic comes next, when the application does not say."""

    _turns: dict[bytes, int] = field(default_factory=dict)

    def choose(self, choice: QueueChoice, queues: int) -> int:
        """A queue of a topic, which has so many.

        Raises:
            TopicUnknownError: the topic has no such queue.
        """
        chosen = choice.among(queues)
        if chosen is None:
            turn = self._turns.get(choice.topic, -1) + 1
            self._turns[choice.topic] = turn
            chosen = turn % queues
        return chosen


class Parts:
    """The messages of one transaction: counted, and made into half messages.

    ``topics`` are where they are to go, in their order.

    Invariant: once ``close`` was called, no message is added.
    """

    def __init__(self, group: str) -> None:
        self.id = uuid.uuid4().hex.upper()
        self.group = group
        self.count = 0
        self.topics: list[str] = []
        self._size = 0
        self._is_closed = False

    @property
    def is_closed(self) -> bool:
        """Whether it has been ended, one way or the other."""
        return self._is_closed

    def add(self, topic: str, queue_id: int, message: OutgoingMessage) -> OutgoingMessage:
        """The half message of a message that is to go to a queue.

        Raises:
            MessageIllegalError: the transaction has as many messages or bytes as one may have, or
                the message breaks a limit.
            LedgerError: the transaction has ended.
        """
        self._check_open()
        size = self._size + len(message.body) + RECORD_AROUND
        if self.count >= MESSAGES_MAX:
            raise MessageIllegalError(
                "transaction has too many messages", transaction=self.id, limit=MESSAGES_MAX
            )
        if self.count and size > SIZE_MAX:
            raise MessageIllegalError(
                "transaction has too many bytes", transaction=self.id, bytes=size, limit=SIZE_MAX
            )
        half = half_message(
            message, group=self.group, transaction=self.id, topic=topic, queue_id=queue_id
        )
        self.count += 1
        self.topics.append(topic)
        self._size = size
        return half

    def close(self) -> None:
        """It ends now.

        Raises:
            LedgerError: it has ended before.
        """
        self._check_open()
        self._is_closed = True

    def _check_open(self) -> None:
        if self._is_closed:
            raise LedgerError("transaction has been ended", transaction=self.id)
