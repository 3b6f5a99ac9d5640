"""Subject type: the type of bodies by the schema that a query, or a run, names."""

from __future__ import annotations

from typing import NamedTuple

from pyspark.sql.types import DataType

from ledgermq.model.errors import ConfigError
from ledgermq.pipeline.source_options import SourceOptions, subjects_of
from ledgermq.pipeline.typed.schema_source import open_schemas
from ledgermq.pipeline.typed.value_types import spark_type_of


class SubjectType(NamedTuple):
    """Type of bodies as fields.

    Attributes:
        subjects: of which the first one that has a schema counts.
        latest: the type of its last version; None where none of them has a schema now.
    """

    subjects: tuple[str, ...]
    latest: DataType | None

    def required(self) -> DataType:
        """The type.

        Raises:
            ConfigError: there is none.
        """
        if self.latest is None:
            raise ConfigError(
                "no subject has a schema: typed columns need one", subjects=list(self.subjects)
            )
        return self.latest


def subject_type(options: SourceOptions) -> SubjectType:
    """What the schemas of the options' subjects say now.

    Raises:
        ConfigError: the options name neither one topic nor a subject, or the schema's bodies are no
            columns.
        LedgerError: schemas cannot be asked for.
    """
    subjects = subjects_of(options)
    schemas = open_schemas(options)
    try:
        for subject in subjects:
            schema = schemas.latest(subject)
            if schema is not None:
                return SubjectType(subjects, spark_type_of(schema))
    finally:
        schemas.close()
    return SubjectType(subjects, None)
