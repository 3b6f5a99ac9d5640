"""Topics that are made because somebody sends to them: from which template, and when not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ledgermq.broker.administration.topic_calls import SendTopicCalls
from ledgermq.broker.callers import Caller
from ledgermq.broker.calls import Call
from ledgermq.model.config.settings import NodeSection, TopicsSection
from ledgermq.model.errors import LedgerError, NoPermissionError, TopicUnknownError
from ledgermq.rules.tables.groups import GroupTable
from ledgermq.rules.tables.table_changes import GroupSet, TopicSet
from ledgermq.rules.tables.topics import Topic, TopicTable
from tests.unit.broker.answers import answers


class Node:
    """Tables of a leader; what it would have in the log is in ``requests``."""

    def __init__(self, **rules: Any) -> None:
        topics, settings = TopicTable(), TopicsSection(**rules)
        topics.add_builtin(NodeSection(), settings, 0)
        self.topics = topics
        self.requests: list[Any] = []
        known: Any = SimpleNamespace(
            tables=SimpleNamespace(topics=topics, groups=GroupTable()),
            queues_found=lambda name: 6 if name == "stored" else 0,
            first_offsets=lambda name: {1: 40} if name == "deleted" else {},
        )
        log: Any = SimpleNamespace(
            submit=lambda request, _now: self.requests.append(request), check_leads=lambda: None
        )
        notice: Any = SimpleNamespace()
        self._calls = SendTopicCalls(known, settings, log, notice)

    def make(self, topic: str, template: str = "TBW102", queues: int = 4) -> list[Any]:
        """What the log gets."""
        arguments = {"topic": topic, "template": template, "queues": queues, "unit_mode": True}
        answers(self._calls.verbs)["topic_for_send"](Call(Caller(b"c", 1), arguments, 0))
        changes: list[Any] = self.requests[-1].plan()
        return changes


@pytest.mark.parametrize(("queues", "made"), [(4, 4), (100, 8), (0, 1)])
def test_a_topic_has_the_queues_that_its_template_allows(queues: int, made: int) -> None:
    (change,) = Node().make("new", queues=queues)

    assert isinstance(change, TopicSet)
    topic = Topic.read("new", change.fields)
    assert (topic.read_queues, topic.write_queues) == (made, made)
    assert (int(topic.permission), topic.sys_flag) == (6, 1)


def test_queues_that_the_store_has_are_all_there() -> None:
    (change,) = Node().make("stored", queues=2)

    assert Topic.read("stored", change.fields).read_queues == 6


def test_a_deleted_topic_of_the_name_is_numbered_on() -> None:
    (change,) = Node().make("deleted")

    assert Topic.read("deleted", change.fields).first_offsets == {1: 40}


def test_a_topic_that_is_there_by_now_stays_as_it_is() -> None:
    node = Node()
    node.topics.put(Topic("new", 2, 2), 0)

    assert node.make("new") == []


@pytest.mark.parametrize("name", ["%RETRY%readers", "%DLQ%readers"])
@pytest.mark.parametrize(("creates", "queues"), [(True, 4), (False, 1)])
def test_a_groups_own_topic_comes_with_its_group_and_as_others_where_they_are_made(
    name: str, creates: bool, queues: int
) -> None:
    group, topic = Node(auto_create_topic_enable=creates).make(name)

    assert isinstance(group, GroupSet) and isinstance(topic, TopicSet)
    assert Topic.read(name, topic.fields).write_queues == queues


@pytest.mark.parametrize(
    ("topic", "template", "rules", "kind"),
    [
        ("new", "TBW102", {"auto_create_topic_enable": False}, TopicUnknownError),
        ("new", "DefaultCluster", {"auto_create_topic_enable": False}, TopicUnknownError),
        ("new", "BenchmarkTest", {}, TopicUnknownError),
        ("new", "nothing", {}, TopicUnknownError),
        ("SCHEDULE_TOPIC_XXXX", "TBW102", {}, NoPermissionError),
        ("%RETRY%g", "TBW102", {"auto_create_subscription_group": False}, LedgerError),
    ],
)
def test_what_may_not_be_made_is_refused_at_once(
    topic: str, template: str, rules: dict[str, bool], kind: type[LedgerError]
) -> None:
    node = Node(**rules)
    with pytest.raises(kind):
        node.make(topic, template)

    assert node.requests == []
