"""Reading of RocketMQ's JSON tables: typed fields, and the version that every change advances.

A document is what the JSON codec gives: text keys, values of any JSON type. What a table does not
understand stays in it untouched, so that a file of a later RocketMQ survives our rewriting it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from ledgermq.formats.config_json import true_or_false, whole_number, with_field_names
from ledgermq.model.errors import ConfigError, MessageIllegalError
from ledgermq.model.limits import TOPIC_CHARACTERS, TOPIC_NAME

Document = Mapping[str, object]

ROWS_PER_STEP = 64
"""Rows in one step of work that is done step by step: some tenths of a millisecond."""

_VERSION_FIELDS = frozenset({"counter", "timestamp", "stateVersion"})

Outcome = TypeVar("Outcome")
Row = TypeVar("Row")

Steps = Generator[None, None, Outcome]
"""Work that others may be served between the steps of; it ends with what came of it."""


def rows_in_steps(
    table: Mapping[str, object], read: Callable[[str, object], Row]
) -> Steps[dict[str, Row]]:
    """What ``read`` makes of each row, by its key."""
    found: dict[str, Row] = {}
    for key, value in table.items():
        found[key] = read(key, value)
        if len(found) % ROWS_PER_STEP == 0:
            yield
    return found


def finish(steps: Steps[Outcome]) -> Outcome:
    """What comes of all steps, taken at once."""
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            outcome: Outcome = ended.value
            return outcome


def read_table(document: Document, key: str, *, file: str) -> dict[str, object]:
    """The object at ``key``; empty when it is missing.

    Raises:
        ConfigError: there is something else than an object.
    """
    table = document.get(key)
    if table is None:
        return {}
    if not isinstance(table, Mapping):
        raise ConfigError("not a JSON object", file=file, key=key, found=type(table).__name__)
    return {str(name): value for name, value in table.items()}


def read_integer(fields: Document, key: str, default: int, *, file: str, owner: str) -> int:
    """The integer at ``key``, or ``default`` when it is missing.

    Raises:
        ConfigError: there is something else than an integer.
    """
    value = fields.get(key)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigError("not an integer", file=file, owner=owner, key=key, value=value)
    return value


def read_flag(fields: Document, key: str, default: bool, *, file: str, owner: str) -> bool:
    """The boolean at ``key``, or ``default`` when it is missing.

    Raises:
        ConfigError: there is something else than a boolean.
    """
    value = fields.get(key)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise ConfigError("not true or false", file=file, owner=owner, key=key, value=value)
    return value


def cast_integer(fields: Document, key: str, default: int, *, file: str, owner: str) -> int:
    """The integer at ``key`` in a table of RocketMQ's, or ``default`` when it is missing; what
    RocketMQ takes for an integer counts as one (``whole_number``).

    Raises:
        ConfigError: there is something else.
    """
    number = _cast(whole_number, fields.get(key), "an integer", file=file, owner=owner, key=key)
    return default if number is None else number


def cast_flag(fields: Document, key: str, default: bool, *, file: str, owner: str) -> bool:
    """The boolean at ``key``, as ``cast_integer`` (``true_or_false``).

    Raises:
        ConfigError: there is something else.
    """
    flag = _cast(true_or_false, fields.get(key), "true or false", file=file, owner=owner, key=key)
    return default if flag is None else flag


def _cast(cast: Callable[[object], Row], value: object, what: str, **place: str) -> Row:
    try:
        return cast(value)
    except ValueError:
        raise ConfigError(f"not {what}", **place, value=value) from None


def check_name(what: str, name: str, *, size_max: int) -> None:
    """Refuse the name of a topic or of a group that RocketMQ refuses.

    Raises:
        MessageIllegalError: empty, too long, or with a character that is not allowed.
    """
    named: dict[str, object] = {what: name}
    if not name:
        raise MessageIllegalError(f"{what} name is empty")
    if len(name) > size_max:
        raise MessageIllegalError(
            f"{what} name is too long", **named, characters=len(name), limit=size_max
        )
    if TOPIC_NAME.fullmatch(name) is None:
        raise MessageIllegalError(
            f"{what} name has a character that is not allowed", **named, allowed=TOPIC_CHARACTERS
        )


@dataclass(frozen=True, slots=True)
class DataVersion:
    """RocketMQ's ``DataVersion``: a count of changes and the time of the last one, epoch ms."""

    counter: int = 0
    timestamp_ms: int = 0
    unknown: Mapping[str, object] = field(default_factory=dict)

    @classmethod
    def read(cls, document: Document, *, file: str) -> DataVersion:
        """The version in ``document``; zero when it has none."""
        fields = read_table(document, "dataVersion", file=file)
        fields = dict(with_field_names(fields, _VERSION_FIELDS))
        counter = cast_integer(fields, "counter", 0, file=file, owner="dataVersion")
        timestamp_ms = cast_integer(fields, "timestamp", 0, file=file, owner="dataVersion")
        unknown = {key: fields[key] for key in fields.keys() - {"counter", "timestamp"}}
        return cls(counter, timestamp_ms, unknown)

    def next_version(self, now_ms: int) -> DataVersion:
        """The version after one more change (``DataVersion.nextVersion``)."""
        return DataVersion(self.counter + 1, now_ms, self.unknown)

    def to_fields(self) -> dict[str, object]:
        """The JSON object, keys in RocketMQ's order."""
        fields = {"counter": self.counter, "timestamp": self.timestamp_ms, **self.unknown}
        return {key: fields[key] for key in sorted(fields)}
