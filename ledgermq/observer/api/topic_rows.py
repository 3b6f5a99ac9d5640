"""Rows of calls about topics."""

from __future__ import annotations

from ledgermq.client.admin.admin import TopicFields
from ledgermq.observer.api.calls import ApiCall, Needs
from ledgermq.observer.api.fields import (
    ALL,
    BOOLEAN,
    INTEGER,
    LIMIT,
    NEXT,
    TEXT,
    TOPIC,
    CallField,
    Given,
)
from ledgermq.observer.inquiries.row_pages import ROWS_DEFAULT

_SHAPE = {
    "topic": "string",
    "read_queues": "integer",
    "write_queues": "integer",
    "perm": "integer",
    "order": "boolean",
    "filter_type": "string",
    "sys_flag": "integer",
    "order_config": "string",
    "warnings": "array",
    "deduplication_window_ms": "integer",
}
_FIELDS = (
    CallField("queues", INTEGER, "For reading and writing"),
    CallField("read_queues", INTEGER, "For reading"),
    CallField("write_queues", INTEGER, "For writing"),
    CallField("perm", INTEGER, "RocketMQ's bits: 4 read, 2 write, 1 inherit"),
    CallField("order", BOOLEAN, "An order topic"),
    CallField("filter_type", TEXT, "Of tags", among=("SINGLE_TAG", "MULTI_TAG")),
    CallField("sys_flag", INTEGER, "RocketMQ's topicSysFlag"),
    CallField("deduplication_window_ms", INTEGER, "How long unique ids count; 0: they do not"),
)

TOPIC_CALLS = (
    ApiCall(
        "GET", "/topics", "listTopics", "Topics by name, as ledgermq topic list",
        Needs.USER,
        lambda ask, given: ask.topics.list(
            all_=given.flag("all"),
            limit=given.integer("limit", ROWS_DEFAULT),
            after=given.text("after"),
        ),
        {"topics": "array", "next": "string?"},
        query=(ALL, LIMIT, NEXT),
    ),
    ApiCall(
        "POST", "/topics", "createTopic", "Create a topic, or give one more queues",
        Needs.ADMIN,
        lambda ask, given: ask.topics.create(given.text("topic"), **_given(given)),
        _SHAPE,
        body=(TOPIC, *_FIELDS),
    ),
    ApiCall(
        "GET", "/topics/{topic}", "showTopic", "A topic, its queues and its groups",
        Needs.USER,
        lambda ask, given: ask.topics.show(given.text("topic")),
        {**_SHAPE, "system": "boolean", "queues": "array", "groups": "array"},
        path_fields=(TOPIC,),
    ),
    ApiCall(
        "PATCH", "/topics/{topic}", "alterTopic", "Change what is given",
        Needs.ADMIN,
        lambda ask, given: ask.topics.alter(
            given.text("topic"), force=given.flag("force"), **_given(given)
        ),
        _SHAPE,
        path_fields=(TOPIC,),
        body=(*_FIELDS, CallField("force", BOOLEAN, "Take queues from readers all the same")),
    ),
    ApiCall(
        "DELETE", "/topics/{topic}", "deleteTopic",
        "Delete a topic, and what groups have consumed of it",
        Needs.ADMIN,
        lambda ask, given: ask.topics.delete(given.text("topic")),
        {"deleted": "string"},
        path_fields=(TOPIC,),
    ),
)  # fmt: skip


def _given(given: Given) -> TopicFields:
    return {
        "queues": given.integer_or_none("queues"),
        "read_queues": given.integer_or_none("read_queues"),
        "write_queues": given.integer_or_none("write_queues"),
        "perm": given.integer_or_none("perm"),
        "order": given.flag_or_none("order"),
        "filter_type": given.text_or_none("filter_type"),
        "sys_flag": given.integer_or_none("sys_flag"),
        "deduplication_window_ms": given.integer_or_none("deduplication_window_ms"),
    }
