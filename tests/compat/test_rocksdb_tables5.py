"""Tables in RocksDB that the real RocketMQ 5.5.1 writes, in each layout; and JSON that it reads."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ledgermq.cli.main import main
from ledgermq.client import Producer
from ledgermq.conversion.rocksdb_tables import read_rocksdb
from ledgermq.formats.config_json import decode_document
from ledgermq.formats.timer_wheel import WHEEL_TOPIC
from ledgermq.remoting.codes import RequestCode, ResponseCode
from tests.compat.other_clients import NotToBeHadError
from tests.compat.rocketmq5 import fetch, rocketmq5_serving
from tests.process.conftest import Node, wait_until
from tests.process.remoting_client import RemotingClient
from tests.process.remoting_steps import GROUP, NOW_MS, pull, send
from tests.process.test_delivery import received
from tests.process.test_rocketmq_5_store import STORE
from tests.process.test_rocksdb_store import ROWS, conf_of, take_over
from tests.process.test_state_log import broker_of
from tests.suite.patience import PATIENCE_S

pytestmark = [pytest.mark.oracle, pytest.mark.slow]

GET_ALL_TOPICS, GET_ALL_GROUPS, GET_ALL_OFFSETS = 21, 201, 43
SINGLE = {"useSingleRocksDBForAllConfigs": "true"}
VERSION_2 = {"configManagerVersion": "v2"}
TABLES = {"topicConfigTable", "subscriptionGroupTable", "offsetTable"}
QUEUES, MESSAGES = 2, 10
SHORT = {
    "a": "producers", "b": "typed", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": NOW_MS, "h": 0,
    "j": 0, "k": "false",
}  # fmt: skip


def make_topic(client: RemotingClient, topic: str, attributes: str = "") -> None:
    fields = {
        "topic": topic, "defaultTopic": "TBW102", "readQueueNums": QUEUES, "writeQueueNums": QUEUES,
        "perm": 6, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false",
        "attributes": attributes,
    }  # fmt: skip
    assert client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, fields).code == ResponseCode.SUCCESS


def told(client: RemotingClient, code: int, key: str) -> dict[str, Any]:
    rows = decode_document(bytes(client.ask(code, {}).body))[key]
    assert isinstance(rows, dict)
    return rows


def fill(client: RemotingClient) -> None:
    """Make topics, a group with offsets, messages, and one that waits for its time."""
    make_topic(client, "orders")
    make_topic(client, "typed", "+message.type=FIFO")
    for queue_id in range(QUEUES):
        send(client, "orders", queue_id, *[b"%d" % number for number in range(MESSAGES)])
    send(client, "typed", 0, b"plain")
    later = {**SHORT, "i": "TIMER_DELAY_SEC\x013600\x02"}
    assert client.ask(RequestCode.SEND_MESSAGE_V2, later, b"later").code == ResponseCode.SUCCESS
    group = {"groupName": GROUP, "consumeEnable": True, "retryMaxTimes": 5, "retryQueueNums": 1}
    made = client.ask(
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, json.dumps(group).encode()
    )
    assert made.code == ResponseCode.SUCCESS
    for queue_id in range(QUEUES):
        fields = {
            "consumerGroup": GROUP, "topic": "orders", "queueId": queue_id,
            "commitOffset": 4 + queue_id,
        }  # fmt: skip
        client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields)


class Told(NamedTuple):
    """What the broker tells of its tables."""

    topics: dict[str, Any]
    groups: dict[str, Any]
    offsets: dict[str, Any]


def tables_of(client: RemotingClient) -> Told:
    return Told(
        told(client, GET_ALL_TOPICS, "topicConfigTable"),
        told(client, GET_ALL_GROUPS, "subscriptionGroupTable"),
        told(client, GET_ALL_OFFSETS, "offsetTable"),
    )


def in_rocksdb(root: Path, layout: dict[str, str]) -> dict[str, Any]:
    """The rows of the tables in RocksDB, by file, also while the broker runs."""
    found = read_rocksdb(root, {"storeType": "defaultRocksDB", **layout}, is_open=True)
    assert found is not None
    return {
        file: next(table for key, table in document.items() if key in TABLES)
        for file, document in found.documents.items()
    }


def compare(root: Path, layout: dict[str, str], said: Told) -> None:
    """What RocksDB has is what the broker told."""
    found = in_rocksdb(root, layout)
    rows = found["topics.json"]
    if layout is VERSION_2:
        # Topics that each broker makes for itself it does not keep.
        assert {"orders", "typed"} <= rows.keys()
        assert rows.items() <= said.topics.items()
    else:
        # Its timers make their topic anew at each start.
        own = {name: row for name, row in said.topics.items() if name != WHEEL_TOPIC}
        assert rows == own
        assert found["subscriptionGroup.json"] == said.groups
    assert found["consumerOffset.json"] == said.offsets


def serve(node: Node) -> None:
    """A node has all of it, and takes a message."""
    count = QUEUES * MESSAGES
    node.configure(store=STORE)
    node.serve()
    assert len(received(node.address, "orders", count)) == count
    with broker_of(node.address) as broker:
        wait_until(lambda: broker.timers().waiting == 1, "the timer is ours", PATIENCE_S)
    with Producer(node.address) as producer:
        producer.send("orders", b"ours", queue_id=0).result()
    assert node.stop() == 0


@pytest.mark.parametrize("layout", [{}, SINGLE, VERSION_2])
def test_each_layout_is_taken_over_and_goes_back_as_json(
    make_node: Callable[[], Node], tmp_path: Path, layout: dict[str, str],
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    try:
        fetch()
    except NotToBeHadError as error:
        pytest.skip(str(error))
    node = make_node()
    node.root.mkdir(parents=True)
    sizes = {key: value for key, value in ROWS.items() if key.startswith(("mapped", "max"))}
    with rocketmq5_serving(
        node.root,
        tmp_path,
        **sizes,
        storeType="defaultRocksDB",
        flushConsumerOffsetInterval=500,
        **layout,
    ) as address:
        client = RemotingClient(address)
        fill(client)
        said = tables_of(client)
        client.close()
        # With one RocksDB for all 5.5.1 closes it before its offsets, which it loses at its stop.
        wait_until(
            lambda: in_rocksdb(node.root, layout)["consumerOffset.json"] == said.offsets,
            "offsets in RocksDB",
            PATIENCE_S,
        )
    compare(node.root, layout, said)
    conf = conf_of(node.root, tmp_path, **layout)
    checked = main(["migrate", "check", str(conf), "--json"])
    uses = json.loads(capsys.readouterr().out)["taken_over"]
    taken = take_over(conf, tmp_path)
    serve(node)
    capsys.readouterr()
    words = ["back", str(node.root), "--manifest", str(tmp_path / "after"), "--to", "5", "--json"]
    handed = main(["migrate", *words])
    back = json.loads(capsys.readouterr().out)

    assert (checked, taken, handed) == (0, 0, 0)
    assert any(use.startswith("1 messages wait for their time") for use in uses), uses
    assert back["timers_handed_over"] == 1
    sizes["mappedFileSizeTimerLog"] = back["mappedFileSizeTimerLog"]
    with rocketmq5_serving(node.root, tmp_path, **sizes, storeType=back["storeType"]) as address:
        client = RemotingClient(address)
        served = tables_of(client)
        orders = [
            pull(client, "orders", one, 0, group=GROUP, subscription="*") for one in range(QUEUES)
        ]
        client.close()

    assert served.topics["typed"] == said.topics["typed"]
    assert said.topics.keys() <= served.topics.keys()
    assert served.groups[GROUP] == said.groups[GROUP]
    assert served.offsets[f"orders@{GROUP}"] == said.offsets[f"orders@{GROUP}"]
    bodies = [[bytes(one.body) for one in pulled.messages] for pulled in orders]
    plain = [b"%d" % number for number in range(MESSAGES)]
    assert bodies == [[*plain, b"ours"], plain]
