"""Spark source: ``spark.read.format("ledgermq")`` and ``readStream``, as Spark finds it.

from ledgermq.pipeline.spark_source import register
register(spark)
spark.read.format("ledgermq").option("subscribe", "orders").load("/var/lib/ledgermq")
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from ledgermq.model.errors import ConfigError
from ledgermq.pipeline.batch_reader import BatchReader, FilteringReader
from ledgermq.pipeline.chosen_columns import ChosenColumns
from ledgermq.pipeline.clusters.cluster_stream import ClusterStreamReader
from ledgermq.pipeline.columns.message_schema import (
    BODY_WHY,
    TYPED_COLUMNS,
    VALUE,
    checked_columns,
    spark_schema,
    spark_type,
)
from ledgermq.pipeline.sink.sink_options import parse_sink_options
from ledgermq.pipeline.sink.spark_sink import BatchSink, StreamSink
from ledgermq.pipeline.source_options import (
    columns_of,
    known_columns,
    parse_options,
    schema_options,
)
from ledgermq.pipeline.stream_reader import StreamReader
from ledgermq.pipeline.typed.subject_type import subject_type
from ledgermq.pipeline.typed.value_columns import value_column
from ledgermq.pipeline.typed.value_types import notation


class LedgermqSource(DataSource):
    """Messages of a store directory, or of a running cluster, as rows."""

    @classmethod
    def name(cls) -> str:
        """What ``format`` is given."""
        return "ledgermq"

    def schema(self) -> str:
        """All columns, or those that the options leave.

        Raises:
            ConfigError: an option names a column that there is not, or no subject has a schema.
            LedgerError: schemas cannot be asked for.
        """
        columns = columns_of(self.options)
        if VALUE not in columns:
            return spark_schema(columns)
        value = notation(subject_type(schema_options(self.options)).required())
        types = {name: value if name == VALUE else spark_type(name) for name in columns}
        return ", ".join(f"{name} {types[name]}" for name in columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """The batch reader of the columns in ``schema``.

        Raises:
            ConfigError: an option or the schema cannot be used.
        """
        options = parse_options(self.options, streaming=False)
        kind = FilteringReader if options.push_filters else BatchReader
        return kind(options, _columns_in(schema, known_columns(self.options)))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """The stream reader of the columns in ``schema``.

        Raises:
            ConfigError: an option or the schema cannot be used.
        """
        options = parse_options(self.options, streaming=True)
        columns = _columns_in(schema, known_columns(self.options))
        if options.groups is not None:
            return ClusterStreamReader(options, columns)
        return StreamReader(options, columns)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """The writer of a batch job.

        Raises:
            ConfigError: an option, the schema or the mode cannot be used.
        """
        if overwrite:
            raise ConfigError("messages are not overwritten", option="mode", allowed=["append"])
        return BatchSink(parse_sink_options(self.options, streaming=False), schema)

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        """The writer of a streaming query.

        Raises:
            ConfigError: an option, the schema or the mode cannot be used.
        """
        if overwrite:
            raise ConfigError(
                "messages are not overwritten", option="outputMode", allowed=["append", "update"]
            )
        return StreamSink(parse_sink_options(self.options, streaming=True), schema)


def register(spark: SparkSession) -> None:
    """Let ``spark`` know the format ``ledgermq``; workers must have the package, too.

    Raises:
        ConfigError: the Python that Spark runs here for sources has not.
    """
    check_python(getattr(spark, "_sc", None))
    spark.dataSource.register(LedgermqSource)


def check_python(context: SparkContext | None) -> None:
    """Refuse a session whose Python is another one than this, and has no ``ledgermq``.

    Args:
        context: of the session; None where it is elsewhere (Spark Connect).

    Raises:
        ConfigError: it is so.
    """
    python = shutil.which(context.pythonExec) if context is not None else None
    if python is None or Path(python) == Path(sys.executable):
        return
    # It runs for as long as an import of a small module takes.
    tried = subprocess.run(  # noqa: S603 - Spark runs it as well
        [python, "-P", "-c", "import ledgermq"], capture_output=True, check=False
    )
    if tried.returncode:
        raise ConfigError(
            "Spark's Python has no ledgermq: set PYSPARK_PYTHON before the session is made",
            python=python,
            this=sys.executable,
        )


def _columns_in(schema: StructType, plain: tuple[str, ...]) -> ChosenColumns:
    known = (*plain, BODY_WHY, *TYPED_COLUMNS)
    names = checked_columns(schema.names, option="schema", known=known)
    for field in schema.fields:
        if field.name == VALUE:
            continue
        wanted = spark_type(field.name)
        if field.dataType.simpleString() != wanted:
            raise ConfigError(
                "column has another type", option="schema", column=field.name, type=wanted
            )
    if not set(TYPED_COLUMNS) & set(names):
        return ChosenColumns(names)
    if VALUE not in names or "body" in names:
        raise ConfigError(
            "typed columns are those of `value`, which says its type, and have no `body` beside it",
            option="schema",
            columns=list(names),
        )
    value = schema[VALUE].dataType
    value_column(value)  # refuses a type that no body has before anything is read
    return ChosenColumns(names, value)
