"""Name values: texts by namespace and key that tools keep at a name server.

``ROOT/ledgermq/name-values.json``.

    {"nameValues": {NAMESPACE: {KEY: TEXT}}}

RocketMQ has them in the ``kvConfig.json`` of each name server, each with its own content. Here they
are in the log, and all nodes have the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from ledgermq.model.errors import ConfigError
from ledgermq.rules.tables.documents import Document, read_table
from ledgermq.rules.tables.table import Table
from ledgermq.rules.tables.table_changes import NamesSet

FILE = "name-values.json"
ORDER_TOPICS = "ORDER_TOPIC_CONFIG"
"""Namespace of the topics whose queues are fixed (``NamesrvUtil``)."""

CLOSED_BROKERS = "LEDGERMQ_CLOSED_BROKERS"
"""Namespace of the brokers that routes show as closed for producers."""

REQUEST_MODES = "LEDGERMQ_REQUEST_MODES"
"""Namespace of how groups of RocketMQ's push consumers are to ask for a topic's messages."""

NAMESPACES_MAX = 1_000
KEYS_MAX = 10_000
VALUE_NAME_SIZE_MAX = 255
VALUE_SIZE_MAX = 65_536
NAMESPACE_SIZE_MAX = 256 * 1024
"""Characters of one namespace: each change carries all of it."""

_TABLE = "nameValues"


class NameValues(Table[NamesSet]):
    """All texts. Invariant: no namespace is empty."""

    file = FILE
    takes = (NamesSet,)

    def __init__(self) -> None:
        super().__init__()
        self._spaces: dict[str, dict[str, str]] = {}

    @classmethod
    def read(cls, document: Document) -> Self:
        table = cls()
        for namespace, values in read_table(document, _TABLE, file=FILE).items():
            table.put(namespace, values)
        return table

    def to_document(self) -> dict[str, object]:
        return {_TABLE: {name: dict(self._spaces[name]) for name in sorted(self._spaces)}}

    def of(self, namespace: str) -> Mapping[str, str]:
        """All texts of a namespace; none when there is no such one."""
        return self._spaces.get(namespace, {})

    def get(self, namespace: str, key: str) -> str | None:
        """One text."""
        return self.of(namespace).get(key)

    def apply(self, change: NamesSet, _place: int, _at_ms: int, /) -> None:
        self.put(change.name, change.fields)

    def put(self, namespace: str, values: object) -> None:
        """Have these texts in ``namespace``, and no other ones; nothing there at all without.

        Raises:
            ConfigError: they are no texts.
        """
        if values is None:
            values = {}
        if not isinstance(values, Mapping) or not all(
            isinstance(value, str) for value in values.values()
        ):
            raise ConfigError("namespace has other values than texts", namespace=namespace)
        self._spaces.pop(namespace, None)
        if values:
            self._spaces[namespace] = {str(key): str(values[key]) for key in sorted(values)}
        self.revision += 1

    def replace_with(self, other: NameValues) -> None:
        self._spaces = dict(other._spaces)
        self.revision += 1

    def with_value(self, namespace: str, key: str, value: str | None) -> dict[str, str]:
        """The namespace as it would be with ``value`` at ``key``, or without it.

        Raises:
            ConfigError: a name is empty or too long, or there would be too much.
        """
        for name in (namespace, key):
            _check_size("name", name, VALUE_NAME_SIZE_MAX)
            if not name:
                raise ConfigError("name is empty", namespace=namespace[:64], key=key[:64])
        _check_size("value", value or "", VALUE_SIZE_MAX)
        values = dict(self.of(namespace))
        if value is None:
            values.pop(key, None)
            return values
        if namespace not in self._spaces and len(self._spaces) >= NAMESPACES_MAX:
            raise ConfigError("too many namespaces", limit=NAMESPACES_MAX)
        values[key] = value
        size = sum(len(one) + len(values[one]) for one in values)
        if len(values) > KEYS_MAX or size > NAMESPACE_SIZE_MAX:
            raise ConfigError(
                "namespace would get too large",
                namespace=namespace,
                keys=len(values),
                keys_max=KEYS_MAX,
                size=size,
                limit=NAMESPACE_SIZE_MAX,
            )
        return values


def _check_size(what: str, text: str, limit: int) -> None:
    if len(text) > limit:
        raise ConfigError(f"{what} is too long", found=text[:64], size=len(text), limit=limit)
