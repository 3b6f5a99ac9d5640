"""Users and quotas of a cluster: they hold in each group, and give way when they are gone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ledgermq.broker.state.broker_tables import BrokerTables
from ledgermq.model.config.settings import Settings
from ledgermq.model.rights import Right
from ledgermq.rules.access.access import UserTable
from ledgermq.rules.cluster.cluster_commands import (
    ClusterJoined,
    ClusterLeft,
    DocumentTaken,
    HomeCertified,
    RightsAged,
    RowChanged,
)
from ledgermq.rules.cluster.document_desk import DocumentDesk, DocumentRequest
from ledgermq.rules.cluster.numbered_rows import RowKey
from ledgermq.rules.state.broker_state import BrokerState
from ledgermq.rules.state.state_commands import SNAPSHOT_TAG, Snapshot
from ledgermq.rules.tables.quotas import Quota, QuotaTable
from ledgermq.rules.tables.table_changes import Change, LevelSet, QuotaSet, UserSet
from tests.unit.rules.cluster_changes import CERTIFIED, HOME, HOME_BEGINS, ROOT, applied
from tests.whole_snapshots import encode_snapshot

USER, QUOTA = RowKey("user", "u"), RowKey("quota", "topic:t")
KEY, OTHER_KEY = "k" * 40, "o" * 40
OTHER_BEGINS: tuple[Change, ...] = (
    LevelSet(3),
    ClusterJoined("c", ROOT.public, "b", ["tcp://10.0.0.1:1"]),
    HomeCertified([CERTIFIED]),
)
OF_CLUSTER: tuple[Change, ...] = (
    RowChanged(USER, 1, {"topicPerms": ["t=SUB"], "publicKeys": [KEY]}),
    RowChanged(QUOTA, 2, {"produceBytes": 7}),
)


def home() -> BrokerState:
    return applied(BrokerState({}), *HOME_BEGINS, *OF_CLUSTER)


def passed_on(home_state: BrokerState, other: BrokerState) -> BrokerState:
    mine, table = home_state.cluster.table, other.cluster.table
    assert table.chain is not None
    asked = DocumentRequest("b", table.chain.signed(), table.rows_rank, table.at)
    document = DocumentDesk(mine, HOME).answer(asked, is_current=True).document
    assert document is not None
    return applied(other, DocumentTaken(document))


def rights(state: BrokerState, topic: str = "t") -> tuple[bool, bool]:
    """Whether the user may send to the topic, and read it."""
    user = state.users.get("u")
    assert user is not None
    return user.may_use_topic(topic, Right.PUB), user.may_use_topic(topic, Right.SUB)


def test_a_row_of_the_home_holds_in_it_and_in_a_group_that_has_the_document() -> None:
    mine = home()
    other = passed_on(mine, applied(BrokerState({}), *OTHER_BEGINS))

    for state in (mine, other):
        assert rights(state) == (False, True)
        found = state.users.owner_of(KEY)
        assert found is not None and found.name == "u"
        assert state.quotas.get("topic:t") == Quota(produce_bytes=7)
        assert state.users.is_of_cluster("u") and state.quotas.is_of_cluster("topic:t")


def test_the_clusters_row_wins_and_what_the_group_has_is_there_again_when_it_is_gone() -> None:
    own = (
        UserSet("u", {"topicPerms": ["t=PUB"], "publicKeys": [OTHER_KEY]}),
        UserSet("mine", {"admin": True, "publicKeys": [KEY]}),
        QuotaSet("topic:t", {"produceBytes": 9}),
    )
    mine, other = home(), applied(BrokerState({}), *OTHER_BEGINS, *own)
    before = other.users.owner_of(KEY)
    passed_on(mine, other)

    assert before is not None and before.name == "mine"
    assert rights(other) == (False, True)
    # A key that both have is the cluster's user's: whoever has it is not the group's admin.
    found = other.users.owner_of(KEY)
    assert found is not None and found.name == "u"
    assert other.users.owner_of(OTHER_KEY) is None
    assert other.users.get("mine") is not None
    applied(other, UserSet("u", {"topicPerms": ["t=PUB|SUB"], "publicKeys": [OTHER_KEY]}))
    assert rights(other) == (False, True)
    applied(mine, RowChanged(USER, 3, None), RowChanged(QUOTA, 4, None))
    passed_on(mine, other)

    assert rights(other) == (True, True)
    assert [one and one.name for one in map(other.users.owner_of, (KEY, OTHER_KEY))] == [
        "mine", "u",
    ]  # fmt: skip
    assert other.quotas.get("topic:t") == Quota(produce_bytes=9)


def test_a_group_that_leaves_has_its_own_users_alone() -> None:
    other = passed_on(home(), applied(BrokerState({}), *OTHER_BEGINS))
    applied(other, ClusterLeft())

    assert (len(other.users), len(other.quotas)) == (0, 0)


@pytest.mark.parametrize("way", ["files", "snapshot"])
def test_rights_are_the_same_after_a_start_and_after_a_snapshot(way: str) -> None:
    mine = applied(home(), UserSet("own", {"topicPerms": ["t=PUB"]}))
    again = BrokerState(json.loads(json.dumps(mine.documents())) if way == "files" else {})
    if way == "snapshot":
        for offset, part in enumerate(encode_snapshot(Snapshot("s", 1, mine.tables()))):
            again.apply(offset, SNAPSHOT_TAG, part.label, part.content)

    assert [user.name for user in again.users] == ["own", "u"]
    assert again.tables() == mine.tables()
    assert not again.has_stale_access
    applied(again, RowChanged(USER, 3, None))
    assert [user.name for user in again.users] == ["own"]


def test_who_reads_the_files_alone_knows_the_clusters_users_too() -> None:
    """As the writer does."""
    files = home().documents()

    users, quotas = UserTable.read(files["access.json"]), QuotaTable.read(files["quotas.json"])

    found = users.owner_of(KEY)
    assert found is not None and found.may_use_topic("t", Right.SUB)
    assert quotas.get("topic:t") == Quota(produce_bytes=7)


def test_a_file_that_was_not_written_before_a_crash_is_written_at_the_start(
    tmp_path: Path,
) -> None:
    documents = json.loads(json.dumps(home().documents()))
    del documents["access.json"]["clusterUsers"]
    for file, document in documents.items():
        folder = "ledgermq" if file in ("access.json", "quotas.json", "cluster.json") else "config"
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / file).write_text(json.dumps(document))
    tables = BrokerTables(tmp_path / "config", Settings())
    is_unsaved = tables.has_unsaved_topics
    tables.save_changed()
    tables.close()

    assert is_unsaved
    written = json.loads((tmp_path / "ledgermq" / "access.json").read_text())
    assert written["clusterUsers"]["u"]["topicPerms"] == ["t=SUB"]


def test_a_user_that_cannot_be_read_has_no_rights_whatever_the_group_gives_it() -> None:
    mine = applied(BrokerState({}), *HOME_BEGINS, UserSet("u", {"admin": True}))
    applied(
        mine,
        RowChanged(USER, 1, {"topicPerms": ["t=EVERYTHING"], "admin": True}),
        RowChanged(RowKey("user", "not a name!"), 2, {"admin": True}),
        RowChanged(QUOTA, 3, {"produceBytes": -1}),
    )

    assert rights(mine) == (False, False)
    assert [user.name for user in mine.users] == ["u"]
    assert mine.quotas.get("topic:t") is None


@pytest.mark.parametrize("way", ["log", "files", "snapshot", "writer"])
def test_rights_that_are_too_old_count_no_more_and_nobody_has_the_users_place(way: str) -> None:
    own = UserSet("mine", {"topicPerms": ["t=PUB"], "publicKeys": [KEY, OTHER_KEY]})
    other = passed_on(home(), applied(BrokerState({}), *OTHER_BEGINS, own))
    applied(other, RightsAged(1, True))
    state, users = other, other.users
    if way == "files":
        state = BrokerState(json.loads(json.dumps(other.documents())))
        users = state.users
    elif way == "snapshot":
        state = BrokerState({})
        for offset, part in enumerate(encode_snapshot(Snapshot("s", 1, other.tables()))):
            state.apply(offset, SNAPSHOT_TAG, part.label, part.content)
        users = state.users
    elif way == "writer":
        users = UserTable.read(json.loads(json.dumps(other.documents()["access.json"])))
    user, mine = users.owner_of(KEY), users.get("mine")

    assert user is not None and mine is not None
    assert (user.name, user.too_old, mine.too_old) == ("u", True, False)
    assert not user.may_use_topic("t", Right.SUB) and mine.may_use_topic("t", Right.PUB)
    if way != "writer":
        assert not state.has_stale_access
        applied(state, RightsAged(2, False))
        assert rights(state) == (False, True)
        assert "clusterUsersTooOld" not in state.tables()["access.json"]


def test_without_a_cluster_the_files_are_what_they_were() -> None:
    state = applied(BrokerState({}), LevelSet(3), UserSet("u", {"admin": True}))

    assert state.tables()["access.json"] == {"users": {"u": {"admin": True}}}
    assert state.tables()["quotas.json"] == {"quotas": {}}
