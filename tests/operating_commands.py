"""The commands that docs/operating tells, as its readers would type them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parents[1] / "docs" / "operating"
_BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.M | re.S)
_ENDS = frozenset({">", "|", "&&", ";", "&", "<", "||", ">>"})


class Told(NamedTuple):
    """One command; ``is_run`` says whether its block is one that the tests run."""

    document: str
    text: str
    is_run: bool


def documents() -> list[str]:
    """Names of all documents for operators."""
    return sorted(path.name for path in FOLDER.glob("*.md"))


def told_in(document: str) -> Iterator[Told]:
    """All commands of one document, in its order; of blocks that are no program of another kind."""
    for _, language, block in _BLOCK.findall((FOLDER / document).read_text()):
        if language not in ("", "console"):
            continue
        joined = re.sub(r" *\\\n\s*", " ", block)
        for line in joined.splitlines():
            stripped = line.strip()
            if language == "console" and stripped.startswith("$ "):
                yield Told(document, stripped.removeprefix("$ "), True)
            # A line with bars between verbs is an overview, and no command.
            elif language == "" and stripped.startswith("ledgermq ") and " | " not in stripped:
                yield Told(document, re.sub(r"[\[\]]", "", stripped), False)


def words_of(text: str) -> list[str]:
    """Words behind ``ledgermq``; without redirection, what is behind a pipe, and remarks, which
    stand behind a ``#`` or two blanks."""
    command = re.split(r"  +", text)[0]
    lexer = shlex.shlex(command, posix=True, punctuation_chars="<>|&;")
    lexer.whitespace_split = True
    words = list(lexer)
    end = next((at for at, word in enumerate(words) if word in _ENDS), len(words))
    return words[1:end]
