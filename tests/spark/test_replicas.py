"""``path`` with the directories of several replicas: one read, whatever each of them lacks."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from tests.spark.test_stream_reader import run_once

pytestmark = [pytest.mark.spark, pytest.mark.slow]

COLUMNS = "topic,queueId,queueOffset,physicalOffset,raftIndex,body,crcOk"
Row = dict[str, Any]


@pytest.fixture
def replicas(golden_copy: Any) -> list[Path]:
    """The three stores of a group that the Java broker wrote."""
    return [golden_copy(name) for name in ("gd0", "gd1", "gd2")]


def log_files(root: Path) -> list[Path]:
    return sorted(next(root.glob("dledger-*/data")).iterdir())


def rows_of(spark: SparkSession, path: str) -> list[Row]:
    reader = spark.read.format("ledgermq").options(columns=COLUMNS, subscribePattern=".*")
    rows: list[Row] = reader.options(minPartitions="3").load(path).toArrow().to_pylist()
    return sorted(rows, key=lambda row: row["physicalOffset"])


def paths(replicas: list[Path]) -> str:
    return ",".join(map(str, replicas))


def test_a_batch_has_each_row_once_though_each_replica_lacks_something(
    spark: SparkSession, replicas: list[Path]
) -> None:
    expected = rows_of(spark, str(replicas[0]))
    log_files(replicas[0])[0].unlink()
    log_files(replicas[1])[-1].unlink()
    shutil.rmtree(replicas[2] / "consumequeue")
    for row in expected[::40]:
        root = replicas[1 + (row["physicalOffset"] >= log_files(replicas[0])[0].stat().st_size)]
        file = max(f for f in log_files(root) if int(f.name) <= row["physicalOffset"])
        octets = bytearray(file.read_bytes())
        octets[row["physicalOffset"] - int(file.name) + 88] ^= 1
        file.write_bytes(octets)

    assert len(expected) > 400
    assert rows_of(spark, paths(replicas)) == expected


@pytest.mark.long
def test_a_stream_goes_on_when_the_replica_that_it_read_is_gone(
    spark: SparkSession, replicas: list[Path], tmp_path: Path
) -> None:
    expected = rows_of(spark, str(replicas[0]))
    frame = (
        spark.readStream.format("ledgermq")
        .options(columns=COLUMNS, subscribePattern=".*", startingOffsets="earliest")
        .options(maxOffsetsPerTrigger="250")
        .load(paths(replicas[:2]))
    )
    query = run_once(frame, tmp_path)
    sizes = [progress["numInputRows"] for progress in query.recentProgress]
    # Go on behind the first batch, as a query does that was stopped there.
    for folder in ("checkpoint/commits", "checkpoint/offsets", "rows/_spark_metadata"):
        (tmp_path / folder / "1").unlink()
        (tmp_path / folder / ".1.crc").unlink()
    shutil.rmtree(replicas[0])
    run_once(frame, tmp_path)
    rows: list[Row] = spark.read.parquet(str(tmp_path / "rows")).toArrow().to_pylist()

    assert sizes[:2] == [250, len(expected) - 250]
    assert sorted(rows, key=lambda row: row["physicalOffset"]) == expected


def test_stores_of_two_groups_are_refused(spark: SparkSession, golden: Any) -> None:
    with pytest.raises(AnalysisException, match="not replicas of one group"):
        rows_of(spark, paths([golden("gd0"), golden("gu0")]))
