"""Spark with Iceberg's runtime reads tables from their catalogs, and what it changes is kept."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy.engine import make_url

from ledgermq.pipeline.source_options import parse_options
from tests.buckets.test_readers import program
from tests.process.client_node import start_client_node
from tests.process.conftest import nodes_made
from tests.process.group_nodes import free_port
from tests.spark.test_typed_columns import BAD, Typed
from tests.tables.lake import Lake, by_place, places, properties_of, seen_by_duck
from tests.tables.spark_reader import SparkReader, class_path
from tests.tables.sql_server import SqlServer, served
from tests.tables.test_typed_table import EARLIER, FIRST, LATER, SECOND
from tests.unit.pipeline.test_archive_job import expected, grown

pytestmark = [pytest.mark.slow, pytest.mark.long]

NAME = "lake.mq.orders"
WITH_NOTE = f"SELECT value.id, value.note FROM {NAME} WHERE value.note = 'there'"
WITHOUT_NOTE = f"SELECT queueOffset FROM {NAME} WHERE value IS NOT NULL AND value.note IS NULL"
PASSWORD = "only-on-loopback"


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> SparkReader:
    return SparkReader(class_path(tmp_path_factory.mktemp("spark")))


@pytest.fixture
def typed() -> Iterator[Typed]:
    """A node whose topic ``orders`` has a schema."""
    with nodes_made() as make:
        node = make()
        start_client_node(node)
        made = Typed(node, f"ipc://{node.runtime}")
        made.register("orders-value", "AVRO", FIRST)
        # What is of another kind in `BAD`.
        made.register("other", "JSON", {"type": "integer"})
        yield made


def of_sqlite(lake: Lake) -> dict[str, str]:
    """The catalog as Spark takes it."""
    return {
        "type": "jdbc",
        "uri": "jdbc:" + lake.properties["uri"].replace(":///", ":"),
        "warehouse": lake.properties["warehouse"],
    }


def archived(typed: Typed, lake: Lake) -> dict[str, Any]:
    """What the command prints."""
    words = ["-m", "ledgermq.cli.main", "spark", "archive", "--nodes", typed.address, "--json"]
    words += ["--topics", "orders", "--iceberg", NAME, "--columns", "typed", *properties_of(lake)]
    found: dict[str, Any] = json.loads(program(*words))
    return found


def test_three_readers_have_the_rows_of_a_schema_that_has_grown(
    typed: Typed, reader: SparkReader, tmp_path: Path
) -> None:
    lake = Lake.below(tmp_path)
    typed.send_value(EARLIER)
    first = archived(typed, lake)
    # A decimal of more digits is not one that Avro reads the other as.
    typed.register("orders-value", "AVRO", SECOND, "NONE")
    typed.send_value(LATER)
    typed.send_bad()
    second = archived(typed, lake)
    rows = lake.rows(NAME)
    by_duck = seen_by_duck(lake.table(NAME))
    delete = f"DELETE FROM {NAME} WHERE queueOffset = 0"
    by_spark, with_note, without_note = reader.rows(
        [f"SELECT * FROM {NAME}", WITH_NOTE, WITHOUT_NOTE, delete], of_sqlite(lake), tmp_path / "a"
    )
    typed.send_value(LATER)
    options = {"nodes": typed.address, "subscribe": "orders", "columns": "typed"}
    third = lake.archived_by(parse_options(options, streaming=False), lake.opened(NAME))

    assert (first["messages"], first["unparsed"]) == (1, 0)
    assert (second["messages"], second["unparsed"]) == (1 + len(BAD), len(BAD))
    assert [row["value"] and row["value"]["id"] for row in rows][:3] == [1, 1 << 40, None]
    assert [bytes(row["unparsed"]) for row in rows[2:]] == [body for body, *_ in BAD]
    assert by_duck == rows
    assert by_place(by_spark) == rows
    assert with_note == [{"id": 1 << 40, "note": "there"}]
    assert without_note == [{"queueOffset": 0}]
    # Spark has put other files into the table, and a run goes on behind them.
    assert third.rows == 1
    assert lake.rows(NAME)[:-1] == rows[1:]
    assert lake.rows(NAME)[-1]["value"]["note"] == "there"


@pytest.fixture
def server() -> Iterator[tuple[SqlServer, int]]:
    """A server at a port of loopback, since Java's driver knows no Unix sockets."""
    port = free_port()
    with served(port) as running:
        yield running, port


def test_spark_needs_only_to_look_at_a_catalog_in_postgresql(
    server: tuple[SqlServer, int], reader: SparkReader, lake: Lake, tmp_path: Path
) -> None:
    running, port = server
    address = running.new_database()
    sql_lake = Lake.below(tmp_path, address)
    sql_lake.archived(grown(tmp_path / "store", 31))
    engine = sqlalchemy.create_engine(address)
    with engine.begin() as connection:
        for statement in (
            f"CREATE ROLE looker LOGIN PASSWORD '{PASSWORD}'",
            "GRANT SELECT ON iceberg_tables, iceberg_namespace_properties TO looker",
        ):
            connection.execute(sqlalchemy.text(statement))
    engine.dispose()
    passwords = tmp_path / "pgpass"
    passwords.write_text(f"127.0.0.1:{port}:*:looker:{PASSWORD}\n")
    passwords.chmod(0o600)
    catalog = {
        "type": "jdbc",
        "uri": f"jdbc:postgresql://127.0.0.1:{port}/{make_url(address).database}",
        "jdbc.user": "looker",
        "warehouse": sql_lake.properties["warehouse"],
    }
    (found,) = reader.rows(
        ["SELECT * FROM lake.mq.messages"],
        catalog,
        tmp_path / "answers",
        {"PGPASSFILE": os.fspath(passwords)},
    )

    assert places(by_place(found)) == expected(31)
    assert by_place(found) == sql_lake.rows()
