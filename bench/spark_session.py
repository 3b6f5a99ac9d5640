"""The Spark of benchmarks: some slots of this machine, no page, nothing but loopback."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from ledgermq.pipeline.spark_source import register


@contextmanager
def spark_session(folder: Path, *, slots: int) -> Iterator[SparkSession]:
    """A session of ``local[slots]`` with its files in ``folder``; it ends with the block."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master(f"local[{slots}]").appName("bench")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": str(folder / f"spark-{slots}"),
        "spark.sql.session.timeZone": "UTC",
        "spark.log.level": "ERROR",
        # As docs/operating/spark.md recommends.
        "spark.python.unix.domain.socket.enabled": "true",
    }.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    register(session)
    try:
        yield session
    finally:
        session.stop()
