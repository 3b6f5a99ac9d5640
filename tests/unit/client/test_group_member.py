"""A group member's steps, against a broker that refuses some of what it asks."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ledgermq.client.core.requests import Request, RequestPipeline
from ledgermq.client.groups.allocation import GroupView, TopicQueue
from ledgermq.client.groups.group_member import Course, GroupMember, GroupOptions, Notice
from ledgermq.client.groups.heartbeats import GroupNews
from ledgermq.client.reading.pull_pipeline import ConsumerOptions
from ledgermq.model.errors import MessageIllegalError
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
