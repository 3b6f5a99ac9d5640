"""Cluster documents: the rows of a cluster that changed above a number, signed by its home."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ledgermq.formats.ed25519 import SIGNATURE_SIZE
from ledgermq.model.errors import ConfigError
from ledgermq.model.names.clusters import NAME_LENGTH_MAX
from ledgermq.rules.cluster.json_objects import (
    NUMBER_MAX,
    Object,
    integer_of,
    object_of,
    text_of,
    to_json,
)
from ledgermq.rules.cluster.numbered_rows import (
    KIND_SIZE_MAX,
    NOWHERE,
    ROW_NAME_SIZE_MAX,
    Point,
    Row,
    RowKey,
)
from ledgermq.rules.cluster.signatures import SigningKey, signed_content

PURPOSE = b"ledgermq cluster document"
DOCUMENT_SIZE_MAX = 2 * 1024 * 1024
"""Most bytes of a signed document: as base64 it has to fit into one entry of the log
(``limits.ENTRY_SIZE_MAX``)."""

DIGEST_SIZE_MAX = 64
ROWS_SIZE_MAX = 16 * 1024 * 1024
"""Most bytes of all rows as JSON: 10,000 topics over ten groups each are a fifth of it."""


class ClusterDocument(NamedTuple):
    """What a home has signed.

    Attributes:
        rank: of the certificate of whoever has signed it.
        base: whose rows it completes; None: it has all rows, and there are no other ones.
        at: how far its reader is then.
    """

    cluster: str
    rank: int
    base: Point | None
    at: Point
    rows: Sequence[Row]


def sign_document(signer: SigningKey, document: ClusterDocument) -> bytes:
    """The document as it travels.

    Raises:
        ConfigError: it is too large.
    """
    return signer.signed(PURPOSE, _packed(document))


def check_size(rows: Sequence[Row]) -> None:
    """Refuse rows that no document could carry all of.

    Raises:
        ConfigError: they are too large; names sizes and limits.
    """
    longest = Point(NUMBER_MAX, "f" * DIGEST_SIZE_MAX)
    _packed(ClusterDocument("c" * NAME_LENGTH_MAX, NUMBER_MAX, longest, longest, rows))


def _packed(document: ClusterDocument) -> bytes:
    base = document.base
    content = to_json(
        {
            "cluster": document.cluster,
            "rank": document.rank,
            "base": [base.number, base.digest] if base else None,
            "at": [document.at.number, document.at.digest],
            "rows": listed(document.rows),
        }
    )
    packed = zlib.compress(content)
    if len(content) > ROWS_SIZE_MAX or len(packed) + SIGNATURE_SIZE > DOCUMENT_SIZE_MAX:
        raise ConfigError(
            "cluster document is too large",
            rows=len(document.rows),
            size=len(content),
            limit=ROWS_SIZE_MAX,
            compressed=len(packed),
            compressed_limit=DOCUMENT_SIZE_MAX,
        )
    return packed


def open_document(signed: bytes, key: bytes) -> ClusterDocument:
    """The document, if the home that has ``key`` has signed it.

    Raises:
        ConfigError: it has not, or it is too large or has another shape.
    """
    if len(signed) > DOCUMENT_SIZE_MAX:
        raise ConfigError(
            "cluster document is too large", size=len(signed), limit=DOCUMENT_SIZE_MAX
        )
    packed = signed_content(key, PURPOSE, signed)
    if packed is None:
        raise ConfigError("cluster document is not signed by the home", size=len(signed))
    unpacking = zlib.decompressobj()
    try:
        content = unpacking.decompress(packed, ROWS_SIZE_MAX)
    except zlib.error as error:
        raise ConfigError("cluster document is not compressed", reason=str(error)) from None
    if not unpacking.eof:
        raise ConfigError("cluster document is cut or too large", limit=ROWS_SIZE_MAX)
    fields = object_of(content, size_max=ROWS_SIZE_MAX)
    base = fields.get("base")
    return ClusterDocument(
        text_of(fields, "cluster", size_max=NAME_LENGTH_MAX),
        integer_of(fields, "rank", low=1),
        None if base is None else read_point(base),
        read_point(fields.get("at")),
        read_rows(fields.get("rows")),
    )


def read_point(value: object) -> Point:
    """The number and digest in a list of both.

    Raises:
        ConfigError: it is none.
    """
    if not isinstance(value, list) or len(value) != len(Point._fields):
        raise ConfigError("not a number and a digest", found=repr(value)[:64])
    fields = dict(zip(Point._fields, value, strict=True))
    number = integer_of(fields, "number")
    return Point(number, text_of(fields, "digest", size_max=DIGEST_SIZE_MAX)) if number else NOWHERE


def listed(rows: Iterable[Row]) -> list[list[object]]:
    """Rows as JSON has them; ``read_rows`` reads it."""
    return [[*row.key, row.number, row.value] for row in rows]


def read_rows(value: object) -> list[Row]:
    """The rows in a list of lists; their values are whatever they are.

    Raises:
        ConfigError: it is none, or the numbers are not in order.
    """
    if not isinstance(value, list):
        raise ConfigError("not a list of rows", found=type(value).__name__)
    rows: list[Row] = []
    for one in value:
        row = _row(one)
        if rows and row.number <= rows[-1].number:
            raise ConfigError("rows are not in order", number=row.number, before=rows[-1].number)
        rows.append(row)
    return rows


def _row(value: object) -> Row:
    names = ("kind", "name", "number", "value")
    if not isinstance(value, list) or len(value) != len(names):
        raise ConfigError("not a row", found=repr(value)[:64])
    fields = dict(zip(names, value, strict=True))
    key = RowKey(
        text_of(fields, "kind", size_max=KIND_SIZE_MAX),
        text_of(fields, "name", size_max=ROW_NAME_SIZE_MAX),
    )
    return Row(key, integer_of(fields, "number", low=1), read_value(fields["value"]))


def read_value(value: object) -> Object | None:
    """What a row says; None: it was removed.

    Raises:
        ConfigError: it is no object.
    """
    if value is not None and not isinstance(value, dict):
        raise ConfigError("value of a row is no object", found=type(value).__name__)
    return value
