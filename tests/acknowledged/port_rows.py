"""What RocketMQ's clients and tools change through the port."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

from ledgermq.remoting.codes import RequestCode as Code
from ledgermq.remoting.codes import ResponseCode
from ledgermq.remoting.command import Command
from tests.acknowledged.rows import WORLD, WORLD_MESSAGES, WORLD_QUEUES, ForgottenError, Note, Row
from tests.acknowledged.steps import (
    Connections,
    Errand,
    Pause,
    Pending,
)
from tests.suite.patience import PATIENCE_S

Fields = dict[str, object]
Asked = Generator[Pending, Any, Command]

AGAIN = (
    ResponseCode.SYSTEM_BUSY,
    ResponseCode.SLAVE_NOT_AVAILABLE,
    ResponseCode.SERVICE_NOT_AVAILABLE,
)
"""What a client that wants an answer asks again for."""

PAUSE_S = 0.02
NAMESPACE = "ack-names"


def port(to: Connections, code: Code, fields: Fields, body: bytes = b"") -> Asked:
    """The reply, once the node says something that is none of ``AGAIN``."""
    limit = time.monotonic() + PATIENCE_S
    while True:
        try:
            reply: Command = yield to.ask_port(code, fields, body)
        except OSError as error:
            # Nobody listens there yet.
            if time.monotonic() > limit:
                raise ForgottenError(f"{code.name}: {error!r}") from error
        else:
            if reply.code not in AGAIN or time.monotonic() > limit:
                return reply
        yield Pause(PAUSE_S)


def done(to: Connections, code: Code, fields: Fields, body: bytes = b"") -> Asked:
    """The reply, which is to say that it is done."""
    reply = yield from port(to, code, fields, body)
    if reply.code != ResponseCode.SUCCESS:
        raise ForgottenError(f"{code.name}: {reply.code} {reply.remark}")
    return reply


@dataclass
class PortRow(Row):
    """A code that is asked with fields and a body, and known by another one.

    Attributes:
        ask: code, fields and body.
        known: whether the reply to ``read_by`` tells.
        before: what has to be there first.
    """

    verb: str
    ask: Callable[[Note], tuple[Code, Fields, bytes]]
    read_by: Callable[[Note], tuple[Code, Fields]]
    known: Callable[[Note, Command], bool]
    before: Callable[[Note], tuple[Code, Fields, bytes] | None] = lambda _note: None
    lasts: bool = True

    def is_for(self, connections: Connections) -> bool:
        return connections.has_port

    def prepare(self, note: Note, to: Connections) -> Errand:
        first = self.before(note)
        if first is not None:
            yield from done(to, *first)

    def act(self, note: Note, to: Connections) -> Errand:
        note.is_begun = True
        yield from done(to, *self.ask(note))
        note.is_acknowledged = True

    def again(self, note: Note, to: Connections) -> Errand:
        yield from done(to, *self.ask(note))
        note.is_acknowledged = True

    def read(self, note: Note, to: Connections) -> Errand:
        code, fields = self.read_by(note)
        reply = yield from port(to, code, fields)
        if note.is_acknowledged and not self.known(note, reply):
            raise ForgottenError(
                f"{code.name} {fields}: {reply.code} {reply.fields} {bytes(reply.body)!r}"
            )


@dataclass
class NameSet(Row):
    """A value in the name server's tables, set by our own call and read through the port."""

    verb: str = "name_set"

    def is_for(self, connections: Connections) -> bool:
        return connections.has_port

    def act(self, note: Note, to: Connections) -> Errand:
        note.is_begun = True
        yield to.ask("name_set", namespace=NAMESPACE, key=note.name, value="v")
        note.is_acknowledged = True

    def again(self, note: Note, to: Connections) -> Errand:
        yield to.ask("name_set", namespace=NAMESPACE, key=note.name, value="v")
        note.is_acknowledged = True

    def read(self, note: Note, to: Connections) -> Errand:
        place: Fields = {"namespace": NAMESPACE, "key": note.name}
        reply = yield from port(to, Code.GET_KV_CONFIG, place)
        if note.is_acknowledged and reply.fields.get("value") != "v":
            raise ForgottenError(f"value is not there: {reply.code} {reply.remark}")


def _group_offset(prefix: str, note: Note) -> Fields:
    return {
        "consumerGroup": f"{prefix}-{note.name}",
        "topic": WORLD,
        "queueId": note.number % WORLD_QUEUES,
    }


def _offset(note: Note) -> int:
    return 1 + note.number % WORLD_MESSAGES


def _commit(prefix: str, note: Note) -> tuple[Code, Fields, bytes]:
    fields = {**_group_offset(prefix, note), "commitOffset": _offset(note)}
    return Code.UPDATE_CONSUMER_OFFSET, fields, b""


def _topic(prefix: str, note: Note) -> tuple[Code, Fields, bytes]:
    fields: Fields = {
        "topic": f"{prefix}-{note.name}",
        "readQueueNums": 2,
        "writeQueueNums": 2,
        "perm": 6,
        "topicSysFlag": 0,
        "order": "false",
        "topicFilterType": "SINGLE_TAG",
        "defaultTopic": "TBW102",
    }
    return Code.UPDATE_AND_CREATE_TOPIC, fields, b""


def _group(prefix: str, note: Note) -> tuple[Code, Fields, bytes]:
    body = {"groupName": f"{prefix}-{note.name}", "retryMaxTimes": 5}
    return Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, json.dumps(body).encode()


def _listed_topics(note: Note) -> tuple[Code, Fields, bytes]:
    topics = [
        {
            "topicName": f"port-listed-{note.name}-{number}",
            "readQueueNums": 2,
            "writeQueueNums": 2,
            "perm": 6,
        }
        for number in range(2)
    ]
    body = json.dumps({"topicConfigList": topics}).encode()
    return Code.UPDATE_AND_CREATE_TOPIC_LIST, {}, body


def _listed_groups(note: Note) -> tuple[Code, Fields, bytes]:
    groups = [
        {"groupName": f"port-listed-{note.name}-{number}", "retryMaxTimes": 5}
        for number in range(2)
    ]
    body = json.dumps({"groupConfigList": groups}).encode()
    return Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, {}, body


def _groups(reply: Command) -> dict[str, Any]:
    table: dict[str, Any] = json.loads(bytes(reply.body))["subscriptionGroupTable"]
    return table


def _locks(note: Note, client: str) -> bytes:
    queues = [{"topic": WORLD, "brokerName": "broker-a", "queueId": one} for one in range(2)]
    group = f"port-locks-{note.name}"
    return json.dumps({"consumerGroup": group, "clientId": client, "mqSet": queues}).encode()


@dataclass
class PortLock(Row):
    """Queues that an ordered consumer of RocketMQ locks: no other one gets them."""

    verb: str = "LOCK_BATCH_MQ"
    lasts: bool = False

    def is_for(self, connections: Connections) -> bool:
        return connections.has_port

    def act(self, note: Note, to: Connections) -> Errand:
        note.is_begun = True
        yield from done(to, Code.LOCK_BATCH_MQ, {}, _locks(note, "first"))
        note.is_acknowledged = True

    def again(self, note: Note, to: Connections) -> Errand:
        reply = yield from done(to, Code.LOCK_BATCH_MQ, {}, _locks(note, "first"))
        if len(json.loads(bytes(reply.body))["lockOKMQSet"]) != 2:
            raise ForgottenError(f"queues are another one's: {bytes(reply.body)!r}")
        note.is_acknowledged = True

    def read(self, note: Note, to: Connections) -> Errand:
        reply = yield from done(to, Code.LOCK_BATCH_MQ, {}, _locks(note, "second"))
        if note.is_acknowledged and json.loads(bytes(reply.body))["lockOKMQSet"]:
            raise ForgottenError(f"another one got the queues: {bytes(reply.body)!r}")


def port_rows() -> list[Row]:
    """All of them."""
    return [
        NameSet(),
        PortLock(),
        PortRow(
            "offsets_store",
            lambda note: _commit("stored", note),
            lambda note: (Code.QUERY_CONSUMER_OFFSET, _group_offset("stored", note)),
            lambda note, reply: reply.fields.get("offset") == str(_offset(note)),
        ),
        PortRow(
            "UPDATE_AND_CREATE_TOPIC",
            lambda note: _topic("port", note),
            lambda note: (Code.GET_ROUTEINFO_BY_TOPIC, {"topic": f"port-{note.name}"}),
            lambda _, reply: reply.code == ResponseCode.SUCCESS,
        ),
        PortRow(
            "UPDATE_AND_CREATE_TOPIC_LIST",
            _listed_topics,
            lambda note: (Code.GET_TOPIC_CONFIG, {"topic": f"port-listed-{note.name}-1"}),
            lambda _, reply: reply.code == ResponseCode.SUCCESS,
        ),
        PortRow(
            "DELETE_TOPIC_IN_BROKER",
            lambda note: (Code.DELETE_TOPIC_IN_BROKER, {"topic": f"port-gone-{note.name}"}, b""),
            lambda note: (Code.GET_ROUTEINFO_BY_TOPIC, {"topic": f"port-gone-{note.name}"}),
            lambda _, reply: reply.code == ResponseCode.TOPIC_NOT_EXIST,
            lambda note: _topic("port-gone", note),
        ),
        PortRow(
            "UPDATE_AND_CREATE_SUBSCRIPTIONGROUP",
            lambda note: _group("port", note),
            lambda _: (Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, {}),
            lambda note, reply: _groups(reply)[f"port-{note.name}"]["retryMaxTimes"] == 5,
        ),
        PortRow(
            "UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST",
            _listed_groups,
            lambda note: (
                Code.GET_SUBSCRIPTIONGROUP_CONFIG,
                {"group": f"port-listed-{note.name}-1"},
            ),
            lambda _, reply: json.loads(bytes(reply.body))["retryMaxTimes"] == 5,
        ),
        PortRow(
            "DELETE_SUBSCRIPTIONGROUP",
            lambda note: (
                Code.DELETE_SUBSCRIPTIONGROUP,
                {"groupName": f"port-old-{note.name}", "removeOffset": "true"},
                b"",
            ),
            lambda _: (Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, {}),
            lambda note, reply: f"port-old-{note.name}" not in _groups(reply),
            lambda note: _group("port-old", note),
        ),
        PortRow(
            "CLONE_GROUP_OFFSET",
            lambda note: (
                Code.CLONE_GROUP_OFFSET,
                {
                    "srcGroup": f"port-source-{note.name}",
                    "destGroup": f"port-clone-{note.name}",
                    "topic": WORLD,
                    "offline": "true",
                },
                b"",
            ),
            lambda note: (Code.QUERY_CONSUMER_OFFSET, _group_offset("port-clone", note)),
            lambda note, reply: reply.fields.get("offset") == str(_offset(note)),
            lambda note: _commit("port-source", note),
        ),
        PortRow(
            "PUT_KV_CONFIG",
            lambda note: (
                Code.PUT_KV_CONFIG,
                {"namespace": NAMESPACE, "key": f"put-{note.name}", "value": "v"},
                b"",
            ),
            lambda note: (
                Code.GET_KV_CONFIG,
                {"namespace": NAMESPACE, "key": f"put-{note.name}"},
            ),
            lambda _, reply: reply.fields.get("value") == "v",
        ),
    ]
