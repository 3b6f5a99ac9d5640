"""Priorities at real nodes: the highest comes first, whichever way messages and takers come."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence

import pytest

from ledgermq.cli.main import main
from ledgermq.client import Admin, MessageIllegalError, Producer, ShareConsumer, ShareOptions
from ledgermq.formats.records.message import decode_message
from ledgermq.remoting.codes import RequestCode as Code
from ledgermq.remoting.codes import ResponseCode
from ledgermq.remoting.fastjson import encode_body
from ledgermq.verbs.shares import SharedMessage
from tests.conftest import Golden
from tests.process.client_node import start_client_node
from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import make_group
from tests.process.remoting_client import RemotingClient
from tests.process.remoting_node import start_remoting_node
from tests.process.remoting_pops import pop
from tests.process.remoting_steps import beat_when_leading, send
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

TOPIC, GROUP = "prio", "g"
LONG_MS = 600_000
STORE = {
    "log": "commitlog",
    "mapped_file_size_commit_log": 1_048_576,
    "mapped_file_size_consume_queue": 4_000,
    "max_hash_slot_num": 500,
    "max_index_num": 400,
}
"""Sizes of the golden directory's files."""


def fill(address: str | list[str], admin: Admin, *priorities: int, queues: int = 4) -> None:
    """A message of each priority, whose body says which, and the how manieth it is."""
    admin.create_topic(TOPIC, queues=queues, message_type="PRIORITY")
    with Producer(address) as producer:
        for number, priority in enumerate(priorities):
            body = f"{priority}-{number}".encode()
            producer.send(TOPIC, body, priority=priority).result()
    wait_until(lambda: admin.topic(TOPIC).messages == len(priorities), "all are in their queues")


def taken(admin: Admin, count: int, *, wait_ms: int = 0) -> list[SharedMessage]:
    return admin.receive_shared(GROUP, TOPIC, count, invisible_ms=LONG_MS, wait_ms=wait_ms)


def bodies(messages: Sequence[SharedMessage]) -> list[str]:
    return [bytes(decode_message(one.record).body).decode() for one in messages]


def test_the_highest_comes_first_and_what_comes_again_before_the_lower(
    make_node: Callable[[], Node],
) -> None:
    node = make_node()
    start_client_node(node)
    address = f"ipc://{node.runtime}"
    with Admin(address, timeout_s=PATIENCE_S) as admin:
        fill(address, admin, 0, 3, 1, 9, 2, 0, 1)
        first = taken(admin, 3)
        with Producer(address) as producer:
            producer.send(TOPIC, b"3-late", priority=3).result()
        wait_until(lambda: admin.topic(TOPIC).messages == 8, "it is in its queue")
        second = taken(admin, 2)
        admin.settle_shared(GROUP, "release", [first[2].handle])
        third = taken(admin, 8)

        # 9 is as high as the last queue, 3; in one queue messages come as they were sent.
        assert bodies(first) == ["3-1", "9-3", "2-4"]
        assert bodies(second) == ["3-late", "1-2"]
        assert bodies(third) == ["2-4", "1-6", "0-0", "0-5"]
        assert [one.delivery for one in third] == [2, 1, 1, 1]
        options = ShareOptions(invisible_ms=LONG_MS, max_in_flight=1)
        with (
            ShareConsumer(address, group="h", topic=TOPIC, options=options) as consumer,
            Producer(address) as producer,
        ):
            (message,) = consumer.poll(PATIENCE_S)
            assert message.body == b"3-1" and message.properties["_SYS_MSG_PRIORITY_"] == "3"
            for refused in (-1, 1 << 31, True, "3"):
                with pytest.raises(MessageIllegalError, match="priority"):
                    producer.send(TOPIC, b"x", priority=refused)  # type: ignore[arg-type]
            for others in ({"queue_id": 1}, {"message_group": "a"}, {"delay": 1_000}):
                with pytest.raises(MessageIllegalError, match="priority"):
                    producer.send(TOPIC, b"x", priority=1, **others)


def test_a_factor_leaves_some_receives_to_the_lower_ones(
    make_node: Callable[[], Node], capsys: pytest.CaptureFixture[str]
) -> None:
    node = make_node()
    start_client_node(node)
    address = f"ipc://{node.runtime}"
    at = ["--address", address]
    assert main(["topic", "create", TOPIC, "--queues", "2", "--message-type", "PRIORITY", *at]) == 0
    assert main(["group", "create", GROUP, "--priority-factor", "50", *at]) == 0
    for priority in ("0", "1"):
        words = ["x"] * 60
        assert main(["send", TOPIC, *words, "--priority", priority, *at]) == 0
    capsys.readouterr()
    assert main(["group", "show", GROUP, "--json", *at]) == 0
    assert json.loads(capsys.readouterr().out)["fields"]["attributes"] == {"priority.factor": "50"}
    with Admin(address, timeout_s=PATIENCE_S) as admin:
        wait_until(lambda: admin.topic(TOPIC).messages == 120, "all are in their queues")
        assert admin.topic(TOPIC).settings.message_type == "PRIORITY"
        queues = [taken(admin, 1)[0].queue for _ in range(50)]
        assert set(queues) == {0, 1}
        admin.alter_group(GROUP, priorityFactor=100)
        assert "attributes" not in admin.group(GROUP).fields
        assert {taken(admin, 1)[0].queue for _ in range(10)} == {1}
        admin.alter_topic(TOPIC, message_type="UNSPECIFIED")
        left = taken(admin, 256)
        assert len(left) == 60 and {one.queue for one in left} == {0, 1}
        with pytest.raises(MessageIllegalError, match="priorityFactor"):
            admin.alter_group(GROUP, priorityFactor=101)


def test_the_next_leader_knows_what_is_higher(make_node: Callable[[], Node]) -> None:
    group = make_group(make_node, ack="majority-fsync")
    with Admin(group.addresses, timeout_s=PATIENCE_S) as admin:
        fill(group.addresses, admin, *(number % 4 for number in range(24)))
        first = taken(admin, 8)
        group.leader().kill()
        second: list[SharedMessage] = []
        while len(second) < 8:
            second += taken(admin, 1, wait_ms=2_000)

        assert [body[0] for body in bodies(first)] == ["3"] * 6 + ["2"] * 2
        assert [body[0] for body in bodies(second)] == ["2"] * 4 + ["1"] * 4
        assert not set(bodies(first)) & set(bodies(second))
        rows = admin.settle_shared(GROUP, "accept", [one.handle for one in (*first, *second)])
        assert {row.outcome for row in rows} == {"done"}
    group.stop()


def test_rocketmqs_remoting_clients_send_and_pop_by_priority(make_node: Callable[[], Node]) -> None:
    node = make_node()
    client = RemotingClient(start_remoting_node(node))
    beat_when_leading(client, "10.0.0.1@1", "other")
    fields = {
        "topic": TOPIC, "defaultTopic": "TBW102", "readQueueNums": 4, "writeQueueNums": 4,
        "perm": 6, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false",
    }  # fmt: skip
    made = client.ask(
        Code.UPDATE_AND_CREATE_TOPIC, {**fields, "attributes": "+message.type=priority"}
    )
    wrong = client.ask(Code.UPDATE_AND_CREATE_TOPIC, {**fields, "attributes": "+message.type=x"})
    shown = client.ask(Code.GET_TOPIC_CONFIG, {"topic": TOPIC})
    sent = {
        name: send(client, TOPIC, 1, name.encode(), properties=properties)[0].fields["queueId"]
        for name, properties in {
            "low": "_SYS_MSG_PRIORITY_\x010",
            "none": "A\x01b",
            "high": "A\x01b\x02_SYS_MSG_PRIORITY_\x017\x02",
            "keyed": "_SYS_MSG_PRIORITY_\x013\x02__SHARDINGKEY\x01k",
            "odd": "_SYS_MSG_PRIORITY_\x01first",
            "mid": "_SYS_MSG_PRIORITY_\x012",
        }.items()
    }
    factor = {"groupName": GROUP, "attributes": {"+priority.factor": "100"}}
    refused = {"groupName": GROUP, "attributes": {"+priority.factor": "many"}}
    put = Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    groups = [client.ask(put, body=encode_body(one)).code for one in (factor, refused)]
    found = pop(client, TOPIC, GROUP)
    client.close()

    assert (made.code, wrong.code != ResponseCode.SUCCESS) == (ResponseCode.SUCCESS, True)
    assert json.loads(bytes(shown.body))["attributes"] == {"message.type": "PRIORITY"}
    assert sent == {"low": "0", "none": "1", "high": "3", "keyed": "1", "odd": "1", "mid": "2"}
    assert found.bodies == [b"high", b"mid", b"none", b"keyed", b"odd", b"low"]
    stored = {one.body: one.message.parsed_properties() for one in found.taken}
    # As 5.5.1 does: a message of another type has none.
    assert "_SYS_MSG_PRIORITY_" not in stored[b"keyed"]
    assert stored[b"high"]["_SYS_MSG_PRIORITY_"] == "7"
    assert groups[0] == ResponseCode.SUCCESS != groups[1]


def test_priorities_of_a_directory_of_rocketmq_5(
    make_node: Callable[[], Node], golden: Golden
) -> None:
    """Its broker has put each message into the queue of its priority."""
    node = make_node()
    shutil.copytree(golden("p551"), node.root)
    node.configure(store=STORE)
    node.serve()
    with Admin(f"ipc://{node.runtime}", timeout_s=PATIENCE_S) as admin:
        found = taken(admin, 10, wait_ms=10_000)

    priorities = [
        decode_message(one.record).parsed_properties()["_SYS_MSG_PRIORITY_"] for one in found
    ]
    assert priorities == ["3", "2", "1", "1", "0", "0"]
    assert [str(one.queue) for one in found] == priorities
