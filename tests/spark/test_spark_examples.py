"""The notebook of ``examples/`` does what it says, and a second run adds what is new."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.process.client_node import start_client_node
from tests.process.conftest import nodes_made
from tests.suite.patience import PATIENCE_S

from ledgermq.client import OutgoingMessage, Producer

pytestmark = [pytest.mark.spark, pytest.mark.slow]

EXAMPLE = Path(__file__).parents[2] / "examples" / "spark_orders.py"


@pytest.fixture
def store() -> Iterator[Path]:
    """A stopped node's directory: thirty orders of three kinds."""
    with nodes_made() as make:
        node = make()
        start_client_node(node)
        with Producer(f"ipc://{node.runtime}") as producer:
            for queue_id in range(3):
                orders = [
                    OutgoingMessage(f"order {number}".encode(), tag="abc"[number % 3])
                    for number in range(10)
                ]
                producer.send_batch("orders", orders, queue_id=queue_id).result(PATIENCE_S)
        assert node.stop() == 0
        yield node.root


def test_the_notebook_prints_what_it_promises(
    spark: SparkSession,
    store: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), str(store), str(tmp_path)])
    for _ in range(2):
        runpy.run_path(str(EXAMPLE), run_name="__main__")

    once = ["orders: 30", "a: 12", "b: 9", "c: 9", "queues with gaps: 0", "archived: 30"]
    assert capsys.readouterr().out.splitlines() == once * 2
