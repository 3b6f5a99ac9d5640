"""Verbs about what waits: messages for their time, and transactions for their end."""

from __future__ import annotations

from dataclasses import KW_ONLY
from types import MappingProxyType
from typing import Annotated, ClassVar, Literal, NamedTuple

from ledgermq.model.errors import ProtocolError
from ledgermq.model.names.transactions import MESSAGES_MAX, Decision
from ledgermq.verbs.answers import Fields, integer
from ledgermq.verbs.needs import USER, shown
from ledgermq.verbs.told_rows import Wire
from ledgermq.verbs.verb import NUMBER_MAX, Bounds, DoneVerb, Json, Verb, as_json

LISTED_MAX = 1_000


class TimerRow(NamedTuple):
    """One message that waits.

    Attributes:
        unique_id: what its producer was told, and what it is cancelled by.
        due_ms: when it is delivered, epoch milliseconds.
        topic: where it belongs, with ``queue_id``.
        size: bytes of its body, as stored.
        stored_ms: since when it lies where it does; old ones are stored once more (retention).
    """

    unique_id: Annotated[str, Wire("id")]
    due_ms: Annotated[int, Wire("due")]
    topic: str
    queue_id: Annotated[int, Wire("queue")]
    size: int
    stored_ms: Annotated[int, Wire("stored")]


class TimerList(NamedTuple):
    """The first timers that are due, and how many wait in all."""

    waiting: int
    timers: list[TimerRow]


class TransactionRow(NamedTuple):
    """A transaction that waits for its end.

    Attributes:
        messages: half messages of it.
        offset: of the last one, in the half queue.
        born: when the first one was made, epoch ms.
        checks: how often its producers were asked.
    """

    transaction: str
    group: str
    messages: int
    offset: int
    topics: tuple[str, ...]
    born: int
    checks: int


class TransactionList(NamedTuple):
    """The oldest transactions that wait, and how many half messages there are in all."""

    half_messages: int
    transactions: list[TransactionRow]


class Ended(NamedTuple):
    """The broker's answer to an end; ``messages`` is 0 when the transaction had ended before."""

    decision: Decision
    messages: int


class ListTimers(Verb[TimerList]):
    """The messages that are due next of those that wait for a time of their own."""

    NAME: ClassVar = "timers"
    NEEDS: ClassVar = shown(USER)
    ROW: ClassVar = TimerList

    count: Annotated[int, Bounds(1, LISTED_MAX)] = 100


class CancelTimer(DoneVerb):
    """Take a message back that waits for its time.

    Raises:
        MessageIllegalError: none of that id waits.
    """

    NAME: ClassVar = "timer_cancel"
    NEEDS: ClassVar = USER
    WIRE_NAMES: ClassVar = MappingProxyType({"unique_id": "id"})
    DONE: ClassVar = "cancelled", "unique_id"

    unique_id: Annotated[str, "Unique id of the message"]


class ListTransactions(Verb[TransactionList]):
    """Half messages that wait, and the oldest transactions that do."""

    NAME: ClassVar = "transactions"
    NEEDS: ClassVar = shown(USER)
    ROW: ClassVar = TransactionList

    count: Annotated[int, Bounds(1, LISTED_MAX)] = 100


class EndTransaction(Verb[Ended]):
    """End a transaction.

    Args:
        messages: half messages that it has; a rollback takes those that there are.
        offset: of the last one in the half queue, -1 when it is not known.
    """

    NAME: ClassVar = "transaction_end"
    NEEDS: ClassVar = USER
    SHAPE: ClassVar = {"decision": "string", "messages": "integer"}

    group: Annotated[str, "Of its producers"]
    transaction: Annotated[str, "Of the transaction"]
    decision: Annotated[Literal["commit", "rollback"], "What becomes of it"]
    _: KW_ONLY
    messages: Annotated[int, Bounds(0, MESSAGES_MAX), "How many it has; of a commit"] = 0
    offset: Annotated[int, Bounds(-1, NUMBER_MAX)] = -1

    def told(self, answer: Fields) -> Ended:
        word = answer.get("decision")
        if word not in Decision.__members__.values():
            raise ProtocolError("field missing or no decision", field="decision", value=word)
        return Ended(Decision(str(word)), integer(answer, "messages"))

    def document(self, told: Ended) -> Json:
        """What became of it, as a word."""
        return {**as_json(told), "decision": told.decision.value}
