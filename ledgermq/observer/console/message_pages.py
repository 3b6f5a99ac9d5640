"""Pages of messages: found by id, key, time or place, one with its body and its consumers, and
those that wait for their time or for the end of their transaction.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from ledgermq.model.errors import ConfigError
from ledgermq.model.limits import TIMESTAMP_MAX
from ledgermq.model.names.transactions import Decision
from ledgermq.observer.console.bodies import (
    SHOWN_MAX,
    body_of,
    message_columns,
    message_row,
    shown_body,
    size_of,
)
from ledgermq.observer.console.group_pages import group_link
from ledgermq.observer.console.rendering import ago_text, bytes_text, number_text, time_text
from ledgermq.observer.console.tables import Row, RowAct, ShownTable, TableColumn
from ledgermq.observer.console.topic_pages import topic_link
from ledgermq.observer.console.views import (
    ROWS_SHOWN,
    Change,
    ConsolePage,
    Done,
    Fact,
    Field,
    Form,
    PageAsked,
    View,
    address,
    checked_text,
    number_of,
    path_of,
    rows_of,
)
from ledgermq.observer.inquiries.row_pages import PAGE_ROWS_MAX
from ledgermq.verbs.waiting import CancelTimer, EndTransaction, ListTimers, ListTransactions

BYS = (
    ("last", "the last ones of a queue"),
    ("offset", "a queue, from an offset on"),
    ("time", "stored from a time on"),
    ("key", "by key"),
    ("id", "by id"),
)

_PREVIEW_BYTES = 256


async def _messages(asked: PageAsked) -> View:
    by = asked.text("by") or "last"
    topic = asked.text("topic")
    search = (
        Field("topic", "Topic", value=topic, hint="not needed with an offset id"),
        Field("by", "Find", "select", by, choices=BYS),
        Field("queue", "Queue", "number", asked.text("queue"), hint="0 where left out"),
        Field(
            "at",
            "Key, id, offset or time",
            "search",
            asked.text("at"),
            hint="a time as 2026-05-03 14:00:00 (UTC) or epoch ms",
        ),
    )
    tables: tuple[ShownTable, ...] = ()
    if topic or asked.text("at"):
        rows, next_, note = await _found(asked, by, topic)
        tables = (_table([message_row(row) for row in rows], next_, note),)
    text = "Nothing counts as consumed by being looked at."
    return View("Messages", text=text, search=search, tables=tables)


async def _found(asked: PageAsked, by: str, topic: str) -> tuple[list[Row], str, str]:
    """Rows, the address of those behind, and a note."""
    messages, at = asked.inquiries.messages, asked.text("at")
    if by == "id":
        found = await messages.show(at, topic or None, body_max=_PREVIEW_BYTES)
        row = found["message"]
        assert isinstance(row, Mapping)
        return [row], "", ""
    if not topic:
        raise ConfigError("a topic is needed to find messages so", by=by[:16])
    if by == "key":
        found = await messages.by_key(topic, at, body_max=_PREVIEW_BYTES)
        note = "There are older ones." if found["more"] else ""
        return rows_of(found, "messages"), "", note
    if by == "time":
        begin = _time_of(at)
        found = await messages.by_time(
            topic, begin=begin, end=TIMESTAMP_MAX, body_max=_PREVIEW_BYTES
        )
        note = "There are more of that time, and later ones." if found["more"] else ""
        return rows_of(found, "messages"), "", note
    queue = asked.number("queue") or 0
    offset = (asked.number("at") or 0) if by == "offset" else None
    found = await messages.browse(
        topic, queue, offset=offset, last=by != "offset", body_max=_PREVIEW_BYTES
    )
    next_ = asked.address(by="offset", at=found["next"]) if found["next"] else ""
    note = f"Queue {queue} holds offsets {found['min']} to {found['max']}, without the last."
    return rows_of(found, "messages"), next_, note


def _table(rows: list[Row], next_: str, note: str) -> ShownTable:
    return ShownTable("messages", "Messages", (
        TableColumn("offsetMsgId", "Id", "export"),
        TableColumn("queueOffset", "Offset", "number", _link),
        TableColumn("queue", "Queue", "number"),
        *message_columns(),
    ), rows, "No message was found.", next_, note)  # fmt: skip


def _link(row: Row) -> str:
    return address("/messages/one", id=row["offsetMsgId"])


async def _message(asked: PageAsked) -> View:
    found = await asked.inquiries.messages.track(
        asked.text("id"), asked.text("topic") or None, body_max=SHOWN_MAX
    )
    message = found["message"]
    assert isinstance(message, Mapping)
    looks = asked.inquirer.sources.looks
    body = await looks.make(shown_body, body_of(message), asked.text("as"))
    size = size_of(message, body.size)
    groups = rows_of(found, "groups")
    tables = (
        ShownTable("consumers", "Where each group stands with it", (
            TableColumn("group", "Group", "code", group_link),
            TableColumn("state", "State", "state"),
            TableColumn("consumedTo", "Consumed up to offset", "number"),
        ), groups, "No group has consumed of its topic yet."),
        _life(found),
        ShownTable("properties", "Properties", (
            TableColumn("name", "Name", "code"), TableColumn("value", "Value", "wrap"),
        ), [{"name": name, "value": value} for name, value in message["properties"].items()]),
    )  # fmt: skip
    facts = (
        _moment("Stored", message["storeTimestamp"]),
        _moment("Made", message["bornTimestamp"]),
        Fact("Queue", f"{message['queue']}", more=f"offset {message['queueOffset']}"),
        Fact("Position", f"{message['physicalOffset']}", more="in the log, bytes"),
        Fact("Tried again", str(message["reconsumeTimes"])),
        Fact("Body", bytes_text(size)),
    )
    return View(
        f"Message {message['msgId']}",
        back=(
            address("/messages", topic=message["topic"], by="last", queue=message["queue"]),
            str(message["topic"]),
        ),
        facts=facts,
        tables=tables,
        template="message.html",
        values={
            "message": message,
            "topic_link": path_of("topics", message["topic"]),
            "body": body,
            "is_cut": body.is_cut or size != body.size,
            "fault": message.get("bodyFault", ""),
            "forms": [(form, asked.address(**{"as": form})) for form in body.forms],
        },
    )


def _life(found: Row) -> ShownTable:
    fault = found["tracesFault"]
    return ShownTable("life", "What has happened to it", (
        TableColumn("time", "When (UTC)", "time"),
        TableColumn("what", "What", "state"),
        TableColumn("by", "By or in", "code"),
        TableColumn("host", "Told by", "code"),
        TableColumn("costMs", "Took", "ms"),
        TableColumn("retries", "Given back", "number"),
    ), rows_of(found, "life"), note=f"Traces are missing: {fault}" if fault else "")  # fmt: skip


def _moment(title: str, time_ms: object) -> Fact:
    day, _, time = time_text(time_ms).partition(" ")
    return Fact(title, time or day, more=f"{day} UTC, {ago_text(time_ms)} ago")


def _time_of(text: str) -> int:
    """Epoch milliseconds.

    Raises:
        ConfigError: it is no time.
    """
    if text.isascii() and text.isdecimal() and len(text) <= 15:
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            "no time: 2026-05-03 14:00:00 (UTC), or epoch milliseconds", at=text[:64]
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1_000)


async def _timers(asked: PageAsked) -> View:
    found = await asked.inquiries.ask(ListTimers(PAGE_ROWS_MAX if asked.export else ROWS_SHOWN))
    table = ShownTable("timers", "Due next", (
        TableColumn("due_ms", "Due (UTC)", "time"),
        TableColumn("topic", "Topic", "code", topic_link),
        TableColumn("queue_id", "Queue", "number"),
        TableColumn("size", "Size", "bytes"),
        TableColumn("unique_id", "Id", "code"),
    ), rows_of(found, "timers"), "Nothing waits for its time.",
       act=RowAct("cancel", "Cancel", {"unique_id": "unique_id"}))  # fmt: skip
    cancel = Change("cancel", "Take one back", "Cancel", (
        Field("unique_id", "Id", is_needed=True),
    ), text="It is not delivered then.", is_dangerous=True)  # fmt: skip
    return View(
        "Timers",
        facts=(Fact("Wait for their time", number_text(found["waiting"])),),
        tables=(table,),
        changes=(cancel,) if asked.may_change else (),
    )


async def _cancel(asked: PageAsked, form: Form) -> Done:
    unique_id = checked_text("unique_id", form.get("unique_id", ""))
    await asked.inquiries.ask(CancelTimer(unique_id))
    return Done(f"Message {unique_id} is not delivered.", "/timers")


async def _transactions(asked: PageAsked) -> View:
    limit = PAGE_ROWS_MAX if asked.export else ROWS_SHOWN
    found = await asked.inquiries.ask(ListTransactions(limit))
    table = ShownTable("transactions", "Those that have waited longest", (
        TableColumn("born", "Begun (UTC)", "time"),
        TableColumn("group", "Producer group", "code"),
        TableColumn("topics", "Topics", "list"),
        TableColumn("messages", "Messages", "number"),
        TableColumn("checks", "Checks", "number"),
        TableColumn("transaction", "Transaction", "code"),
    ), rows_of(found, "transactions"), "No transaction is open.")  # fmt: skip
    end = Change("end", "End one by hand", "End it", (
        Field("group", "Producer group", is_needed=True),
        Field("transaction", "Transaction", is_needed=True),
        Field("decision", "So that its messages", "select", choices=(
            ("rollback", "are never delivered"), ("commit", "are delivered"))),
        Field("messages", "How many it has", "number", hint="only to deliver them"),
    ), text="Its producer is not asked.", is_dangerous=True)  # fmt: skip
    return View(
        "Transactions",
        facts=(Fact("Half messages that wait", number_text(found["half_messages"])),),
        tables=(table,),
        changes=(end,) if asked.may_change else (),
    )


async def _end(asked: PageAsked, form: Form) -> Done:
    try:
        decision = Decision(form.get("decision", ""))
    except ValueError:
        raise ConfigError(
            "neither commit nor rollback", decision=form.get("decision", "")[:64]
        ) from None
    transaction = checked_text("transaction", form.get("transaction", ""))
    messages = number_of("messages", form.get("messages", "")) or 0
    group = checked_text("group", form.get("group", ""))
    end = EndTransaction(group, transaction, decision.value, messages=messages)
    ended = await asked.inquiries.ask(end)
    return Done(
        f"{ended['messages']} messages of {transaction}: {ended['decision']}.", "/transactions"
    )


PAGES = (
    ConsolePage("/messages", _messages),
    ConsolePage("/messages/one", _message),
    ConsolePage("/timers", _timers, {"cancel": _cancel}),
    ConsolePage("/transactions", _transactions, {"end": _end}),
)
