"""Answers of RocketMQ 5.5.1 about its stores, found again in the files: records of version 2, too.

What is said in ``test_golden_store.py`` of messages that come behind the answers counts here, too.
Besides, the client of 5.5 takes the bit of a compressed body away when it has decompressed it, and
it tells queues that have no files yet. (Its time queries ask for another boundary than 4.9.4's.)
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ledgermq.cli.store.store_reading import MAX_OFFSET, queued_message_as_json
from ledgermq.formats.records.message import COMPRESSED, MAGIC_V2
from ledgermq.store.store_view import StoreView

STORES = {"p551": (181, []), "p551v2k": (179, [255_185, 255_679])}
"""Messages that the broker told, and where the records of version 2 begin."""


@pytest.fixture(params=STORES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def root(name: str, golden: Any) -> Path:
    found: Path = golden(name)
    return found


@pytest.fixture
def answers(name: str, golden_json: Any) -> Any:
    return golden_json(name)


@pytest.fixture
def view(root: Path) -> Any:
    opened = StoreView(root)
    yield opened
    opened.close()


def test_the_records_of_version_2_are_where_they_were_found(name: str, root: Path) -> None:
    wanted = MAGIC_V2.to_bytes(4, "big")
    (content,) = [path.read_bytes() for path in sorted((root / "commitlog").iterdir())][:1]
    found = [at - 4 for at in range(len(content)) if content.startswith(wanted, at)]

    assert found == STORES[name][1]


def test_queue_bounds_are_those_that_the_broker_said(view: StoreView, answers: Any) -> None:
    found = {(queue.topic, queue.queue_id): queue for queue in view.queues()}
    for queue in answers["queues"]:
        ours = found.get((queue["topic"], queue["queue"]))
        if ours is None:
            assert queue["max"] <= 0
            continue

        assert ours.first == queue["min"]
        assert ours.end >= queue["max"]


def test_every_message_is_the_one_that_the_broker_said(
    name: str, view: StoreView, answers: Any
) -> None:
    said = {
        (message["readTopic"], message["readQueue"], message["physicalOffset"]): message
        for message in answers["messages"]
    }
    assert len(said) == STORES[name][0]
    ends = {(queue["topic"], queue["queue"]): queue["max"] for queue in answers["queues"]}
    for queued in view.messages():
        ours: dict[str, Any] = queued_message_as_json(queued)
        queue = (queued.queue.topic, queued.queue.queue_id)
        theirs = said.pop((*queue, queued.message.physical_offset), None)
        if theirs is None:
            assert queued.queue_offset >= ends.get(queue, 0)
            continue
        max_offset = theirs["properties"][MAX_OFFSET]

        assert {
            **ours,
            "sysFlag": ours["sysFlag"] & ~COMPRESSED,
            "properties": {**ours["properties"], MAX_OFFSET: max_offset},
        } == theirs

    assert said == {}


def test_key_queries_find_what_the_broker_found(view: StoreView, answers: Any) -> None:
    known = {message["physicalOffset"] for message in answers["messages"]}
    assert answers["keyQueries"]
    for query in answers["keyQueries"]:
        found = {
            message.physical_offset for message in view.query_key(query["topic"], query["key"])
        }

        assert found & known == set(query["physicalOffsets"])
