"""Driver and JVM die by SIGKILL between the commits of a sink and of Spark: no row is there twice.

The moment is not left to the clock: the JVM is stopped as soon as the sink has committed a batch,
and killed if Spark has not. ``LEDGERMQ_SPARK_DRIVER_KILLS`` is how many lives a query has.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.process.conftest import wait_until
from tests.spark.killed_driver import STARTED, append, parquet_of, reader_of
from tests.spark.started_streams import run_to_end
from tests.suite.patience import PATIENCE_S

pytestmark = [pytest.mark.spark, pytest.mark.slow]

KILLS = int(os.environ.get("LEDGERMQ_SPARK_DRIVER_KILLS", "1"))
ROWS = 1_000
ROOT = Path(__file__).parents[2]
DRIVER_S = 600
"""For a JVM, two interpreters and their first batches."""


class Driver:
    """A process that runs ``killed_driver``, and its JVM."""

    def __init__(self, store: Path, folder: Path) -> None:
        for name in (STARTED, "appended"):
            (folder / name).unlink(missing_ok=True)
        self._log = (folder / "driver.log").open("ab")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.killed_driver", str(store), str(folder)],
            cwd=ROOT,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            start_new_session=True,
        )
        self._folder = folder
        self.jvm = 0

    def wait(self, name: str) -> None:
        """Until the driver has made a file."""
        wait_until(lambda: (self._folder / name).exists() or self._has_died(), name, DRIVER_S)
        assert not self._has_died(), (self._folder / "driver.log").read_text()[-4_000:]

    def stop_between_commits(self) -> int:
        """Stop the JVM when the sink has a batch that Spark has not; the batch's number."""
        self.jvm = int((self._folder / STARTED).read_text())
        deadline = time.monotonic() + DRIVER_S
        seen = newest(self._folder / "rows" / "_spark_metadata")
        while True:
            batch = newest(self._folder / "rows" / "_spark_metadata")
            if batch > seen:
                os.kill(self.jvm, signal.SIGSTOP)
                # Nothing moves now.
                batch = seen = newest(self._folder / "rows" / "_spark_metadata")
                if newest(self._folder / "checkpoint" / "commits") < batch:
                    return batch
                os.kill(self.jvm, signal.SIGCONT)
            assert time.monotonic() < deadline, "the moment never came"
            assert not self._has_died(), (self._folder / "driver.log").read_text()[-4_000:]
            time.sleep(0.000_5)

    def kill(self) -> None:
        """Kill the JVM, the driver and its workers, all at once."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(PATIENCE_S)
        self._log.close()
        if self.jvm:
            wait_until(
                lambda: not Path("/proc", str(self.jvm), "exe").exists(), "the JVM's end", 60
            )

    def _has_died(self) -> bool:
        return self._process.poll() is not None


def newest(folder: Path) -> int:
    """The highest batch that has a file in a folder of Spark's; -1 without one."""
    try:
        names = [path.name.partition(".")[0] for path in folder.iterdir() if path.name[0] != "."]
    except FileNotFoundError:
        return -1
    return max((int(name) for name in names if name.isdigit()), default=-1)


def counted(spark: SparkSession, folder: Path) -> Counter[int]:
    rows: list[dict[str, Any]] = spark.read.parquet(str(folder)).toArrow().to_pylist()
    return Counter(row["physicalOffset"] for row in rows)


def run_control(spark: SparkSession, store: Path, folder: Path) -> None:
    """Go on with the control, to the end of the store."""
    run_to_end(
        reader_of(spark, rows=ROWS)
        .load(str(store))
        .writeStream.foreachBatch(lambda frame, _batch: append(frame, folder / "control.txt"))
        .option("checkpointLocation", str(folder / "control"))
        .trigger(availableNow=True)
    )


@pytest.mark.long
def test_a_driver_that_is_killed_between_two_commits_doubles_no_row(
    spark: SparkSession, golden: Any, tmp_path: Path
) -> None:
    store = golden("gd0")
    expected = Counter(
        row.physicalOffset
        for row in spark.read.format("ledgermq")
        .options(subscribePattern=".*", columns="physicalOffset")
        .load(str(store))
        .collect()
    )
    for _ in range(KILLS):
        driver = Driver(store, tmp_path)
        try:
            driver.wait(STARTED)
            driver.wait("appended")
            batch = driver.stop_between_commits()
        finally:
            driver.kill()
        commits = tmp_path / "checkpoint" / "commits"

        assert not (commits / str(batch)).exists()
        assert (tmp_path / "rows" / "_spark_metadata" / str(batch)).exists() or (
            tmp_path / "rows" / "_spark_metadata" / f"{batch}.compact"
        ).exists()
    writer = parquet_of(reader_of(spark, rows=ROWS), str(store), tmp_path)
    run_to_end(writer.trigger(availableNow=True))
    run_control(spark, store, tmp_path)
    doubled = Counter(int(line) for line in (tmp_path / "control.txt").read_text().split())

    assert counted(spark, tmp_path / "rows") == expected
    # The control shows that a batch did run again: who appends has it once more for each death.
    assert set(doubled) == set(expected)
    assert sorted(set(doubled.values())) == [1, 1 + KILLS]
