"""One Spark for all tests here: two slots, a small heap, nothing but loopback.

Where there is no Java they are left out, with the reason; ``LEDGERMQ_SPARK=1``, as in ``.ci/run``
and ``make check-all``, makes that a failure. ``LEDGERMQ_WITHOUT_SPARK=1`` is for checkouts without
PySpark.
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


@pytest.fixture(scope="session", autouse=True)
def java() -> None:
    """Leave out what needs Java where there is none, unless it was asked for."""
    if shutil.which("java") is not None or "JAVA_HOME" in os.environ:
        return
    reason = (
        "Spark's tests need Java 17: apt-get install openjdk-17-jre-headless, or"
        " packaging/bootstrap.sh as root"
    )
    if os.environ.get("LEDGERMQ_SPARK") == "1":
        pytest.fail(f"{reason}; LEDGERMQ_SPARK=1 asks for them")
    pytest.skip(reason)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session that knows the format ``ledgermq``: two slots, and a second try for each task."""
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
