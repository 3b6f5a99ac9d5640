"""A group member's steps, against a broker that refuses some of what it asks."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from ledgermq.client.core.requests import Request, RequestPipeline
from ledgermq.client.groups.allocation import GroupView, TopicQueue
from ledgermq.client.groups.group_member import (
    Course,
    GroupMember,
    GroupOptions,
    LocalOffsets,
    Notice,
)
from ledgermq.client.groups.heartbeats import GroupNews
from ledgermq.client.reading.pull_pipeline import ConsumerOptions
from ledgermq.model.errors import ConfigError, CorruptLogError, MessageIllegalError, StorageError
from ledgermq.model.message_filter import EVERYTHING
from ledgermq.wire.session import encode_result

NOBODY: Any = None


class Broker:
    """Notes commits; those of ``gone`` it refuses, with all that comes with them."""

    def __init__(self, *gone: TopicQueue) -> None:
        self.committed: dict[TopicQueue, int] = {}
        self.notices: list[Notice] = []
        self._gone = set(gone)

    def run(self, course: Course) -> None:
        for step in course:
            if isinstance(step, Notice):
                self.notices.append(step)
            else:
                self._answer(step)

    def _answer(self, request: Request) -> None:
        asked = json.loads(request.encode(1)[1])
        if asked["verb"] == "group_commit":
            told = {
                TopicQueue(asked["topic"], int(queue)): offset
                for queue, offset in asked["offsets"].items()
            }
            assert asked["client"] == "c1"
            if self._gone & told.keys():
                request.error = MessageIllegalError("queue is another member's by now")
                return
            self.committed |= told
        request.parts = [*encode_result(1, {"version": "1"})]


def make_member() -> GroupMember:
    requests: Any = RequestPipeline(NOBODY)
    return GroupMember(
        requests,
        GroupOptions(),
        ConsumerOptions(),
        group="g",
        client="c1",
        subscription=dict.fromkeys(("a", "b", "c"), EVERYTHING),
    )


QUEUES = [TopicQueue(topic, queue_id) for topic in ("a", "b", "c") for queue_id in (0, 1)]


@pytest.mark.parametrize("gone", [(), (QUEUES[2],), (QUEUES[0], QUEUES[2]), QUEUES])
def test_what_is_refused_of_one_queue_is_noted_of_the_others_that_are_given_away(
    gone: tuple[TopicQueue, ...],
) -> None:
    member = make_member()
    member.reader.add(dict.fromkeys(QUEUES, 0), {})
    for number, queue in enumerate(QUEUES, 1):
        member.reader.seek(queue, number)
    broker = Broker(*gone)
    broker.run(member._give_away(frozenset(QUEUES)))

    kept = {queue: number for number, queue in enumerate(QUEUES, 1) if queue not in gone}
    assert broker.committed == kept
    assert broker.notices == ([Notice("lost", tuple(sorted(gone)))] if gone else [])
    assert member.reader.queues == frozenset()


def test_who_leaves_while_it_takes_queues_gives_back_what_it_may_have() -> None:
    member = make_member()
    view = GroupView({"c1": ["a"]}, {}, {"a": 2})
    course = member.rebalance(GroupNews(number=1, version="1", view=view, warnings=()))
    locks = next(course)
    assert isinstance(locks, Request)
    course.close()
    asked = [json.loads(locks.encode(1)[1])]
    for step in member.leave():
        assert isinstance(step, Request)
        asked.append(json.loads(step.encode(1)[1]))
        step.parts = [*encode_result(1, {"version": "1"})]

    assert [one["verb"] for one in asked] == ["queue_lock", "queue_unlock", "group_leave"]
    assert asked[0]["queues"] == asked[1]["queues"] == {"a": [0, 1]}


def test_offsets_of_who_broadcasts_are_a_whole_file_of_its_owner_alone(tmp_path: Path) -> None:
    above = tmp_path / "new"
    offsets = LocalOffsets(above, "screen", "g")
    offsets.commit({TopicQueue("a", 0): 3, TopicQueue("a", 1): 4})
    offsets.commit({TopicQueue("a", 0): 5})

    assert LocalOffsets(above, "screen", "g").offsets() == {
        TopicQueue("a", 0): 5,
        TopicQueue("a", 1): 4,
    }
    assert [path.name for path in offsets.path.parent.iterdir()] == ["offsets.json"]
    assert stat.S_IMODE(offsets.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(offsets.path.parent.stat().st_mode) == 0o700


def test_a_file_of_offsets_that_is_another_ones_is_left_as_it_is(tmp_path: Path) -> None:
    offsets = LocalOffsets(tmp_path, "screen", "g")
    offsets.commit({TopicQueue("a", 0): 3})
    theirs = tmp_path / "theirs"
    theirs.write_bytes(b"not ours")
    fresh = offsets.path.with_name("offsets.json.tmp")
    fresh.symlink_to(theirs)
    with pytest.raises(StorageError, match="file not replaced"):
        offsets.commit({TopicQueue("a", 0): 4})

    assert theirs.read_bytes() == b"not ours"
    assert offsets.offsets() == {TopicQueue("a", 0): 3}
    fresh.rename(offsets.path)
    with pytest.raises(CorruptLogError, match="not a file of offsets"):
        LocalOffsets(tmp_path, "screen", "g")
    with pytest.raises(ConfigError, match="cannot be that of a folder"):
        LocalOffsets(tmp_path, "..", "g")
