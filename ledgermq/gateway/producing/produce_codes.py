"""Codes of sends: ``SEND_MESSAGE`` and its kin (``SendMessageProcessor``).

Each is checked by the rules of the writer, encoded as it will stand in the log, and handed to the
link to the writer, which sends what a turn has gathered as one frame. The reply comes when the
group has it. A message whose topic is being made waits for it, and so do those behind it for the
same topic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import NamedTuple

import numpy as np

from ledgermq.formats.records.delayed_message import RealQueue
from ledgermq.formats.records.host_address import encode_host, parse_host
from ledgermq.formats.records.message import Message
from ledgermq.formats.records.message_id import ID_SEPARATOR
from ledgermq.formats.records.priority import priority_of, queue_of
from ledgermq.formats.records.properties import PRIORITY, REPLY_TO_CLIENT, decode_properties
from ledgermq.gateway.changes import HandsOn
from ledgermq.gateway.code_rights import send_right
from ledgermq.gateway.context import BrokerContext, PortContext
from ledgermq.gateway.parts import PortPart
from ledgermq.gateway.producing.port_producer import Place, ToStore
from ledgermq.gateway.producing.remoting_records import RemotingRecords, born_host_of
from ledgermq.gateway.producing.send_topics import SendTopic, SendTopics
from ledgermq.gateway.producing.sent_properties import SentProperties
from ledgermq.gateway.requests import Asked, Code, ReplyLater, Taken, Where
from ledgermq.gateway.transport.refusals import code_of
from ledgermq.gateway.transport.remoting_sockets import Connection
from ledgermq.model.errors import (
    GroupUnknownError,
    LedgerError,
    NotLeaderError,
    ProtocolError,
    TimedOutError,
)
from ledgermq.model.names.group_topics import RETRY_PREFIX, dead_letter_topic
from ledgermq.remoting.codes import RequestCode, ResponseCode
from ledgermq.remoting.command import ONEWAY, RETRIES_VERSION, Command, SendCommand
from ledgermq.remoting.send_request import (
    TRACED,
    SendRequest,
    decode_send,
    encode_json_reply,
    encode_send_reply,
)
from ledgermq.rules.messages.transactions import check_half
from ledgermq.wire.session import Standing, Welcome

_FEW = 8
"""Most ids that are written out one by one: arrays cost more to begin with."""

_POSITION = np.dtype(">i8")

TIMEOUT_MS = 10_000
PUSH_REPLY_TIME = "PUSH_REPLY_TIME"


def encode_offset_ids(host: bytes, positions: Sequence[int]) -> str:
    """The ids of records at ``positions`` of a broker's log, with commas between them.

    Args:
        host: the broker's, encoded (``formats.records.host_address``); empty when it is not known,
        and the
            ids say the positions alone.
    """
    if len(positions) <= _FEW:
        prefix = host.hex().upper()
        return ID_SEPARATOR.join([f"{prefix}{position:016X}" for position in positions])
    size = len(host) + _POSITION.itemsize
    ids = np.empty((len(positions), size), np.uint8)
    ids[:, : len(host)] = np.frombuffer(host, np.uint8)
    ids[:, len(host) :] = np.array(positions, _POSITION).view(np.uint8).reshape(len(positions), -1)
    return ids.tobytes().hex(ID_SEPARATOR, size).upper()


class StoredMessages(NamedTuple):
    """What a reply tells of messages that are stored.

    Attributes:
        ids: offset ids, with commas between them.
        queue_offset: of the first one.
    """

    ids: str
    queue_id: int
    queue_offset: int

    def to_fields(self) -> dict[str, str]:
        """The fields of the reply's header."""
        return {
            "msgId": self.ids,
            "queueId": str(self.queue_id),
            "queueOffset": str(self.queue_offset),
        }


Told = Callable[[StoredMessages | LedgerError], None]


class ProduceCodes(PortPart):
    """Owned by the port."""

    def __init__(self, context: PortContext, relay: HandsOn | None = None) -> None:
        """Nothing is stored before the node is known to lead.

        Args:
            relay: hands sends to the node that leads; None: they are refused where this one does
                not.
        """
        environment = context.environment
        self._relay = relay
        self._quotas = context.quotas
        self._tables = context.tables
        self._topics = SendTopics(context.tables, context.calls)
        self._writer = context.writer
        self._reply = context.reply
        self._send_bytes = context.sockets.send_bytes
        self._clock = environment.clock
        self._rules = environment.settings.topics
        self._chance = Random(environment.clock.seed())  # noqa: S311 - spreads messages over queues
        self._properties = SentProperties(environment.settings.node.broker_cluster_name)
        self._leader = ""
        self._leads = False
        self._welcome: Welcome | None = None
        self._records: RemotingRecords | None = None
        self._id_host = b""
        self._id_prefix = ""
        sent = partial(Code, answer=self._send, at=Where.PORT, taken=Taken.AT_ONCE)
        self.codes = (
            sent(RequestCode.SEND_MESSAGE, needs=send_right("topic")),
            sent(RequestCode.SEND_MESSAGE_V2, needs=send_right("b"), take_open=self._take_open),
            sent(RequestCode.SEND_BATCH_MESSAGE, needs=send_right("b")),
        )

    def put(self, asked: Asked, request: SendRequest, told: Told) -> None:
        """Have a request's messages stored, and leave the reply to the caller.

        Args:
            told: gets what came of it, later and once.

        Raises:
            LedgerError: it is refused at once, and ``told`` is not called.
        """
        self._check_leads()
        self._send_to(asked, request, request.topic, told=told)

    def tell_standing(self, standing: Standing) -> None:
        """Whether this node leads: only a leader stores anything."""
        self._leader, self._leads = standing.leader, standing.leads
        if not self._leads:
            self._writer.give_up()

    def _take_open(self, connection: Connection, command: Command) -> bool:
        """Have a message stored that is as nearly all are; false where ``_send`` has to look."""
        if type(command) is not SendCommand or (
            self._writer.link.last_welcome is not self._welcome
        ):
            return False
        sent = command.sent
        topic, queue_id = self._topics.known(sent[4]), sent[5]
        if topic is None or self._records is None or not self._leads:
            return False
        if not 0 <= queue_id < topic.queues or topic.is_for_retries:
            return False
        record = self._records.sent(
            sent,
            memoryview(command.body),
            topic=topic,
            peer=connection.peer,
            properties=self._properties,
        )
        if record is None or not self._writer.has_room(record.size):
            return False
        self._writer.put(record, _Sent(self, connection, command).take)
        return True

    def _send(self, asked: Asked) -> Command | None:
        try:
            request = decode_send(asked.command)
            if not self._leads and self._relay is not None and self._relay.hand_on(asked):
                # Java's clients ask for routes every 30 s, and send here until then.
                return None
            self._check_leads()
            self._quotas.check_sent(asked)
            if request.topic.startswith(RETRY_PREFIX) and not request.is_batch:
                self._send_retry(asked, request)
            else:
                self._send_to(asked, request, request.topic)
        except LedgerError as error:
            return refusal_of_send(asked.command, error)
        return None

    def _send_to(
        self,
        asked: Asked,
        request: SendRequest,
        name: str,
        *,
        is_dead: bool = False,
        told: Told | None = None,
    ) -> None:
        """Store a request in the topic called ``name``, once that is there."""
        topic = self._topics.find(name)
        if topic is not None:
            self._store(asked, request, topic, is_dead=is_dead, told=told)
            return

        def then(error: LedgerError | None) -> None:
            try:
                if error is not None:
                    raise error
                made = self._topics.find(name)
                if made is None:
                    raise NotLeaderError("topic was deleted as soon as it was made", topic=name)
                self._check_leads()
                self._store(asked, request, made, is_dead=is_dead, told=told)
            except LedgerError as refused:
                if told is None:
                    self._reply(asked, refusal_of_send(asked.command, refused))
                else:
                    told(refused)

        size = len(asked.command.body)
        self._topics.make(name, request, asked.now_ms, size, then, owner=asked.owner)

    def _send_retry(self, asked: Asked, request: SendRequest) -> None:
        """Store a message that a consumer could not process: a retry, or a dead letter."""
        name = request.topic.removeprefix(RETRY_PREFIX)
        group = self._tables.groups.get(name)
        if group is None and not self._rules.auto_create_subscription_group:
            raise GroupUnknownError("subscription group does not exist", group=name)
        times = 16 if group is None else group.retry_times_max
        if request.max_reconsume_times is not None and asked.command.version >= RETRIES_VERSION:
            times = request.max_reconsume_times
        if request.reconsume_times >= times:
            dead = request._replace(queue_id=0)
            self._send_to(asked, dead, dead_letter_topic(name), is_dead=True)
        else:
            self._send_to(asked, request, request.topic)

    def _check_leads(self) -> None:
        if not self._leads:
            raise NotLeaderError(
                "node does not lead now: nothing was stored", leader=self._leader or "not known"
            )

    def _store(
        self,
        asked: Asked,
        request: SendRequest,
        topic: SendTopic,
        *,
        is_dead: bool = False,
        told: Told | None = None,
    ) -> None:
        queue_id = request.queue_id
        if queue_id < 0:
            queue_id = self._chance.randrange(topic.queues)
        elif queue_id >= topic.queues:
            raise ProtocolError(
                "topic has no such queue to write to",
                topic=request.topic,
                queue=queue_id,
                queues=topic.queues,
            )
        if not request.is_batch and PRIORITY in request.properties:
            properties = decode_properties(request.properties.encode(errors="replace"))
            if (priority := priority_of(properties)) is not None:
                queue_id = queue_of(priority, topic.queues)
        records = self._encoder()
        if request.is_batch:
            record = records.batch(
                request,
                memoryview(asked.command.body),
                topic=topic.name,
                queue_id=queue_id,
                added=self._properties.of_batch(request.properties),
                born_host=born_host_of(asked.connection.peer),
            )
        else:
            record = self._one(records, asked, request, topic, queue_id, is_dead=is_dead)
        self._writer.store(record, _Waiting(self, asked, queue_id, told).take)

    def _one(
        self,
        records: RemotingRecords,
        asked: Asked,
        request: SendRequest,
        topic: SendTopic,
        queue_id: int,
        *,
        is_dead: bool,
    ) -> ToStore:
        """The record of a single message."""
        born_host = born_host_of(asked.connection.peer)
        body = asked.command.body
        properties = self._properties.plain(request.properties)
        if properties is not None:
            return records.one(
                request,
                body,
                topic=topic.name,
                queue_id=queue_id,
                properties=properties,
                born_host=born_host,
            )
        assert self._welcome is not None
        place = self._properties.destination(
            request.properties,
            RealQueue(topic.topic.name, queue_id),
            now_ms=self._clock.epoch_ns() // 1_000_000,
            levels=0 if is_dead else self._welcome.delay_levels,
            is_retried=request.reconsume_times > 0,
        )
        made = records.one(
            request,
            body,
            topic=place.topic,
            queue_id=place.queue_id,
            properties=place.properties,
            born_host=born_host,
        )
        if place.is_half:
            check_half(
                Message(
                    topic=place.topic.decode(),
                    queue_id=place.queue_id,
                    body=b"",
                    properties=place.properties,
                    size=made.size,
                )
            )
        return made

    def _encoder(self) -> RemotingRecords:
        """The encoder for the writer's log.

        Raises:
            NotLeaderError: the writer has not told how yet.
        """
        welcome = self._writer.welcome
        if welcome is not self._welcome or self._records is None:
            form = self._writer.form
            if form is None or welcome is None:
                raise NotLeaderError("node is starting: its writer does not answer yet")
            if self._records is None or self._records.form != form:
                self._records = RemotingRecords(form)
            host = parse_host(welcome.store_host)
            self._id_host = b"" if host is None else encode_host(host)
            self._id_prefix = self._id_host.hex().upper()
            self._welcome = welcome
        return self._records

    def _answer(self, waiting: _Waiting, outcome: Place | LedgerError) -> None:
        asked, told = waiting.asked, waiting.told
        command = asked.command
        if told is not None:
            told(outcome if isinstance(outcome, LedgerError) else self._stored(waiting, outcome))
        elif command.is_oneway:
            return
        elif isinstance(outcome, LedgerError):
            self._reply(asked, refusal_of_send(command, outcome))
        else:
            stored = self._stored(waiting, outcome)
            reply = encode_send_reply(
                command,
                message_ids=stored.ids,
                queue_id=stored.queue_id,
                queue_offset=stored.queue_offset,
            )
            self._send_bytes(asked.connection, reply)

    def _stored(self, waiting: _Waiting, place: Place) -> StoredMessages:
        ids = encode_offset_ids(self._id_host, place.positions)
        known = place.known_queue
        return StoredMessages(ids, waiting.queue_id if known is None else known, place.queue_offset)


class _Waiting(NamedTuple):
    """A request that is under way, and the queue that its reply names: that where it belongs."""

    codes: ProduceCodes
    asked: Asked
    queue_id: int
    told: Told | None

    def take(self, outcome: Place | LedgerError) -> None:
        """Answer it."""
        self.codes._answer(self, outcome)


class _Sent:
    """A message that was taken by ``_take_open``, and is under way."""

    __slots__ = ("codes", "command", "connection")

    def __init__(self, codes: ProduceCodes, connection: Connection, command: SendCommand) -> None:
        self.codes = codes
        self.connection = connection
        self.command = command

    def take(self, outcome: Place | LedgerError) -> None:
        """Answer it."""
        codes, command = self.codes, self.command
        if isinstance(outcome, LedgerError):
            asked = Asked(self.connection, command, 0)
            codes._reply(asked, refusal_of_send(command, outcome))
        elif not command.flag & ONEWAY:
            queue_offset, positions, known_queue = outcome
            queue_id = command.sent[5] if known_queue is None else known_queue
            id_ = f"{codes._id_prefix}{positions[0]:016X}"
            reply = encode_json_reply(id_, queue_id, queue_offset, command.opaque)
            codes._send_bytes(self.connection, reply)


def refusal_of_send(command: Command, error: LedgerError) -> Command:
    """The reply that tells ``error``, with the fields that replies to sends have."""
    return command.reply(code_of(error), fields=TRACED, remark=str(error))


class ReplyCodes(PortPart):
    """Answers to messages: ``SEND_REPLY_MESSAGE`` and its kin.

    Whoever answers a message names the client that asked. That one is told at once, on its
    connection (``PUSH_REPLY_MESSAGE_TO_CLIENT``), and the answer is stored besides in the topic of
    answers, as RocketMQ does it; both go on at the same time. What counts for who answers is
    whether the other one has taken it.
    """

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
