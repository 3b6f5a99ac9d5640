"""The broker's tables as a state machine: from whatever files, the same log, the same tables."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

import pytest

from ledgermq.formats.config_json import APPLIED_KEY, OFFSETS_FILE
from ledgermq.model.errors import ConfigError, CorruptLogError
from ledgermq.rules.state import state_commands
from ledgermq.rules.state.broker_state import BrokerState
from ledgermq.rules.state.state_commands import (
    SNAPSHOT_TAG,
    STATE_TAG,
    Snapshot,
    StateCommand,
    encode_command,
)
from ledgermq.rules.state.state_tables import FILES, YOUNGER_FILES
from ledgermq.rules.tables import groups, queue_locks, topics
from ledgermq.rules.tables.groups import SubscriptionGroup
from ledgermq.rules.tables.table_changes import (
    Change,
    GroupSet,
    Lock,
    LocksSet,
    OffsetsSet,
    TopicSet,
)
from ledgermq.rules.tables.topics import Topic
from tests.whole_snapshots import encode_snapshot


class Entry(NamedTuple):
    """A message of the state queue."""

    tag: str
    label: str
    body: bytes


def command(*changes: Change, identity: str = "id", at_ms: int = 7) -> Entry:
    return Entry(STATE_TAG, "", encode_command(StateCommand(identity, at_ms, changes)))


def snapshot(state: BrokerState, identity: str = "snapshot") -> list[Entry]:
    parts = encode_snapshot(Snapshot(identity, 9, state.tables()))
    return [Entry(SNAPSHOT_TAG, part.label, part.content) for part in parts]


def fresh() -> BrokerState:
    state = BrokerState({})
    state.begin_at(0, 0)
    return state


def apply_all(state: BrokerState, log: Sequence[Entry], *, first: int = 0) -> BrokerState:
    begin = state.begin_at(first, len(log))
    for offset in range(begin, len(log)):
        state.apply(offset, *log[offset])
    return state


def topic(name: str, queues: int) -> TopicSet:
    return TopicSet(name, Topic(name, queues, queues).to_fields())


def group(name: str) -> GroupSet:
    return GroupSet(name, SubscriptionGroup(name).to_fields())


def test_commands_change_the_tables_and_their_versions() -> None:
    state = fresh()
    log = [
        command(topic("t", 4), group("g"), OffsetsSet("g", "t", {0: 5})),
        command(OffsetsSet("g", "t", {1: 2}), identity="second"),
    ]
    apply_all(state, log)
    told = state.apply(2, *command(topic("t", 8), identity="third"))

    found = state.topics.get("t")
    assert found is not None and found.to_fields() == Topic("t", 8, 8).to_fields()
    assert state.groups.get("g") is not None
    assert state.offsets.offsets("g", "t") == {0: 5, 1: 2}
    assert (state.topics.version, state.groups.version) == (2, 1)
    assert told.identity == "third"
    assert state.applied == 3


def test_what_is_deleted_is_gone() -> None:
    log = [
        command(topic("t", 4), group("g"), OffsetsSet("g", "t", {0: 5})),
        command(TopicSet("t", None), GroupSet("g", None), OffsetsSet("g", "t", None)),
    ]
    state = apply_all(fresh(), log)

    assert state.topics.get("t") is None
    assert state.groups.get("g") is None
    assert state.offsets.offsets("g", "t") == {}


def random_log(chance: random.Random) -> list[Entry]:
    """Commands and snapshots, as leaders one after the other write them."""
    state, log = fresh(), list[Entry]()
    while len(log) < 40:
        if chance.random() < 0.1:
            entries = snapshot(state)
            if chance.random() < 0.3:
                entries = entries[:-1]  # its leader died
        else:
            name = chance.choice("abc")
            value = chance.randrange(1, 9)
            changes: list[Change] = [
                chance.choice([topic(name, value), TopicSet(name, None)]),
                chance.choice([group(name), GroupSet(name, None)]),
                OffsetsSet("g", name, chance.choice([{value: value}, None])),
                LocksSet(name, "t", {value: chance.choice([Lock("client", value), None])}),
            ]
            entries = [command(*chance.sample(changes, chance.randrange(1, 5)))]
        for entry in entries:
            state.apply(len(log), *entry)
            log.append(entry)
    return log


@pytest.mark.parametrize("seed", range(40))
def test_files_of_any_age_and_the_log_make_the_same_tables(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_commands, "PART_SIZE_MAX", 60)
    chance = random.Random(seed)
    log = random_log(chance)
    whole = apply_all(fresh(), log)

    files = {}
    for file in FILES:
        until = chance.randrange(len(log) + 1)
        files[file] = apply_all(fresh(), log[:until]).documents().get(file, {})
    again = apply_all(BrokerState(files), log)

    assert again.documents() == whole.documents(), seed


def outside(*names: str) -> dict[str, object]:
    """A file of topics as RocketMQ leaves it."""
    return {"topicConfigTable": {name: {} for name in names}, "dataVersion": {"counter": 3}}


def test_a_table_without_a_place_is_newer_than_the_log_up_to_where_it_was_settled() -> None:
    log = [
        command(topic("t", 4), OffsetsSet("g", "t", {0: 5})),
        command(topic("later", 4)),
    ]
    state = BrokerState({**fresh().documents(), topics.FILE: outside("mine")})
    unsettled = state.unsettled
    state.settle(topics.FILE, 1)
    apply_all(state, log)

    assert unsettled == {topics.FILE}
    assert [one.name for one in state.topics] == ["mine", "later"]
    assert state.offsets.offsets("g", "t") == {0: 5}
    assert state.unsettled == frozenset()


@pytest.mark.parametrize(
    "files",
    [
        {},
        {file: {APPLIED_KEY: -1} for file in YOUNGER_FILES},
        {
            file: {**BrokerState({}).tables().get(file, {}), APPLIED_KEY: -1}
            for file in YOUNGER_FILES
        },
    ],
    ids=["missing", "nothing but -1", "as an older version wrote them"],
)
@pytest.mark.parametrize("first", [0, 2])
def test_younger_tables_beside_one_from_outside_apply_all_that_the_log_has(
    files: dict[str, dict[str, object]], first: int
) -> None:
    """Whatever was acknowledged of them; and nothing that the log has no more is waited for."""
    lock = Lock("client", 15_000)
    log = [*[command(topic("old", 1))] * first, command(LocksSet("g", "t", {0: lock}))]
    outer: dict[str, dict[str, object]] = {
        topics.FILE: outside("mine"),
        groups.FILE: {APPLIED_KEY: len(log)},
        OFFSETS_FILE: {APPLIED_KEY: len(log)},
    }
    state = BrokerState({**outer, **files})
    from_first = state.from_first
    state.settle(topics.FILE, len(log))
    apply_all(state, log, first=first)

    assert from_first == set(YOUNGER_FILES)
    assert dict(state.locks.locks("g", "t")) == {0: lock}
    assert not state.needs_snapshot
    assert {state.place(file) for file in FILES} == {len(log)}


def test_a_younger_table_with_content_and_no_place_is_one_from_outside() -> None:
    locks = apply_all(fresh(), [command(LocksSet("g", "t", {0: Lock("client", 15_000)}))])
    document = {**locks.documents()[queue_locks.FILE], APPLIED_KEY: -1}
    state = BrokerState({**fresh().documents(), queue_locks.FILE: document})

    assert state.unsettled == {queue_locks.FILE}
    assert state.from_first == set()


def test_a_place_behind_the_log_is_that_of_another_log() -> None:
    files = apply_all(fresh(), [command(topic("a", 1)), command(topic("b", 1))]).documents()

    state = apply_all(BrokerState(files), [])
    was_behind = state.is_behind(1)
    begin = state.begin_again(1)
    state.apply(1, *command(topic("d", 1)))

    assert was_behind
    assert begin == 0
    assert [one.name for one in state.topics] == ["a", "b", "d"]


def test_without_the_commands_that_it_lacks_a_node_waits_for_a_snapshot() -> None:
    early = apply_all(fresh(), [command(topic("a", 1))])
    files = early.documents()
    log = [
        command(topic("a", 1)),
        command(topic("deleted before it was read", 1)),
        command(topic("c", 1)),
        *snapshot(apply_all(fresh(), [command(topic("all", 2))])),
        command(topic("d", 1)),
    ]

    state = apply_all(BrokerState(files), log, first=2)

    assert [one.name for one in state.topics] == ["all", "d"]
    assert not state.needs_snapshot


def test_a_leader_that_lacks_commands_finds_its_own_and_changes_nothing_by_it() -> None:
    """It proposes a snapshot once it has found it: nobody has more than it then."""
    state = BrokerState(apply_all(fresh(), [command(topic("a", 1))]).documents())
    state.begin_at(2, 3)

    applied = state.apply(2, *command(topic("c", 1), identity="its own"))

    assert applied.identity == "its own"
    assert state.needs_snapshot
    assert [one.name for one in state.topics] == ["a"]


def test_a_table_that_lacks_nothing_keeps_what_it_has_over_an_older_snapshot() -> None:
    """RocketMQ wrote its files after that, and deleted what other tables would need."""
    old = apply_all(fresh(), [command(topic("deleted since", 2), group("old"))])
    log = [*[command(group("a"))] * 2, *snapshot(old), command(topic("new", 1), group("b"))]
    files = {
        **fresh().documents(),
        topics.FILE: {**outside("theirs"), APPLIED_KEY: 3},
    }
    state = apply_all(BrokerState(files), log, first=2)

    assert not state.needs_snapshot
    assert [one.name for one in state.topics] == ["theirs", "new"]
    assert [one.name for one in state.groups] == ["old", "b"]


def test_a_snapshot_whose_beginning_is_missing_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(state_commands, "PART_SIZE_MAX", 60)
    parts = snapshot(apply_all(fresh(), [command(topic("a", 1))]))
    other = snapshot(fresh(), "other")
    assert len(parts) > 2

    log = [command(topic("b", 1)), parts[0], *parts[2:], parts[0], command(group("g")), parts[1]]
    state = apply_all(fresh(), log)
    told = [state.apply(len(log) + number, *entry) for number, entry in enumerate(other)]

    assert state.snapshots == 1
    assert told[-1] == ("other", True)
    assert [one.identity for one in told[:-1]] == [""] * (len(told) - 1)


def test_what_cannot_be_read_counts_as_applied() -> None:
    state = fresh()
    with pytest.raises(CorruptLogError):
        state.apply(0, STATE_TAG, "", b"{")
    with pytest.raises(ConfigError):
        state.apply(1, *command(TopicSet("t", {"perm": "x"})))
    nothing = state.apply(2, "of a later version", "", b"?")

    assert state.applied == 3
    assert nothing.identity == ""


def test_each_file_says_its_place_and_what_it_does_not_understand_stays() -> None:
    files = {
        topics.FILE: {"topicConfigTable": {}, "later": 1, APPLIED_KEY: 1},
        groups.FILE: {"subscriptionGroupTable": {}, "forbiddenTable": {}, APPLIED_KEY: 1},
        OFFSETS_FILE: {"offsetTable": {"odd": 1}, APPLIED_KEY: 0},
    }
    state = BrokerState(files)
    begin = state.begin_at(0, 1)
    state.apply(0, *command(topic("t", 1), OffsetsSet("g", "t", {0: 1})))
    documents = state.documents()

    assert begin == 0
    assert state.topics.get("t") is None  # it had that already
    assert state.offsets.offsets("g", "t") == {0: 1}
    assert documents[topics.FILE]["later"] == 1
    assert {document[APPLIED_KEY] for document in documents.values()} == {1}


def test_a_deleted_group_owns_no_queue() -> None:
    lock = Lock("client", 15_000)
    state = apply_all(fresh(), [command(group("a"), LocksSet("a", "t", {0: lock}))])
    held = dict(state.locks.locks("a", "t"))
    state.apply(1, *command(GroupSet("a", None)))

    assert held == {0: lock}
    assert state.locks.locks("a", "t") == {}


def test_a_store_without_a_file_of_locks_has_them_as_far_as_the_others() -> None:
    documents: dict[str, dict[str, object]] = {
        file: {APPLIED_KEY: 3} for file in (topics.FILE, groups.FILE, OFFSETS_FILE)
    }
    state = BrokerState(documents)

    assert state.begin_at(2, 5) == 3
    assert not state.needs_snapshot
