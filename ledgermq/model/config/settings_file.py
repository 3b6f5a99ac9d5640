"""Settings codec for TOML: typed by the dataclasses, all problems at once, each with its line.

The caller reads the file; this module sees its text and, for the messages, its name.
"""

from __future__ import annotations

import json
import re
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple, Union, get_args, get_origin, get_type_hints

from ledgermq.model.config.settings import AckMode, Settings
from ledgermq.model.config.settings_rules import RULES, conflicts
from ledgermq.model.errors import ConfigError

OCTAL_KEYS = frozenset({"listen.socket_mode"})
"""Settings that are read and written as octal numbers."""

FORMER_VALUES = {("ack.mode", "leader"): AckMode.LOSSY_LEADER}
"""Values by key and the word that an older version had for them; that is read with a remark."""

_PART = r"""(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')"""
_KEY = re.compile(rf"\s*({_PART}(?:\s*\.\s*{_PART})*)\s*=")
_TABLE = re.compile(rf"\s*\[\[?\s*({_PART}(?:\s*\.\s*{_PART})*)\s*\]")
_LINE_OF_TOML_ERROR = re.compile(r"\(at line (\d+),")


class Problem(NamedTuple):
    """One thing that the operator has to change; ``line`` counts from 1."""

    line: int
    key: str
    text: str


class SettingsError(ConfigError):
    """Settings that cannot be used, with everything that is wrong with them."""

    def __init__(self, name: str, problems: tuple[Problem, ...]) -> None:
        assert problems, name
        super().__init__(
            f"{name} cannot be used", problems=[problem._asdict() for problem in problems]
        )
        self.name = name
        self.problems = problems

    def __str__(self) -> str:
        lines = [f"{self.name}:{line}: {key}: {text}" for line, key, text in self.problems]
        return "\n".join([f"{self.message}:", *lines])


def _unheard(remark: Problem) -> None:
    del remark


def read_settings(
    text: str, *, name: str, remark: Callable[[Problem], None] = _unheard
) -> Settings:
    """The settings that a file holds; what it leaves out has its default.

    Args:
        text: the file's content, TOML.
        name: the file's name, for the messages.
        remark: told of each value that counts, and should be written otherwise by now.

    Raises:
        SettingsError: the text is not TOML, a key is unknown, or a value cannot be used; names
            every such key with its line.
    """
    # Not before it is needed: what a command can do is told without any library.
    import tomli

    # Some editors begin each file with a byte order mark, which TOML does not know.
    text = text.removeprefix("\ufeff")
    try:
        document: dict[str, object] = tomli.loads(text)
    except tomli.TOMLDecodeError as error:
        found = _LINE_OF_TOML_ERROR.search(str(error))
        # At the end of the document there is no line in the message: it is the last one.
        line = int(found[1]) if found else text.count("\n") + 1
        raise SettingsError(name, (Problem(line, "TOML", str(error)),)) from error
    problems = _Problems(text)
    settings = Settings()
    for table, values in document.items():
        if table not in tables():
            problems.add((table,), _unknown(table, tables(), "tables are"))
        elif not isinstance(values, dict):
            problems.add((table,), f"must be a table: write [{table}]")
        else:
            settings = _with_table(settings, table, values, problems)
    if not problems.found:
        for key, reason in conflicts(settings):
            problems.add(tuple(key.split(".")), reason)
    if problems.found:
        raise SettingsError(name, tuple(sorted(problems.found)))
    for one in problems.remarks:
        remark(one)
    return settings


def write_settings(settings: Settings) -> str:
    """All settings as TOML that ``read_settings`` gives back unchanged; ``None`` is a comment."""
    lines: list[str] = []
    for table in tables():
        lines.append(f"[{table}]")
        section: object = getattr(settings, table)
        for name in keys_of(section):
            lines.append(_line(f"{table}.{name}", name, getattr(section, name)))
        lines.append("")
    return "\n".join(lines)


def tables() -> tuple[str, ...]:
    """Names of the tables of a settings file, in the order of the dataclasses."""
    return tuple(field.name for field in fields(Settings))


def keys_of(section: object) -> dict[str, object]:
    """Names and types of the settings of one section, in the order of its dataclass."""
    return dict(get_type_hints(type(section)))


def value_text(value: object, *, octal: bool = False) -> str:
    """A value of a setting as TOML writes it.

    Args:
        octal: write a whole number in base 8, as file modes are read.
    """
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return f"0o{value:o}" if octal else str(value)
        case tuple():
            return f"[{', '.join(value_text(item) for item in value)}]"
        case _:
            # A basic string of TOML has JSON's escapes, and needs one for DEL too.
            return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")


class _Problems:
    """Collects problems, and finds the lines of the keys in the text."""

    def __init__(self, text: str) -> None:
        self.found: list[Problem] = []
        self.remarks: list[Problem] = []
        self._lines = _lines_of_keys(text)

    def add(self, path: tuple[str, ...], text: str) -> None:
        """Note a problem of the key at ``path``; of its table when the key has no line."""
        self.found.append(self._problem(path, text))

    def remark(self, path: tuple[str, ...], text: str) -> None:
        """Note what should be written otherwise, and is taken all the same."""
        self.remarks.append(self._problem(path, text))

    def _problem(self, path: tuple[str, ...], text: str) -> Problem:
        line = next((self._lines[path[:size]] for size in (2, 1) if path[:size] in self._lines), 1)
        return Problem(line, ".".join(path), text)


def _with_table(
    settings: Settings, table: str, values: Mapping[str, object], problems: _Problems
) -> Settings:
    section = getattr(settings, table)
    kinds = keys_of(section)
    taken: dict[str, object] = {}
    for name, raw in values.items():
        key = f"{table}.{name}"
        if name not in kinds:
            problems.add((table, name), _unknown_key(table, name))
            continue
        meant = FORMER_VALUES.get((key, raw)) if isinstance(raw, str) else None
        if meant is not None:
            problems.remark((table, name), f"{_shown(raw)} is {_shown(meant)} by now: write that")
        try:
            value = _typed(kinds[name], meant or raw)
        except _MismatchError as error:
            problems.add((table, name), f"must be {error.wanted}, got {_shown(raw)}")
            continue
        rule = RULES[key]
        if rule.takes(value):
            taken[name] = value
        else:
            problems.add((table, name), f"must be {rule.allowed}, got {_shown(raw)}")
    changed: Settings = replace(settings, **{table: replace(section, **taken)})
    return changed


class _MismatchError(Exception):
    """A value is not of its setting's type."""

    def __init__(self, wanted: str) -> None:
        super().__init__(wanted)
        self.wanted = wanted


def _typed(kind: object, raw: object) -> object:
    """``raw`` as the type that the dataclass declares.

    Raises:
        _MismatchError: it is of another type.
    """
    if get_origin(kind) in (Union, types.UnionType):
        # TOML has no null: None is what a key that is left out means.
        (kind,) = [choice for choice in get_args(kind) if choice is not types.NoneType]
    if get_origin(kind) is tuple:
        if not isinstance(raw, list):
            raise _MismatchError("a list of texts")
        return tuple(_typed(get_args(kind)[0], item) for item in raw)
    if kind is bool or kind is int:
        if type(raw) is not kind:
            raise _MismatchError("true or false" if kind is bool else "a whole number")
        return raw
    assert isinstance(kind, type) and issubclass(kind, str | Path), kind
    if not isinstance(raw, str):
        raise _MismatchError("a text in quotes")
    if issubclass(kind, StrEnum) and raw not in list(kind):
        raise _MismatchError(" or ".join(value_text(member) for member in kind))
    return kind(raw)


def _shown(raw: object) -> str:
    if isinstance(raw, list):
        return f"[{', '.join(_shown(item) for item in raw)}]"
    return value_text(raw) if isinstance(raw, bool | int | str) else str(raw)


def _unknown_key(table: str, name: str) -> str:
    defaults = Settings()
    for other in tables():
        if other != table and name in keys_of(getattr(defaults, other)):
            return f"unknown here: it belongs into [{other}]"
    return _unknown(name, tuple(keys_of(getattr(defaults, table))), f"keys of [{table}] are")


def _unknown(name: str, known: tuple[str, ...], these_are: str) -> str:
    # RocketMQ's own spelling (mappedFileSizeCommitLog) is the likeliest mistake here.
    plain = {_plain(candidate): candidate for candidate in known}
    close = get_close_matches(_plain(name), plain, n=1)
    if close:
        return f"unknown; did you mean {plain[close[0]]}?"
    return f"unknown; {these_are} {', '.join(known)}"


def _plain(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()


def _line(key: str, name: str, value: object) -> str:
    if value is None:
        return f"# {name} is not set"
    return f"{name} = {value_text(value, octal=key in OCTAL_KEYS)}"


def _lines_of_keys(text: str) -> dict[tuple[str, ...], int]:
    """Line of every table and key, as far as a line-wise look can tell; the first one counts."""
    found: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    for number, line in _lines_outside_texts(text):
        if match := _TABLE.match(line):
            table = _parts(match[1])
            found.setdefault(table, number)
        elif match := _KEY.match(line):
            path = table + _parts(match[1])
            found.setdefault(path, number)
            found.setdefault(path[:1], number)
    return found


def _lines_outside_texts(text: str) -> Iterator[tuple[int, str]]:
    inside = ""
    for number, line in enumerate(text.splitlines(), 1):
        if not inside:
            yield number, line
        for quotes in ('"""', "'''"):
            if inside in ("", quotes) and line.count(quotes) % 2:
                inside = "" if inside else quotes


def _parts(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip("\"'") for part in re.findall(_PART, dotted))
