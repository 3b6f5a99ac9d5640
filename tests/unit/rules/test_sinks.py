"""The table of sinks: what commands make of it, and what is no table."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.formats.config_json import APPLIED_KEY
from ledgermq.model.errors import ConfigError, CorruptLogError, ProtocolError
from ledgermq.model.names.stages import SINK_SIZE_MAX, Stage, check_sink_name
from ledgermq.model.offset_ranges import ranges_of
from ledgermq.rules.state.broker_state import BrokerState
from ledgermq.rules.state.state_commands import Snapshot, decode_command
from ledgermq.rules.state.state_tables import FILES, YOUNGER_FILES
from ledgermq.rules.tables.sinks import FILE, Sink, SinkMoved, SinkSet, SinkTable, packs_in
from tests.unit.rules.test_state import apply_all, command, fresh

SINK = Sink(4, 1_000, 70, (5, 6, 9, 2), 1)


def made(sink: Sink, name: str = "q") -> SinkSet:
    return SinkSet(name, sink.to_fields())


def test_packs_are_moved_up_to_where_the_command_says_and_forgotten_at_the_end() -> None:
    table = SinkTable()
    table.apply(made(SINK), 0, 0)
    steps = []
    for packs in (1, 3, 3, 4):
        table.apply(SinkMoved("q", 4, packs), 0, 0)
        known = table.get("q")
        assert known is not None
        steps.append((known.left, set(table.unmoved)))

    assert steps[0] == ((6, 9, 2), {"q"})
    assert steps[1] == steps[2] == ((2,), {"q"})
    assert steps[3] == ((), set())
    assert table.get("q") == Sink(4, 1_000, 70)


def test_the_end_of_an_earlier_batch_does_not_touch_a_later_one() -> None:
    table = SinkTable()
    table.apply(made(SINK), 0, 0)
    table.apply(SinkMoved("q", 3, 4), 0, 0)
    table.apply(SinkMoved("nobody", 4, 4), 0, 0)

    assert table.get("q") == SINK
    assert len(table) == 1


def test_a_sink_that_is_forgotten_is_gone() -> None:
    table = SinkTable()
    table.apply(made(SINK), 0, 0)
    table.apply(SinkSet("q", None), 0, 0)

    assert table.get("q") is None
    assert table.unmoved == set()


def test_files_commands_and_snapshots_make_the_same_table() -> None:
    commands = [command(made(SINK)), command(SinkMoved("q", 4, 2), made(Sink(0, 7, 1), "p"))]
    state = apply_all(fresh(), commands)
    again = BrokerState(state.documents())
    taken = SinkTable.read(Snapshot("id", 0, state.tables()).tables[FILE])
    again.apply(1, *commands[1])  # it has that already

    for table in (state.sinks, again.sinks, taken):
        assert dict(table) == {"q": Sink(4, 1_000, 70, SINK.packs, 2), "p": Sink(0, 7, 1)}
        assert table.unmoved == {"q"}


def test_a_store_from_before_there_were_sinks_has_none_and_lacks_no_command() -> None:
    documents: dict[str, dict[str, object]] = {
        file: {APPLIED_KEY: 5} for file in FILES if file != FILE
    }
    state = BrokerState(documents)

    assert FILE in YOUNGER_FILES
    assert (state.applied, len(state.sinks)) == (5, 0)


@pytest.mark.parametrize(
    "fields",
    [
        {"batch": -1},
        {"batch": "1"},
        {"moved": -1},
        {"packs": 3},
        {"packs": [[1]]},
        {"packs": [[-1, 1]]},
        {"packs": [[0, 0]]},
        {"packs": [[0, 1_000_001]]},
        {"once": 1},
    ],
)
def test_fields_that_are_none_of_a_sink_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        SinkTable().apply(SinkSet("q", fields), 0, 0)


def test_a_move_of_packs_without_its_numbers_is_refused() -> None:
    body = b'{"id": "a", "at": 1, "changes": [{"sink_moved": "q", "batch": 1}]}'
    with pytest.raises(CorruptLogError):
        decode_command(body)


@given(st.lists(st.integers(0, 50)))
def test_offsets_come_back_in_their_order(offsets: list[int]) -> None:
    assert list(packs_in(ranges_of(offsets))) == offsets


def test_a_stage_is_read_from_its_label_and_from_nothing_else() -> None:
    stage = Stage("a-sink", 12, "name")

    assert Stage.read(stage.label) == stage
    for label in ("", "a", "a/1", "a//b", "/1/b", "a/x/b", "a/1/", "a/-1/b"):
        assert Stage.read(label) is None


@pytest.mark.parametrize("name", ["", "a b", "a/b", "ä", "a\n", "a" * (SINK_SIZE_MAX + 1)])
def test_names_that_labels_cannot_hold_are_refused(name: str) -> None:
    with pytest.raises(ProtocolError):
        check_sink_name(name)
