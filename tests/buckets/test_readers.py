"""Others read an archive in a bucket as they read a folder, and the commands write and check it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.fs as file_systems
import pyspark
import pytest
from pyarrow import dataset

from ledgermq.pipeline.archive.object_store import ObjectStore
from tests import left_out
from tests.buckets.bucket_archives import seen
from tests.buckets.object_server import IS_REQUIRED, FaultyProxy
from tests.spark.conftest import SHORT_LIVED
from tests.unit.pipeline.archives import archived
from tests.unit.pipeline.test_archive_job import expected, grown

HERE = Path(__file__).resolve().parent
FETCH_S = 900

pytestmark = pytest.mark.slow


def endpoint(proxy: FaultyProxy) -> str:
    return f"http://127.0.0.1:{proxy.port}"


def program(*words: object) -> str:
    done = subprocess.run(
        [sys.executable, *map(str, words)],
        cwd=HERE.parents[1],
        env={
            **os.environ,
            "PYTHONPATH": str(HERE.parents[1]),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_SUBMIT_OPTS": SHORT_LIVED,
        },
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    return done.stdout


def jars(folder: Path) -> str:
    """Hadoop's s3a and what it needs, of Maven Central; left out where there is none."""
    reason = left_out.without_spark(needs_java=True)
    maven = shutil.which("mvn")
    if not reason and maven is None:
        reason = "no mvn here (Debian: apt-get install maven)"
    if not reason:
        assert maven is not None
        done = subprocess.run(
            [maven, "-B", "-q", "-f", str(HERE / "s3a" / "pom.xml"), "dependency:copy-dependencies",
             "-DincludeScope=runtime", f"-DoutputDirectory={folder}"],
            capture_output=True, text=True, timeout=FETCH_S, check=False,
        )  # fmt: skip
        reason = "" if done.returncode == 0 else f"jars not fetched: {done.stdout[-500:]}"
    if reason and IS_REQUIRED:
        pytest.fail(reason)
    if reason:
        pytest.skip(reason)
    return ",".join(sorted(map(str, folder.glob("*.jar"))))


def test_arrow_sees_the_rows_and_the_partitions(
    tmp_path: Path, proxy: FaultyProxy, target: ObjectStore
) -> None:
    archived(grown(tmp_path / "store", 30), target)
    there = file_systems.S3FileSystem(endpoint_override=endpoint(proxy), region="us-east-1")
    path = target.as_text().partition("://")[2]
    read = dataset.dataset(path, filesystem=there, format="parquet", partitioning="hive")
    rows: list[dict[str, Any]] = read.to_table().to_pylist()

    assert sorted((row["topic"], row["queueId"], row["queueOffset"]) for row in rows) == expected(
        30
    )
    assert {str(row["day"]) for row in rows}


@pytest.mark.long
def test_the_commands_write_and_check_it_and_spark_reads_it(
    tmp_path: Path, proxy: FaultyProxy, target: ObjectStore
) -> None:
    fetched = jars(tmp_path / "jars")
    (client,) = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-api-*.jar")
    hadoop = client.stem.removeprefix("hadoop-client-api-")

    assert f"<hadoop>{hadoop}</hadoop>" in (HERE / "s3a" / "pom.xml").read_text()

    command = ("-m", "ledgermq.cli.main", "spark")
    store, place = grown(tmp_path / "store", 30), target.as_text()
    wrote = json.loads(program(*command, "archive", store, "--to", place, "--json"))
    found = json.loads(program(*command, "archive-verify", place, "--json"))
    read = json.loads(program("-m", "tests.buckets.reading_spark", fetched, endpoint(proxy), place))

    assert (wrote["to"], wrote["messages"]) == (place, 30)
    assert (found["rows"], found["faults"]) == (30, [])
    assert [tuple(row) for row in read] == seen(target, tmp_path / "mirror") == expected(30)
