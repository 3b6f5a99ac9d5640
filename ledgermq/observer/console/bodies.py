"""Bodies of messages as people read them: text, JSON in lines, or bytes in hexadecimal; and rows
of messages with the beginning of theirs.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from typing import NamedTuple

from ledgermq.observer.console.rendering import bytes_text
from ledgermq.observer.console.tables import Row, TableColumn

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


def message_columns() -> tuple[TableColumn, ...]:
    """Columns of what ``message_row`` adds."""
    return (
        TableColumn("storeTimestamp", "Stored (UTC)", "time"),
        TableColumn("keys", "Keys", "code"),
        TableColumn("tags", "Tags", "code"),
        TableColumn("size", "Size", "bytes"),
        TableColumn("preview", "Body", "preview"),
    )


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
