"""Message schema: the columns of a message, the same for Spark and for Arrow.

docs/formats/spark-rows.md says what each holds. The order is part of the interface.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from ledgermq.model.errors import ConfigError

_TIME = pa.timestamp("us", tz="UTC")
MILLISECONDS = pa.timestamp("ms", tz="UTC")

ARROW_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("queueId", pa.int32()),
        ("queueOffset", pa.int64()),
        ("physicalOffset", pa.int64()),
        ("raftIndex", pa.int64()),
        ("raftTerm", pa.int64()),
        ("keys", pa.string()),
        ("tags", pa.string()),
        ("properties", pa.map_(pa.string(), pa.string())),
        ("body", pa.binary()),
        ("bornTimestamp", _TIME),
        ("storeTimestamp", _TIME),
        ("bornHost", pa.string()),
        ("storeHost", pa.string()),
        ("sysFlag", pa.int32()),
        ("flag", pa.int32()),
        ("reconsumeTimes", pa.int32()),
        ("bodyCrc", pa.int32()),
        ("crcOk", pa.bool_()),
    ]
)
"""All columns as Arrow sees them."""

COLUMNS: tuple[str, ...] = tuple(ARROW_SCHEMA.names)

BROKER_GROUP = "brokerGroup"
"""Column of the group that a message is in, of queries over several groups."""

BODY_WHY = "bodyWhy"
"""Column that says why a compressed body is as it is stored; only where it is asked for."""

VALUE, SCHEMA_ID, UNPARSED, UNPARSED_WHY = "value", "schemaId", "unparsed", "unparsedWhy"
TYPED_COLUMNS = (VALUE, SCHEMA_ID, UNPARSED, UNPARSED_WHY)
"""Columns of bodies that are read by a schema."""

_DDL = {
    pa.string(): "string",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.binary(): "binary",
    pa.bool_(): "boolean",
    _TIME: "timestamp",
    ARROW_SCHEMA.field("properties").type: "map<string,string>",
}
_OTHER_DDL = {
    BROKER_GROUP: "string",
    BODY_WHY: "string",
    SCHEMA_ID: "int",
    UNPARSED: "binary",
    UNPARSED_WHY: "string",
}


def spark_schema(columns: Iterable[str] = COLUMNS) -> str:
    """The schema of ``columns`` in Spark's notation."""
    return ", ".join(f"{name} {spark_type(name)}" for name in columns)


def spark_type(column: str) -> str:
    """The type of one column in Spark's notation; ``value`` has its schema's."""
    return _OTHER_DDL.get(column) or _DDL[ARROW_SCHEMA.field(column).type]


def arrow_schema(columns: Iterable[str]) -> pa.Schema:
    """The schema of ``columns``, in their order."""
    return pa.schema([ARROW_SCHEMA.field(name) for name in columns])


def checked_columns(
    columns: Iterable[str], *, option: str, known: tuple[str, ...] = COLUMNS
) -> tuple[str, ...]:
    """``columns``, which the user has named with ``option``.

    Raises:
        ConfigError: one is no column, or comes twice, or there are none.
    """
    found = tuple(columns)
    for number, name in enumerate(found):
        if name not in known:
            raise ConfigError("no such column", column=name, option=option, columns=list(known))
        if name in found[:number]:
            raise ConfigError("column is named twice", column=name, option=option)
    if not found:
        raise ConfigError("no column is asked for", option=option)
    return found
