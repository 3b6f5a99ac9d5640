"""Rows of calls about consumer groups: what they are, how far, and their dead letters."""

from __future__ import annotations

from ledgermq.observer.api.calls import ApiCall, Needs
from ledgermq.observer.api.fields import (
    ALL,
    BODY_SIZE,
    BOOLEAN,
    INTEGERS,
    LIMIT,
    NEXT,
    OFFSET,
    QUEUE,
    TEXT,
    TOPIC,
    CallField,
)
from ledgermq.observer.api.verb_calls import verb_call
from ledgermq.observer.inquiries.message_inquiries import BODY_DEFAULT, MESSAGES_SHOWN
from ledgermq.observer.inquiries.row_pages import ROWS_DEFAULT
from ledgermq.verbs.groups import AlterGroup, CreateGroup, DeleteGroup, ShowGroup
from ledgermq.verbs.offsets import CloneOffsets, ResetOffsets

_GROUP = CallField("group", TEXT, "Name of a group", is_needed=True)
_ONLY_TOPIC = TOPIC._replace(is_needed=False, about="Only in this topic")

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
    verb_call("POST", "/groups", "createGroup", "Create a group", CreateGroup),
    verb_call(
        "GET", "/groups/{group}", "showGroup", "A group: its settings, its lag, its members",
        ShowGroup,
    ),
    verb_call("PATCH", "/groups/{group}", "alterGroup", "Change what is given", AlterGroup),
    verb_call(
        "DELETE", "/groups/{group}", "deleteGroup", "Delete a group", DeleteGroup,
        fields={
            "with_offsets": CallField("offsets", BOOLEAN, "Forget what it has consumed"),
            "with_topics": CallField(
                "topics", BOOLEAN, "Delete its retry topic and its dead letters"
            ),
        },
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
    verb_call(
        "POST", "/groups/{group}/offsets/reset", "resetOffsets", "Let a group go on elsewhere",
        ResetOffsets,
    ),
    verb_call(
        "POST", "/groups/{group}/offsets/clone", "cloneOffsets",
        "Let a group be as far as another one", CloneOffsets,
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
