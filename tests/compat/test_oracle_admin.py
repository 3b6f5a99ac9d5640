"""RocketMQ takes over topics, groups and offsets that were administered here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ledgermq.client.admin.admin import Admin
from ledgermq.client.blocking.producer import Producer
from ledgermq.formats.config_json import decode_document
from tests.compat.dump_checks import FILE_SIZES
from tests.compat.rocketmq import oracle_program, rocketmq_serving
from tests.process.conftest import Node, wait_until
from tests.suite.patience import PATIENCE_S

SIZES = {
    "mapped_file_size_commit_log": FILE_SIZES["mappedFileSizeCommitLog"],
    "mapped_file_size_consume_queue": FILE_SIZES["mappedFileSizeConsumeQueue"],
}


def administer(address: str) -> None:
    """Make, shrink, switch off, delete, reset."""
    with Admin(address, timeout_s=PATIENCE_S) as admin, Producer(address) as one:
        admin.create_topic("sales", queues=4, order=True)
        admin.create_topic("gone", queues=2)
        for queue in range(4):
            one.send_batch("sales", [b"x"] * 10, queue_id=queue).result()
        one.send_batch("gone", [b"old"] * 7, queue_id=1).result()
        wait_until(lambda: admin.topic("sales").messages == 40, "dispatch", timeout_s=PATIENCE_S)
        wait_until(lambda: admin.topic("gone").messages == 7, "dispatch", timeout_s=PATIENCE_S)
        admin.reset_offsets("billing", "sales", "last", create=True)
        admin.alter_topic("sales", write_queues=2)
        admin.alter_topic("sales", read_queues=2)
        admin.reset_offsets("billing", "sales", "number", 4, queues=[1])
        admin.alter_group("billing", retryMaxTimes=3, consumeBroadcastEnable=False)
        admin.delete_topic("gone")
        admin.create_topic("gone", queues=2)
        one.send_batch("gone", [b"new"] * 2, queue_id=1).result()
        admin.clone_offsets("billing", "audit", "sales", create=True)


def table(store: Path, file: str, key: str) -> dict[str, Any]:
    found = decode_document((store / "config" / file).read_bytes())[key]
    assert isinstance(found, dict)
    return found


@pytest.mark.oracle
@pytest.mark.slow
def test_rocketmq_goes_on_with_topics_groups_and_offsets(
    make_node: Callable[[], Node], tmp_path: Path
) -> None:
    oracle_program()
    node = make_node()
    node.configure(node={"self_id": "n0"}, store=SIZES)
    node.serve()
    administer(f"ipc://{node.runtime}")

    assert node.stop() == 0
    with rocketmq_serving(
        node.root, tmp_path / "taken", plain=False, settings=FILE_SIZES
    ) as rocketmq:
        progress = rocketmq.mqadmin(
            "brokerConsumeStats", "-b", rocketmq.broker_address, "-o", "true"
        )
        route = rocketmq.mqadmin("topicRoute", "-t", "sales")
        read = rocketmq.read_on("billing", "sales", 6)
        # A change of a topic and of a group makes it write its files anew.
        rocketmq.mqadmin("updateTopic", "-b", rocketmq.broker_address, "-t", "theirs")
        rocketmq.mqadmin("updateSubGroup", "-b", rocketmq.broker_address, "-g", "theirs")
        store = rocketmq.store
    topics = table(store, "topics.json", "topicConfigTable")
    groups = table(store, "subscriptionGroup.json", "subscriptionGroupTable")
    offsets = table(store, "consumerOffset.json", "offsetTable")
    rows = [line.split() for line in progress.splitlines() if line.startswith("sales")]
    told = {tuple(row[3:6]) for row in rows if row[1] == "billing"}

    assert told == {("0", "10", "10"), ("1", "10", "4")}, progress
    assert '"readQueueNums":2' in route.replace(" ", "")
    assert "theirs" in topics
    assert (topics["sales"]["order"], topics["sales"]["writeQueueNums"]) == (True, 2)
    assert topics["gone"]["readQueueNums"] == 2
    assert (groups["billing"]["retryMaxTimes"], groups["billing"]["consumeBroadcastEnable"]) == (
        3,
        False,
    )
    # Its own consumer went on where ours had stopped, and nowhere else.
    assert read == {(1, offset) for offset in range(4, 10)}
    assert offsets["sales@billing"]["1"] == 10
    assert offsets["sales@audit"]["1"] == 4
