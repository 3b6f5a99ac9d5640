"""Chosen columns: those of one query, and how its tasks make them of rows."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql.types import DataType

from ledgermq.client.schemas.body_codecs import (
    VALUES_MAX,
    BodyCodec,
    codec_of,
    decoded,
    framed_id,
    take_values_made,
)
from ledgermq.client.schemas.typed_bodies import CODECS_MAX, schema_id, value_tree
from ledgermq.model.errors import BodyUnreadableError, ConfigError
from ledgermq.model.names.schemas import SCHEMA_PROPERTY
from ledgermq.pipeline.columns.message_schema import (
    ARROW_SCHEMA,
    BODY_WHY,
    BROKER_GROUP,
    SCHEMA_ID,
    UNPARSED,
    UNPARSED_WHY,
    VALUE,
)
from ledgermq.pipeline.columns.record_columns import WHY_CHARACTERS_MAX, RecordColumns
from ledgermq.pipeline.source_options import SourceOptions
from ledgermq.pipeline.typed.schema_source import SchemaSource, open_schemas
from ledgermq.pipeline.typed.value_columns import arrow_values, value_column

MakeBatches = Callable[[RecordColumns], Iterator[pa.RecordBatch]]
"""Makes one batch of rows, or several where their bodies are many bytes once they are inflated."""


class ChosenColumns(NamedTuple):
    """Names in their order; ``value`` is the type of bodies as fields, where they are wanted."""

    names: tuple[str, ...]
    value: DataType | None = None

    def inflates(self, options: SourceOptions) -> bool:
        """Whether rows give bodies inflated by themselves; typed columns do it on their own."""
        return options.inflate and self.value is None

    @contextmanager
    def opened(self, options: SourceOptions) -> Iterator[MakeBatches]:
        """What makes the columns in one task; what it asks is let go of with the block.

        Raises:
            LedgerError: schemas cannot be asked for.
        """
        names = tuple(name for name in self.names if name != BROKER_GROUP)
        if self.value is None:
            has_bodies = options.inflate and bool({"body", BODY_WHY} & set(names))

            def plain(rows: RecordColumns) -> Iterator[pa.RecordBatch]:
                parts = rows.parts() if has_bodies else iter((rows,))
                return (part.batch(names) for part in parts)

            yield self._with_group(plain, options.broker_group)
            return
        schemas = open_schemas(options)
        try:
            typed = TypedColumns(names, self.value, schemas, inflate=options.inflate)
            yield self._with_group(
                lambda rows: chain.from_iterable(map(typed.batches, rows.parts())),
                options.broker_group,
            )
        finally:
            schemas.close()

    def _with_group(self, make: MakeBatches, group: str) -> MakeBatches:
        """``make``, and the column of the group where it is wanted."""
        if BROKER_GROUP not in self.names:
            return make
        at, names = self.names.index(BROKER_GROUP), list(self.names)

        def made(rows: RecordColumns) -> Iterator[pa.RecordBatch]:
            for batch in make(rows):
                columns = batch.columns
                columns.insert(at, pa.repeat(pa.scalar(group, pa.string()), batch.num_rows))
                yield pa.RecordBatch.from_arrays(columns, names=names)

        return made


class _Parsed(NamedTuple):
    """One row; ``unparsed`` is None where the value was read."""

    value: object
    identity: int | None
    unparsed: bytes | None = None
    why: str | None = None


class TypedColumns:
    """Bodies as fields, beside what the messages have otherwise: the columns of one task.

    A message says in a property by which schema its body was written. Where its body cannot be read
    by it, or does not fit the column, the row has the body in ``unparsed``, and why: no message is
    an error, whoever sent it.

    Invariant: of a row either ``unparsed`` is null or ``value`` is.
    """

    def __init__(
        self, names: Sequence[str], value: DataType, schemas: SchemaSource, *, inflate: bool = True
    ) -> None:
        """The columns ``names`` in their order, of which ``value`` has the type that is given.

        Args:
            inflate: whether ``body``, where it is one of them, is as the application sent it; what
                cannot be inflated is as it is stored.

        Raises:
            ConfigError: no schema's bodies have that type.
        """
        self._names = tuple(names)
        self._inflate = inflate
        self._plain = [name for name in names if name in ARROW_SCHEMA.names]
        self._column = value_column(value)
        self._schemas = schemas
        self._codecs: OrderedDict[int, BodyCodec | str] = OrderedDict()

    def batches(self, rows: RecordColumns) -> Iterator[pa.RecordBatch]:
        """The rows, of which bodies are not inflated once they are too many (see ``parts``); a
        batch ends where ``VALUES_MAX`` values were made of its bodies.

        Raises:
            LedgerError: schemas cannot be asked for now.
            ConfigError: a library is missing on this worker.
        """
        found = rows.plain_bodies()
        ids = rows.property_values(SCHEMA_PROPERTY).to_pylist()
        first, made = 0, 0
        parsed: list[_Parsed] = []
        for row, (body, why, text) in enumerate(zip(found.bodies, found.why, ids, strict=True), 1):
            parsed.append(self._parsed(body, why, text))
            made += take_values_made()
            if made > VALUES_MAX:
                yield self._batch(rows.part(first, row, found.between(first, row)), parsed)
                first, made, parsed = row, 0, []
        if parsed:
            last = rows.part(first, len(rows), found.between(first, len(rows))) if first else rows
            yield self._batch(last, parsed)

    def _batch(self, rows: RecordColumns, parsed: list[_Parsed]) -> pa.RecordBatch:
        found = rows.plain_bodies()
        values, refused = arrow_values([one.value for one in parsed], self._column.type)
        for row, why in refused.items():
            identity, body = parsed[row].identity, found.bodies[row]
            parsed[row] = _Parsed(None, identity, body, why[:WHY_CHARACTERS_MAX])
        made = {
            VALUE: values,
            SCHEMA_ID: pa.array([one.identity for one in parsed], pa.int32()),
            UNPARSED: pa.array([one.unparsed for one in parsed], pa.binary()),
            UNPARSED_WHY: pa.array([one.why for one in parsed], pa.string()),
        }
        if "body" in self._plain and self._inflate:
            made["body"] = pa.array(found.bodies, pa.binary())
        plain = rows.batch([name for name in self._plain if name not in made])
        arrays = [made[name] if name in made else plain.column(name) for name in self._names]
        return pa.RecordBatch.from_arrays(arrays, names=list(self._names))

    def _parsed(self, body: bytes, why: str | None, text: str | None) -> _Parsed:
        named = schema_id({SCHEMA_PROPERTY: text or ""})
        if why is not None:
            return _Parsed(None, named, body, why)
        identity = framed_id(body) if named is None else named
        if identity is None:
            return _Parsed(None, None, body, f"message names no schema in {SCHEMA_PROPERTY}")
        codec = self._codec(identity)
        if isinstance(codec, str):
            return _Parsed(None, identity, body, codec)
        try:
            value = decoded(codec, body, identity=identity, is_framed=named is None)
            return _Parsed(self._column.convert(value_tree(value)), identity)
        except Exception as error:  # whatever it is, the stream goes on
            return _unparsed(identity, body, error)

    def _codec(self, identity: int) -> BodyCodec | str:
        """The codec of an id, or why there is none."""
        known = self._codecs.get(identity)
        if known is None:
            known = self._codecs[identity] = self._made(identity)
            if len(self._codecs) > CODECS_MAX:
                self._codecs.popitem(last=False)
        return known

    def _made(self, identity: int) -> BodyCodec | str:
        schema = self._schemas.of_id(identity)
        if schema is None:
            return "no schema has this id, or it may not be read"
        try:
            return codec_of(schema)
        except ConfigError as error:
            if "missing" in error.details:
                raise
            return str(error)[:WHY_CHARACTERS_MAX]


def _unparsed(identity: int | None, body: bytes, error: Exception) -> _Parsed:
    details = error.details if isinstance(error, BodyUnreadableError) else {}
    why = str(details.get("reason") or error) or type(error).__name__
    return _Parsed(None, identity, body, why[:WHY_CHARACTERS_MAX])
