"""Feature level in force: where it is kept, and how a member stops at what it does not know."""

from __future__ import annotations

import json
import zlib

import pytest

from ledgermq.formats.config_json import APPLIED_KEY
from ledgermq.model.errors import ConfigError, NewerVersionError
from ledgermq.model.features import LEVEL
from ledgermq.rules.state.broker_state import FROM_FIRST, BrokerState
from ledgermq.rules.state.feature_table import FILE, FeatureTable
from ledgermq.rules.state.state_commands import (
    SNAPSHOT_TAG,
    STATE_TAG,
    StateCommand,
    encode_command,
)
from ledgermq.rules.state.state_tables import FILES
from ledgermq.rules.tables.table_changes import LevelSet, NamesSet

RAISED = encode_command(StateCommand("c", 1, (LevelSet(1),)))
NAMED = encode_command(StateCommand("d", 1, (NamesSet("n", {"k": "v"}),)))


def test_a_command_below_the_first_level_has_the_bytes_that_it_always_had() -> None:
    assert NAMED == (b'{"id":"d","at":1,"changes":[{"names":"n","fields":{"k":"v"}}]}')
    assert json.loads(RAISED)["needs"] == 1


def test_a_level_goes_up_and_never_down() -> None:
    table = FeatureTable(1)
    table.replace_with(FeatureTable())

    assert (table.level, table.revision) == (1, 0)
    assert FeatureTable.read(table.to_document()).level == 1


def test_at_level_0_neither_a_snapshot_nor_a_file_has_the_table() -> None:
    state = BrokerState({})

    assert FILE not in state.tables() and FILE not in state.documents()
    state.apply(0, STATE_TAG, "", RAISED)
    assert state.tables()[FILE] == {"level": 1}
    assert state.documents()[FILE] == {"level": 1, APPLIED_KEY: 1}


@pytest.mark.parametrize("document", [{}, {APPLIED_KEY: 3}], ids=["none", "of level 0"])
def test_a_file_of_level_0_is_as_new_as_the_others(document: dict[str, object]) -> None:
    """An older version, which does not know it, has left it as it was: nothing is missing."""
    others = {file: {"x": {}, APPLIED_KEY: 50} for file in FILES if file != FILE}
    state = BrokerState({**others, FILE: document})

    assert state.begin_at(40, 60) == 50
    assert not state.needs_snapshot


def test_a_file_beside_tables_from_outside_has_all_that_the_log_has() -> None:
    others = {file: {"x": {}, APPLIED_KEY: 50} for file in FILES if file != FILE}
    state = BrokerState({**others, FILE: {APPLIED_KEY: FROM_FIRST}})

    assert state.begin_at(40, 60) == 40
    state.apply(41, STATE_TAG, "", RAISED)
    assert state.features.level == 1


@pytest.mark.parametrize("level", [LEVEL + 1, 99])
def test_a_level_above_what_is_known_is_refused_with_the_version(level: int) -> None:
    with pytest.raises(NewerVersionError, match="newer than") as refused:
        BrokerState({FILE: {"level": level, APPLIED_KEY: 1}})

    assert refused.value.level == level


def test_a_level_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="negative"):
        FeatureTable.read({"level": -1})


def test_nothing_of_a_newer_command_counts_as_applied() -> None:
    state = BrokerState({})
    state.apply(0, STATE_TAG, "", NAMED)
    newer = b'{"id":"e","at":1,"needs":99,"changes":[{"names":"n","fields":null}]}'

    for _ in range(2):
        with pytest.raises(NewerVersionError):
            state.apply(1, STATE_TAG, "", newer)

    assert state.applied == 1
    assert state.names.of("n") == {"k": "v"}


@pytest.mark.parametrize(
    "document",
    [
        {"id": "s", "at": 1, "tables": {"later.json": {}}},
        {"id": "s", "at": 1, "tables": {FILE: {"level": 99}}},
        {"id": "s", "at": 1, "needs": 99, "tables": {}},
    ],
    ids=["unknown table", "higher level", "needs"],
)
@pytest.mark.parametrize("prepares", [False, True])
def test_a_newer_snapshot_is_read_whole_by_whoever_understands_it(
    document: dict[str, object], prepares: bool
) -> None:
    """A place in the files is that of its first part, however often it was looked at."""
    content = zlib.compress(json.dumps(document).encode())
    state = BrokerState({})
    state.apply(0, STATE_TAG, "", NAMED)
    state.apply(1, SNAPSHOT_TAG, "1/2", content[:9])

    for _ in range(2):
        with pytest.raises(NewerVersionError):
            if prepares:
                for _step in state.prepare(2, SNAPSHOT_TAG, "2/2", content[9:]):
                    pass
            state.apply(2, SNAPSHOT_TAG, "2/2", content[9:])

    assert state.applied == 2
    assert {document[APPLIED_KEY] for document in state.documents().values()} == {1}
    assert state.names.of("n") == {"k": "v"}
