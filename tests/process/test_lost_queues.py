"""A real node whose queues or index are damaged while it is down: it starts, and all is whole."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from ledgermq.client import Producer
from ledgermq.formats.queue_unit import UNIT_SIZE
from ledgermq.store.store_view import StoreView
from tests.process.conftest import Node
from tests.process.node_start import SERVE
from tests.process.running import topics_document
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

TOPIC = "orders"
BATCH = 30


def lose_all_queues(root: Path) -> None:
    shutil.rmtree(root / "consumequeue")


def lose_one_queue(root: Path) -> None:
    shutil.rmtree(root / "consumequeue" / TOPIC / "1")


def shorten_a_queue_file(root: Path) -> None:
    os.truncate(next((root / "consumequeue" / TOPIC / "0").iterdir()), 100)


def lose_the_index(root: Path) -> None:
    shutil.rmtree(root / "index")


def tear_the_checkpoints(root: Path) -> None:
    for path in (root / "checkpoint", root / "ledgermq" / "dispatch-checkpoint"):
        os.truncate(path, 7)


def lose_power_under_rocketmq(root: Path) -> None:
    """As its broker leaves a store: no checkpoint of ours, the mark of who was not stopped, and a
    queue of which one page is on the disk, and the one before it is not.
    """
    (root / "ledgermq" / "dispatch-checkpoint").unlink()
    (root / "abort").touch()
    with next((root / "consumequeue" / TOPIC / "0").iterdir()).open("r+b") as file:
        file.seek(5 * UNIT_SIZE)
        file.write(bytes(5 * UNIT_SIZE))


def send(node: Node) -> None:
    with Producer(f"ipc://{node.runtime}") as producer:
        for queue_id in (0, 1):
            producer.send_batch(TOPIC, [b"x"] * BATCH, queue_id=queue_id).result(PATIENCE_S)


@pytest.mark.long(but=1)
@pytest.mark.parametrize(
    "harm",
    [
        lose_all_queues,
        lose_one_queue,
        shorten_a_queue_file,
        lose_the_index,
        tear_the_checkpoints,
        lose_power_under_rocketmq,
    ],
    ids=lambda harm: harm.__name__,
)
def test_what_is_lost_is_built_again_and_no_number_given_twice(
    make_node: Callable[[], Node], harm: Callable[[Path], None]
) -> None:
    node = make_node()
    node.configure(
        store={
            "mapped_file_size_commit_log": 65_536,
            "mapped_file_size_consume_queue": 2_000,
            "max_hash_slot_num": 50,
            "max_index_num": 50,
        }
    )
    (node.root / "config").mkdir(parents=True)
    (node.root / "config" / "topics.json").write_text(topics_document(TOPIC, queues=2))
    for life in range(2):
        node.launch([*SERVE, str(node.config)])
        node.wait_told("READY=1", life + 1)
        send(node)
        assert node.stop() == 0, node.log.read_text()
        if life == 0:
            harm(node.root)
    with closing(StoreView(node.root)) as view:
        numbers = [
            (m.queue_id, m.queue_offset) for _, _, m in view.log.iterate() if m.topic == TOPIC
        ]
        queued = [(queue.queue_id, offset) for queue, offset, _ in view.messages(TOPIC)]

    expected = [(queue_id, number) for queue_id in (0, 1) for number in range(2 * BATCH)]
    assert sorted(numbers) == expected
    assert sorted(queued) == expected
