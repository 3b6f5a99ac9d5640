"""A store of RocketMQ 5: refused for what would be lost, and served where that may be lost."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ledgermq.cli.main import main
from ledgermq.model.exit_status import EXIT_CONFIG
from tests.conftest import Golden
from tests.process.conftest import Node
from tests.process.node_start import SERVE
from tests.process.test_delivery import received

pytestmark = pytest.mark.slow

STORE = {
    "log": "commitlog",
    "mapped_file_size_commit_log": 1_048_576,
    "mapped_file_size_consume_queue": 4_000,
    "max_hash_slot_num": 500,
    "max_index_num": 400,
}


def content(root: Path) -> dict[str, tuple[bytes, int]]:
    found = [path for path in root.rglob("*") if path.is_file()]
    return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in found}


@pytest.fixture
def take(make_node: Callable[[], Node], golden: Golden) -> Callable[[str], Node]:
    """A node that is not started, on a copy of the archive of that name."""

    def taken(name: str) -> Node:
        node = make_node()
        shutil.copytree(golden(name), node.root)
        node.configure(store=STORE)
        return node

    return taken


def refused(node: Node) -> str:
    """What ``serve`` says when it ends with the status of unusable settings."""
    node.launch([*SERVE, str(node.config)])
    assert node.wait_end() == EXIT_CONFIG, node.log.read_text()
    return node.log.read_text()


def test_a_store_of_which_something_would_be_lost_is_refused_and_not_a_byte_is_changed(
    take: Callable[[str], Node], capsys: pytest.CaptureFixture[str]
) -> None:
    node, said = take("r551rocks"), "tables are in RocksDB"
    before = content(node.root)
    told = refused(node)
    words = [
        ["serve", "--config", str(node.config), "--check"],
        ["store", "rebuild", str(node.root)],
    ]
    statuses = [main(one) for one in words]
    by_commands = capsys.readouterr().err
    main(["doctor", "--config", str(node.config), "--only", "store", "--json"])
    diagnosis = {one["check"]: one for one in json.loads(capsys.readouterr().out)["findings"]}
    main(["store", "check", str(node.root)])
    checked = capsys.readouterr().out

    assert said in told and str(node.root) in told
    assert statuses == [EXIT_CONFIG] * 2
    assert by_commands.count(said) == 2
    assert said in diagnosis["store.origin"]["measured"]
    assert diagnosis["store.files"]["verdict"] == "OK"
    assert said in checked
    assert not (node.root / "ledgermq").exists()
    assert content(node.root) == before


def test_who_leaves_the_timers_behind_starts_and_is_not_asked_again(
    take: Callable[[str], Node],
) -> None:
    node = take("p551")
    wheel = content(node.root / "timerlog")
    node.configure(store={**STORE, "leave_behind": ["timers"]})
    node.serve()
    node.stop()
    node.configure(store=STORE)
    node.serve()
    node.end()
    # Left by a crash, it is ours still.
    node.serve()

    assert node.stop() == 0
    assert content(node.root / "timerlog") == wheel


def test_settings_that_are_translated_for_it_come_with_a_line_about_the_store(
    take: Callable[[str], Node], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    node = take("r551rocks")
    conf = tmp_path / "broker.conf"
    conf.write_text(f"storePathRootDir={node.root}\n")
    status = main(["config", "from-rocketmq", str(conf)])
    of_five = capsys.readouterr()
    conf.write_text(f"storePathRootDir={tmp_path}\n")
    main(["config", "from-rocketmq", str(conf)])

    assert status == 0
    assert f"{node.root}: a store of RocketMQ 5: tables are in RocksDB" in of_five.err
    assert "RocketMQ 5" not in of_five.out
    assert "RocketMQ 5" not in capsys.readouterr().err


def test_an_upgrade_takes_timers_along_and_refuses_other_queues(
    take: Callable[[str], Node], capsys: pytest.CaptureFixture[str]
) -> None:
    names = ["--group", "g", "--self-id", "n7"]
    timers, tables = take("p551"), take("r551rocks")
    before = content(tables.root)
    statuses = [main(["store", "upgrade", str(one.root), *names]) for one in (timers, tables)]
    timers.configure(store={**STORE, "log": "dledger"}, node={"self_id": "n7", "group": "g"})
    timers.serve()
    found = received(timers.address, "timer", 4)

    assert timers.stop() == 0
    assert statuses == [0, EXIT_CONFIG]
    assert content(tables.root) == before
    assert {b"timer 3600000", b"timer 7200000"} <= {bytes(one.body) for one in found}
