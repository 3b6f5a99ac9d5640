"""Batch and compacted topics that the real RocketMQ 5.5.1 writes: taken, used and given back."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ledgermq.cli.main import main
from ledgermq.client import Producer
from ledgermq.formats.config_json import decode_document
from ledgermq.formats.records.inner_batch import messages_in
from ledgermq.formats.records.message import INNER_BATCH, Message
from ledgermq.model.errors import NoPermissionError
from ledgermq.remoting.codes import RequestCode, ResponseCode
from ledgermq.store.origin import UseVerdict, origin_of
from ledgermq.store.store_view import StoreView
from tests.compat.other_clients import NotToBeHadError, java4_pulled, java5_pulled, run_client
from tests.compat.rocketmq5 import fetch, rocketmq5_serving
from tests.compat.test_rocksdb_tables5 import make_topic
from tests.plain_codecs import BatchItem, encode_batch
from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import free_port
from tests.process.remoting_client import RemotingClient
from tests.process.remoting_steps import NOW_MS, messages_of, offset_fields, pull_fields, send
from tests.process.test_delivery import received
from tests.process.test_rocketmq_5_store import STORE
from tests.process.test_rocksdb_store import ROWS, conf_of, take_over
from tests.suite.patience import PATIENCE_S

pytestmark = [pytest.mark.oracle, pytest.mark.slow]

BATCHES = (4, 1, 4)
MESSAGES = 10
SETTINGS = {
    **{key: value for key, value in ROWS.items() if key.startswith(("mapped", "max"))},
    "enableLmq": "true",
    "enableMultiDispatch": "true",
}
SELF_ID = "n0"
OF_KINDS = ({}, {"enableDLegerCommitLog": "true", "dLegerGroup": "oracle", "dLegerSelfId": SELF_ID})
"""Rows of a plain log's broker.conf, and of a DLedger log's."""


def need_rocketmq5() -> None:
    """Have the broker at hand, or leave the test out."""
    try:
        fetch()
    except NotToBeHadError as error:
        pytest.skip(str(error))


def send_batches(client: RemotingClient, *counts: int, topic: str = "batched") -> list[int]:
    """Send batches as Java's client does; the queue offsets that are told."""
    offsets = []
    for number, count in enumerate(counts):
        items = [
            BatchItem(0, b"%d.%d" % (number, one), b"KEYS\x01k\x02TAGS\x01t%d\x02" % (one % 2))
            for one in range(count)
        ]
        fields = {
            "a": "producers", "b": topic, "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": NOW_MS,
            "h": 0, "i": f"UNIQ_KEY\x01{number:032X}\x02", "j": 0, "k": "false", "m": "true",
        }  # fmt: skip
        reply = client.ask(RequestCode.SEND_BATCH_MESSAGE, fields, encode_batch(items))
        assert reply.code == ResponseCode.SUCCESS, reply
        offsets.append(int(reply.fields["queueOffset"]))
    return offsets


def records_of(client: RemotingClient, topic: str, subscription: str = "*") -> list[Message]:
    """All records of queue 0 of a topic, pulled one answer after the other."""
    found: list[Message] = []
    fields = {"topic": topic, "queueId": 0}
    end = int(client.ask(RequestCode.GET_MAX_OFFSET, fields).fields["offset"])
    offset = int(client.ask(RequestCode.GET_MIN_OFFSET, fields).fields["offset"])
    while offset < end:
        wanted = pull_fields(topic, 0, offset, group="readers", subscription=subscription)
        reply = client.ask(RequestCode.PULL_MESSAGE, wanted)
        assert int(reply.fields["nextBeginOffset"]) > offset, (reply, offset, end)
        offset = int(reply.fields["nextBeginOffset"])
        found += messages_of(reply) if reply.code == ResponseCode.SUCCESS else []
    return found


def shown(messages: list[Message]) -> list[tuple[int, bytes, str, tuple[str, ...], int]]:
    """What consumers see of messages, each taken out of its record, as RocketMQ 5's clients do."""
    return [
        (one.queue_offset, bytes(one.body), one.tags, one.keys, one.store_timestamp)
        for record in messages
        for one in messages_in(record)
    ]


def fill(client: RemotingClient) -> None:
    make_topic(client, "orders")
    make_topic(client, "batched", "+queue.type=BatchCQ")
    make_topic(client, "empty", "+queue.type=BatchCQ")
    make_topic(client, "latest", "+cleanup.policy=COMPACTION")
    make_topic(client, "parent", "+message.type=LITE")
    send(client, "orders", 0, *[b"%d" % number for number in range(MESSAGES)])
    send(client, "latest", 0, b"old", b"new", properties="KEYS\x01k\x02")
    for name in ("one", "two"):
        send(client, "parent", 0, name.encode(), properties=f"__LITE_TOPIC\x01{name}\x02")


def commit(client: RemotingClient, offset: int) -> None:
    """Say how far a group is; RocketMQ knows it since it has pulled."""
    fields = {**offset_fields("batched", 0, group="readers"), "commitOffset": offset}
    reply = client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields)
    assert reply.code == ResponseCode.SUCCESS, reply


def kept_offset(root: Path) -> object:
    """What the table on the disk has of that group."""
    # With light queues RocketMQ keeps all groups' offsets there.
    path = root / "config" / "lmqConsumerOffset.json"
    content = path.read_bytes() if path.exists() else b""
    table = decode_document(content)["offsetTable"] if content else {}
    assert isinstance(table, dict)
    return table.get("batched@readers", {}).get("0")


def uses(root: Path, verdict: UseVerdict) -> dict[str, int | None]:
    return {use.name: use.count for use in origin_of(root).uses if use.verdict is verdict}


def findings(root: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What a check says of a store, but for notes."""
    capsys.readouterr()
    main(["store", "check", str(root), "--json"])
    found = json.loads(capsys.readouterr().out)["findings"]
    return [one["what"] for one in found if one["severity"] != "note"]


def with_port(node: Node, **store: object) -> str:
    """Settings of a node on RocketMQ's store; address of its port."""
    port = free_port()
    node.configure(
        store={**STORE, **store}, node={"self_id": SELF_ID, "listen_port": port},
        listen={"remoting": f"127.0.0.1:{port}"}, access={"admin_over_clients": True},
    )  # fmt: skip
    return f"127.0.0.1:{port}"


class Ours(NamedTuple):
    """What a node gave and took on RocketMQ's store.

    Attributes:
        pulled: by its port, of the batch topic.
        after: the same when more had been sent.
    """

    pulled: list[Message]
    after: list[Message]


def used_by_a_node(node: Node, address: str) -> Ours:
    """Read the topics that RocketMQ has filled at a node, and send more."""
    node.serve()
    native = received(node.address, "batched", sum(BATCHES))
    client = RemotingClient(address)
    pulled = records_of(client, "batched")
    tagged = records_of(client, "batched", subscription="t1")
    latest = [one.body for one in received(node.address, "latest", 2)]
    place = client.ask(
        RequestCode.QUERY_CONSUMER_OFFSET, offset_fields("batched", 0, group="readers")
    )
    with Producer(node.address) as producer:
        ours = producer.send("batched", b"ours", tag="t1", queue_id=0).result(PATIENCE_S)
        producer.send("empty", b"first", queue_id=0).result(PATIENCE_S)
        with pytest.raises(NoPermissionError):
            producer.send("latest", b"newer", queue_id=0).result(PATIENCE_S)
    more = send_batches(client, 3)
    deleted = client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "batched"})
    received(node.address, "batched", sum(BATCHES) + 4)
    after = records_of(client, "batched")
    client.close()

    assert node.stop() == 0
    assert [(one.queue_offset, bytes(one.body)) for one in native] == [
        (offset, body) for offset, body, *_ in shown(pulled)
    ]
    assert not any(one.sys_flag & INNER_BATCH for one in pulled)
    assert {one.tags for one in tagged} >= {"t1"}
    assert latest == [b"old", b"new"]
    assert place.fields["offset"] == "5"
    assert (ours.queue_offset, more) == (9, [10])
    assert deleted.code != ResponseCode.SUCCESS
    assert [offset for offset, *_ in shown(after)] == list(range(13))
    return Ours(pulled, after)


@pytest.mark.parametrize("rows", OF_KINDS, ids=["plain", "dledger"])
@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
def test_batch_topics_are_read_and_go_on_here_and_at_rocketmq_again(
    make_node: Callable[[], Node],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    rows: dict[str, str],
    is_killed: bool,
) -> None:
    need_rocketmq5()
    node = make_node()
    node.root.mkdir(parents=True)
    settings: dict[str, Any] = {**SETTINGS, **rows}
    if rows:
        settings["dLegerPeers"] = f"{SELF_ID}-127.0.0.1:{free_port()}"
    with rocketmq5_serving(node.root, tmp_path, is_killed=is_killed, **settings) as address:
        client = RemotingClient(address)
        fill(client)
        told = send_batches(client, *BATCHES)
        before = records_of(client, "batched")
        compacted = shown(records_of(client, "latest"))
        commit(client, 5)
        wait_until(lambda: kept_offset(node.root) == 5, "the offset on the disk", PATIENCE_S)
        client.close()
    taken = uses(node.root, UseVerdict.TAKEN)
    lite = uses(node.root, UseVerdict.UNHEEDED).get("consumequeue/%LMQ%$…")

    assert told == [0, 4, 5]
    assert all(one.sys_flag & INNER_BATCH for one in before)
    assert len(shown(before)) == sum(BATCHES)
    assert (taken["batch"], taken["compacted"]) == (2, 1)
    # DLedger's broker puts nothing into the queues of lite topics.
    assert lite == (None if rows else 2)
    assert uses(node.root, UseVerdict.REFUSED) == {}

    ours = used_by_a_node(node, with_port(node, **({"log": "dledger"} if rows else {})))

    assert shown(ours.pulled) == shown(before)
    assert findings(node.root, capsys) == []
    assert not (node.root / "consumequeue" / "batched").exists()

    with rocketmq5_serving(node.root, tmp_path, **settings) as address:
        client = RemotingClient(address)
        again = records_of(client, "batched")
        first = records_of(client, "empty")
        compacted_again = shown(records_of(client, "latest"))
        last = send_batches(client, 2)
        behind = shown(records_of(client, "batched"))
        client.close()

    assert shown(again) == shown(ours.after)
    assert [bytes(one.body) for one in first] == [b"first"]
    assert compacted_again == compacted
    assert (last, len(behind)) == ([13], 15)

    node.serve()
    found = received(node.address, "batched", 15)

    assert node.stop() == 0
    assert [bytes(one.body) for one in found] == [body for _, body, *_ in behind]
    assert main(["store", "rebuild", str(node.root)]) == 0
    assert findings(node.root, capsys) == []
    with rocketmq5_serving(node.root, tmp_path, **settings) as address:
        client = RemotingClient(address)
        rebuilt = shown(records_of(client, "batched"))
        client.close()

    assert rebuilt == behind


def test_clients_of_4_9_and_of_5_get_each_message_of_a_batch(
    make_node: Callable[[], Node], tmp_path: Path
) -> None:
    need_rocketmq5()
    try:
        clients = [java4_pulled(), java5_pulled()]
    except NotToBeHadError as error:
        pytest.skip(str(error))
    node = make_node()
    node.root.mkdir(parents=True)
    with rocketmq5_serving(node.root, tmp_path, **SETTINGS) as address:
        client = RemotingClient(address)
        fill(client)
        send_batches(client, *BATCHES)
        before = shown(records_of(client, "batched"))
        client.close()
    address = with_port(node)
    node.serve()
    said = [run_client(one, address, "batched", "*", "3") for one in clients]
    odd = [run_client(one, address, "batched", "t1", "0") for one in clients]

    assert node.stop() == 0
    rows = [
        f"got 0 {offset} {body.decode()} {tags} {keys[0]}" for offset, body, tags, keys, _ in before
    ]
    for number, lines in enumerate(said):
        got = [line for line in lines if line.startswith("got")]
        begin = 9 + 3 * number
        assert f"sent {begin}" in lines
        assert got[:9] == rows
        assert got[begin:] == [
            f"got 0 {begin + one} java-{one} {('even', 'odd')[one % 2]} k{one}" for one in range(3)
        ]
    for lines in odd:
        assert [line for line in lines if line.startswith("got")] == [
            row for row in rows if " t1 " in row
        ]


def test_compacted_and_batch_topics_that_rocketmq_deletes_are_gone(
    make_node: Callable[[], Node], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    need_rocketmq5()
    node = make_node()
    node.root.mkdir(parents=True)
    with rocketmq5_serving(node.root, tmp_path, **SETTINGS) as address:
        client = RemotingClient(address)
        fill(client)
        send_batches(client, *BATCHES)
        for topic in ("batched", "empty", "latest"):
            deleted = client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic})
            assert deleted.code == ResponseCode.SUCCESS
        client.close()
    taken = uses(node.root, UseVerdict.TAKEN)
    node.configure(store=STORE)
    node.serve()
    found = sorted(bytes(one.body) for one in received(node.address, "parent", 2))

    assert node.stop() == 0
    assert {"batch", "compacted"} & taken.keys() == set()
    assert found == [b"one", b"two"]
    assert main(["store", "rebuild", str(node.root)]) == 0
    assert not (node.root / "batchconsumequeue" / "batched" / "0").exists()
    assert findings(node.root, capsys) == []


def test_a_downgraded_store_goes_on_at_a_plain_rocketmq_5(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    need_rocketmq5()
    root = tmp_path / "store"
    root.mkdir()
    rows = {**SETTINGS, **OF_KINDS[1], "dLegerPeers": f"{SELF_ID}-127.0.0.1:{free_port()}"}
    with rocketmq5_serving(root, tmp_path, **rows) as address:
        client = RemotingClient(address)
        fill(client)
        send_batches(client, *BATCHES)
        before = shown(records_of(client, "batched"))
        client.close()
    assert main(["store", "downgrade", str(root), "--self-id", SELF_ID]) == 0
    assert main(["store", "downgrade", str(root), "--finish"]) == 0
    assert findings(root, capsys) == []
    capsys.readouterr()
    manifest = str(tmp_path / "manifest")
    assert (
        main(["migrate", "back", str(root), "--manifest", manifest, "--to", "4.9", "--json"]) == 0
    )
    told = json.loads(capsys.readouterr().out)
    with rocketmq5_serving(root, tmp_path, **SETTINGS) as address:
        client = RemotingClient(address)
        after = shown(records_of(client, "batched"))
        more = send_batches(client, 2)
        all_ = [offset for offset, *_ in shown(records_of(client, "batched"))]
        client.close()

    assert (
        f"{sum(BATCHES)} messages of 2 topics with queues of batches, which RocketMQ 4.9 does not"
        " find"
    ) in told["stays"]
    assert after == before
    assert (more, all_) == ([9], list(range(11)))


def test_batches_of_a_store_with_queues_in_rocksdb_are_taken_over(tmp_path: Path) -> None:
    need_rocketmq5()
    root = tmp_path / "store"
    root.mkdir()
    with rocketmq5_serving(root, tmp_path, timerWheelEnable="false", **ROWS) as address:
        client = RemotingClient(address)
        make_topic(client, "batched", "+queue.type=BatchCQ")
        send_batches(client, *BATCHES)
        send(client, "batched", 0, b"single")
        client.close()
    assert take_over(conf_of(root, tmp_path), tmp_path) == 0
    with closing(StoreView(root)) as view:
        taken = [(one.queue_offset, bytes(one.message.body)) for one in view.messages("batched")]

    batches = [
        b"%d.%d" % (number, one) for number, count in enumerate(BATCHES) for one in range(count)
    ]
    assert taken == list(enumerate([*batches, b"single"]))
