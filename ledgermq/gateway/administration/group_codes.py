"""Codes about consumer groups for RocketMQ's tools: settings, offsets, orders to their members."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from ledgermq.broker.sliced_answers import Build
from ledgermq.formats.records.message import decode_message
from ledgermq.formats.records.message_id import decode_offset_id
from ledgermq.gateway.administration.encoded_tables import EncodedTables
from ledgermq.gateway.administration.topic_codes import topic_of
from ledgermq.gateway.clients.client_table import ConnectedConsumer
from ledgermq.gateway.clients.member_codes import ConnectionCodes
from ledgermq.gateway.code_rights import ADMIN, USER, both_rights, group_right, topic_right
from ledgermq.gateway.context import BrokerContext
from ledgermq.gateway.parts import PortPart
from ledgermq.gateway.requests import Asked, Code
from ledgermq.model.errors import (
    ColdAwayError,
    GroupActiveError,
    GroupUnknownError,
    LedgerError,
    ProtocolError,
)
from ledgermq.model.names.message_types import ATTRIBUTES
from ledgermq.model.rights import Right
from ledgermq.remoting.codes import Language, RequestCode, ResponseCode
from ledgermq.remoting.command import Command
from ledgermq.remoting.fastjson import decode_body, encode_body, encode_queue_table
from ledgermq.remoting.fields import flag, int64, json_field, objects_in, text
from ledgermq.rules.consumers.group_plans import FACTOR, FLAGS, NUMBERS
from ledgermq.rules.tables.groups import PRIORITY_FACTOR, PRIORITY_FACTOR_MAX
from ledgermq.rules.tables.topics import Topic

STATUS_TIMEOUT_MS = 10_000
NOTIFIED_VERSION_MIN = 28
"""Clients below V3_0_7 cannot be told new offsets."""

FACTOR_SIZE_MAX = 9


class GroupCodes(PortPart):
    """Looks are answered by every node, changes by the one that leads."""

    def __init__(self, context: BrokerContext) -> None:
        self._calls = context.calls
        self._encoded = EncodedTables(context.tables.state)
        self._tables = context.tables
        self._figures = context.figures
        self._clients = context.clients
        self._changes = context.changes
        self._addresses = context.addresses
        self.codes = (
            Code(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, self._put, ADMIN),
            Code(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, self._put_all, ADMIN),
            Code(RequestCode.DELETE_SUBSCRIPTIONGROUP, self._delete, ADMIN),
            Code(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, self._all, USER),
            Code(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, self._one, group_right("group")),
            Code(RequestCode.GET_ALL_CONSUMER_OFFSET, self._all_offsets, USER),
            Code(
                RequestCode.GET_CONSUME_STATS,
                self._consumed,
                group_right("consumerGroup"),
                is_for_sender=True,
            ),
            Code(
                RequestCode.GET_BROKER_CONSUME_STATS,
                self._consumed_by_all,
                USER,
                is_for_sender=True,
            ),
            Code(RequestCode.QUERY_CONSUME_TIME_SPAN, self._time_span, both_rights("group")),
            Code(RequestCode.QUERY_CORRECTION_OFFSET, self._correction, topic_right(Right.SUB)),
            Code(RequestCode.CLONE_GROUP_OFFSET, self._clone, ADMIN),
        )

    def _put(self, asked: Asked) -> None:
        """Make a group, or change the one that there is."""
        self._changes.ask(asked, *self._change_of(decode_body(asked.command.body)))

    def _put_all(self, asked: Asked) -> None:
        """The same for each group of a list, which is read as a whole before anything is done."""
        wishes = objects_in(asked.command.body, "groupConfigList")
        for wish in wishes:
            _name_in(wish)
        self._changes.ask_all(asked, [partial(self._change_of, wish) for wish in wishes])

    def _change_of(self, wanted: Mapping[str, object]) -> tuple[str, Mapping[str, object]]:
        name = _name_in(wanted)
        # Fields that later versions add, and other attributes, mean nothing here, and are not kept.
        fields = {key: wanted[key] for key in (*FLAGS, *NUMBERS) if wanted.get(key) is not None}
        attributes = wanted.get(ATTRIBUTES)
        if isinstance(attributes, Mapping):
            fields |= _factor(attributes)
        verb = "group_create" if self._tables.groups.get(name) is None else "group_alter"
        return verb, {"group": name, "fields": fields}

    def _delete(self, asked: Asked) -> None:
        """Delete a group on all nodes; one that is not there is no error, as with topics."""
        fields = asked.command.fields
        # Two names of one thing: RocketMQ 4.9's, and RocketMQ 5's.
        with_offsets = flag(fields, "removeOffset") or flag(fields, "cleanOffset")
        arguments = {"group": text(fields, "groupName"), "with_offsets": with_offsets}

        def refused(error: LedgerError) -> Command | None:
            return asked.command.reply() if isinstance(error, GroupUnknownError) else None

        self._changes.ask(asked, "group_delete", arguments, refused=refused)

    def _all(self, asked: Asked) -> None:
        self._calls.build(asked, self._encoded.groups())

    def _one(self, asked: Asked) -> Command:
        """One group (``SubscriptionGroupConfig``)."""
        name = text(asked.command.fields, "group")
        group = self._tables.groups.get(name)
        if group is None:
            remark = f"group {name} does not exist"
            return asked.command.reply(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark=remark)
        return asked.command.reply(body=encode_body(group.to_fields()))

    def _all_offsets(self, asked: Asked) -> None:
        self._calls.build(asked, self._encoded.offsets())

    def _topics(self, group: str, one: str = "") -> Iterator[Topic]:
        """Topics of a group: those that its members subscribe to now, of which it has offsets, or
        all of which it has some while it has no member.
        """
        subscribed = self._clients.topics_of(group)
        offsets = self._tables.offsets
        if one:
            names = [one] if offsets.offsets(group, one) else []
        else:
            names = [owner.topic for owner, _ in offsets.of_group(group)]
        for name in names:
            topic = self._tables.topics.get(name)
            if topic is not None and (subscribed is None or name in subscribed):
                yield topic

    def _consumed(self, asked: Asked) -> None:
        fields = asked.command.fields
        group, one = text(fields, "consumerGroup"), fields.get("topic", "")
        self._calls.build(asked, self._consumed_by(group, one))

    def _consumed_by(self, group: str, one: str) -> Build:
        encoded: list[bytes] = []
        for topic in self._topics(group, one):
            encoded += self._figures.consumed_rows(self._figures.consumed(group, topic))
            yield
        return self._figures.consumed_table(encoded)

    def _consumed_by_all(self, asked: Asked) -> None:
        self._calls.build(
            asked, self._all_consumed(is_ordered=flag(asked.command.fields, "isOrder"))
        )

    def _all_consumed(self, *, is_ordered: bool) -> Build:
        figures = self._figures
        parts, behind = [], 0
        for group in [one.name for one in self._tables.groups]:
            tables = []
            for topic in self._topics(group):
                if is_ordered and not topic.is_ordered:
                    continue
                rows = figures.consumed(group, topic)
                behind += sum(row.behind for row in rows)
                tables.append(figures.consumed_table(figures.consumed_rows(rows)))
                yield
            if tables:
                name = encode_body({group: 0})[1:-2]
                parts.append(b"{" + name + b"[" + b",".join(tables) + b"]}")
            yield
        head = encode_body({"brokerAddr": self._addresses.own, "totalDiff": behind})[:-1]
        return head + b',"consumeStatsList":[' + b",".join(parts) + b"]}"

    def _time_span(self, asked: Asked) -> Command:
        fields, figures = asked.command.fields, self._figures
        group, name = text(fields, "group"), text(fields, "topic")
        topic = self._tables.topics.get(name)
        if topic is None:
            return asked.command.reply(17, remark=f"topic[{name}] not exist")
        spans: list[Mapping[str, object]] = []
        for row in figures.consumed(group, topic):
            earliest = figures.earliest_ms(row.queue)
            delay = 0
            if row.behind:
                next_ms = figures.stored_ms(row.queue, max(row.offset, row.end - row.behind))
                delay = max(0, figures.epoch_ms() - next_ms) if next_ms else 0
            spans.append(
                {
                    "consumeTimeStamp": row.last_ms if row.offset else earliest,
                    "delayTime": delay,
                    "maxTimeStamp": figures.stored_ms(row.queue, row.end - 1),
                    "messageQueue": {
                        "brokerName": self._addresses.broker,
                        "queueId": row.queue.queue_id,
                        "topic": name,
                    },
                    "minTimeStamp": earliest,
                }
            )
        return asked.command.reply(body=encode_body({"consumeTimeSpanSet": spans}))

    def _correction(self, asked: Asked) -> Command:
        """The least offsets of all groups of a topic, where they are below those of one."""
        fields = asked.command.fields
        name, compared = text(fields, "topic"), fields.get("compareGroup", "")
        left_out = set(fields.get("filterGroups", "").split(",")) - {""}
        least: dict[int, int] = {}
        for owner, offsets in self._tables.offsets.of_topic(name):
            if owner.group in left_out:
                continue
            for queue_id, offset in offsets.items():
                least[queue_id] = min(offset, least.get(queue_id, offset))
        if compared:
            own = self._tables.offsets.offsets(compared, name)
            least = {one: least[one] for one in least if least[one] <= own.get(one, least[one])}
        table = {str(queue_id): least[queue_id] for queue_id in sorted(least)}
        return asked.command.reply(body=encode_body({"correctionOffsets": table}))

    def _clone(self, asked: Asked) -> None:
        """Let a group be as far as another one; refused while it consumes, but for ``offline``."""
        fields = asked.command.fields
        arguments: dict[str, object] = {
            "source": text(fields, "srcGroup"),
            "group": text(fields, "destGroup"),
            "force": flag(fields, "offline"),
            "create": True,
        }
        if fields.get("topic"):
            arguments["topic"] = fields["topic"]
        self._changes.ask(asked, "offset_clone", arguments)


def _factor(attributes: Mapping[str, object]) -> dict[str, object]:
    """The field for the one attribute of a group that means something here, as RocketMQ 5's tools
    write it, or its file.
    """
    if f"-{PRIORITY_FACTOR}" in attributes:
        return {FACTOR: PRIORITY_FACTOR_MAX}
    factor = attributes.get(f"+{PRIORITY_FACTOR}", attributes.get(PRIORITY_FACTOR))
    if factor is None:
        return {}
    digits = str(factor)
    is_one = digits.isascii() and digits.isdecimal() and len(digits) <= FACTOR_SIZE_MAX
    # What is none is refused by its name.
    return {FACTOR: int(digits) if is_one else digits[:FACTOR_SIZE_MAX]}


def _name_in(wanted: Mapping[str, object]) -> str:
    name = json_field(wanted, "groupName", str)
    if not name:
        raise ProtocolError("field is missing", field="groupName")
    return name


class ConsumerCodes(PortPart):
    """Orders to the consumers of a group: offset resets, status, one message.

    Offsets are changed in the log by the one who leads; members are told by this node.
    """

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
        found = topic_of(asked, self._tables)
        offsets = self._reset_offsets(found, group, timestamp, is_forced=is_forced)
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
        self, topic: Topic, group: str, timestamp: int, *, is_forced: bool
    ) -> dict[int, int]:
        offsets: dict[int, int] = {}
        unknown: ColdAwayError | None = None
        for row in self._figures.consumed(group, topic):
            try:
                target = (
                    row.end if timestamp < 0 else self._figures.told_since(row.queue, timestamp)
                )
            except ColdAwayError as error:
                # Of the other queues it is asked, too: who asks again has the answers of all.
                unknown = error
                continue
            is_taken = is_forced or target < row.offset
            offsets[row.queue.queue_id] = target if is_taken else row.offset
        if unknown is not None:
            raise unknown
        is_known = self._tables.groups.get(group) is not None or self._clients.consumers(group)
        if not (is_known or self._tables.offsets.offsets(group, topic.name)):
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
