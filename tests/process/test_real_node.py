"""The real node, from ``ledgermq serve`` to its end."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from tests.process.conftest import Node, is_alive, wait_until
from tests.process.node_start import run_command

pytestmark = pytest.mark.slow

SMALL_FILES = {
    "mapped_file_size_commit_log": 1_048_576,
    "mapped_file_size_consume_queue": 20_000,
    "max_hash_slot_num": 500,
    "max_index_num": 400,
}
COMMAND = ["-m", "ledgermq.cli.main"]
PROCESSES = ["raft", "writer", "dispatcher", "broker"]


@pytest.fixture
def executed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The node has an interpreter of its own: what is imported when, and which threads come of it,
    is not seen in a node that is forked with everything imported. Asked for by tests that tell of
    that; in ``make check-all`` all have one."""
    monkeypatch.setenv("LEDGERMQ_EXEC_NODES", "1")


def serve(node: Node, *, starts: int = 1) -> None:
    node.launch([*COMMAND, "serve", "--config", str(node.config)])
    node.wait_told("READY=1", count=starts)


@pytest.fixture(params=["dledger", "commitlog"])
def node(make_node: Callable[[], Node], request: pytest.FixtureRequest) -> Node:
    made = make_node()
    made.configure(store={**SMALL_FILES, "log": request.param})
    serve(made)
    return made


def cursors(node: Node) -> dict[str, Any]:
    return cursors_of(node.status())


def cursors_of(status: dict[str, Any]) -> dict[str, Any]:
    seen: dict[str, Any] = status["cursors"]
    return {name: seen[name] for name in ("written", "durable", "committed", "dispatched")}


def settled_cursors(node: Node) -> dict[str, Any] | None:
    """The cursors of a moment at which nothing waits: soon the node may write of itself again."""
    status = node.status()
    lags = ("not_durable_bytes", "not_committed_bytes", "not_dispatched_bytes")
    is_settled = (
        status["state"] == "ready"
        and status["raft"]["granted"]
        and all(process["state"] == "running" for process in status["processes"])
        and not any(status["cursors"][lag] for lag in lags)
    )
    return cursors_of(status) if is_settled else None


def has_begun(node: Node, before: dict[str, Any]) -> bool:
    """Whether the entry that begins a term is committed; a plain CommitLog has none."""
    if 'log = "commitlog"' in node.config.read_text():
        return True
    position: int = cursors(node)["committed"]["position"]
    return position > before["committed"]["position"]


@pytest.mark.usefixtures("executed")
def test_a_node_starts_leads_and_stops_clean(node: Node) -> None:
    status = node.status()
    abort_while_up = (node.root / "abort").exists()
    ended = node.stop()

    assert status["raft"]["role"] == "leader"
    assert [process["role"] for process in status["processes"]] == ["supervisor", *PROCESSES]
    assert abort_while_up
    assert ended == 0
    assert not (node.root / "abort").exists()
    assert not node.logged("ERROR")


@pytest.mark.usefixtures("executed")
def test_a_node_stays_below_its_memory(node: Node) -> None:
    total = sum(process["pss"] for process in node.status()["processes"])

    assert total < 250 * 1024 * 1024


@pytest.mark.long(but=1)
@pytest.mark.parametrize("role", PROCESSES)
def test_a_killed_process_comes_back_and_nothing_of_the_log_is_lost(node: Node, role: str) -> None:
    before = wait_until(lambda: settled_cursors(node), "first settling")
    term = node.status()["raft"]["term"]
    pids = node.pids()
    os.kill(pids[role], signal.SIGKILL)
    wait_until(lambda: node.child(role)["restarts"] == 1, "restart")
    if role == "raft":
        # It takes the grant back, and begins a new term with an entry of its own.
        wait_until(lambda: node.status()["raft"]["term"] > term, "new term")
        wait_until(lambda: has_begun(node, before), "first entry of the term")
    after = wait_until(lambda: settled_cursors(node), "settling after the restart")

    assert {r: pid for r, pid in node.pids().items() if r != role} == {
        r: pid for r, pid in pids.items() if r != role
    }
    assert after["committed"]["position"] >= before["committed"]["position"]
    assert after["dispatched"] == after["committed"]["position"]
    assert node.stop() == 0
    assert not (node.root / "abort").exists()


@pytest.mark.long(but=1)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=lambda n: n.name)
def test_a_node_starts_again_where_it_ended(node: Node, number: signal.Signals) -> None:
    before = wait_until(lambda: settled_cursors(node), "first settling")
    children = [pid for role, pid in node.pids().items() if role != "supervisor"]
    node.signal(number)
    node.wait_end()
    wait_until(lambda: not any(map(is_alive, children)), "end of the children")
    serve(node, starts=2)
    wait_until(lambda: has_begun(node, before), "first entry of the term")
    after = wait_until(lambda: settled_cursors(node), "second settling")

    assert after["committed"]["position"] >= before["committed"]["position"]
    assert after["dispatched"] == after["committed"]["position"]
    assert node.stop() == 0


def test_sighup_changes_the_log_level_of_every_process(node: Node) -> None:
    log = "commitlog" if 'log = "commitlog"' in node.config.read_text() else "dledger"
    node.configure(store={**SMALL_FILES, "log": log}, log={"level": "ERROR"})
    node.signal(signal.SIGHUP)
    node.wait_told("READY=1", count=2)
    status = node.stop()

    assert status == 0
    # Said at every stop, at the level INFO.
    assert not node.logged("dispatcher stopped")


def test_a_disk_that_refuses_ends_the_node_with_two(make_node: Callable[[], Node]) -> None:
    node = make_node()
    node.configure(store=SMALL_FILES)
    # A file where a folder must be: whatever the process, it is the storage that failed.
    (node.root / "dledger-n7").mkdir(parents=True)
    (node.root / "dledger-n7" / "data").write_bytes(b"not a folder")
    node.launch([*COMMAND, "serve", "--config", str(node.config)])

    assert node.wait_end() == 2
    assert "READY=1" not in node.listen()


@pytest.mark.parametrize("is_running", [False, True], ids=["stopped", "running"])
def test_check_says_what_the_node_has_made(node: Node, *, is_running: bool) -> None:
    if not is_running:
        node.stop()
    done = run_command("serve", "--check", "--json", "--config", node.config)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)

    assert found["ok"] is True
    assert (node.root / "abort").exists() is is_running
    assert found["log_files"] == 1
    assert found["log_file_size"] == SMALL_FILES["mapped_file_size_commit_log"]
    assert found["left_by_crash"] is False


@pytest.mark.usefixtures("executed")
def test_settings_that_cannot_be_used_end_with_one_before_anything_is_made(
    make_node: Callable[[], Node],
) -> None:
    node = make_node()
    node.configure(store={**SMALL_FILES, "log": "scroll"})
    node.launch([*COMMAND, "serve", "--config", str(node.config)])

    assert node.wait_end() == 1
    assert node.logged("store.log")
    assert not node.root.exists()
