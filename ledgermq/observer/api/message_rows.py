"""Rows of calls about messages, timers and transactions."""

from __future__ import annotations

from collections.abc import Awaitable

from ledgermq.model.errors import ConfigError
from ledgermq.model.limits import TIMESTAMP_MAX
from ledgermq.model.names.transactions import MESSAGES_MAX, Decision
from ledgermq.observer.api.calls import ApiCall, Needs
from ledgermq.observer.api.fields import (
    BODY_SIZE,
    BOOLEAN,
    INTEGER,
    LIMIT,
    OFFSET,
    QUEUE,
    TEXT,
    TOPIC,
    CallField,
    Given,
)
from ledgermq.observer.inquiries.inquiries import Inquiries
from ledgermq.observer.inquiries.message_inquiries import BODY_DEFAULT, MESSAGES_SHOWN
from ledgermq.observer.inquiries.row_pages import ROWS_DEFAULT, Json

_ID = CallField("id", TEXT, "An offset id, or with topic a producer's unique id", is_needed=True)
_IN_TOPIC = TOPIC._replace(is_needed=False, about="Where a producer's unique id is looked for")
_COUNT = LIMIT._replace(default=MESSAGES_SHOWN)
_DECISIONS = tuple(one.value for one in Decision)


def _find(ask: Inquiries, given: Given) -> Awaitable[Json]:
    topic, key = given.text("topic"), given.text_or_none("key")
    begin, end = given.integer("begin"), given.integer("end", TIMESTAMP_MAX)
    limit = given.integer("limit", MESSAGES_SHOWN)
    body_max = given.integer("body_max", BODY_DEFAULT)
    if key is None and "begin" not in given and "end" not in given:
        raise ConfigError("nothing to find by: give a key, or begin and end")
    if key is None:
        return ask.messages.by_time(topic, begin=begin, end=end, limit=limit, body_max=body_max)
    return ask.messages.by_key(topic, key, begin=begin, end=end, limit=limit, body_max=body_max)


MESSAGE_CALLS = (
    ApiCall(
        "GET", "/topics/{topic}/messages", "browseMessages",
        "Messages of a queue, from some place on; nothing counts as consumed by it",
        Needs.MESSAGES,
        lambda ask, given: ask.messages.browse(
            given.text("topic"),
            given.integer("queue"),
            offset=given.integer_or_none("offset"),
            time=given.integer_or_none("time"),
            last=given.flag("last"),
            limit=given.integer("limit", MESSAGES_SHOWN),
            body_max=given.integer("body_max", BODY_DEFAULT),
        ),
        {"messages": "array", "min": "integer", "max": "integer", "next": "integer?"},
        path_fields=(TOPIC,),
        query=(
            QUEUE,
            OFFSET,
            CallField("time", INTEGER, "From what was stored then, epoch ms", most=TIMESTAMP_MAX),
            CallField("last", BOOLEAN, "The last ones in the place of the first ones"),
            _COUNT,
            BODY_SIZE,
        ),
    ),
    ApiCall(
        "GET", "/topics/{topic}/find", "findMessages",
        "The newest messages with a key, or the first ones of a time",
        Needs.MESSAGES,
        _find,
        {"messages": "array", "more": "boolean"},
        path_fields=(TOPIC,),
        query=(
            CallField("key", TEXT, "A key, or a unique id"),
            CallField("begin", INTEGER, "Stored then or later, epoch ms", most=TIMESTAMP_MAX),
            CallField("end", INTEGER, "Stored then or before, epoch ms", most=TIMESTAMP_MAX),
            _COUNT,
            BODY_SIZE,
        ),
    ),
    ApiCall(
        "GET", "/message", "showMessage", "All about one message",
        Needs.MESSAGES,
        lambda ask, given: ask.messages.show(
            given.text("id"),
            given.text_or_none("topic"),
            body_max=given.integer("body_max", BODY_DEFAULT),
        ),
        {"message": "object"},
        query=(_ID, _IN_TOPIC, BODY_SIZE),
    ),
    ApiCall(
        "GET", "/message/track", "trackMessage", "A message, its life, and where each group stands",
        Needs.MESSAGES,
        lambda ask, given: ask.messages.track(
            given.text("id"),
            given.text_or_none("topic"),
            body_max=given.integer("body_max", BODY_DEFAULT),
        ),
        {"message": "object", "groups": "array", "life": "array", "tracesFault": "string"},
        query=(_ID, _IN_TOPIC, BODY_SIZE),
    ),
    ApiCall(
        "GET", "/timers", "listTimers", "Messages that wait for their time, those due next first",
        Needs.USER,
        lambda ask, given: ask.timers.list(limit=given.integer("limit", ROWS_DEFAULT)),
        {"waiting": "integer", "timers": "array"},
        query=(LIMIT,),
    ),
    ApiCall(
        "POST", "/timers/cancel", "cancelTimer", "Take a message back that waits for its time",
        Needs.SENDS,
        lambda ask, given: ask.timers.cancel(given.text("id")),
        {"cancelled": "string"},
        body=(CallField("id", TEXT, "Unique id of the message", is_needed=True),),
    ),
    ApiCall(
        "GET", "/transactions", "listTransactions", "Those that wait for their end, oldest first",
        Needs.USER,
        lambda ask, given: ask.transactions.list(limit=given.integer("limit", ROWS_DEFAULT)),
        {"half_messages": "integer", "transactions": "array"},
        query=(LIMIT,),
    ),
    ApiCall(
        "POST", "/transactions/end", "endTransaction", "Commit a transaction, or roll it back",
        Needs.SENDS,
        lambda ask, given: ask.transactions.end(
            given.text("group"),
            given.text("id"),
            Decision(given.text("decision")),
            messages=given.integer("messages"),
        ),
        {"decision": "string", "messages": "integer"},
        body=(
            CallField("group", TEXT, "Of its producers", is_needed=True),
            CallField("id", TEXT, "Of the transaction", is_needed=True),
            CallField("decision", TEXT, "What becomes of it", is_needed=True, among=_DECISIONS),
            CallField("messages", INTEGER, "How many it has; of a commit", most=MESSAGES_MAX),
        ),
    ),
)  # fmt: skip
