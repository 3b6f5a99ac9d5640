"""``spark replay`` as a command: its tasks are Spark's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ledgermq.cli.main import main
from ledgermq.client.admin.admin import Admin
from tests.process.conftest import Node
from tests.spark.test_replay_job import stored
from tests.unit.pipeline.archives import archived, visible_rows

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture
def archive(golden: Any, tmp_path: Path) -> Path:
    """Of a store that RocketMQ wrote."""
    archived(golden("gs1"), tmp_path)
    return tmp_path


def test_the_command_sends_into_a_topic_with_a_window_only_what_it_lacks(
    spark: SparkSession, archive: Path, node: Node, capsys: Any
) -> None:
    with Admin([node.address]) as admin:
        admin.alter_topic("orders", deduplication_window_ms=600_000)
    words = ["spark", "replay", str(archive), "--nodes", node.address, "--to-topic", "orders"]
    words += ["--topics", "plain0", "--json"]
    results = []
    for name in ("one", "two"):
        capsys.readouterr()

        assert main([*words, "--name", name]) == 0

        results.append(json.loads(capsys.readouterr().out))
    rows = [row for row in visible_rows(archive) if row["topic"] == "plain0"]

    assert [result["sent"] for result in results] == [len(rows), 0]
    assert results[1]["duplicates"] == len(rows)
    assert len(stored(node, "orders", len(rows))) == len(rows)
