"""Rows of calls about messages, timers and transactions."""

from __future__ import annotations

from collections.abc import Awaitable

from ledgermq.model.errors import ConfigError
from ledgermq.model.limits import TIMESTAMP_MAX
from ledgermq.model.names.transactions import MESSAGES_MAX
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
from ledgermq.observer.api.verb_calls import verb_call
from ledgermq.observer.inquiries.inquiries import Inquiries
from ledgermq.observer.inquiries.message_inquiries import BODY_DEFAULT, MESSAGES_SHOWN
from ledgermq.observer.inquiries.row_pages import Json
from ledgermq.verbs.waiting import CancelTimer, EndTransaction, ListTimers, ListTransactions

_ID = CallField("id", TEXT, "An offset id, or with topic a producer's unique id", is_needed=True)
_IN_TOPIC = TOPIC._replace(is_needed=False, about="Where a producer's unique id is looked for")
_COUNT = LIMIT._replace(default=MESSAGES_SHOWN)


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
    verb_call(
        "GET", "/timers", "listTimers", "Messages that wait for their time, those due next first",
        ListTimers, fields={"count": LIMIT},
    ),
    verb_call(
        "POST", "/timers/cancel", "cancelTimer", "Take a message back that waits for its time",
        CancelTimer, needs=Needs.SENDS,
        fields={"unique_id": CallField("id", TEXT, "Unique id of the message", is_needed=True)},
    ),
    verb_call(
        "GET", "/transactions", "listTransactions", "Those that wait for their end, oldest first",
        ListTransactions, fields={"count": LIMIT},
    ),
    verb_call(
        "POST", "/transactions/end", "endTransaction", "Commit a transaction, or roll it back",
        EndTransaction, needs=Needs.SENDS, without={"offset"},
        fields={
            "transaction": CallField("id", TEXT, "Of the transaction", is_needed=True),
            "messages": CallField(
                "messages", INTEGER, "How many it has; of a commit", most=MESSAGES_MAX
            ),
        },
    ),
)  # fmt: skip
