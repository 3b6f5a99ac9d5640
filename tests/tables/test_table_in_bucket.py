"""A table whose files are in a real S3 server has what one in a directory has."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ledgermq.model.errors import StorageError, StoreLockedError
from tests.buckets.object_server import BUCKET, KEYS, FaultyProxy, ObjectServer, served, use
from tests.tables.lake import Lake, places
from tests.unit.pipeline.test_archive_job import expected, grown

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the server has, as files."""
    return tmp_path_factory.mktemp("s3")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[ObjectServer]:
    with served(folder) as running:
        yield running


@pytest.fixture
def proxy(server: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyProxy]:
    made = FaultyProxy(server.port)
    # PyArrow asks a machine of Amazon's for a role else.
    use(monkeypatch, server, made.port)
    yield made
    made.close()


@pytest.fixture
def far_lake(lake: Lake, proxy: FaultyProxy, request: pytest.FixtureRequest) -> Lake:
    """The catalog is here, its warehouse in the bucket."""
    return Lake(
        {
            **lake.properties,
            "warehouse": f"s3://{BUCKET}/{request.node.name}",
            "s3.endpoint": f"http://127.0.0.1:{proxy.port}",
            "s3.access-key-id": KEYS["ROOT_ACCESS_KEY"],
            "s3.secret-access-key": KEYS["ROOT_SECRET_KEY"],
            "s3.region": "us-east-1",
        }
    )


def test_rows_are_those_of_the_log(far_lake: Lake, proxy: FaultyProxy, tmp_path: Path) -> None:
    proxy.fault = lambda number, _head: "busy" if number % 23 == 0 else ""
    far_lake.archived(grown(tmp_path / "store", 20))
    far_lake.archived(grown(tmp_path / "store", 31))
    table = far_lake.table()
    files = far_lake.opened().staging()

    assert table.location().startswith("s3://")
    assert places(far_lake.rows()) == expected(31)
    assert "busy" in proxy.faults
    # What goes to the workers has the keys of the bucket, and not the catalog's address.
    assert set(files.properties) == {name for name in far_lake.properties if name[:3] == "s3."}


def test_who_is_refused_leaves_no_file(far_lake: Lake, folder: Path, tmp_path: Path) -> None:
    store = grown(tmp_path / "store", 20)
    late = far_lake.opened()
    far_lake.archived(store)
    warehouse = folder / "store" / far_lake.properties["warehouse"].removeprefix("s3://")
    files = sorted(warehouse.rglob("*.parquet"))
    with pytest.raises(StoreLockedError):
        far_lake.archived(store, into=late)

    assert sorted(warehouse.rglob("*.parquet")) == files != []
    assert places(far_lake.rows()) == expected(20)


def test_a_bucket_that_is_away_refuses_a_run(
    far_lake: Lake, proxy: FaultyProxy, tmp_path: Path
) -> None:
    store = grown(tmp_path / "store", 20)
    opened = far_lake.opened()
    proxy.fault = lambda _number, _head: "unable"
    with pytest.raises(StorageError):
        far_lake.archived(store, into=opened)
    proxy.fault = lambda _number, _head: ""
    far_lake.archived(store)

    assert places(far_lake.rows()) == expected(20)
