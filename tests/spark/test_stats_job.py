"""``spark stats``: the same of a node's files and through the node, and what it prints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ledgermq.cli.main import main
from ledgermq.client import Consumer, Producer
from tests.process.conftest import Node, wait_until
from tests.suite.patience import PATIENCE_S

pytestmark = [pytest.mark.spark, pytest.mark.slow]

Json = dict[str, Any]
KEYS = ["k0", "k1", "k2"]


def run(capsys: pytest.CaptureFixture[str], *words: object) -> Json:
    capsys.readouterr()
    found = main(["spark", "stats", *map(str, words), "--json"])
    printed = capsys.readouterr()

    assert found == 0, printed.err
    document: Json = json.loads(printed.out)
    return document


def test_files_and_node_say_the_same(
    spark: SparkSession, node: Node, tmp_path: Path, capsys: Any
) -> None:
    address = f"ipc://{node.runtime}"
    with Producer([address]) as producer:
        futures = [
            producer.send("orders", b"x" * 100, tag="ab"[n % 2], keys=[KEYS[n % 3]], queue_id=n % 4)
            for n in range(60)
        ]
        for future in futures:
            future.result(PATIENCE_S)
    wait_until(
        lambda: run(capsys, "--nodes", address)["messages"] == 60, "messages in the queues", 300
    )
    with Consumer([address], topic="orders", group="billing", queues=[0]) as consumer:
        consumer.commit({0: 1})
    wait_until(lambda: run(capsys, node.root)["lags"], "the offset in the files", 300)
    by_files = run(capsys, node.root, "--out", tmp_path / "out")
    by_node = run(capsys, "--nodes", address, "--topics", "orders", "--bucket", 1)
    orders = by_node["topics"][0]
    status = main(["spark", "stats", str(node.root)])
    printed = capsys.readouterr().out

    assert by_files["topics"] == by_node["topics"]
    assert (orders["topic"], orders["messages"], orders["size_p99"]) == ("orders", 60, 100)
    assert {row["key"]: row["messages"] for row in by_node["keys"]} == {
        "k0": 20,
        "k1": 20,
        "k2": 20,
    }
    assert [row["lag"] for row in by_node["lags"]] == [14]
    assert by_files["lags"] == by_node["lags"]
    assert spark.read.parquet(str(tmp_path / "out" / "rates.parquet")).count() >= 2
    assert (tmp_path / "out" / "stats.html").read_text().startswith("<!doctype html>")
    assert status == 0
    assert "60 messages of 1 topics" in printed
    assert "billing is 14 behind in queue 0 of orders" in printed
