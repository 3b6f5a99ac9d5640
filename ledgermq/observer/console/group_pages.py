"""Pages of consumer groups: all of them, with who is behind, and one with its lag and members."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import cast

from ledgermq.model.errors import ConfigError, GroupUnknownError
from ledgermq.model.names.group_topics import RETRY_PREFIX
from ledgermq.observer.console.history import Kept, spark_of
from ledgermq.observer.console.rendering import (
    duration_text,
    number_text,
    rate_text,
    time_text,
)
from ledgermq.observer.console.tables import Row, ShownTable, TableColumn
from ledgermq.observer.console.topic_pages import age_ms, messages_link, topic_link
from ledgermq.observer.console.verb_acts import verb_act
from ledgermq.observer.console.views import (
    Change,
    Chart,
    ConsolePage,
    Done,
    Fact,
    Field,
    Form,
    PageAsked,
    View,
    check_typed,
    checked_text,
    number_of,
    path_of,
    rows_of,
)
from ledgermq.observer.inquiries.row_pages import PAGE_ROWS_MAX
from ledgermq.observer.metrics.lag_survey import GroupWaits
from ledgermq.observer.metrics.scrapes import Scrapes
from ledgermq.verbs.groups import AlterGroup, CreateGroup, DeleteGroup, ShowGroup, ShowLag
from ledgermq.verbs.offsets import CloneOffsets, ResetOffsets, Target
from ledgermq.verbs.shares import ShowShared

LISTED_MAX = 5_000
"""Groups that are looked through, sorted and told; of all together the broker is asked at once."""

_NO_GROUPS = "No group has consumed yet."
_TONES = {"stopped": "bad", "stands still": "bad", "nobody consumes": "warn", "consumes": "ok"}
_MAY = ("consumeEnable", "consume"), ("consumeBroadcastEnable", "broadcast")
_SWITCHES = (
    ("consumeEnable", "May consume"),
    ("consumeBroadcastEnable", "May broadcast"),
)


def group_link(row: Row) -> str:
    """The page of the group that a row names."""
    return path_of("groups", row["group"])


_LIST_COLUMNS = (
    TableColumn("group", "Group", "code", group_link),
    TableColumn("state", "State", "state"),
    TableColumn("lag", "Lag", "number", hint="messages that are not consumed"),
    TableColumn("age_ms", "Oldest waits for", "ms"),
    TableColumn("members", "Members", "number", hint="clients that consume now"),
    TableColumn("rate", "Consumes", "rate", hint="messages a second, in the last minute"),
    TableColumn("course", "Lag, last hour", "spark"),
    TableColumn("topics", "Topics", "list"),
)
_TOPIC_COLUMNS = (
    TableColumn("topic", "Topic", "code", topic_link),
    TableColumn("lag", "Lag", "number"),
    TableColumn("messages", "Messages", "number", messages_link),
    TableColumn("rate", "Comes in", "rate"),
    TableColumn("age_ms", "Oldest waits for", "ms"),
)
_LAG_COLUMNS = (
    TableColumn("topic", "Topic", "code", topic_link),
    TableColumn("queue", "Queue", "number"),
    TableColumn("offset", "Next to consume", "number"),
    TableColumn("end", "End", "number"),
    TableColumn("lag", "Lag", "number"),
    TableColumn("last_consumed", "Consumed up to (UTC)", "time"),
)
_MEMBER_COLUMNS = (
    TableColumn("client", "Client", "code"),
    TableColumn("host", "From", "code"),
    TableColumn("model", "Model"),
    TableColumn("strategy", "Queues are shared by"),
    TableColumn("subscribed", "Subscribed", "list"),
    TableColumn("queues", "Queues", "number"),
)
_RETRIES = Field("retryMaxTimes", "Retries before a message is dead", "number", "16")
_CREATE_FIELDS = Field("group", "Name", is_needed=True), _RETRIES
_ALTER_FIELDS = (
    _RETRIES._replace(is_needed=True),
    *(Field(key, title, "checkbox") for key, title in _SWITCHES),
)
_DELETE_FIELDS = (
    Field("offsets", "Its offsets, too", "checkbox"),
    Field("topics", "Its retries and dead letters, too", "checkbox"),
)
_SHARED_COLUMNS = (
    TableColumn("topic", "Topic", "code", topic_link),
    TableColumn("queue", "Queue", "number"),
    TableColumn("in_flight", "In work", "number", hint="handed out, and not settled"),
    TableColumn("late", "Late", "number", hint="not settled in time: they are handed out again"),
    TableColumn("returned", "Given back", "number", hint="handed out again when it is time"),
    TableColumn("behind", "Behind others", "number", hint="of their key"),
    TableColumn("next_due", "Next due (UTC)", "time"),
)
_FORCE = Field("force", "Although members consume now", "checkbox")
_CLONE_FIELDS = Field("source", "The other group", is_needed=True), _FORCE
_PLACES = (
    ("first", "the first message there is"),
    ("last", "behind the last message"),
    ("time", "a time (epoch ms)"),
    ("number", "a queue offset"),
)


_ONE = "/groups/{group}"
_CREATE = verb_act(CreateGroup, _CREATE_FIELDS, "Group {group} was created.", _ONE)
_ALTER = verb_act(AlterGroup, _ALTER_FIELDS, "Group {group} was altered.", _ONE)


class GroupPages:
    """Pages of groups: the broker says which there are, the node's own files how far they are."""

    def __init__(self, scrapes: Scrapes, kept: Kept) -> None:
        self._scrapes = scrapes
        self._kept = kept
        self.pages = (
            ConsolePage("/groups", self._groups, {"create": _CREATE}),
            ConsolePage(
                _ONE,
                self._group,
                {"alter": _ALTER, "delete": _delete, "reset": _reset, "clone": _clone},
            ),
        )

    async def greatest_lags(self, asked: PageAsked, count: int) -> ShownTable:
        """The groups of which most waits, of those that the caller may see."""
        rows, _ = await _listed(asked, "", all_=False)
        rows = await self._with_lags(rows)
        rows.sort(key=lambda row: (-cast("int", row["lag"] or 0), str(row["group"])))
        columns = _LIST_COLUMNS[:-1]
        table = ShownTable("lags", "Who is behind", columns, rows[:count], _NO_GROUPS)
        return await self._with_courses(asked, table)

    async def _groups(self, asked: PageAsked) -> View:
        part, all_ = asked.text("name"), asked.text("system") == "yes"
        search = (
            Field("name", "Name contains", "search", part),
            Field("system", "Those of the system, too", "checkbox", "yes" if all_ else ""),
        )
        rows, is_cut = await _listed(asked, part, all_=all_)
        note = f"Of the first {LISTED_MAX:,} by name." if is_cut else self._since()
        none = "No group has that in its name." if part else _NO_GROUPS
        rows = await self._with_lags(rows)
        table = ShownTable("groups", "Consumer groups", _LIST_COLUMNS, rows, none, note=note)
        create = Change("create", "Create a group", "Create", _CREATE_FIELDS)
        return View(
            "Consumer groups",
            search=search,
            tables=(await self._with_courses(asked, asked.sorted_page(table, "-lag")),),
            changes=(create,) if asked.may_change else (),
        )

    async def _with_courses(self, asked: PageAsked, table: ShownTable) -> ShownTable:
        def course(row: Row) -> list[float]:
            return spark_of(self._kept.groups.columns(str(row["group"]))[1])

        return await asked.with_courses(table, course)

    def _since(self) -> str:
        """From when on courses are kept."""
        since_ms = self._kept.since_ms
        return "" if since_ms is None else f"Kept since {time_text(since_ms)} UTC, in memory alone."

    async def _with_lags(self, rows: Sequence[Row]) -> list[Row]:
        waits = await self._scrapes.group_waits([str(row["group"]) for row in rows])
        return [self._with_lag(row, waits.get(str(row["group"]))) for row in rows]

    def _with_lag(self, row: Row, waits: GroupWaits | None) -> Row:
        name, kept = str(row["group"]), self._kept.groups
        rate = kept.rate(name, 1)
        lag = None if waits is None else waits.lag
        topics = [
            topic
            for topic in cast("list[str]", row["topics"])
            if not topic.startswith(RETRY_PREFIX)
        ]
        return {
            **row,
            "topics": [topic for topic in topics if not topic.startswith(RETRY_PREFIX)],
            "state": _state(row, lag, rate),
            "lag": lag,
            "age_ms": None if waits is None else age_ms(waits.since_ms),
            "rate": rate,
        }

    async def _group(self, asked: PageAsked) -> View:
        name = asked.part("group")
        group = await asked.inquiries.ask(ShowGroup(name))

        find = partial(asked.inquiries.page, ShowLag(name))
        queues, next_ = await asked.rows("lag", find, "queues")
        lags = cast("dict[str, int]", group["lag"])
        members = await asked.inquiries.members(name)
        warnings = cast("list[str]", group["warnings"])
        there = rows_of(members, "members")
        shared = await _shared(asked, name)
        takes = 0 if shared is None else cast("int", shared["members"])
        waits = GroupWaits(sum(lags.values()), None)
        known = (await self._scrapes.group_waits([name])).get(name, waits)
        row = {**group, "members": len(there) or takes, "topics": list(lags)}
        told = self._with_lag(row, known._replace(lag=waits.lag))
        none = "It has consumed nothing yet."
        lag_table = ShownTable("lag", "Lag by queue", _LAG_COLUMNS, queues, none, next_)
        by_topic = ShownTable(
            "topics", "Lag by topic", _TOPIC_COLUMNS, await self._topics_of(name, lags), none
        )
        source = f"{path_of('groups', name)}/lag.json"
        charts = (
            Chart("Lag in messages", source, (("lag", "messages"),)),
            Chart("Consumed a second", source, (("rate", "messages"),)),
        )
        return View(
            name,
            back=("/groups", "Consumer groups"),
            ways=((path_of("dead-letters", name), "Dead letters"),),
            facts=_facts(group, told, shared),
            charts=charts,
            text="; ".join(warnings),
            tables=(
                by_topic,
                _members_table(members) if shared is None else _shared_table(shared),
                lag_table,
            ),
            changes=_changes(group) if asked.may_change and not group["system"] else (),
        )

    async def _topics_of(self, group: str, lags: Mapping[str, int]) -> list[Row]:
        figures = await self._scrapes.topic_figures(list(lags))
        rows: list[Row] = []
        for topic, lag in lags.items():
            known = figures.get(topic)
            waits = None if known is None else known.groups.get(group)
            rows.append(
                {
                    "topic": topic,
                    "lag": lag,
                    "messages": None if known is None else known.held,
                    "rate": self._kept.topics.rate(topic),
                    "age_ms": None if waits is None else age_ms(waits.since_ms),
                }
            )
        return rows

    async def lag_curve(self, asked: PageAsked) -> Mapping[str, object]:
        """The course of a group's lag, and of what it consumes, to who may see the group."""
        name = asked.part("group")
        await asked.inquiries.ask(ShowGroup(name))
        times, lag, _ = self._kept.groups.columns(name)
        return {"time": times, "lag": lag, "rate": [None, *self._kept.groups.rates(name, 1)]}


async def _listed(asked: PageAsked, part: str, *, all_: bool) -> tuple[list[Row], bool]:
    """Groups with ``part`` in their names, at most ``LISTED_MAX``; whether there are more."""
    rows: list[Row] = []
    after = ""
    while True:
        found = await asked.inquiries.groups(PAGE_ROWS_MAX, after, all_=all_)
        page = rows_of(found, "groups")
        rows += [row for row in page if part.lower() in str(row["group"]).lower()]
        if len(rows) > LISTED_MAX or not found["next"]:
            return rows[:LISTED_MAX], len(rows) > LISTED_MAX
        after = str(found["next"])


def _state(row: Row, lag: int | None, rate: float | None) -> str:
    """What a group does, in a word or two."""
    if row["exists"] and not _field(row, "consumeEnable"):
        return "stopped"
    if rate:
        return "consumes"
    if not lag:
        return "idle" if row["members"] else "no members"
    if rate is None:
        return "measuring"
    return "stands still" if row["members"] else "nobody consumes"


async def _shared(asked: PageAsked, group: str) -> Mapping[str, object] | None:
    """How a share group stands; None of any other group."""
    try:
        return await asked.inquiries.ask(ShowShared(group))
    except GroupUnknownError:
        return None


def _facts(
    group: Mapping[str, object], told: Row, shared: Mapping[str, object] | None
) -> tuple[Fact, ...]:
    retries = _field(group, "retryMaxTimes")
    may = [title for key, title in _MAY if _field(group, key)]
    lag, members = cast("int", told["lag"]), cast("int", told["members"])
    return (
        Fact("State", str(told["state"]), _TONES.get(str(told["state"]), "")),
        Fact("Lag", number_text(lag), more="messages", tone="warn" if lag and not members else ""),
        Fact("Oldest waits for", duration_text(told["age_ms"])),
        Fact("Consumes", rate_text(told["rate"]), more="in the last minute"),
        Fact("Members", number_text(members), "" if members else "warn")
        if shared is None
        else Fact(
            "Handed out",
            number_text(cast("int", shared["unsettled"])),
            more=f"and not settled, with {number_text(members)} members",
        ),
        Fact(
            "Given up after",
            "–" if retries is None else f"{retries} retries",
            more="" if len(may) == len(_MAY) else f"may {' and '.join(may) or 'do nothing'}",
        ),
    )


def _members_table(members: Mapping[str, object]) -> ShownTable:
    queues = rows_of(members, "queues")
    rows: list[Row] = [
        {
            **member,
            "subscribed": [
                topic if expression == "*" else f"{topic} ({expression})"
                for topic, expression in cast("dict[str, str]", member["subscription"]).items()
            ],
            "queues": sum(queue["client"] == member["client"] for queue in queues),
        }
        for member in rows_of(members, "members")
    ]
    none = "Nobody consumes for it now."
    return ShownTable("members", "Members that consume now", _MEMBER_COLUMNS, rows, none)


def _shared_table(shared: Mapping[str, object]) -> ShownTable:
    caption, none = "What its consumers have", "Nothing was handed out yet."
    note = "A share group: each message goes to any of its consumers, which settle it by itself."
    return ShownTable(
        "shared", caption, _SHARED_COLUMNS, rows_of(shared, "queues"), none, note=note
    )


def _changes(group: Mapping[str, object]) -> tuple[Change, ...]:
    name = str(group["group"])
    topics = [(topic, topic) for topic in cast("dict[str, int]", group["lag"])]
    fields = (
        Field("topic", "Topic", "select", choices=topics),
        Field("to", "To", "select", choices=_PLACES),
        Field("value", "Time or offset", "number"),
        _FORCE,
    )
    text = "What lies between is consumed again, or never."
    reset = Change("reset", "Go on elsewhere", "Move the group", fields, text, is_dangerous=True)
    move = "Be as far as another group", "Move the group"
    delete = "Delete", "Delete this group"
    return (
        *((reset,) if topics else ()),
        Change("clone", *move, _CLONE_FIELDS, is_dangerous=True),
        Change("alter", "Alter", "Alter", [_shown(group, field) for field in _ALTER_FIELDS]),
        Change("delete", *delete, _DELETE_FIELDS, typed=name, is_dangerous=True),
    )


def _shown(group: Mapping[str, object], field: Field) -> Field:
    """A field of those that the group has, with its value."""
    value = _field(group, field.name)
    shown = ("yes" if value else "") if field.kind == "checkbox" else str(value or field.value)
    return field._replace(value=shown)


async def _delete(asked: PageAsked, form: Form) -> Done:
    name = asked.part("group")
    check_typed(form, name)
    with_offsets, with_topics = (form.get(one) == "yes" for one in ("offsets", "topics"))
    await asked.inquiries.ask(DeleteGroup(name, with_offsets=with_offsets, with_topics=with_topics))
    return Done(f"Group {name} was deleted.", "/groups")


async def _reset(asked: PageAsked, form: Form) -> Done:
    name, to = asked.part("group"), form.get("to", "")
    if to not in ("first", "last", "time", "number"):
        raise ConfigError("not a place to go on at", to=to[:64])
    value = number_of("value", form.get("value", "")) if to in ("time", "number") else None
    topic = checked_text("topic", form.get("topic", ""))
    force = form.get("force") == "yes"
    moved = await asked.inquiries.ask(
        ResetOffsets(name, topic, cast("Target", to), value, force=force)
    )
    return Done(_moved_text(name, moved), path_of("groups", name))


async def _clone(asked: PageAsked, form: Form) -> Done:
    name = asked.part("group")
    source = checked_text("source", form.get("source", ""))
    force = form.get("force") == "yes"
    moved = await asked.inquiries.ask(CloneOffsets(source, name, force=force))
    return Done(_moved_text(name, moved), path_of("groups", name))


def _moved_text(group: str, moved: Mapping[str, object]) -> str:
    return f"Group {group} goes on elsewhere in {len(rows_of(moved, 'queues'))} queues."


def _field(group: Mapping[str, object], name: str) -> int:
    return cast("dict[str, int]", group["fields"]).get(name, 0)
