"""JSON that is decoded step by step says what Python's decoder says of it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.formats import config_json
from ledgermq.formats.config_json import VALUES_PER_STEP, decode_in_steps
from ledgermq.rules.tables.documents import finish

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@pytest.fixture(autouse=True)
def in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config_json, "SMALL", 0)


@given(JSON, st.integers(0, 5), st.sampled_from([None, 1, "\t"]))
def test_any_value_is_what_it_is_at_once(value: object, depth: int, indent: str | None) -> None:
    text = json.dumps(value, indent=indent)

    assert finish(decode_in_steps(text, depth)) == json.loads(text)


@given(JSON, st.integers(0, 3), st.data())
def test_what_is_no_json_is_refused_alike(value: object, depth: int, data: st.DataObject) -> None:
    text = json.dumps(value)
    at = data.draw(st.integers(0, len(text)))
    damaged = (
        text[:at] + data.draw(st.sampled_from(["", "{", "}", ",", '"', ":", "x"])) + text[at + 1 :]
    )
    try:
        expected = json.loads(damaged)
    except ValueError:
        with pytest.raises(ValueError):
            finish(decode_in_steps(damaged, depth))
    else:
        assert finish(decode_in_steps(damaged, depth)) == expected


def test_a_large_table_takes_a_step_for_some_rows() -> None:
    document = {"id": 1, "tables": {"a": {str(row): [row] for row in range(10 * VALUES_PER_STEP)}}}

    steps = sum(1 for _ in decode_in_steps(json.dumps(document), 3))

    assert steps == 9
