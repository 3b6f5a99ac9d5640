"""Pages of topics: all of them, with what comes in, and one with its queues and its groups."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import cast

from ledgermq.model.names.group_topics import DEAD_LETTER_PREFIX, RETRY_PREFIX
from ledgermq.observer.console.history import Kept, spark_of
from ledgermq.observer.console.rendering import (
    ago_text,
    bytes_text,
    number_text,
    rate_text,
    time_text,
)
from ledgermq.observer.console.tables import Row, ShownTable, TableColumn
from ledgermq.observer.console.verb_acts import verb_act
from ledgermq.observer.console.views import (
    EXPORTED_MAX,
    ROWS_SHOWN,
    Change,
    Chart,
    ConsolePage,
    Done,
    Fact,
    Field,
    Form,
    PageAsked,
    View,
    address,
    checked_text,
    path_of,
    rows_of,
)
from ledgermq.observer.inquiries.row_pages import PAGE_ROWS_MAX
from ledgermq.observer.metrics.lag_survey import TopicFigures
from ledgermq.observer.metrics.scrapes import Scrapes
from ledgermq.verbs.topics import AlterTopic, CreateTopic, DeleteTopic, ShowTopic

SEARCHED_MAX = 50_000
"""Topics that are looked through for a part of a name."""

SORTED_MAX = 1_000
"""Most topics that are sorted by other things than their names: all of them are counted then."""

PERMS = ((6, "read and write"), (4, "read"), (2, "write"), (0, "none"))
_OF_GROUPS = (RETRY_PREFIX, DEAD_LETTER_PREFIX)


def topic_link(row: Row) -> str:
    """The page of the topic that a row names."""
    return path_of("topics", row["topic"])


def messages_link(row: Row) -> str:
    """The newest messages of the topic that a row names."""
    return address("/messages", topic=row["topic"])


_TOPIC = TableColumn("topic", "Topic", "code", topic_link)
_LIST_COLUMNS = (
    _TOPIC,
    TableColumn("messages", "Messages", "number", messages_link, hint="that its queues hold"),
    TableColumn("rate", "Comes in", "rate", hint="messages a second, in the last minute"),
    TableColumn("course", "Last hour", "spark"),
    TableColumn("size", "Size, about", "bytes", hint="guessed by its newest messages"),
    TableColumn("last", "Last message (UTC)", "time"),
    TableColumn("groups", "Groups", "number"),
    TableColumn("lag", "Most lag", "number", hint="of the group that lacks most"),
    TableColumn("read_queues", "Queues", "number", hint="to read from"),
)
_SELDOM: tuple[tuple[TableColumn, Callable[[Row], bool]], ...] = (
    (
        TableColumn("write_queues", "To write to", "number"),
        lambda row: row["write_queues"] != row["read_queues"],
    ),
    (TableColumn("perm_text", "Clients may"), lambda row: row["perm_text"] != PERMS[0][1]),
    (
        TableColumn("deduplication_window_ms", "Deduplication", "ms"),
        lambda row: row["deduplication_window_ms"] is not None,
    ),
)
"""Columns that are shown where a topic has something else there than most have."""

_QUEUE_COLUMNS = (
    TableColumn("messages", "Messages", "number"),
    TableColumn("begin", "First offset", "number"),
    TableColumn("end", "End", "number"),
    TableColumn("last_stored", "Last stored (UTC)", "time"),
)
_GROUP_COLUMNS = (
    TableColumn("group", "Group", "code", lambda row: path_of("groups", row["group"])),
    TableColumn("lag", "Lag here", "number"),
    TableColumn("age_ms", "Oldest waits for", "ms"),
)
_PERM_CHOICES = [(str(bits), text) for bits, text in PERMS]
_QUEUE_FIELDS = (
    Field("read_queues", "Read queues", "number", is_needed=True),
    Field("write_queues", "Write queues", "number", is_needed=True),
    Field("perm", "Clients may", "select", choices=_PERM_CHOICES, is_needed=True),
    Field("deduplication_window_ms", "Deduplication window, ms", "number", hint="0: none"),
)
_SENT = (
    Field("body", "Body", "textarea", hint="a text, in UTF-8"),
    Field("keys", "Keys", hint="with blanks between them"),
    Field("tag", "Tag"),
)
_NAME = Field("topic", "Name", is_needed=True)
_FORCE = Field("force", "Even if messages in queues that go are then read by nobody", "checkbox")
_AT_FIRST = {"read_queues": 8, "write_queues": 8, "perm": 6, "deduplication_window_ms": 0}


class TopicPages:
    """Pages of topics; their figures are read from the node's own files, of all at once."""

    def __init__(self, scrapes: Scrapes, kept: Kept) -> None:
        self._scrapes = scrapes
        self._kept = kept
        self.pages = (
            ConsolePage("/topics", self._topics, {"create": _CREATE}),
            ConsolePage(_ONE, self._topic, {"alter": _ALTER, "delete": _DELETE, "send": _send}),
        )

    async def _topics(self, asked: PageAsked) -> View:
        search = (
            Field("name", "Name contains", "search", asked.text("name")),
            Field(
                "system",
                "Retries, dead letters and the system's, too",
                "checkbox",
                "yes" if asked.text("system") == "yes" else "",
            ),
        )
        fields = _NAME, *_with_values(_QUEUE_FIELDS, _AT_FIRST)
        create = Change("create", "Create a topic", "Create", fields)
        return View(
            "Topics",
            search=search,
            tables=(await self.table(asked),),
            changes=(create,) if asked.may_change else (),
        )

    async def table(self, asked: PageAsked) -> ShownTable:
        """The topics that are asked for: sorted as is asked where they are few, else by name."""
        part, begin = asked.text("name"), asked.text("topics-after")
        none = "No topic has that in its name." if part else "There are no topics yet."
        table = ShownTable("topics", "Topics", _LIST_COLUMNS, (), none)
        limit = EXPORTED_MAX if asked.export == table.name else ROWS_SHOWN if begin else SORTED_MAX
        found, after = await _named(asked, limit, begin)
        are_few = not (begin or after)
        shown = found if are_few or asked.export else found[:ROWS_SHOWN]
        rows = await self._with_figures(shown)
        seldom = [column for column, is_other in _SELDOM if any(map(is_other, rows))]
        table = replace(table, rows=rows, columns=(*_LIST_COLUMNS, *seldom))
        if are_few:
            return await self._with_courses(asked, asked.sorted_page(table, "topic"))
        is_more = after is not None or len(found) > len(shown)
        next_ = asked.address(**{"topics-after": shown[-1]["topic"]}) if is_more and shown else ""
        note = f"By name: of more than {SORTED_MAX:,} these are not sorted otherwise."
        return await self._with_courses(asked, replace(table, next_=next_, note=note))

    async def _with_courses(self, asked: PageAsked, table: ShownTable) -> ShownTable:
        def course(row: Row) -> list[float]:
            return spark_of(self._kept.topics.rates(str(row["topic"])))

        return await asked.with_courses(table, course)

    async def _with_figures(self, rows: Sequence[Row]) -> list[Row]:
        names = [str(row["topic"]) for row in rows]
        figures = await self._scrapes.topic_figures(names)
        kept = self._kept.topics
        told: list[Row] = []
        for name, row in zip(names, rows, strict=True):
            known = figures.get(name)
            lags = [] if known is None else [waits.lag for waits in known.groups.values()]
            told.append(
                {
                    **row,
                    "perm_text": _perm_text(row["perm"]),
                    "deduplication_window_ms": row["deduplication_window_ms"] or None,
                    "rate": kept.rate(name),
                    "size": None if known is None else known.size,
                    "last": None if known is None else known.last_ms,
                    "groups": None if known is None else len(lags),
                    "lag": max(lags, default=None),
                }
            )
        return told

    async def _topic(self, asked: PageAsked) -> View:
        name = asked.part("topic")
        topic = await asked.inquiries.ask(ShowTopic(name))
        figures = (await self._scrapes.topic_figures([name])).get(name)
        queues = rows_of(topic, "queues")
        shown = [{**row, "messages": _messages_of(row)} for row in queues]
        held = sum(_messages_of(row) for row in queues)
        last = max((cast("int", row["last_stored"] or 0) for row in queues), default=0)

        def messages(row: Row) -> str:
            return address("/messages", topic=name, queue=row["queue"], by="last")

        columns = TableColumn("queue", "Queue", "number", messages), *_QUEUE_COLUMNS
        none = "No group has consumed of it yet."
        groups = [_lacks(group, figures) for group in cast("list[str]", topic["groups"])]
        tables = (
            ShownTable("consumers", "Groups that have consumed it", _GROUP_COLUMNS, groups, none),
            ShownTable("queues", "Queues", columns, shown, "No queue has had a message yet."),
        )
        filters = str(topic["filter_type"])
        reads, writes = topic["read_queues"], topic["write_queues"]
        facts = (
            Fact("Comes in", rate_text(self._kept.topics.rate(name)), more="in the last minute"),
            Fact("Messages", number_text(held), more=_about(figures)),
            Fact("Last message", f"{ago_text(last)} ago" if last else "–", more=_when(last)),
            Fact("Queues", f"{reads} read, {writes} write"),
            Fact(
                "Clients may",
                _perm_text(topic["perm"]),
                more="" if filters == "SINGLE_TAG" else f"filter {filters}",
            ),
        )
        source = f"{path_of('topics', name)}/rate.json"
        return View(
            name,
            back=("/topics", "Topics"),
            ways=((messages_link(topic), "Newest messages"),),
            facts=facts,
            charts=(Chart("Messages a second", source, (("rate", "stored"),)),),
            tables=tables,
            changes=_changes(asked, topic) if asked.may_change and not topic["system"] else (),
            text="One of the system's own." if topic["system"] else "",
        )

    async def rate_curve(self, asked: PageAsked) -> Mapping[str, object]:
        """The course of what came into a topic, to who may see the topic."""
        name = asked.part("topic")
        await asked.inquiries.ask(ShowTopic(name))
        times, _ = self._kept.topics.columns(name)
        return {"time": times[1:], "rate": self._kept.topics.rates(name)}


async def _named(asked: PageAsked, limit: int, after: str) -> tuple[list[Row], str | None]:
    """Topics with a part of a name, whatever case it is in, and where those behind them begin.

    Those of groups and of the system are left out unless they are asked for.
    """
    part, all_ = asked.text("name").lower(), asked.text("system") == "yes"
    rows: list[Row] = []
    looked = 0
    while looked < SEARCHED_MAX:
        found = await asked.inquiries.topics(PAGE_ROWS_MAX, after, all_=all_)
        page = rows_of(found, "topics")
        looked += len(page)
        for row in page:
            name = str(row["topic"])
            if part not in name.lower() or not (all_ or not name.startswith(_OF_GROUPS)):
                continue
            if len(rows) == limit:
                return rows, str(rows[-1]["topic"])
            rows.append(row)
        if not found["next"]:
            break
        after = str(found["next"])
    return rows, None


async def user_topics(asked: PageAsked, count: int) -> list[Row]:
    """The first topics by name, those of groups and of the system aside."""
    rows, _ = await _named(asked, count, "")
    return rows


def _messages_of(queue: Row) -> int:
    return cast("int", queue["end"]) - cast("int", queue["begin"])


def _about(figures: TopicFigures | None) -> str:
    return "" if figures is None else f"about {bytes_text(figures.size)}"


def _when(time_ms: int) -> str:
    return f"{time_text(time_ms)} UTC" if time_ms else ""


def age_ms(since_ms: int | None) -> int | None:
    """How long ago a moment was."""
    return None if since_ms is None else max(0, time.time_ns() // 1_000_000 - since_ms)


def _lacks(group: str, figures: TopicFigures | None) -> Row:
    waits = None if figures is None else figures.groups.get(group)
    return {
        "group": group,
        "lag": None if waits is None else waits.lag,
        "age_ms": None if waits is None else age_ms(waits.since_ms),
    }


async def _send(asked: PageAsked, form: Form) -> Done:
    topic = asked.part("topic")
    stored = await asked.inquiries.sent.send(
        topic,
        form.get("body", "").encode(),
        tag=checked_text("tag", form.get("tag", "")) or None,
        keys=checked_text("keys", form.get("keys", "")).split(),
    )
    return sent_to(topic, stored)


def sent_to(topic: str, stored: Mapping[str, object]) -> Done:
    """A message was sent: go on with the newest of its topic."""
    text = f"Message {stored['msgId']} is in queue {stored['queue']}."
    return Done(text, address("/messages", topic=topic))


def _changes(asked: PageAsked, topic: Mapping[str, object]) -> tuple[Change, ...]:
    name = str(topic["topic"])
    send = Change("send", "Send a message", "Send", _SENT, "It is delivered to all groups.")
    text = "Its messages cannot be read any more, and its queues begin anew under that name."
    delete = Change("delete", "Delete", "Delete this topic", (), text, name, is_dangerous=True)
    fields = *_with_values(_QUEUE_FIELDS, topic), _FORCE
    alter = Change("alter", "Alter", "Alter", fields)
    return send, alter, delete


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
