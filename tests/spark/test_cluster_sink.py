"""Rows of Spark over two groups of one real node each: each row is a message once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from tests.process.two_groups import HOME, OTHER, TOPIC, TwoGroups, two_groups
from tests.spark.started_streams import run_to_end

pytestmark = [pytest.mark.spark, pytest.mark.long]

ROWS = 40


@pytest.fixture
def groups(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Iterator[TwoGroups]:
    with two_groups(capsys, tmp_path) as made:
        made.spread()
        yield made


def test_each_row_is_a_message_of_one_group_once_though_a_group_dies_before_its_commit(
    spark: SparkSession, groups: TwoGroups, tmp_path: Path
) -> None:
    given, checkpoint = str(tmp_path / "given"), tmp_path / "checkpoint"
    options = {"nodes": groups.home.address, "brokerGroups": "all"}

    def rows(first: int) -> None:
        frame = spark.range(first, first + ROWS, numPartitions=4)
        frame.selectExpr("cast(id as string) as body").write.mode("append").parquet(given)

    def run(timeout_ms: int) -> None:
        # Arrow's batches of few rows: each goes to the next queue.
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "5")
        frame = spark.readStream.schema("body string").parquet(given)
        writer = frame.writeStream.format("ledgermq").options(**options, topic=TOPIC)
        writer = writer.options(checkpointLocation=str(checkpoint), timeoutMs=timeout_ms)
        try:
            run_to_end(writer.trigger(availableNow=True))
        finally:
            spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")

    def read() -> Counter[tuple[str, int]]:
        reader = spark.read.format("ledgermq").options(**options, subscribe=TOPIC)
        found = reader.option("columns", "brokerGroup,body").load().toArrow().to_pylist()
        return Counter((row["brokerGroup"], int(row["body"])) for row in found)

    rows(0)
    run(120_000)
    first = read()
    plan = checkpoint / "ledgermq"
    assert len([*plan.iterdir()]) == 1
    # As a driver leaves it that has died behind its first commit.
    (checkpoint / "commits" / "0").unlink()
    (checkpoint / "commits" / ".0.crc").unlink()
    groups.other.node.end()
    with pytest.raises(StreamingQueryException, match=f"broker_group='{OTHER}'"):
        run(10_000)
    groups.other.start_again()
    rows(ROWS)
    run(120_000)
    last = read()

    assert {group for group, _ in first} == {HOME, OTHER}
    assert Counter(number for _, number in first.elements()) == Counter(range(ROWS))
    assert Counter(number for _, number in last.elements()) == Counter(range(2 * ROWS))
    assert not first - last
