"""Text codec of RocketMQ's JSON files under ``config/``, which Java's fastjson reads and writes.

    file                    content
    topics.json             dataVersion, topicConfigTable: {topic: {…}}
    subscriptionGroup.json  dataVersion, subscriptionGroupTable: {group: {…}}
    consumerOffset.json     offsetTable: {"topic@group": {queue id: queue offset}}
    delayOffset.json        offsetTable: {delay level: queue offset}
    consumerFilter.json     filterDataByTopic: {topic: {…}}

fastjson writes integer keys without quotes (``{0:5,1:6}``), which is not JSON; it reads both. A
document here has text keys alone, and whatever it holds is passed through: what the tables mean is
the broker's matter.

Java writes ``F.tmp``, copies ``F`` to ``F.bak``, deletes ``F``, and renames. A crash in between
leaves no ``F``, or an empty one, and the ``F.bak`` of the change before.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from math import isfinite
from typing import NoReturn

from ledgermq.model.errors import CorruptLogError

# Possessive, and open at the end: damaged text is gone through once, not once for each quote.
_STRING_OR_KEY = re.compile(r'"(?:[^"\\]++|\\.)*+"?+|(?<=[{,\s])(-?[0-9]++)(?=\s*+:)', re.DOTALL)

ROWS_PER_STEP = 32
"""Some tenths of a millisecond."""

OFFSET_TABLE = "offsetTable"
"""Where a file of consumed offsets has them, a node's or a client's own."""

_DEPTH_MAX = 64
"""Levels of a document; RocketMQ's tables have four."""


def encode_document(document: Mapping[str, object]) -> bytes:
    """``document`` as a file's content: indented by tabs like Java's, with all keys in quotes.

    It has ASCII characters alone, so that Java reads it under every default charset.
    """
    return json.dumps(document, indent="\t", allow_nan=False).encode("ascii")


class Rows:
    """A table of a document, each row of which is made when it is written.

    Rows are never changed, only replaced: to have them costs no more than a reference to each, and
    another thread may make them.
    """

    def __init__(self, rows: Iterable[tuple[str, object]]) -> None:
        self._rows = rows

    def __iter__(self) -> Iterator[tuple[str, object]]:
        """Key and value of each; once."""
        return iter(self._rows)


def encode_in_steps(document: Mapping[str, object], pause: Callable[[], object]) -> bytes:
    """``document`` as a file's content: a line for each row of its tables, whatever is in it.

    To indent what is within a row costs ten times as much. For a thread beside one that others wait
    for: it lets that one go on again and again.

    Args:
        document: tables are ``Rows``, or mappings.
        pause: called behind each few rows.
    """
    parts: list[str] = []
    for key, value in document.items():
        if not isinstance(value, Rows | Mapping):
            parts.append(f"{_line(key)}: {_line(value)}")
            continue
        lines: list[str] = []
        for name, row in value if isinstance(value, Rows) else value.items():
            lines.append(f"\t\t{_line(str(name))}: {_line(row)}")
            if len(lines) % ROWS_PER_STEP == 0:
                pause()
        parts.append(f"{_line(key)}: {{\n" + ",\n".join(lines) + "\n\t}")
    return ("{\n\t" + ",\n\t".join(parts) + "\n}").encode("ascii")


def _line(value: object) -> str:
    return json.dumps(value, allow_nan=False)


def decode_document(data: bytes, *, file: str = "") -> dict[str, object]:
    """The document in a file's content, with or without quotes around integer keys.

    Raises:
        CorruptLogError: it is not one JSON object.
    """
    try:
        text = _STRING_OR_KEY.sub(_quoted, data.decode())
        document: object = json.loads(
            text, parse_constant=_refuse_constant, parse_float=_finite_float
        )
    # The decoder says ValueError to all that is not JSON, and goes as deep as the text does.
    except (ValueError, RecursionError) as error:
        raise CorruptLogError(
            "not a JSON document",
            file=file,
            offset=getattr(error, "pos", 0),
            field="text",
            reason=str(error)[:200],
        ) from error
    if not isinstance(document, dict):
        raise CorruptLogError(
            "not a JSON object", file=file, offset=0, field="text", found=type(document).__name__
        )
    if not _is_shallow(document):
        raise CorruptLogError(
            "JSON is nested too deep", file=file, offset=0, field="text", limit=_DEPTH_MAX
        )
    return document


def _is_shallow(document: object) -> bool:
    """Whether ``document`` can be written again without running out of stack."""
    level: list[object] = [document]
    for _ in range(_DEPTH_MAX):
        below: list[object] = []
        for value in level:
            if isinstance(value, dict):
                below += value.values()
            elif isinstance(value, list):
                below += value
        if not below:
            return True
        level = below
    return False


def _quoted(match: re.Match[str]) -> str:
    key = match.group(1)
    return match.group() if key is None else f'"{key}"'


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite_float(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        raise ValueError(f"{text[:64]} is too large")
    return value


def choose_document(
    primary: bytes | None, backup: bytes | None, *, file: str = ""
) -> dict[str, object] | None:
    """The document of a file and its ``.bak``, ``None`` when there is neither.

    The backup counts when the file is missing, empty or damaged (``ConfigManager.load``). Where
    Java would go on with nothing, because the file is damaged and has no backup, this is an error:
    the next write would make the loss final.

    Args:
        primary: content of the file, ``None`` if there is none.
        backup: content of its ``.bak``, ``None`` if there is none.
        file: named in the error.

    Raises:
        CorruptLogError: there is something, and nothing that can be read.
    """
    damage: CorruptLogError | None = None
    if primary:
        try:
            return decode_document(primary, file=file)
        except CorruptLogError as error:
            damage = error
    if backup:
        return decode_document(backup, file=f"{file}.bak")
    if damage is not None:
        raise damage
    return None
