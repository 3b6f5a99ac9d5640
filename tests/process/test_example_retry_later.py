"""``examples/retry_later.py`` does what it says."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ledgermq.client import Consumer
from tests.process.client_node import start_client_node
from tests.process.conftest import SOURCES, Node
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "retry_later.py"


def test_orders_are_billed_given_back_and_replayed(make_node: Callable[[], Node]) -> None:
    node = make_node()
    start_client_node(node)
    address = f"ipc://{node.runtime}"
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), address],
        capture_output=True, check=False, timeout=PATIENCE_S,
        env={**os.environ, "PYTHONPATH": str(SOURCES)},
    )  # fmt: skip
    with Consumer(address, topic="orders", group="billing") as consumer:
        (again,) = consumer.poll(20.0)

    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode().splitlines() == [
        "b'bad 2': again later",
        "b'bad 2': dead",
        "billed: [b'good 1', b'good 3']",
        "replayed: 1",
    ]
    assert (bytes(again.body), again.topic, again.reconsume_times) == (b"bad 2", "orders", 0)
