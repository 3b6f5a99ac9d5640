"""A catalog in a real PostgreSQL takes runs as one in SQLite does, whatever dies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from ledgermq.model.errors import StorageError, StoreLockedError
from tests.tables.lake import Lake, places, seen_by_duck
from tests.tables.sql_server import SqlServer, served
from tests.tables.test_table_kills import (
    MESSAGES,
    STEP,
    STEPS,
    died_at,
    made,
    rows_or_none,
    stores,
)
from tests.unit.pipeline.test_archive_job import expected, grown

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server() -> Iterator[SqlServer]:
    with served() as running:
        yield running


@pytest.fixture
def sql_lake(lake: Lake, server: SqlServer, tmp_path: Path, request: pytest.FixtureRequest) -> Lake:
    """``lake`` has made tasks small; its catalog is not used."""
    return Lake.below(tmp_path, server.new_database())


@pytest.mark.long
def test_runs_are_snapshots_and_two_at_once_are_one(sql_lake: Lake, tmp_path: Path) -> None:
    sql_lake.archived(grown(tmp_path / "store", 20))
    store = grown(tmp_path / "store", 31)
    late = sql_lake.opened()
    sql_lake.archived(store)
    with pytest.raises(StoreLockedError):
        sql_lake.archived(store, into=late)
    rows = sql_lake.rows()
    again = sql_lake.archived(store)

    assert again.run is None
    assert places(rows) == expected(31)
    assert seen_by_duck(sql_lake.table()) == rows


@pytest.mark.long
def test_a_driver_that_dies_leaves_what_the_next_one_completes(
    lake: Lake, server: SqlServer, tmp_path: Path
) -> None:
    def lake_in(folder: Path) -> Lake:
        return Lake.below(folder, server.new_database())

    earlier, later = stores(tmp_path)
    lakes, plans = made(
        tmp_path,
        range(1, STEPS, STEP),
        "archive",
        lake_in,
    )
    for one in lakes:
        one.archived(earlier)
    found = died_at(later, plans)
    for one, outcome in zip(lakes, found, strict=True):
        seen = places(rows_or_none(one))
        one.archived(later)
        rows = one.rows()

        assert seen in (expected(MESSAGES[0]), expected(MESSAGES[1]))
        assert outcome == "died" or seen == expected(MESSAGES[1])
        assert places(rows) == expected(MESSAGES[1])
    assert {"died", "ended"} == set(found)


@pytest.mark.long(but=1)
@pytest.mark.parametrize("is_done", [False, True])
def test_a_server_that_is_killed_at_the_commit_refuses_or_has_it(
    sql_lake: Lake,
    server: SqlServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_done: bool,
) -> None:
    sql_lake.archived(grown(tmp_path / "store", 20))
    store = grown(tmp_path / "store", 31)
    commit_table: Callable[..., Any] = SqlCatalog.commit_table

    def killing(catalog: SqlCatalog, *args: Any) -> Any:
        if is_done:
            commit_table(catalog, *args)
        server.kill()
        return commit_table(catalog, *args)

    with monkeypatch.context() as patched:
        patched.setattr(SqlCatalog, "commit_table", killing)
        with pytest.raises(StorageError, match="not known whether"):
            sql_lake.archived(store)
    with pytest.raises(StorageError, match="not opened"):
        sql_lake.opened()
    server.start()
    seen = places(sql_lake.rows())
    sql_lake.archived(store)

    assert seen == expected(31 if is_done else 20)
    assert places(sql_lake.rows()) == expected(31)
    assert len(sql_lake.table().snapshots()) == 2
