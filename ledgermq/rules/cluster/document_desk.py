"""Document desk: what a member of the home answers to a group that asks for the cluster's rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ledgermq.rules.cluster.cluster_document import ClusterDocument, sign_document
from ledgermq.rules.cluster.cluster_table import ClusterTable
from ledgermq.rules.cluster.numbered_rows import Point
from ledgermq.rules.cluster.signatures import SigningKey


class DocumentRequest(NamedTuple):
    """What a group has, of which it asks for what is newer.

    Attributes:
        group: its name.
        chain: the certificates that it knows.
        rank: that of the home which has confirmed its rows.
        key: public key by which the group would be certified as the next home; empty: it has none,
            or is of a version before 0.3.0.
    """

    group: str
    chain: Sequence[bytes]
    rank: int
    at: Point
    key: bytes = b""


class DocumentReply(NamedTuple):
    """What it is told.

    Attributes:
        chain: the certificates that the member of the home knows.
        document: rows that it has not; None: this member knows of nothing newer.
        home_nodes: addresses of the home's members, as far as this member knows them.
        is_current: whoever answers leads the home, and has confirmed that just now.
        is_parted: the asker has changes of this home that it has not, and never had: it has
            lost its own. An operator has to certify it anew (``move-home --force``).
    """

    chain: Sequence[bytes]
    home_nodes: Sequence[str]
    document: bytes | None = None
    is_current: bool = False
    is_parted: bool = False


class DocumentDesk:
    """Answers by a member's copy of the cluster table, in the home and elsewhere.

    Elsewhere, and before it has a key, it tells of the home alone: of a home that was lost somebody
    has to say which group is the next one.
    """

    def __init__(self, table: ClusterTable, key: SigningKey | None) -> None:
        self._table = table
        self._key = key
        self._made: tuple[tuple[object, ...], bytes] | None = None

    def answer(self, asked: DocumentRequest, *, is_current: bool) -> DocumentReply:
        """The certificates and nodes of the home, and the rows that the asker lacks, signed.

        Args:
            is_current: see there; what this member knows of is all that there is.
        """
        table = self._table
        if table.chain is None:
            return DocumentReply((), ())
        told = DocumentReply(table.chain.signed(), table.nodes_of(table.home))
        if not self._may_sign() or asked.rank > table.rows_rank:
            return told
        passed = table.rows.has_passed(asked.at)
        if asked.rank == table.rows_rank:
            is_ahead = asked.at.number > table.at.number
            if is_ahead or passed is False:
                return told._replace(is_parted=passed is False or is_current)
            if asked.at == table.at:
                return told._replace(is_current=is_current)
        has_tombstones = asked.at.number >= table.rows.floor
        base = asked.at if passed and has_tombstones else None
        return told._replace(document=self._document(base), is_current=is_current)

    def _may_sign(self) -> bool:
        home = self._table.chain.greatest if self._table.chain else None
        is_own = self._key is not None and home is not None and home.key == self._key.public
        return is_own and self._table.is_home

    def _document(self, base: Point | None) -> bytes:
        """The document from ``base``; many groups ask for the same one, one after the other."""
        table = self._table
        assert table.chain is not None and self._key is not None, "checked by _may_sign"
        which = (base, table.rows_rank, table.at)
        if self._made is None or self._made[0] != which:
            rows = table.rows.above(base.number if base else 0)
            document = ClusterDocument(table.chain.cluster, table.rows_rank, base, table.at, rows)
            self._made = which, sign_document(self._key, document)
        return self._made[1]
