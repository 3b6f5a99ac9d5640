"""Spark reads sealed pieces by our source, and as Parquet without it."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from ledgermq.pipeline.columns.message_schema import COLUMNS
from ledgermq.pipeline.pieces.log_sealing import SealSizes, seal_log
from ledgermq.pipeline.pieces.piece_places import SealedFolder
from ledgermq.store.log_reader import LogReader
from ledgermq.store.store_directory import open_directory

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SIZES = SealSizes(piece_bytes=200_000, group_bytes=50_000)


def sorted_rows(frame: DataFrame) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = frame.toArrow().to_pylist()
    return sorted(rows, key=lambda row: int(row["physicalOffset"]))


def test_pieces_have_the_rows_of_the_store_for_our_source_and_for_any_reader(
    spark: SparkSession, golden: Any, tmp_path: Path
) -> None:
    root = golden("gd0")
    with closing(LogReader(open_directory(root))) as reader:
        seal_log(SealedFolder(tmp_path), reader, reader.end, sizes=SIZES)
    options = {"subscribePattern": ".*", "inflateBodies": "false", "minPartitions": "3"}
    reads = spark.read.format("ledgermq").options(**options)
    of_store = sorted_rows(reads.load(str(root)))
    of_pieces = sorted_rows(
        spark.read.format("ledgermq").options(**options, pieces=str(tmp_path)).load()
    )
    plain = spark.read.parquet(str(tmp_path / "pieces"))
    # What was never in a queue has a row, too; and the source stops at what is dispatched.
    positions = {row["physicalOffset"] for row in of_store}

    assert len(of_store) > 100
    assert [row for row in of_pieces if row["physicalOffset"] in positions] == of_store
    by_position = {row["physicalOffset"]: row for row in sorted_rows(plain.select(*COLUMNS))}
    assert all(by_position[row["physicalOffset"]] == row for row in of_pieces)


def test_what_is_not_sealed_comes_out_of_the_store_behind_the_pieces(
    spark: SparkSession, golden: Any, tmp_path: Path
) -> None:
    root = golden("gd0")
    with closing(LogReader(open_directory(root))) as reader:
        ends = [one.message.physical_offset + one.message.size for one in reader.iterate()]
        seal_log(SealedFolder(tmp_path), reader, ends[len(ends) // 2], sizes=SIZES)
    options = {"subscribePattern": ".*", "inflateBodies": "false", "minPartitions": "3"}
    reads = spark.read.format("ledgermq").options(**options)
    of_store = sorted_rows(reads.load(str(root)))
    both = spark.read.format("ledgermq").options(**options, pieces=str(tmp_path), path=str(root))

    assert sorted_rows(both.load()) == of_store
    # The same on both sides of the seam: rows of the log up to an entry.
    for number in (len(of_store) // 3, len(of_store) - 2):
        index = of_store[number]["raftIndex"]
        then = sorted_rows(both.option("asOf", f"index={index}").load())
        assert then == [row for row in of_store if row["raftIndex"] <= index]
