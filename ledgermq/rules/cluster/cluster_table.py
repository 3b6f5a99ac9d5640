"""Cluster table: which cluster a group belongs to, who is its home, and the rows of all groups.

State of the group's log: each member applies the same commands, and decides the same. In the home
rows are changed, one command each; in other groups they arrive in documents. Whether a group is the
home is decided where a command is applied, not where it is proposed: between the two the home may
have moved.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from ledgermq.formats.ed25519 import PUBLIC_SIZE
from ledgermq.model.errors import ConfigError
from ledgermq.model.names.clusters import NAME_LENGTH_MAX
from ledgermq.rules.cluster.certificates import Chain
from ledgermq.rules.cluster.cluster_commands import (
    ClusterCommand,
    ClusterJoined,
    ClusterLeft,
    DocumentTaken,
    HomeCertified,
    HomeHandedOver,
    RightsAged,
    RowChanged,
    read_chain,
    read_nodes,
)
from ledgermq.rules.cluster.cluster_document import (
    listed,
    open_document,
    read_point,
    read_rows,
)
from ledgermq.rules.cluster.json_objects import Object, decoded, encoded, integer_of, text_of
from ledgermq.rules.cluster.numbered_rows import NumberedRows, Point, RowKey

GROUP_KIND = "group"
"""Rows of the cluster's groups: ``{"nodes": [ADDRESS, …], "user": NAME}``."""

USER_KIND = "user"
QUOTA_KIND = "quota"
"""Rows of users and quotas, with the fields that they have in each group's own table."""


class ClusterTable:
    """What one group knows of its cluster.

    Attributes:
        group: name of this group.
        first_nodes: addresses of members of the home, as it was when the group joined.
        chain: None while it belongs to no cluster.
        rows_rank: rank of the home that has confirmed ``rows``; 0: nobody has.
        confirmed_ms: when the rights in them were all that the home had, epoch ms, as it was noted
            last; 0: it never was.
        refused: why the last command that changed nothing did so; empty when the last one did.
    """

    def __init__(self) -> None:
        self.group = ""
        self.first_nodes: Sequence[str] = ()
        self.chain: Chain | None = None
        self.rows = NumberedRows()
        self.rows_rank = 0
        self.confirmed_ms = 0
        self._is_over = False
        self.refused = ""

    @property
    def at(self) -> Point:
        """How far the rows are."""
        return self.rows.at

    @property
    def is_home(self) -> bool:
        """Whether this group changes the rows.

        Whoever is certified and has not all rows that it should begin with is none: it has lost
        some, or has not got them yet.
        """
        home = self.chain.greatest if self.chain else None
        return home is not None and home.home == self.group and self.at.number >= home.start

    @property
    def rights_too_old(self) -> bool:
        """Whether the rights of the cluster's users count no more, until the home was heard."""
        return self._is_over and not self.is_home

    def apply(self, command: ClusterCommand) -> None:
        """Take a command of the log; one that does not hold here changes nothing."""
        try:
            self._apply(command)
            self.refused = ""
        except ConfigError as error:
            self.refused = str(error)

    def _apply(self, command: ClusterCommand) -> None:
        if isinstance(command, ClusterJoined):
            self._join(command)
        elif isinstance(command, ClusterLeft):
            self._leave()
        elif isinstance(command, HomeCertified):
            self._certify(self._own_chain.with_chain(command.chain))
        elif isinstance(command, HomeHandedOver):
            self._hand_over(command)
        elif isinstance(command, DocumentTaken):
            self._take(command.signed)
        elif isinstance(command, RightsAged):
            self._note_age(command)
        else:
            self.check_home()
            if isinstance(command, RowChanged):
                self._change(command)
            else:
                self.rows.forget(command.number)

    @property
    def home(self) -> str:
        """Name of the group that is certified as home; empty before one is known."""
        home = self.chain.greatest if self.chain else None
        return home.home if home else ""

    def nodes_of(self, group: str) -> list[str]:
        """Addresses of a group's members by the rows; none when there is no such group."""
        nodes = (self.rows.value(RowKey(GROUP_KIND, group)) or {}).get("nodes")
        return [str(one) for one in nodes] if isinstance(nodes, list) else []

    @property
    def _own_chain(self) -> Chain:
        if self.chain is None:
            raise ConfigError("group belongs to no cluster")
        return self.chain

    def check_home(self) -> None:
        """Let the home alone go on.

        Raises:
            ConfigError: this group is none, or belongs to no cluster.
        """
        chain = self._own_chain
        if not self.is_home:
            raise ConfigError(
                "rows of a cluster change in its home",
                cluster=chain.cluster,
                group=self.group,
                home=self.home,
            )

    def _join(self, command: ClusterJoined) -> None:
        if len(command.root) != PUBLIC_SIZE or not command.cluster or not command.group:
            raise ConfigError("not a cluster's name and root key", cluster=command.cluster)
        mine = self.chain
        if mine is not None and (mine.cluster, mine.root) != (command.cluster, command.root):
            raise ConfigError("group belongs to another cluster", cluster=mine.cluster)
        self.group = command.group
        self.first_nodes = command.nodes
        self.chain = mine or Chain(command.cluster, command.root)

    def _leave(self) -> None:
        others = [name for name, _ in self.rows.of_kind(GROUP_KIND) if name != self.group]
        if self.home == self.group and others:
            raise ConfigError(
                "a home leaves as the last group: hand its place over first", others=len(others)
            )
        self.replace_with(ClusterTable())

    def _change(self, command: RowChanged) -> None:
        if command.number != self.at.number + 1:
            raise ConfigError(
                "rows have changed meanwhile", at=self.at.number, number=command.number
            )
        self.rows.change(command.key, command.value)

    def _certify(self, chain: Chain) -> None:
        self.chain = chain
        if self.is_home:
            self.rows_rank, self._is_over = chain.rank, False

    def _note_age(self, command: RightsAged) -> None:
        if self.chain is None:
            raise ConfigError("group belongs to no cluster")
        self.confirmed_ms, self._is_over = command

    def _hand_over(self, command: HomeHandedOver) -> None:
        self.check_home()
        chain = self._own_chain.with_chain(command.chain)
        home = chain.greatest
        assert home is not None, "a chain that is greater than none"
        if not self.nodes_of(home.home):
            raise ConfigError("no group of that name is in the cluster", group=home.home)
        if home.start != self.at.number or home.by_root:
            raise ConfigError(
                "rows have changed since the next home was certified",
                at=self.at.number,
                start=home.start,
                epoch=home.epoch,
            )
        self._certify(chain)

    def _take(self, signed: bytes) -> None:
        chain = self._own_chain
        home = chain.greatest
        if home is None or home.home == self.group:
            raise ConfigError("no other group is the home", group=self.group)
        document = open_document(signed, home.key)
        if document.cluster != chain.cluster or document.rank != home.rank:
            raise ConfigError("document is of another home", rank=document.rank, expected=home.rank)
        is_older = document.at.number < self.at.number and self.rows_rank == home.rank
        if is_older or (document.base is not None and document.base != self.at):
            raise ConfigError(
                "document does not follow",
                base=document.base and document.base.number,
                at=self.at.number,
                document_at=document.at.number,
            )
        if document.base is None:
            self.rows.replace(document.rows, document.at)
        else:
            self.rows.take(document.rows, document.at)
        self.rows_rank = home.rank

    def to_document(self) -> dict[str, object]:
        """What a file has to say."""
        if self.chain is None:
            return {}
        return {
            "cluster": self.chain.cluster,
            "root": encoded(self.chain.root),
            "group": self.group,
            "nodes": [*self.first_nodes],
            "chain": [encoded(one) for one in self.chain.signed()],
            "rowsRank": self.rows_rank,
            "floor": self.rows.floor,
            "points": [[*point] for point in self.rows.points()],
            "rows": listed(self.rows.above(0)),
            **({"confirmedMs": self.confirmed_ms} if self.confirmed_ms else {}),
            **({"isOver": True} if self._is_over else {}),
        }

    def replace_with(self, other: ClusterTable) -> None:
        """Have what ``other`` has, which nobody uses any more."""
        self.group, self.first_nodes = other.group, other.first_nodes
        self.chain, self.rows, self.rows_rank = other.chain, other.rows, other.rows_rank
        self.confirmed_ms, self._is_over = other.confirmed_ms, other._is_over

    @classmethod
    def read(cls, document: Object) -> Self:
        """The table in the document of its file; one that names no cluster belongs to none.

        Raises:
            ConfigError: it has another shape; names the field.
        """
        table = cls()
        if "cluster" not in document:
            return table
        table.group = text_of(document, "group", size_max=NAME_LENGTH_MAX)
        table.first_nodes = read_nodes(document)
        cluster = text_of(document, "cluster", size_max=NAME_LENGTH_MAX)
        root = decoded(document.get("root"), size_max=PUBLIC_SIZE)
        table.chain = Chain.kept(cluster, root, read_chain(document))
        points = [read_point(one) for one in _list(document, "points")]
        rows = read_rows(document.get("rows"))
        table.rows = NumberedRows.of(rows, points, floor=integer_of(document, "floor"))
        table.rows_rank = integer_of(document, "rowsRank")
        if "confirmedMs" in document:
            table.confirmed_ms = integer_of(document, "confirmedMs")
        table._is_over = document.get("isOver") is True
        return table


def _list(document: Object, key: str) -> list[object]:
    value = document.get(key)
    if not isinstance(value, list):
        raise ConfigError("not a list", key=key, found=type(value).__name__)
    return value
