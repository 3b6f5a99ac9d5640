"""The table of what tools keep at a name server, and the commands that change it."""

from __future__ import annotations

import pytest

from ledgermq.model.errors import ConfigError
from ledgermq.rules.state.broker_state import BrokerState
from ledgermq.rules.state.state_commands import (
    SNAPSHOT_TAG,
    STATE_TAG,
    Snapshot,
    StateCommand,
    decode_command,
    encode_command,
)
from ledgermq.rules.tables.name_values import FILE, NAMESPACE_SIZE_MAX, NameValues
from ledgermq.rules.tables.table_changes import NamesSet
from tests.whole_snapshots import encode_snapshot


def test_a_document_gives_the_table_that_wrote_it() -> None:
    document = {"nameValues": {"A": {"k": "v"}, "B": {"x": "y", "z": ""}}}

    assert NameValues.read(document).to_document() == document
    assert NameValues.read({}).to_document() == {"nameValues": {}}
    with pytest.raises(ConfigError, match="other values than texts"):
        NameValues.read({"nameValues": {"A": {"k": 1}}})


def test_commands_set_a_namespace_and_empty_it() -> None:
    change = NamesSet("A", {"k": "v"})
    state = BrokerState({})
    state.apply(0, STATE_TAG, "", encode_command(StateCommand("c", 1, (change,))))

    assert decode_command(encode_command(StateCommand("c", 1, (change,)))).changes == (change,)
    assert state.names.get("A", "k") == "v"

    state.apply(1, STATE_TAG, "", encode_command(StateCommand("d", 1, (NamesSet("A", None),))))

    assert state.document(FILE) == {"nameValues": {}, "ledgermqApplied": 2}


def test_a_snapshot_brings_them_and_one_from_before_there_were_any_brings_none() -> None:
    state = BrokerState({FILE: {"nameValues": {"A": {"k": "v"}}}})
    tables = {FILE: {"nameValues": {"B": {"x": "y"}}}}
    for offset, found in enumerate((tables, {})):
        (part,) = encode_snapshot(Snapshot(str(offset), 1, found))
        state.apply(offset, SNAPSHOT_TAG, part.label, part.content)

        assert state.names.get("B", "x") == ("y" if found else None)
    assert state.names.get("A", "k") is None


@pytest.mark.parametrize(
    ("namespace", "key", "value"),
    [("", "k", "v"), ("n", "", "v"), ("n", "k" * 256, "v"), ("n", "k", "v" * 65_537)],
)
def test_what_is_too_long_or_empty_is_refused(namespace: str, key: str, value: str) -> None:
    with pytest.raises(ConfigError):
        NameValues().with_value(namespace, key, value)


def test_a_namespace_does_not_grow_for_ever() -> None:
    names = NameValues()
    names.put("n", {str(number): "v" * 65_000 for number in range(NAMESPACE_SIZE_MAX // 65_536)})

    with pytest.raises(ConfigError, match="too large"):
        names.with_value("n", "more", "v" * 65_000)
    assert names.with_value("n", "0", None).keys() == names.of("n").keys() - {"0"}
