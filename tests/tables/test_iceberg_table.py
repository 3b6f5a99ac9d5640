"""A table has each message of the queues once, and each run is one snapshot."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from sqlalchemy.exc import OperationalError

from ledgermq.model.errors import ConfigError, CorruptLogError, StorageError, StoreLockedError
from ledgermq.pipeline.archive import archive_writer
from ledgermq.pipeline.archive.archive_layout import day_of
from ledgermq.pipeline.columns.message_schema import COLUMNS
from ledgermq.pipeline.columns.row_filter import RowFilter
from ledgermq.pipeline.source.store_source import StoreSource
from ledgermq.pipeline.tables import iceberg_table, table_catalog, table_columns
from tests import small_store
from tests.row_batches import batches_of
from tests.small_store import BEGIN_MS, write_store
from tests.tables.lake import NAME, Lake, by_place, places, seen_by_duck
from tests.unit.store import records

pytestmark = pytest.mark.slow


def grown(root: Path, messages: int, *, begin_ms: int = BEGIN_MS) -> Path:
    """The small store with so many messages; the first ones are those of a smaller one."""
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    write_store(root, messages=messages, begin_ms=begin_ms)
    return root


def source_rows(root: Path) -> list[dict[str, Any]]:
    """The log's own rows."""
    source = StoreSource(root)
    bounds = source.bounds(source.queues())
    ranges = [range_ for range_ in bounds.values() if range_.first < range_.end]
    read = source.read(ranges, fail_on_data_loss=True)
    rows = [
        row
        for batch in batches_of(read, COLUMNS, RowFilter(), inflate=True)
        for row in batch.to_pylist()
    ]
    source.close()
    return by_place(rows)


def expected(messages: int) -> list[tuple[str, int, int]]:
    return sorted(("orders", number % 2, number // 2) for number in range(messages))


def runs_of(table: Table) -> list[str]:
    """The number of the run that each snapshot says."""
    summaries = [snapshot.summary for snapshot in table.snapshots()]
    return [one.additional_properties.get("ledgermq.run", "") for one in summaries if one]


def put_in_order(table: Table) -> None:
    """A snapshot of somebody else, who changes no row."""
    with table.transaction() as transaction, transaction.update_snapshot().fast_append():
        pass


def data_files(lake_folder: Path) -> set[str]:
    return {path.name for path in lake_folder.rglob("*.parquet")}


def test_readers_find_the_rows_of_the_log(lake: Lake, tmp_path: Path) -> None:
    store = grown(tmp_path / "store", 30)
    first = lake.archived(store)
    store = grown(tmp_path / "store", 41)
    second = lake.archived(store)
    again = lake.archived(store)
    table = lake.table()
    of_log = source_rows(store)

    assert (first.rows, second.rows, again.run) == (30, 11, None)
    assert places(of_log) == expected(41)
    assert lake.rows() == of_log
    assert seen_by_duck(table) == of_log
    assert runs_of(table) == ["1", "2"]


@pytest.mark.parametrize("run_rows_min", [1, archive_writer.RUN_ROWS_MIN])
def test_files_have_one_partition_and_are_sorted(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_rows_min: int
) -> None:
    # Of one row each: they are put together as they are, or copied.
    monkeypatch.setattr(archive_writer, "RUN_ROWS_MIN", run_rows_min)
    monkeypatch.setattr(archive_writer, "SORTED_BYTES", 1_500)
    monkeypatch.setattr(archive_writer, "GROUP_BYTES", 500)
    lake.archived(grown(tmp_path / "store", 60), subscribePattern=".*")
    table = lake.table()
    tasks = list(table.scan().plan_files())
    found = []
    for task in tasks:
        file = task.file
        rows = pq.ParquetFile(file.file_path.removeprefix("file://")).read().to_pylist()
        offsets = [(row["queueId"], row["queueOffset"]) for row in rows]
        found += offsets

        assert offsets == sorted(offsets)
        assert file.sort_order_id == table.sort_order().order_id > 0
        assert [file.partition[0], file.partition[1]] == [day_of(BEGIN_MS), "orders"]
        assert file.record_count == len(rows)
    by_queue = table.scan(row_filter="queueId = 1 and queueOffset >= 20")

    assert len(found) == len(set(found)) == 60
    assert len(tasks) > 3
    # Least and largest offsets of the manifest leave files out.
    assert 0 < len(list(by_queue.plan_files())) < len(tasks)
    assert by_queue.to_arrow().num_rows == 10


YEAR_11476 = 300_000_000_000_000


def test_a_clients_time_of_no_calendar_does_not_stop_a_run(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def record(body: bytes, **more: Any) -> bytes:
        content = records.record(body, **more)
        return content.replace(
            (1_600_000_000_000 + more["number"]).to_bytes(8, "big"), YEAR_11476.to_bytes(8, "big")
        )

    monkeypatch.setattr(small_store, "record", record)
    found = lake.archived(grown(tmp_path / "store", 20))
    read = lake.table().scan("queueOffset >= 5").to_arrow()
    times = read.column("bornTimestamp").cast(pa.int64()).to_pylist()

    assert found.rows == 20
    assert times == [YEAR_11476 * 1_000] * 10
    assert lake.tidied().into == 1


def test_a_store_time_of_no_calendar_is_told(lake: Lake, tmp_path: Path) -> None:
    store = grown(tmp_path / "store", 20, begin_ms=YEAR_11476)
    with pytest.raises(ConfigError, match="no calendar") as refused:
        lake.archived(store)

    assert refused.value.details["topic"] == "orders"
    assert data_files(tmp_path) == set()


def test_of_two_runs_at_once_the_second_is_refused(lake: Lake, tmp_path: Path) -> None:
    store = grown(tmp_path / "store", 30)
    lake.archived(store)
    store = grown(tmp_path / "store", 40)
    late = lake.opened()
    lake.archived(store)
    files = data_files(tmp_path)
    with pytest.raises(StoreLockedError) as refused:
        lake.archived(store, into=late)

    assert refused.value.details["table"] == NAME
    assert places(lake.rows()) == expected(40)
    assert runs_of(lake.table()) == ["1", "2"]
    # What it has written is gone with it.
    assert data_files(tmp_path) == files
    assert lake.archived(store).run is None


def test_two_that_begin_a_table_make_one(lake: Lake, tmp_path: Path) -> None:
    store = grown(tmp_path / "store", 10)
    early, late = lake.opened(), lake.opened()
    lake.archived(store, into=early)
    with pytest.raises(StoreLockedError):
        lake.archived(store, into=late)

    assert places(lake.rows()) == expected(10)


def test_who_changes_the_table_meanwhile_does_not_hold_a_run_up(lake: Lake, tmp_path: Path) -> None:
    store = grown(tmp_path / "store", 20)
    lake.archived(store)
    store = grown(tmp_path / "store", 30)
    late = lake.opened()
    with lake.table().transaction() as transaction:
        transaction.set_properties({"owner": "somebody"})
    put_in_order(lake.table())
    lake.archived(store, into=late)
    table = lake.table()

    assert table.properties["owner"] == "somebody"
    assert runs_of(table) == ["1", "", "2"]
    assert places(lake.rows()) == expected(30)


def test_columns_that_change_meanwhile_refuse_a_run(lake: Lake, tmp_path: Path) -> None:
    store = grown(tmp_path / "store", 20)
    lake.archived(store)
    store = grown(tmp_path / "store", 30)
    late = lake.opened()
    files = data_files(tmp_path)
    with lake.table().update_schema() as update:
        update.delete_column("raftTerm")
    put_in_order(lake.table())
    with pytest.raises(StoreLockedError, match="changed"):
        lake.archived(store, into=late)

    assert len(data_files(tmp_path) - files) == 0
    assert places(lake.rows()) == expected(20)


def test_a_commit_whose_answer_is_lost_is_found(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit_table = SqlCatalog.commit_table
    errors = [
        OperationalError("", {}, Exception("gone")),
        CommitFailedException("a try before had done it"),
    ]

    def losing(catalog: SqlCatalog, *args: Any) -> Any:
        answer = commit_table(catalog, *args)
        if errors:
            raise errors.pop()
        return answer

    monkeypatch.setattr(SqlCatalog, "commit_table", losing)
    for messages in (20, 30):
        lake.archived(grown(tmp_path / "store", messages))

    assert errors == []
    assert places(lake.rows()) == expected(30)
    assert runs_of(lake.table()) == ["1", "2"]


def test_a_catalog_that_is_locked_refuses_a_run_and_nothing_is_lost(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = grown(tmp_path / "store", 20)
    commit_table = SqlCatalog.commit_table

    def locked(catalog: SqlCatalog, *args: Any) -> Any:
        raise OperationalError("UPDATE", {}, Exception("database is locked"))

    monkeypatch.setattr(SqlCatalog, "commit_table", locked)
    with pytest.raises(StorageError, match="not added") as refused:
        lake.archived(store)
    monkeypatch.setattr(SqlCatalog, "commit_table", commit_table)
    lake.archived(store)

    assert refused.value.details["reason"] == "database is locked"
    assert places(lake.rows()) == expected(20)


def test_columns_that_came_later_are_added(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = grown(tmp_path / "store", 20)
    later = ("raftTerm", "properties", "storeHost")
    earlier = tuple(name for name in COLUMNS if name not in later)
    monkeypatch.setattr(table_columns, "TABLE_COLUMNS", earlier)
    lake.archived(store)
    monkeypatch.setattr(table_columns, "TABLE_COLUMNS", COLUMNS)
    store = grown(tmp_path / "store", 32)
    lake.archived(store)
    of_log = source_rows(store)
    for row in of_log:
        if row["queueOffset"] < 10:
            row.update(dict.fromkeys(later))
    table = lake.table()
    found = [{name: row[name] for name in COLUMNS} for row in lake.rows()]

    assert sorted(table.schema().column_names) != sorted(earlier)
    assert found == of_log
    assert [{name: row[name] for name in COLUMNS} for row in seen_by_duck(table)] == of_log


def test_an_owner_may_widen_add_and_rename_what_is_his(lake: Lake, tmp_path: Path) -> None:
    from pyiceberg.types import LongType, StringType

    lake.archived(grown(tmp_path / "store", 20))
    with lake.table().update_schema() as update:
        update.update_column("queueId", LongType())
        update.add_column("note", StringType())
    lake.archived(grown(tmp_path / "store", 30))
    rows = lake.rows()

    assert places(rows) == expected(30)
    assert {row["note"] for row in rows} == {None}
    assert len(seen_by_duck(lake.table())) == 30


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda t: t.update_spec().remove_field("day"), "partitions"),
        (
            lambda t: t.update_schema().delete_column("keys").rename_column("tags", "keys"),
            "",
        ),
    ],
)
def test_other_partitions_are_refused(
    lake: Lake, tmp_path: Path, change: Callable[[Table], Any], what: str
) -> None:
    store = grown(tmp_path / "store", 20)
    lake.opened()
    change(lake.table()).commit()
    if what:
        with pytest.raises(ConfigError, match=what):
            lake.archived(store)
    else:
        assert lake.archived(store).rows == 20


def test_a_table_of_somebody_else_is_refused(lake: Lake, tmp_path: Path) -> None:
    store = grown(tmp_path / "store", 20)
    lake.archived(store)
    catalog = load_catalog("lake", **lake.properties)
    source = lake.table()
    other = catalog.create_table("mq.other", source.schema())
    other.append(source.scan().to_arrow())
    catalog.create_table("mq.strange", source.schema().select("topic"))
    for name, what in (("lake.mq.other", "no archive has written"), ("lake.mq.strange", "partit")):
        with pytest.raises(ConfigError, match=what):
            lake.archived(store, into=lake.opened(name))


def test_a_run_goes_on_when_its_snapshots_have_expired(lake: Lake, tmp_path: Path) -> None:
    lake.archived(grown(tmp_path / "store", 20))
    # Somebody else's snapshot stands over it, as one that has put files together.
    put_in_order(lake.table())
    table = lake.table()
    table.maintenance.expire_snapshots().by_id(table.snapshots()[0].snapshot_id).commit()
    lake.archived(grown(tmp_path / "store", 30))

    assert runs_of(lake.table()) == ["", "2"]
    assert places(lake.rows()) == expected(30)


def test_a_table_that_was_put_back_and_forgot_is_refused(lake: Lake, tmp_path: Path) -> None:
    lake.opened()
    put_in_order(lake.table())
    with pytest.raises(ConfigError, match="no archive has written"):
        lake.opened()
    first = lake.table().current_snapshot()
    assert first is not None
    lake.table().manage_snapshots().create_tag(first.snapshot_id, "kept").commit()
    lake.table().manage_snapshots().remove_branch("main").commit()
    lake.archived(grown(tmp_path / "store", 20))
    lake.table().manage_snapshots().set_current_snapshot(ref_name="kept").commit()
    with pytest.raises(ConfigError, match="snapshots have expired"):
        lake.opened()


def test_a_table_that_is_dropped_meanwhile_is_told(lake: Lake, tmp_path: Path) -> None:
    store = grown(tmp_path / "store", 20)
    lake.archived(store)
    late = lake.opened()
    load_catalog("lake", **lake.properties).drop_table("mq.messages")
    with pytest.raises(StoreLockedError, match="dropped"):
        lake.archived(grown(store, 30), into=late)
    late = lake.opened()
    load_catalog("lake", **lake.properties).drop_table("mq.messages")
    lake.opened()
    with pytest.raises(StoreLockedError, match="dropped"):
        lake.archived(store, into=late)
    lake.archived(store)

    assert places(lake.rows()) == expected(30)


def test_a_table_that_is_put_back_is_filled_again(lake: Lake, tmp_path: Path) -> None:
    lake.archived(grown(tmp_path / "store", 20))
    store = grown(tmp_path / "store", 30)
    lake.archived(store)
    first, second = lake.table().snapshots()
    lake.table().manage_snapshots().rollback_to_snapshot(first.snapshot_id).commit()
    back = places(lake.rows())
    lake.archived(store)

    assert back == expected(20)
    assert places(lake.rows()) == expected(30)
    assert second.snapshot_id not in [one.parent_snapshot_id for one in lake.table().snapshots()]


def test_many_queues_are_kept_compressed_and_bounded(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(iceberg_table, "PLAIN_TEXT_MAX", 10)
    lake.archived(grown(tmp_path / "store", 20))
    again = lake.archived(grown(tmp_path / "store", 20))
    lake.archived(grown(tmp_path / "store", 30))
    kept = lake.table().properties["ledgermq.queues"]
    monkeypatch.setattr(iceberg_table, "STATE_BYTES_MAX", 20)
    with pytest.raises(CorruptLogError, match="not read") as refused:
        lake.opened()

    assert kept.startswith("zlib:")
    assert again.run is None
    assert places(lake.rows()) == expected(30)
    assert refused.value.details["property"] == "ledgermq.queues"


def test_a_document_of_the_table_that_is_damaged_is_told(lake: Lake, tmp_path: Path) -> None:
    store = grown(tmp_path / "store", 20)
    lake.archived(store)
    document = Path(lake.table().metadata_location.removeprefix("file://"))
    document.write_text(document.read_text().replace('"format-version"', '"format-vision"'))
    with pytest.raises(CorruptLogError, match="metadata"):
        lake.archived(store)
    document.unlink()
    with pytest.raises(StorageError, match="not opened"):
        lake.archived(store)


def test_names_and_catalogs_that_are_not_taken_are_told(lake: Lake, tmp_path: Path) -> None:
    for name in ("lake", "lake.messages", "lake..messages"):
        with pytest.raises(ConfigError, match="not the name of a table"):
            lake.opened(name)
    for properties, what in (
        ({}, "not described"),
        ({"type": "hadoop", "warehouse": str(tmp_path)}, "no such kind"),
        ({"uri": "thrift://somewhere"}, "no such kind"),
        ({"uri": "jdbc:postgresql://somewhere/lake?password=secret"}, "SQLAlchemy"),
        ({"uri": "strange://lake:secret@somewhere"}, "not described"),
        ({"uri": "sqlite:////nowhere/at/all.db"}, "catalog not opened"),
        ({"uri": f"sqlite:///{tmp_path}/a.db"}, "warehouse"),
    ):
        with pytest.raises((ConfigError, StorageError), match=what) as refused:
            Lake(properties).opened()

        assert "secret" not in str(refused.value)


def test_another_version_of_pyiceberg_is_told(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_catalog, "VERSIONS", ("0.13", "0.14"))
    with pytest.raises(ConfigError, match=r"pip install 'ledgermq\[iceberg\]'"):
        lake.opened()
