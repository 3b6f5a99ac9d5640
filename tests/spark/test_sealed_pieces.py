"""Spark reads sealed pieces by our source, and as Parquet without it."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, DataFrameReader, SparkSession

from ledgermq.cli.main import main
from ledgermq.pipeline.columns.message_schema import COLUMNS
from ledgermq.pipeline.pieces.log_sealing import SealSizes, seal_log
from ledgermq.pipeline.pieces.piece_places import SealedFolder
from ledgermq.pipeline.pieces.topic_keys import key_file
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


def test_a_topic_is_read_with_its_key_alone_and_others_without_it(
    spark: SparkSession, golden: Any, tmp_path: Path
) -> None:
    root = golden("gd0")
    topics = [row["topic"] for row in sorted_rows(read_of(spark, {}).load(str(root)))]
    # The one that has most, and all others.
    secret = max(set(topics), key=topics.count)
    key = key_file(secret)
    assert key is not None
    assert main(["piece", "key", secret]) == 0
    try:
        with closing(LogReader(open_directory(root))) as reader:
            seal_log(SealedFolder(tmp_path), reader, reader.end, sizes=SIZES)
        of_store = sorted_rows(read_of(spark, {}).load(str(root)))
        reads = read_of(spark, {"pieces": str(tmp_path)})
        assert sorted_rows(reads.load()) == of_store
        plain = spark.read.parquet(str(tmp_path / "pieces")).where(f"topic = '{secret}'")
        assert plain.count() == plain.where("body is null and keys is null").count() > 0
    finally:
        key.unlink()
    with pytest.raises(Exception, match="locked with a key that is not here") as raised:
        reads.load().toArrow()
    assert repr(secret) in str(raised.value)
    others = f"(?!{re.escape(secret)}$).*"
    open_rows = sorted_rows(read_of(spark, {"pieces": str(tmp_path)}, pattern=others).load())
    assert open_rows == [row for row in of_store if row["topic"] != secret]


def read_of(
    spark: SparkSession, options: dict[str, str], *, pattern: str = ".*"
) -> DataFrameReader:
    options = {"subscribePattern": pattern, "inflateBodies": "false", **options}
    return spark.read.format("ledgermq").options(**options)
