"""Translation of RocketMQ 4.9's ``broker.conf`` into our settings; keys without effect are named.

RocketMQ ignores what it does not know or cannot parse, without a word; here every key that has no
effect is named with its value and the reason. What it can parse is Java's to say
(``MixAll.properties2Object``): blanks behind a value belong to it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from ledgermq.model.config.broker_conf_keys import (
    DEFAULTS_THAT_DIFFER,
    SAME_WHEN,
    TRANSLATED,
    WITHOUT_EQUAL,
)
from ledgermq.model.config.settings import ForceClean, LogKind, Settings
from ledgermq.model.config.settings_file import (
    Problem,
    SettingsError,
    keys_of,
    tables,
    value_text,
)
from ledgermq.model.config.settings_rules import QUEUE_UNIT_SIZE, RULES, conflicts, member_names
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


_NUMBER = re.compile(r"[+-]?\d+")
"""What Java's ``Integer.parseInt`` takes."""

_IGNORED = "no whole number to Java, so RocketMQ ignored it and kept its default"
_QUEUE_SIZE_KEY = "mappedFileSizeConsumeQueue"
_DLEDGER_KEYS = ("dLegerGroup", "dLegerPeers", "dLegerSelfId", "preferredLeaderId")


class Untranslated(NamedTuple):
    """A key without effect here; ``line`` is 0 when RocketMQ's default is meant."""

    line: int
    key: str
    value: str
    why: str


class Translation(NamedTuple):
    """Our settings, the RocketMQ key that each comes from, and what is left over."""

    settings: Settings
    origins: dict[str, str]
    untranslated: tuple[Untranslated, ...]


def translate_broker_conf(text: str, *, name: str) -> Translation:
    """Our settings for the broker that ``text`` configures.

    Args:
        text: content of a ``broker.conf``, a character a byte.
        name: the file's name, for the messages.

    Raises:
        SettingsError: the values contradict one another, so that RocketMQ would not run with them.
    """
    properties = read_properties(text)
    is_dledger = _is_true(properties, "enableDLegerCommitLog")
    settings = _with(Settings(), "store.log", _log_kind(is_dledger=is_dledger))
    origins = {"store.log": "enableDLegerCommitLog"}
    left = list(_leftovers(properties, is_dledger=is_dledger))
    for entry in properties.values():
        ours = TRANSLATED.get(entry.key)
        if ours is None or (entry.key in _DLEDGER_KEYS and not is_dledger):
            continue
        convert = _CONVERTED.get(ours)
        value = _value(ours, entry) if convert is None else convert(entry.value)
        if value is None:
            left.append(Untranslated(*entry, _IGNORED))
            continue
        if not RULES[ours].takes(value):
            left.append(Untranslated(*entry, f"{ours} must be {RULES[ours].allowed}"))
            continue
        settings = _with(settings, ours, value)
        origins[ours] = entry.key
    settings, strangers = _without_strange_leaders(properties, settings)
    left.extend(strangers)
    left.extend(_strange_paths(properties, settings))
    _refuse_conflicts(settings, origins, properties, name)
    return Translation(settings, origins, tuple(sorted(left)))


def write_translation(translation: Translation, *, name: str) -> str:
    """The translated settings as TOML, each with the key that it comes from."""
    lines = [f"# Translated from {name}; what is not here has its default.", ""]
    for table in tables():
        section: object = getattr(translation.settings, table)
        rows = [
            f"{key} = {value_text(getattr(section, key))}  # {origin}"
            for key in keys_of(section)
            if (origin := translation.origins.get(f"{table}.{key}"))
        ]
        if rows:
            lines += [f"[{table}]", *rows, ""]
    return "\n".join(lines)


def _leftovers(properties: dict[str, Property], *, is_dledger: bool) -> Iterator[Untranslated]:
    for entry in properties.values():
        bare = entry.value.strip()
        if entry.value != bare and not _NUMBER.fullmatch(bare):
            yield Untranslated(*entry, "the blanks behind it belong to it, as RocketMQ read it")
        if entry.key in _DLEDGER_KEYS and not is_dledger:
            yield Untranslated(*entry, "without enableDLegerCommitLog=true it has no effect")
        elif entry.key in SAME_WHEN:
            same, why = SAME_WHEN[entry.key]
            if entry.value.lower() not in same:
                yield Untranslated(*entry, why)
        elif entry.key in WITHOUT_EQUAL:
            yield Untranslated(*entry, WITHOUT_EQUAL[entry.key])
        elif entry.key not in TRANSLATED and entry.key not in _STORE_PATHS:
            yield Untranslated(*entry, _unknown(entry.key))
    for key, (value, why) in DEFAULTS_THAT_DIFFER.items():
        if key not in properties:
            yield Untranslated(0, key, value, why)


def _unknown(key: str) -> str:
    known = [*TRANSLATED, *SAME_WHEN, *WITHOUT_EQUAL, *_STORE_PATHS, "enableDLegerCommitLog"]
    close = get_close_matches(key, known, n=1, cutoff=0.8)
    if close:
        return f"not a key of RocketMQ, which ignored it; {close[0]} is one"
    return "not a key that is known here"


_STORE_PATHS = ("storePathCommitLog", "storePathDLedgerCommitLog")


def _strange_paths(properties: dict[str, Property], settings: Settings) -> Iterator[Untranslated]:
    root = PurePosixPath(settings.store.path_root_dir)
    usual = dict(
        zip(
            _STORE_PATHS,
            (root / "commitlog", root / f"dledger-{settings.node.self_id}" / "data"),
            strict=True,
        )
    )
    for key, expected in usual.items():
        entry = properties.get(key)
        if entry is not None and PurePosixPath(entry.value) != expected:
            why = f"the log is always at {expected}: move it there, or mount it there"
            yield Untranslated(*entry, why)


def _without_strange_leaders(
    properties: dict[str, Property], settings: Settings
) -> tuple[Settings, list[Untranslated]]:
    """RocketMQ passes over preferred leaders that are no members, and so does the translation."""
    named = tuple(dict.fromkeys(settings.raft.preferred_leaders))
    members = member_names(settings.node)
    strangers = [
        Untranslated(*properties["preferredLeaderId"], f"{name} is no member of dLegerPeers")
        for name in named
        if name not in members
    ]
    kept = tuple(name for name in named if name in members)
    return _with(settings, "raft.preferred_leaders", kept), strangers


def _refuse_conflicts(
    settings: Settings, origins: dict[str, str], properties: dict[str, Property], name: str
) -> None:
    problems = []
    for key, text in conflicts(settings):
        entry = properties.get(origins.get(key, ""))
        problems.append(Problem(entry.line if entry else 1, key, text))
    if problems:
        raise SettingsError(name, tuple(sorted(problems)))


def _value(ours: str, entry: Property) -> object:
    """The value in our type; ``None`` when it cannot be read as one."""
    table, _, name = ours.partition(".")
    kind = keys_of(getattr(Settings(), table))[name]
    if kind is bool:
        return entry.value.lower() == "true"
    if kind is str:
        return entry.value
    if kind is Path:
        return Path(entry.value)
    if kind == tuple[str, ...]:
        return tuple(item.strip() for item in entry.value.split(";") if item.strip())
    assert kind is int or kind == int | None, kind
    if not _NUMBER.fullmatch(entry.value):
        return None
    number = int(entry.value)
    if entry.key == _QUEUE_SIZE_KEY:
        # RocketMQ rounds up, so this is the size that its files have.
        number = -(-number // QUEUE_UNIT_SIZE) * QUEUE_UNIT_SIZE
    return number


_CONVERTED: dict[str, Callable[[str], object]] = {
    "retention.clean_above": lambda text: f"{text}%",
    "retention.force_clean": lambda text: (
        ForceClean.OLDEST if text.lower() == "true" else ForceClean.NEVER
    ),
}
"""Settings that RocketMQ writes in another way."""


def _with(settings: Settings, key: str, value: object) -> Settings:
    table, _, name = key.partition(".")
    section = replace(getattr(settings, table), **{name: value})
    changed: Settings = replace(settings, **{table: section})
    return changed


def _is_true(properties: dict[str, Property], key: str) -> bool:
    return key in properties and properties[key].value.lower() == "true"


def _log_kind(*, is_dledger: bool) -> LogKind:
    return LogKind.DLEDGER if is_dledger else LogKind.COMMITLOG
