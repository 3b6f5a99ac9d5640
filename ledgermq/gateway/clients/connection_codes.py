"""Codes about connected clients, and requests of tools that are passed on to them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from ledgermq.gateway.clients.client_table import Client, ConnectedConsumer
from ledgermq.gateway.code_rights import USER, group_right
from ledgermq.gateway.context import BrokerContext
from ledgermq.gateway.parts import PortPart
from ledgermq.gateway.requests import Asked, Code, replying
from ledgermq.gateway.transport.refusals import refusal
from ledgermq.model.errors import LedgerError, ProtocolError, TimedOutError
from ledgermq.remoting.codes import Language, RequestCode, ResponseCode
from ledgermq.remoting.command import Command, encode_command
from ledgermq.remoting.fastjson import encode_body
from ledgermq.remoting.fields import text
from ledgermq.remoting.heartbeat import Subscription

RELAY_TIMEOUT_MS = 10_000
RELAYED_VERSION_MIN = 62
"""Clients below V3_1_8 know no relayed requests."""


class ConnectionCodes(PortPart):
    """Each node tells of those who are connected to it; consumers are connected to all nodes."""

    def __init__(self, context: BrokerContext) -> None:
        self._clients = context.clients
        self._requests = context.requests
        self._reply = context.reply
        self._clock = context.environment.clock
        self.codes = (
            Code(
                RequestCode.GET_CONSUMER_CONNECTION_LIST,
                self._consumers,
                group_right("consumerGroup"),
            ),
            Code(RequestCode.GET_PRODUCER_CONNECTION_LIST, self._producers, USER),
            Code(RequestCode.GET_ALL_PRODUCER_INFO, self._all_producers, USER),
            Code(
                RequestCode.GET_CONSUMER_RUNNING_INFO, self._running, group_right("consumerGroup")
            ),
        )

    def _consumers(self, asked: Asked) -> Command:
        group = text(asked.command.fields, "consumerGroup")
        members = self._clients.consumers(group)
        if not members:
            remark = f"the consumer group[{group}] not online"
            return asked.command.reply(ResponseCode.CONSUMER_NOT_ONLINE, remark=remark)
        newest = members[-1].group
        subscriptions = {
            one.topic: _shown(one) for member in members for one in member.group.subscriptions
        }
        body = {
            "connectionSet": [self._connection(member) for member in members],
            "consumeFromWhere": newest.begin.name,
            "consumeType": newest.consume_type.name,
            "messageModel": newest.model.name,
            "subscriptionTable": subscriptions,
        }
        return asked.command.reply(body=encode_body(body))

    def _connection(self, member: ConnectedConsumer) -> Mapping[str, object]:
        client = self._clients.client(member.connection)
        host, port = member.connection.peer
        return {
            "clientAddr": f"{host}:{port}",
            "clientId": member.client_id,
            "language": _language(client),
            "version": 0 if client is None else client.version,
        }

    def _producers(self, asked: Asked) -> Command:
        group = text(asked.command.fields, "producerGroup")
        clients = self._clients.clients_of(group)
        if not clients:
            remark = f"the producer group[{group}] not exist"
            return asked.command.reply(ResponseCode.SYSTEM_ERROR, remark=remark)
        rows = [
            {
                "clientAddr": f"{one.connection.peer[0]}:{one.connection.peer[1]}",
                "clientId": one.client_id,
                "language": _language(one),
                "version": one.version,
            }
            for one in clients
        ]
        return asked.command.reply(body=encode_body({"connectionSet": rows}))

    def _all_producers(self, asked: Asked) -> Command:
        clients = self._clients
        # The table has the times of a clock that does not tell the time of day.
        since_ms = self._clock.epoch_ns() // 1_000_000 - asked.now_ms
        data = {
            group: [
                {
                    "clientId": one.client_id,
                    "language": _language(one),
                    "lastUpdateTimestamp": since_ms
                    + clients.heard_ms(one.connection, producer_group=group),
                    "remoteIP": one.connection.peer[0],
                    "version": one.version,
                }
                for one in clients.clients_of(group)
            ]
            for group in clients.producer_groups
        }
        return asked.command.reply(body=encode_body({"data": data}))

    def _running(self, asked: Asked) -> None:
        fields = asked.command.fields
        self.relay(asked, text(fields, "consumerGroup"), text(fields, "clientId"), fields)

    def relay(
        self,
        asked: Asked,
        group: str,
        client_id: str,
        fields: Mapping[str, str],
        body: bytes = b"",
    ) -> None:
        """Have a consumer answer the request of a tool, or tell the tool why it does not.

        Args:
            client_id: empty for any of the group.
        """
        found = [one for one in self._clients.consumers(group) if client_id in ("", one.client_id)]
        if not found:
            remark = f"The Consumer <{group}> <{client_id}> not online"
            self._reply(asked, asked.command.reply(ResponseCode.SYSTEM_ERROR, remark=remark))
            return
        connection = found[-1].connection
        client = self._clients.client(connection)
        if client is not None and client.version < RELAYED_VERSION_MIN:
            remark = f"The Consumer <{found[-1].client_id}> Version <{client.version}> is too low"
            self._reply(asked, asked.command.reply(ResponseCode.SYSTEM_ERROR, remark=remark))
            return

        self._requests.ask(
            connection,
            asked.command.code,
            fields,
            body,
            now_ms=asked.now_ms,
            timeout_ms=RELAY_TIMEOUT_MS,
            take=replying(
                self._reply,
                asked,
                partial(_relayed, asked.command),
                refused=partial(_late, asked.command),
            ),
        )


def _late(command: Command, error: LedgerError) -> Command | None:
    if isinstance(error, TimedOutError):
        return command.reply(ResponseCode.CONSUME_MSG_TIMEOUT, remark=str(error))
    return None


def _relayed(command: Command, told: Command) -> Command:
    reply = command.reply(told.code, fields=told.fields, body=bytes(told.body), remark=told.remark)
    try:
        # What a client says in JSON may have no place in the header of who asked.
        encode_command(reply)
    except ProtocolError as error:
        return refusal(command, error)
    return reply


def _language(client: Client | None) -> str:
    if client is None or client.language not in Language._value2member_map_:
        return Language.OTHER.name
    return Language(client.language).name


def _shown(subscription: Subscription) -> Mapping[str, object]:
    return {
        "classFilterMode": False,
        "codeSet": sorted(subscription.codes),
        "expressionType": subscription.expression_type,
        "subString": subscription.expression,
        "subVersion": subscription.version,
        "tagsSet": sorted(subscription.tags),
        "topic": subscription.topic,
    }
