"""The list of the broker's tables: no change of a command, and no file, is left out of it."""

from __future__ import annotations

from typing import get_args

import pytest

from ledgermq.model.features import LEVEL, LEVEL_OF_TABLE
from ledgermq.model.limits import DELAY_TOPIC
from ledgermq.model.names.queue_name import QueueName
from ledgermq.rules.cluster.cluster_commands import ClusterCommand, ClusterJoined
from ledgermq.rules.state.broker_state import BrokerState
from ledgermq.rules.state.state_commands import STATE_TAG, StateCommand, encode_command
from ledgermq.rules.state.state_tables import FILES, KINDS, StateTables
from ledgermq.rules.tables.moves import Moved, MoveEnded
from ledgermq.rules.tables.share_changes import Run, ShareChanged, ShareEnded
from ledgermq.rules.tables.sinks import SinkMoved, SinkSet
from ledgermq.rules.tables.table_changes import (
    ArchiveSet,
    GroupSet,
    LevelSet,
    Lock,
    LocksSet,
    NamesSet,
    OffsetsSet,
    QuotaSet,
    SchemaSet,
    TableChange,
    TopicSet,
    UserSet,
)

CHANGES = {
    "topics.json": TopicSet("t", {"topicName": "t"}),
    "subscriptionGroup.json": GroupSet("g", {"groupName": "g"}),
    "consumerOffset.json": OffsetsSet("g", "t", {0: 5}),
    "queue-locks.json": LocksSet("g", "t", {0: Lock("c", 1_000)}),
    "access.json": UserSet("u", {"secretKey": "s" * 16}),
    "quotas.json": QuotaSet("topic:t", {"produceBytes": 1}),
    "delayOffset.json": Moved(QueueName(DELAY_TOPIC, 0), (), 0, 3, {}),
    "moves.json": Moved(QueueName("TRANS", 0), (), 0, 3, {}),
    "sinks.json": SinkSet("s", {"batch": 1, "at": 2, "rows": 3}),
    "archives.json": ArchiveSet("a", {"position": 1, "at": 2}),
    "name-values.json": NamesSet("n", {"k": "v"}),
    "features.json": LevelSet(1),
    "cluster.json": ClusterJoined("c", b"r" * 32, "g", ("first:1",)),
    "schemas.json": SchemaSet("s", {"version": 1, "id": 1, "type": "JSON", "schema": "{}"}),
    "share-groups.json": ShareChanged("g", "t", {0: 4}, {0: (Run(4, 2, 9, 1, 7),)}, {}),
}
"""By the file that each changes, in the order in which snapshots have always had them."""

ALSO = {"share-groups.json": ["consumerOffset.json"]}
"""What settles messages says where the group is."""


def test_a_snapshot_has_the_tables_in_the_order_that_older_nodes_write() -> None:
    state = BrokerState({})
    level_0 = [file for file in CHANGES if LEVEL_OF_TABLE[file] == 0]

    assert list(state.tables()) == list(state.tables_later()) == level_0
    assert list(FILES) == list(CHANGES)
    state.apply(0, STATE_TAG, "", encode_command(StateCommand("c", 1, (LevelSet(LEVEL),))))
    assert list(state.tables()) == list(state.tables_later()) == list(CHANGES)


def test_a_state_has_each_row_of_the_list_under_its_name() -> None:
    state = BrokerState({})
    tables = StateTables(**{name: getattr(state, name) for name in StateTables._fields})

    assert [type(table) for table in tables] == list(KINDS)
    assert list(tables.by_file()) == list(FILES)


def test_some_table_takes_each_kind_of_change() -> None:
    taken = {kind for table in KINDS for kind in table.takes}

    assert taken == set(get_args(TableChange))
    others = {MoveEnded, SinkMoved, ShareEnded, *get_args(ClusterCommand)}
    assert {*map(type, CHANGES.values())} | others == taken


@pytest.mark.parametrize("file", FILES)
def test_a_change_is_applied_to_its_table_and_to_no_other_one(file: str) -> None:
    state, before = BrokerState({}), BrokerState({})
    if LEVEL_OF_TABLE[file] > 1:
        for one in (state, before):
            raised = StateCommand("l", 1, (LevelSet(LEVEL_OF_TABLE[file]),))
            one.apply(0, STATE_TAG, "", encode_command(raised))
    revisions = state.revisions()
    state.apply(1, STATE_TAG, "", encode_command(StateCommand("c", 1, (CHANGES[file],))))
    changed = [one for one, text in state.tables().items() if text != before.tables().get(one)]

    assert changed == [*ALSO.get(file, []), file]
    assert [one for one in FILES if state.revisions()[one] != revisions[one]] == changed


def test_a_group_that_is_deleted_owns_no_queues() -> None:
    state = BrokerState({})
    state.apply(
        0, STATE_TAG, "", encode_command(StateCommand("c", 1, (CHANGES["queue-locks.json"],)))
    )
    state.apply(1, STATE_TAG, "", encode_command(StateCommand("d", 1, (GroupSet("g", None),))))

    assert state.locks.of_group("g") == {}
