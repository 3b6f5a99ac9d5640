"""Answers that show whole tables: what they say, and what is made anew for the next one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ledgermq.gateway.administration import encoded_tables
from ledgermq.gateway.administration.encoded_tables import EncodedTables
from ledgermq.model.limits import SYSTEM_TOPIC
from ledgermq.rules.state.broker_state import BrokerState
from ledgermq.rules.tables.documents import finish
from ledgermq.rules.tables.groups import SubscriptionGroup
from ledgermq.rules.tables.topics import Topic

ROWS = 300


class Counted(EncodedTables):
    """Counts the rows that were made."""

    def __init__(self, state: BrokerState) -> None:
        super().__init__(state)
        self.made = 0
        for rows in (self._topics, self._groups, self._offsets):
            encode = rows._encode

            def count(row: Any, encode: Any = encode) -> str:
                self.made += 1
                return str(encode(row))

            rows._encode = count

    def take_made(self) -> int:
        made, self.made = self.made, 0
        return made


@pytest.fixture
def state() -> BrokerState:
    state = BrokerState({})
    for number in range(ROWS):
        state.topics.put(Topic(f"topic-{number}", 2, 2), 1)
        state.groups.put(SubscriptionGroup(f"group-{number}"), 1)
        state.offsets.set(f"group-{number}", f"topic-{number}", {1: number, 0: 7})
    return state


def test_the_answers_say_what_the_tables_have(state: BrokerState) -> None:
    state.topics.put(Topic(SYSTEM_TOPIC, 2, 2), 2)
    state.topics.put(Topic("Grüße", 1, 1, queues_kept=4), 3)
    encoded = EncodedTables(state)
    topics, groups = json.loads(finish(encoded.topics())), json.loads(finish(encoded.groups()))
    written = state.groups.to_document()

    assert topics["dataVersion"] == state.topics.data_version
    assert topics["topicConfigTable"].keys() == {one.name for one in state.topics} - {SYSTEM_TOPIC}
    assert topics["topicConfigTable"]["topic-3"] == Topic("topic-3", 2, 2).to_fields()
    assert not [key for key in topics["topicConfigTable"]["Grüße"] if key.startswith("ledgermq")]
    assert groups == {key: written[key] for key in ("dataVersion", "subscriptionGroupTable")}
    assert json.loads(finish(encoded.offsets())) == {
        "dataVersion": {"counter": ROWS, "stateVersion": 0, "timestamp": 0},
        "offsetTable": {
            f"topic-{number}@group-{number}": {"0": 7, "1": number} for number in range(ROWS)
        },
    }


def test_an_answer_is_made_once_while_nothing_changes(state: BrokerState) -> None:
    encoded = Counted(state)
    first = finish(encoded.topics()), finish(encoded.groups()), finish(encoded.offsets())
    made = encoded.take_made()
    again = finish(encoded.topics()), finish(encoded.groups()), finish(encoded.offsets())

    assert made == 3 * ROWS
    assert encoded.take_made() == 0
    assert all(one is other for one, other in zip(first, again, strict=True))


def test_only_what_has_changed_is_made_anew(state: BrokerState) -> None:
    encoded = Counted(state)
    finish(encoded.topics()), finish(encoded.groups()), finish(encoded.offsets())
    encoded.take_made()
    state.topics.put(Topic("topic-7", 9, 9), 2)
    state.topics.delete("topic-8", 2)
    state.groups.put(SubscriptionGroup("fresh"), 2)
    state.offsets.set("group-1", "topic-1", {0: 8})
    topics = json.loads(finish(encoded.topics()))["topicConfigTable"]
    groups = json.loads(finish(encoded.groups()))["subscriptionGroupTable"]
    offsets = json.loads(finish(encoded.offsets()))["offsetTable"]

    assert encoded.take_made() == 3
    assert topics["topic-7"]["readQueueNums"] == 9
    assert "topic-8" not in topics
    assert "fresh" in groups
    assert offsets["topic-1@group-1"] == {"0": 8, "1": 1}


def test_tables_that_a_snapshot_replaced_are_shown(state: BrokerState) -> None:
    encoded = EncodedTables(state)
    finish(encoded.topics())
    other = BrokerState({})
    for number in range(ROWS):
        # As many changes, and so the same version.
        other.topics.put(Topic(f"other-{number}"), 1)
    state.topics.replace_with(other.topics)
    state.snapshots += 1

    assert "other-5" in json.loads(finish(encoded.topics()))["topicConfigTable"]


def test_rows_of_a_table_that_is_too_large_are_not_kept(
    state: BrokerState, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoded_tables, "KEPT_MAX", 1_000)
    encoded = Counted(state)
    finish(encoded.topics())
    encoded.take_made()
    state.topics.put(Topic("topic-7", 9, 9), 2)
    topics = json.loads(finish(encoded.topics()))["topicConfigTable"]

    assert encoded.take_made() == ROWS
    assert topics["topic-7"]["readQueueNums"] == 9


def test_a_table_is_encoded_in_steps_which_two_that_ask_share(state: BrokerState) -> None:
    encoded = Counted(state)
    one, other = encoded.topics(), encoded.topics()
    steps = 0
    for _ in zip(one, other, strict=False):
        # What changes meanwhile is in the next answer.
        state.topics.put(Topic(f"late-{steps}"), 2)
        steps += 1

    finish(other)
    assert steps >= 4
    assert encoded.take_made() <= ROWS + 2
    assert "late-0" in json.loads(finish(encoded.topics()))["topicConfigTable"]
