"""Columns of an archive's table: schema, partitions and order, as Iceberg has them."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyiceberg.io.pyarrow import (
    StatisticsCollector,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import DayTransform, IdentityTransform, Transform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    IcebergType,
    IntegerType,
    LongType,
    MapType,
    NestedField,
    StringType,
    TimestamptzType,
)

from ledgermq.model.errors import ConfigError
from ledgermq.pipeline.archive.archive_layout import ArchivedFile
from ledgermq.pipeline.archive.archive_writer import WITHOUT_STATISTICS, FileForm
from ledgermq.pipeline.columns.message_schema import (
    ARROW_SCHEMA,
    COLUMNS,
    SCHEMA_ID,
    TYPED_COLUMNS,
    UNPARSED,
    UNPARSED_WHY,
    VALUE,
)
from ledgermq.pipeline.tables.value_fields import (
    ColumnChange,
    changes_for,
    iceberg_type,
    leaves_of,
    spark_type_of_column,
)
from ledgermq.pipeline.typed.subject_type import SubjectType

TABLE_COLUMNS = COLUMNS
"""Those of the Spark source; a table of an earlier version gets the ones that it lacks."""

_OF_TYPED = {SCHEMA_ID: IntegerType(), UNPARSED: BinaryType(), UNPARSED_WHY: StringType()}
_OF_BODIES = (VALUE, UNPARSED, UNPARSED_WHY)
"""Columns of which files and manifests have no least and largest values."""

DAY, TOPIC = "storeTimestamp", "topic"
ORDER = ("queueId", "queueOffset")

FORMAT_VERSION = 2

_PARTITIONS: dict[str, Transform] = {DAY: DayTransform(), TOPIC: IdentityTransform()}  # type: ignore[type-arg]

_METRICS = "write.metadata.metrics.column."
_NO_METRICS = (
    *(name for name in WITHOUT_STATISTICS if name != "properties"),
    *("properties.key", "properties.value"),
    # A client may have sent any number, of years that Python's calendar does not have.
    "bornTimestamp",
)

_CALENDAR_MS = range(-62_135_596_800_000, 253_402_300_800_000)
"""Times that Python's calendar has: the years 1 to 9999."""

TABLE_PROPERTIES = {
    "format-version": str(FORMAT_VERSION),
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    **{f"{_METRICS}{name}": "none" for name in _NO_METRICS},
}
"""Properties of a table that a run makes; its owner may change them."""


def new_schema() -> Schema:
    """The schema of a new table; Iceberg gives it numbers of its own."""
    return Schema(
        *(
            NestedField(number, name, _type_of(name))
            for number, name in enumerate(TABLE_COLUMNS, start=1)
        )
    )


def new_spec(schema: Schema) -> PartitionSpec:
    """Partitions by day of the store time, and by topic."""
    return PartitionSpec(
        PartitionField(schema.find_field(DAY).field_id, 1_000, DayTransform(), "day"),
        PartitionField(schema.find_field(TOPIC).field_id, 1_001, IdentityTransform(), TOPIC),
    )


def new_order(schema: Schema) -> SortOrder:
    """Rows of a file by queue and offset; a file has one topic."""
    return SortOrder(
        *(SortField(schema.find_field(name).field_id, IdentityTransform()) for name in ORDER)
    )


def missing_columns(table: Table, name: str) -> list[ColumnChange]:
    """Columns that the table lacks.

    Raises:
        ConfigError: the table cannot be an archive: another format, partitions, types, or a column
            that must have a value and is none of ours.
    """
    metadata = table.metadata
    if metadata.format_version != FORMAT_VERSION:
        raise ConfigError(
            "table is of another version of Iceberg's format",
            table=name,
            found=metadata.format_version,
            expected=FORMAT_VERSION,
        )
    schema = table.schema()
    names = {field.name: field for field in schema.fields}
    lacking = list(_lacking(schema, TABLE_COLUMNS, name))
    strange = [one for one in names if one not in TABLE_COLUMNS and names[one].required]
    if strange:
        raise ConfigError(
            "table has columns that must have a value, and no message has them",
            table=name,
            columns=strange,
        )
    partitions = {
        schema.find_column_name(field.source_id): str(field.transform)
        for field in table.spec().fields
    }
    if partitions != {column: str(transform) for column, transform in _PARTITIONS.items()}:
        raise ConfigError(
            "table has other partitions: an archive has those of a new table",
            table=name,
            found=[f"{how}({column})" for column, how in partitions.items()],
            expected=[f"{how}({column})" for column, how in _PARTITIONS.items()],
        )
    return lacking


def missing_fields(table: Table, name: str, bodies: SubjectType) -> list[ColumnChange]:
    """Columns for bodies as fields that the table lacks, and fields that it lacks or has too
    narrow.

    Raises:
        ConfigError: its columns are of types that bodies do not have; or it has none yet, and no
            schema gives them.
    """
    schema = table.schema()
    lacking = list(_lacking(schema, tuple(_OF_TYPED), name))
    found = next((field.field_type for field in schema.fields if field.name == VALUE), None)
    if found is None:
        return [ColumnChange((VALUE,), iceberg_type(bodies.required()), is_new=True), *lacking]
    spark_type_of_column(found, table=name, column=VALUE)  # refuses what bodies are not
    if bodies.latest is not None:
        lacking += changes_for(found, bodies.latest, (VALUE,))
    return lacking


def _lacking(schema: Schema, columns: tuple[str, ...], name: str) -> Iterator[ColumnChange]:
    """Those of ``columns`` that a schema has not.

    Raises:
        ConfigError: it has one, of a type that does not hold our values.
    """
    known = {field.name: field.field_type for field in schema.fields}
    for column in columns:
        if column not in known:
            yield ColumnChange((column,), _type_of(column), is_new=True)
        elif not _can_hold(known[column], column):
            raise ConfigError(
                "column of the table is of another type",
                table=name,
                column=column,
                found=str(known[column]),
                expected=str(_type_of(column)),
            )


def check_times(file: ArchivedFile, name: str) -> None:
    """Whether a table can have the messages of a file: PyIceberg writes days of a calendar.

    Raises:
        ConfigError: the broker's clock was in another age when it stored them.
    """
    if file.first_stored not in _CALENDAR_MS or file.last_stored not in _CALENDAR_MS:
        raise ConfigError(
            "messages were stored at a time that no calendar has, which a table cannot: leave"
            " their topic out, or archive to a directory",
            table=name,
            topic=file.topic,
            day=file.day,
        )


def form_of(schema: Schema, *, name: str, has_fields: bool) -> FileForm:
    """What files of a table with this schema are like.

    Args:
        name: of the table, for errors.
        has_fields: whether bodies are fields, too.

    Raises:
        ConfigError: the table's bodies have a type that no schema gives.
    """
    columns = (*TABLE_COLUMNS, *TYPED_COLUMNS) if has_fields else TABLE_COLUMNS
    fields = [schema.find_field(column) for column in columns]
    arrow = schema_to_pyarrow(Schema(*fields), include_field_ids=True)
    value = (
        spark_type_of_column(schema.find_field(VALUE).field_type, table=name, column=VALUE)
        if has_fields
        else None
    )
    statistics = _statistics_of(schema, columns)
    return FileForm(columns, arrow, statistics, ORDER, with_footers=True, value=value)


def whole_form_of(schema: Schema) -> FileForm:
    """The same with all columns that the table has, its owner's, too."""
    columns = tuple(field.name for field in schema.fields)
    arrow = schema_to_pyarrow(schema, include_field_ids=True)
    return FileForm(columns, arrow, _statistics_of(schema, columns), ORDER, with_footers=True)


def _statistics_of(schema: Schema, columns: tuple[str, ...]) -> tuple[str, ...]:
    """Paths of Parquet for which files have least and largest values."""
    paths = parquet_path_to_id_mapping(schema)
    first = {path: path.partition(".")[0] for path in paths}
    return tuple(
        path
        for path in paths
        if first[path] in columns and first[path] not in (*WITHOUT_STATISTICS, *_OF_BODIES)
    )


def data_file(metadata: TableMetadata, file: ArchivedFile, location: str) -> DataFile:
    """How a manifest describes a file that was written in the form of ``metadata``'s schema.

    Args:
        location: where the file is, as the table has it.
    """
    assert file.footer is not None, file.path
    schema, spec = metadata.schema(), metadata.spec()
    of_file = {DAY: file.day, TOPIC: file.topic}
    values = [of_file[str(schema.find_column_name(field.source_id))] for field in spec.fields]
    statistics = data_file_statistics_from_parquet_metadata(
        file.footer, _metrics_of(metadata), parquet_path_to_id_mapping(schema)
    )
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=location,
        file_format=FileFormat.PARQUET,
        partition=Record(*values),
        file_size_in_bytes=file.bytes,
        sort_order_id=_order_id(metadata),
        spec_id=spec.spec_id,
        equality_ids=None,
        key_metadata=None,
        **statistics.to_serialized_dict(),
    )


def place_of(metadata: TableMetadata, file: DataFile) -> tuple[int, str]:
    """Day and topic of a file that has the table's own partitions."""
    found: dict[str, object] = {}
    for number, field in enumerate(metadata.spec().fields):
        found[str(metadata.schema().find_column_name(field.source_id))] = file.partition[number]
    day, topic = found[DAY], found[TOPIC]
    assert isinstance(day, int), day
    assert isinstance(topic, str), topic
    return day, topic


def _metrics_of(metadata: TableMetadata) -> dict[int, StatisticsCollector]:
    """Columns of which the manifest has least and largest values.

    Its owner may ask for those of others, which the files do not have.
    """
    schema = metadata.schema()
    of_bodies = [
        leaf
        for field in schema.fields
        if field.name in _OF_BODIES
        for leaf in leaves_of(field.field_type, field.name)
    ]
    none = {f"{_METRICS}{name}": "none" for name in (*_NO_METRICS, *of_bodies)}
    return compute_statistics_plan(schema, {**metadata.properties, **none})


def _order_id(metadata: TableMetadata) -> int:
    """The number of our order in the table; 0, unsorted, where its owner has another one."""
    expected = new_order(metadata.schema()).fields
    for order in metadata.sort_orders:
        if order.fields == expected:
            return order.order_id
    return 0


def _type_of(column: str) -> IcebergType:
    if column in _OF_TYPED:
        return _OF_TYPED[column]
    arrow = ARROW_SCHEMA.field(column).type
    if pa.types.is_map(arrow):
        # The numbers only have to differ from those of the columns.
        return MapType(1_001, StringType(), 1_002, StringType(), value_required=False)
    plain: dict[pa.DataType, IcebergType] = {
        pa.string(): StringType(),
        pa.int32(): IntegerType(),
        pa.int64(): LongType(),
        pa.binary(): BinaryType(),
        pa.bool_(): BooleanType(),
        pa.timestamp("us", tz="UTC"): TimestamptzType(),
    }
    return plain[arrow]


def _can_hold(found: IcebergType, column: str) -> bool:
    """Whether a column of the table takes our values: its owner may have made it a wider one."""
    expected = _type_of(column)
    if isinstance(expected, MapType):
        return isinstance(found, MapType) and (found.key_type, found.value_type) == (
            expected.key_type,
            expected.value_type,
        )
    return found == expected or (isinstance(expected, IntegerType) and isinstance(found, LongType))
