"""Pages of messages: found by id, key, time or place, one with its body and its consumers, and
those that wait for their time or for the end of their transaction, or are dead letters.

Bodies are shown as people read them: text, JSON in lines, or bytes in hexadecimal.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple, cast

from ledgermq.model.errors import ConfigError
from ledgermq.model.limits import TIMESTAMP_MAX
from ledgermq.model.names.group_topics import DEAD_LETTER_PREFIX
from ledgermq.model.names.transactions import Decision
from ledgermq.observer.console.group_pages import group_link
from ledgermq.observer.console.rendering import ago_text, bytes_text, number_text, time_text
from ledgermq.observer.console.tables import Row, RowAct, ShownTable, TableColumn
from ledgermq.observer.console.topic_pages import (
    messages_link,
    sent_to,
    topic_link,
    user_topics,
)
from ledgermq.observer.console.verb_acts import verb_act
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
from ledgermq.observer.inquiries.message_inquiries import BODY_MAX
from ledgermq.observer.inquiries.row_pages import PAGE_ROWS_MAX
from ledgermq.verbs.waiting import CancelTimer, EndTransaction, ListTimers, ListTransactions

SHOWN_MAX = 64 * 1024
"""Bytes of a body that a page shows."""

LINES_SIZE_MAX = 4 * SHOWN_MAX
"""Characters of JSON in lines: what is deep has more blanks than anything else."""

_JSON_DEPTH_MAX = 100
_WORD = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
_INDENT = "  "
_PREVIEW = 120
_LINE = 16


class ShownBody(NamedTuple):
    """A body in one of its forms.

    Attributes:
        form: ``json``, ``text`` or ``hex``.
        forms: those in which it can be shown.
        size: of the whole body, in bytes.
        is_cut: the page has its beginning alone.
    """

    form: str
    forms: tuple[str, ...]
    text: str
    size: int
    is_cut: bool


def shown_body(body: bytes, wanted: str = "") -> ShownBody:
    """``body`` in the form that is ``wanted``, if it can be, else in the one that says most."""
    part = body[:SHOWN_MAX]
    is_cut = len(part) < len(body)
    forms: tuple[str, ...] = ("hex",)
    lines = None
    text = _text_of(part, is_cut=is_cut)
    if text is not None:
        forms = ("text", *forms)
        lines = None if is_cut else _json_lines(text)
        if lines is not None:
            forms = ("json", *forms)
    form = wanted if wanted in forms else forms[0]
    shown = {"json": lines, "text": text}.get(form)
    return ShownBody(form, forms, shown or hex_lines(part), len(body), is_cut)


def hex_lines(content: bytes) -> str:
    """Offsets, bytes and what of them is printable ASCII, sixteen bytes a line."""
    lines = []
    for at in range(0, len(content), _LINE):
        part = content[at : at + _LINE]
        codes = part.hex(" ")
        shown = "".join(chr(code) if 32 <= code < 127 else "." for code in part)
        lines.append(f"{at:08x}  {codes:<{3 * _LINE}} {shown}")
    return "\n".join(lines)


def message_row(message: Row) -> Row:
    """A message as an inquiry told it, with its keys, tags, size and the beginning of its body."""
    properties = message["properties"]
    assert isinstance(properties, Mapping)
    body = body_of(message)
    text = message.get("body")
    line = " ".join(text.split()) if isinstance(text, str) else hex_lines(body[:16])[10:58]
    return {
        **{key: value for key, value in message.items() if key not in ("body", "bodyBase64")},
        "keys": properties.get("KEYS", ""),
        "tags": properties.get("TAGS", ""),
        "size": size_of(message, len(body)),
        "preview": line if len(line) <= _PREVIEW else f"{line[:_PREVIEW]}…",
    }


def size_of(message: Row, told: int) -> object:
    """Bytes of a body of which so many were told; a text where only more than that is known."""
    if "bodyLongerThan" in message:
        return f"over {bytes_text(message['bodyLongerThan'])}"
    return message.get("bodySize", told)


def body_of(message: Row) -> bytes:
    """The bytes of a body, as many of them as were told."""
    text = message.get("body")
    if isinstance(text, str):
        return text.encode()
    return base64.b64decode(str(message.get("bodyBase64", "")))


def _text_of(content: bytes, *, is_cut: bool) -> str | None:
    """What it says in UTF-8; None: it is no text."""
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        if not (is_cut and error.start >= len(content) - 3):
            return None
        text = content[: error.start].decode()
    # A text with control characters is bytes that happen to be valid.
    return text if all(char.isprintable() or char in "\n\r\t" for char in text) else None


def _json_lines(text: str) -> str | None:
    """An object or a list in lines; None of all else."""
    if not text.lstrip().startswith(("{", "[")) or _depth(text) > _JSON_DEPTH_MAX:
        return None
    try:
        json.loads(text)
    except ValueError:
        return None
    return _in_lines(text)


def _in_lines(text: str) -> str:
    """JSON with line breaks, and every number and text as it was written: read and written again a
    key that stands twice would be there once, and half a surrogate pair be no UTF-8. Behind
    ``LINES_SIZE_MAX`` characters it ends.
    """
    parts: list[str] = []
    depth = size = 0
    for match in _WORD.finditer(text):
        word = match[0]
        new: tuple[str, ...] = (": " if word == ":" else word,)
        if word in "{[":
            depth += 1
            new = (word, "\n", _INDENT * depth)
        elif word in "}]":
            depth -= 1
            if parts[-2:] == ["\n", _INDENT * (depth + 1)]:
                # Of an empty one.
                del parts[-2:]
            else:
                new = ("\n", _INDENT * depth, word)
        elif word == ",":
            new = (word, "\n", _INDENT * depth)
        parts += new
        size += sum(map(len, new))
        if size > LINES_SIZE_MAX:
            parts.append("\n… and more lines; as text all of it is shown")
            break
    return "".join(parts)


def _depth(text: str) -> int:
    """Depth of brackets, or more: brackets within texts count, too."""
    deepest = depth = 0
    for char in text:
        if char in "{[":
            depth += 1
            deepest = max(deepest, depth)
        elif char in "}]":
            depth -= 1
    return deepest


BYS = (
    ("last", "the newest"),
    ("text", "the newest that contain"),
    ("key", "by key"),
    ("id", "by id"),
    ("time", "stored from a time on"),
    ("offset", "a queue, from an offset on"),
)

_PREVIEW_BYTES = 256


def _link(row: Row) -> str:
    return address("/messages/one", id=row["offsetMsgId"])


_ADDED = (
    TableColumn("storeTimestamp", "Stored (UTC)", "time"),
    TableColumn("keys", "Keys", "code"),
    TableColumn("tags", "Tags", "code"),
    TableColumn("size", "Size", "bytes"),
    TableColumn("preview", "Body", "preview"),
)
"""What ``message_row`` adds."""

_FOUND = (
    TableColumn("offsetMsgId", "Id", "export"),
    TableColumn("queue", "Queue", "number"),
    TableColumn("queueOffset", "Offset", "number", _link),
    *_ADDED,
)
TOPICS_OFFERED = 500

_CHOOSE = (
    TableColumn("topic", "Topic", "code", messages_link),
    TableColumn("messages", "Messages", "number"),
)
_CONSUMERS = (
    TableColumn("group", "Group", "code", group_link),
    TableColumn("state", "State", "state"),
    TableColumn("consumedTo", "Consumed up to offset", "number"),
)
_PROPERTIES = TableColumn("name", "Name", "code"), TableColumn("value", "Value", "wrap")
_LIFE = (
    TableColumn("time", "When (UTC)", "time"),
    TableColumn("what", "What", "state"),
    TableColumn("by", "By or in", "code"),
    TableColumn("host", "Told by", "code"),
    TableColumn("costMs", "Took", "ms"),
    TableColumn("retries", "Given back", "number"),
)
_TIMERS = (
    TableColumn("due_ms", "Due (UTC)", "time"),
    TableColumn("topic", "Topic", "code", topic_link),
    TableColumn("queue_id", "Queue", "number"),
    TableColumn("size", "Size", "bytes"),
    TableColumn("unique_id", "Id", "code"),
)
_CANCELLED = (Field("unique_id", "Id", is_needed=True),)
_CANCEL = verb_act(CancelTimer, _CANCELLED, "Message {unique_id} is not delivered.", "/timers")
_TRANSACTIONS = (
    TableColumn("born", "Begun (UTC)", "time"),
    TableColumn("group", "Producer group", "code"),
    TableColumn("topics", "Topics", "list"),
    TableColumn("messages", "Messages", "number"),
    TableColumn("checks", "Checks", "number"),
    TableColumn("transaction", "Transaction", "code"),
)
_ENDS = ("rollback", "are never delivered"), ("commit", "are delivered")
_ENDED = (
    Field("group", "Producer group", is_needed=True),
    Field("transaction", "Transaction", is_needed=True),
    Field("decision", "So that its messages", "select", choices=_ENDS),
    Field("messages", "How many it has", "number", hint="only to deliver them"),
)
_DEAD_GROUPS = (
    TableColumn("group", "Group", "code", lambda row: path_of("dead-letters", row["group"])),
    TableColumn("letters", "Dead letters", "number"),
    TableColumn("replayed", "Replayed", "number"),
    TableColumn("left", "Not replayed", "number"),
)
_LETTERS = (
    TableColumn("queueOffset", "Offset", "number", _link),
    TableColumn("firstTopic", "Sent to", "code"),
    *_ADDED,
    TableColumn("reconsumeTimes", "Retries", "number"),
    TableColumn("replayed", "Replayed", "state"),
)
_REPLAYED = (
    Field("offsets", "Offsets", hint="such as 3, 5, 9; empty: all that were not replayed"),
    Field("origin", "To the topic it was first sent to, for all groups", "checkbox"),
    Field("again", "Also what was replayed already", "checkbox"),
)


async def _messages(asked: PageAsked) -> View:
    by = asked.text("by") or "last"
    topic = asked.text("topic")
    is_search = bool(topic or asked.text("at"))
    topics = [] if is_search else await user_topics(asked, TOPICS_OFFERED)
    search = (
        Field(
            "topic",
            "Topic",
            value=topic,
            hint="not needed with an offset id",
            proposed=[str(row["topic"]) for row in topics],
        ),
        Field("by", "Find", "select", by, choices=BYS),
        Field(
            "at",
            "Text, key, id, offset or time",
            "search",
            asked.text("at"),
            hint="a time as 2026-05-03 14:00:00 (UTC) or epoch ms",
        ),
        Field("queue", "Queue", "number", asked.text("queue"), hint="empty: all of them"),
    )
    text = "Nothing counts as consumed by being looked at."
    if not is_search:
        choose = ShownTable("topics", "Choose a topic", _CHOOSE, topics, "There are no topics yet.")
        return View("Messages", text=text, search=search, tables=(choose,))
    rows, next_, note = await _found(asked, by, topic)
    shown, none = [message_row(row) for row in rows], "No message was found."
    table = ShownTable("messages", "Messages", _FOUND, shown, none, next_, note)
    ways = ((path_of("topics", topic), "The topic, its groups and their lags"),) if topic else ()
    return View("Messages", text=text, ways=ways, search=search, tables=(table,))


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
    queue = asked.number("queue")
    if by == "text":
        found = await messages.by_text(topic, at, queue=queue, body_max=_PREVIEW_BYTES)
        note = f"Looked through the newest {number_text(found['looked'])} messages"
        return rows_of(found, "messages"), "", f"{note}{'' if found['more'] else ': all of them'}."
    if by == "key":
        found = await messages.by_key(topic, at, queue=queue, body_max=_PREVIEW_BYTES)
        note = "There are older ones." if found["more"] else ""
        return rows_of(found, "messages"), "", note
    if by == "time":
        begin = _time_of(at)
        found = await messages.by_time(
            topic, begin=begin, end=TIMESTAMP_MAX, queue=queue, body_max=_PREVIEW_BYTES
        )
        note = "There are more of that time, and later ones." if found["more"] else ""
        return rows_of(found, "messages"), "", note
    if by != "offset" and queue is None:
        found = await messages.newest(topic, body_max=_PREVIEW_BYTES)
        note = "Of all queues, the newest first."
        return rows_of(found, "messages"), "", note
    number = queue or 0
    offset = (asked.number("at") or 0) if by == "offset" else None
    found = await messages.browse(
        topic, number, offset=offset, last=by != "offset", body_max=_PREVIEW_BYTES
    )
    next_ = asked.address(by="offset", at=found["next"]) if found["next"] else ""
    note = f"Queue {number} holds offsets {found['min']} to {found['max']}, without the last."
    rows = rows_of(found, "messages")
    return rows if by == "offset" else rows[::-1], next_, note


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
    properties = [{"name": name, "value": value} for name, value in message["properties"].items()]
    none, fault = "No group has consumed of its topic yet.", found["tracesFault"]
    note = f"Traces are missing: {fault}" if fault else ""
    life = rows_of(found, "life")
    tables = (
        ShownTable("consumers", "Where each group stands with it", _CONSUMERS, groups, none),
        ShownTable("life", "What has happened to it", _LIFE, life, note=note),
        ShownTable("properties", "Properties", _PROPERTIES, properties),
    )
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
            address("/messages", topic=message["topic"]),
            f"Messages of {message['topic']}",
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
        changes=_message_changes(str(message["topic"])) if asked.may_change else (),
    )


def _message_changes(topic: str) -> tuple[Change, ...]:
    """A dead letter may be replayed, and a copy of any message be sent."""
    text = "A new message with its body, keys, tag, and properties but those named in capitals."
    to = Field("topic", "To topic", value=topic, is_needed=True)
    again = Change("again", "Send it again", "Send", (to,), text)
    if not topic.startswith(DEAD_LETTER_PREFIX):
        return (again,)
    group = topic.removeprefix(DEAD_LETTER_PREFIX)
    text = f"{group} consumes it again, with its retries counted anew."
    return Change("replay", "Replay", "Replay", _REPLAYED[1:], text), again


async def _again(asked: PageAsked, form: Form) -> Done:
    found = await asked.inquiries.messages.show(
        asked.text("id"), asked.text("topic") or None, body_max=BODY_MAX
    )
    message = cast("Mapping[str, object]", found["message"])
    body = body_of(message)
    if size_of(message, len(body)) != len(body):
        raise ConfigError("body is too large to be sent again from here", limit=BODY_MAX)
    properties = cast("Mapping[str, str]", message["properties"])
    topic = checked_text("topic", form.get("topic", ""))
    own = {
        name: value
        for name, value in properties.items()
        if not (name.isupper() or name.startswith("__"))
    }
    tag, keys = properties.get("TAGS") or None, properties.get("KEYS", "").split()
    stored = await asked.inquiries.sent.send(topic, body, tag=tag, keys=keys, properties=own)
    return sent_to(topic, stored)


async def _replay_one(asked: PageAsked, form: Form) -> Done:
    found = await asked.inquiries.messages.show(
        asked.text("id"), asked.text("topic") or None, body_max=0
    )
    message = cast("Mapping[str, object]", found["message"])
    topic = str(message["topic"])
    if not topic.startswith(DEAD_LETTER_PREFIX):
        raise ConfigError("only dead letters are replayed", topic=topic[:64])
    group, offset = topic.removeprefix(DEAD_LETTER_PREFIX), cast("int", message["queueOffset"])
    return await _replayed(asked, group, [offset], form)


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
    rows, none = rows_of(found, "timers"), "Nothing waits for its time."
    act = RowAct("cancel", "Cancel", {"unique_id": "unique_id"})
    table = ShownTable("timers", "Due next", _TIMERS, rows, none, act=act)
    text = "It is not delivered then."
    cancel = Change("cancel", "Take one back", "Cancel", _CANCELLED, text, is_dangerous=True)
    return View(
        "Timers",
        facts=(Fact("Wait for their time", number_text(found["waiting"])),),
        tables=(table,),
        changes=(cancel,) if asked.may_change else (),
    )


async def _transactions(asked: PageAsked) -> View:
    limit = PAGE_ROWS_MAX if asked.export else ROWS_SHOWN
    found = await asked.inquiries.ask(ListTransactions(limit))
    rows, caption = rows_of(found, "transactions"), "Those that have waited longest"
    none, text = "No transaction is open.", "Its producer is not asked."
    table = ShownTable("transactions", caption, _TRANSACTIONS, rows, none)
    end = Change("end", "End one by hand", "End it", _ENDED, text, is_dangerous=True)
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


async def _dead_groups(asked: PageAsked) -> View:
    async def find(limit: int, after: str) -> Mapping[str, object]:
        found = await asked.inquiries.dead_letters.groups(limit, after)
        return {
            "groups": [{"group": row["group"], **_sums(row)} for row in rows_of(found, "groups")],
            "next": found["next"],
        }

    rows, next_ = await asked.rows("dead-letters", find, "groups")
    none, caption = "No message was given up.", "Groups with dead letters"
    table = ShownTable("dead-letters", caption, _DEAD_GROUPS, rows, none, next_)
    text = "What a group has given up after its last retry lies here until its files go."
    return View("Dead letters", text=text, tables=(table,))


def _sums(group: Mapping[str, object]) -> dict[str, int]:
    queues = cast("list[dict[str, int]]", group["queues"])
    letters = sum(queue["max"] - queue["min"] for queue in queues)
    replayed = sum(queue["replayed"] for queue in queues)
    return {"letters": letters, "replayed": replayed, "left": letters - replayed}


async def _letters(asked: PageAsked) -> View:
    name = asked.part("group")
    found = await asked.inquiries.dead_letters.list(
        name, offset=asked.number("offset") or 0, body_max=256
    )
    rows = [message_row(row) for row in rows_of(found, "messages")]
    sums = _sums(found)
    next_ = asked.address(offset=found["next"]) if found["next"] else ""
    caption, act = f"Dead letters of {name}", RowAct("replay", "Replay", {"offsets": "queueOffset"})
    table = ShownTable("letters", caption, _LETTERS, rows, "It has none.", next_, act=act)
    text = "A replayed message is consumed again, with its retries counted anew."
    replay = Change("replay", "Replay", "Replay", _REPLAYED, text)
    return View(
        f"Dead letters of {name}",
        back=("/dead-letters", "Dead letters"),
        facts=(
            Fact("Dead letters", number_text(sums["letters"])),
            Fact("Not replayed", number_text(sums["left"]), "warn" if sums["left"] else "ok"),
        ),
        tables=(table,),
        changes=(replay,) if asked.may_change and sums["letters"] else (),
    )


async def _replay(asked: PageAsked, form: Form) -> Done:
    name = asked.part("group")
    words = form.get("offsets", "").replace(",", " ").split()
    offsets = [number for word in words if (number := number_of("offsets", word)) is not None]
    return await _replayed(asked, name, offsets, form)


async def _replayed(asked: PageAsked, name: str, offsets: list[int], form: Form) -> Done:
    done = await asked.inquiries.dead_letters.replay(
        name,
        offsets or None,
        origin=form.get("origin") == "yes",
        again=form.get("again") == "yes",
    )
    counts = {key: len(cast("list[int]", done[key])) for key in ("replayed", "already", "missing")}
    text = f"{counts['replayed']} replayed"
    if counts["already"]:
        text += f", {counts['already']} had been replayed already"
    if counts["missing"]:
        text += f", {counts['missing']} not there"
    return Done(f"{text}.", path_of("dead-letters", name))


PAGES = (
    ConsolePage("/messages", _messages),
    ConsolePage("/messages/one", _message, {"again": _again, "replay": _replay_one}),
    ConsolePage("/dead-letters", _dead_groups),
    ConsolePage("/dead-letters/{group}", _letters, {"replay": _replay}),
    ConsolePage("/timers", _timers, {"cancel": _CANCEL}),
    ConsolePage("/transactions", _transactions, {"end": _end}),
)
