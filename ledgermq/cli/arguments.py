"""Words and options of commands, each told with what its value is: ``--out DIR``, ``topic TOPIC``.

What a value is called says what it is made into, so that both cannot differ: ``N`` is a whole
number in each command, ``DIR`` a path.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

KINDS: dict[str, Callable[[str], object]] = {
    **dict.fromkeys(("N", "BYTES", "MS", "OFFSET", "QUEUE"), int),
    **dict.fromkeys(("FILE", "DIR"), Path),
    "SECONDS": float,
}
"""What values of these names are made into; all others stay texts."""


def takes(
    parser: argparse._ActionsContainer, words: str, text: str | None = None, /, **more: Any
) -> None:
    """Let ``parser`` take a word, an option with a value, or one that is given or not.

    Args:
        words: its name, and what its value is called; an option without that has none.
        text: what ``--help`` says of it.
        more: as of ``ArgumentParser.add_argument``; a ``type`` is taken in the place of that which
            the value's name stands for.
    """
    name, _, value = words.partition(" ")
    if value:
        more = {"metavar": value, "type": KINDS.get(value), **more}
    elif name.startswith("--") and not more.keys() & {"action", "choices", "type"}:
        more["action"] = "store_true"
    parser.add_argument(name, help=text, **more)
