"""One Spark for all tests here: two slots, a small heap, nothing but loopback.

Whoever has no Java says so with ``LEDGERMQ_WITHOUT_SPARK=1``; without that the tests fail.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WITHOUT = os.environ.get("LEDGERMQ_WITHOUT_SPARK") == "1"

if WITHOUT:
    collect_ignore_glob = ["test_*.py"]

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "768m",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    # Both modes are tried in one session: the setting can be changed while it runs.
    "spark.sql.python.filterPushdown.enabled": "false",
    "spark.log.level": "ERROR",
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session that knows the format ``ledgermq``: two slots, and a second try for each task."""
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.fail(
            "Spark's tests need Java 17: apt-get install openjdk-17-jre-headless, or"
            " packaging/bootstrap.sh as root; LEDGERMQ_WITHOUT_SPARK=1 leaves them out"
        )
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    from pyspark.sql import SparkSession

    from ledgermq.pipeline.spark_source import register

    builder = SparkSession.builder.master("local[2,2]").appName("ledgermq tests")
    folder = tmp_path_factory.mktemp("spark")
    settings = {
        **SETTINGS,
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    register(session)
    yield session
    session.stop()
