"""Rows of calls about the node and its group, users and quotas."""

from __future__ import annotations

from ledgermq.observer.api.calls import ApiCall, Needs
from ledgermq.observer.api.fields import (
    BOOLEAN,
    INTEGER,
    LIMIT,
    NEXT,
    TEXT,
    TEXTS,
    CallField,
)
from ledgermq.observer.inquiries.row_pages import ROWS_DEFAULT

_USER = CallField("user", TEXT, "Name of a user", is_needed=True)
_OWNER = CallField("owner", TEXT, "topic:NAME, user:NAME or client:NAME", is_needed=True)
_RIGHTS = (
    CallField("topicPerms", TEXTS, "As orders=PUB|SUB, or DENY; in the place of those before"),
    CallField("groupPerms", TEXTS, "As billing=SUB, or DENY; in the place of those before"),
    CallField("defaultTopicPerm", TEXT, "For topics that are not named"),
    CallField("defaultGroupPerm", TEXT, "For groups that are not named"),
    CallField("publicKeys", TEXTS, "CURVE keys (Z85)"),
    CallField("whiteRemoteAddress", TEXT, "Known by these addresses alone"),
    CallField("admin", BOOLEAN, "Whether it is an admin"),
    CallField("secretKey", TEXT, "Key of RocketMQ's clients; it is never told"),
)
_USER_SHAPE = {
    "user": "string",
    "admin": "boolean",
    "public_keys": "array",
    "has_secret_key": "boolean",
    "cluster": "boolean",
    "addresses": "string",
    "default_topic": "string",
    "default_group": "string",
    "topics": "array",
    "groups": "array",
}
_QUOTA_NAMES = ("produce_bytes", "produce_messages", "consume_bytes", "consume_messages")
_QUOTA_SHAPE = {
    "owner": "string", **dict.fromkeys(_QUOTA_NAMES, "integer"), "cluster": "boolean"
}  # fmt: skip

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
    ApiCall(
        "POST", "/users", "addUser", "Add a user",
        Needs.ADMIN,
        lambda ask, given: ask.users.set(given.text("user"), given.others("user"), mode="add"),
        _USER_SHAPE,
        body=(_USER, *_RIGHTS),
    ),
    ApiCall(
        "PATCH", "/users/{user}", "alterUser", "Alter what is given of a user",
        Needs.ADMIN,
        lambda ask, given: ask.users.set(given.text("user"), given.others("user"), mode="alter"),
        _USER_SHAPE,
        path_fields=(_USER,),
        body=_RIGHTS,
    ),
    ApiCall(
        "DELETE", "/users/{user}", "removeUser", "Have no such user any more",
        Needs.ADMIN,
        lambda ask, given: ask.users.remove(given.text("user")),
        {"removed": "string"},
        path_fields=(_USER,),
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
    ApiCall(
        "PUT", "/quotas/{owner}", "setQuota", "Give an owner a quota of its own",
        Needs.ADMIN,
        lambda ask, given: ask.quotas.set(
            given.text("owner"),
            produce_bytes=given.integer_or_none("produce_bytes"),
            produce_messages=given.integer_or_none("produce_messages"),
            consume_bytes=given.integer_or_none("consume_bytes"),
            consume_messages=given.integer_or_none("consume_messages"),
        ),
        _QUOTA_SHAPE,
        path_fields=(_OWNER,),
        body=tuple(CallField(name, INTEGER, "A second; 0: no limit") for name in _QUOTA_NAMES),
    ),
    ApiCall(
        "DELETE", "/quotas/{owner}", "removeQuota", "Let the settings hold for an owner again",
        Needs.ADMIN,
        lambda ask, given: ask.quotas.remove(given.text("owner")),
        {"removed": "string"},
        path_fields=(_OWNER,),
    ),
)  # fmt: skip
