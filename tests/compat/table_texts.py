"""Texts of RocketMQ's tables as people and programs write them, and what our reader makes of each.

A document is written in a way that is drawn: names bare or in either quotes, numbers as text, with
a fraction or a suffix, comments and commas wherever there is room for them.
"""

from __future__ import annotations

import json
from random import Random
from typing import Any

from ledgermq.formats.config_json import decode_document
from ledgermq.model.errors import LedgerError
from ledgermq.rules.tables.delays import DelayTable
from ledgermq.rules.tables.group_offsets import GroupOffsets
from ledgermq.rules.tables.groups import BUILTIN_GROUPS, GroupTable
from ledgermq.rules.tables.topics import TopicTable

NOTHING = {"rows": {}}

_SPACES = ("", "", "", " ", "\n\t", "\r\n", "  ", "/* ops */", "// ops\n", "/* 中文, {} */", "\f")
_NAMES = ("alpha", "beta_2", "%RETRY%g", "RMQ_SYS", "a-b", "T1", "zwölf")


class Writer:
    """Writes documents as ``random`` says."""

    def __init__(self, random: Random) -> None:
        self._random = random
        # Each way is there or not in a whole text, so that most texts have few.
        self._ways = {way for way in _WAYS if random.random() < 0.3}

    def text(self, kind: str) -> str:
        """A table of a kind."""
        pick = self._random
        if kind in ("topics", "groups"):
            rows = {name: self._row(kind) for name in pick.sample(_NAMES, pick.randint(0, 3))}
            version = {"counter": pick.randint(0, 2**33), "timestamp": 1_700_000_000_000}
            table = "topicConfigTable" if kind == "topics" else "subscriptionGroupTable"
            document: dict[str, Any] = {"dataVersion": version, table: rows}
        else:
            queues = {str(pick.randint(0, 40)): self._number() for _ in range(pick.randint(0, 4))}
            owner = f"{pick.choice(_NAMES)}@{pick.choice(_NAMES)}"
            document = {"offsetTable": {owner: queues} if kind == "offsets" else queues}
        if "more" in self._ways:
            document["stateMachine"] = [1, {"x": None}, "y", []]
        items = list(document.items())
        pick.shuffle(items)
        text = self._space() + self._object(dict(items), numbered=False) + self._space()
        if "mark" in self._ways:
            text = "\ufeff" + text
        return text + ("\0" * 40 if "zeros" in self._ways else "")

    def _number(self) -> int:
        return self._random.choice((0, 1, 7, 2**31 - 1, 2**40, -1))

    def _row(self, kind: str) -> dict[str, Any]:
        pick = self._random
        if kind == "topics":
            row: dict[str, Any] = {
                "order": pick.random() < 0.5,
                "perm": pick.choice((0, 2, 4, 6)),
                "readQueueNums": pick.randint(0, 16),
                "topicFilterType": "SINGLE_TAG",
                "topicName": "alpha",
                "topicSysFlag": 0,
                "writeQueueNums": pick.randint(0, 16),
            }
        else:
            row = {
                "brokerId": 0,
                "consumeBroadcastEnable": pick.random() < 0.5,
                "consumeEnable": pick.random() < 0.5,
                "consumeFromMinEnable": True,
                "groupName": "g",
                "retryMaxTimes": pick.randint(0, 16),
                "retryQueueNums": 1,
            }
        if "missing" in self._ways:
            row = {key: value for key, value in row.items() if pick.random() < 0.7}
        if "nulls" in self._ways:
            row = {key: value if pick.random() < 0.7 else None for key, value in row.items()}
        if "strange" in self._ways:
            row["attributes"] = {"+message.type": "NORMAL"}
        return row

    def _space(self) -> str:
        return self._random.choice(_SPACES) if "spaces" in self._ways else ""

    def _commas(self) -> str:
        count = self._random.choice((0, 1, 2)) if "commas" in self._ways else 0
        return "".join("," + self._space() for _ in range(count))

    def _object(self, document: dict[str, Any], *, numbered: bool) -> str:
        parts = [
            self._key(key, numbered=numbered)
            + self._space() + ":" + self._space()
            + self._value(key, value)
            + self._space()
            for key, value in document.items()
        ]  # fmt: skip
        joined = f",{self._commas()}{self._space()}".join(parts)
        return f"{{{self._space()}{joined}{self._commas() if parts else ''}{self._space()}}}"

    def _key(self, key: str, *, numbered: bool) -> str:
        if numbered:
            return (
                self._random.choice((key, f'"{key}"', f"'{key}'")) if "keys" in self._ways else key
            )
        if "spelt" in self._ways and key in _SPELT:
            key = self._random.choice(_SPELT[key])
        if "keys" not in self._ways:
            return f'"{key}"'
        bare = [key] if key.isidentifier() and key.isascii() else []
        return self._random.choice((f'"{key}"', f"'{key}'", *bare))

    def _value(self, key: str, value: Any) -> str:
        if isinstance(value, dict):
            numbered = "@" in key or (key == "offsetTable" and all(k.isdigit() for k in value))
            return self._object(value, numbered=numbered and bool(value))
        if isinstance(value, list):
            return "[" + ",".join(self._value("", one) for one in value) + "]"
        return self._random.choice(self._scalar(value))

    def _scalar(self, value: str | bool | int | None) -> tuple[str, ...]:
        """The ways to write a value that are there in this text."""
        if value is None:
            return ("null", "NULL", "undefined") if "nothing" in self._ways else ("null",)
        if isinstance(value, bool):
            if "flags" not in self._ways:
                return ("true",) if value else ("false",)
            if value:
                return ('"true"', "'TRUE'", '"Y"', '"T"', '"1"', "1", "true")
            return ('"false"', '"F"', '"N"', '"0"', "0", "2", '"False"', "false")
        if isinstance(value, int):
            texts = (f'"{value}"', f"'{value}'") if "texts" in self._ways else ()
            is_cut = "fractions" in self._ways and abs(value) < 2**31
            cut = (f"{value}.0", f"{value}.", f"{value}L", f"{value}e0") if is_cut else ()
            return (str(value), *texts, *cut)
        if "escapes" in self._ways:
            value = self._random.choice(
                (value, f"\\u0041{value}", f"\\x41{value}", f"\\/{value}", f"{value}\\v")
            )
        return (f"'{value}'", f'"{value}"') if "quotes" in self._ways else (f'"{value}"',)


_WAYS = (
    "commas", "escapes", "flags", "fractions", "keys", "mark", "missing", "more", "nothing",
    "nulls", "quotes", "spaces", "spelt", "strange", "texts", "zeros",
)  # fmt: skip
_SPELT = {
    "readQueueNums": ("readqueuenums", "read_queue_nums", "ReadQueueNums"),
    "topicConfigTable": ("topic-config-table", "TopicConfigTable"),
    "order": ("isOrder", "Order"),
    "offsetTable": ("OffsetTable", "offset_table"),
    "counter": ("Counter",),
}


def garbled(text: str, random: Random) -> str:
    """``text`` with a character more, less, or another one, or without its end."""
    at = random.randrange(len(text)) if text else 0
    other = random.choice("{}[]:,\"'\\/* \n0a-.\0")
    before, behind = text[:at], text[at + 1 :]
    return random.choice(
        (before + behind, before + other + text[at:], before + other + behind, before)
    )


def ours(kind: str, text: str) -> dict[str, Any] | None:
    """What our tables read of a text; None: it is refused."""
    try:
        document = decode_document(text.encode("utf-8", "surrogatepass"), file=kind)
        if kind == "topics":
            topics = TopicTable.read(document)
            rows: dict[str, Any] = {
                one.name: [one.read_queues, one.write_queues, int(one.permission), one.is_ordered,
                           one.sys_flag]
                for one in topics
            }  # fmt: skip
            return {"version": _version(topics.data_version), "rows": rows}
        if kind == "groups":
            groups = GroupTable.read(document)
            rows = {}
            for one in groups:
                fields = one.to_fields()
                rows[one.name] = [
                    one.consume_enable, one.retry_queues, one.retry_times_max,
                    fields["consumeBroadcastEnable"], fields["consumeFromMinEnable"],
                    fields["brokerId"],
                ]  # fmt: skip
            return {"version": _version(groups.data_version), "rows": rows}
        if kind == "offsets":
            found = GroupOffsets.read(document).to_document()["offsetTable"]
            assert isinstance(found, dict)
            rows = {
                key: {str(queue): at for queue, at in row.items()}
                for key, row in found.items()
                if key.count("@") == 1
            }
            return {"rows": rows}
        levels = DelayTable.read(document)
        return {"rows": {str(queue.queue_id + 1): one.next_offset for queue, one in levels}}
    except LedgerError:
        return None


def _version(fields: dict[str, object]) -> list[object]:
    return [fields["counter"], fields["timestamp"]]


def as_ours(kind: str, said: str, mine: dict[str, Any] | None) -> dict[str, Any] | None:
    """What Java has read, to be compared with ``mine``; None: it refuses the text.

    Args:
        said: a line of ``Tables.java``.
    """
    if said.startswith("ERROR"):
        return None
    # Of no document it makes what it has before it reads one.
    theirs: dict[str, Any] = json.loads(said) or {**(mine or {}), **NOTHING}
    if kind == "topics" and mine and not mine["version"][1]:
        # Without one its time is that of the reading.
        return {**theirs, "version": [theirs["version"][0], 0]}
    if kind == "delays":
        # There are none below 1.
        rows = {level: at for level, at in theirs["rows"].items() if int(level) > 0}
        return {"rows": rows}
    if kind == "offsets":
        # There are none below 0, and no other name is one of a topic and a group.
        rows = {
            key: {queue: at for queue, at in row.items() if int(queue) >= 0}
            for key, row in theirs["rows"].items()
            if key.count("@") == 1
        }
        return {"rows": rows}
    if kind == "groups":
        # The manager makes groups of its own, and a version, before it reads.
        own = {*BUILTIN_GROUPS} - (mine or NOTHING)["rows"].keys()
        rows = {name: row for name, row in theirs["rows"].items() if name not in own}
        return {**(mine or {}), "rows": rows}
    return theirs
