"""``examples/retry_later.py`` does what it says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ledgermq.client import Consumer
from tests.process.client_node import start_client_node
from tests.process.conftest import Node
from tests.process.node_start import run_python

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "retry_later.py"


def test_orders_are_billed_given_back_and_replayed(make_node: Callable[[], Node]) -> None:
    node = make_node()
    start_client_node(node)
    address = f"ipc://{node.runtime}"
    done = run_python(EXAMPLE, address)
    with Consumer(address, topic="orders", group="billing") as consumer:
        (again,) = consumer.poll(20.0)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "b'bad 2': again later",
        "b'bad 2': dead",
        "billed: [b'good 1', b'good 3']",
        "replayed: 1",
    ]
    assert (bytes(again.body), again.topic, again.reconsume_times) == (b"bad 2", "orders", 0)
