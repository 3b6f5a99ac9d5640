"""A catalog in SQLite with its tables below a folder: runs into it, and what readers find."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import duckdb_extension_avro
import duckdb_extension_iceberg
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table

from ledgermq.cli.main import main
from ledgermq.pipeline.archive.archive_job import Archived, archive_into
from ledgermq.pipeline.source_options import SourceOptions, parse_options
from ledgermq.pipeline.tables.iceberg_table import IcebergTable
from ledgermq.pipeline.tables.table_tidy_job import Tidied, tidy
from tests.unit.pipeline.archives import TasksHere

Row = dict[str, Any]

NAME = "lake.mq.messages"
PART_BYTES = 600
"""Of the log, for a task: some messages."""

DAY = timedelta(days=1)
PLACE = ("topic", "queueId", "queueOffset")


@dataclass(frozen=True)
class Lake:
    """A catalog, by the properties that PyIceberg takes."""

    properties: dict[str, str]

    @classmethod
    def below(cls, folder: Path, uri: str | None = None) -> Lake:
        """In the database of ``uri``, else in SQLite; made when it is opened."""
        (folder / "warehouse").mkdir(exist_ok=True)
        return cls(
            {
                "uri": uri or f"sqlite:///{folder}/catalog.db",
                "warehouse": f"file://{folder}/warehouse",
            }
        )

    def opened(self, name: str = NAME) -> IcebergTable:
        """The table as a run opens it."""
        return IcebergTable.at(name, self.properties)

    def archived(
        self, store: Path, *, into: IcebergTable | None = None, **options: str
    ) -> Archived:
        """What a run on a store's directory has done; its tasks run in this process."""
        checked = parse_options({"path": str(store), **options}, streaming=False)
        return self.archived_by(checked, into or self.opened())

    def archived_by(self, options: SourceOptions, into: IcebergTable) -> Archived:
        """The same, by options of the source."""
        return archive_into(TasksHere(), options, into, split_bytes=PART_BYTES, level=-5)

    def tidied(self, *, into: IcebergTable | None = None, keep: timedelta = DAY) -> Tidied:
        """What ``tidy`` has done, of all files that such small stores give."""
        table = into or self.opened()
        return tidy(TasksHere(), table, small_bytes=1 << 20, keep=keep, level=-5)

    def table(self, name: str = NAME) -> Table:
        """The table as PyIceberg's users have it."""
        catalog, *path = name.split(".")
        return load_catalog(catalog, **self.properties).load_table(tuple(path))

    def rows(self, name: str = NAME) -> list[Row]:
        """What PyIceberg reads, by place."""
        return by_place(self.table(name).scan().to_arrow().to_pylist())


def by_place(rows: list[Row]) -> list[Row]:
    """Rows in the order of topic, queue and offset; properties as tables of Arrow have them."""
    return sorted(rows, key=lambda row: [row[name] for name in PLACE])


def places(rows: list[Row]) -> list[tuple[Any, ...]]:
    """Topic, queue and offset of each row."""
    return [tuple(row[name] for name in PLACE) for row in rows]


def duck() -> duckdb.DuckDBPyConnection:
    """DuckDB with its own reader of Iceberg."""
    connection = duckdb.connect()
    for module, name in ((duckdb_extension_avro, "avro"), (duckdb_extension_iceberg, "iceberg")):
        folder = Path(next(iter(module.__path__))) / "extensions" / f"v{duckdb.__version__}"
        connection.execute(f"LOAD '{folder / name}.duckdb_extension'")
    return connection


def seen_by_duck(table: Table) -> list[Row]:
    """What DuckDB reads of the current snapshot, by place."""
    found = duck().execute(f"SELECT * FROM iceberg_scan('{table.metadata_location}')")
    return by_place(found.to_arrow_table().to_pylist())


def run(capsys: pytest.CaptureFixture[str], *words: object, status: int = 0) -> dict[str, Any]:
    """What a command prints with ``--json``; of an error, that."""
    capsys.readouterr()
    found = main([*map(str, words), "--json"])
    printed = capsys.readouterr()

    assert found == status, printed.err
    document: dict[str, Any] = json.loads(printed.out or printed.err)
    return document


def properties_of(lake: Lake) -> list[str]:
    """The words that give a command the catalog."""
    given = lake.properties.items()
    return [word for name, value in given for word in ("--catalog-property", f"{name}={value}")]
