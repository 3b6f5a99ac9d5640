"""``columns=typed``: bodies as fields, by schemas that a real node has; nothing stops a stream."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, NamedTuple

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession

from ledgermq.client import Producer
from ledgermq.client.admin.broker_admins import SchemaAdmin
from ledgermq.client.broker_connection import connect_broker
from ledgermq.client.schemas.typed_bodies import TypedBodies
from ledgermq.model.names.schemas import SCHEMA_PROPERTY
from tests.process.client_node import start_client_node
from tests.process.conftest import Node, nodes_made, wait_until
from tests.suite.patience import PATIENCE_S

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PRICE = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "lines", "type": {"type": "array", "items": "string"}},
        {"name": "price", "type": PRICE},
    ],
}  # fmt: skip
VALUE = {"id": 7, "lines": ["a", "b"], "price": Decimal("12.50")}
BAD = [
    (b"\xff" * 12, "1", "its schema cannot be read"),
    (b"7", "999", "no schema has its id"),
    (b"plain", None, "it names none"),
    (b"", "1", "it is empty"),
    (b"7", "2", "it is of a schema of another kind"),
]


class Typed(NamedTuple):
    """A node with a schema of ``orders`` (id 1) and one of ``other`` (id 2)."""

    node: Node
    address: str

    def send(self, body: bytes, properties: dict[str, str]) -> None:
        with Producer(self.address) as producer:
            sent = producer.send("orders", body, properties=properties, queue_id=0)
            end = sent.result(PATIENCE_S).queue_offset + 1
        with connect_broker(self.address, name="test", timeout_s=PATIENCE_S) as broker:
            wait_until(lambda: broker.queue("orders", 0).end >= end, "dispatch")

    def send_bad(self) -> None:
        for body, identity, _ in BAD:
            self.send(body, {} if identity is None else {SCHEMA_PROPERTY: identity})

    def register(self, subject: str, kind: str, schema: object, rule: str | None = None) -> None:
        with connect_broker(self.address, name="test", timeout_s=PATIENCE_S) as broker:
            SchemaAdmin(broker).register(subject, kind, json.dumps(schema), compatibility=rule)

    def send_value(self, value: dict[str, Any]) -> None:
        with connect_broker(self.address, name="test", timeout_s=PATIENCE_S) as broker:
            typed = TypedBodies(broker).write("orders-value", value)
        self.send(typed.body, typed.properties)


@pytest.fixture(scope="module")
def typed() -> Iterator[Typed]:
    with nodes_made() as make:
        node = make()
        start_client_node(node)
        made = Typed(node, f"ipc://{node.runtime}")
        made.register("orders-value", "AVRO", ORDER)
        made.register("other", "JSON", {"type": "integer"})
        made.send_value(VALUE)
        made.send_bad()
        yield made


@pytest.mark.parametrize("way", ["path", "nodes"])
def test_bodies_are_fields_and_what_is_none_is_kept_with_its_reason(
    spark: SparkSession, typed: Typed, way: str
) -> None:
    place = str(typed.node.root) if way == "path" else typed.address
    reader = spark.read.format("ledgermq").option(way, place)
    frame = reader.options(subscribe="orders", columns="queueOffset,typed").load()
    first, *others = frame.where(f"queueOffset < {len(BAD) + 1}").orderBy("queueOffset").collect()

    assert frame.schema["value"].dataType.simpleString() == (
        "struct<id:bigint,lines:array<string>,price:decimal(9,2)>"
    )
    assert first.value.asDict() == VALUE
    assert (first.schemaId, first.unparsed, first.unparsedWhy) == (1, None, None)
    assert [row.value for row in others] == [None] * len(BAD)
    assert [bytes(row.unparsed) for row in others] == [body for body, *_ in BAD]
    assert all(row.unparsedWhy for row in others)


def test_a_stream_goes_on_over_bad_bodies_and_a_schema_that_came_later(
    spark: SparkSession, typed: Typed
) -> None:
    reader = spark.readStream.format("ledgermq").option("nodes", typed.address)
    options = {"subscribe": "orders", "columns": "typed", "startingOffsets": "latest"}
    query = reader.options(**options).load().writeStream.format("memory").queryName("typed").start()

    def all_rows() -> list[Row]:
        # What was acknowledged may not be in the queues yet.
        query.processAllAvailable()
        rows = spark.sql("select value.id, schemaId, unparsed from typed").collect()
        return rows if len(rows) > len(BAD) else []

    try:
        wait_until(lambda: query.lastProgress is not None or query.isActive, "the stream")
        query.processAllAvailable()
        typed.send_bad()
        later = {**ORDER, "fields": [*ORDER["fields"], {"name": "n", "type": "int", "default": 0}]}
        typed.register("orders-value", "AVRO", later)
        typed.send_value({**VALUE, "id": 8, "n": 1})
        rows = wait_until(all_rows, "the rows of all messages")
    finally:
        query.stop()

    assert [(row.id, row.schemaId) for row in rows if row.unparsed is None] == [(8, 3)]
    assert len(rows) == len(BAD) + 1


def test_typed_columns_of_a_topic_without_a_schema_are_refused(
    spark: SparkSession, typed: Typed
) -> None:
    reader = spark.read.format("ledgermq").option("path", str(typed.node.root))
    with pytest.raises(PySparkException, match="no subject has a schema"):
        reader.options(subscribe="nothing", columns="typed").load().collect()
