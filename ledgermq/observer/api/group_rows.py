"""Rows of calls about consumer groups: what they are, how far, and their dead letters."""

from __future__ import annotations

from typing import cast

from ledgermq.client.admin.admin import Target
from ledgermq.observer.api.calls import ApiCall, Needs
from ledgermq.observer.api.fields import (
    ALL,
    BODY_SIZE,
    BOOLEAN,
    INTEGER,
    INTEGERS,
    LIMIT,
    NEXT,
    OFFSET,
    QUEUE,
    TEXT,
    TOPIC,
    CallField,
)
from ledgermq.observer.inquiries.message_inquiries import BODY_DEFAULT, MESSAGES_SHOWN
from ledgermq.observer.inquiries.row_pages import ROWS_DEFAULT

_GROUP = CallField("group", TEXT, "Name of a group", is_needed=True)
_SHAPE = {
    "group": "string",
    "exists": "boolean",
    "system": "boolean",
    "fields": "object",
}
_FIELDS = (
    CallField("consumeEnable", BOOLEAN, "False: its consumers are refused"),
    CallField("consumeFromMinEnable", BOOLEAN, "New queues are consumed from their beginning"),
    CallField("consumeBroadcastEnable", BOOLEAN, "Its consumers may each get all messages"),
    CallField("notifyConsumerIdsChangedEnable", BOOLEAN, "Members hear at once of others"),
    CallField("retryQueueNums", INTEGER, "Queues of its retry topic"),
    CallField("retryMaxTimes", INTEGER, "So often is a message given again"),
    CallField("brokerId", INTEGER, "The broker to pull from: 0 is the leader"),
    CallField("whichBrokerWhenConsumeSlowly", INTEGER, "The broker for readers of old messages"),
)
_FORCE = CallField("force", BOOLEAN, "Although members consume now")
_DRY_RUN = CallField("dry_run", BOOLEAN, "Only tell what would be done")
_ONLY_TOPIC = TOPIC._replace(is_needed=False, about="Only in this topic")
_MOVES = {"group": "string", "done": "boolean", "queues": "array"}

GROUP_CALLS = (
    ApiCall(
        "GET", "/groups", "listGroups", "Groups by name, as ledgermq group list",
        Needs.USER,
        lambda ask, given: ask.groups.list(
            all_=given.flag("all"),
            limit=given.integer("limit", ROWS_DEFAULT),
            after=given.text("after"),
        ),
        {"groups": "array", "next": "string?"},
        query=(ALL, LIMIT, NEXT),
    ),
    ApiCall(
        "POST", "/groups", "createGroup", "Create a group",
        Needs.ADMIN,
        lambda ask, given: ask.groups.create(given.text("group"), given.numbers("group")),
        {**_SHAPE, "topics": "array"},
        body=(_GROUP, *_FIELDS),
    ),
    ApiCall(
        "GET", "/groups/{group}", "showGroup", "A group: its settings, its lag, its members",
        Needs.USER,
        lambda ask, given: ask.groups.show(given.text("group")),
        {**_SHAPE, "lag": "object", "members": "array", "warnings": "array"},
        path_fields=(_GROUP,),
    ),
    ApiCall(
        "PATCH", "/groups/{group}", "alterGroup", "Change what is given",
        Needs.ADMIN,
        lambda ask, given: ask.groups.alter(given.text("group"), given.numbers("group")),
        {**_SHAPE, "topics": "array"},
        path_fields=(_GROUP,),
        body=_FIELDS,
    ),
    ApiCall(
        "DELETE", "/groups/{group}", "deleteGroup", "Delete a group",
        Needs.ADMIN,
        lambda ask, given: ask.groups.delete(
            given.text("group"),
            with_offsets=given.flag("offsets"),
            with_topics=given.flag("topics"),
        ),
        {"deleted": "string"},
        path_fields=(_GROUP,),
        query=(
            CallField("offsets", BOOLEAN, "Forget what it has consumed"),
            CallField("topics", BOOLEAN, "Delete its retry topic and its dead letters"),
        ),
    ),
    ApiCall(
        "GET", "/groups/{group}/members", "groupMembers",
        "Who consumes for a group, which queues, and how far",
        Needs.USER,
        lambda ask, given: ask.groups.members(given.text("group")),
        {"group": "string", "members": "array", "queues": "array", "warnings": "array"},
        path_fields=(_GROUP,),
    ),
    ApiCall(
        "GET", "/groups/{group}/lag", "groupLag", "How far a group is in each queue",
        Needs.USER,
        lambda ask, given: ask.groups.lag(
            given.text("group"),
            given.text_or_none("topic"),
            limit=given.integer("limit", ROWS_DEFAULT),
            after=given.text("after"),
        ),
        {"group": "string", "lag": "integer", "queues": "array", "next": "string?"},
        path_fields=(_GROUP,),
        query=(_ONLY_TOPIC, LIMIT, NEXT),
    ),
    ApiCall(
        "POST", "/groups/{group}/offsets/reset", "resetOffsets", "Let a group go on elsewhere",
        Needs.ADMIN,
        lambda ask, given: ask.groups.reset(
            given.text("group"),
            given.text("topic"),
            cast("Target", given.text("to")),
            given.integer_or_none("value"),
            queues=given.integers_or_none("queues"),
            force=given.flag("force"),
            dry_run=given.flag("dry_run"),
        ),
        _MOVES,
        path_fields=(_GROUP,),
        body=(
            TOPIC,
            CallField(
                "to", TEXT, "Where; a time and a number need a value", is_needed=True,
                among=("first", "last", "time", "number"),
            ),
            CallField("value", INTEGER, "Epoch milliseconds of a time, or a queue offset"),
            CallField("queues", INTEGERS, "Only these"),
            _FORCE,
            _DRY_RUN,
        ),
    ),
    ApiCall(
        "POST", "/groups/{group}/offsets/clone", "cloneOffsets",
        "Let a group be as far as another one",
        Needs.ADMIN,
        lambda ask, given: ask.groups.clone(
            given.text("group"),
            given.text("source"),
            given.text_or_none("topic"),
            force=given.flag("force"),
            dry_run=given.flag("dry_run"),
        ),
        _MOVES,
        path_fields=(_GROUP,),
        body=(
            CallField("source", TEXT, "The other group", is_needed=True),
            _ONLY_TOPIC,
            _FORCE,
            _DRY_RUN,
        ),
    ),
    ApiCall(
        "GET", "/dead-letters", "listDeadLetterGroups", "Groups that have dead letters",
        Needs.USER,
        lambda ask, given: ask.dead_letters.groups(
            limit=given.integer("limit", ROWS_DEFAULT), after=given.text("after")
        ),
        {"groups": "array", "next": "string?"},
        query=(LIMIT, NEXT),
    ),
    ApiCall(
        "GET", "/dead-letters/{group}", "listDeadLetters", "Dead letters of a group",
        Needs.MESSAGES,
        lambda ask, given: ask.dead_letters.list(
            given.text("group"),
            offset=given.integer("offset"),
            limit=given.integer("limit", MESSAGES_SHOWN),
            body_max=given.integer("body_max", BODY_DEFAULT),
        ),
        {"group": "string", "queues": "array", "messages": "array", "next": "integer?"},
        path_fields=(_GROUP,),
        query=(OFFSET, LIMIT._replace(default=MESSAGES_SHOWN), BODY_SIZE),
    ),
    ApiCall(
        "GET", "/dead-letters/{group}/letter", "showDeadLetter", "All about one",
        Needs.MESSAGES,
        lambda ask, given: ask.dead_letters.show(
            given.text("group"),
            given.integer("offset"),
            queue=given.integer("queue"),
            body_max=given.integer("body_max", BODY_DEFAULT),
        ),
        {"message": "object"},
        path_fields=(_GROUP,),
        query=(OFFSET._replace(is_needed=True), QUEUE, BODY_SIZE),
    ),
    ApiCall(
        "POST", "/dead-letters/{group}/replay", "replayDeadLetters",
        "Give dead letters to the group once more",
        Needs.ADMIN,
        lambda ask, given: ask.dead_letters.replay(
            given.text("group"),
            given.integers_or_none("offsets"),
            queue=given.integer("queue"),
            origin=given.text("to", "group") == "origin",
            again=given.flag("again"),
        ),
        {"group": "string", "replayed": "array", "already": "array", "missing": "array"},
        path_fields=(_GROUP,),
        body=(
            CallField("offsets", INTEGERS, "These; all that were not replayed yet when left out"),
            QUEUE,
            CallField(
                "to", TEXT, "This group alone, or the topics that they were first sent to",
                among=("group", "origin"), default="group",
            ),
            CallField("again", BOOLEAN, "Also what was replayed before"),
        ),
    ),
)  # fmt: skip
