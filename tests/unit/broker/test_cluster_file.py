"""File of the cluster's table: written with each change, before those that say that it is there."""

from __future__ import annotations

import json
from pathlib import Path

from ledgermq.broker.state.broker_tables import BrokerTables
from ledgermq.formats.config_json import APPLIED_KEY
from ledgermq.model.config.settings import Settings
from ledgermq.rules.cluster.cluster_commands import ClusterJoined
from ledgermq.rules.state.state_commands import STATE_TAG, StateCommand, encode_command
from ledgermq.rules.tables.table_changes import Change, LevelSet, TopicSet

JOINED = ClusterJoined("c", b"r" * 32, "b", ["tcp://10.0.0.1:10912"])


def applied(tables: BrokerTables, offset: int, change: Change) -> None:
    body = encode_command(StateCommand("c", 1, (change,)))
    tables.state.apply(offset, STATE_TAG, "", body)
    tables.save_changed()


def test_a_group_that_joined_has_it_in_its_file_with_the_next_turn_and_after_a_start(
    tmp_path: Path,
) -> None:
    file = tmp_path / "ledgermq" / "cluster.json"
    tables = BrokerTables(tmp_path / "config", Settings())
    applied(tables, 0, TopicSet("t", {"topicName": "t"}))
    applied(tables, 1, LevelSet(3))
    was_there = file.exists()
    applied(tables, 2, JOINED)
    written = json.loads(file.read_text())
    # As after a crash: nothing is written at the end.
    again = BrokerTables(tmp_path / "config", Settings())
    tables.close()

    assert not was_there
    assert (written["cluster"], written[APPLIED_KEY]) == ("c", 3)
    assert again.cluster.to_document() == tables.cluster.to_document() != {}
    again.close()


def test_a_group_of_no_cluster_below_the_level_has_no_file(tmp_path: Path) -> None:
    tables = BrokerTables(tmp_path / "config", Settings())
    applied(tables, 0, TopicSet("t", {"topicName": "t"}))
    applied(tables, 1, LevelSet(2))
    tables.close()

    assert not (tmp_path / "ledgermq" / "cluster.json").exists()
