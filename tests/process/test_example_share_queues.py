"""``examples/share_queues.py`` does what it says; ``ledgermq group members`` tells of groups."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ledgermq.client import GroupConsumer, GroupOptions, TopicQueue
from tests.process.conftest import Node, wait_until
from tests.process.node_start import run_command, run_python

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "share_queues.py"

NODE = {}
"""One node for all tests, with the settings of the kit."""


def test_queues_are_shared_and_left(node: Node) -> None:
    done = run_python(EXAMPLE, f"ipc://{node.runtime}")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "shared: 2 and 2 queues",
        "right has left: it has 0 queues",
        "billed 60 orders, 0 of them twice",
    ]


def test_the_command_tells_who_consumes_what_and_how_far(node: Node) -> None:
    address = f"ipc://{node.runtime}"
    words = ["group", "members", "told", "--address", address]
    nobody = run_command(*words)
    options = GroupOptions(ordered=True, strategy="sticky")
    with GroupConsumer(address, group="told", name="one", group_options=options) as consumer:
        consumer.subscribe(["orders", "other"], "a || b")
        wait_until(lambda: consumer.poll(0.1) or len(consumer.assignment) == 8, "its queues")
        consumer.commit({TopicQueue("other", 2): 0})
        table, found = run_command(*words), run_command(*words, "--json")

    told = json.loads(found.stdout)
    assert nobody.returncode == 1 and "group does not exist (group='told')" in nobody.stderr
    assert [member["client"] for member in told["members"]] == ["one"]
    assert told["members"][0]["subscription"] == {
        "%RETRY%told": "*", "orders": "a || b", "other": "a || b",
    }  # fmt: skip
    assert {queue["client"] for queue in told["queues"]} == {"one"}
    assert len(told["queues"]) == 8
    assert told["queues"][6] | {"lag": 0} == {
        "topic": "other", "queue_id": 2, "client": "one", "committed": 0, "lag": 0,
    }  # fmt: skip
    assert told["warnings"] == []
    assert "sticky, ordered" in table.stdout
    assert "orders (a || b), other (a || b)" in table.stdout
