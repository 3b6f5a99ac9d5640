"""Locked rows: a Parquet file in the container of backup streams, with a key of their topic.

What anybody may read of them stands in the piece as ever: of which queue each is, its offset and
place, when it was stored. All else is null there, and stands in the locked part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ledgermq.conversion.stream.sealed_piece import open_piece, seal
from ledgermq.formats.batch_unit import INNER_NUM
from ledgermq.formats.records.message import INNER_BATCH
from ledgermq.model.errors import ConfigError
from ledgermq.pipeline.pieces.log_columns import PIECE_SCHEMA
from ledgermq.pipeline.pieces.piece_footer import GROUP_PLAIN_BYTES_MAX, damaged

OPEN_COLUMNS = frozenset(
    ("topic", "queueId", "queueOffset", "physicalOffset", "raftIndex", "raftTerm")
) | {"storeTimestamp", "sysFlag"}
"""Columns that everybody reads of rows that are locked."""


class LockedBytes(NamedTuple):
    """Rows of one topic, as they stand in a file.

    Attributes:
        key: its name.
        number: that no other ones of the piece have: they are bound to it.
    """

    topic: str
    key: str
    number: int
    content: bytes


def open_rows(table: pa.Table) -> pa.Table:
    """What everybody may read of rows."""
    return pa.table(
        [
            table.column(field.name) if field.name in OPEN_COLUMNS else _closed(field, table)
            for field in PIECE_SCHEMA
        ],
        schema=PIECE_SCHEMA,
    )


def _closed(field: pa.Field, table: pa.Table) -> pa.Array:
    if field.name != "properties":
        return pa.nulls(table.num_rows, field.type)
    # How many messages a record has: without it nobody knows where the next one is.
    flags = table.column("sysFlag").to_numpy()
    counts: list[object] = [None] * table.num_rows
    several = np.flatnonzero(flags & INNER_BATCH)
    texts = pc.map_lookup(table.column("properties").take(several), INNER_NUM, "last")
    for row, text in zip(several.tolist(), texts.to_pylist(), strict=True):
        counts[row] = [(INNER_NUM, text or "")]
    return pa.array(counts, field.type)


def lock(table: pa.Table, key: bytes, name: str, form: Mapping[str, Any]) -> bytes:
    """Rows locked with a key, as the locked part ``name``.

    Args:
        form: of the Parquet file, as its writer takes it.
    """
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, PIECE_SCHEMA, **form) as writer:
        writer.write_table(table, row_group_size=table.num_rows)
    content = memoryview(sink.getvalue()).cast("B")
    return b"".join(seal(name, {}, content, key=key))


def unlock(
    content: bytes,
    key: bytes,
    name: str,
    *,
    rows: int,
    columns: Sequence[str] | None,
    part: str,
    where: str,
) -> pa.Table:
    """What ``lock`` has locked.

    Args:
        rows: that there have to be.
        columns: those that are made; all when left out.
        part, where: of the file, for errors.

    Raises:
        CorruptLogError: it is not what was locked.
    """
    try:
        opened = open_piece(BytesIO(content), name, key=key, where=where)
        plain = b"".join(opened.content)
        reader = pq.ParquetFile(pa.BufferReader(plain), pre_buffer=False)
        found = reader.metadata
        is_right = found.num_row_groups == 1 and found.num_rows == rows
        if not is_right or found.row_group(0).total_byte_size > GROUP_PLAIN_BYTES_MAX:
            raise damaged(part, where, rows=found.num_rows)
        return reader.read_row_group(0, columns=columns, use_threads=False)
    except (ConfigError, pa.ArrowException, OSError) as error:
        raise damaged(part, where, reason=str(error)) from error
