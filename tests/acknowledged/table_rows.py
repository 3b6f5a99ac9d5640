"""Verbs that change a table of the broker: topics, groups, offsets, locks, users, quotas."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ledgermq.model.errors import ConfigError, GroupUnknownError, TopicUnknownError
from tests.acknowledged.rows import (
    WORLD,
    WORLD_MESSAGES,
    WORLD_QUEUES,
    Arguments,
    CallRow,
    Note,
    Outcome,
)

RETRIES = "retryMaxTimes"
ARCHIVES = 20
"""A broker has no more than a hundred."""


def _offset(note: Note) -> int:
    return 1 + note.number % WORLD_MESSAGES


def _queue(note: Note) -> int:
    return note.number % WORLD_QUEUES


def _route(topic: str) -> tuple[str, Arguments]:
    return "route", {"topic": topic, "create": False}


def _has_queues(count: int, outcome: Outcome) -> bool:
    return isinstance(outcome, dict) and outcome["write_queues"] == count


def _retries(note: Note, outcome: Outcome, times: int) -> bool:
    del note
    return isinstance(outcome, dict) and outcome["exists"] and outcome["fields"][RETRIES] == times


def _is_committed(note: Note, outcome: Outcome) -> bool:
    wanted = {str(_queue(note)): _offset(note)}
    return isinstance(outcome, dict) and outcome["offsets"] == wanted


def _row_of(outcome: Outcome, table: str, key: str, name: str) -> dict[str, object] | None:
    assert isinstance(outcome, dict), outcome
    found: Iterator[dict[str, object]] = (row for row in outcome[table] if row[key] == name)
    return next(found, None)


def _topic_rows() -> list[CallRow]:
    return [
        CallRow(
            "topic_create",
            lambda note: {"topic": f"made-{note.name}", "queues": 3},
            lambda note: _route(f"made-{note.name}"),
            lambda _, outcome: _has_queues(3, outcome),
        ),
        CallRow(
            "route",
            lambda note: {"topic": f"used-{note.name}", "create": True},
            lambda note: _route(f"used-{note.name}"),
            lambda _, outcome: isinstance(outcome, dict),
        ),
        CallRow(
            "topic_for_send",
            lambda note: {"topic": f"sent-{note.name}", "template": "TBW102", "queues": 2},
            lambda note: _route(f"sent-{note.name}"),
            lambda _, outcome: _has_queues(2, outcome),
        ),
        CallRow(
            "topic_alter",
            lambda note: {"topic": f"grown-{note.name}", "queues": 5},
            lambda note: _route(f"grown-{note.name}"),
            lambda _, outcome: _has_queues(5, outcome),
            lambda note: [("topic_create", {"topic": f"grown-{note.name}", "queues": 1})],
        ),
        CallRow(
            "topic_delete",
            lambda note: {"topic": f"gone-{note.name}"},
            lambda note: _route(f"gone-{note.name}"),
            lambda _, outcome: isinstance(outcome, TopicUnknownError),
            lambda note: [("topic_create", {"topic": f"gone-{note.name}", "queues": 1})],
            refused_again=(TopicUnknownError,),
        ),
    ]


def _group_rows() -> list[CallRow]:
    def create(prefix: str, note: Note) -> Sequence[tuple[str, Arguments]]:
        return [("group_create", {"group": f"{prefix}-{note.name}", "fields": {}})]

    return [
        CallRow(
            "group_create",
            lambda note: {"group": f"new-{note.name}", "fields": {RETRIES: 7}},
            lambda note: ("group_show", {"group": f"new-{note.name}"}),
            lambda note, outcome: _retries(note, outcome, 7),
        ),
        CallRow(
            "group_alter",
            lambda note: {"group": f"other-{note.name}", "fields": {RETRIES: 9}},
            lambda note: ("group_show", {"group": f"other-{note.name}"}),
            lambda note, outcome: _retries(note, outcome, 9),
            lambda note: create("other", note),
        ),
        CallRow(
            "group_delete",
            lambda note: {"group": f"old-{note.name}", "token": f"delete-{note.name}"},
            lambda note: ("group_show", {"group": f"old-{note.name}"}),
            lambda _, outcome: isinstance(outcome, GroupUnknownError),
            lambda note: create("old", note),
        ),
        CallRow(
            "group_prepare",
            lambda note: {"group": f"ready-{note.name}"},
            lambda note: _route(f"%RETRY%ready-{note.name}"),
            lambda _, outcome: isinstance(outcome, dict),
        ),
    ]


def _offset_rows() -> list[CallRow]:
    def commit(prefix: str, note: Note) -> Arguments:
        offsets = {str(_queue(note)): _offset(note)}
        return {"group": f"{prefix}-{note.name}", "topic": WORLD, "offsets": offsets}

    def asked(prefix: str, note: Note) -> tuple[str, Arguments]:
        return "group_offset", {"group": f"{prefix}-{note.name}", "topic": WORLD}

    return [
        CallRow(
            "group_commit",
            lambda note: commit("commits", note),
            lambda note: asked("commits", note),
            _is_committed,
        ),
        CallRow(
            "offset_reset",
            lambda note: {
                "group": f"resets-{note.name}",
                "topic": WORLD,
                "to": "number",
                "value": _offset(note),
                "queues": [_queue(note)],
                "force": True,
                "create": True,
            },
            lambda note: asked("resets", note),
            _is_committed,
        ),
        CallRow(
            "offset_clone",
            lambda note: {
                "source": f"source-{note.name}",
                "group": f"clone-{note.name}",
                "topic": WORLD,
                "force": True,
                "create": True,
            },
            lambda note: asked("clone", note),
            _is_committed,
            lambda note: [("group_commit", commit("source", note))],
        ),
    ]


def _lock_rows() -> list[CallRow]:
    """Locks are given to others once their owner is not heard of: they do not last."""

    def lock(prefix: str, note: Note, client: str) -> Arguments:
        return {
            "group": f"{prefix}-{note.name}",
            "client": client,
            "queues": {WORLD: [0, 1]},
            "ordered": True,
        }

    def owned(outcome: Outcome) -> object:
        assert isinstance(outcome, dict), outcome
        return outcome["owned"].get(WORLD, [])

    return [
        CallRow(
            "queue_lock",
            lambda note: lock("locks", note, "first"),
            lambda note: ("queue_lock", lock("locks", note, "second")),
            lambda _, outcome: owned(outcome) == [],
            lasts=False,
        ),
        CallRow(
            "queue_unlock",
            lambda note: {**lock("unlocks", note, "first"), "ordered": False},
            lambda note: ("queue_lock", lock("unlocks", note, "second")),
            lambda _, outcome: owned(outcome) == [0, 1],
            lambda note: [("queue_lock", lock("unlocks", note, "first"))],
            lasts=False,
        ),
    ]


def _access_rows() -> list[CallRow]:
    def user(prefix: str, note: Note) -> Arguments:
        return {
            "user": f"{prefix}-{note.name}",
            "mode": "set",
            "fields": {"defaultTopicPerm": "SUB"},
        }

    def quota(prefix: str, note: Note) -> Arguments:
        owner = f"topic:{prefix}-{note.name}"
        return {"owner": owner, "fields": {"produceBytes": 10_000_000}, "ahead": True}

    return [
        CallRow(
            "acl_set",
            lambda note: user("user", note),
            lambda _: ("acl_list", {}),
            lambda note, outcome: (
                _row_of(outcome, "users", "user", f"user-{note.name}") is not None
            ),
        ),
        CallRow(
            "acl_remove",
            lambda note: {"user": f"left-{note.name}"},
            lambda _: ("acl_list", {}),
            lambda note, outcome: _row_of(outcome, "users", "user", f"left-{note.name}") is None,
            lambda note: [("acl_set", user("left", note))],
            refused_again=(ConfigError,),
        ),
        CallRow(
            "quota_set",
            lambda note: quota("rich", note),
            lambda _: ("quota_list", {}),
            lambda note, outcome: (
                _row_of(outcome, "quotas", "owner", f"topic:rich-{note.name}") is not None
            ),
        ),
        CallRow(
            "quota_remove",
            lambda note: {"owner": f"topic:free-{note.name}"},
            lambda _: ("quota_list", {}),
            lambda note, outcome: (
                _row_of(outcome, "quotas", "owner", f"topic:free-{note.name}") is None
            ),
            lambda note: [("quota_set", quota("free", note))],
            refused_again=(ConfigError,),
        ),
    ]


def _archive_rows() -> list[CallRow]:
    def is_marked(note: Note, outcome: Outcome) -> bool:
        row = _row_of(outcome, "archives", "archive", f"kept-{note.number % ARCHIVES}")
        return row is not None and int(str(row["position"])) >= note.number

    return [
        CallRow(
            "archive_commit",
            lambda note: {"archive": f"kept-{note.number % ARCHIVES}", "position": note.number},
            lambda _: ("archive_list", {}),
            is_marked,
        ),
        CallRow(
            "archive_remove",
            lambda note: {"archive": f"dropped-{note.number % ARCHIVES}"},
            lambda _: ("archive_list", {}),
            lambda note, outcome: (
                _row_of(outcome, "archives", "archive", f"dropped-{note.number % ARCHIVES}") is None
            ),
            lambda note: [
                ("archive_commit", {"archive": f"dropped-{note.number % ARCHIVES}", "position": 0})
            ],
            refused_again=(ConfigError,),
            lasts=False,
        ),
    ]


def _schema_rows() -> list[CallRow]:
    def schema(made: str, note: Note) -> dict[str, object]:
        return {"subject": f"{made}-{note.name}", "type": "JSON", "schema": "{}"}

    def shown(made: str, note: Note) -> tuple[str, dict[str, object]]:
        return "schemas", {"limit": 500, "after": f"{made}-{note.name[:-1]}"}

    def row(made: str, note: Note, outcome: Outcome) -> dict[str, object] | None:
        return _row_of(outcome, "subjects", "subject", f"{made}-{note.name}")

    return [
        CallRow(
            "schema_register",
            lambda note: schema("typed", note),
            lambda note: ("schema_show", {"subject": f"typed-{note.name}"}),
            lambda _, outcome: isinstance(outcome, dict) and outcome["versions"] == [1],
        ),
        CallRow(
            "schema_rule",
            lambda note: {"subject": f"ruled-{note.name}", "compatibility": "FULL", "ahead": True},
            lambda note: ("schema_show", {"subject": f"ruled-{note.name}"}),
            lambda _, outcome: isinstance(outcome, dict) and outcome["compatibility"] == "FULL",
        ),
        CallRow(
            "schema_delete",
            lambda note: {"subject": f"untyped-{note.name}"},
            lambda note: shown("untyped", note),
            lambda note, outcome: row("untyped", note, outcome) is None,
            lambda note: [("schema_register", schema("untyped", note))],
            refused_again=(ConfigError,),
        ),
    ]


def table_rows() -> list[CallRow]:
    """All of them."""
    return [
        *_topic_rows(),
        *_group_rows(),
        *_offset_rows(),
        *_lock_rows(),
        *_access_rows(),
        *_archive_rows(),
        *_schema_rows(),
    ]
