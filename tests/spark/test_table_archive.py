"""``spark archive --iceberg``: a table has the rows that Spark reads of the store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.tables.lake import (
    NAME,
    Lake,
    by_place,
    places,
    properties_of,
    run,
    seen_by_duck,
)
from tests.unit.pipeline.test_archive_job import expected, grown

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def rows_of(frame: DataFrame, columns: list[str]) -> list[dict[str, Any]]:
    return by_place(frame.select(columns).toArrow().to_pylist())


def test_all_readers_find_what_spark_reads_of_the_store(
    spark: SparkSession, golden: Any, tmp_path: Path, capsys: Any
) -> None:
    lake = Lake.below(tmp_path)
    words = ["spark", "archive", golden("gd0"), "--iceberg", NAME, "--split-mib", 1]
    given = properties_of(lake)
    found = run(capsys, *words, *given)
    again = run(capsys, *words, *given)
    table = lake.table()
    source = spark.read.format("ledgermq").load(str(golden("gd0")))
    of_store = rows_of(source, source.columns)
    files = [task.file.file_path for task in table.scan().plan_files()]

    assert found["messages"] == len(of_store) > 200
    assert found["to"] == NAME
    assert again["run"] is None
    assert lake.rows() == of_store
    assert seen_by_duck(table) == of_store
    assert rows_of(spark.read.parquet(*files), source.columns) == of_store


def test_a_table_is_put_in_order_by_a_job(spark: SparkSession, tmp_path: Path, capsys: Any) -> None:
    lake = Lake.below(tmp_path)
    given = properties_of(lake)
    for messages in (20, 40):
        store = grown(tmp_path / "store", messages)
        run(capsys, "spark", "archive", store, "--iceberg", NAME, *given)
    files = len(list(lake.table().scan().plan_files()))
    tidied = run(capsys, "spark", "table-tidy", NAME, *given)
    again = run(capsys, "spark", "archive", store, "--iceberg", NAME, *given)
    refused = run(capsys, "spark", "table-tidy", NAME, "--keep-days", 0, *given, status=1)

    assert (tidied["merged"], tidied["into"]) == (files, 1)
    assert again["run"] is None
    assert places(lake.rows()) == expected(40)
    assert refused["error"]["details"]["option"] == "--keep-days"


def test_words_that_do_not_go_together_are_told(
    golden: Any, tmp_path: Path, capsys: Any, monkeypatch: Any
) -> None:
    words = ("spark", "archive", golden("gd0"))
    both = run(capsys, *words, "--to", tmp_path, "--catalog-property", "uri=a", status=1)
    unread = run(capsys, *words, "--iceberg", NAME, "--catalog-property", "secret", status=1)
    unknown = run(capsys, *words, "--iceberg", "nowhere.mq.messages", status=1)
    (tmp_path / ".pyiceberg.yaml").write_text("{catalog: {}}")
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    illegible = run(capsys, *words, "--iceberg", NAME, status=1)

    assert both["error"]["details"]["option"] == "--catalog-property"
    assert "NAME=VALUE" in unread["error"]["message"]
    assert "not described" in unknown["error"]["message"]
    assert "not described" in illegible["error"]["message"]
