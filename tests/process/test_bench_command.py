"""``ledgermq bench`` on the real node: it counts what it sent, and only that."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

import pytest

from tests.process.conftest import Node
from tests.process.node_start import run_command

pytestmark = pytest.mark.slow


def bench(node: Node, *words: str) -> subprocess.CompletedProcess[str]:
    return run_command("bench", *words, "--address", f"ipc://{node.runtime}", "--json")


def test_what_was_sent_is_what_can_be_read(make_node: Callable[[], Node]) -> None:
    node = make_node()
    node.configure(store={"mapped_file_size_commit_log": 8_388_608})
    node.serve()
    produced = bench(node, "produce", "--seconds", "0.2", "--producers", "2", "--batch", "8")
    consumed = bench(node, "consume", "--seconds", "20")
    missing = bench(node, "consume", "--topic", "nothing")
    illegal = bench(node, "produce", "--batch", "0")
    sent = json.loads(produced.stdout)
    read = json.loads(consumed.stdout)

    # Each of the two sends one frame to be ready, which is not counted.
    assert read["messages"] == sent["messages"] + 2 * 8
    assert sent["messages"] % 8 == 0
    assert sent["messages_per_second"] > 0
    assert missing.returncode == 1
    assert json.loads(missing.stderr)["error"]["details"]["status"] == "TOPIC_NOT_EXIST"
    assert json.loads(illegal.stderr)["error"]["details"] == {"option": "batch", "value": 0}
