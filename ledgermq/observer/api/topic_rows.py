"""Rows of calls about topics."""

from __future__ import annotations

from ledgermq.observer.api.calls import ApiCall, Needs
from ledgermq.observer.api.fields import ALL, LIMIT, NEXT
from ledgermq.observer.api.verb_calls import verb_call
from ledgermq.observer.inquiries.row_pages import ROWS_DEFAULT
from ledgermq.verbs.topics import AlterTopic, CreateTopic, DeleteTopic, ShowTopic

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
    verb_call(
        "POST", "/topics", "createTopic", "Create a topic, or give one more queues", CreateTopic
    ),
    verb_call(
        "GET", "/topics/{topic}", "showTopic", "A topic, its queues and its groups", ShowTopic
    ),
    verb_call("PATCH", "/topics/{topic}", "alterTopic", "Change what is given", AlterTopic),
    verb_call(
        "DELETE", "/topics/{topic}", "deleteTopic",
        "Delete a topic, and what groups have consumed of it", DeleteTopic,
    ),
)  # fmt: skip
