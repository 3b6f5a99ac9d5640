"""Java's properties text, as ``java.util.Properties.load`` reads it, with the line of each key.

Java takes each byte of a file for a character (ISO-8859-1), and for a blank only what is one here.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ledgermq.model.errors import ConfigError

_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.?)", re.DOTALL)
_NAMED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ENTRY = re.compile(r"((?:\\.|[^\\:= \t\f])*)[ \t\f]*[:=]?[ \t\f]*(.*)", re.DOTALL)
_BLANKS = " \t\f"


class Property(NamedTuple):
    """One entry; ``line`` is where its key begins, counted from 1."""

    line: int
    key: str
    value: str


def read_properties(text: str) -> dict[str, Property]:
    """Entries by key, in the order of the text; of a key that is repeated, the last one.

    Comments begin with ``#`` or ``!``, a backslash at the end of a line continues it, and keys and
    values may hold ``\\uXXXX``. Blanks behind a value belong to it, as in Java.

    Raises:
        ConfigError: ``\\u`` without four digits behind it: Java reads no such file.
    """
    found: dict[str, Property] = {}
    for number, line in _logical_lines(text):
        match = _ENTRY.fullmatch(line)
        assert match is not None, line
        key, value = (_unescaped(part, number) for part in (match[1], match[2]))
        found[key] = Property(number, key, value)
    return found


def _logical_lines(text: str) -> list[tuple[int, str]]:
    lines: list[tuple[int, str]] = []
    begin, held = 0, ""
    for number, natural in enumerate(re.split(r"\r\n|\n|\r", text), 1):
        line = natural.lstrip(_BLANKS)
        if not begin:
            if not line or line[0] in "#!":
                continue
            begin = number
        slashes = len(line) - len(line.rstrip("\\"))
        if slashes % 2:
            held += line[:-1]
            continue
        lines.append((begin, held + line))
        begin, held = 0, ""
    if begin:
        lines.append((begin, held))
    return lines


def _unescaped(text: str, line: int) -> str:
    def meaning(match: re.Match[str]) -> str:
        letter = match[1]
        if letter == "u":
            raise ConfigError("\\u without four hexadecimal digits behind it", line=line)
        if len(letter) == 5:
            return chr(int(letter[1:], 16))
        return _NAMED.get(letter, letter)

    return _ESCAPE.sub(meaning, text)
