"""Folders with bodies as fields: Spark, DuckDB and pyarrow read files of all versions alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyarrow import dataset
from pyspark.sql import SparkSession

from ledgermq.pipeline.archive.archive_folder import check_archive
from ledgermq.pipeline.archive.archive_job import Archived, archive
from ledgermq.pipeline.archive.folder_store import FolderStore
from ledgermq.pipeline.jobs.job_session import Job
from tests.tables.test_typed_table import EARLIER, FIRST, LATER, SECOND, TypedStore
from tests.unit.pipeline.archives import visible_files

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PLACE = ("topic", "queueOffset", "queueId")


def in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: [row[name] for name in PLACE])


def read_by_spark(spark: SparkSession, target: Path) -> list[dict[str, Any]]:
    frame = spark.read.option("mergeSchema", "true").parquet(str(target)).drop("day")
    return in_order(frame.toArrow().to_pylist())


def read_by_duck(target: Path) -> list[dict[str, Any]]:
    found = duckdb.sql(
        f"SELECT * EXCLUDE day FROM read_parquet('{target}/topic=*/*/*.parquet',"
        " hive_partitioning=true, union_by_name=true)"
    )
    return in_order(found.to_arrow_table().to_pylist())


def read_by_arrow(target: Path) -> list[dict[str, Any]]:
    """The newest file has all columns; names ascend by run."""
    of_newest = dataset.dataset(visible_files(target)[-1]).schema
    parts = dataset.partitioning(flavor="hive")
    found = dataset.dataset(target, schema=of_newest, partitioning=parts, format="parquet")
    return sorted(
        found.to_table().to_pylist(), key=lambda row: (row["queueOffset"], row["queueId"])
    )


@pytest.mark.long
@pytest.mark.parametrize("columns", ["typed", ""])
def test_readers_see_files_of_all_versions_alike(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    store = TypedStore(tmp_path / "store", monkeypatch)
    target = FolderStore(tmp_path / "archive")
    job = Job(spark, lambda _done, _of: None)

    def archived(columns: str = "typed") -> Archived:
        return archive(job, store.options(columns=columns), target, split_bytes=1 << 20)

    store.register(FIRST)
    sent = [store.write(EARLIER), store.write(EARLIER)]
    archived(columns)
    store.register(SECOND)
    sent += [store.write(LATER), b"none"]
    store.add(b"none", None)
    second = archived()
    again = archived()
    rows = read_by_spark(spark, target.root)
    by_arrow = read_by_arrow(target.root)
    checked = check_archive(job, target, split_bytes=1 << 20)
    ids = [row["value"] and row["value"]["id"] for row in rows]

    assert (second.rows, second.unparsed, again.run) == (2, 1, None)
    assert [row["body"] for row in rows] == sent
    assert ids == ([1, 1] if columns else [None, None]) + [1 << 40, None]
    assert [row["unparsed"] for row in rows] == [None] * 3 + [b"none"]
    assert rows[2]["value"]["note"] == "there"
    assert rows[2]["value"]["lines"] == [{"sku": "b", "count": 1 << 40, "gift": True}]
    assert dict(rows[2]["value"]["prices"]) == LATER["prices"]
    assert read_by_duck(target.root) == rows
    assert by_arrow == [{name: row[name] for name in by_arrow[0]} for row in rows]
    assert (checked.rows, checked.faults) == (4, ())
