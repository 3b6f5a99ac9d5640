"""Calls of gRPC producers: messages, ends of transactions, messages that are taken back."""

from __future__ import annotations

import asyncio
import binascii
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ledgermq.client.core.questions import cancel_timer, writable
from ledgermq.client.core.results import SendResult
from ledgermq.client.sending.transaction_parts import HALF, Turns
from ledgermq.client.sending.transaction_requests import end_steps, half_message
from ledgermq.formats.records.properties import CHECK_IMMUNITY_TIME
from ledgermq.gateway.rpc.callers import RpcCaller
from ledgermq.gateway.rpc.clients import RpcClients
from ledgermq.gateway.rpc.definition import MessageType, RpcCode, TransactionResolution, make
from ledgermq.gateway.rpc.node_link import NodeLink
from ledgermq.gateway.rpc.sent_messages import (
    ClientMessage,
    check_topic_name,
    check_type,
    sent_message,
)
from ledgermq.gateway.rpc.statuses import RpcRefusedError, duration_ms, fine, status, status_of
from ledgermq.ipc.counters import Counts, GrpcCounter
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import (
    LedgerError,
    MessageIllegalError,
    QuotaError,
    TopicUnknownError,
)
from ledgermq.model.names.transactions import Decision
from ledgermq.model.rights import Right
from ledgermq.rules.messages.rate_limits import RateLimits
from ledgermq.rules.tables.quotas import QuotaTable

MESSAGES_MAX = 128
"""Messages of one call; no client that is known sends more than one."""

HANDLE_SIZE_MAX = 1_024
RECALL_VERSION = "v1"

_DECISIONS = {
    TransactionResolution.COMMIT: Decision.COMMIT,
    TransactionResolution.ROLLBACK: Decision.ROLLBACK,
}


class TransactionName(NamedTuple):
    """What a client is told of a transaction, and says when it ends it.

    RocketMQ's proxy remembers where the half message is, and another one knows nothing of it; here
    the name says it.

    Attributes:
        message_id: of its message.
        offset: of the half message in its queue; -1: not known.
    """

    message_id: str
    offset: int

    @property
    def text(self) -> str:
        """The text that a client keeps."""
        return f"{self.message_id}:{self.offset}"

    @classmethod
    def read(cls, text: str) -> TransactionName:
        """The name in ``text``, of a transaction that is asked for without an offset.

        Raises:
            RpcRefusedError: it cannot be one.
        """
        message_id, _, offset = text.rpartition(":")
        if not message_id:
            return cls(text, -1)
        if len(text) > HANDLE_SIZE_MAX or not (offset == "-1" or offset.isdecimal()):
            raise RpcRefusedError(
                RpcCode.INVALID_TRANSACTION_ID,
                "no transaction has that id",
                id=text[:HANDLE_SIZE_MAX],
            )
        return cls(message_id, int(offset))


class RpcSends:
    """Owned by the process's loop."""

    def __init__(
        self,
        node: NodeLink,
        clients: RpcClients,
        settings: Settings,
        quotas: QuotaTable,
        counts: Counts,
    ) -> None:
        """Nothing was sent.

        Args:
            quotas: kept up by the caller.
        """
        self._node = node
        self._clients = clients
        self._broker = settings.node.broker_name
        self.body_size_max = settings.store.max_message_size
        self._limits = RateLimits("produce", quotas, settings.quotas, now_ns=time.monotonic_ns())
        self._counts = counts
        self._turns = Turns()

    def take_settings(self, settings: Settings) -> None:
        """The settings were read again: those of quotas count from now on."""
        self._limits.take_settings(settings.quotas)

    async def send(self, caller: RpcCaller, request: Any) -> Any:
        """Store the messages of a call; it is answered when the group has all of them.

        Raises:
            LedgerError: nothing of it was stored.
        """
        if not 0 < len(request.messages) <= MESSAGES_MAX:
            raise RpcRefusedError(
                RpcCode.BAD_REQUEST, "call has no message, or many", limit=MESSAGES_MAX
            )
        sent = [
            sent_message(message, body_size_max=self.body_size_max) for message in request.messages
        ]
        topics = {one.topic for one in sent}
        if len(topics) > 1:
            raise RpcRefusedError(RpcCode.BAD_REQUEST, "messages of one call go to one topic")
        topic = sent[0].topic
        caller.check_topic(topic, Right.PUB)
        self._take_quota(caller, sent)
        try:
            route = await self._node.route(topic)
        except TopicUnknownError as error:
            # As RocketMQ's proxy: a topic that is not there takes messages of no type.
            raise RpcRefusedError(
                RpcCode.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, str(error)
            ) from error
        for one in sent:
            check_type(one, route.message_type)
        if any(one.kind is MessageType.TRANSACTION for one in sent):
            self._clients.note_sender(caller, topic)
        queues = writable(route)
        recovery_s = [_recovery_s(message) for message in request.messages]
        entries = await asyncio.gather(
            *(
                self._store(one, queues, immune_s)
                for one, immune_s in zip(sent, recovery_s, strict=True)
            )
        )
        answer = make("SendMessageResponse", entries=entries)
        codes = {entry.status.code for entry in entries}
        if len(codes) == 1:
            answer.status.CopyFrom(entries[0].status)
        else:
            answer.status.CopyFrom(status(RpcCode.MULTIPLE_RESULTS, "messages have other outcomes"))
        return answer

    async def end_transaction(self, caller: RpcCaller, request: Any) -> Any:
        """End a transaction, by whichever member its message was sent.

        Raises:
            LedgerError: it has not ended, as far as is known.
        """
        topic = check_topic_name(request.topic)
        caller.check_topic(topic, Right.PUB)
        decision = _DECISIONS.get(request.resolution)
        if decision is None:
            raise RpcRefusedError(RpcCode.BAD_REQUEST, "a transaction ends by commit or rollback")
        name = TransactionName.read(request.transaction_id or request.message_id)
        # The topic stands for the group of its producers, which this protocol does not have.
        end = end_steps(topic, name.message_id, decision, messages=1, offset=name.offset)
        await self._node.ask(caller, end)
        return make("EndTransactionResponse", status=fine())

    async def recall(self, caller: RpcCaller, request: Any) -> Any:
        """Take a message back that waits for its time.

        Raises:
            RpcRefusedError: none of that handle waits.
            LedgerError: it was not taken back, as far as is known.
        """
        topic = check_topic_name(request.topic)
        caller.check_topic(topic, Right.PUB)
        message_id = _recalled(request.recall_handle, topic)
        try:
            await self._node.ask(caller, cancel_timer(message_id))
        except MessageIllegalError as error:
            # MESSAGE_NOT_FOUND is no error to Python's client.
            raise RpcRefusedError(RpcCode.NOT_FOUND, str(error)) from error
        return make("RecallMessageResponse", status=fine(), message_id=message_id)

    def _take_quota(self, caller: RpcCaller, sent: Sequence[ClientMessage]) -> None:
        if not caller.user or not self._limits.is_on:
            return
        owner, now_ns = f"user:{caller.user}", time.monotonic_ns()
        try:
            self._limits.check([owner], now_ns)
        except QuotaError:
            self._counts[GrpcCounter.THROTTLED] += 1
            raise
        size = sum(len(one.message.body) for one in sent)
        self._limits.take(owner, size=size, messages=len(sent), now_ns=now_ns)

    async def _store(self, sent: ClientMessage, queues: int, immune_s: int) -> Any:
        """The entry of one message; what became of it is its status."""
        try:
            if sent.kind is MessageType.TRANSACTION:
                return await self._store_half(sent, queues, immune_s)
            outcome = await self._node.producer.submit_to(sent.choice, sent.message, queues=queues)
            stored = await outcome
        except LedgerError as error:
            return make("SendResultEntry", status=status_of(error), message_id=sent.message_id)
        entry = self._entry(sent, stored)
        entry.transaction_id = sent.message_id
        if sent.deliver_at_ms is not None:
            entry.recall_handle = self._handle(sent)
        return entry

    async def _store_half(self, sent: ClientMessage, queues: int, immune_s: int) -> Any:
        message = sent.message
        if immune_s:
            own = {**(message.properties or {}), CHECK_IMMUNITY_TIME: str(immune_s)}
            message = replace(message, properties=own)
        half = half_message(
            message,
            group=sent.topic,
            transaction=sent.message_id,
            topic=sent.topic,
            queue_id=self._turns.choose(sent.choice, queues),
        )
        stored = await (await self._node.producer.submit_to(HALF, half))
        entry = self._entry(sent, stored)
        entry.transaction_id = TransactionName(sent.message_id, stored.queue_offset).text
        return entry

    def _entry(self, sent: ClientMessage, stored: SendResult) -> Any:
        self._counts[GrpcCounter.MESSAGES] += 1
        return make(
            "SendResultEntry",
            status=fine(),
            message_id=sent.message_id,
            offset=stored.queue_offset,
        )

    def _handle(self, sent: ClientMessage) -> str:
        words = (RECALL_VERSION, sent.topic, self._broker, sent.deliver_at_ms, sent.message_id)
        return urlsafe_b64encode(" ".join(map(str, words)).encode()).decode("ascii")


def _recovery_s(message: Any) -> int:
    """For how many seconds nobody is asked about a transaction; 0: as the settings have it."""
    system = message.system_properties
    if not system.HasField("orphaned_transaction_recovery_duration"):
        return 0
    return max(0, min(duration_ms(system.orphaned_transaction_recovery_duration) // 1_000, 86_400))


def _recalled(handle: str, topic: str) -> str:
    """The id of the message that a handle is of.

    Raises:
        RpcRefusedError: it is none, or of another topic's message.
    """
    words: list[str] = []
    if len(handle) <= HANDLE_SIZE_MAX:
        try:
            words = urlsafe_b64decode(handle.encode("ascii")).decode().split(" ")
        except (binascii.Error, UnicodeError):
            words = []
    if len(words) != 5 or words[0] != RECALL_VERSION or words[1] != topic or not words[4]:
        raise RpcRefusedError(
            RpcCode.BAD_REQUEST, "no handle of a message of the topic", topic=topic
        )
    return words[4]
