"""A real node's log as JSON lines: each line an object, of whatever process, also of a death."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable

import pytest

from ledgermq.model.events import Event
from tests.process.conftest import Node, wait_until

pytestmark = pytest.mark.slow


def test_every_line_of_a_node_is_an_object(make_node: Callable[[], Node]) -> None:
    node = make_node()
    node.configure(
        store={"mapped_file_size_commit_log": 262_144}, log={"format": "json", "level": "DEBUG"}
    )
    node.serve()
    os.kill(node.pid("broker"), signal.SIGKILL)
    wait_until(lambda: node.child("broker")["restarts"] == 1, "another broker")
    status = node.stop()
    told = [json.loads(line) for line in node.log.read_text().splitlines()]
    (died,) = [one for one in told if one.get("event") == Event.PROCESS_DIED.name]

    assert status == 0
    assert {one["node"] for one in told} == {"n7"}
    assert {one["process"] for one in told} >= {"supervisor", "raft", "writer", "broker"}
    assert (died["process"], died["level"]) == ("supervisor", "ERROR")
