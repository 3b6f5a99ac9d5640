"""Pages of consumer groups: all of them, and one with its lag and members."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import cast

from ledgermq.model.errors import ConfigError
from ledgermq.observer.console.history import LagHistory
from ledgermq.observer.console.rendering import number_text
from ledgermq.observer.console.tables import Row, ShownTable, TableColumn
from ledgermq.observer.console.topic_pages import topic_link
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
from ledgermq.verbs.groups import AlterGroup, CreateGroup, DeleteGroup, ShowGroup, ShowLag
from ledgermq.verbs.offsets import CloneOffsets, ResetOffsets, Target

_SWITCHES = (
    ("consumeEnable", "May consume"),
    ("consumeBroadcastEnable", "May broadcast"),
)


def group_link(row: Row) -> str:
    """The page of the group that a row names."""
    return path_of("groups", row["group"])


_COLUMNS = (
    TableColumn("group", "Group", "code", group_link),
    TableColumn("topics", "Has consumed of", "list"),
    TableColumn("retries", "Retries", "number"),
    TableColumn("exists", "In the table", "state"),
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
_FORCE = Field("force", "Although members consume now", "checkbox")
_CLONE_FIELDS = Field("source", "The other group", is_needed=True), _FORCE
_PLACES = (
    ("first", "the first message there is"),
    ("last", "behind the last message"),
    ("time", "a time (epoch ms)"),
    ("number", "a queue offset"),
)


async def _groups(asked: PageAsked) -> View:
    all_ = asked.text("system") == "yes"

    find = partial(asked.inquiries.groups, all_=all_)
    rows, next_ = await asked.rows("groups", find, "groups")
    shown = [{**row, "retries": _field(row, "retryMaxTimes")} for row in rows]
    none = "No group has consumed yet."
    table = ShownTable("groups", "Consumer groups", _COLUMNS, shown, none, next_)
    create = Change("create", "Create a group", "Create", _CREATE_FIELDS)
    return View(
        "Consumer groups",
        search=(Field("system", "Those of the system, too", "checkbox", "yes" if all_ else ""),),
        tables=(table,),
        changes=(create,) if asked.may_change else (),
    )


_ONE = "/groups/{group}"
_CREATE = verb_act(CreateGroup, _CREATE_FIELDS, "Group {group} was created.", _ONE)
_ALTER = verb_act(AlterGroup, _ALTER_FIELDS, "Group {group} was altered.", _ONE)


class GroupPages:
    """Pages of one group; who looks at one has its lag followed."""

    def __init__(self, lags: LagHistory) -> None:
        self._lags = lags
        self.pages = (
            ConsolePage("/groups", _groups, {"create": _CREATE}),
            ConsolePage(
                _ONE,
                self._group,
                {"alter": _ALTER, "delete": _delete, "reset": _reset, "clone": _clone},
            ),
        )

    async def _group(self, asked: PageAsked) -> View:
        name = asked.part("group")
        group = await asked.inquiries.ask(ShowGroup(name))

        find = partial(asked.inquiries.page, ShowLag(name))
        queues, next_ = await asked.rows("lag", find, "queues")
        lag = sum(cast("dict[str, int]", group["lag"]).values())
        members = await asked.inquiries.members(name)
        if group["exists"] or queues:
            self._lags.watch(name)
        warnings = cast("list[str]", group["warnings"])
        there = rows_of(members, "members")
        facts = (
            Fact("Lag", number_text(lag), "warn" if lag and not there else ""),
            Fact("Members", number_text(len(there)), "" if there else "warn"),
            Fact("Retries", str(_field(group, "retryMaxTimes") or "–")),
            *(Fact(title, "yes" if _field(group, key) else "no") for key, title in _SWITCHES),
        )
        none = "It has consumed nothing yet."
        lags = ShownTable("lag", "Lag by queue", _LAG_COLUMNS, queues, none, next_)
        chart = Chart(
            "Lag in messages", f"{path_of('groups', name)}/lag.json", (("lag", "messages"),)
        )
        return View(
            name,
            back=("/groups", "Consumer groups"),
            facts=facts,
            charts=(chart,),
            text="; ".join(warnings),
            tables=(lags, _members_table(members)),
            changes=_changes(group) if asked.may_change and not group["system"] else (),
        )

    async def lag_curve(self, asked: PageAsked) -> Mapping[str, object]:
        """The course of a group's lag, to who may see the group."""
        name = asked.part("group")
        await asked.inquiries.ask(ShowGroup(name))
        return self._lags.curve(name)


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
