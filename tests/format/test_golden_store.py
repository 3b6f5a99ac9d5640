"""Every answer of the real broker about its store, found again in the store's files.

The answers were taken shortly before the copy or the stop. What a broker does by itself went on in
between: delayed messages fell due, retries were delivered, transactions were checked. So a store
may hold messages that the answers do not name, always behind those that they name:

* a queue's ``max`` may be higher, by exactly the messages that are new;
* a message's MAX_OFFSET, which the client adds, is the queue's ``max`` when it was pulled: no more
  than the queue's ``max`` now;
* a key query may find a new message too, and a time query may find one that is nearer.

Everything else is equal.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ledgermq.cli.store.store_reading import MAX_OFFSET, queued_message_as_json
from ledgermq.store.store_view import StoreView

STORES = [
    "gs1",
    "gs1.live",
    *(f"gd{number}{live}" for number in range(3) for live in ("", ".live")),
    "gu0",
    "gu1",
    "gu2",
    "g6",
]

Queue = tuple[str, int]


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, golden: Any, golden_json: Any) -> tuple[Path, Any]:
    """A store directory, and what the broker said about it."""
    return golden(request.param), golden_json(request.param)


@pytest.fixture
def view(store: tuple[Path, Any]) -> Any:
    opened = StoreView(store[0])
    yield opened
    opened.close()


@pytest.fixture
def answers(store: tuple[Path, Any]) -> Any:
    return store[1]


def ends_said(answers: Any) -> dict[Queue, int]:
    """``max`` of each queue as the broker said; what is at or behind it is new."""
    return {(queue["topic"], queue["queue"]): queue["max"] for queue in answers["queues"]}


def test_queue_bounds_are_those_that_the_broker_said(view: StoreView, answers: Any) -> None:
    found = {(queue.topic, queue.queue_id): queue for queue in view.queues()}
    for queue in answers["queues"]:
        ours = found[queue["topic"], queue["queue"]]

        assert ours.first == queue["min"]
        assert ours.end >= queue["max"]


def test_every_message_is_the_one_that_the_broker_said(view: StoreView, answers: Any) -> None:
    said = {
        (message["readTopic"], message["readQueue"], message["physicalOffset"]): message
        for message in answers["messages"]
    }
    ends = ends_said(answers)
    for queued in view.messages():
        ours: dict[str, Any] = queued_message_as_json(queued)
        queue = (queued.queue.topic, queued.queue.queue_id)
        theirs = said.pop((*queue, queued.message.physical_offset), None)
        if theirs is None:
            assert queued.queue_offset >= ends.get(queue, 0)
            continue
        max_offset = theirs["properties"][MAX_OFFSET]

        assert queued.queue_offset < int(max_offset) <= queued.queue.end
        assert {
            **ours,
            "properties": {**ours["properties"], MAX_OFFSET: max_offset},
        } == theirs

    assert said == {}


def test_key_queries_find_what_the_broker_found(view: StoreView, answers: Any) -> None:
    known = {message["physicalOffset"] for message in answers["messages"]}
    for query in answers["keyQueries"]:
        found = {
            message.physical_offset for message in view.query_key(query["topic"], query["key"])
        }

        assert found & known == set(query["physicalOffsets"])


def test_time_queries_find_what_the_broker_found(view: StoreView, answers: Any) -> None:
    ends = ends_said(answers)
    for query in answers["timeQueries"]:
        queue = (query["topic"], query["queue"])
        offset = view.query_time(*queue, query["timestamp"])
        if offset != query["offset"]:
            # A new message may be nearer, and only to a time behind all that was said.
            assert offset >= ends[queue]
            assert query["offset"] == ends[queue] - 1


def test_messages_are_found_by_their_position(view: StoreView, answers: Any) -> None:
    for said in answers["messages"]:
        message = view.message_at(said["physicalOffset"])

        assert (message.size, message.store_timestamp) == (
            said["storeSize"],
            said["storeTimestamp"],
        )


def test_the_log_has_each_queued_message_once(view: StoreView) -> None:
    records = {record.message.physical_offset: record for record in view.log.iterate()}
    queued = [message.message.physical_offset for message in view.messages()]

    assert len(queued) == len(set(queued))
    assert set(queued) <= records.keys()
