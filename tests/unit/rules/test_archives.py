"""The table of archives, and the commands that change it."""

from __future__ import annotations

import json

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
from ledgermq.rules.tables.archives import FILE, ArchiveMark, ArchiveTable, check_name
from ledgermq.rules.tables.table_changes import ArchiveSet
from tests.whole_snapshots import encode_snapshot

FIELDS = {"position": 1_200, "at": 17}


def applied(state: BrokerState, offset: int, *changes: ArchiveSet) -> None:
    state.apply(offset, STATE_TAG, "", encode_command(StateCommand("c", 1, changes)))


def test_a_document_gives_the_table_that_wrote_it() -> None:
    document = {"archives": {"nightly": FIELDS, "other": {"position": 0, "at": 0}}}

    assert ArchiveTable.read(document).to_document() == document
    assert ArchiveTable.read({}).to_document() == {"archives": {}}


@pytest.mark.parametrize(
    "fields", [{"position": -1, "at": 0}, {"position": "x", "at": 0}, {"at": 0}, [], None]
)
def test_what_is_no_mark_is_refused(fields: object) -> None:
    with pytest.raises(ConfigError):
        ArchiveMark.read("nightly", fields)


@pytest.mark.parametrize("name", ["", "a b", "a/b", "ä", "x" * 101])
def test_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="not a name of an archive"):
        check_name(name)


def test_commands_say_how_far_an_archive_is_and_end_it() -> None:
    change = ArchiveSet("nightly", FIELDS)
    state = BrokerState({})
    applied(state, 0, change)

    assert decode_command(encode_command(StateCommand("c", 1, (change,)))).changes == (change,)
    assert state.archives.get("nightly") == ArchiveMark(1_200, 17)

    applied(state, 1, ArchiveSet("nightly", None))

    assert state.archives.get("nightly") is None


def test_a_snapshot_has_the_archives_and_one_without_them_has_none() -> None:
    state, other = BrokerState({}), BrokerState({})
    applied(state, 0, ArchiveSet("nightly", FIELDS))
    tables = json.loads(json.dumps(state.tables()))
    for offset, kept in ((0, tables), (1, {name: tables[name] for name in tables if name != FILE})):
        (part,) = encode_snapshot(Snapshot("s", 1, kept))
        other.apply(offset, SNAPSHOT_TAG, part.label, part.content)

        assert len(other.archives) == 1 - offset


def test_a_file_that_is_newer_than_a_command_does_not_take_it() -> None:
    state = BrokerState({FILE: {"archives": {"nightly": FIELDS}, "ledgermqApplied": 5}})
    applied(state, 4, ArchiveSet("nightly", {"position": 3, "at": 3}))

    assert state.archives.get("nightly") == ArchiveMark(1_200, 17)
