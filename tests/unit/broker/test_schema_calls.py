"""Calls about schemas: who may read which, and what is refused before it is in the log."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from ledgermq.broker.administration.schema_calls import SchemaCalls
from ledgermq.broker.callers import Caller
from ledgermq.broker.calls import Call
from ledgermq.model.errors import ConfigError, LedgerError, NoPermissionError, ProtocolError
from ledgermq.model.rights import Right
from ledgermq.rules.schemas.schema_table import SchemaTable
from tests.unit.broker.answers import answers


class Leading:
    """Schemas of a group's leader, to which all is applied as it comes."""

    def __init__(self) -> None:
        self.table = SchemaTable()
        self.may: set[str] = set()
        tables: Any = SimpleNamespace(schemas=self.table)
        log: Any = SimpleNamespace(
            submit=self._submit,
            check_leads=lambda: None,
            check_newest=lambda: None,
            check=lambda: None,
        )
        self._answers = answers(SchemaCalls(tables, log).verbs)
        self._told: Any = None

    def _submit(self, request: Any, _now_ms: int) -> None:
        for change in request.plan():
            self.table.apply(change, 0, 0)
        self._told = request.answer()

    def _check(self, topic: str, _right: Right) -> None:
        if topic not in self.may:
            raise NoPermissionError("no right", topic=topic)

    def ask(self, verb: str, **arguments: object) -> Any:
        found = self._answers[verb](Call(Caller(b"c", 1), arguments, 0, self._check))
        return self._told if found is None else found

    def register(self, subject: str, schema: object = True) -> Any:
        return self.ask("schema_register", subject=subject, type="JSON", schema=json.dumps(schema))


def test_a_schema_is_read_by_who_may_use_a_topic_that_has_it() -> None:
    leading = Leading()
    for subject in ("mine-value", "theirs-value", "theirs-key"):
        assert leading.register(subject)["id"] == 1
    leading.may = {"mine"}

    assert leading.ask("schema_by_id", id=1)["versions"] == [
        {"subject": "mine-value", "version": 1}
    ]
    assert [row["subject"] for row in leading.ask("schemas", limit=10)["subjects"]] == [
        "mine-value"
    ]
    assert leading.ask("schema_show", subject="mine-value")["found"]["schema"] == "true"
    with pytest.raises(NoPermissionError):
        leading.ask("schema_show", subject="theirs-value")
    leading.may = set()
    with pytest.raises(NoPermissionError):
        leading.ask("schema_by_id", id=1)


def test_of_those_that_have_one_id_some_are_named() -> None:
    leading = Leading()
    leading.may = {f"t{number}" for number in range(120)}
    for topic in leading.may:
        leading.register(f"{topic}-value")

    assert len(leading.ask("schema_by_id", id=1)["versions"]) == 100


def test_a_long_list_comes_in_pages() -> None:
    leading = Leading()
    leading.may = {"a", "b", "c"}
    for subject in ("a", "b", "c"):
        leading.register(subject)

    first = leading.ask("schemas", limit=2)
    rest = leading.ask("schemas", limit=2, after=first["subjects"][-1]["subject"])

    assert ([row["subject"] for row in first["subjects"]], first["more"]) == (["a", "b"], True)
    assert ([row["subject"] for row in rest["subjects"]], rest["more"]) == (["c"], False)


def test_a_check_changes_nothing_and_a_deleted_subject_is_gone() -> None:
    leading = Leading()
    leading.may = {"s"}
    leading.register("s", {"type": "string"})
    asked = {"subject": "s", "type": "JSON", "schema": '{"type": "null"}'}

    refused = leading.ask("schema_check", **asked)
    assert (refused["compatible"], refused["version"]) == (False, None)
    assert leading.ask("schema_check", **asked, compatibility="NONE")["compatible"]
    leading.ask("schema_rule", subject="s", compatibility="NONE")
    assert leading.ask("schema_register", **asked) == {"subject": "s", "version": 2, "id": 2}
    leading.ask("schema_delete", subject="s", version=1)
    assert leading.ask("schema_show", subject="s")["versions"] == [2]
    leading.ask("schema_delete", subject="s")
    with pytest.raises(ConfigError, match="no such subject"):
        leading.ask("schema_show", subject="s")


@pytest.mark.parametrize(
    ("verb", "arguments", "error"),
    [
        ("schemas", {}, ProtocolError),
        ("schemas", {"limit": 501}, ProtocolError),
        ("schema_show", {"subject": "a b"}, ConfigError),
        ("schema_show", {"subject": "s", "version": 0}, ProtocolError),
        ("schema_by_id", {"id": 2**31}, ProtocolError),
        ("schema_by_id", {"id": 9}, ConfigError),
        ("schema_register", {"subject": "s", "type": "XML", "schema": "1"}, ProtocolError),
        ("schema_register", {"subject": "s", "type": "JSON", "schema": 1}, ProtocolError),
        (
            "schema_register",
            {"subject": "s", "type": "JSON", "schema": "x" * 70_000},
            ProtocolError,
        ),
        ("schema_register", {"subject": "s", "type": "JSON", "schema": "{"}, ConfigError),
        ("schema_rule", {"subject": "s", "compatibility": "SOME"}, ConfigError),
        ("schema_delete", {"subject": "s"}, ConfigError),
    ],
)
def test_what_cannot_be_is_refused(
    verb: str, arguments: dict[str, object], error: type[LedgerError]
) -> None:
    leading = Leading()
    leading.may = {"s"}

    with pytest.raises(error):
        leading.ask(verb, **arguments)
    assert len(leading.table) == 0
