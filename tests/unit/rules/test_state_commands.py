"""Commands of the broker's state: what is written is read, and nothing else."""

from __future__ import annotations

import json
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.model.errors import CorruptLogError
from ledgermq.rules.state import state_commands
from ledgermq.rules.state.state_commands import (
    Part,
    Snapshot,
    StateCommand,
    decode_command,
    decode_part,
    encode_command,
)
from ledgermq.rules.tables.sinks import SinkMoved, SinkSet
from ledgermq.rules.tables.table_changes import (
    Change,
    GroupSet,
    Lock,
    LocksSet,
    OffsetsSet,
    TopicSet,
)
from tests.whole_snapshots import decode_snapshot, encode_snapshot

NAMES = st.text("abc%-_", min_size=1, max_size=5)
FIELDS = st.none() | st.dictionaries(NAMES, st.integers() | st.booleans() | st.text(max_size=4))
OFFSETS = st.none() | st.dictionaries(st.integers(0, 65_535), st.integers(0, 2**62))
LOCKS = st.dictionaries(
    st.integers(0, 65_535), st.none() | st.builds(Lock, NAMES, st.integers(1, 2**40))
)
CHANGES: st.SearchStrategy[Change] = st.one_of(
    st.builds(TopicSet, NAMES, FIELDS),
    st.builds(GroupSet, NAMES, FIELDS),
    st.builds(OffsetsSet, NAMES, NAMES, OFFSETS),
    st.builds(LocksSet, NAMES, NAMES, LOCKS),
    st.builds(SinkSet, NAMES, FIELDS),
    st.builds(SinkMoved, NAMES, st.integers(0, 2**62), st.integers(0, 2**62)),
)


@given(st.lists(CHANGES))
def test_a_command_is_read_as_it_was_written(changes: list[Change]) -> None:
    command = StateCommand("an id", 1_700_000_000_000, tuple(changes))

    assert decode_command(encode_command(command)) == command


def test_a_snapshot_is_read_as_it_was_written_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_commands, "PART_SIZE_MAX", 100)
    tables = {"topics.json": {"topicConfigTable": {f"t{n * n * 7919}": {} for n in range(200)}}}
    snapshot = Snapshot("id", 5, tables)

    parts = encode_snapshot(snapshot)

    assert len(parts) > 3
    assert [part.label for part in parts[:2]] == [f"1/{len(parts)}", f"2/{len(parts)}"]
    assert [decode_part(part.label, part.content) for part in parts] == parts
    assert decode_snapshot(parts) == snapshot


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=10,
)


@pytest.mark.long
@given(st.dictionaries(st.text(max_size=3), st.dictionaries(st.text(max_size=3), JSON)))
def test_a_snapshot_of_any_documents_is_read_as_it_was_written(
    tables: dict[str, dict[str, object]],
) -> None:
    snapshot = Snapshot("id", 5, tables)

    assert decode_snapshot(encode_snapshot(snapshot)) == snapshot


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'{"id": "a", "at": 1}',
        b'{"id": 1, "at": 1, "changes": []}',
        b'{"id": "a", "at": true, "changes": []}',
        b'{"id": "a", "at": 1, "changes": [1]}',
        b'{"id": "a", "at": 1, "changes": [{}]}',
        b'{"id": "a", "at": 1, "needs": -1, "changes": []}',
        b'{"id": "a", "at": 1, "needs": "1", "changes": []}',
        b'{"id": "a", "at": 1, "changes": [{"level": 0}]}',
        b'{"id": "a", "at": 1, "changes": [{"level": true}]}',
        b'{"id": "a", "at": 1, "changes": [{"level": 256}]}',
        b'{"id": "a", "at": 1, "changes": [{"topic": "t", "fields": 1}]}',
        b'{"id": "a", "at": 1, "changes": [{"consumed": "t", "offsets": {}}]}',
        b'{"id": "a", "at": 1, "changes": [{"consumed": "t@g", "offsets": {"x": 1}}]}',
        b'{"id": "a", "at": 1, "changes": [{"consumed": "t@g", "offsets": {"0": -1}}]}',
        b"[" * 100_000,
    ],
)
def test_what_is_no_command_is_an_error(body: bytes) -> None:
    with pytest.raises(CorruptLogError):
        decode_command(body)


@pytest.mark.parametrize("label", ["", "1", "0/1", "2/1", "1/x", "-1/1"])
def test_a_part_says_which_one_it_is(label: str) -> None:
    with pytest.raises(CorruptLogError):
        decode_part(label, b"")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no zlib",
        zlib.compress(b"no json"),
        zlib.compress(json.dumps({"id": "a", "at": 1, "tables": [1]}).encode()),
        zlib.compress(json.dumps({"id": "a", "at": 1, "tables": {}}).encode())[:-2],
    ],
)
def test_what_is_no_snapshot_is_an_error(content: bytes) -> None:
    with pytest.raises(CorruptLogError):
        decode_snapshot([Part(1, 1, content)])
