"""Invariants of the broker's services: each message once where it belongs, at its time.

The checker looks at committed entries alone, as every other reader of the log does, and at the
answers to clients.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import unified_diff
from typing import NamedTuple

from ledgermq.formats.dledger_entry import HEADER_SIZE
from ledgermq.formats.records.delayed_message import real_queue
from ledgermq.formats.records.message import Message, decode_message
from ledgermq.model.ids import NodeId
from ledgermq.model.limits import DELAY_TOPIC, STAGED_TOPIC
from ledgermq.model.names.group_topics import RETRY_PREFIX
from ledgermq.model.names.transactions import HALF_TOPIC, OP_TOPIC, UNANSWERED_TOPIC, Decision
from ledgermq.rules.state.state_commands import decode_command
from tests.simulator.checks.checker import (
    BrokenPromiseError,
    Checker,
    CommittedMessage,
    NodeEntry,
    require,
)
from tests.simulator.checks.share_checker import ShareChecker
from tests.simulator.checks.sink_checker import SinkChecker
from tests.simulator.checks.topic_checker import PREFIX, TopicChecker


class SentMessage(NamedTuple):
    """What a client has sent.

    Attributes:
        first: the topic that it stands in first.
        topic: the one where it belongs.
        due_ms: when it has to have come, epoch.
        transaction: of a half message.
    """

    first: str
    topic: str
    due_ms: int = 0
    transaction: str = ""


@dataclass(slots=True)
class SimulatedTransaction:
    """How it ends, as far as its producer knows.

    Attributes:
        asked: the decision, once somebody has been asked for it.
        is_ended: the broker has acknowledged it.
    """

    messages: list[str] = field(default_factory=list)
    asked: Decision | None = None
    is_ended: bool = False


class ServiceChecker(Checker):
    """Knows besides what everybody has asked of the services.

    Attributes:
        latest_ms: the latest time of day that any node's clock has shown.
        sent_as: by unique id.
        delivered: unique ids that have come to where they belong.
        cancelled: whose cancellation was acknowledged.
        doubtful: whose cancellation may or may not have come through.
        transactions: by id.
        asked_back: how often the return of a message was asked for, by unique id.
        given_back: unique ids whose return was acknowledged.
        retried: how often a message came into a retry topic, by unique id.
        sinks: knows of rows that are staged, and of their commits.
        shares: knows what members of a share group were handed, and what they were told.
        topics: knows of topics that change, and of what is sent to them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.latest_ms: Callable[[], int] = lambda: 0
        self.sent_as: dict[str, SentMessage] = {}
        self.delivered: set[str] = set()
        self.cancelled: set[str] = set()
        self.doubtful: set[str] = set()
        self.transactions: dict[str, SimulatedTransaction] = {}
        self.asked_back: Counter[str] = Counter()
        self.given_back: set[str] = set()
        self.retried: Counter[str] = Counter()
        self.sinks = SinkChecker()
        self.shares = ShareChecker()
        self.topics = TopicChecker()
        self._waits_for_retry: Counter[str] = Counter()
        self._group = range(0)
        self._places: dict[str, set[CommittedMessage]] = {}
        self._tables: dict[tuple[str, int], tuple[NodeId, str]] = {}

    def plan(self, unique_id: str, sent: SentMessage) -> None:
        """A client is about to send a message."""
        self.attempted.add(unique_id)
        self.sent_as[unique_id] = sent
        if sent.transaction:
            self.transactions.setdefault(sent.transaction, SimulatedTransaction()).messages.append(
                unique_id
            )

    def same_tables(
        self, node: NodeId, file: str, place: int, document: Mapping[str, object]
    ) -> None:
        """All that have applied the same commands have the same tables, byte for byte."""
        # Without the indentation of the file itself, which takes ten times as long.
        content = json.dumps(document)
        known = self._tables.setdefault((file, place), (node, content))
        if known[1] != content:
            raise BrokenPromiseError(
                "the same commands make the same tables: "
                + ", ".join([file, str(place), known[0], node, *_difference(known[1], content)])
            )

    def answered(self, stored: CommittedMessage) -> None:
        """What a client is told to be stored is committed, and where it says (I13); a half message
        that was asked for again stands in its queue once more.
        """
        if stored in self._places.get(stored.unique_id, ()):
            self.acknowledged.add(stored.unique_id)
        else:
            super().answered(stored)

    def cancels(self, unique_id: str) -> None:
        """A cancellation is acknowledged."""
        require(unique_id not in self.delivered, "what was delivered is not cancelled", unique_id)
        self.cancelled.add(unique_id)

    def ends(self, transaction: str) -> None:
        """The end of a transaction is acknowledged."""
        known = self.transactions[transaction]
        known.is_ended = True
        visible = [one for one in known.messages if one in self.delivered]
        wanted = known.messages if known.asked is Decision.COMMIT else []
        require(visible == wanted, "an end is acknowledged when it is so", transaction, visible)

    def missing(self, now_ms: int) -> list[str]:
        """What should have come to where it belongs by now, and has not."""
        found = []
        for unique_id in self.acknowledged:
            sent = self.sent_as.get(unique_id)
            if sent is None or unique_id in self.delivered or sent.transaction:
                continue
            if sent.due_ms <= now_ms and unique_id not in self.cancelled | self.doubtful:
                found.append(unique_id)
        for transaction in self.transactions.values():
            if transaction.is_ended and transaction.asked is Decision.COMMIT:
                found += [one for one in transaction.messages if one not in self.delivered]
        found += sorted(one for one in self.given_back if not self.retried[one])
        return found + self.sinks.missing()

    def is_inside_group(self, index: int) -> bool:
        """Whether a log that ends with ``index`` has a command, and not all that belongs to it."""
        return index in self._group

    def stored(self, node: NodeId, entry: NodeEntry, before: int) -> None:
        """One term and index is one entry on all nodes (I2); a command that records follow is
        noted.
        """
        super().stored(node, entry, before)
        if b'"follows"' in entry.data:
            message = decode_message(memoryview(entry.data), HEADER_SIZE)
            follows = decode_command(bytes(message.body)).follows
            # Its records, and the command that says that they are there.
            self._group = range(entry.number, entry.number + len(follows) + 1)

    def _note(self, node: NodeId, entry: NodeEntry, message: Message) -> None:
        unique_id, topic = message.unique_id, message.topic
        sent = self.sent_as.get(unique_id)
        if topic.startswith(PREFIX):
            self.topics.arrives(entry, message)
        elif topic == OP_TOPIC:
            require(unique_id in self.transactions, "an op message is of a transaction", unique_id)
        elif self.sinks.is_row(unique_id):
            self.sinks.arrives(unique_id, entry)
        elif sent is None or sent.first == STAGED_TOPIC:
            super()._note(node, entry, message)
            self.delivered.add(unique_id)
        elif unique_id not in self.messages:
            require(topic == sent.first, "a message begins where it waits", unique_id, entry, topic)
            self.messages[unique_id] = CommittedMessage(
                unique_id, message.queue_id, message.queue_offset, message.physical_offset
            )
        elif topic == DELAY_TOPIC:
            self._returns(unique_id, message)
        elif topic.startswith(RETRY_PREFIX):
            self.retried[unique_id] += 1
            waited = self._waits_for_retry[unique_id]
            require(self.retried[unique_id] <= waited, "retried once", unique_id, entry, waited)
        elif topic in (HALF_TOPIC, UNANSWERED_TOPIC):
            require(sent.first == HALF_TOPIC, "a half message is no other", unique_id, entry)
            place = CommittedMessage(
                unique_id, message.queue_id, message.queue_offset, message.physical_offset
            )
            self._places.setdefault(unique_id, set()).add(place)
        else:
            self._arrives(unique_id, sent, entry, message)

    def _returns(self, unique_id: str, message: Message) -> None:
        """Nothing waits twice for its own topic; for a retry as often as it was given back.

        Who asks twice, and meets a broker that was started in between, has it stored twice.
        """
        real = real_queue(message.properties)
        is_retry = real is not None and real.topic.startswith(RETRY_PREFIX)
        require(is_retry, "a delayed message waits once", unique_id)
        self._waits_for_retry[unique_id] += 1
        asked = self.asked_back[unique_id]
        require(self._waits_for_retry[unique_id] <= asked, "given back as asked", unique_id, asked)

    def _arrives(
        self, unique_id: str, sent: SentMessage, entry: NodeEntry, message: Message
    ) -> None:
        where = (message.topic, message.queue_id)
        require(message.topic == sent.topic, "it comes where it belongs", unique_id, entry, where)
        require(unique_id not in self.delivered, "delivered once", unique_id, entry)
        require(unique_id not in self.cancelled, "cancelled is cancelled", unique_id, entry)
        latest_ms = self.latest_ms()
        # What would wait longer than its level, by the clock of a new leader, is due: as in Java.
        is_due = sent.first == DELAY_TOPIC or sent.due_ms <= latest_ms
        require(is_due, "nothing comes early", unique_id, sent.due_ms, latest_ms)
        if sent.transaction:
            asked = self.transactions[sent.transaction].asked
            require(asked is Decision.COMMIT, "no message without its commit", unique_id, asked)
        self.delivered.add(unique_id)


def _difference(first: str, second: str) -> list[str]:
    """The lines in which the files of two documents differ."""

    def file(text: str) -> list[str]:
        return json.dumps(json.loads(text), indent="\t").split("\n")

    lines = unified_diff(file(first), file(second), n=0, lineterm="")
    return [line.strip() for line in lines]
