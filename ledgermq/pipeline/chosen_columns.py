"""Chosen columns: those of one query, and how its tasks make them of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql.types import DataType

from ledgermq.pipeline.columns.message_schema import BODY_WHY, BROKER_GROUP
from ledgermq.pipeline.columns.record_columns import RecordColumns
from ledgermq.pipeline.source_options import SourceOptions
from ledgermq.pipeline.typed.schema_source import open_schemas
from ledgermq.pipeline.typed.typed_columns import TypedColumns

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
                lambda rows: map(typed.batch, rows.parts()), options.broker_group
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
