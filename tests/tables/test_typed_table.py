"""A table whose bodies are fields, too: they follow the schema, and no body stops a run."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import Table
from pyiceberg.types import IntegerType, LongType, StringType, UUIDType

from ledgermq.client.schemas.body_codecs import codec_of
from ledgermq.formats.records.body_compression import Compression, compress_body
from ledgermq.formats.records.message import COMPRESSED, Message, encode_message
from ledgermq.formats.records.properties import encode_properties
from ledgermq.model.errors import ConfigError, CorruptLogError, StoreLockedError
from ledgermq.model.names.schemas import SCHEMA_PROPERTY
from ledgermq.pipeline.archive.archive_folder import check_archive, file_faults
from ledgermq.pipeline.archive.archive_job import Archived, archive
from ledgermq.pipeline.archive.archive_layout import decode_run
from ledgermq.pipeline.archive.folder_store import FolderStore
from ledgermq.pipeline.source_options import SourceOptions, parse_options
from ledgermq.pipeline.typed.subject_type import subject_type
from ledgermq.verbs.schemas import RegisteredSchema
from tests import small_store
from tests.small_store import write_store
from tests.tables.lake import Lake, seen_by_duck
from tests.unit.pipeline.archives import TasksHere, visible_rows
from tests.unit.store.records import TOPIC

pytestmark = pytest.mark.slow

ZLIB = 5


def record_of(*fields_: tuple[str, object], name: str = "Order") -> dict[str, Any]:
    """A schema of Avro."""
    fields = [{"name": one, "type": ["null", kind], "default": None} for one, kind in fields_]
    return {"type": "record", "name": name, "fields": fields}


LINE = record_of(("sku", "string"), ("count", "int"), name="Line")
LATER_LINE = record_of(("sku", "string"), ("count", "long"), ("gift", "boolean"), name="Line")
MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
MORE_MONEY = {**MONEY, "precision": 12}
AT = {"type": "long", "logicalType": "timestamp-millis"}

FIRST = record_of(
    ("id", "int"),
    ("lines", {"type": "array", "items": ["null", LINE]}),
    ("prices", {"type": "map", "values": MONEY}),
    ("at", AT),
    ("old", "string"),
)
SECOND = record_of(
    ("id", "long"),
    ("lines", {"type": "array", "items": ["null", LATER_LINE]}),
    ("prices", {"type": "map", "values": MORE_MONEY}),
    ("at", AT),
    ("note", "string"),
)
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
EARLIER = {
    "id": 1,
    "lines": [{"sku": "a", "count": 2}, None],
    "prices": {"a": Decimal("12.50")},
    "at": NOON,
    "old": "gone",
}
LATER = {
    "id": 1 << 40,
    "lines": [{"sku": "b", "count": 1 << 40, "gift": True}],
    "prices": {"b": Decimal("1234567890.25")},
    "at": NOON,
    "note": "there",
}


@dataclass
class TypedStore:
    """A store of one topic whose messages are written by versions of a schema, ids from 1."""

    root: Path
    monkeypatch: pytest.MonkeyPatch
    schemas: list[tuple[str, object]] = field(default_factory=list)
    bodies: list[tuple[bytes, str | None, int]] = field(default_factory=list)

    def register(self, schema: object, kind: str = "AVRO") -> None:
        self.schemas.append((kind, schema))

    def write(self, value: object) -> bytes:
        """One message by the last version."""
        body = self.body(value)
        self.add(body, str(len(self.schemas)))
        return body

    def body(self, value: object) -> bytes:
        """A body by the last version."""
        number = len(self.schemas)
        kind, text = self.schemas[-1]
        codec = codec_of(RegisteredSchema("orders", number, number, kind, json.dumps(text)))
        return codec.encode(value)

    def add(self, body: bytes, identity: str | None, sys_flag: int = 0) -> None:
        self.bodies.append((body, identity, sys_flag))

    def record(self, _: bytes, *, number: int, queue_id: int, header_size: int) -> bytes:
        body, identity, sys_flag = self.bodies[number]
        told = {} if identity is None else {SCHEMA_PROPERTY: identity}
        message = Message(
            topic=TOPIC,
            queue_id=queue_id,
            body=body,
            properties=encode_properties(told),
            born_timestamp=1_600_000_000_000 + number,
            born_host=("10.0.0.1", 1_234),
            sys_flag=sys_flag,
        )
        return bytes(header_size) + encode_message(message)

    def options(self, **more: str) -> SourceOptions:
        """The store as it is now, written anew."""
        shutil.rmtree(self.root, ignore_errors=True)
        self.root.mkdir()
        self.monkeypatch.setattr(small_store, "record", self.record)
        write_store(self.root, messages=len(self.bodies))
        versions = {
            str(number): {"id": number, "type": kind, "schema": json.dumps(text)}
            for number, (kind, text) in enumerate(self.schemas, 1)
        }
        subjects = {"orders": {"versions": versions}} if versions else {}
        (self.root / "ledgermq" / "schemas.json").write_text(json.dumps({"subjects": subjects}))
        given = {"path": str(self.root), "subscribe": "orders", "columns": "typed", **more}
        return parse_options({name: text for name, text in given.items() if text}, streaming=False)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TypedStore:
    return TypedStore(tmp_path / "store", monkeypatch)


def archived(lake: Lake, store: TypedStore, **more: str) -> Archived:
    return lake.archived_by(store.options(**more), lake.opened())


def in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """As they were sent: the small store has two queues by turns."""
    return sorted(rows, key=lambda row: (row["queueOffset"], row["queueId"]))


def summary(table: Table) -> dict[str, str]:
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    return snapshot.summary.additional_properties


def prices(rows: list[dict[str, Any]]) -> list[dict[str, Decimal]]:
    return [dict(row["value"]["prices"]) for row in rows]


def test_fields_follow_the_schema_and_the_body_stays(lake: Lake, store: TypedStore) -> None:
    store.register(FIRST)
    sent = [store.write(EARLIER)]
    first = archived(lake, store)
    store.register(SECOND)
    sent.append(store.write(LATER))
    second = archived(lake, store)
    table = lake.table()
    rows = in_order(lake.rows())
    by_duck = in_order(seen_by_duck(table))
    of_file = {task.file.file_path: task.file.lower_bounds for task in table.scan().plan_files()}

    assert (first.rows, first.unparsed, second.rows, second.unparsed) == (1, 0, 1, 0)
    assert [row["body"] for row in rows] == sent
    assert [row["schemaId"] for row in rows] == [1, 2]
    assert [row["unparsed"] for row in rows] == [row["unparsedWhy"] for row in rows] == [None] * 2
    assert [row["value"]["id"] for row in rows] == [1, 1 << 40]
    assert [row["value"]["old"] for row in rows] == ["gone", None]
    assert [row["value"]["note"] for row in rows] == [None, "there"]
    assert [row["value"]["at"] for row in rows] == [NOON, NOON]
    assert [row["value"]["lines"] for row in rows] == [
        [{"sku": "a", "count": 2, "gift": None}, None],
        [{"sku": "b", "count": 1 << 40, "gift": True}],
    ]
    assert prices(rows) == [EARLIER["prices"], LATER["prices"]]
    assert by_duck == rows
    assert summary(table)["ledgermq.version"] == "2"
    assert json.loads(summary(table)["ledgermq.subjects"]) == ["orders", "orders-value"]
    bodies = table.schema().find_field("value").field_id
    assert all(bodies not in bounds for bounds in of_file.values())


def test_no_body_stops_a_run(lake: Lake, store: TypedStore) -> None:
    store.register({"type": "integer"}, "JSON")
    store.register(FIRST)
    good = store.body(EARLIER)
    packed = compress_body(good, Compression.ZLIB, ZLIB)
    stored = [
        (good, "2", 0),
        (packed, "2", COMPRESSED),
        (b"\0\0\0\0\2" + good, None, 0),
        (b"\xff" * 12, "2", 0),
        (b"7", "1", 0),
        (b"", "2", 0),
        (good, "9", 0),
        (good, None, 0),
        (compress_body(b"none", Compression.ZLIB, ZLIB), "2", COMPRESSED),
        (b"no zlib", "2", COMPRESSED),
    ]
    for one in stored:
        store.add(*one)
    found = archived(lake, store)
    rows = in_order(lake.rows())
    unparsed = [row for row in rows if row["unparsed"] is not None]
    sent = [body for body, *_ in stored]
    sent[1], sent[8] = good, b"none"

    assert [row["body"] for row in rows] == sent
    assert [row["value"] and row["value"]["old"] for row in rows] == ["gone"] * 3 + [None] * 7
    assert [row["unparsed"] for row in unparsed] == sent[3:]
    assert all(row["unparsedWhy"] for row in unparsed)
    assert [row["schemaId"] for row in rows] == [2, 2, 2, 2, 1, 2, 9, None, 2, 2]
    assert in_order(seen_by_duck(lake.table())) == rows
    assert (found.rows, found.unparsed) == (10, 7)
    assert summary(lake.table())["ledgermq.unparsed"] == "7"


def test_stored_bodies_stay_as_they_are(lake: Lake, store: TypedStore) -> None:
    store.register(FIRST)
    packed = compress_body(store.body(EARLIER), Compression.ZLIB, ZLIB)
    store.add(packed, "1", COMPRESSED)
    archived(lake, store, inflateBodies="false")
    (row,) = lake.rows()

    assert row["body"] == packed
    assert row["value"]["old"] == "gone"


def test_a_table_may_become_typed_and_stays_so(lake: Lake, store: TypedStore) -> None:
    store.register(FIRST)
    store.write(EARLIER)
    archived(lake, store, columns="")
    store.write(EARLIER)
    second = archived(lake, store)
    store.write(EARLIER)
    rows = in_order(lake.rows())

    assert second.rows == 1
    assert [row["value"] and row["value"]["id"] for row in rows] == [None, 1]
    assert [row["unparsedWhy"] for row in rows] == [None, None]
    columns = lake.table().schema()
    store.register(SECOND)
    for more in ({"columns": ""}, {"subject": "other"}, {"inflateBodies": "false"}):
        with pytest.raises(ConfigError, match="begun otherwise"):
            archived(lake, store, **more)

    # Nothing was changed for runs that were refused.
    assert lake.table().schema() == columns
    assert archived(lake, store).rows == 1


def test_without_a_schema_a_table_goes_on_and_does_not_begin(lake: Lake, store: TypedStore) -> None:
    store.add(b"1", None)
    with pytest.raises(ConfigError, match="no subject has a schema"):
        archived(lake, store)
    store.register({"type": "integer"}, "JSON")
    archived(lake, store)
    store.schemas.clear()
    store.add(b"7", "1")
    archived(lake, store)
    rows = in_order(lake.rows())

    assert lake.table().schema().find_field("value").field_type == LongType()
    assert [row["value"] for row in rows] == [None, None]
    assert [row["unparsed"] for row in rows] == [b"1", b"7"]


def test_a_field_that_has_another_type_now_keeps_its_own(lake: Lake, store: TypedStore) -> None:
    store.register(record_of(("id", "int"), ("at", "long")))
    store.write({"id": 1, "at": 2})
    archived(lake, store)
    store.register(record_of(("id", "string"), ("at", "long")))
    store.write({"id": "x", "at": 3})
    store.write({"id": None, "at": 4})
    found = archived(lake, store)
    rows = in_order(lake.rows())

    assert lake.table().schema().find_field("value.id").field_type == IntegerType()
    assert [row["value"] for row in rows] == [{"id": 1, "at": 2}, None, {"id": None, "at": 4}]
    assert found.unparsed == 1


def test_names_that_readers_would_mix_up_are_left_out(lake: Lake, store: TypedStore) -> None:
    def properties(*names: str) -> dict[str, object]:
        number = {"type": "integer"}
        return {"type": "object", "properties": dict.fromkeys(names, number)}

    store.register(properties("a", "A", "", "b.c", "b"), "JSON")
    store.write({"a": 1, "A": 2, "": 3, "b.c": 4, "b": 5})
    archived(lake, store)
    store.register(properties("a", "B.C", "b.c", "b.c.d", "d.e", "b"), "JSON")
    store.write({"a": 6, "B.C": 7, "b.c": 8, "b.c.d": 9, "d.e": 10, "b": 11})
    archived(lake, store)
    store.register({"type": "object", "properties": {"": {"type": "integer"}}}, "JSON")
    rows = in_order(lake.rows())

    assert [row["value"] for row in rows] == [
        {"a": 1, "b.c": 4, "d.e": None},
        {"a": 6, "b.c": 8, "d.e": 10},
    ]
    assert in_order(seen_by_duck(lake.table())) == rows


def test_an_object_without_a_usable_field_is_text(lake: Lake, store: TypedStore) -> None:
    store.register({"type": "object", "properties": {"": {"type": "integer"}}}, "JSON")
    store.write({"": 1})
    archived(lake, store)

    assert lake.table().schema().find_field("value").field_type == StringType()
    assert [json.loads(row["value"]) for row in lake.rows()] == [{"": 1}]


def test_small_files_of_two_versions_are_put_together(lake: Lake, store: TypedStore) -> None:
    store.register(FIRST)
    store.write(EARLIER)
    archived(lake, store)
    store.register(SECOND)
    store.write(LATER)
    archived(lake, store)
    before = lake.rows()
    tidied = lake.tidied()
    again = archived(lake, store)
    store.write(LATER)
    later = archived(lake, store)

    assert (tidied.merged, tidied.into) == (2, 1)
    assert again.run is None
    assert later.rows == 1
    assert in_order(lake.rows())[:2] == in_order(before)
    assert in_order(seen_by_duck(lake.table())) == in_order(lake.rows())


def test_what_an_owner_makes_of_the_fields_is_kept_or_refused(
    lake: Lake, store: TypedStore
) -> None:
    store.register(record_of(("id", "int")))
    store.write({"id": 1})
    archived(lake, store)
    with lake.table().update_schema() as update:
        update.update_column(("value", "id"), LongType())
        update.add_column(("value", "note"), StringType())
    store.write({"id": 2})
    archived(lake, store)
    rows = in_order(lake.rows())
    with lake.table().update_schema() as update:
        update.add_column(("value", "strange"), UUIDType())
    with pytest.raises(ConfigError, match="bodies do not have") as refused:
        archived(lake, store)

    assert [row["value"] for row in rows] == [{"id": 1, "note": None}, {"id": 2, "note": None}]
    assert refused.value.details["column"] == "value.strange"


def test_who_dies_behind_its_columns_or_comes_late_leaves_a_table_in_order(
    lake: Lake, store: TypedStore
) -> None:
    store.register(FIRST)
    store.write(EARLIER)
    options, late = store.options(), lake.opened()
    # All that a run does to the table before it adds its rows.
    lake.opened().add_fields(subject_type(options))
    with pytest.raises(StoreLockedError, match="changed while it was opened"):
        lake.archived_by(options, late)
    found = lake.archived_by(options, lake.opened())
    (row,) = lake.rows()

    assert found.rows == 1
    assert row["value"]["old"] == "gone"
    assert lake.table().schema().column_names.count("value.id") == 1


def test_a_folder_follows_the_schema_and_stays_typed(store: TypedStore, tmp_path: Path) -> None:
    target = FolderStore(tmp_path / "to")

    def run(**more: str) -> Archived:
        return archive(TasksHere(), store.options(**more), target, split_bytes=1 << 20)

    store.add(b"none", None)
    with pytest.raises(ConfigError, match="no subject has a schema"):
        run()
    store.register(record_of(("id", "int"), ("at", "long")))
    store.write({"id": 1, "at": 2})
    first = run()
    store.register(record_of(("id", "string"), ("new", "int")))
    store.write({"id": "x", "new": 3})
    store.write({"id": None, "new": 4})
    for more in ({"columns": ""}, {"subject": "other"}, {"inflateBodies": "false"}):
        with pytest.raises(ConfigError, match="begun otherwise"):
            run(**more)
    second = run()
    schemas = store.schemas.copy()
    store.schemas.clear()
    store.add(b"7", "1")
    third = run()
    store.schemas += schemas
    again = run()
    rows = in_order(visible_rows(target.root))
    checked = check_archive(TasksHere(), target, split_bytes=1 << 20)

    assert (first.unparsed, second.unparsed, third.unparsed, again.run) == (1, 1, 1, None)
    assert [row["value"] for row in rows] == [
        None,
        {"id": 1, "at": 2},
        None,
        {"id": None, "at": None, "new": 4},
        None,
    ]
    assert checked.faults == ()


def test_files_of_a_folder_that_have_other_columns_are_found(
    store: TypedStore, tmp_path: Path
) -> None:
    target = FolderStore(tmp_path / "to")
    store.register(FIRST)
    store.write(EARLIER)
    archive(TasksHere(), store.options(), target, split_bytes=1 << 20)
    (document,) = target.documents()
    run = decode_run(document.content, file="")
    (file,) = run.files
    as_plain = file_faults(target, replace(file, value=None))
    as_other = file_faults(target, replace(file, value="long"))

    assert file_faults(target, file) == []
    assert [one.what for one in as_plain + as_other] == ["has other columns"] * 2
    for spoiled in ({"value": None}, {"subjects": [7]}):
        with pytest.raises(CorruptLogError):
            decode_run({**document.content, **spoiled}, file="")
    with pytest.raises(ConfigError, match="later layout"):
        decode_run({**document.content, "version": 3}, file="")
