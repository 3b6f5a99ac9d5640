"""One Spark for all tests here: two slots, a small heap, nothing but loopback.

Where there is no Java or no PySpark they are left out, with the reason; ``LEDGERMQ_SPARK=1``, as in
``.ci/run`` and ``make check-all``, makes that a failure. With ``LEDGERMQ_WITHOUT_SPARK=1`` they are
left out anywhere.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ledgermq.pipeline.early_python import write_early_python
from ledgermq.pipeline.pieces.topic_keys import KEYS_VARIABLE
from tests import left_out
from tests.process.client_node import start_client_node
from tests.process.conftest import Node, nodes_made

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_REASON = left_out.without_spark(needs_java=True)

SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A JVM that lives for a test or two gets back nothing of what it spends on its second compiler and
on threads that collect garbage: a third of the processor time
of these tests."""

for _name in ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS"):
    # For sessions of these processes and for programs that they start.
    os.environ.setdefault(_name, SHORT_LIVED)

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


def pytest_pycollect_makemodule(
    module_path: Path, parent: pytest.Collector
) -> pytest.Module | None:
    """Leave the module out, with the reason, where it cannot run."""
    return left_out.module(module_path, parent, _REASON) if _REASON else None


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session that knows the format ``ledgermq``: two slots, and a second try for each task."""
    folder = tmp_path_factory.mktemp("spark")
    # Of drivers that a test starts, too.
    os.environ["PYSPARK_PYTHON"] = str(write_early_python(folder / "python"))
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    # Workers have the environment that the session began with.
    os.environ[KEYS_VARIABLE] = str(folder / "keys")
    (folder / "keys").mkdir(mode=0o700)
    from pyspark.sql import SparkSession

    from ledgermq.pipeline.spark_source import register

    builder = SparkSession.builder.master("local[2,2]").appName("ledgermq tests")
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


@pytest.fixture
def node() -> Iterator[Node]:
    """A node that runs, for clients on this machine."""
    with nodes_made() as make:
        made = make()
        start_client_node(made)
        yield made
