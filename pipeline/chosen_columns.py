"""Chosen columns: those of one query, and how its tasks make them of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql.types import DataType

from ledgermq.pipeline.columns.record_columns import RecordColumns
from ledgermq.pipeline.source_options import SourceOptions
from ledgermq.pipeline.typed.schema_source import open_schemas
from ledgermq.pipeline.typed.typed_columns import TypedColumns

MakeBatch = Callable[[RecordColumns], pa.RecordBatch]


class ChosenColumns(NamedTuple):
    """Names in their order; ``value`` is the type of bodies as fields, where they are wanted."""

    names: tuple[str, ...]
    value: DataType | None = None

    def inflates(self, options: SourceOptions) -> bool:
        """Whether a body that cannot be inflated is an error: with typed columns it is a row."""
        return options.inflate and self.value is None

    @contextmanager
    def opened(self, options: SourceOptions) -> Iterator[MakeBatch]:
        """What makes the columns in one task; what it asks is let go of with the block.

        Raises:
            LedgerError: schemas cannot be asked for.
        """
        if self.value is None:
            yield lambda rows: rows.batch(self.names)
            return
        schemas = open_schemas(options)
        try:
            yield TypedColumns(self.names, self.value, schemas, inflate=options.inflate).batch
        finally:
            schemas.close()
