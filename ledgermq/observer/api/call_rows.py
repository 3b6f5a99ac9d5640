"""Calls of the API: one list of method, path, right, fields and answer; routes and document come
from it. Where a call is a verb of the table, its fields, right and answer come from there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from ledgermq.model.errors import ConfigError
from ledgermq.model.limits import TIMESTAMP_MAX
from ledgermq.model.names.transactions import MESSAGES_MAX
from ledgermq.observer.api.fields import (
    ALL,
    BODY_SIZE,
    BOOLEAN,
    INTEGER,
    INTEGERS,
    LIMIT,
    NEXT,
    OBJECT,
    OFFSET,
    QUEUE,
    TEXT,
    TEXTS,
    TOPIC,
    CallField,
    Given,
)
from ledgermq.observer.inquiries.inquiries import Inquiries
from ledgermq.observer.inquiries.message_inquiries import BODY_DEFAULT, MESSAGES_SHOWN
from ledgermq.observer.inquiries.row_pages import ROWS_DEFAULT, Json
from ledgermq.verbs.access import ListQuotas, ListUsers, RemoveQuota, RemoveUser, SetQuota, SetUser
from ledgermq.verbs.groups import AlterGroup, CreateGroup, DeleteGroup, ShowGroup, ShowLag
from ledgermq.verbs.needs import VerbNeed
from ledgermq.verbs.offsets import CloneOffsets, ResetOffsets
from ledgermq.verbs.shares import EndShared, ReceiveShared, SettleShared, ShowShared
from ledgermq.verbs.topics import AlterTopic, CreateTopic, DeleteTopic, ShowTopic
from ledgermq.verbs.verb import NOTHING, Argument, Verb, arguments_of
from ledgermq.verbs.waiting import CancelTimer, EndTransaction, ListTimers, ListTransactions

PREFIX = "/api/v1"

Answer = Callable[[Inquiries, Given], Awaitable[Json]]
"""Asks with the values of a request, those of the path among them."""


class Needs(StrEnum):
    """What a caller needs, in words: the broker looks at it, and the document tells of it."""

    LOOK = "look: any caller"
    USER = "look, or a user with the right to the topic, or the group"
    MESSAGES = "a user with the right SUB to the topic, or an admin"
    SENDS = "a user with the right PUB to the topic, or an admin"
    ADMIN = "an admin"
    OPERATOR = "an admin's token, or root or the node's account at the unix socket"


class ApiCall(NamedTuple):
    """One of them.

    Attributes:
        path: behind ``PREFIX``; what is in braces are texts.
        name: of the operation, for programs that are made of the document.
        answer: makes the inquiry.
        shape: names of what the answer has, and their types in JSON Schema; with ``?`` behind it
            may be null. There may be more.
        path_fields, query, body: what may be said.
    """

    method: str
    path: str
    name: str
    about: str
    needs: Needs
    answer: Answer
    shape: dict[str, str]
    path_fields: Sequence[CallField] = ()
    query: Sequence[CallField] = ()
    body: Sequence[CallField] = ()

    @property
    def changes(self) -> bool:
        """Whether it changes something."""
        return self.method != "GET"


_KINDS = {str: TEXT, int: INTEGER, bool: BOOLEAN, dict: OBJECT, list: INTEGERS}
_KEY_KINDS = {**_KINDS, list: TEXTS}
_NEEDS = {VerbNeed.USER: Needs.USER, VerbNeed.ADMIN: Needs.ADMIN}
_NO_FIELDS: Mapping[str, CallField] = {}


def verb_call(
    method: str,
    path: str,
    name: str,
    about: str,
    verb: type[Verb[Any]],
    *,
    needs: Needs | None = None,
    fields: Mapping[str, CallField] = _NO_FIELDS,
    fixed: Mapping[str, str] = NOTHING,
    without: Collection[str] = (),
) -> ApiCall:
    """The call that asks a verb. The broker checks bounds, and its refusal names them.

    Args:
        needs: told in the place of the verb's own right.
        fields: of arguments that are called otherwise here, or have bounds here, by argument.
        fixed: values of arguments that nobody says.
        without: arguments that cannot be said.
    """
    arguments = [
        one for one in arguments_of(verb) if one.name not in without and one.name not in fixed
    ]
    found = {one.name: _fields(one, fields.get(one.name)) for one in arguments}
    all_ = [field for row in found.values() for field in row]
    path_fields = tuple(field for field in all_ if f"{{{field.name}}}" in path)
    others = tuple(field for field in all_ if field not in path_fields)

    def answer(ask: Inquiries, given: Given) -> Awaitable[Json]:
        values: dict[str, object] = dict(fixed)
        for argument in arguments:
            said = given.said(field.name for field in found[argument.name])
            if argument.keys:
                values[argument.name] = said
            else:
                values.update((argument.name, value) for value in said.values())
        return ask.ask(verb(**values))

    right, shape = needs or _NEEDS[verb.NEEDS.need], dict(verb.shape())
    query, body = (others, ()) if method in ("GET", "DELETE") else ((), others)
    return ApiCall(method, path, name, about, right, answer, shape, path_fields, query, body)


def _fields(argument: Argument, instead: CallField | None) -> tuple[CallField, ...]:
    if instead is not None:
        return (instead,)
    if argument.keys:
        return tuple(CallField(key.name, _KEY_KINDS[key.kind], key.about) for key in argument.keys)
    name, kind = argument.name, TEXTS if argument.texts else _KINDS[argument.kind]
    return (CallField(name, kind, argument.about, argument.is_needed, among=argument.among),)


_ID = CallField("id", TEXT, "An offset id, or with topic a producer's unique id", is_needed=True)
_IN_TOPIC = TOPIC._replace(is_needed=False, about="Where a producer's unique id is looked for")
_COUNT = LIMIT._replace(default=MESSAGES_SHOWN)


def _page(given: Given) -> tuple[int, str]:
    return given.integer("limit", ROWS_DEFAULT), given.text("after")


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
        lambda ask, given: ask.groups(*_page(given), all_=given.flag("all")),
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
        lambda ask, given: ask.members(given.text("group")),
        {"group": "string", "members": "array", "queues": "array", "warnings": "array"},
        path_fields=(_GROUP,),
    ),
    ApiCall(
        "GET", "/groups/{group}/lag", "groupLag", "How far a group is in each queue",
        Needs.USER,
        lambda ask, given: ask.page(
            ShowLag(given.text("group"), given.text_or_none("topic")), *_page(given)
        ),
        {"group": "string", "lag": "integer?", "queues": "array", "next": "string?"},
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
    verb_call(
        "GET", "/shares/{group}", "showShared", "What a share group has taken, queue by queue",
        ShowShared,
    ),
    verb_call(
        "POST", "/shares/{group}/receive", "receiveShared",
        "Take messages for a share group; nobody else gets them for a while",
        ReceiveShared, needs=Needs.MESSAGES, without={"wait_ms"},
    ),
    verb_call(
        "POST", "/shares/{group}/settle", "settleShared",
        "Say what is to become of messages that were taken",
        SettleShared, needs=Needs.MESSAGES,
    ),
    verb_call(
        "POST", "/shares/{group}/end", "endShared",
        "Have a share group consume queue by queue from now on", EndShared,
    ),
    ApiCall(
        "GET", "/dead-letters", "listDeadLetterGroups", "Groups that have dead letters",
        Needs.USER,
        lambda ask, given: ask.dead_letters.groups(*_page(given)),
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
        lambda ask, given: ask.page(ListUsers(), *_page(given)),
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
        lambda ask, given: ask.page(ListQuotas(), *_page(given)),
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
        lambda ask, given: ask.topics(*_page(given), all_=given.flag("all")),
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
