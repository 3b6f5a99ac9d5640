"""A sink and an archive whose first task lags, so that Spark starts it once more; by spark-submit.

cluster_speculation.py NODES STORE ARCHIVE MARKS

The lagging attempts end only when a second one has done the same work. Prints one JSON object.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pyspark import TaskContext
from pyspark.sql import SparkSession

from ledgermq.pipeline.archive.archive_job import archive
from ledgermq.pipeline.archive.folder_store import FolderStore
from ledgermq.pipeline.jobs.job_session import Job
from ledgermq.pipeline.source_options import parse_options
from ledgermq.pipeline.spark_source import register

ROWS = 2_000
PATIENCE_S = 300
LOOK_S = 0.1

Task = TypeVar("Task")
Result = TypeVar("Result")


def lag(marks: str, what: str) -> None:
    """Let the first attempt at the first task wait until a second one has come as far as this."""
    context = TaskContext.get()
    assert context is not None
    if context.partitionId() != 0:
        return
    done = Path(marks) / f"{what}-{context.attemptNumber() > 0}"
    done.touch()
    second = Path(marks) / f"{what}-True"
    until = time.monotonic() + PATIENCE_S
    while not second.exists():
        assert time.monotonic() < until, "no second attempt was made"
        time.sleep(LOOK_S)


def rows_with_lag(marks: str, numbers: Iterable[int]) -> Iterator[tuple[str]]:
    """All rows, behind which the first attempt at the first task lags."""
    for number in numbers:
        yield (str(number),)
    lag(marks, "sink")


def run_with_lag(run: Callable[[Any], Any], marks: str, task: Any) -> Any:
    """A piece of work, behind which the first attempt at the first task lags."""
    result = run(task)
    lag(marks, "archive")
    return result


class LaggingJob(Job):
    """A job whose first task lags."""

    marks = ""

    def each(
        self, work: Sequence[Task], run: Callable[[Task], Result], *, size: int, split_bytes: int
    ) -> list[Result]:
        """As a job."""
        lagging = partial(run_with_lag, run, self.marks)
        return super().each(work, lagging, size=size, split_bytes=split_bytes)


def main(nodes: str, store: str, target: str, marks: str) -> None:
    """Both in one session."""
    spark = SparkSession.builder.getOrCreate()
    register(spark)
    numbers = spark.sparkContext.parallelize(range(ROWS), 4)
    rows = numbers.mapPartitions(partial(rows_with_lag, marks))
    lagging = spark.createDataFrame(rows, "body string")
    # Small packs: the attempt that lags has staged most of its rows.
    options = {"nodes": nodes, "topic": "orders", "packBytes": "20000"}
    lagging.write.format("ledgermq").options(**options).mode("append").save()
    job = LaggingJob(spark, lambda _done, _all: None)
    job.marks = marks
    source = parse_options({"path": store, "minPartitions": "4"}, streaming=False)
    found = archive(job, source, FolderStore(Path(target)), split_bytes=1 << 20)
    spark.stop()
    seen = sorted(path.name for path in Path(marks).iterdir())
    print(json.dumps({"archived": found.rows, "marks": seen}))


if __name__ == "__main__":
    main(*sys.argv[1:])
