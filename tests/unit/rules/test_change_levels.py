"""Each kind of change stands at a feature level, and comes into the log from that on only."""

from __future__ import annotations

import json

import pytest

from ledgermq.model.errors import ConfigError, CorruptLogError, NewerVersionError
from ledgermq.model.features import LEVEL, LEVEL_OF_CHANGE, LEVEL_OF_TABLE, LEVELS
from ledgermq.model.names.queue_name import QueueName
from ledgermq.rules.cluster.cluster_commands import (
    ClusterJoined,
    ClusterLeft,
    DocumentTaken,
    HomeCertified,
    HomeHandedOver,
    RightsAged,
    RowChanged,
    TombstonesForgotten,
)
from ledgermq.rules.cluster.numbered_rows import RowKey
from ledgermq.rules.given_back import MessageGivenBack
from ledgermq.rules.state import state_commands
from ledgermq.rules.state.broker_state import BrokerState
from ledgermq.rules.state.state_commands import (
    STATE_TAG,
    Snapshot,
    StateCommand,
    check_in_force,
    decode_command,
    encode_command,
    level_of,
)
from ledgermq.rules.tables.moves import Moved, MoveEnded
from ledgermq.rules.tables.share_changes import OffsetSpan, Run, ShareChanged, ShareEnded
from ledgermq.rules.tables.sinks import SinkMoved, SinkSet
from ledgermq.rules.tables.table_changes import (
    ArchiveSet,
    Change,
    GroupSet,
    LevelSet,
    Lock,
    LocksSet,
    NamesSet,
    OffsetsSet,
    QuotaSet,
    SchemaSet,
    TopicSet,
    UserSet,
)
from tests.whole_snapshots import decode_snapshot, encode_snapshot

SAMPLES: dict[str, Change] = {
    "topic": TopicSet("t", {"topicName": "t"}),
    "group": GroupSet("g", {"groupName": "g"}),
    "consumed": OffsetsSet("g", "t", {0: 5}),
    "user": UserSet("u", {"secretKey": "s" * 16}),
    "quota": QuotaSet("topic:t", {"produceBytes": 1}),
    "archive": ArchiveSet("a", {"position": 1, "at": 2}),
    "names": NamesSet("n", {"k": "v"}),
    "owned": LocksSet("g", "t", {0: Lock("c", 1_000)}),
    "moved": Moved(QueueName("TRANS", 0), (), 0, 3, {}),
    "ended": MoveEnded(QueueName("TRANS", 0)),
    "sink": SinkSet("s", {"batch": 1, "at": 2, "rows": 3}),
    "sink_moved": SinkMoved("s", 1, 2),
    "given_back": MessageGivenBack("token"),
    "schema": SchemaSet("s", {"version": 1, "id": 1, "type": "JSON", "schema": "{}"}),
    "level": LevelSet(1),
    "cluster": RowChanged(RowKey("user", "u"), 7, {"secretKey": "s" * 16}),
    "cluster_document": DocumentTaken(b"signed"),
    "shared": ShareChanged(
        "g", "t", {0: 4}, {0: (Run(4, 2, 30_000, 1, 7),)}, {0: (OffsetSpan(0, 4),)}
    ),
    "unshared": ShareEnded("g", "t"),
}
"""One of each kind, by its key in a command: who adds a kind to ``features.LEVELS`` adds a row."""

OF_0_1_0 = {
    "topic", "group", "consumed", "user", "quota", "archive", "names", "owned", "moved", "ended",
    "sink", "sink_moved", "given_back",
}  # fmt: skip
"""What 0.1.0 reads, and no other change may say that it does (``test_feature_levels.py`` asks 0.1.0
itself).
"""


OF_A_CLUSTER: tuple[Change, ...] = (
    ClusterJoined("c", b"r" * 32, "g", ["first:1", "first:2"]),
    ClusterLeft(),
    HomeCertified([b"one", b"two"]),
    HomeHandedOver([b"one"]),
    RowChanged(RowKey("user", "u"), 8, None),
    TombstonesForgotten(7),
    RightsAged(7, True),
    RightsAged(8, False),
)


def body_of(change: Change) -> bytes:
    return encode_command(StateCommand("c", 1, (change,)))


def test_each_kind_of_change_has_a_sample_and_a_level() -> None:
    assert SAMPLES.keys() == LEVEL_OF_CHANGE.keys()
    written = [json.loads(body_of(change))["changes"][0] for change in SAMPLES.values()]
    assert [next(iter(change)) for change in written] == [*SAMPLES]


def test_nothing_is_added_to_what_0_1_0_knows() -> None:
    assert {*LEVELS[0].changes} == OF_0_1_0


@pytest.mark.parametrize("key", SAMPLES)
def test_a_command_says_the_level_of_what_is_in_it(key: str) -> None:
    document = json.loads(body_of(SAMPLES[key]))

    assert document.get("needs", 0) == LEVEL_OF_CHANGE[key] == level_of(SAMPLES[key])
    assert decode_command(body_of(SAMPLES[key])).changes == (SAMPLES[key],)


@pytest.mark.parametrize("key", [key for key in SAMPLES if key != "level"])
def test_a_change_of_a_higher_level_is_kept_out_of_the_log(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that the next version adds."""
    monkeypatch.setitem(LEVEL_OF_CHANGE, key, LEVEL + 1)
    check_in_force([SAMPLES[key]], LEVEL + 1)

    with pytest.raises(ConfigError, match=f"feature level {LEVEL + 1}, which is not in force"):
        check_in_force([SAMPLES["level"], SAMPLES[key]], LEVEL)
    with pytest.raises(NewerVersionError):
        decode_command(body_of(SAMPLES[key]))


def test_the_change_that_puts_a_level_in_force_needs_none() -> None:
    check_in_force([LevelSet(1)], 0)


@pytest.mark.parametrize("table", [table for table in LEVEL_OF_TABLE if table != "features.json"])
def test_a_table_of_a_higher_level_is_in_no_snapshot_and_no_file_before(
    table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(LEVEL_OF_TABLE, table, 1)
    state = BrokerState({})

    assert table not in state.tables() and table not in state.documents()
    state.apply(0, STATE_TAG, "", body_of(LevelSet(1)))
    assert table in state.tables() and table in state.documents()


def test_a_snapshot_says_the_level_in_force(monkeypatch: pytest.MonkeyPatch) -> None:
    state = BrokerState({})
    before = encode_snapshot(Snapshot("s", 1, state.tables()))
    state.apply(0, STATE_TAG, "", body_of(LevelSet(1)))
    after = encode_snapshot(Snapshot("s", 1, state.tables()))
    monkeypatch.setattr(state_commands, "LEVEL", 0)

    assert decode_snapshot(before).tables == BrokerState({}).tables()
    with pytest.raises(NewerVersionError) as refused:
        decode_snapshot(after)
    assert refused.value.level == 1


@pytest.mark.parametrize("change", OF_A_CLUSTER, ids=lambda change: type(change).__name__)
def test_each_change_of_a_cluster_is_read_as_it_was_written(change: Change) -> None:
    document = json.loads(body_of(change))

    assert document["needs"] == 3
    assert decode_command(body_of(change)).changes == (change,)


@pytest.mark.parametrize(
    "fields",
    [
        {"cluster": "later"},
        {"cluster": 7},
        {"cluster": "joined", "name": "c", "root": "%", "as": "g", "nodes": []},
        {"cluster": "joined", "name": "c", "root": "AAAA", "as": "g", "nodes": ["x" * 256]},
        {"cluster": "certified", "chain": ["AAAA"] * 65},
        {"cluster": "certified"},
        {"cluster": "row", "kind": "k", "name": "n", "number": 0, "value": {}},
        {"cluster": "row", "kind": "k", "name": "n", "number": 1, "value": []},
        {"cluster": "forgotten", "number": -1},
        {"cluster_document": ""},
    ],
)
def test_a_change_of_a_cluster_of_another_shape_is_passed_over(fields: dict[str, object]) -> None:
    body = json.dumps({"id": "c", "at": 1, "needs": 3, "changes": [fields]}).encode()

    with pytest.raises(CorruptLogError):
        decode_command(body)
