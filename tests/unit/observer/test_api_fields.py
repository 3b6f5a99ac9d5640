"""Fields of a request: what is taken, and what is refused with its name and its limit."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, strategies

from ledgermq.model.errors import ProtocolError
from ledgermq.observer.api.fields import (
    BOOLEAN,
    DEPTH_MAX,
    INTEGER,
    INTEGERS,
    ITEMS_MAX,
    NUMBER_MAX,
    TEXT,
    TEXT_SIZE_MAX,
    TEXTS,
    CallField,
    Given,
    checked,
    loaded,
    of_body,
    of_query,
)

FIELDS = (
    CallField("name", TEXT, ""),
    CallField("count", INTEGER, "", least=1, most=1_000),
    CallField("all", BOOLEAN, ""),
    CallField("to", TEXT, "", among=("first", "last")),
    CallField("offsets", INTEGERS, ""),
    CallField("rights", TEXTS, ""),
)
NEEDED = (CallField("name", TEXT, "", is_needed=True),)


def test_what_is_said_in_a_query_has_the_types_of_its_fields() -> None:
    given = Given(of_query(FIELDS, [("name", "orders"), ("count", "7"), ("all", "true")]))

    assert (given.text("name"), given.integer("count"), given.flag("all")) == ("orders", 7, True)
    assert given.text_or_none("to") is None


@pytest.mark.parametrize(
    "pairs",
    [
        [("nothing", "1")],
        [("name", "a"), ("name", "b")],
        [("count", "0")],
        [("count", "1001")],
        [("count", "-1")],
        [("count", "1.0")],
        [("count", "")],
        [("count", "--1")],
        [("count", "٣")],
        [("count", "9" * 5_000)],
        [("all", "yes")],
        [("to", "middle")],
        [("name", "a\nb")],
        [("name", "a\x00b")],
        [("name", "a\x85b")],
        [("name", "a\ud800b")],
        [("name", "x" * (TEXT_SIZE_MAX + 1))],
    ],
)  # fmt: skip
def test_what_no_field_takes_in_a_query_is_refused(pairs: list[tuple[str, str]]) -> None:
    with pytest.raises(ProtocolError):
        of_query(FIELDS, pairs)


def test_what_is_said_in_a_body_has_the_types_of_its_fields() -> None:
    body = {"name": "ö", "count": 1, "all": False, "offsets": [0, NUMBER_MAX], "rights": ["a=PUB"]}

    assert of_body(FIELDS, json.dumps(body).encode()) == body
    assert of_body(FIELDS, b"") == {}


@pytest.mark.parametrize(
    "body",
    [
        b"nothing",
        b"[]",
        b"7",
        b"{",
        b'{"name": NaN}',
        b'{"count": Infinity}',
        b'{"count": 1e2}',
        b'{"count": true}',
        b'{"count": "1"}',
        b'{"count": ' + b"9" * 5_000 + b"}",
        b'{"count": ' + b"9" * 100 + b"}",
        b'{"all": 1}',
        b'{"name": null}',
        b'{"name": "\xff"}',
        b'{"name": "a\\u0000"}',
        b'{"name": "a\\ud800"}',
        b'{"other": 1}',
        b'{"offsets": [1, true]}',
        b'{"offsets": [-1]}',
        b'{"offsets": [1.5]}',
        b'{"rights": ["a\\n"]}',
        b'{"rights": [7]}',
        json.dumps({"offsets": [0] * (ITEMS_MAX + 1)}).encode(),
        b'{"name": ' + b"[" * 30_000 + b"]" * 30_000 + b"}",
        b'{"name": ' + b'{"a":' * DEPTH_MAX + b"1" + b"}" * DEPTH_MAX + b"}",
    ],
    ids=lambda body: body[:20].decode("latin-1"),
)
def test_what_no_field_takes_in_a_body_is_refused(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        of_body(FIELDS, body)


@given(
    strategies.dictionaries(
        strategies.sampled_from([field.name for field in FIELDS]) | strategies.text(),
        strategies.recursive(
            strategies.none() | strategies.booleans() | strategies.integers() | strategies.text(),
            lambda inner: (
                strategies.lists(inner) | strategies.dictionaries(strategies.text(), inner)
            ),
            max_leaves=8,
        ),
        max_size=3,
    )
)
def test_whatever_a_body_says_it_is_taken_as_the_fields_say_or_refused(
    body: dict[str, Any],
) -> None:
    types = {
        TEXT: str, INTEGER: int, BOOLEAN: bool, INTEGERS: list, TEXTS: list,
    }  # fmt: skip
    kinds = {field.name: types[field.kind] for field in FIELDS}
    try:
        values = of_body(FIELDS, json.dumps(body).encode())
    except ProtocolError:
        return

    assert values == body
    assert all(type(value) is kinds[name] for name, value in values.items())


@given(strategies.binary(max_size=64))
def test_bytes_that_are_no_body_are_refused(body: bytes) -> None:
    with suppress(ProtocolError):
        of_body(FIELDS, body)


def test_what_is_needed_is_asked_for_by_name() -> None:
    with pytest.raises(ProtocolError, match="name"):
        of_body(NEEDED, b"{}")
    with pytest.raises(ProtocolError, match="name"):
        of_query(NEEDED, [])


def test_a_number_too_large_to_be_printed_is_refused_all_the_same() -> None:
    with pytest.raises(ProtocolError, match="more than 64 bits"):
        checked(FIELDS[1], 10**4_000)


@pytest.mark.parametrize(
    "body",
    [b'{"a": 1, "a": 1}', b'{"a": 1, "b": {"c": 1, "c": 2}}', b'[{"a": 1, "\\u0061": 2}]'],
)
def test_a_body_in_which_a_key_stands_twice_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match="a key stands twice"):
        loaded(body)
