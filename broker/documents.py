"""Reading of RocketMQ's JSON tables: typed fields, and the version that every change advances.

A document is what the JSON codec gives: text keys, values of any JSON type. What a table does not
understand stays in it untouched, so that a file of a later RocketMQ survives our rewriting it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ledgermq.model.errors import ConfigError

Document = Mapping[str, object]


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
        counter = read_integer(fields, "counter", 0, file=file, owner="dataVersion")
        timestamp_ms = read_integer(fields, "timestamp", 0, file=file, owner="dataVersion")
        unknown = {key: fields[key] for key in fields.keys() - {"counter", "timestamp"}}
        return cls(counter, timestamp_ms, unknown)

    def next_version(self, now_ms: int) -> DataVersion:
        """The version after one more change (``DataVersion.nextVersion``)."""
        return DataVersion(self.counter + 1, now_ms, self.unknown)

    def to_fields(self) -> dict[str, object]:
        """The JSON object, keys in RocketMQ's order."""
        fields = {"counter": self.counter, "timestamp": self.timestamp_ms, **self.unknown}
        return {key: fields[key] for key in sorted(fields)}
