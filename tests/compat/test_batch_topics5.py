"""Batch, compacted and lite topics that the real RocketMQ 5.5.1 writes: named, and what is done."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ledgermq.cli.main import main
from ledgermq.formats.records.message import INNER_BATCH, decode_message
from ledgermq.remoting.codes import RequestCode, ResponseCode
from ledgermq.store.origin import UseVerdict, origin_of
from tests.compat.other_clients import NotToBeHadError
from tests.compat.rocketmq5 import fetch, rocketmq5_serving
from tests.compat.test_rocksdb_tables5 import make_topic
from tests.plain_codecs import BatchItem, encode_batch
from tests.process.conftest import Node
from tests.process.remoting_client import RemotingClient
from tests.process.remoting_steps import NOW_MS, pull_fields, send
from tests.process.test_delivery import received
from tests.process.test_rocketmq_5_store import STORE
from tests.process.test_rocksdb_store import ROWS

pytestmark = [pytest.mark.oracle, pytest.mark.slow]

BATCHES = (4, 4, 1)
MESSAGES = 10
SETTINGS = {
    **{key: value for key, value in ROWS.items() if key.startswith(("mapped", "max"))},
    "enableLmq": "true",
    "enableMultiDispatch": "true",
}


def send_batches(client: RemotingClient) -> list[int]:
    """Send batches as Java's client does; the queue offsets that are told."""
    offsets = []
    for number, count in enumerate(BATCHES):
        items = [BatchItem(0, b"%d" % one, b"KEYS\x01k\x02") for one in range(count)]
        fields = {
            "a": "producers", "b": "batched", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": NOW_MS,
            "h": 0, "i": f"UNIQ_KEY\x01{number:032X}\x02", "j": 0, "k": "false", "m": "true",
        }  # fmt: skip
        reply = client.ask(RequestCode.SEND_BATCH_MESSAGE, fields, encode_batch(items))
        assert reply.code == ResponseCode.SUCCESS, reply
        offsets.append(int(reply.fields["queueOffset"]))
    return offsets


def first_pulled(client: RemotingClient, offset: int) -> tuple[int, int]:
    """Queue offset and flags of the first record that a pull from ``offset`` gives."""
    reply = client.ask(
        RequestCode.PULL_MESSAGE,
        pull_fields("batched", 0, offset, group="readers", subscription="*"),
    )
    assert reply.code == ResponseCode.SUCCESS, reply
    size = int.from_bytes(reply.body[:4], "big")
    message = decode_message(memoryview(reply.body)[:size], check_crc=False)
    return message.queue_offset, message.sys_flag


def fill(client: RemotingClient) -> None:
    make_topic(client, "orders")
    make_topic(client, "batched", "+queue.type=BatchCQ")
    make_topic(client, "latest", "+cleanup.policy=COMPACTION")
    make_topic(client, "parent", "+message.type=LITE")
    send(client, "orders", 0, *[b"%d" % number for number in range(MESSAGES)])
    send(client, "latest", 0, b"old", b"new", properties="KEYS\x01k\x02")
    for name in ("one", "two"):
        send(client, "parent", 0, name.encode(), properties=f"__LITE_TOPIC\x01{name}\x02")


def uses(root: Path, verdict: UseVerdict) -> dict[str, int | None]:
    return {use.name: use.count for use in origin_of(root).uses if use.verdict is verdict}


def test_batch_and_compacted_topics_are_refused_until_rocketmq_has_deleted_them(
    make_node: Callable[[], Node], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        fetch()
    except NotToBeHadError as error:
        pytest.skip(str(error))
    node = make_node()
    node.root.mkdir(parents=True)
    with rocketmq5_serving(node.root, tmp_path, **SETTINGS) as address:
        client = RemotingClient(address)
        fill(client)
        told = send_batches(client)
        # A batch is one record with one offset, whichever of its messages is asked for: clients of
        # 4.9 would take it for one message, and a unit a message would tell it as often.
        pulls = [first_pulled(client, offset) for offset in (0, 3, 5)]
        client.close()
    before = origin_of(node.root)
    lite = uses(node.root, UseVerdict.UNHEEDED)["consumequeue/%LMQ%$…"]
    with rocketmq5_serving(node.root, tmp_path, **SETTINGS) as address:
        client = RemotingClient(address)
        for topic in ("batched", "latest"):
            deleted = client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic})
            assert deleted.code == ResponseCode.SUCCESS
        client.close()
    after = uses(node.root, UseVerdict.REFUSED)
    node.configure(store=STORE)
    node.serve()
    found = {
        topic: sorted(bytes(one.body) for one in received(node.address, topic, count))
        for topic, count in (("orders", MESSAGES), ("parent", 2))
    }
    assert node.stop() == 0
    rebuilt = main(["store", "rebuild", str(node.root)])
    capsys.readouterr()
    checked = main(["store", "check", str(node.root), "--json"])
    findings = json.loads(capsys.readouterr().out)["findings"]

    assert told == [0, 4, 8]
    assert [offset for offset, _ in pulls] == [0, 0, 4]
    assert all(flags & INNER_BATCH for _, flags in pulls)
    assert {use.name: use.count for use in before.refused} == {"batch": 1, "compacted": 1}
    assert "(batched; batchconsumequeue/)" in before.refused[0].what
    assert "(latest)" in before.refused[1].what
    assert (lite, after) == (2, {})
    assert found["parent"] == [b"one", b"two"] and len(found["orders"]) == MESSAGES
    assert (rebuilt, checked) == (0, 0)
    assert [one for one in findings if one["severity"] != "note"] == []
