"""RocketMQ opens what retention has left of a store, and what a restore makes of its backup."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from ledgermq.store.store_view import StoreView
from tests.compat.dump_checks import (
    FILE_SIZES,
    INDEX_SIZES,
    Json,
    Way,
    by_place,
    check_answers,
)
from tests.compat.rocketmq import oracle_program, rocketmq_serving
from tests.compat.varied_load import varied_load
from tests.process.conftest import SOURCES, Node, wait_until
from tests.suite.patience import PATIENCE_S

pytestmark = [pytest.mark.oracle, pytest.mark.slow]

MESSAGES_EACH = 2_000
LOG_FILE_SIZE = FILE_SIZES["mappedFileSizeCommitLog"]
SIZES: dict[str, object] = {
    "mapped_file_size_commit_log": LOG_FILE_SIZE,
    "mapped_file_size_consume_queue": FILE_SIZES["mappedFileSizeConsumeQueue"],
    "max_hash_slot_num": INDEX_SIZES["maxHashSlotNum"],
    "max_index_num": INDEX_SIZES["maxIndexNum"],
}
LOGS = {"dledger": "dledger-n0/data", "commitlog": "commitlog"}


def store_with_deleted_files(node: Node, log: str, folder: Path) -> list[Json]:
    """Let a node take messages and delete its oldest files; what of the messages is left."""
    node.configure(
        node={"self_id": "n0"},
        store={**SIZES, "log": log},
        ack={"mode": "majority-memory"},
        retention={"bytes_max": f"{3 * LOG_FILE_SIZE}B"},
    )
    node.serve()
    with varied_load(f"ipc://{node.runtime}", folder, each=MESSAGES_EACH) as load:
        sent = load.told([node.log])
    wait_until(lambda: begin_of(node.root, log) > 0, "files to go", PATIENCE_S)

    assert node.stop() == 0
    assert not node.logged("ERROR"), node.log.read_text()
    with closing(StoreView(node.root)) as view:
        first = view.log.first
    left = [message for message in sent if message["physicalOffset"] >= first]
    assert 0 < len(left) < len(sent)
    return left


def begin_of(root: Path, log: str) -> int:
    """Position of the oldest file."""
    return min(int(path.name) for path in (root / LOGS[log]).iterdir())


def check_served(store: Path, log: str, left: list[Json], folder: Path) -> None:
    """The Java broker serves exactly ``left``, each message at its queue offset and position."""
    settings = INDEX_SIZES | FILE_SIZES
    with rocketmq_serving(store, folder, plain=log == "commitlog", settings=settings) as broker:
        dump = broker.dump(folder / "dump.json")
    nothing: Json = {"messages": [], "keyQueries": []}
    way = Way(nothing, [], left, store, dump, broker.store)
    with closing(StoreView(store)) as ours:
        check_answers(way, by_place(dump["messages"]), ours)


def backup(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "ledgermq.cli.main", "backup", *words],
        capture_output=True, text=True, check=False, env={"PYTHONPATH": str(SOURCES)},
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("log", list(LOGS))
def test_rocketmq_serves_what_retention_left_and_what_was_restored_of_it(
    log: str, make_node: Callable[[], Node], tmp_path: Path
) -> None:
    oracle_program()
    node = make_node()
    left = store_with_deleted_files(node, log, tmp_path)
    check_served(node.root, log, left, tmp_path / "java")
    target, restored = tmp_path / "backups", tmp_path / "restored"
    backup("create", str(node.root), str(target))
    (made,) = [path for path in target.iterdir() if path.is_dir()]
    backup("restore", str(made), str(restored))

    assert begin_of(restored, log) == begin_of(node.root, log) > 0
    check_served(restored, log, left, tmp_path / "java-restored")
