"""RocketMQ takes over a store in which rows of a sink were staged, committed, and moved."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from hashlib import md5
from pathlib import Path

import pytest

from ledgermq.client.sending.outgoing import properties_bytes
from ledgermq.client.staging import SinkClient, StageWriter, staging_producer
from ledgermq.store.store_view import StoreView
from tests.compat.rocketmq import oracle_program, rocketmq_serving
from tests.process.client_node import start_client_node
from tests.process.conftest import Node

ROWS = 3_000
QUEUES = 4
PACK_BYTES = 65_536
JAVA_SETTINGS = {
    "mappedFileSizeCommitLog": 1_048_576,
    "mappedFileSizeConsumeQueue": 20_000,
    "maxHashSlotNum": 500,
    "maxIndexNum": 400,
}


def write_rows(address: str) -> None:
    """Commit a batch, and leave another one staged."""
    properties = [properties_bytes("tag", [f"key-{row}"], None) for row in range(ROWS)]
    bodies = [b"row %d" % row for row in range(ROWS)]
    with staging_producer(address) as producer, SinkClient(address) as client:
        for batch in range(2):
            writer = StageWriter(producer, "query", batch, pack_bytes=PACK_BYTES)
            for first in range(0, ROWS, 100):
                rows = slice(first, first + 100)
                queue = first // 100 % QUEUES
                writer.add("orders", queue, bodies[rows], properties[rows])
            staged = writer.finish()
            if batch == 0:
                client.commit("query", 0, [staged])
                client.wait("query", 0)


@pytest.mark.oracle
@pytest.mark.slow
@pytest.mark.parametrize("log", ["dledger", "commitlog"])
def test_rocketmq_makes_the_same_queues_of_the_log_with_packs_and_their_rows(
    log: str, make_node: Callable[[], Node], tmp_path: Path
) -> None:
    oracle_program()
    node = make_node()
    start_client_node(node, log=log)
    write_rows(f"ipc://{node.runtime}")
    assert node.stop() == 0, node.log.read_text()
    view = StoreView(node.root)
    try:
        ours = {
            (row.message.queue_id, row.message.queue_offset): (
                row.message.physical_offset,
                md5(row.message.body, usedforsecurity=False).hexdigest(),
            )
            for row in view.messages("orders", None)
        }
    finally:
        view.close()
    # Of queues and index RocketMQ has nothing: it makes them of the log.
    for folder in ("consumequeue", "index"):
        shutil.rmtree(node.root / folder)
    (node.root / "checkpoint").unlink(missing_ok=True)

    with rocketmq_serving(
        node.root,
        tmp_path / "java",
        plain=log == "commitlog",
        settings=JAVA_SETTINGS,
        self_id="n7",
    ) as broker:
        dump = broker.dump(tmp_path / "dump.json")
    served = {
        (row["readQueue"], row["queueOffset"]): (row["physicalOffset"], row["bodyMd5"])
        for row in dump["messages"]
        if row["readTopic"] == "orders"
    }

    assert len(ours) == ROWS
    assert served == ours
