"""Requests of a transactional producer: ends of transactions, and answers to checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from ledgermq.client.core.questions import ask, asking
from ledgermq.client.core.received import ReceivedMessage
from ledgermq.client.core.requests import Steps
from ledgermq.client.reading.queries import message_at
from ledgermq.client.sending.outgoing import OutgoingMessage
from ledgermq.formats.records.properties import (
    DELAY,
    PRODUCER_GROUP,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TRANSACTION_CHECK_TIMES,
    TRANSACTION_ID,
    TRANSACTION_PREPARED,
)
from ledgermq.model.errors import MessageIllegalError
from ledgermq.model.names.transactions import Decision
from ledgermq.verbs.answers import Fields, integer, integers, rows, text
from ledgermq.verbs.waiting import Ended, EndTransaction

POLL_MS = 30_000
"""A question that waits for something to answer comes back empty after so long."""


@dataclass(frozen=True, slots=True)
class HalfMessage:
    """A message that is stored, and that nobody sees before its transaction is committed.

    Attributes:
        topic, queue_id: where it is to go.
        born_timestamp: when the producer made it, epoch ms.
    """

    topic: str
    queue_id: int
    body: bytes
    properties: Mapping[str, str]
    tag: str
    keys: tuple[str, ...]
    unique_id: str
    born_timestamp: int


@dataclass(frozen=True, slots=True)
class UndecidedTransaction:
    """A transaction of which the broker asks how it ended.

    Attributes:
        checks: how often it was asked before.
        messages: in the order in which they were stored last: each question stores them again.
    """

    id: str
    checks: int
    messages: tuple[HalfMessage, ...]


class TransactionCheck(NamedTuple):
    """A question of the broker, before its messages are fetched."""

    transaction: str
    positions: tuple[int, ...]
    checks: int


def half_message(
    message: OutgoingMessage, *, group: str, transaction: str, topic: str, queue_id: int
) -> OutgoingMessage:
    """``message`` as a half message of a transaction, for the half topic.

    Raises:
        MessageIllegalError: one of its properties is the transaction's own, or would delay it.
    """
    own = {
        TRANSACTION_PREPARED: "true",
        PRODUCER_GROUP: group,
        TRANSACTION_ID: transaction,
        REAL_TOPIC: topic,
        REAL_QUEUE_ID: str(queue_id),
    }
    given = message.properties or {}
    for name in (*own, TRANSACTION_CHECK_TIMES, DELAY):
        if name in given:
            raise MessageIllegalError("property is not the application's", name=name)
    return replace(message, properties={**given, **own})


def end_steps(
    group: str, transaction: str, decision: Decision, *, messages: int, offset: int
) -> Steps[Ended]:
    """End a transaction.

    Args:
        messages: half messages that it has; a rollback takes those that there are.
        offset: of the last one in the half queue, -1 when it is not known.
    """
    asked = EndTransaction(group, transaction, decision.value, messages=messages, offset=offset)
    return (yield from asking(asked))


def checks_steps(group: str) -> Steps[list[TransactionCheck]]:
    """What the broker asks of the producers of ``group``; waits until there is something."""
    told = yield from ask("transaction_checks", group=group, wait_ms=POLL_MS)
    return rows(told, "checks", _check_of)


def undecided_steps(check: TransactionCheck) -> Steps[UndecidedTransaction]:
    """The messages of a transaction that is asked for."""
    messages: list[HalfMessage] = []
    for position in check.positions:
        found = yield from message_at(position)
        if found is not None:
            messages.append(_half_of(found))
    return UndecidedTransaction(check.transaction, check.checks, tuple(messages))


def _check_of(row: Fields) -> TransactionCheck:
    positions = tuple(integers(row, "positions"))
    return TransactionCheck(text(row, "transaction"), positions, integer(row, "checks"))


def _half_of(message: ReceivedMessage) -> HalfMessage:
    properties = message.properties
    queue_id = properties.get(REAL_QUEUE_ID, "")
    return HalfMessage(
        properties.get(REAL_TOPIC, ""),
        int(queue_id) if queue_id.isdecimal() else 0,
        message.body,
        properties,
        message.tag,
        message.keys,
        message.unique_id,
        message.born_timestamp,
    )
