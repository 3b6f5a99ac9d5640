"""Codes about consumer groups and their offsets, for RocketMQ's administrators."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from ledgermq.broker.sliced_answers import Build
from ledgermq.gateway.administration.encoded_tables import EncodedTables
from ledgermq.gateway.clients.client_groups import ClientGroups
from ledgermq.gateway.code_rights import ADMIN, USER, both_rights, group_right, topic_right
from ledgermq.gateway.context import BrokerContext
from ledgermq.gateway.parts import PortPart
from ledgermq.gateway.requests import Asked, Code
from ledgermq.model.errors import GroupUnknownError, LedgerError, ProtocolError
from ledgermq.model.rights import Right
from ledgermq.remoting.body_fields import json_field, objects_in
from ledgermq.remoting.codes import RequestCode, ResponseCode
from ledgermq.remoting.command import Command
from ledgermq.remoting.fastjson import decode_body, encode_body
from ledgermq.remoting.fields import flag, text
from ledgermq.rules.consumers.group_plans import FLAGS, NUMBERS
from ledgermq.rules.tables.topics import Topic


class GroupCodes(PortPart):
    """Looks are answered by every node, changes by the one that leads."""

    def __init__(self, context: BrokerContext) -> None:
        self._calls = context.calls
        self._encoded = EncodedTables(context.tables.state)
        self._tables = context.tables
        self._figures = context.figures
        self._clients = ClientGroups(context.clients)
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
        # Fields that later versions add mean nothing here, and are not kept.
        fields = {key: wanted[key] for key in (*FLAGS, *NUMBERS) if wanted.get(key) is not None}
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
        }
        if fields.get("topic"):
            arguments["topic"] = fields["topic"]
        self._changes.ask(asked, "offset_clone", arguments)


def _name_in(wanted: Mapping[str, object]) -> str:
    name = json_field(wanted, "groupName", str)
    if not name:
        raise ProtocolError("field is missing", field="groupName")
    return name
