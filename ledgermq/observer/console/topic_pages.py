"""Pages of topics: all of them, and one with its queues."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from ledgermq.observer.console.rendering import number_text
from ledgermq.observer.console.tables import Row, ShownTable, TableColumn
from ledgermq.observer.console.verb_acts import verb_act
from ledgermq.observer.console.views import (
    Change,
    ConsolePage,
    Fact,
    Field,
    PageAsked,
    View,
    address,
    path_of,
    rows_of,
)
from ledgermq.observer.inquiries.row_pages import PAGE_ROWS_MAX
from ledgermq.verbs.topics import AlterTopic, CreateTopic, DeleteTopic, ShowTopic

SEARCHED_MAX = 50_000
"""Topics that are looked through for a part of a name."""

PERMS = ((6, "read and write"), (4, "read"), (2, "write"), (0, "none"))


def topic_link(row: Row) -> str:
    """The page of the topic that a row names."""
    return path_of("topics", row["topic"])


_COLUMNS = (
    TableColumn("topic", "Topic", "code", topic_link),
    TableColumn("messages", "Messages", "number"),
    TableColumn("read_queues", "Read queues", "number"),
    TableColumn("write_queues", "Write queues", "number"),
    TableColumn("perm_text", "Clients may"),
    TableColumn("deduplication_window_ms", "Deduplication", "ms"),
)

_QUEUE_COLUMNS = (
    TableColumn("begin", "First offset", "number"),
    TableColumn("end", "End", "number"),
    TableColumn("messages", "Messages", "number"),
    TableColumn("last_stored", "Last stored (UTC)", "time"),
)
_GROUP_COLUMNS = (
    TableColumn("group", "Group", "code", lambda row: path_of("groups", row["group"])),
)
_PERM_CHOICES = [(str(bits), text) for bits, text in PERMS]
_QUEUE_FIELDS = (
    Field("read_queues", "Read queues", "number", is_needed=True),
    Field("write_queues", "Write queues", "number", is_needed=True),
    Field("perm", "Clients may", "select", choices=_PERM_CHOICES, is_needed=True),
    Field("deduplication_window_ms", "Deduplication window, ms", "number", hint="0: none"),
)
_NAME = Field("topic", "Name", is_needed=True)
_FORCE = Field("force", "Even if messages in queues that go are then read by nobody", "checkbox")
_AT_FIRST = {"read_queues": 8, "write_queues": 8, "perm": 6, "deduplication_window_ms": 0}


async def _topics(asked: PageAsked) -> View:
    all_ = asked.text("system") == "yes"
    part = asked.text("name")

    async def find(limit: int, after: str) -> Mapping[str, object]:
        if part:
            return await _named(asked, part, limit, after, all_=all_)
        return await asked.inquiries.topics(limit, after, all_=all_)

    rows, next_ = await asked.rows("topics", find, "topics")
    table = ShownTable(
        "topics",
        "Topics",
        _COLUMNS,
        [_with_words(row) for row in rows],
        "No topic has that in its name." if part else "There are no topics yet.",
        next_,
    )
    search = (
        Field("name", "Name contains", "search", part),
        Field("system", "Those of the system, too", "checkbox", "yes" if all_ else ""),
    )
    fields = _NAME, *_with_values(_QUEUE_FIELDS, _AT_FIRST)
    create = Change("create", "Create a topic", "Create", fields)
    changes = (create,) if asked.may_change else ()
    return View("Topics", search=search, tables=(table,), changes=changes)


async def _named(
    asked: PageAsked, part: str, limit: int, after: str, *, all_: bool
) -> Mapping[str, object]:
    """Topics with ``part`` in their names, whatever case it is in."""
    rows: list[Row] = []
    looked = 0
    while looked < SEARCHED_MAX:
        found = await asked.inquiries.topics(PAGE_ROWS_MAX, after, all_=all_)
        page = rows_of(found, "topics")
        looked += len(page)
        for row in page:
            if part.lower() not in str(row["topic"]).lower():
                continue
            if len(rows) == limit:
                return {"topics": rows, "next": rows[-1]["topic"]}
            rows.append(row)
        if not found["next"]:
            break
        after = str(found["next"])
    return {"topics": rows, "next": None}


async def _topic(asked: PageAsked) -> View:
    name = asked.part("topic")
    topic = await asked.inquiries.ask(ShowTopic(name))
    queues = rows_of(topic, "queues")
    groups = [{"group": group} for group in cast("list[str]", topic["groups"])]
    held = sum(cast("int", row["end"]) - cast("int", row["begin"]) for row in queues)
    shown = [
        {**row, "messages": cast("int", row["end"]) - cast("int", row["begin"])} for row in queues
    ]
    facts = (
        Fact("Messages", number_text(held)),
        Fact("Queues", f"{topic['read_queues']} read, {topic['write_queues']} write"),
        Fact("Clients may", _perm_text(topic["perm"])),
        Fact("Filter", str(topic["filter_type"])),
    )

    def last_messages(row: Row) -> str:
        return address("/messages", topic=name, queue=row["queue"], by="last")

    columns = TableColumn("queue", "Queue", "number", last_messages), *_QUEUE_COLUMNS
    none = "No group has consumed of it yet."
    tables = (
        ShownTable("queues", "Queues", columns, shown, "No queue has had a message yet."),
        ShownTable("consumers", "Groups that have consumed it", _GROUP_COLUMNS, groups, none),
    )
    return View(
        name,
        back=("/topics", "Topics"),
        facts=facts,
        tables=tables,
        changes=_changes(topic) if asked.may_change and not topic["system"] else (),
        text="One of the system's own." if topic["system"] else "",
    )


def _changes(topic: Mapping[str, object]) -> tuple[Change, ...]:
    name = str(topic["topic"])
    text = "Its messages cannot be read any more, and its queues begin anew under that name."
    delete = Change("delete", "Delete", "Delete this topic", (), text, name, is_dangerous=True)
    fields = *_with_values(_QUEUE_FIELDS, topic), _FORCE
    return Change("alter", "Alter", "Alter", fields), delete


def _with_words(row: Row) -> Row:
    window_ms = row["deduplication_window_ms"] or None
    return {**row, "perm_text": _perm_text(row["perm"]), "deduplication_window_ms": window_ms}


def _perm_text(perm: object) -> str:
    bits = cast("int", perm) & 6
    return dict(PERMS)[bits]


def _with_values(fields: tuple[Field, ...], values: Mapping[str, object]) -> tuple[Field, ...]:
    return tuple(
        field._replace(value=str(values.get(field.name, "")), is_needed=True) for field in fields
    )


_ONE = "/topics/{topic}"
_CREATE = verb_act(CreateTopic, (_NAME, *_QUEUE_FIELDS), "Topic {topic} was created.", _ONE)
_ALTERED = "Topic {topic} was altered."
_ALTER_FIELDS = *_QUEUE_FIELDS, _FORCE
_ALTER = verb_act(AlterTopic, _ALTER_FIELDS, _ALTERED, _ONE, deduplication_window_ms=0)
_DELETE = verb_act(DeleteTopic, (), "Topic {topic} was deleted.", "/topics", typed="topic")

PAGES = (
    ConsolePage("/topics", _topics, {"create": _CREATE}),
    ConsolePage(_ONE, _topic, {"alter": _ALTER, "delete": _DELETE}),
)
