"""The table of schemas, and the plans of what changes it."""

from __future__ import annotations

import json

import pytest

from ledgermq.model.errors import ConfigError
from ledgermq.model.names.schemas import Compatibility, SchemaType, topic_of
from ledgermq.rules.schemas import schema_plans
from ledgermq.rules.schemas.schema_plans import plan_delete, plan_register, plan_rule
from ledgermq.rules.schemas.schema_table import FILE, SchemaTable, size_of
from ledgermq.rules.state.broker_state import BrokerState
from ledgermq.rules.state.state_commands import (
    STATE_TAG,
    StateCommand,
    check_in_force,
    encode_command,
)
from ledgermq.rules.tables.table_changes import LevelSet, SchemaSet

JSON, AVRO = SchemaType.JSON, SchemaType.AVRO
INT, LONG = '"int"', '"long"'


def taken(table: SchemaTable, plan: schema_plans.Plan) -> None:
    for change in plan:
        table.apply(change, 0, 0)


def registered(*texts: str, subject: str = "orders", kind: SchemaType = AVRO) -> SchemaTable:
    table = SchemaTable()
    for text in texts:
        taken(table, plan_register(table, subject, kind, text))
    return table


def test_a_text_that_a_subject_has_is_no_new_version() -> None:
    table = registered(INT)

    assert plan_register(table, "orders", AVRO, INT) == []
    assert table.last_id == 1


def test_versions_count_up_and_ids_are_one_for_each_text() -> None:
    table = registered(INT, LONG)
    taken(table, plan_register(table, "payments", AVRO, LONG))
    taken(table, plan_register(table, "payments", AVRO, '"double"'))

    subjects = {name: [(v.number, v.identity) for v in s.versions.values()] for name, s in table}
    assert subjects == {"orders": [(1, 1), (2, 2)], "payments": [(1, 2), (2, 3)]}
    assert [*table.with_id(2)] == [("orders", 2), ("payments", 1)]


def test_numbers_are_never_given_again() -> None:
    table = registered(INT, LONG)
    taken(table, plan_delete(table, "orders", 2))
    assert (table.with_id(2), table.size) == ({}, size_of(INT))

    taken(table, plan_register(table, "orders", AVRO, LONG))
    latest = table.get("orders").latest  # type: ignore[union-attr]
    assert latest is not None
    assert (latest.number, latest.identity) == (3, 3)

    taken(table, plan_delete(table, "orders", None))
    assert (len(table), table.size, table.last_id) == (0, 0, 3)


def test_a_new_version_keeps_the_rule_of_its_subject() -> None:
    table = registered(LONG)

    with pytest.raises(ConfigError, match="not compatible") as refused:
        plan_register(table, "orders", AVRO, INT)
    assert refused.value.details["reason"] == "long is not read as int"
    taken(table, plan_rule(table, "orders", Compatibility.FORWARD))
    taken(table, plan_register(table, "orders", AVRO, INT))
    taken(table, plan_register(table, "orders", JSON, "{}", Compatibility.NONE))

    assert table.to_document()["subjects"]["orders"]["compatibility"] == "NONE"  # type: ignore[index]


def test_a_transitive_rule_looks_at_all_versions() -> None:
    old = '{"type": "record", "name": "r", "fields": [{"name": "a", "type": "string"}]}'
    middle = '{"type": "record", "name": "r", "fields": []}'
    new = '{"type": "record", "name": "r", "fields": [{"name": "a", "type": "int", "default": 1}]}'
    table = registered(old, middle)

    assert plan_register(table, "orders", AVRO, new)
    with pytest.raises(ConfigError, match="not compatible") as refused:
        plan_register(table, "orders", AVRO, new, Compatibility.BACKWARD_TRANSITIVE)
    assert refused.value.details["version"] == 1


@pytest.mark.parametrize(
    ("bound", "value"),
    [("SUBJECTS_MAX", 1), ("VERSIONS_MAX", 1), ("TEXTS_SIZE_MAX", 2 * size_of(INT))],
)
def test_what_is_beyond_a_bound_is_refused(
    monkeypatch: pytest.MonkeyPatch, bound: str, value: int
) -> None:
    table = registered(INT)
    monkeypatch.setattr(schema_plans, bound, value)

    subject = "other" if bound == "SUBJECTS_MAX" else "orders"
    with pytest.raises(ConfigError, match=r"too (many|large)"):
        plan_register(table, subject, AVRO, LONG)


def test_many_small_versions_are_large() -> None:
    table = SchemaTable()
    for number in range(50):
        taken(table, plan_register(table, f"s{number}", JSON, "{}"))

    assert len(json.dumps(table.to_document())) < 3 * table.size


@pytest.mark.parametrize("text", ["", "x" * 70_000, "nothing", '"\ud800"', "[" * 60_000, "{", "1"])
@pytest.mark.parametrize("kind", SchemaType)
def test_what_is_no_schema_is_refused(kind: SchemaType, text: str) -> None:
    with pytest.raises(ConfigError):
        plan_register(SchemaTable(), "s", kind, text, Compatibility.NONE)


@pytest.mark.parametrize("name", ["", "a b", "a/b", "x" * 256, "ä"])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(ConfigError):
        plan_register(SchemaTable(), name, AVRO, INT)
    with pytest.raises(ConfigError):
        SchemaTable.read({"subjects": {name: {}}})


def test_a_subject_has_the_rights_of_its_topic() -> None:
    assert [*map(topic_of, ("t", "t-value", "t-key", "t-value-key", "-key"))] == [
        "t", "t", "t", "t-value", "-key",
    ]  # fmt: skip


def test_a_document_gives_the_table_that_wrote_it() -> None:
    table = registered(INT, LONG)
    taken(table, plan_delete(table, "orders", 2))
    taken(table, plan_rule(table, "orders", Compatibility.FULL))

    again = SchemaTable.read(json.loads(json.dumps(table.to_document())))

    assert again.to_document() == table.to_document()
    assert (again.last_id, again.size) == (2, size_of(INT))
    taken(again, plan_register(again, "orders", AVRO, LONG, Compatibility.BACKWARD))
    assert [*again.with_id(3)] == [("orders", 3)]


def test_a_command_that_comes_twice_changes_nothing_the_second_time() -> None:
    state = BrokerState({})
    plan = plan_register(state.schemas, "orders", AVRO, INT)
    for offset, change in enumerate((LevelSet(5), *plan, *plan)):
        state.apply(offset, STATE_TAG, "", encode_command(StateCommand("c", 1, (change,))))

    told = state.documents()[FILE]
    assert told["subjects"] == {
        "orders": {
            "compatibility": "BACKWARD",
            "last": 1,
            "versions": {"1": {"id": 1, "type": "AVRO", "schema": INT}},
        }
    }


def test_schemas_are_off_below_their_level() -> None:
    with pytest.raises(ConfigError, match="level 5"):
        check_in_force(plan_register(SchemaTable(), "s", AVRO, INT), 4)


@pytest.mark.parametrize(
    "fields",
    [
        {"compatibility": "SOME"},
        {"version": 1, "id": 0, "type": "AVRO", "schema": INT},
        {"version": 1, "id": 1, "type": "XML", "schema": INT},
        {"version": 0, "id": 1, "type": "AVRO", "schema": INT},
        {"version": "1", "id": 1, "type": "AVRO", "schema": INT},
        {"version": 1, "id": 1, "type": "AVRO", "schema": 7},
    ],
)
def test_a_change_of_another_shape_changes_nothing(fields: dict[str, object]) -> None:
    table = registered(INT)
    before = table.to_document()

    with pytest.raises(ConfigError):
        table.apply(SchemaSet("orders", fields), 0, 0)
    assert table.to_document() == before
