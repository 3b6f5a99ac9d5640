"""Codes about connected clients: heartbeats and goodbyes, lists, requests passed on to them.

Every node keeps who is connected to it: consumers tell all nodes of a broker name, so that one that
begins to lead knows a group's members already. What a heartbeat makes, the group and its retry
topic, only a leader can; a follower leaves it to the one that leads, which is told the same.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from functools import partial

from ledgermq.broker.consumers.other_members import OTHER_OWNER_PREFIX
from ledgermq.gateway.clients.client_table import Client, ClientTable, ConnectedConsumer
from ledgermq.gateway.code_rights import USER, Named, group_right, named
from ledgermq.gateway.context import BrokerContext
from ledgermq.gateway.parts import PortPart
from ledgermq.gateway.requests import Asked, Code, Freshness, Taken, replying
from ledgermq.gateway.transport.refusals import refusal
from ledgermq.gateway.transport.remoting_sockets import Connection
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import (
    BusyError,
    GroupActiveError,
    LedgerError,
    NotLeaderError,
    ProtocolError,
    TimedOutError,
)
from ledgermq.model.message_filter import ALL_TAGS, SQL_MARK
from ledgermq.model.names.group_topics import retry_topic
from ledgermq.model.rights import Right
from ledgermq.remoting.codes import Language, RequestCode, ResponseCode
from ledgermq.remoting.command import Command, encode_command
from ledgermq.remoting.fastjson import encode_body
from ledgermq.remoting.fields import text
from ledgermq.remoting.heartbeat import (
    ConsumeType,
    Heartbeat,
    MessageModel,
    Subscription,
    decode_heartbeat,
)
from ledgermq.remoting.pull_request import SQL92
from ledgermq.rules.consumers.enrolment import BROADCASTING, CLUSTERING, Member
from ledgermq.rules.consumers.offset_plans import MEMBERS_NAMED_MAX
from ledgermq.rules.consumers.request_modes import request_mode
from ledgermq.rules.tables.name_values import NameValues

TOLD_MAX = 5
"""Pairs of a group that are told of."""

STRATEGY = "rocketmq"
"""They share queues as their own settings say, which they do not tell."""

RELAY_TIMEOUT_MS = 10_000
RELAYED_VERSION_MIN = 62
"""Clients below V3_1_8 know no relayed requests."""


class RemotingMembers:
    """A ``MemberSource``; keeps nothing itself but what it has found, until that changes."""

    def __init__(self, clients: ClientTable, names: NameValues) -> None:
        """Nothing is known.

        Args:
            names: tell which groups take messages singly.
        """
        self._clients = clients
        self._names = names
        self._counts: dict[str, int] = {}
        self._counted_at = -1
        self._found: dict[str, list[str]] = {}
        self._found_at = -1, -1

    def counts(self) -> Mapping[str, int]:
        clients = self._clients
        if clients.consumer_changes != self._counted_at:
            self._counted_at = clients.consumer_changes
            self._counts = {
                group: len(clients.consumer_ids(group)) for group in clients.consumer_groups
            }
        return self._counts

    def members(self, group: str) -> list[Member]:
        """Members of a group, in the order in which they came; one with two connections is one."""
        latest = {one.client_id: one for one in self._clients.consumers(group)}
        return [_member(one) for one in latest.values()]

    def queue_by_queue(self, group: str) -> list[str]:
        stand = self._clients.consumer_changes, self._names.revision
        if stand != self._found_at:
            self._found_at, self._found = stand, {}
        if group not in self._found:
            members = self._clients.consumers(group)
            self._found[group] = [one.client_id for one in members if not self._takes_singly(one)]
        return self._found[group]

    def _takes_singly(self, member: ConnectedConsumer) -> bool:
        """Whether a member is to ask by POP: for some of its topics, as it is told when it asks how
        (``QUERY_ASSIGNMENT``).
        """
        wanted = member.group
        return wanted.consume_type is ConsumeType.CONSUME_POP or any(
            request_mode(self._names, wanted.name, one.topic).takes_singly
            for one in wanted.subscriptions
        )

    def warnings(self) -> Mapping[str, list[str]]:
        table = self._clients
        return {
            group: [str(one) for one in table.twins(group)[:TOLD_MAX]]
            for group in table.groups_with_twins
        }


def _member(consumer: ConnectedConsumer) -> Member:
    group = consumer.group
    is_shared = group.model is MessageModel.CLUSTERING
    return Member(
        client=OTHER_OWNER_PREFIX + consumer.client_id,
        instance=str(consumer.connection.number),
        host=consumer.connection.peer[0],
        model=CLUSTERING if is_shared else BROADCASTING,
        start=group.begin.name.removeprefix("CONSUME_FROM_").removesuffix("_OFFSET").lower(),
        ordered=False,
        strategy=STRATEGY,
        subscription={one.topic: _text_of(one) for one in group.subscriptions},
    )


def _text_of(one: Subscription) -> str:
    """The subscription's expression as our own members tell it."""
    if one.expression_type == SQL92:
        return f"{SQL_MARK}{one.expression}"
    return one.expression or ALL_TAGS


logger = logging.getLogger(__name__)

WARNED_OF_MAX = 256
"""Pairs of consumers with one id that have a line in the log."""


class MemberCodes(PortPart):
    """Keeps the table of clients, and tells groups that they have changed.

    Invariant: ``_told`` has connections that are open, and ``_told_bytes`` is what they have told.
    """

    def __init__(self, context: BrokerContext) -> None:
        """Nobody is connected."""
        self._bytes_max = context.environment.settings.limits.members_bytes
        self._others = context.service.others
        self._others.join(RemotingMembers(context.clients, context.tables.names))
        self._clients = context.clients
        self._requests = context.requests
        self._calls = context.calls
        self._tables = context.tables
        self._reply = context.reply
        # By connection: the hash of the body that came last, which is 64 bits long and secret.
        self._told: dict[int, tuple[int, Heartbeat, int]] = {}
        self._told_bytes = 0
        self._warned_of: set[tuple[str, str]] = set()
        self.codes = (
            Code(
                RequestCode.HEART_BEAT,
                self._heartbeat,
                named(_groups_and_topics),
                tables=Freshness.NONE,
                taken=Taken.IF_NOBODY_WAITS,
            ),
            Code(
                RequestCode.UNREGISTER_CLIENT,
                self._unregister,
                named(_group_left),
                tables=Freshness.NONE,
            ),
            Code(RequestCode.GET_CONSUMER_LIST_BY_GROUP, self._list, group_right("consumerGroup")),
        )

    def forget(self, connection: Connection) -> None:
        told = self._told.pop(connection.number, None)
        self._told_bytes -= 0 if told is None else told[2]
        self._tell(self._clients.forget(connection))

    def turn(self, now_ms: int) -> None:
        """Let go of clients that were not heard of for too long."""
        self._tell({consumer.group.name for consumer in self._clients.expire(now_ms)})

    def next_deadline_ms(self) -> int | None:
        """When somebody will have been silent for too long."""
        return self._clients.next_expiry_ms()

    def take_settings(self, settings: Settings) -> None:
        self._bytes_max = settings.limits.members_bytes

    def _heartbeat(self, asked: Asked) -> Command | None:
        command = asked.command
        heartbeat = self._decoded(asked.connection, command)
        refused = self._refused(asked, heartbeat)
        if refused:
            heartbeat = heartbeat._replace(
                consumers=tuple(one for one in heartbeat.consumers if one.name not in refused)
            )
        self._tell(
            self._clients.heartbeat(
                asked.connection,
                heartbeat,
                asked.now_ms,
                language=command.language,
                version=command.version,
                check_topic=asked.check_topic,
            )
        )
        self._warn_of_twins(heartbeat)
        lacking = [one.name for one in heartbeat.consumers if self._is_lacking(one.name)]
        self._forget_dead_locks(asked, heartbeat)
        if lacking or refused:
            self._prepare(asked, lacking, list(refused.values()))
            return None
        return command.reply()

    def _warn_of_twins(self, heartbeat: Heartbeat) -> None:
        """A line for each pair of consumers of one id, once, and so many in all."""
        for wanted in heartbeat.consumers:
            for twins in self._clients.twins(wanted.name):
                pair = twins.group, twins.client_id
                if pair not in self._warned_of and len(self._warned_of) < WARNED_OF_MAX:
                    self._warned_of.add(pair)
                    logger.warning("%s: group=%s", twins, twins.group)

    def _decoded(self, connection: Connection, command: Command) -> Heartbeat:
        """What the body says; it mostly is what the connection has told half a minute ago."""
        told = hash(bytes(command.body))
        known = self._told.get(connection.number)
        if known is not None and known[0] == told:
            return known[1]
        size = self._told_bytes + len(command.body) - (0 if known is None else known[2])
        if size > self._bytes_max:
            raise BusyError(
                "clients want too much, all together",
                size=size,
                limit=self._bytes_max,
                setting="limits.members_bytes",
            )
        heartbeat = decode_heartbeat(command.body)
        self._told_bytes = size
        self._told[connection.number] = told, heartbeat, len(command.body)
        return heartbeat

    def _refused(self, asked: Asked, heartbeat: Heartbeat) -> dict[str, LedgerError]:
        """The groups that our own clients consume for: who came before they did has to go."""
        refused: dict[str, LedgerError] = {}
        for group in (one.name for one in heartbeat.consumers):
            own = sorted(self._others.own(group))
            if not own:
                continue
            refused[group] = GroupActiveError(
                "LedgerMQ's own clients consume for the group now: stop them first",
                group=group,
                members=len(own),
                some=own[:MEMBERS_NAMED_MAX],
            )
            if self._clients.leave(asked.connection, producer_group="", consumer_group=group):
                self._tell([group])
        return refused

    def _forget_dead_locks(self, asked: Asked, heartbeat: Heartbeat) -> None:
        """Have what our own clients have left behind removed: followers cannot know it is dead."""
        for group in (one.name for one in heartbeat.consumers):
            if group not in self._others.locked():
                continue
            client = OTHER_OWNER_PREFIX + heartbeat.client_id
            arguments = {"group": group, "client": client, "queues": {}, "ordered": True}
            # A later heartbeat tries again.
            self._calls.ask("queue_lock", arguments, asked.now_ms, lambda _outcome: None)

    def _is_lacking(self, group: str) -> bool:
        tables = self._tables
        known = tables.groups.get(group)
        return known is None or (
            known.retry_queues > 0 and tables.topics.get(retry_topic(group)) is None
        )

    def _prepare(self, asked: Asked, groups: list[str], failed: list[LedgerError]) -> None:
        """Have groups and their retry topics made, and answer when all are.

        Args:
            failed: why other groups of the heartbeat were refused.
        """
        waiting = len(groups)

        def take(outcome: object) -> None:
            nonlocal waiting
            waiting -= 1
            if isinstance(outcome, LedgerError) and not isinstance(outcome, NotLeaderError):
                failed.append(outcome)
            if not waiting:
                answer()

        def answer() -> None:
            reply = refusal(asked.command, failed[0]) if failed else asked.command.reply()
            self._reply(asked, reply)

        if not groups:
            answer()
        for group in groups:
            self._calls.ask(
                "group_prepare", {"group": group}, asked.now_ms, take, owner=asked.owner
            )

    def _unregister(self, asked: Asked) -> Command:
        fields = asked.command.fields
        group = fields.get("consumerGroup", "")
        if self._clients.leave(
            asked.connection,
            producer_group=fields.get("producerGroup", ""),
            consumer_group=group,
        ):
            self._tell([group])
        return asked.command.reply()

    def _list(self, asked: Asked) -> Command:
        group = text(asked.command.fields, "consumerGroup")
        ids = self._clients.consumer_ids(group)
        if not ids:
            remark = f"no consumer for this group, {group}"
            return asked.command.reply(ResponseCode.SYSTEM_ERROR, remark=remark)
        return asked.command.reply(body=encode_body({"consumerIdList": ids}))

    def _tell(self, groups: Iterable[str]) -> None:
        """Have the members of groups that have changed share the queues anew."""
        for group in groups:
            if not self._is_told(group):
                continue
            for consumer in self._clients.consumers(group):
                self._requests.tell(
                    consumer.connection,
                    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
                    {"consumerGroup": group},
                )

    def _is_told(self, group: str) -> bool:
        known = self._tables.groups.get(group)
        return known is None or known.fields.get("notifyConsumerIdsChangedEnable") is not False


def _groups_and_topics(command: Command) -> Named:
    for consumer in decode_heartbeat(command.body).consumers:
        yield consumer.name, None
        for subscription in consumer.subscriptions:
            yield subscription.topic, Right.SUB


def _group_left(command: Command) -> Named:
    group = command.fields.get("consumerGroup")
    if group:
        yield group, None


class ConnectionCodes(PortPart):
    """Lists for tools, and requests of tools that are passed on to clients.

    Each node tells of those who are connected to it; consumers are connected to all nodes.
    """

    def __init__(self, context: BrokerContext) -> None:
        self._clients = context.clients
        self._shares = context.tables.shares
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
            if self._shares.topics(group):
                remark += f": its clients take messages singly: see ledgermq share show {group}"
            return asked.command.reply(ResponseCode.CONSUMER_NOT_ONLINE, remark=remark)
        newest = members[-1].group
        subscriptions = {
            one.topic: _shown(one) for member in members for one in member.group.subscriptions
        }
        body = {
            "connectionSet": [
                _row(one.client_id, one.connection, self._clients.client(one.connection))
                for one in members
            ],
            "consumeFromWhere": newest.begin.name,
            "consumeType": newest.consume_type.name,
            "messageModel": newest.model.name,
            "subscriptionTable": subscriptions,
        }
        return asked.command.reply(body=encode_body(body))

    def _producers(self, asked: Asked) -> Command:
        group = text(asked.command.fields, "producerGroup")
        clients = self._clients.clients_of(group)
        if not clients:
            remark = f"the producer group[{group}] not exist"
            return asked.command.reply(ResponseCode.SYSTEM_ERROR, remark=remark)
        rows = [_row(one.client_id, one.connection, one) for one in clients]
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


def _row(client_id: str, connection: Connection, client: Client | None) -> Mapping[str, object]:
    host, port = connection.peer
    return {
        "clientAddr": f"{host}:{port}",
        "clientId": client_id,
        "language": _language(client),
        "version": 0 if client is None else client.version,
    }


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
