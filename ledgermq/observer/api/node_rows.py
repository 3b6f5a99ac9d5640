"""Rows of calls about the node and its group, users and quotas."""

from __future__ import annotations

from ledgermq.observer.api.calls import ApiCall, Needs
from ledgermq.observer.api.fields import (
    LIMIT,
    NEXT,
    TEXT,
    CallField,
)
from ledgermq.observer.api.verb_calls import verb_call
from ledgermq.observer.inquiries.row_pages import ROWS_DEFAULT
from ledgermq.verbs.access import RemoveQuota, RemoveUser, SetQuota, SetUser

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
