"""``ledgermq status`` against a node of real processes, and against none."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from ledgermq.cli.main import main
from tests.process.conftest import Node, StartNode, launch_small

pytestmark = pytest.mark.slow


def test_the_table_shows_state_cursors_and_every_process(
    start_small_node: StartNode, capsys: pytest.CaptureFixture[str]
) -> None:
    node = start_small_node()
    status = main(["status", "--config", str(node.config)])
    text = capsys.readouterr().out

    assert status == 0
    assert re.search(r"^node +n7 of broker-a in DefaultCluster$", text, re.MULTILINE)
    assert re.search(r"^state +ready, up for [\d.]+ s$", text, re.MULTILINE)
    assert re.search(r"^role +leader in term 3$", text, re.MULTILINE)
    assert re.search(r"^committed +4,096 +7 +0 B$", text, re.MULTILINE)
    for role in ("supervisor", "raft", "writer", "dispatcher", "broker"):
        line = rf"^{role} +\d+  running +[\d.]+ MiB +[\d.]+ MiB +[\d.]+ % +\d+ ms +0  -$"
        assert re.search(line, text, re.MULTILINE), text


def test_json_is_the_answer_of_the_control_socket(
    start_small_node: StartNode, capsys: pytest.CaptureFixture[str]
) -> None:
    node = start_small_node()
    status = main(["status", "--json", "--runtime-dir", str(node.runtime)])
    shown = json.loads(capsys.readouterr().out)

    assert status == 0
    assert set(shown) == set(node.status())
    assert shown["state"] == "ready"


def test_a_node_that_does_not_run_is_exit_status_two(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = main(["status", "--runtime-dir", "/tmp/lmq-nowhere"])

    assert status == 2
    assert "no node is running there (path='/tmp/lmq-nowhere/control.sock')" in (
        capsys.readouterr().err
    )


def test_runtime_dir_and_config_exclude_one_another(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["status", "--runtime-dir", "/tmp", "--config", "x.toml"])

    assert status == 1
    assert "not allowed with argument" in capsys.readouterr().err


def test_wait_ready_waits_for_a_node_that_is_started_meanwhile(
    make_node: Callable[[], Node], capsys: pytest.CaptureFixture[str]
) -> None:
    node = make_node()
    node.configure()
    node.order("writer.once", "slow 0.5")
    starter = threading.Thread(target=launch_small, args=(node,))
    starter.start()
    status = main(["status", "--json", "--runtime-dir", str(node.runtime), "--wait-ready", "20"])
    starter.join()

    assert status == 0
    assert json.loads(capsys.readouterr().out)["state"] == "ready"


def test_wait_ready_ends_with_two_and_says_what_is_missing(
    start_small_node: StartNode, capsys: pytest.CaptureFixture[str]
) -> None:
    late = start_small_node(orders={"broker.always": "slow 30"}, ready=False)
    late.wait_told("STATUS=starting, waiting for broker")
    status = main(["status", "--runtime-dir", str(late.runtime), "--wait-ready", "0.1"])

    assert status == 2
    assert "the node is not ready: starting, waiting for broker" in capsys.readouterr().err
