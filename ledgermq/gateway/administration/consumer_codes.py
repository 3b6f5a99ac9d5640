"""Codes by which tools direct the consumers of a group: offset resets, status, one message."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ledgermq.formats.records.message import decode_message
from ledgermq.formats.records.message_id import decode_offset_id
from ledgermq.gateway.clients.client_table import ConnectedConsumer
from ledgermq.gateway.clients.connection_codes import ConnectionCodes
from ledgermq.gateway.code_rights import ADMIN, both_rights, group_right
from ledgermq.gateway.context import BrokerContext
from ledgermq.gateway.parts import PortPart
from ledgermq.gateway.requests import Asked, Code
from ledgermq.model.errors import (
    GroupActiveError,
    GroupUnknownError,
    LedgerError,
    ProtocolError,
    TopicUnknownError,
)
from ledgermq.model.rights import Right
from ledgermq.remoting.codes import Language, RequestCode, ResponseCode
from ledgermq.remoting.command import Command
from ledgermq.remoting.fastjson import decode_body, encode_body, encode_queue_table
from ledgermq.remoting.fields import flag, int64, text

STATUS_TIMEOUT_MS = 10_000
NOTIFIED_VERSION_MIN = 28
"""Clients below V3_0_7 cannot be told new offsets."""


class ConsumerCodes(PortPart):
    """Offsets are changed in the log by the one who leads; members are told by this node."""

    def __init__(self, context: BrokerContext, connections: ConnectionCodes) -> None:
        self._tables = context.tables
        self._others = context.service.others
        self._queries = context.queries
        self._figures = context.figures
        self._changes = context.changes
        self._addresses = context.addresses
        self._clients = context.clients
        self._requests = context.requests
        self._connections = connections
        self._reply = context.reply
        self.codes = (
            Code(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, self._reset, ADMIN),
            Code(
                RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, self._status, both_rights("group")
            ),
            Code(RequestCode.CONSUME_MESSAGE_DIRECTLY, self._consume, group_right("consumerGroup")),
        )

    def _reset(self, asked: Asked) -> None:
        """Set a group's offsets to a time, and tell its members, who go on from there.

        RocketMQ only tells the members, and sets nothing when there is none. Members of our own
        protocol are not told, and would commit their own: with one of them it is refused.
        """
        fields = asked.command.fields
        topic, group = text(fields, "topic"), text(fields, "group")
        timestamp, is_forced = int64(fields, "timestamp"), flag(fields, "isForce")
        offsets = self._reset_offsets(topic, group, timestamp, is_forced=is_forced)
        members = self._others.own(group)
        if members:
            raise GroupActiveError(
                "group has members that cannot be told: stop them first",
                group=group,
                members=len(members),
                some=sorted(members)[:5],
            )

        def done(_result: object) -> Command:
            self._tell(asked, topic, group, offsets)
            table = self._figures.offset_table(topic, offsets)
            return asked.command.reply(body=b'{"offsetTable":' + table + b"}")

        named = {str(queue_id): offset for queue_id, offset in offsets.items()}
        arguments = {"group": group, "topic": topic, "offsets": named, "reset": True}
        self._changes.ask(asked, "group_commit", arguments, done)

    def _reset_offsets(
        self, topic: str, group: str, timestamp: int, *, is_forced: bool
    ) -> dict[int, int]:
        found = self._tables.topics.get(topic)
        if found is None:
            raise TopicUnknownError("topic does not exist", topic=topic)
        offsets: dict[int, int] = {}
        for row in self._figures.consumed(group, found):
            target = row.end if timestamp < 0 else self._figures.first_since(row.queue, timestamp)
            is_taken = is_forced or target < row.offset
            offsets[row.queue.queue_id] = target if is_taken else row.offset
        is_known = self._tables.groups.get(group) is not None or self._clients.consumers(group)
        if not (is_known or self._tables.offsets.offsets(group, topic)):
            raise GroupUnknownError("group does not exist", group=group)
        return offsets

    def _tell(self, asked: Asked, topic: str, group: str, offsets: Mapping[int, int]) -> None:
        fields = {
            name: asked.command.fields[name]
            for name in ("topic", "group", "timestamp", "isForce")
            if name in asked.command.fields
        }
        table = b'{"offsetTable":' + self._figures.offset_table(topic, dict(offsets)) + b"}"
        rows = [
            {
                "brokerName": self._addresses.broker,
                "offset": offsets[queue_id],
                "queueId": queue_id,
                "topic": topic,
            }
            for queue_id in sorted(offsets)
        ]
        listed = encode_body({"offsetTable": rows})
        for member in self._clients.consumers(group):
            client = self._clients.client(member.connection)
            if client is None or client.version < NOTIFIED_VERSION_MIN:
                continue
            body = listed if client.language == Language.CPP else table
            code = RequestCode.RESET_CONSUMER_CLIENT_OFFSET
            self._requests.tell(member.connection, code, fields, body)

    def _status(self, asked: Asked) -> Command | None:
        """Ask each member how far it is in a topic by its own reckoning."""
        fields = asked.command.fields
        text(fields, "topic")
        group, one = text(fields, "group"), fields.get("clientAddr", "")
        members = [
            member for member in self._clients.consumers(group) if one in ("", member.client_id)
        ]
        if not members:
            remark = f"no consumer of group {group} is connected to this node"
            return asked.command.reply(ResponseCode.SYSTEM_ERROR, remark=remark)
        answers: dict[str, Command | LedgerError] = {}

        def take(member: ConnectedConsumer, outcome: Command | LedgerError) -> None:
            answers[f"{member.connection.number} {member.client_id}"] = outcome
            if len(answers) == len(members):
                self._reply(asked, self._status_reply(asked, answers))

        for member in members:
            self._ask_status(asked, member, take)
        return None

    def _ask_status(
        self,
        asked: Asked,
        member: ConnectedConsumer,
        take_one: Callable[[ConnectedConsumer, Command | LedgerError], None],
    ) -> None:
        def take(outcome: Command | LedgerError) -> None:
            take_one(member, outcome)

        fields = asked.command.fields
        try:
            self._requests.ask(
                member.connection,
                RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
                {"topic": fields["topic"], "group": fields["group"]},
                b"",
                now_ms=asked.now_ms,
                timeout_ms=STATUS_TIMEOUT_MS,
                take=take,
            )
        except LedgerError as error:
            take(error)

    def _status_reply(self, asked: Asked, answers: Mapping[str, Command | LedgerError]) -> Command:
        parts: list[bytes] = []
        remark = "no member has told where it is"
        for key, outcome in answers.items():
            if isinstance(outcome, LedgerError) or outcome.code:
                continue
            client_id = key.partition(" ")[2]
            try:
                table = encode_queue_table(_offset_rows(outcome))
            except ProtocolError as error:
                remark = f"{client_id} has not told where it is: {error}"
                continue
            parts.append(encode_body({client_id: 0})[1:-2] + table)
        if not parts:
            return asked.command.reply(ResponseCode.SYSTEM_ERROR, remark=remark)
        body = b'{"consumerTable":{' + b",".join(parts) + b'},"messageQueueTable":{}}'
        return asked.command.reply(body=body)

    def _consume(self, asked: Asked) -> None:
        """Have a member consume a message that lies here, named by its offset id."""
        fields = asked.command.fields
        message_id = fields.get("msgId", "")
        body = b""
        if message_id:
            position = decode_offset_id(message_id).physical_offset
            record = self._queries.record_at(position)
            if record is None:
                raise ProtocolError("no message lies there", msgId=message_id, position=position)
            asked.check(decode_message(record, 0).topic, Right.SUB)
            body = bytes(record)
        wanted = {**fields, "brokerName": self._addresses.broker}
        self._connections.relay(
            asked, text(fields, "consumerGroup"), fields.get("clientId", ""), wanted, body
        )


def _offset_rows(reply: Command) -> list[tuple[str, str, int, object]]:
    """The offsets in a client's status; its map has queues as keys, as text of their JSON."""
    table = decode_body(reply.body).get("messageQueueTable")
    rows: list[tuple[str, str, int, object]] = []
    for key, offset in table.items() if isinstance(table, dict) else ():
        queue = decode_body(key.encode())
        broker, topic, number = queue.get("brokerName"), queue.get("topic"), queue.get("queueId")
        if not (isinstance(broker, str) and isinstance(topic, str) and type(number) is int):
            raise ProtocolError("key of the table is no queue", key=key[:64])
        if type(offset) is not int:
            raise ProtocolError("offset of a queue is no number", key=key[:64])
        rows.append((broker, topic, number, offset))
    return rows
