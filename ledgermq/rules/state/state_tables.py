"""List of the broker's tables: one row each, and nowhere else a list of them by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, get_type_hints

from ledgermq.model.errors import NewerVersionError
from ledgermq.model.features import LEVEL, LEVEL_OF_TABLE
from ledgermq.rules.access.access import UserTable
from ledgermq.rules.schemas.schema_table import SchemaTable
from ledgermq.rules.state.cluster_copy import ClusterCopy
from ledgermq.rules.state.feature_table import FeatureTable
from ledgermq.rules.state.state_commands import Part, decode_snapshot_in_steps
from ledgermq.rules.tables.archives import ArchiveTable
from ledgermq.rules.tables.delays import DelayTable
from ledgermq.rules.tables.documents import Document, Steps
from ledgermq.rules.tables.group_offsets import GroupOffsets
from ledgermq.rules.tables.groups import GroupTable
from ledgermq.rules.tables.moves import MoveTable
from ledgermq.rules.tables.name_values import NameValues
from ledgermq.rules.tables.queue_locks import QueueLocks
from ledgermq.rules.tables.quotas import QuotaTable
from ledgermq.rules.tables.shares import ShareTable
from ledgermq.rules.tables.sinks import SinkTable
from ledgermq.rules.tables.table import Table
from ledgermq.rules.tables.topics import TopicTable


class StateTables(NamedTuple):
    """All tables, in the order in which a snapshot has them."""

    topics: TopicTable
    groups: GroupTable
    offsets: GroupOffsets
    locks: QueueLocks
    users: UserTable
    quotas: QuotaTable
    delays: DelayTable
    moves: MoveTable
    sinks: SinkTable
    archives: ArchiveTable
    names: NameValues
    features: FeatureTable
    cluster: ClusterCopy
    schemas: SchemaTable
    shares: ShareTable

    def by_file(self) -> dict[str, Table[Any]]:
        """The same, by the name of their file."""
        return {table.file: table for table in self}


KINDS: tuple[type[Table[Any]], ...] = tuple(get_type_hints(StateTables).values())

FILES = tuple(kind.file for kind in KINDS)

assert {*FILES} == LEVEL_OF_TABLE.keys(), "a table without a feature level"

OWN_FILES = tuple(kind.file for kind in KINDS if kind.is_own)
"""Tables that RocketMQ does not know; their files are not in its folder."""

YOUNGER_FILES = tuple(kind.file for kind in KINDS if kind.is_younger)
"""Not in stores from before there were such tables."""


ENDS = "queue-ends"
"""Name of the ends of all queues, beside the tables in a snapshot. They are no state of commands,
and each node has its own."""


class SnapshotTables(NamedTuple):
    """What all tables are by a snapshot; ``documents`` has what else it says, too."""

    identity: str
    documents: dict[str, Document]
    tables: StateTables


def read_tables(documents: Mapping[str, Document]) -> Steps[StateTables]:
    """The tables of these documents, by the name of the file; of one that is missing, an empty one.

    Raises:
        ConfigError: a document cannot be understood; names file, key and value.
    """
    found = []
    for kind in KINDS:
        found.append((yield from kind.read_in_steps(documents.get(kind.file, {}))))
    return StateTables._make(found)


def read_snapshot(parts: Sequence[Part]) -> Steps[SnapshotTables]:
    """The tables of a snapshot of which these are all parts: two seconds of work at 100,000 topics.

    Raises:
        ConfigError, CorruptLogError: they are none, or a table is none.
        NewerVersionError: a table is of no known name, or a newer version's.
    """
    snapshot = yield from decode_snapshot_in_steps(parts)
    documents = dict(snapshot.tables)
    unknown = documents.keys() - {*FILES, ENDS}
    if unknown:
        raise NewerVersionError(
            "snapshot has tables of no known name", level=LEVEL + 1, tables=sorted(unknown)
        )
    return SnapshotTables(snapshot.identity, documents, (yield from read_tables(documents)))
