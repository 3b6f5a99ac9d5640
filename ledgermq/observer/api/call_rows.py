"""The rows of all calls."""

from __future__ import annotations

from collections.abc import Awaitable

from ledgermq.model.errors import ConfigError
from ledgermq.model.limits import TIMESTAMP_MAX
from ledgermq.model.names.transactions import MESSAGES_MAX
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
    Given,
)
from ledgermq.observer.api.verb_calls import verb_call
from ledgermq.observer.inquiries.inquiries import Inquiries
from ledgermq.observer.inquiries.message_inquiries import BODY_DEFAULT, MESSAGES_SHOWN
from ledgermq.observer.inquiries.row_pages import ROWS_DEFAULT, Json
from ledgermq.verbs.access import RemoveQuota, RemoveUser, SetQuota, SetUser
from ledgermq.verbs.groups import AlterGroup, CreateGroup, DeleteGroup, ShowGroup
from ledgermq.verbs.offsets import CloneOffsets, ResetOffsets
from ledgermq.verbs.topics import AlterTopic, CreateTopic, DeleteTopic, ShowTopic
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


NODE_CALLS = (
    ApiCall(
        "GET", "/status", "status", "What the node is doing, as ledgermq status",
        Needs.LOOK,
        lambda ask, _: ask.node.status(),
        {"state": "string", "node": "object", "raft": "object", "health": "object"},
    ),
    ApiCall(
        "GET", "/raft", "raft", "The group as the node sees it, as ledgermq raft status",
        Needs.LOOK,
        lambda ask, _: ask.node.raft(),
        {
            "node": "string", "role": "string", "term": "integer", "leader": "string?",
            "voters": "array", "learners": "array", "witnesses": "array", "bodiless": "array",
        },
    ),
    ApiCall(
        "GET", "/raft/why-no-leader", "whyNoLeader", "Why nobody leads, as far as the node knows",
        Needs.LOOK,
        lambda ask, _: ask.node.why_no_leader(),
        {"leader": "string?", "reasons": "array"},
    ),
    ApiCall(
        "POST", "/raft/transfer", "transferLeadership",
        "Hand the leadership over; answered when the other member leads",
        Needs.OPERATOR,
        lambda ask, given: ask.node.transfer(given.text("target")),
        {"leader": "string", "term": "integer", "took_ms": "integer"},
        body=(CallField("target", TEXT, "Who shall lead, as n1", is_needed=True),),
    ),
    ApiCall(
        "GET", "/features", "features", "Feature levels, as ledgermq cluster features",
        Needs.LOOK,
        lambda ask, _: ask.node.features(),
        {"node": "string", "known": "integer", "in_force": "integer", "levels": "array"},
    ),
    ApiCall(
        "GET", "/mirrors", "listMirrors",
        "Mirrors that the log is kept for, as ledgermq mirror list, and in own what this node is"
        " as a mirror, as ledgermq mirror status",
        Needs.LOOK,
        lambda ask, _: ask.mirrors.list(),
        {"is_mirror": "boolean", "own": "object?", "mirrors": "array"},
    ),
    ApiCall(
        "GET", "/users", "listUsers", "Users and their rights, as ledgermq acl list",
        Needs.ADMIN,
        lambda ask, given: ask.users.list(
            limit=given.integer("limit", ROWS_DEFAULT), after=given.text("after")
        ),
        {"users": "array", "next": "string?"},
        query=(LIMIT, NEXT),
    ),
    verb_call(
        "POST", "/users", "addUser", "Add a user", SetUser,
        fixed={"mode": "add"}, without={"cluster"},
    ),
    verb_call(
        "PATCH", "/users/{user}", "alterUser", "Alter what is given of a user", SetUser,
        fixed={"mode": "alter"}, without={"cluster"},
    ),
    verb_call(
        "DELETE", "/users/{user}", "removeUser", "Have no such user any more", RemoveUser,
        without={"cluster"},
    ),
    ApiCall(
        "GET", "/quotas", "listQuotas", "Quotas that are no settings, as ledgermq quota list",
        Needs.ADMIN,
        lambda ask, given: ask.quotas.list(
            limit=given.integer("limit", ROWS_DEFAULT), after=given.text("after")
        ),
        {"quotas": "array", "next": "string?"},
        query=(LIMIT, NEXT),
    ),
    verb_call(
        "PUT", "/quotas/{owner}", "setQuota", "Give an owner a quota of its own", SetQuota,
        without={"cluster"},
    ),
    verb_call(
        "DELETE", "/quotas/{owner}", "removeQuota", "Let the settings hold for an owner again",
        RemoveQuota, without={"cluster"},
    ),
)  # fmt: skip


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


CALLS: tuple[ApiCall, ...] = (*NODE_CALLS, *TOPIC_CALLS, *GROUP_CALLS, *MESSAGE_CALLS)
