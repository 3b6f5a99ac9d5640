"""Text for a terminal: letters that cannot be seen are shown as such, wherever they come from.

What others have stored or sent may be told by any command: bodies, keys, names, errors. A terminal
does what control characters say: it gets none of them but those that a command draws with.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, TextIO, cast

KEPT = "\n\t"


def shown(text: str, *, keeps: str = "") -> str:
    """``text`` with a dot for each letter that cannot be seen: others may have chosen it, and a
    terminal does what such letters say.

    Args:
        keeps: letters that stay all the same.
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in keeps else "·" for one in text)


def all_shown(value: Any) -> Any:
    """The same tuples, mappings and sequences with all their texts ``shown``."""
    if isinstance(value, str):
        return shown(value)
    if isinstance(value, Mapping):
        return {all_shown(key): all_shown(one) for key, one in value.items()}
    if isinstance(value, tuple | list):
        parts = map(all_shown, value)
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value


class SeenText:
    """A terminal's stream whose ``write`` gives it ``shown`` text alone; all else is its own.

    Attributes:
        drawn: the terminal itself, for who moves the cursor or has colours.
    """

    def __init__(self, drawn: TextIO) -> None:
        self.drawn = drawn

    def write(self, text: str) -> int:
        """Write what can be seen of ``text``, lines and tabs."""
        return self.drawn.write(shown(text, keeps=KEPT))

    def writelines(self, lines: list[str]) -> None:
        """Write what can be seen of each of ``lines``."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> object:
        """What the terminal's own stream has."""
        return getattr(self.drawn, name)


def show_only_what_is_seen() -> None:
    """From now on what is printed at a terminal, also errors, is seen there and does nothing."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and not isinstance(stream, SeenText) and stream.isatty():
            setattr(sys, name, cast("TextIO", SeenText(stream)))


def drawn(stream: TextIO) -> TextIO:
    """The terminal behind ``stream``, for control characters of our own; else ``stream``."""
    return stream.drawn if isinstance(stream, SeenText) else stream
