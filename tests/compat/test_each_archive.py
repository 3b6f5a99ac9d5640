"""Each directory that RocketMQ 5.5.1 wrote, and one of 4.9.4: taken over, served, and given back.

What was in it is what the broker itself had served before it ended (the archive's JSON): to our own
client, to Java's of 4.9.4 and of 5.5.0, and at the real broker again, with what came meanwhile.
``LEDGERMQ_ARCHIVES=NAME,NAME`` adds archives that lie in the folder that ``LEDGERMQ_GOLDEN`` names.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from ledgermq.client import Producer
from ledgermq.formats.records.message import COMPRESSED
from ledgermq.model.names.system_topics import is_system_topic
from ledgermq.remoting.codes import RequestCode
from ledgermq.store.origin import Product, origin_of
from tests.compat.dump_checks import Json, by_place, place, without_bounds
from tests.compat.other_clients import Command, NotToBeHadError, java5_dump
from tests.compat.remoting_group import client_program, java_command
from tests.compat.rocket_group import RocketGroup, run_migrate
from tests.compat.rocket_group5 import RocketGroup5
from tests.compat.rocketmq import BROKER, RESERVED_HOURS
from tests.conftest import Golden, GoldenJson
from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import free_port
from tests.process.remoting_client import RemotingClient
from tests.process.test_delivery import received
from tests.process.test_rocksdb_store import offsets_said
from tests.suite.patience import PATIENCE_S

pytestmark = [pytest.mark.oracle, pytest.mark.slow]

ARCHIVES = ["p551", "p551v2k", "d551-n1", "r551rocks", "l494"]
MORE = [name for name in os.environ.get("LEDGERMQ_ARCHIVES", "").split(",") if name]
SIZES = {
    "mappedFileSizeCommitLog": 1_048_576,
    "mappedFileSizeConsumeQueue": 4_000,
    "maxHashSlotNum": 500,
    "maxIndexNum": 400,
    "fileReservedTime": RESERVED_HOURS,
}
TOPIC, COUNT = "plain0", 10
UNKNOWN_TO_4_9 = 0x300
"""Bits of ``sysFlag`` for the way in which a body is compressed: clients of 4.9 know zlib alone."""


def rows_of(root: Path, name: str) -> dict[str, object]:
    """What the broker.conf of a directory's broker had, as far as the directory shows it."""
    rows: dict[str, object] = dict(SIZES)
    if (root / "config" / "lmqConsumerOffset.json").exists():
        rows |= {"enableLmq": "true", "enableMultiDispatch": "true"}
    if (root / "consumequeue" / "CURRENT").exists():
        rows |= {"storeType": "defaultRocksDB", "timerWheelEnable": "false"}
    if (root / f"dledger-{name}").exists():
        rows |= {
            "enableDLegerCommitLog": "true",
            "dLegerGroup": BROKER,
            "dLegerSelfId": name,
            "dLegerPeers": f"{name}-127.0.0.1:{free_port()}",
        }
    return rows


def made(root: Path, folder: Path, name: str) -> tuple[RocketGroup | RocketGroup5, Command]:
    """The broker that wrote the directory, which is not started, and a client that dumps all."""
    rows = rows_of(root, name)
    if (
        origin_of(root, self_id=name if "dLegerPeers" in rows else None).product
        is Product.ROCKETMQ_4
    ):
        words = [word for key, value in rows.items() for word in ("--set", f"{key}={value}")]
        return RocketGroup(folder, "--plain", *words, names=[name]), java_command("Dump")
    return RocketGroup5(folder, names=[name], **rows), java5_dump()


def dumped(name_server: str, client: Command, folder: Path) -> Json:
    """All that is served there."""
    target = folder / f"dump-{os.urandom(4).hex()}.json"
    with client_program(name_server, client, name_server, str(target), BROKER, folder=folder) as it:
        it.wait()
    found: Json = json.loads(target.read_text())
    return found


def readable(messages: list[Json]) -> Iterator[Json]:
    """Those of topics that clients read: light queues are nobody's here."""
    for one in messages:
        if not is_system_topic(one["readTopic"]) and not one["readTopic"].startswith("%"):
            yield one


def bare(message: Json) -> Json:
    """Without what clients of different age add, or take away."""
    found = without_bounds(message)
    return {**found, "sysFlag": found["sysFlag"] & ~COMPRESSED}


def check_has(dump: Json, messages: list[Json]) -> None:
    """Each of them is served, with each field as it was."""
    found = by_place(dump["messages"])
    for one in messages:
        assert bare(found[place(one)]) == bare(one)


def check_native(address: str, messages: list[Json]) -> None:
    """Our own client gets each of them at its place, with its body."""
    for topic in sorted({one["readTopic"] for one in messages}):
        said = {
            (one["readQueue"], one["queueOffset"]): one["bodyMd5"]
            for one in messages
            if one["readTopic"] == topic
        }
        found = {
            (one.queue_id, one.queue_offset): hashlib.md5(bytes(one.body)).hexdigest()
            for one in received(address, topic, len(said))
        }
        assert said.items() <= found.items(), topic


def check_offsets(address: str, answers: Json) -> None:
    """Each group is where the broker said that it was."""
    client = RemotingClient(address)
    for name, queues in offsets_said(answers).items():
        topic, _, group = name.partition("@")
        if is_system_topic(topic) or topic.startswith("%"):
            continue
        for queue_id, offset in queues.items():
            fields = {"consumerGroup": group, "topic": topic, "queueId": queue_id}
            reply = client.ask(RequestCode.QUERY_CONSUMER_OFFSET, fields)
            assert int(reply.fields["offset"]) == offset, (name, queue_id)
    client.close()


@pytest.mark.parametrize("archive", [*ARCHIVES, *MORE])
def test_all_of_a_directory_is_served_here_and_at_its_broker_again(
    make_node: Callable[[], Node],
    golden: Golden,
    golden_json: GoldenJson,
    tmp_path: Path,
    archive: str,
) -> None:
    family, _, member = archive.partition("-")
    name, answers, node = member or "n0", golden_json(family), make_node()
    root = tmp_path / name / "store"
    try:
        rocketmq, client = made(golden(archive), tmp_path, name)
    except NotToBeHadError as error:
        pytest.skip(str(error))
    shutil.copytree(golden(archive), root)
    address = f"127.0.0.1:{free_port()}"
    rows = {
        "brokerName": BROKER,
        "brokerClusterName": BROKER,
        "brokerIP1": "127.0.0.1",
        "listenPort": address.rpartition(":")[2],
        "storePathRootDir": root,
        "storePathCommitLog": root / "commitlog",
        **rows_of(root, name),
    }
    rocketmq.conf(name).write_text("".join(f"{key}={value}\n" for key, value in rows.items()))
    node.config, node.root = tmp_path / "node.toml", root
    words = ["--settings", node.config, "--manifest", tmp_path / "before"]
    words += ["--remoting", address, "--runtime-dir", node.runtime]
    taken = run_migrate("take-over", rocketmq.conf(name), *words)
    node.serve()
    clear = list(readable(answers["messages"]))
    check_native(node.address, clear)
    old = dumped(address, java_command("Dump"), tmp_path)
    check_has(old, [one for one in clear if not one["sysFlag"] & UNKNOWN_TO_4_9])
    check_offsets(address, answers)
    with Producer(node.address) as producer:
        for number in range(COUNT):
            producer.send(TOPIC, b"ours %d" % number, keys=[f"ours{number}"]).result(PATIENCE_S)
    new = dumped(address, java5_dump(), tmp_path)
    check_has(new, clear)
    assert node.stop() == 0
    verified = run_migrate("verify", tmp_path / "before", root)
    words = ["--manifest", tmp_path / "after", "--to", rocketmq.version]
    back = run_migrate("back", root, *words)

    assert verified["compared"] == taken["messages"] > 0
    assert len([one for one in new["messages"] if "ours" in one["properties"].get("KEYS", "")]) == (
        COUNT
    )
    with ExitStack() as ends:
        ends.callback(rocketmq.end)
        if isinstance(rocketmq, RocketGroup5):
            rocketmq.write("storeType", back.get("storeType"))
            rocketmq.write("mappedFileSizeTimerLog", back.get("mappedFileSizeTimerLog"))
        rocketmq.start()
        wait_until(rocketmq.leader, "RocketMQ's leader", PATIENCE_S)
        last = dumped(rocketmq.places["namesrv"], client, tmp_path)
        check_offsets(rocketmq.places[name], answers)
        rocketmq.stop()

    check_has(last, list(readable(new["messages"])))
    check_has(last, [one for one in answers["messages"] if not one["readTopic"].startswith("%LMQ")])
