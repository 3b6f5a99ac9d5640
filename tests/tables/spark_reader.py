"""Spark with Iceberg's runtime, of Maven Central, beside the Spark that runs our jobs.

The runtime is a jar for its very version of Spark, and comes later than that; it does not load into
another one. So this Spark is a JVM of its own, and what it has read comes back as Parquet.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests import left_out
from tests.spark.conftest import SHORT_LIVED

HERE = Path(__file__).resolve().parent / "spark"
IS_REQUIRED = os.environ.get("LEDGERMQ_ICEBERG_SPARK", "") == "1"
FETCH_S = 1_800
READ_S = 600

OPENED = ("java.lang", "java.lang.invoke", "java.net", "java.nio", "java.util", "sun.nio.ch")
"""Of the JDK's packages, those that Spark reaches into."""

SETTINGS = {
    "spark.app.name": "reader",
    "spark.master": "local[1]",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "1",
    # As Arrow and DuckDB have them: not in 96 bits.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}


def class_path(folder: Path) -> str:
    """Spark's jars, of Maven Central; left out where they are not asked for."""
    reason = "" if IS_REQUIRED else "fetches 300 MB of jars: LEDGERMQ_ICEBERG_SPARK=1"
    maven = shutil.which("mvn")
    if not reason:
        reason = left_out.without_spark(needs_java=True)
        reason = reason or ("" if maven else "no mvn here (Debian: apt-get install maven)")
    if not reason:
        # Maven's own copies: they are not made once more for each run.
        done = subprocess.run(
            [str(maven), "-B", "-q", "-f", str(HERE / "pom.xml"), "dependency:build-classpath",
             "-DincludeScope=runtime", f"-Dmdep.outputFile={folder / 'path'}"],
            capture_output=True, text=True, timeout=FETCH_S, check=False,
        )  # fmt: skip
        reason = "" if done.returncode == 0 else f"jars not fetched: {done.stdout[-500:]}"
    if reason and IS_REQUIRED:
        pytest.fail(reason)
    if reason:
        pytest.skip(reason)
    return (folder / "path").read_text()


@dataclass(frozen=True)
class SparkReader:
    """A Spark that is started for some queries."""

    path: str
    """Of classes."""

    def rows(
        self,
        queries: list[str],
        catalog: dict[str, str],
        folder: Path,
        environment: dict[str, str] | None = None,
    ) -> list[list[dict[str, Any]]]:
        """What each query has found that gives rows; others are done.

        Args:
            catalog: properties of the catalog ``lake``, as Spark takes them.
            folder: where answers are put; not there yet.
        """
        told = {"spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog", **SETTINGS}
        told |= {f"spark.sql.catalog.lake.{name}": value for name, value in catalog.items()}
        places = [folder / str(number) for number in range(len(queries))]
        java = Path(os.environ["JAVA_HOME"], "bin", "java") if "JAVA_HOME" in os.environ else "java"
        opened = [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in OPENED]
        asked = zip(places, queries, strict=True)
        done = subprocess.run(
            [str(java), *SHORT_LIVED.split(), *opened, "-cp", self.path,
             *(f"-D{name}={value}" for name, value in told.items()),
             str(HERE / "ReadTable.java"),
             *(str(word) for one in asked for word in one)],
            env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", **(environment or {})},
            capture_output=True, text=True, timeout=READ_S, check=False,
        )  # fmt: skip

        assert done.returncode == 0, done.stderr[-4_000:]
        return [pq.read_table(str(place)).to_pylist() for place in places if place.exists()]
