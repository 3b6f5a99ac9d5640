"""Copy of the cluster table as one of the broker's tables. ``ROOT/ledgermq/cluster.json``:

    {"cluster": NAME, "root": KEY, "group": NAME, "nodes": [ADDRESS, …], "chain": [CERTIFICATE, …],
     "rowsRank": N, "floor": N, "points": [[N, DIGEST], …], "rows": [[KIND, NAME, N, {…}], …],
     "confirmedMs": MS, "isOver": FLAG}

A group that belongs to no cluster has none of it; below feature level 3 there is no such file.
"""

from __future__ import annotations

from typing import Self

from ledgermq.model.errors import ConfigError, NewerVersionError
from ledgermq.model.features import LEVEL_OF_TABLE
from ledgermq.rules.cluster.cluster_commands import (
    ClusterCommand,
    ClusterJoined,
    ClusterLeft,
    DocumentTaken,
    HomeCertified,
    HomeHandedOver,
    RightsAged,
    RowChanged,
    TombstonesForgotten,
)
from ledgermq.rules.cluster.cluster_table import ClusterTable
from ledgermq.rules.tables.documents import Document
from ledgermq.rules.tables.table import Table

FILE = "cluster.json"


class ClusterCopy(Table[ClusterCommand]):
    """Rows of the cluster, and who its home is, as far as this group's log tells.

    Attributes:
        table: the rows and certificates; it stays the same one.
    """

    file = FILE
    takes = (
        ClusterJoined,
        ClusterLeft,
        HomeCertified,
        HomeHandedOver,
        RowChanged,
        TombstonesForgotten,
        RightsAged,
        DocumentTaken,
    )

    def __init__(self, table: ClusterTable | None = None) -> None:
        super().__init__()
        self.table = ClusterTable() if table is None else table

    @classmethod
    def read(cls, document: Document) -> Self:
        try:
            return cls(ClusterTable.read(document))
        except ConfigError as error:
            raise ConfigError(error.message, **{**error.details, "file": FILE}) from None

    def to_document(self) -> dict[str, object]:
        return self.table.to_document()

    def apply(self, change: ClusterCommand, _place: int, _at_ms: int, /) -> None:
        """Take a change of a command.

        Raises:
            NewerVersionError: this node cannot check signatures. Nothing of the command is applied:
                a member that passed it over would have other rows than the others.
        """
        try:
            self.table.apply(change)
        except ModuleNotFoundError as error:
            raise NewerVersionError(
                "groups of a cluster need the Python package cryptography: pip install"
                " 'ledgermq[server]'",
                level=LEVEL_OF_TABLE[FILE],
                missing=error.name or "",
            ) from None
        self.revision += 1

    def replace_with(self, other: ClusterCopy) -> None:
        """Have what ``other`` has; below the table's level there is nothing to write."""
        if self.table.chain is not None or other.table.chain is not None:
            self.table.replace_with(other.table)
            self.revision += 1
