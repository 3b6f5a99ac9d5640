"""Backups of real nodes under load, restored and started."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ledgermq.client import Producer
from ledgermq.conversion.backup_manifest import read_manifest
from ledgermq.formats.findings import Severity
from ledgermq.repair.check.check_store import CheckOptions, check_store
from ledgermq.store.store_view import StoreView
from tests.process.batch_load import BATCH, BatchLoad
from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import SIZES, TOPIC, make_group
from tests.process.node_start import run_command
from tests.process.running import topics_document

pytestmark = pytest.mark.slow


def load_on(address: str) -> BatchLoad:
    return BatchLoad(address, padding=b"x" * 600)


def ledgermq(*words: object) -> subprocess.CompletedProcess[str]:
    return run_command(*map(str, words))


def back_up(node: Node, target: Path) -> Path:
    answer = ledgermq(
        "backup", "create", node.root, target, "--runtime-dir", node.runtime, "--json"
    )
    assert (answer.returncode, answer.stderr) == (0, "")
    return Path(json.loads(answer.stdout)["backup"])


def bodies(root: Path) -> list[bytes]:
    view = StoreView(root)
    try:
        return [bytes(queued.message.body) for queued in view.messages(TOPIC)]
    finally:
        view.close()


def faults(root: Path) -> list[str]:
    checked = check_store(root, CheckOptions())
    found = [finding for finding in checked.findings if finding.severity is not Severity.NOTE]
    return [finding.as_text() for finding in found]


def check_running(node: Node) -> list[dict[str, object]]:
    """What a check of a node under load finds, but for notes."""
    words = ["--json", "--hash-slots", SIZES["max_hash_slot_num"], "--jobs", 2]
    answer = ledgermq("store", "check", node.root, *words)
    assert answer.stderr == ""
    report = json.loads(answer.stdout)
    assert report["records"] > 600
    return [finding for finding in report["findings"] if finding["severity"] != "note"]


@pytest.mark.long(but=1)
@pytest.mark.parametrize("log", ["dledger", "commitlog"])
def test_what_was_acknowledged_before_a_backup_of_a_running_node_is_restored(
    make_node: Callable[[], Node], log: str
) -> None:
    node, again = make_node(), make_node()
    for one in (node, again):
        one.configure(store={**SIZES, "log": log})
    (node.root / "config").mkdir(parents=True)
    (node.root / "config" / "topics.json").write_text(topics_document(TOPIC))
    node.serve()
    target = node.folder / "backups"
    with load_on(f"ipc://{node.runtime}") as load:
        load.wait_more(600)
        first = back_up(node, target)
        load.wait_more(600)
        before = list(load.acknowledged)
        second = back_up(node, target)
        load.wait_more(BATCH)
        checks = [check_running(node) for _ in range(2)]
    assert checks == [[], []]
    assert node.stop() == 0

    shared = [
        name
        for name, file in read_manifest(first).files.items()
        if file.sealed and (first / "store" / name).samefile(second / "store" / name)
    ]
    assert shared
    answer = ledgermq("backup", "restore", second, again.root)
    assert (answer.returncode, answer.stderr) == (0, "")
    assert set(before) <= set(bodies(again.root))
    assert faults(again.root) == []
    again.serve()
    with Producer(f"ipc://{again.runtime}") as producer:
        assert len(producer.send_batch(TOPIC, [b"after"] * BATCH).result()) == BATCH
    assert again.stop() == 0
    assert bodies(again.root).count(b"after") == BATCH
    assert set(before) <= set(bodies(again.root))
    assert faults(again.root) == []
    assert faults(node.root) == []


def test_a_restored_member_is_refused_by_a_group_that_went_on_until_it_is_forgotten(
    make_node: Callable[[], Node],
) -> None:
    group = make_group(make_node, ack="majority-memory")
    leader = group.leader()
    with load_on(leader.address) as load:
        load.wait_more(200)
        before = list(load.acknowledged)
        folder = back_up(leader.node, leader.node.folder / "backups")
        load.wait_more(BATCH)
    leader.kill()
    shutil.rmtree(leader.node.root)
    answer = ledgermq("backup", "restore", folder, leader.node.root)
    assert (answer.returncode, answer.stderr) == (0, "")
    assert f"ledgermq raft forget {leader.name}" in answer.stdout
    assert set(before) <= set(bodies(leader.node.root))

    others = group.others(leader)
    successor = group.leader(besides=leader)
    leader.start()

    def refusal() -> str:
        found = successor.command("raft", "status", "--json")
        reason: str = json.loads(found.stdout)["refusals"].get(leader.name, "")
        return reason

    # Before that the handshake may have met the node's end.
    known = f"{leader.name} has another disk than {successor.name} knows it by"
    wait_until(lambda: known in refusal(), "the refusal")
    for member in others:
        forgotten = member.command("raft", "forget", leader.name, "--json")
        assert json.loads(forgotten.stdout) == {"forgotten": True}
    wait_until(lambda: not refusal(), "the end of the refusal")
    group.wait_equal()
    group.stop()

    assert group.has_one_log()
    assert set(load.acknowledged) <= set(leader.bodies())
