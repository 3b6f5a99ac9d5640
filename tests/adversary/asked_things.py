"""What is asked in a test of rights: each verb and each code, about a topic and a group by choice.

Where a message is named, by position, id or transaction, it is one of the topic.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from ledgermq.formats.records.message_id import decode_offset_id
from ledgermq.remoting.codes import RequestCode as Code
from ledgermq.remoting.command import Command
from tests.adversary.callers import OTHER_GROUP, OTHER_TOPIC, OWN_GROUP, OWN_TOPIC
from tests.process.remoting_client import RemotingClient
from tests.process.remoting_requests import TEMPLATES
from tests.process.remoting_steps import send

HALF_FLAG = 4
ROLLBACK = 12
ADMINS_SINK = "admins"

Arguments = Mapping[str, object]


class About(NamedTuple):
    """What somebody wants to use."""

    topic: str
    group: str


OWN, OTHERS = About(OWN_TOPIC, OWN_GROUP), About(OTHER_TOPIC, OTHER_GROUP)


class Stored:
    """Messages of both topics, stored by an admin, and fresh ones of those that a request ends."""

    def __init__(self, admin: RemotingClient) -> None:
        self._admin = admin
        self._ids = itertools.count(time.time_ns())
        self._position = {
            about: _position(send(admin, about.topic, 0, b"stored", properties="KEYS\x01k\x02")[0])
            for about in (OWN, OTHERS)
        }

    def position(self, about: About) -> int:
        """Where a message of the topic lies."""
        return self._position[about]

    def message_id(self, about: About) -> str:
        """The offset id of such a message."""
        return f"7F00000100002A9F{self.position(about):016X}"

    def half(self, about: About) -> Mapping[str, object]:
        """A new half message for the topic, as ``END_TRANSACTION`` names it."""
        unique_id = f"half{next(self._ids)}"
        reply = self._store(
            about, f"TRAN_MSG\x01true\x02PGROUP\x01producers\x02UNIQ_KEY\x01{unique_id}", HALF_FLAG
        )
        return {
            "producerGroup": "producers",
            "tranStateTableOffset": int(reply.fields["queueOffset"]),
            "commitLogOffset": _position(reply),
            "commitOrRollback": ROLLBACK,
            "fromTransactionCheck": "false",
            "msgId": unique_id,
            "transactionId": unique_id,
        }

    def timer(self, about: About) -> str:
        """The id of a new message that waits for an hour."""
        unique_id = f"timer{next(self._ids)}"
        self._store(about, f"TIMER_DELAY_SEC\x013600\x02UNIQ_KEY\x01{unique_id}", 0)
        return unique_id

    def _store(self, about: About, properties: str, sys_flag: int) -> Command:
        fields = {**TEMPLATES[Code.SEND_MESSAGE_V2].fields, "b": about.topic, "e": 0}
        reply = self._admin.ask(
            Code.SEND_MESSAGE_V2, {**fields, "f": sys_flag, "i": properties}, b"waits"
        )
        assert reply.code == 0, reply
        return reply


def _position(reply: Command) -> int:
    return decode_offset_id(reply.fields["msgId"]).physical_offset


def verbs(stored: Stored) -> Mapping[str, Callable[[About], Arguments]]:
    """Each verb with its arguments. What it would take away is not there."""
    member = {"client": "c", "instance": "i"}
    schema = {"subject": "absent", "type": "JSON", "schema": "no JSON"}
    numbers = itertools.count()

    def sink(about: About) -> Arguments:
        # One that nobody has used, or one that has an owner.
        name = f"rows{next(numbers)}" if about is OWN else ADMINS_SINK
        return {"sink": name, "batch": 0}

    def end(about: About) -> Arguments:
        half = stored.half(about)
        return {
            "group": "producers",
            "transaction": half["transactionId"],
            "decision": "rollback",
            "messages": 1,
            "offset": half["tranStateTableOffset"],
        }

    return {
        "topics": lambda _: {},
        "topic_show": lambda about: {"topic": about.topic},
        "route": lambda about: {"topic": about.topic},
        "topic_create": lambda _: {"topic": "made"},
        "topic_alter": lambda _: {"topic": "absent"},
        "topic_delete": lambda _: {"topic": "absent"},
        "topic_for_send": lambda about: {
            "topic": about.topic,
            "template": "TBW102",
            "queues": 4,
            "unit_mode": False,
        },
        "queue": lambda about: {"topic": about.topic, "queue": 0},
        "offset_by_time": lambda about: {"topic": about.topic, "queue": 0, "timestamp": 1},
        "earliest_time": lambda about: {"topic": about.topic, "queue": 0},
        "groups": lambda _: {},
        "group_list": lambda _: {},
        "group_show": lambda about: {"group": about.group},
        "group_lag": lambda about: {"group": about.group, "topic": about.topic},
        "group_create": lambda _: {"group": "made"},
        "group_alter": lambda _: {"group": "absent"},
        "group_delete": lambda _: {"group": "absent"},
        # Before others wait for the group, or with it.
        "share_receive": lambda about: {"group": about.group, "topic": about.topic},
        "share_settle": lambda about: {
            "group": about.group,
            "action": "accept",
            "handles": [f"1:{about.group}:{about.topic}:0:0:1:7"],
        },
        "share_show": lambda about: {"group": about.group},
        "share_peek": lambda about: {
            "group": about.group,
            "topic": about.topic,
            "max_messages": 1,
            "wait_ms": 0,
        },
        "share_give_up": lambda about: {"group": about.group, "topic": about.topic, "request": 1},
        "share_end": lambda _: {"group": "absent"},
        "group_prepare": lambda about: {"group": about.group},
        "group_offset": lambda about: {"group": about.group, "topic": about.topic},
        "group_commit": lambda about: {
            "group": about.group,
            "topic": about.topic,
            "offsets": {"0": 0},
        },
        "offset_reset": lambda about: {"group": about.group, "topic": about.topic, "to": "x"},
        "offset_clone": lambda about: {"group": about.group, "source": "absent"},
        "offsets_store": lambda _: {"commits": []},
        "group_heartbeat": lambda about: {"group": about.group, **member},
        "group_leave": lambda about: {"group": about.group, **member},
        "group_members": lambda about: {"group": about.group},
        "queue_lock": lambda about: {"group": about.group, **member, "queues": {}},
        "queue_unlock": lambda about: {"group": about.group, **member, "queues": {}},
        "send_back": lambda about: {
            "group": OWN_GROUP,
            "position": stored.position(about),
            "delay_level": 1,
        },
        "dead_letters": lambda about: {"group": about.group},
        "dead_letters_replay": lambda about: {"group": about.group},
        "timers": lambda _: {"count": 10},
        "timer_cancel": lambda about: {"id": stored.timer(about)},
        "transactions": lambda _: {"count": 10},
        "transaction_end": end,
        "transaction_checks": lambda about: {"group": about.group, "wait_ms": 0},
        "sinks": lambda _: {},
        "sink_commit": lambda about: {**sink(about), "stages": [], "once": False},
        "sink_commit_consumed": lambda about: {
            **sink(about),
            "stages": [],
            "group": about.group,
            "consumed": {about.topic: {"0": [None, 0]}},
        },
        "sink_wait": lambda about: {**sink(about), "wait_ms": 0},
        "sink_abort": lambda about: {**sink(about), "stages": []},
        "acl_list": lambda _: {},
        "acl_set": lambda _: {"user": "made", "mode": "put", "fields": {}},
        "acl_remove": lambda _: {"user": "absent"},
        "quota_list": lambda _: {},
        "quota_set": lambda _: {"owner": "absent", "fields": {}},
        "quota_remove": lambda _: {"owner": "absent"},
        "archive_list": lambda _: {},
        "archive_commit": lambda _: {"archive": "absent"},
        "archive_remove": lambda _: {"archive": "absent"},
        "features": lambda _: {},
        "feature_enable": lambda _: {"level": 0},
        "cluster_show": lambda _: {},
        "cluster_groups": lambda _: {},
        "cluster_key": lambda _: {},
        "cluster_documents": lambda _: {
            "group": "absent",
            "chain": [],
            "rank": 0,
            "at": [0, ""],
            "hold_ms": 0,
            "piece": 0,
        },
        "cluster_begin": lambda _: {"cluster": "c", "root": "", "chain": [], "nodes": []},
        "cluster_join": lambda _: {"cluster": "c", "root": "", "chain": [], "nodes": []},
        "cluster_leave": lambda _: {},
        "cluster_hand_over": lambda _: {"group": "absent"},
        "cluster_take_over": lambda _: {"chain": []},
        "cluster_group_set": lambda _: {"group": "absent", "nodes": []},
        "cluster_group_remove": lambda _: {"group": "absent"},
        "schemas": lambda _: {"limit": 10},
        "schema_show": lambda about: {"subject": f"{about.topic}-value"},
        "schema_by_id": lambda _: {"id": 1},
        "schema_check": lambda _: schema,
        "schema_register": lambda _: schema,
        "schema_rule": lambda _: {"subject": "absent", "compatibility": "FULL"},
        "schema_delete": lambda _: {"subject": "absent"},
        "cluster_topic_set": lambda about: {"topic": about.topic, "groups": []},
        "cluster_group_phase": lambda _: {"group": "absent"},
        "cluster_remains": lambda _: {},
        "cluster_topic_release": lambda about: {"topic": about.topic},
        "cluster_topic_alter": lambda about: {"topic": about.topic},
        "cluster_topic_phase": lambda about: {"topic": about.topic},
        "cluster_topic_groups": lambda about: {"topic": about.topic},
        "cluster_topic_show": lambda about: {"topic": about.topic},
        "name_set": lambda _: {"namespace": "n", "key": "k"},
        "node_report": lambda _: {},
        "group_lags": lambda _: {"count": 10},
    }


def request(code: Code, about: About, stored: Stored) -> tuple[Mapping[str, object], bytes]:
    """Fields and body of a request of a code."""
    template = TEMPLATES[code]
    fields: dict[str, object] = {
        name: _of(about, value) if isinstance(value, str) else value
        for name, value in template.fields.items()
    }
    body = template.body
    if body[:1] == b"{":
        body = _of(about, body.decode()).encode()
    if code == Code.END_TRANSACTION:
        fields = dict(stored.half(about))
    if code in (Code.VIEW_MESSAGE_BY_ID, Code.CONSUMER_SEND_MSG_BACK):
        fields["offset"] = stored.position(about)
        # Also who has the group is to have the right to the message.
        fields["group"] = OWN_GROUP
    if code == Code.CONSUME_MESSAGE_DIRECTLY:
        fields |= {"msgId": stored.message_id(about), "consumerGroup": OWN_GROUP}
    return fields, body


def _of(about: About, text: str) -> str:
    return text.replace(f"{OWN_TOPIC}", about.topic).replace(OWN_GROUP, about.group)
