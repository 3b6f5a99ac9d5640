"""``spark archive``: what Spark reads of an archive is what it reads of the store."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from ledgermq.cli.main import main
from ledgermq.client import Producer
from tests.process.conftest import Node, wait_until
from tests.small_store import write_store
from tests.suite.patience import PATIENCE_S

pytestmark = [pytest.mark.spark, pytest.mark.slow]

Json = dict[str, Any]
PLACE = ["topic", "queueId", "queueOffset"]


def run(capsys: pytest.CaptureFixture[str], *words: object, status: int = 0) -> Json:
    """What a command prints with ``--json``; of an error, that."""
    capsys.readouterr()
    found = main([*map(str, words), "--json"])
    printed = capsys.readouterr()

    assert found == status, printed.err
    document: Json = json.loads(printed.out or printed.err)
    return document


def sorted_rows(frame: DataFrame, columns: list[str]) -> list[Json]:
    rows: list[Json] = frame.select(columns).toArrow().to_pylist()
    return sorted(rows, key=lambda row: [row[name] for name in PLACE])


@pytest.mark.parametrize(
    "name",
    [
        "gs1",
        pytest.param("gd0", marks=pytest.mark.long),
        pytest.param("gu0", marks=pytest.mark.long),
    ],
)
def test_spark_reads_of_it_what_it_reads_of_the_store(
    spark: SparkSession, golden: Any, tmp_path: Path, capsys: Any, name: str
) -> None:
    found = run(capsys, "spark", "archive", golden(name), "--to", tmp_path, "--split-mib", 1)
    again = run(capsys, "spark", "archive", golden(name), "--to", tmp_path)
    frame = spark.read.parquet(str(tmp_path))
    source = spark.read.format("ledgermq").load(str(golden(name)))
    verified = run(capsys, "spark", "archive-verify", tmp_path)

    assert found["messages"] > 200
    assert again["run"] is None
    assert sorted_rows(frame, source.columns) == sorted_rows(source, source.columns)
    assert verified["rows"] == found["messages"]
    assert {row["day"] for row in frame.select("day").distinct().collect()} > set()


def test_faults_are_told_by_the_exit_status(
    spark: SparkSession, golden: Any, tmp_path: Path, capsys: Any
) -> None:
    run(capsys, "spark", "archive", golden("gd0"), "--to", tmp_path, "--topics", "plain0,plain1")
    path = sorted(tmp_path.rglob("*.parquet"))[0]
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    status = main(["spark", "archive-verify", str(tmp_path)])
    found = run(capsys, "spark", "archive-verify", tmp_path, status=5)
    status_of_none = main(["spark", "archive-verify", str(tmp_path / "none")])

    assert (status, status_of_none) == (5, 1)
    assert [fault["path"] for fault in found["faults"]] == [str(path.relative_to(tmp_path))]
    assert "SHA-256" in found["faults"][0]["what"]


def test_a_running_node_and_its_files_go_into_one_archive(
    spark: SparkSession, node: Node, tmp_path: Path, capsys: Any
) -> None:
    address = f"ipc://{node.runtime}"
    to = ("--to", tmp_path / "archive")

    def sent(first: int, count: int) -> None:
        with Producer([address]) as producer:
            for number in range(first, first + count):
                producer.send("orders", b"%d" % number, tag="a", queue_id=number % 4).result(
                    PATIENCE_S
                )

    def count(*words: object) -> int:
        found: int = run(capsys, "spark", "archive", *words, *to)["messages"]
        return found

    def counted(expected: int, *words: object) -> None:
        # A message is in its queue a moment after it was acknowledged.
        total = 0

        def is_there() -> bool:
            nonlocal total
            total += count(*words)
            return total >= expected

        wait_until(is_there, "messages in the queues", 300)
        assert total == expected

    sent(0, 40)
    counted(40, "--nodes", address)
    sent(40, 30)
    counted(30, node.root)
    sent(70, 20)
    counted(20, "--nodes", address, "--watermark", "nightly")
    marked = run(capsys, "archive", "list", "--address", address)["archives"]
    from_files = run(
        capsys, "spark", "archive", node.root, *to, "--watermark", "nightly", "--commit-to", address
    )
    nobody = run(capsys, "spark", "archive", node.root, *to, "--watermark", "nightly", status=1)
    frame = spark.read.parquet(str(tmp_path / "archive"))
    bodies = sorted(int(bytes(row["body"])) for row in frame.select("body").collect())

    assert bodies == list(range(90))
    assert [row["archive"] for row in marked] == ["nightly"]
    assert 0 < marked[0]["position"] <= from_files["position"]
    assert nobody["error"]["details"]["option"] == "--commit-to"
    assert frame.select(PLACE).distinct().count() == 90
    assert run(capsys, "spark", "archive-verify", tmp_path / "archive")["faults"] == []


@pytest.mark.long
def test_a_driver_that_is_killed_leaves_an_archive_that_goes_on(
    spark: SparkSession, tmp_path: Path, capsys: Any
) -> None:
    store, target = tmp_path / "store", tmp_path / "archive"
    store.mkdir()
    write_store(store, messages=200)
    words = ["spark", "archive", str(store), "--to", str(target), "--split-mib", "1"]
    with (tmp_path / "output").open("wb") as output:
        driver = subprocess.Popen(
            [sys.executable, "-m", "ledgermq.cli.main", *words],
            stdout=output,
            stderr=output,
            start_new_session=True,
            env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
        )
        has_begun: Callable[[], bool] = (target / "_ledgermq" / "staging").is_dir
        wait_until(lambda: has_begun() or driver.poll() is not None, "a run", 300)
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait(PATIENCE_S)
    found = run(capsys, *words)
    rows = spark.read.parquet(str(target))

    assert found["runs"] in (1, 2)
    assert rows.count() == rows.select(PLACE).distinct().count() == 200
    assert run(capsys, "spark", "archive-verify", target)["faults"] == []
