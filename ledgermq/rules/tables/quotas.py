"""Quota table: bytes and messages a second of topics, users and clients.

    {"quotas": {OWNER: {"produceBytes": N, "produceMessages": N,
                        "consumeBytes": N, "consumeMessages": N}}}

OWNER is ``topic:NAME``, ``user:NAME`` or ``client:NAME``; numbers are those of a second, 0 is no
limit. ``clusterQuotas`` beside it has those of the cluster that the group belongs to, from the rows
of its home; where an owner is in both, the cluster's quota holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Self

from ledgermq.model.errors import ConfigError
from ledgermq.rules.tables.documents import Document, read_integer, read_table
from ledgermq.rules.tables.table import Table
from ledgermq.rules.tables.table_changes import QuotaSet

FILE = "quotas.json"
QUOTAS_KEY = "quotas"
CLUSTER_QUOTAS_KEY = "clusterQuotas"
OWNER_KINDS = ("topic", "user", "client")
OWNER_SIZE_MAX = 300
RATE_MAX = 2**53

_KEYS = {
    "produce_bytes": "produceBytes",
    "produce_messages": "produceMessages",
    "consume_bytes": "consumeBytes",
    "consume_messages": "consumeMessages",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """Bytes of records and messages a second; 0: no limit."""

    produce_bytes: int = 0
    produce_messages: int = 0
    consume_bytes: int = 0
    consume_messages: int = 0

    @classmethod
    def read(cls, owner: str, value: object) -> Self:
        """The quota that the table has under ``owner``.

        Raises:
            ConfigError: the owner or a number is not what it should be.
        """
        check_owner(owner)
        if not isinstance(value, dict):
            raise ConfigError("quota is not a JSON object", file=FILE, owner=owner)
        numbers = {
            name: read_integer(value, key, 0, file=FILE, owner=owner) for name, key in _KEYS.items()
        }
        for name, number in numbers.items():
            if not 0 <= number <= RATE_MAX:
                raise ConfigError(
                    "quota out of range", owner=owner, key=_KEYS[name], value=number, limit=RATE_MAX
                )
        return cls(**numbers)

    def to_fields(self) -> dict[str, int]:
        """The JSON object, without what is not limited."""
        fields = {key: int(getattr(self, name)) for name, key in _KEYS.items()}
        return {key: number for key, number in fields.items() if number}


UNLIMITED = Quota()


class QuotaTable(Table[QuotaSet]):
    """All quotas by owner, the group's own and the cluster's."""

    file = FILE
    takes = (QuotaSet,)

    def __init__(self) -> None:
        super().__init__()
        self._own: dict[str, Quota] = {}
        self._of_cluster: dict[str, Quota] = {}

    @classmethod
    def read(cls, document: Document) -> Self:
        table = cls()
        for owner, fields in read_table(document, QUOTAS_KEY, file=FILE).items():
            table.put(owner, Quota.read(owner, fields))
        shared = read_table(document, CLUSTER_QUOTAS_KEY, file=FILE)
        if shared:
            table.follow_cluster(shared)
        return table

    def to_document(self) -> dict[str, object]:
        told: dict[str, object] = {QUOTAS_KEY: _fields_of(self._own)}
        shared = _fields_of(self._of_cluster)
        return {**told, CLUSTER_QUOTAS_KEY: shared} if shared else told

    def __iter__(self) -> Iterator[tuple[str, Quota]]:
        """All quotas by owner."""
        return iter(sorted({**self._own, **self._of_cluster}.items(), key=lambda item: item[0]))

    def __len__(self) -> int:
        return len(self._own.keys() | self._of_cluster.keys())

    def get(self, owner: str) -> Quota | None:
        """The quota of ``owner``; None: what the settings say holds."""
        return self._of_cluster.get(owner) or self._own.get(owner)

    def is_of_cluster(self, owner: str) -> bool:
        """Whether the home of the cluster says what ``owner`` may."""
        return owner in self._of_cluster

    def follow_cluster(self, rows: Mapping[str, object]) -> bool:
        """Have the cluster's quotas as the rows of its home say; whether that changes anything.

        One that this version cannot read is as if there were none.
        """
        fresh = {owner: found for owner in rows if (found := _quota_of_row(owner, rows[owner]))}
        if fresh == self._of_cluster:
            return False
        self._of_cluster = fresh
        self.revision += 1
        return True

    def apply(self, change: QuotaSet, _place: int, _at_ms: int, /) -> None:
        if change.fields is None:
            self.delete(change.owner)
        else:
            self.put(change.owner, Quota.read(change.owner, change.fields))

    def put(self, owner: str, quota: Quota) -> None:
        """Have ``quota`` for ``owner``, where the cluster has none."""
        self._own[owner] = quota
        self.revision += 1

    def delete(self, owner: str) -> None:
        """Have what the settings say for ``owner``."""
        self._own.pop(owner, None)
        self.revision += 1

    def replace_with(self, other: QuotaTable) -> None:
        self._own, self._of_cluster = dict(other._own), dict(other._of_cluster)
        self.revision += 1


def _fields_of(quotas: Mapping[str, Quota]) -> dict[str, object]:
    return {owner: quotas[owner].to_fields() for owner in sorted(quotas)}


def _quota_of_row(owner: str, fields: object) -> Quota | None:
    try:
        return Quota.read(owner, fields)
    except ConfigError:
        return None


def check_owner(owner: str) -> None:
    """Refuse what cannot have a quota.

    Raises:
        ConfigError: it is neither a topic nor a user nor a client.
    """
    kind, colon, name = owner.partition(":")
    if kind not in OWNER_KINDS or not colon or not name or len(owner) > OWNER_SIZE_MAX:
        raise ConfigError(
            "not an owner of a quota",
            owner=owner[:OWNER_SIZE_MAX],
            allowed="topic:NAME, user:NAME or client:NAME",
        )
