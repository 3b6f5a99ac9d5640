"""Cluster table in the broker's state: from level 3 on, in files and snapshots, on all members."""

from __future__ import annotations

import builtins
import json
import subprocess
import sys

import pytest

from ledgermq.formats.config_json import APPLIED_KEY
from ledgermq.model.errors import ConfigError, NewerVersionError
from ledgermq.rules.cluster.cluster_commands import (
    ClusterJoined,
    DocumentTaken,
    HomeCertified,
    RowChanged,
)
from ledgermq.rules.cluster.document_desk import DocumentDesk, DocumentRequest
from ledgermq.rules.cluster.numbered_rows import NOWHERE, RowKey
from ledgermq.rules.state import state_commands
from ledgermq.rules.state.broker_state import BrokerState
from ledgermq.rules.state.cluster_copy import FILE
from ledgermq.rules.state.state_commands import SNAPSHOT_TAG, STATE_TAG, Snapshot, check_in_force
from ledgermq.rules.tables.table_changes import Change, LevelSet
from tests.unit.rules.cluster_changes import CERTIFIED, HOME, HOME_BEGINS, ROOT, applied, body_of
from tests.whole_snapshots import encode_snapshot

USER = RowKey("user", "u")

OF_HOME: tuple[Change, ...] = (
    *HOME_BEGINS,
    RowChanged(RowKey("group", "a"), 1, {"nodes": ["a:1"]}),
    RowChanged(USER, 2, {"topicPerms": ["t=PUB"]}),
    RowChanged(USER, 3, {"topicPerms": ["t=SUB"]}),
)


def document_of_home() -> bytes:
    home = applied(BrokerState({}), *OF_HOME).cluster.table
    asked = DocumentRequest("b", [], 0, NOWHERE)
    found = DocumentDesk(home, HOME).answer(asked, is_current=True).document
    assert found is not None
    return found


def test_a_home_has_its_rows_after_a_restart_from_its_files() -> None:
    state = applied(BrokerState({}), *OF_HOME)
    files = json.loads(json.dumps(state.documents()))

    again = BrokerState(files)

    assert files[FILE][APPLIED_KEY] == len(OF_HOME)
    assert again.cluster.to_document() == state.cluster.to_document()
    assert (again.cluster.table.is_home, again.cluster.table.at.number) == (True, 3)
    applied(again, RowChanged(USER, 4, None))
    assert again.cluster.table.rows.value(USER) is None


def test_what_a_table_has_already_changes_nothing_when_its_log_is_read_again() -> None:
    """A file that is newer than others: from the oldest place on all is applied once more."""
    state = applied(BrokerState({}), *OF_HOME)
    files = json.loads(json.dumps(state.documents()))
    files["topics.json"][APPLIED_KEY] = 0
    again = BrokerState(files)

    assert again.begin_at(0, len(OF_HOME)) == 0
    for offset, change in enumerate(OF_HOME):
        again.apply(offset, STATE_TAG, "", body_of(change))

    assert again.cluster.to_document() == state.cluster.to_document()


def test_commands_of_another_log_that_say_the_same_change_nothing() -> None:
    """As when the end of a log is lost: all that is left is applied to tables that had more."""
    state = applied(BrokerState({}), *OF_HOME)
    before = state.cluster.to_document()

    assert state.begin_at(0, 5) == 5
    assert state.begin_again(5) == 0
    for offset, change in enumerate(OF_HOME[:5]):
        state.apply(offset, STATE_TAG, "", body_of(change))

    assert state.cluster.to_document() == before


def test_a_snapshot_has_the_rows_and_whoever_takes_it_goes_on_from_them() -> None:
    state, other = applied(BrokerState({}), *OF_HOME), BrokerState({})
    kept = other.cluster.table
    for offset, part in enumerate(encode_snapshot(Snapshot("s", 1, state.tables()))):
        other.apply(offset, SNAPSHOT_TAG, part.label, part.content)

    assert other.cluster.table is kept
    assert other.cluster.to_document() == state.cluster.to_document()
    applied(other, RowChanged(USER, 4, None))
    assert other.cluster.table.at.number == 4


def test_a_snapshot_below_the_level_leaves_nothing_to_write() -> None:
    state, other = BrokerState({}), BrokerState({})
    revision = other.revisions()[FILE]
    for offset, part in enumerate(encode_snapshot(Snapshot("s", 1, state.tables()))):
        other.apply(offset, SNAPSHOT_TAG, part.label, part.content)

    assert FILE not in other.documents()
    assert other.revisions()[FILE] == revision


def test_below_its_level_no_change_of_a_cluster_comes_into_the_log() -> None:
    for change in (*OF_HOME[1:], DocumentTaken(b"signed")):
        check_in_force([change], 3)

        with pytest.raises(ConfigError, match="needs feature level 3, which is not in force"):
            check_in_force([change], 2)


@pytest.mark.parametrize("change", [OF_HOME[1], DocumentTaken(b"signed")])
def test_a_member_from_before_stops_in_order_before_it(
    change: Change, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = applied(BrokerState({}), LevelSet(2))
    body = body_of(change)
    monkeypatch.setattr(state_commands, "LEVEL", 2)

    for _ in range(2):
        with pytest.raises(NewerVersionError) as refused:
            state.apply(1, STATE_TAG, "", body)

        assert (refused.value.level, state.applied) == (3, 1)


def test_other_groups_have_what_the_home_has_signed_and_each_member_looks_at_it() -> None:
    document = document_of_home()
    other = applied(
        BrokerState({}),
        LevelSet(3),
        ClusterJoined("c", ROOT.public, "b", ["a:1"]),
        HomeCertified([CERTIFIED]),
    )
    applied(other, DocumentTaken(document[:-1] + bytes([document[-1] ^ 1])))
    assert "not signed by the home" in other.cluster.table.refused
    assert other.cluster.table.at == NOWHERE

    applied(other, DocumentTaken(document))

    assert (other.cluster.table.refused, other.cluster.table.at.number) == ("", 3)
    assert other.cluster.table.rows.value(USER) == {"topicPerms": ["t=SUB"]}


def test_a_member_that_cannot_check_a_signature_stops_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would have other rows than the others if it passed the command over."""
    state = applied(BrokerState({}), LevelSet(3), ClusterJoined("c", ROOT.public, "b", ["a:1"]))
    imports = builtins.__import__

    def without(name: str, *others: object) -> object:
        if name.startswith("cryptography"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return imports(name, *others)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(NewerVersionError, match=r"pip install 'ledgermq\[server\]'"):
        state.apply(2, STATE_TAG, "", body_of(HomeCertified([CERTIFIED])))
    monkeypatch.undo()

    assert (state.applied, state.cluster.table.home) == (2, "")
    state.apply(2, STATE_TAG, "", body_of(HomeCertified([CERTIFIED])))
    assert state.cluster.table.home == "a"


LOADS = """
import json, sys
from ledgermq.rules.state.broker_state import BrokerState
state = BrokerState(json.load(sys.stdin))
print(state.cluster.table.home, any(name.startswith("cryptography") for name in sys.modules))
"""


@pytest.mark.parametrize(
    ("changes", "printed"), [((), " False\n"), (OF_HOME, "a False\n")], ids=["none", "of a cluster"]
)
def test_tables_are_loaded_without_the_library_of_signatures(
    changes: tuple[Change, ...], printed: str
) -> None:
    """What a file says was checked when it came; most processes of a node check nothing."""
    files = json.dumps(applied(BrokerState({}), *changes).documents())

    found = subprocess.run(
        [sys.executable, "-c", LOADS], input=files, capture_output=True, text=True, check=True
    )

    assert found.stdout == printed


def test_a_file_that_says_something_else_is_refused_with_its_name() -> None:
    files = json.loads(json.dumps(applied(BrokerState({}), *OF_HOME).documents()))
    files[FILE]["points"] = "none"

    with pytest.raises(ConfigError, match=FILE):
        BrokerState(files)
