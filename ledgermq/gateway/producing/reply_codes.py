"""Codes of request and reply: ``SEND_REPLY_MESSAGE`` and its kin.

Whoever answers a message names the client that asked. That one is told at once, on its connection
(``PUSH_REPLY_MESSAGE_TO_CLIENT``), and the answer is stored besides in the topic of answers, as
RocketMQ does it; both go on at the same time. What counts for who answers is whether the other one
has taken it.
"""

from __future__ import annotations

from ledgermq.formats.records.properties import REPLY_TO_CLIENT
from ledgermq.gateway.code_rights import send_right
from ledgermq.gateway.context import BrokerContext
from ledgermq.gateway.parts import PortPart
from ledgermq.gateway.producing.produce_codes import ProduceCodes, StoredMessages, refusal_of_send
from ledgermq.gateway.requests import Asked, Code, ReplyLater
from ledgermq.model.errors import LedgerError, TimedOutError
from ledgermq.remoting.codes import RequestCode, ResponseCode
from ledgermq.remoting.command import Command
from ledgermq.remoting.send_reply import TRACED
from ledgermq.remoting.send_request import SendRequest, decode_send

TIMEOUT_MS = 10_000
PUSH_REPLY_TIME = "PUSH_REPLY_TIME"


class ReplyCodes(PortPart):
    """Owned by the port."""

    def __init__(self, context: BrokerContext, produce: ProduceCodes) -> None:
        """Answers that go by ``produce`` into the log."""
        self._produce = produce
        self._clients = context.clients
        self._requests = context.requests
        self._reply = context.reply
        self._clock = context.environment.clock
        self._store_host = context.addresses.own
        self.codes = (
            Code(RequestCode.SEND_REPLY_MESSAGE, self._take, send_right("topic")),
            Code(RequestCode.SEND_REPLY_MESSAGE_V2, self._take, send_right("b")),
        )

    def _take(self, asked: Asked) -> Command | None:
        try:
            request = decode_send(asked.command)
            answer = _Answer(asked, self._reply)
            self._produce.put(asked, request, answer.take_stored)
        except LedgerError as error:
            return refusal_of_send(asked.command, error)
        self._push(asked, request, answer)
        return None

    def _push(self, asked: Asked, request: SendRequest, answer: _Answer) -> None:
        """Tell the client that has asked."""
        named = [
            value
            for name, _, value in (
                part.partition("\x01") for part in request.properties.split("\x02")
            )
            if name == REPLY_TO_CLIENT
        ]
        connection = self._clients.producer_of(named[-1]) if named else None
        if connection is None:
            answer.take_pushed(
                TimedOutError("client that asked is not connected", client=(named or [""])[-1])
            )
            return
        try:
            self._requests.ask(
                connection,
                RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
                self._fields(asked, request),
                bytes(asked.command.body),
                now_ms=asked.now_ms,
                timeout_ms=TIMEOUT_MS,
                take=answer.take_pushed,
            )
        except LedgerError as error:
            answer.take_pushed(error)

    def _fields(self, asked: Asked, request: SendRequest) -> dict[str, str]:
        now_ms = self._clock.epoch_ns() // 1_000_000
        properties = request.properties.removesuffix("\x02")
        properties += f"\x02{PUSH_REPLY_TIME}\x01{now_ms}"
        host, port = asked.connection.peer
        return {
            "producerGroup": request.producer_group,
            "topic": request.topic,
            "defaultTopic": request.default_topic,
            "defaultTopicQueueNums": str(request.default_queues),
            "queueId": str(request.queue_id),
            "sysFlag": str(request.sys_flag),
            "bornTimestamp": str(request.born_timestamp),
            "flag": str(request.flag),
            "properties": properties.removeprefix("\x02"),
            "reconsumeTimes": str(request.reconsume_times),
            "unitMode": "true" if request.unit_mode else "false",
            "bornHost": f"{host}:{port}",
            "storeHost": self._store_host,
            "storeTimestamp": str(now_ms),
        }


class _Answer:
    """One answer on its two ways; who sent it is told when both have ended."""

    def __init__(self, asked: Asked, reply: ReplyLater) -> None:
        self._asked = asked
        self._reply = reply
        self._stored: StoredMessages | LedgerError | None = None
        self._pushed: Command | LedgerError | None = None

    def take_stored(self, outcome: StoredMessages | LedgerError) -> None:
        """What came of storing it."""
        self._stored = outcome
        self._tell()

    def take_pushed(self, outcome: Command | LedgerError) -> None:
        """What came of telling the client that has asked."""
        self._pushed = outcome
        self._tell()

    def _tell(self) -> None:
        stored, pushed = self._stored, self._pushed
        if stored is None or pushed is None:
            return
        command = self._asked.command
        if isinstance(pushed, LedgerError):
            reply = command.reply(ResponseCode.SYSTEM_ERROR, fields=TRACED, remark=str(pushed))
        elif pushed.code != ResponseCode.SUCCESS:
            remark = f"client that asked has not taken the answer: {pushed.remark}"
            reply = command.reply(ResponseCode.SYSTEM_ERROR, fields=TRACED, remark=remark)
        elif isinstance(stored, LedgerError):
            # As in RocketMQ: the answer is where it has to be.
            fields = {**TRACED, "msgId": "0", "queueId": "0", "queueOffset": "0"}
            reply = command.reply(fields=fields, remark=f"answer is not stored: {stored}")
        else:
            reply = command.reply(fields={**TRACED, **stored.to_fields()})
        self._reply(self._asked, reply)
