"""``ledgermq service status`` of a real node that writes to a real journal."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from tests.process.conftest import SOURCES, Node, wait_until
from tests.process.group_nodes import COMMAND
from tests.process.journald import Journald, running_journald, why_not
from tests.suite.patience import PATIENCE_S

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(why_not()), reason=why_not())]


def service_status(node: Node, journald: Journald, *words: str) -> subprocess.CompletedProcess[str]:
    where = ["--config", str(node.config), "--journal", str(journald.folder)]
    return subprocess.run(
        [*COMMAND, "service", "status", *where, *words],
        capture_output=True, text=True, check=False, timeout=PATIENCE_S,
        env={"PYTHONPATH": str(SOURCES), "PATH": os.environ["PATH"]},
    )  # fmt: skip


def test_unit_node_and_events_are_told_of_a_node_that_runs_and_of_one_that_has_stopped(
    make_node: Callable[[], Node],
) -> None:
    node = make_node()
    node.configure(store={"mapped_file_size_commit_log": 262_144})
    with running_journald() as journald:
        node.launch(
            ["-m", "ledgermq.cli.main", "serve", "--config", str(node.config)],
            prefix=journald.prefix,
        )
        node.wait_ready()
        os.kill(node.pid("broker"), signal.SIGKILL)
        # The one that was killed is told as running until it is reaped.
        wait_until(
            lambda: (
                (child := node.child("broker"))["restarts"] == 1 and child["state"] == "running"
            ),
            "another broker",
        )
        wait_until(lambda: journald.entries("LEDGERMQ_EVENT=PROCESS_DIED"), "the death's line")
        running = service_status(node, journald)
        told: dict[str, Any] = json.loads(service_status(node, journald, "--json").stdout)
        node.stop()
        wait_until(lambda: journald.entries("LEDGERMQ_EVENT=NODE_STOPPED"), "the last line")
        stopped = service_status(node, journald, "--events", "1")
    lines = running.stdout.splitlines()

    assert (running.returncode, running.stderr) == (0, "")
    assert any(line.startswith("node        n7 of broker-a") and "ready" in line for line in lines)
    assert any(line.startswith("role        leader in term 1;") for line in lines)
    assert any("broker" in line and "restarted 1 times, last SIGKILL" in line for line in lines)
    assert any("ERROR PROCESS_DIED" in line for line in lines)
    assert "\x1b" not in running.stdout
    assert "NODE_READY" in [event["event"] for event in told["events"]]
    assert told["events"] == sorted(told["events"], key=lambda event: str(event["at"]))
    assert told["node"]["state"] == "ready"
    assert stopped.returncode == 2
    assert "NODE_STOPPED" in stopped.stdout.splitlines()[-1]
    assert "events      the last 1" in stopped.stdout
