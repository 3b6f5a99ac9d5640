"""What RocketMQ's administrators ask a real node for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from ledgermq.client import Producer
from ledgermq.formats.records.message import decode_message
from ledgermq.remoting.codes import Language, RequestCode, ResponseCode
from ledgermq.remoting.codes import RequestCode as Code
from ledgermq.remoting.command import ONEWAY, Command
from ledgermq.remoting.fastjson import decode_body
from tests.process.conftest import Node, wait_until
from tests.process.remoting_client import RemotingClient
from tests.process.remoting_node import start_remoting_node

pytestmark = pytest.mark.slow

MESSAGES = 5
ENDS = [5, 5, 5, 6]
ALL = sum(ENDS)


class Administered:
    """A node with messages in each queue of ``orders``, and a tool that is connected to it."""

    def __init__(self, node: Node) -> None:
        self.address = start_remoting_node(node)
        self.tool = RemotingClient(self.address)
        wait_until(lambda: b'"0":' in bytes(self.ask(Code.GET_BROKER_CLUSTER_INFO).body), "lead")
        with Producer(f"ipc://{node.runtime}") as producer:
            sent = [
                producer.send_batch("orders", [b"x"] * MESSAGES, queue_id=queue)
                for queue in range(4)
            ]
            for one in sent:
                one.result()
            self.id = producer.send("orders", b"y", queue_id=3).result().offset_message_id
        wait_until(lambda: self.ends() == ENDS, "the messages to be dispatched")

    def ask(self, code: int, body: Any = None, **fields: object) -> Command:
        """The reply of the node."""
        content = b"" if body is None else json.dumps(body).encode()
        return self.tool.ask(code, fields, content)

    def answer(self, code: int, body: Any) -> Command:
        """The reply, once the node is not too busy to give one: a change waits for its commit."""

        def replied() -> Command | None:
            reply = self.ask(code, body)
            return None if reply.code == ResponseCode.SERVICE_NOT_AVAILABLE else reply

        found: Command = wait_until(replied, f"an answer to {code}")
        return found

    def told(self, code: int, body: Any = None, **fields: object) -> dict[str, Any]:
        """The body of a reply that is no refusal."""
        reply = self.ask(code, body, **fields)
        assert reply.code == ResponseCode.SUCCESS, reply.remark
        return decode_body(reply.body)

    def ends(self) -> list[int]:
        """Next offset of each queue of ``orders``."""
        table = self.told(Code.GET_TOPIC_STATS_INFO, topic="orders")["offsetTable"]
        return [row["maxOffset"] for row in by_queue(table)]


def by_queue(table: dict[str, Any]) -> list[Any]:
    """Values of a table whose keys are queues, in the order of these."""
    rows = {json.loads(key)["queueId"]: value for key, value in table.items()}
    return [rows[queue] for queue in sorted(rows)]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Administered]:
    running = Node(tmp_path_factory.mktemp("administered"))
    made = Administered(running)
    yield made
    made.tool.close()
    running.stop()


def consumer(node: Administered, group: str, *, language: int = Language.JAVA) -> RemotingClient:
    """A member of a group, as it introduces itself."""
    client = RemotingClient(node.address)
    subscription = {"topic": "orders", "subString": "*", "subVersion": 1, "tagsSet": [],
                    "codeSet": [], "expressionType": "TAG"}  # fmt: skip
    told = {"groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
            "subscriptionDataSet": [subscription]}  # fmt: skip
    beat = {"clientID": f"10.0.0.1@{group}", "consumerDataSet": [told], "producerDataSet": []}
    client.language = language
    assert client.ask(Code.HEART_BEAT, body=json.dumps(beat).encode()).code == 0
    return client


def request_of(client: RemotingClient, code: int) -> Command:
    """The next request of that kind from the node."""
    while True:
        request = client.next_request()
        if request.code == code:
            return request


def test_topics_are_made_changed_and_deleted_once(node: Administered) -> None:
    wish = {"defaultTopic": "TBW102", "readQueueNums": 3, "writeQueueNums": 3, "perm": 6,
            "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false"}  # fmt: skip
    made = node.ask(Code.UPDATE_AND_CREATE_TOPIC, topic="sales", **wish)
    changed = node.ask(Code.UPDATE_AND_CREATE_TOPIC, topic="sales", **{**wish, "perm": 4})
    table = node.told(Code.GET_ALL_TOPIC_CONFIG)["topicConfigTable"]
    system = node.ask(Code.UPDATE_AND_CREATE_TOPIC, topic="TBW102", **wish)
    deleted = [node.ask(Code.DELETE_TOPIC_IN_BROKER, topic="sales").code for _ in range(2)]

    assert (made.code, changed.code, deleted) == (0, 0, [0, 0])
    assert (table["sales"]["perm"], table["sales"]["readQueueNums"]) == (4, 3)
    assert system.code == ResponseCode.NO_PERMISSION
    assert "sales" not in node.told(Code.GET_ALL_TOPIC_CONFIG)["topicConfigTable"]
    assert node.ask(Code.GET_TOPIC_STATS_INFO, topic="sales").code == ResponseCode.TOPIC_NOT_EXIST


def test_rocketmq_5_says_that_a_topic_is_compacted_and_is_shown_it(node: Administered) -> None:
    wish = {"defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6,
            "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false"}  # fmt: skip
    shown = []
    for attributes in ("+message.type=NORMAL,+cleanup.policy=COMPACTION", "", "-cleanup.policy"):
        made = node.ask(Code.UPDATE_AND_CREATE_TOPIC, topic="prices", **wish, attributes=attributes)
        assert made.code == 0
        found = node.told(Code.GET_TOPIC_CONFIG, topic="prices", lo="true")
        shown.append(found["attributes"])

    # What is said of other attributes, or of none, changes nothing.
    compacted = {"message.type": "NORMAL", "cleanup.policy": "COMPACTION"}
    assert shown == [compacted, compacted, {"message.type": "NORMAL"}]
    # A slave of RocketMQ's that took it for its own would begin to compact.
    assert "cleanup.policy" not in str(node.told(Code.GET_ALL_TOPIC_CONFIG)["topicConfigTable"])


def test_lists_of_topics_and_groups_are_made_or_refused_by_name(node: Administered) -> None:
    wish = {"readQueueNums": 2, "writeQueueNums": 2, "perm": 6, "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": 0, "order": False, "attributes": {"+message.type": "FIFO"}}  # fmt: skip

    def put(*topics: dict[str, object]) -> Command:
        return node.answer(Code.UPDATE_AND_CREATE_TOPIC_LIST, {"topicConfigList": list(topics)})

    made = put(*({**wish, "topicName": f"listed-{number}"} for number in range(30)))
    again = put({**wish, "topicName": "listed-3", "perm": 4}, {**wish, "topicName": "listed-30"})
    found = node.told(Code.GET_TOPIC_CONFIG, topic="listed-3", lo="true")
    partly = put({**wish, "topicName": "listed-31"}, {**wish, "topicName": "TBW102"},
                 {**wish, "topicName": "listed-32"})  # fmt: skip
    senseless = put({**wish, "topicName": "listed-33"}, {**wish, "topicName": 7})
    many = put(*({**wish, "topicName": f"many-{number}"} for number in range(1_001)))
    topics = node.told(Code.GET_ALL_TOPIC_CONFIG)["topicConfigTable"]
    unknown = node.ask(Code.GET_TOPIC_CONFIG, topic="nothing")

    assert (made.code, again.code) == (0, 0)
    assert {f"listed-{number}" for number in range(32)} <= topics.keys()
    assert found == topics["listed-3"]
    assert (found["topicName"], found["perm"], found["readQueueNums"]) == ("listed-3", 4, 2)
    assert partly.code == ResponseCode.NO_PERMISSION
    assert not {"listed-32", "listed-33", "many-0"} & topics.keys()
    assert "topicName" in str(senseless.remark)
    assert "limit=1000" in str(many.remark)
    assert unknown.code == ResponseCode.TOPIC_NOT_EXIST

    groups = [{"groupName": f"listed-{number}", "retryMaxTimes": number} for number in (1, 2)]
    listed = node.ask(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, {"groupConfigList": groups})
    group = node.told(Code.GET_SUBSCRIPTIONGROUP_CONFIG, group="listed-2")
    table = node.told(Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)["subscriptionGroupTable"]
    none = node.ask(Code.GET_SUBSCRIPTIONGROUP_CONFIG, group="nothing")

    assert listed.code == 0
    assert group == table["listed-2"]
    assert (group["groupName"], group["retryMaxTimes"]) == ("listed-2", 2)
    assert none.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


def test_groups_are_made_followed_and_deleted(node: Administered) -> None:
    group = {"groupName": "billing", "retryMaxTimes": 3, "consumeEnable": True, "newField": {}}
    assert node.ask(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, group).code == 0
    table = node.told(Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)["subscriptionGroupTable"]
    reset = node.told(Code.INVOKE_BROKER_TO_RESET_OFFSET, topic="orders", group="billing",
                      timestamp=-1, isForce="true")  # fmt: skip
    back = node.told(Code.INVOKE_BROKER_TO_RESET_OFFSET, topic="orders", group="billing",
                     timestamp=0, isForce="false")  # fmt: skip
    stats = node.told(Code.GET_CONSUME_STATS, consumerGroup="billing")["offsetTable"]
    copied = node.ask(Code.CLONE_GROUP_OFFSET, srcGroup="billing", destGroup="audit",
                      topic="orders", offline="true")  # fmt: skip
    offsets = node.told(Code.GET_ALL_CONSUMER_OFFSET)["offsetTable"]

    assert table["billing"]["retryMaxTimes"] == 3
    assert by_queue(reset["offsetTable"]) == ENDS
    assert by_queue(back["offsetTable"]) == [0] * 4
    assert [(row["brokerOffset"], row["consumerOffset"]) for row in by_queue(stats)] == [
        (end, 0) for end in ENDS
    ]
    assert copied.code == 0
    assert offsets["orders@audit"] == offsets["orders@billing"] == dict.fromkeys("0123", 0)

    who = node.told(Code.QUERY_TOPIC_CONSUME_BY_WHO, topic="orders")["groupList"]
    spans = node.told(Code.QUERY_CONSUME_TIME_SPAN, topic="orders", group="billing")
    behind = node.told(Code.GET_BROKER_CONSUME_STATS, isOrder="false")
    correction = node.told(Code.QUERY_CORRECTION_OFFSET, topic="orders", compareGroup="audit",
                           filterGroups="")  # fmt: skip
    deleted = [
        node.ask(Code.DELETE_SUBSCRIPTIONGROUP, groupName="billing", removeOffset="true").code
        for _ in range(2)
    ]

    assert {"audit", "billing"} <= set(who)
    assert len(spans["consumeTimeSpanSet"]) == 4
    assert all(one["delayTime"] >= 0 < one["minTimeStamp"] for one in spans["consumeTimeSpanSet"])
    assert behind["totalDiff"] == 2 * ALL
    assert {name for one in behind["consumeStatsList"] for name in one} == {"audit", "billing"}
    assert correction["correctionOffsets"] == dict.fromkeys("0123", 0)
    assert deleted == [0, 0]
    unknown = node.ask(Code.INVOKE_BROKER_TO_RESET_OFFSET, topic="orders", group="billing",
                       timestamp=-1, isForce="true")  # fmt: skip
    assert unknown.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


@pytest.mark.parametrize("field", ["removeOffset", "cleanOffset"])
def test_the_offsets_of_a_group_are_deleted_with_it_where_a_tool_of_4_or_5_says_so(
    node: Administered, field: str
) -> None:
    def offsets() -> bool:
        return "orders@shipping" in node.told(Code.GET_ALL_CONSUMER_OFFSET)["offsetTable"]

    group = {"groupName": "shipping", "retryMaxTimes": 3}
    told = []
    for wanted in ("false", "true"):
        assert node.ask(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, group).code == 0
        node.told(Code.INVOKE_BROKER_TO_RESET_OFFSET, topic="orders", group="shipping",
                  timestamp=0, isForce="true")  # fmt: skip
        node.ask(Code.DELETE_SUBSCRIPTIONGROUP, groupName="shipping", **{field: wanted})
        told.append(offsets())

    assert told == [True, False]


def test_offsets_and_times_are_told_also_of_a_topic_that_nobody_may_read(
    node: Administered,
) -> None:
    # As RocketMQ 5 has rmq_sys_SYNC_BROKER_MEMBER_*: inherited from at most.
    made = {"topic": "members", "readQueueNums": 1, "writeQueueNums": 1, "perm": 1,
            "defaultTopic": "TBW102"}  # fmt: skip
    assert node.ask(Code.UPDATE_AND_CREATE_TOPIC, **made).code == 0
    queue = {"topic": "members", "queueId": 0}
    told = [
        node.ask(code, **queue, **more)
        for code, more in (
            (Code.GET_MAX_OFFSET, {}),
            (Code.GET_MIN_OFFSET, {}),
            (Code.SEARCH_OFFSET_BY_TIMESTAMP, {"timestamp": 0}),
            (Code.GET_EARLIEST_MSG_STORETIME, {}),
        )
    ]

    assert [answer.code for answer in told] == [0] * 4, told
    assert [answer.fields.get("offset") for answer in told] == ["0", "0", "0", None]


def test_the_broker_tells_its_figures_and_what_does_not_apply(node: Administered) -> None:
    figures = node.told(Code.GET_BROKER_RUNTIME_INFO)["table"]
    config = dict(
        line.split("=", 1)
        for line in bytes(node.ask(Code.GET_BROKER_CONFIG).body).decode().splitlines()
    )
    rates = node.told(Code.VIEW_BROKER_STATS_DATA, statsName="TOPIC_PUT_NUMS", statsKey="orders")
    unit = node.told(Code.QUERY_CONSUME_QUEUE, topic="orders", queueId=0, index=1, count=2)
    delays = node.told(Code.GET_ALL_DELAY_OFFSET)

    assert figures["brokerVersionDesc"] == "V4_9_4"
    assert len(figures["putTps"].split()) == 3
    assert figures["getTransferredTps"] == figures["getTransferedTps"]
    assert 0 < float(figures["putLatency99"]) <= float(figures["putLatency999"])
    assert int(figures["putMessageEntireTimeMax"]) >= float(figures["putLatency999"])
    assert int(figures["pageCacheLockTimeMills"]) >= 0
    assert int(figures["putMessageTimesTotal"]) >= ALL
    assert all(isinstance(value, str) for value in figures.values())
    assert (config["brokerName"], config["enablePropertyFilter"]) == ("broker-a", "true")
    assert rates["statsDay"]["sum"] == rates["statsHour"]["sum"] == ALL
    assert [row["physicSize"] > 0 for row in unit["queueData"]] == [True] * 2
    assert (unit["minQueueIndex"], unit["maxQueueIndex"]) == (0, MESSAGES)
    assert "offsetTable" in delays
    missing = node.ask(Code.VIEW_BROKER_STATS_DATA, statsName="GROUP_GET_NUMS", statsKey="a@b")
    assert missing.code == ResponseCode.SYSTEM_ERROR
    for code in (
        Code.UPDATE_BROKER_CONFIG,
        Code.CLEAN_EXPIRED_CONSUMEQUEUE,
        Code.CLEAN_UNUSED_TOPIC,
        Code.DELETE_EXPIRED_COMMITLOG,
        Code.RESUME_CHECK_HALF_MESSAGE,
    ):
        assert "does not apply" in str(node.ask(code).remark)


def test_members_of_a_group_are_listed_asked_and_told(node: Administered) -> None:
    java, cpp = consumer(node, "asked"), consumer(node, "asked", language=Language.CPP)
    members = node.told(Code.GET_CONSUMER_CONNECTION_LIST, consumerGroup="asked")
    nobody = node.ask(Code.GET_CONSUMER_CONNECTION_LIST, consumerGroup="nobody")

    assert [one["language"] for one in members["connectionSet"]] == ["JAVA", "CPP"]
    assert members["subscriptionTable"]["orders"]["subString"] == "*"
    assert (members["messageModel"], nobody.code) == ("CLUSTERING", 206)

    asked = node.tool.send(
        Code.GET_CONSUMER_RUNNING_INFO,
        {"consumerGroup": "asked", "clientId": "10.0.0.1@asked", "jstackEnable": "false"},
    )
    request = request_of(cpp, Code.GET_CONSUMER_RUNNING_INFO)
    cpp.answer(request, body=b'{"properties":{}}')

    assert bytes(node.tool.reply_to(asked).body) == b'{"properties":{}}'
    assert node.ask(Code.GET_CONSUMER_RUNNING_INFO, consumerGroup="nobody", clientId="x").code == 1

    directly = node.tool.send(
        Code.CONSUME_MESSAGE_DIRECTLY,
        {"consumerGroup": "asked", "clientId": "10.0.0.1@asked", "msgId": node.id},
    )
    request = request_of(cpp, Code.CONSUME_MESSAGE_DIRECTLY)
    assert decode_message(bytes(request.body), 0).topic == "orders"
    assert request.fields["brokerName"] == "broker-a"
    cpp.answer(request, body=b"{}")
    assert node.tool.reply_to(directly).code == 0

    status = node.tool.send(
        Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, {"topic": "orders", "group": "asked"}
    )
    raw = b'{"messageQueueTable":{{"brokerName":"broker-a","queueId":1,"topic":"orders"}:7}}'
    for client in (java, cpp):
        client.answer(request_of(client, RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT), body=raw)
    found = decode_body(node.tool.reply_to(status).body)["consumerTable"]
    assert isinstance(found, dict)
    assert by_queue(found["10.0.0.1@asked"]) == [7]

    node.told(Code.INVOKE_BROKER_TO_RESET_OFFSET, topic="orders", group="asked", timestamp=-1,
              isForce="true")  # fmt: skip
    pushes = [request_of(one, Code.RESET_CONSUMER_CLIENT_OFFSET) for one in (java, cpp)]
    tables = [decode_body(push.body)["offsetTable"] for push in pushes]
    assert isinstance(tables[0], dict)
    assert by_queue(tables[0]) == ENDS
    assert [row["offset"] for row in tables[1]] == ENDS  # type: ignore[attr-defined]
    assert all(push.flag & ONEWAY for push in pushes)
    java.close()
    cpp.close()


def test_producers_are_listed(node: Administered) -> None:
    producer = RemotingClient(node.address)
    beat = {"clientID": "me", "producerDataSet": [{"groupName": "makers"}], "consumerDataSet": []}
    producer.ask(Code.HEART_BEAT, body=json.dumps(beat).encode())
    listed = node.told(Code.GET_PRODUCER_CONNECTION_LIST, producerGroup="makers")
    everybody = node.told(Code.GET_ALL_PRODUCER_INFO)["data"]
    nobody = node.ask(Code.GET_PRODUCER_CONNECTION_LIST, producerGroup="nobody")
    producer.close()

    assert [one["clientId"] for one in listed["connectionSet"]] == ["me"]
    assert [one["remoteIP"] for one in everybody["makers"]] == ["127.0.0.1"]
    assert everybody["makers"][0]["lastUpdateTimestamp"] > 1_600_000_000_000
    assert nobody.code == ResponseCode.SYSTEM_ERROR
