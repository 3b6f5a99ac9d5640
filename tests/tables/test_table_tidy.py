"""A table that is put in order has the same rows, and its runs go on."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.types import LongType, StringType

from ledgermq.model.errors import ConfigError, StorageError, StoreLockedError
from ledgermq.pipeline.columns.message_schema import COLUMNS
from ledgermq.pipeline.tables import table_columns, table_tidy_job
from ledgermq.pipeline.tables.iceberg_table import IcebergTable
from tests.process.full_disk import SmallMemory, why_not
from tests.tables.lake import NAME, Lake, by_place, places, seen_by_duck
from tests.unit.pipeline.test_archive_job import expected, grown

pytestmark = pytest.mark.slow

AT_ONCE = timedelta(microseconds=1)


def filled(lake: Lake, store: Path, *messages: int) -> None:
    """A run for each number of messages."""
    for count in messages:
        lake.archived(grown(store, count))


def files_of(lake: Lake) -> list[str]:
    return sorted(task.file.file_path for task in lake.table().scan().plan_files())


def test_small_files_are_put_together_and_runs_go_on(lake: Lake, tmp_path: Path) -> None:
    store = tmp_path / "store"
    filled(lake, store, 20, 31, 42)
    rows, before = lake.rows(), files_of(lake)
    done = lake.tidied()
    after = files_of(lake)
    again = lake.tidied()
    seen = seen_by_duck(lake.table())
    filled(lake, store, 42, 50)
    (file,) = [task.file for task in lake.table().scan("queueOffset < 3").plan_files()]

    assert (done.merged, done.into) == (len(before), len(after))
    assert len(before) > 3
    assert len(after) == 1
    assert (again.merged, again.into, again.deleted) == (0, 0, 0)
    assert seen == rows
    assert places(lake.rows()) == expected(50)
    # It is sorted, in its partition, and has least and largest values.
    assert file.file_path == after[0]
    assert file.sort_order_id == lake.table().sort_order().order_id


def test_what_is_too_much_for_one_file_becomes_several(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(lake, tmp_path / "store", 20, 31, 42)
    before = len(files_of(lake))
    monkeypatch.setattr(table_tidy_job, "MERGED_BYTES", 5_000)
    monkeypatch.setattr(table_tidy_job, "TASK_BYTES", 40_000)
    done = lake.tidied()

    assert 1 < done.into < done.merged <= before
    assert places(lake.rows()) == expected(42)


def test_files_of_earlier_columns_and_an_owners_own_stay_whole(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    earlier = tuple(name for name in COLUMNS if name not in ("raftTerm", "properties"))
    monkeypatch.setattr(table_columns, "TABLE_COLUMNS", earlier)
    filled(lake, store, 20)
    monkeypatch.setattr(table_columns, "TABLE_COLUMNS", COLUMNS)
    filled(lake, store, 30)
    with lake.table().update_schema() as update:
        update.add_column("note", StringType())
        update.update_column("queueId", LongType())
    filled(lake, store, 40)
    rows = lake.rows()
    done = lake.tidied()

    assert done.into == 1
    assert lake.rows() == rows
    assert {row["note"] for row in rows} == {None}
    assert {row["raftTerm"] is None for row in rows} == {False, True}


def hooked(monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], Any]) -> None:
    """Let something happen between the plan of the next commit and the commit."""
    commit_table = SqlCatalog.commit_table

    def late(catalog: SqlCatalog, *args: Any) -> Any:
        monkeypatch.setattr(SqlCatalog, "commit_table", commit_table)
        meanwhile()
        return commit_table(catalog, *args)

    monkeypatch.setattr(SqlCatalog, "commit_table", late)


def test_a_run_meanwhile_is_kept(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    filled(lake, store, 20)
    table = lake.opened()
    hooked(monkeypatch, lambda: filled(lake, store, 30))
    done = lake.tidied(into=table)
    filled(lake, store, 30, 40)

    assert done.into == 1
    assert places(lake.rows()) == expected(40)


def test_a_run_goes_on_over_files_that_are_put_together_meanwhile(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    filled(lake, store, 20)
    hooked(monkeypatch, lake.tidied)
    filled(lake, store, 30)

    assert places(lake.rows()) == expected(30)
    assert any("tidied-" in name for name in files_of(lake))


def test_two_that_tidy_at_once_double_nothing(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(lake, tmp_path / "store", 20, 30)
    hooked(monkeypatch, lake.tidied)
    with pytest.raises(StoreLockedError, match="put together"):
        lake.tidied()
    (file,) = files_of(lake)

    assert places(lake.rows()) == expected(30)
    # That of the second one is gone.
    found = {str(path) for path in tmp_path.rglob("tidied-*")}
    assert found == {file.removeprefix("file://")}


def test_old_snapshots_and_files_of_nobody_go_and_young_ones_stay(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    filled(lake, store, 20, 30)
    of_killed_run = tmp_path / "warehouse" / "mq" / "messages" / "data" / "topic=a" / "part.parquet"
    of_killed_run.parent.mkdir()
    of_killed_run.write_bytes(b"half")
    first = lake.tidied()
    young = of_killed_run.exists()
    aged(tmp_path / "warehouse")
    by_age = lake.tidied()
    snapshots = len(lake.table().snapshots())
    everything = lake.tidied(keep=AT_ONCE)
    rows = lake.rows()
    named = {Path(name.removeprefix("file://")) for name in files_of(lake)}
    filled(lake, store, 30, 40)

    assert (first.expired, first.deleted, young) == (0, 0, True)
    # Nothing of a snapshot that is kept, however old its files are.
    assert (by_age.expired, by_age.deleted, by_age.bytes) == (0, 1, 4)
    assert snapshots == 3
    assert everything.expired == 2
    assert everything.deleted > 2
    assert set(tmp_path.rglob("*.parquet")) >= named
    assert places(rows) == expected(30)
    assert places(lake.rows()) == expected(40)
    assert by_place(lake.rows()) == seen_by_duck(lake.table())


def aged(folder: Path) -> None:
    """Let all files be two days old."""
    for path in folder.rglob("*"):
        stat = path.stat()
        os.utime(path, (stat.st_atime - 2 * 86_400, stat.st_mtime - 2 * 86_400))


def test_files_are_known_by_any_name_that_they_have(lake: Lake, tmp_path: Path) -> None:
    filled(lake, tmp_path / "store", 20)
    # As Hadoop writes it.
    far = Lake(
        {**lake.properties, "warehouse": lake.properties["warehouse"].replace("file://", "file:")}
    )
    far.archived(tmp_path / "store", into=far.opened("lake.mq.hadoop"))
    found = far.table("lake.mq.hadoop")
    done = far.tidied(into=far.opened("lake.mq.hadoop"), keep=AT_ONCE)
    table = far.table("lake.mq.hadoop")
    plain = table.location().replace("file:", "")

    assert found.location().startswith("file:/") and "//" not in found.location()
    assert done.into == 1
    assert places(far.rows("lake.mq.hadoop")) == expected(20)
    local = {
        table_tidy_job._path_of(table, f"{kind}{plain}/a") for kind in ("", "file:", "file://")
    }
    assert local == {f"{plain}/a"}
    names = {f"{kind}://bucket/a/b" for kind in ("s3", "s3a", "s3n")}
    assert {table_tidy_job._path_of(table, name) for name in names} == {"bucket/a/b"}


def test_a_table_that_is_not_there_is_not_made(lake: Lake) -> None:
    with pytest.raises(ConfigError, match="no such table"):
        IcebergTable.at(NAME, lake.properties, may_make=False)
    with pytest.raises(NoSuchTableError):
        lake.table()


def test_dying_before_any_commit_changes_nothing(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(lake, tmp_path / "store", 20, 30)
    before = files_of(lake)

    class Died(BaseException):
        pass

    def dying(*_args: Any) -> Any:
        raise Died

    commit_table = SqlCatalog.commit_table
    monkeypatch.setattr(SqlCatalog, "commit_table", dying)
    with pytest.raises(Died):
        lake.tidied()
    monkeypatch.setattr(SqlCatalog, "commit_table", commit_table)
    left = files_of(lake)
    lake.tidied()

    assert left == before
    assert places(lake.rows()) == expected(30)
    shutil.rmtree(tmp_path / "store")


NO_DISK = why_not()
PAGE = 4_096
PAGES_MAX = 100
"""More than all files of a small run take."""


@pytest.mark.long
@pytest.mark.skipif(bool(NO_DISK), reason=NO_DISK)
def test_a_full_disk_is_told_and_loses_nothing(lake: Lake, tmp_path: Path) -> None:
    disk = SmallMemory(tmp_path)
    disk.make()
    try:
        small = Lake({**lake.properties, "warehouse": f"file://{disk.mount}"})
        filled(small, tmp_path / "store", 20, 31)
        rows, refusals = small.rows(), []
        for pages in range(0, PAGES_MAX, 2):
            ballast = disk.mount / "ballast"
            with ballast.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, disk.free - pages * PAGE)
            try:
                small.tidied()
                break
            except StorageError as error:
                refusals.append(error)
            finally:
                ballast.unlink()
            assert small.rows() == rows
        merged = len(files_of(small))
        later = small.tidied(keep=AT_ONCE)
        filled(small, tmp_path / "store", 42)
        left = {path.name for path in disk.mount.rglob("*.parquet")}
        named = files_of(small)

        assert merged == 1
        assert len({error.message for error in refusals}) > 1
        assert all(error.details["table"] for error in refusals)
        assert {error.errno for error in refusals} == {errno.ENOSPC}
        assert later.deleted > 0
        assert left == {Path(name).name for name in named}
        assert places(small.rows()) == expected(42)
    finally:
        disk.unmount()
