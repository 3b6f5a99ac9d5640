"""RocketMQ finds the ends of queues that its log has no message of, and numbers them on; so do we
when we go on with what it has left.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from ledgermq.client import Consumer, Producer
from ledgermq.client.admin.admin import Admin
from ledgermq.formats.findings import Severity
from ledgermq.repair.check.check_store import CheckOptions, check_store
from ledgermq.store.store_view import StoreView
from tests.compat.dump_checks import FILE_SIZES, INDEX_SIZES
from tests.compat.rocketmq import BROKER, RocketMQ, oracle_program, rocketmq_serving
from tests.process.conftest import SOURCES, Node, wait_until
from tests.process.group_nodes import COMMAND
from tests.suite.patience import PATIENCE_S

pytestmark = [pytest.mark.oracle, pytest.mark.slow]

TOPIC, LOADED, IDLE, SENT = "orders", 0, 3, 4
THEIRS, OURS = "theirs", b"ours"
LOG_FILE_SIZE = FILE_SIZES["mappedFileSizeCommitLog"]
QUEUE_FILE_SIZE = FILE_SIZES["mappedFileSizeConsumeQueue"]
STORE = {
    "mapped_file_size_commit_log": LOG_FILE_SIZE,
    "mapped_file_size_consume_queue": QUEUE_FILE_SIZE,
    "max_hash_slot_num": INDEX_SIZES["maxHashSlotNum"],
    "max_index_num": INDEX_SIZES["maxIndexNum"],
}


def store_with_an_ended_queue(node: Node) -> int:
    """A stopped store whose queue ``IDLE`` is made of the table of ends; ends of ``LOADED``."""
    retention = {"bytes_max": f"{3 * LOG_FILE_SIZE}B"}
    node.configure(node={"self_id": "n0"}, store=STORE, retention=retention)
    node.serve()
    with Admin(f"ipc://{node.runtime}", timeout_s=PATIENCE_S) as admin:
        admin.create_topic(TOPIC, queues=4)
    data = node.root / "dledger-n0" / "data"
    loaded = 0
    with Producer(f"ipc://{node.runtime}") as one:
        for number in range(SENT):
            one.send(TOPIC, b"%d" % number, queue_id=IDLE).result()

        def has_lost_files() -> bool:
            nonlocal loaded
            one.send_batch(TOPIC, [b"x" * 2_000] * 40, queue_id=LOADED).result()
            loaded += 40
            return min(int(path.name) for path in data.iterdir()) > 0

        wait_until(has_lost_files, "files to go", PATIENCE_S)
    assert node.stop() == 0
    shutil.rmtree(node.root / "consumequeue")
    words = ("store", "rebuild", node.root, "--queue-file-size", QUEUE_FILE_SIZE)
    done = subprocess.run(
        [*COMMAND, *map(str, words)],
        capture_output=True, text=True, check=False, env={"PYTHONPATH": str(SOURCES)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert faults_of(node.root) == []
    return loaded


def faults_of(root: Path) -> list[str]:
    """What ``store check`` finds, but for notes."""
    checked = check_store(root, CheckOptions())
    return [one.as_text() for one in checked.findings if one.severity is not Severity.NOTE]


def ends_at(broker: RocketMQ) -> dict[int, int]:
    """Queue offset behind the last message of each queue, as RocketMQ's tool tells it.

    Nothing where the tool has given up: it waits some seconds for each answer of the broker.
    """
    told = broker.mqadmin("topicStatus", "-t", TOPIC)
    rows = [line.split() for line in told.splitlines() if line.startswith(BROKER)]
    return {int(row[1]): int(row[3]) for row in rows}


def wait_for_ends(broker: RocketMQ, expected: dict[int, int]) -> None:
    wait_until(lambda: expected.items() <= ends_at(broker).items(), f"{expected}", PATIENCE_S)


def send_to(broker: RocketMQ, queue: int) -> None:
    """Once at least: its tool waits three seconds, and may have sent what it says it has not."""
    words = ("sendMessage", "-t", TOPIC, "-p", THEIRS, "-b", BROKER, "-i", str(queue))
    wait_until(lambda: "SEND_OK" in broker.mqadmin(*words), "RocketMQ's answer", PATIENCE_S)


def stored_by(root: Path) -> dict[int, list[tuple[int, bytes]]]:
    """What ``LOADED`` and ``IDLE`` hold of RocketMQ's messages and later ones, with offsets."""
    found: dict[int, list[tuple[int, bytes]]] = {LOADED: [], IDLE: []}
    with closing(StoreView(root)) as view:
        for one in view.messages(TOPIC):
            body = bytes(one.message.body)
            if body in (THEIRS.encode(), OURS):
                found[one.queue.queue_id].append((one.queue_offset, body))
    return found


def numbered(first: int, *bodies: bytes) -> list[tuple[int, bytes]]:
    return list(enumerate(bodies, start=first))


def test_rocketmq_goes_on_behind_the_ends_and_dispatches_what_it_stores(
    make_node: Callable[[], Node], tmp_path: Path
) -> None:
    oracle_program()
    node, again = make_node(), make_node()
    loaded = store_with_an_ended_queue(node)
    with rocketmq_serving(
        node.root, tmp_path / "taken", plain=False, settings=INDEX_SIZES | FILE_SIZES
    ) as rocketmq:
        wait_for_ends(rocketmq, {LOADED: loaded, IDLE: SENT})
        for queue in (IDLE, LOADED):
            send_to(rocketmq, queue)

        def ends_behind_both() -> dict[int, int]:
            told = ends_at(rocketmq)
            return told if told.get(LOADED, 0) > loaded and told.get(IDLE, 0) > SENT else {}

        ends = wait_until(ends_behind_both, "a message more in both queues", PATIENCE_S)
        store = rocketmq.store
    theirs = {
        queue: [THEIRS.encode()] * (ends[queue] - end)
        for queue, end in ((LOADED, loaded), (IDLE, SENT))
    }
    left = stored_by(store)
    again.configure(node={"self_id": "n0"}, store={**STORE, "path_root_dir": str(store)})
    again.serve()
    with Consumer(f"ipc://{again.runtime}", topic=TOPIC) as consumer:
        found = consumer.ends()
    with Producer(f"ipc://{again.runtime}") as one:
        sent = [one.send(TOPIC, OURS, queue_id=queue).result() for queue in (LOADED, IDLE)]
    assert again.stop() == 0

    assert ends[IDLE] > SENT
    assert (found[LOADED], found[IDLE]) == (ends[LOADED], ends[IDLE])
    assert [one.queue_offset for one in sent] == [ends[LOADED], ends[IDLE]]
    assert left == {LOADED: numbered(loaded, *theirs[LOADED]), IDLE: numbered(SENT, *theirs[IDLE])}
    assert stored_by(store) == {
        LOADED: numbered(loaded, *theirs[LOADED], OURS),
        IDLE: numbered(SENT, *theirs[IDLE], OURS),
    }
    assert faults_of(store) == []
