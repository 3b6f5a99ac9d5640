"""The commands that docs/operating tells, as its readers would type them.

| block | its lines |
|---|---|
| ``console`` | commands behind a prompt, continued behind ``> ``; all else is output |
| ``sh`` | commands that no test runs; each has its reason in ``NOT_RUN`` |
| any other | no commands |

| prompt | is typed |
|---|---|
| ``$`` | where a node can be reached; nobody in particular has to be logged in |
| ``#`` | by root, on the first host |
| ``10.0.0.2#`` | by root, there |
| ``each#`` | by root on each host, one after the other |
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parents[1] / "docs" / "operating"
LANGUAGES = frozenset({"console", "sh", "text", "toml", "python", "json", "sql", "java"})
_BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.M | re.S)
_PROMPT = re.compile(r"(\$|(?:\d+\.\d+\.\d+\.\d+|each)?#) (.*)")
_ENDS = frozenset({">", "|", "&&", ";", "&", "<", "||", ">>"})


class Block(NamedTuple):
    """One block of a page."""

    language: str
    text: str


class Told(NamedTuple):
    """One command; ``prompt`` is empty for one that no test runs."""

    document: str
    text: str
    prompt: str

    @property
    def command(self) -> str:
        """Without a remark behind it, which stands behind two blanks and a ``#``."""
        return re.split(r"  +#", self.text)[0]


def documents() -> list[str]:
    """Names of all documents for operators."""
    return sorted(path.name for path in FOLDER.glob("*.md"))


def blocks_of(document: str) -> list[Block]:
    """All blocks of one document, in its order."""
    return [
        Block(language, text)
        for _, language, text in _BLOCK.findall((FOLDER / document).read_text())
    ]


def told_in(document: str) -> Iterator[Told]:
    """All commands of one document, in its order."""
    for block in blocks_of(document):
        yield from commands_in(document, block)


def commands_in(document: str, block: Block) -> list[Told]:
    """The commands of one block."""
    found: list[Told] = []
    if block.language not in ("console", "sh"):
        return found
    for line in re.sub(r" *\\\n\s*", " ", block.text).splitlines():
        stripped = line.strip()
        if block.language == "sh":
            if stripped:
                found.append(Told(document, re.sub(r"[\[\]]", "", stripped), ""))
        elif match := _PROMPT.fullmatch(stripped):
            found.append(Told(document, match[2], match[1]))
        elif stripped.startswith(">") and found:
            last = found.pop()
            found.append(last._replace(text=f"{last.text}\n{stripped[2:]}"))
    return found


def words_of(text: str) -> list[str]:
    """Words behind ``ledgermq``; without redirection, what is behind a pipe, and remarks, which
    stand behind a ``#`` or two blanks."""
    command = re.split(r"  +", text)[0]
    lexer = shlex.shlex(command, posix=True, punctuation_chars="<>|&;")
    lexer.whitespace_split = True
    words = list(lexer)
    end = next((at for at, word in enumerate(words) if word in _ENDS), len(words))
    return words[1:end]
