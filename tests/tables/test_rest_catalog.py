"""Iceberg's own REST catalog, in Java, takes runs as a catalog in a database does."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pyspark
import pytest

from ledgermq.model.errors import StorageError, StoreLockedError
from tests import left_out
from tests.buckets.object_server import FaultyProxy
from tests.tables.lake import Lake, places, seen_by_duck
from tests.unit.pipeline.test_archive_job import expected, grown

HERE = Path(__file__).resolve().parent / "rest"
IS_REQUIRED = os.environ.get("LEDGERMQ_ICEBERG_REST", "") == "1"
FETCH_S = 900

pytestmark = pytest.mark.slow


def jars(folder: Path) -> str:
    """A class path of Iceberg's server, of Maven Central; left out where it is not asked for."""
    reason = "" if IS_REQUIRED else "fetches 30 MB of jars: LEDGERMQ_ICEBERG_REST=1"
    maven = shutil.which("mvn")
    if not reason:
        reason = left_out.without_spark(needs_java=True)
        reason = reason or ("" if maven else "no mvn here (Debian: apt-get install maven)")
    if not reason:
        done = subprocess.run(
            [str(maven), "-B", "-q", "-f", str(HERE / "pom.xml"), "dependency:copy-dependencies",
             "-DincludeScope=runtime", f"-DoutputDirectory={folder}"],
            capture_output=True, text=True, timeout=FETCH_S, check=False,
        )  # fmt: skip
        reason = "" if done.returncode == 0 else f"jars not fetched: {done.stdout[-500:]}"
    if reason and IS_REQUIRED:
        pytest.fail(reason)
    if reason:
        pytest.skip(reason)
    # Hadoop's file systems are those that PySpark brings.
    of_spark = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-*.jar")
    return ":".join([f"{folder}/*", *map(str, of_spark)])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a server that runs."""
    folder = tmp_path_factory.mktemp("rest")
    path = jars(folder / "jars")
    (folder / "warehouse").mkdir()
    java = Path(os.environ["JAVA_HOME"], "bin", "java") if "JAVA_HOME" in os.environ else "java"
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [str(java), "-XX:TieredStopAtLevel=1", "-cp", path, str(HERE / "RestCatalog.java"),
             str(folder / "catalog.db"), f"file://{folder}/warehouse"],
            stdout=subprocess.PIPE, stderr=log, text=True,
        )  # fmt: skip
    try:
        assert process.stdout is not None
        line = process.stdout.readline()

        assert line, (folder / "log").read_text()[-2_000:]
        yield int(line)
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def proxy(server: int) -> Iterator[FaultyProxy]:
    made = FaultyProxy(server)
    yield made
    made.close()


@pytest.fixture
def rest_lake(lake: Lake, proxy: FaultyProxy) -> Lake:
    """``lake`` has made tasks small; its catalog is not used."""
    return Lake({"uri": f"http://127.0.0.1:{proxy.port}"})


def table_of(request: pytest.FixtureRequest) -> str:
    return f"lake.mq.{request.node.name}"


def test_runs_are_snapshots_and_two_at_once_are_one(
    rest_lake: Lake, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    name = table_of(request)
    store = grown(tmp_path / "store", 20)
    rest_lake.archived(store, into=rest_lake.opened(name))
    store = grown(tmp_path / "store", 31)
    late = rest_lake.opened(name)
    rest_lake.archived(store, into=rest_lake.opened(name))
    with pytest.raises(StoreLockedError):
        rest_lake.archived(store, into=late)
    rows = rest_lake.rows(name)
    again = rest_lake.archived(store, into=rest_lake.opened(name))

    assert again.run is None
    assert places(rows) == expected(31)
    assert seen_by_duck(rest_lake.table(name)) == rows


def test_a_commit_whose_answer_is_lost_is_found(
    rest_lake: Lake, proxy: FaultyProxy, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    name = table_of(request)
    for messages in (20, 31):
        opened = rest_lake.opened(name)
        lost: list[int] = []

        def fault(number: int, head: bytes, lost: list[int] = lost) -> str:
            is_commit = head.startswith(b"POST ") and f"/{request.node.name} ".encode() in head
            if not is_commit or lost:
                return ""
            lost.append(number)
            return "lost"

        proxy.fault = fault
        rest_lake.archived(grown(tmp_path / "store", messages), into=opened)

        assert len(lost) == 1
    proxy.fault = lambda _number, _head: ""
    snapshots = rest_lake.table(name).snapshots()

    assert places(rest_lake.rows(name)) == expected(31)
    assert len(snapshots) == 2


def test_a_catalog_that_is_away_refuses_and_the_next_run_goes_on(
    rest_lake: Lake, proxy: FaultyProxy, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    name = table_of(request)
    store = grown(tmp_path / "store", 20)
    opened = rest_lake.opened(name)
    proxy.fault = lambda _number, head: "gone" if head.startswith(b"POST ") else "busy"
    with pytest.raises(StorageError, match="not known whether"):
        rest_lake.archived(store, into=opened)
    with pytest.raises(StorageError):
        rest_lake.opened(name)
    proxy.fault = lambda _number, _head: ""
    rest_lake.archived(store, into=rest_lake.opened(name))

    assert places(rest_lake.rows(name)) == expected(20)


def test_files_are_put_together(
    rest_lake: Lake, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    name = table_of(request)
    for messages in (20, 31):
        rest_lake.archived(grown(tmp_path / "store", messages), into=rest_lake.opened(name))
    done = rest_lake.tidied(into=rest_lake.opened(name), keep=timedelta(microseconds=1))
    rest_lake.archived(grown(tmp_path / "store", 40), into=rest_lake.opened(name))

    assert (done.into, done.expired) == (1, 2)
    assert done.deleted > 0
    assert places(rest_lake.rows(name)) == expected(40)
    assert places(seen_by_duck(rest_lake.table(name))) == expected(40)
