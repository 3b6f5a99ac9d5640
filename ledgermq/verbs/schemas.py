"""Verbs about schemas of topics: registered, listed, shown, checked, deleted."""

from __future__ import annotations

from dataclasses import KW_ONLY
from types import MappingProxyType
from typing import Annotated, ClassVar, NamedTuple

from ledgermq.model.names.schemas import ID_MAX, TEXT_SIZE_MAX
from ledgermq.verbs.answers import Fields
from ledgermq.verbs.needs import ADMIN, CHANGE, USER, read
from ledgermq.verbs.told_rows import read_row
from ledgermq.verbs.verb import Bounds, DoneVerb, Length, PageVerb, RowsVerb, Verb

SUBJECTS_SHOWN_MAX = 500
"""Subjects of one answer."""

_TYPE_NAME = MappingProxyType({"kind": "type"})
SubjectName = Annotated[str, "A topic, or a topic with -value or -key behind it"]
VersionNumber = Annotated[int | None, Bounds(1, ID_MAX), "Number of a version"]
SchemaKind = Annotated[str, "AVRO, JSON or PROTOBUF"]
SchemaText = Annotated[str, Length(0, TEXT_SIZE_MAX), "The schema"]
Rule = Annotated[str | None, "A rule of compatibility"]


class SubjectRow(NamedTuple):
    """A subject: the topic whose rights it has, its rule, and the versions that there are."""

    subject: str
    topic: str
    compatibility: str
    versions: tuple[int, ...]


class RegisteredSchema(NamedTuple):
    """One version of a subject; ``id`` is what messages have."""

    subject: str
    version: int
    id: int
    type: str
    schema: str


class SchemaNumbers(NamedTuple):
    """Where a schema is registered."""

    subject: str
    version: int
    id: int


class SchemaConflict(NamedTuple):
    """Why a schema is not compatible with a version; ``reader`` is ``new`` or ``old``."""

    version: int
    reader: str
    place: str
    reason: str


class ListSubjects(PageVerb[SubjectRow]):
    """Subjects of topics that the client may use, by name; whether there are more behind them."""

    NAME: ClassVar = "schemas"
    NEEDS: ClassVar = read(USER)
    ROWS: ClassVar = "subjects", SubjectRow

    limit: Annotated[int, Bounds(1, SUBJECTS_SHOWN_MAX)]
    after: str | None = None


class ShowSchema(Verb[tuple[SubjectRow, RegisteredSchema]]):
    """A subject, and one version of it; the last one, where none is named.

    Raises:
        ConfigError: there is no such one.
        NoPermissionError: this client may not use the subject's topic.
    """

    NAME: ClassVar = "schema_show"
    NEEDS: ClassVar = read(USER)

    subject: SubjectName
    version: VersionNumber = None

    def told(self, answer: Fields) -> tuple[SubjectRow, RegisteredSchema]:
        """The subject, and the version; one without a number where there is none."""
        row, found = read_row(SubjectRow, answer), answer.get("found")
        empty = RegisteredSchema(row.subject, 0, 0, "", "")
        return row, read_row(RegisteredSchema, found) if isinstance(found, dict) else empty


class SchemaOfId(Verb[RegisteredSchema]):
    """The schema of an id.

    Raises:
        ConfigError: no schema has it.
        NoPermissionError: this client may use no topic that has it.
    """

    NAME: ClassVar = "schema_by_id"
    NEEDS: ClassVar = read(USER)
    WIRE_NAMES: ClassVar = MappingProxyType({"identity": "id"})
    ROW: ClassVar = RegisteredSchema

    identity: Annotated[int, Bounds(1, ID_MAX), "As messages have it"]


class CheckSchema(RowsVerb[SchemaConflict]):
    """What keeps ``schema`` from being the next version; nothing is changed.

    Args:
        kind: ``AVRO``, ``JSON`` or ``PROTOBUF``.
        compatibility: a rule in the place of the subject's own.

    Raises:
        ConfigError: it is no schema of that type.
        NoPermissionError: this client is no admin there.
    """

    NAME: ClassVar = "schema_check"
    NEEDS: ClassVar = read(ADMIN)
    WIRE_NAMES: ClassVar = _TYPE_NAME
    ROWS: ClassVar = "conflicts", SchemaConflict

    subject: SubjectName
    kind: SchemaKind
    schema: SchemaText
    _: KW_ONLY
    compatibility: Rule = None


class RegisterSchema(Verb[SchemaNumbers]):
    """Have ``schema`` as the next version; where a version has it already, that one.

    Args:
        kind: ``AVRO``, ``JSON`` or ``PROTOBUF``.
        compatibility: the subject's rule from now on, for this version, too.

    Raises:
        ConfigError: it is no schema, not compatible, or there is no room for it.
        NoPermissionError: this client is no admin there.
    """

    NAME: ClassVar = "schema_register"
    NEEDS: ClassVar = CHANGE
    WIRE_NAMES: ClassVar = _TYPE_NAME
    ROW: ClassVar = SchemaNumbers

    subject: SubjectName
    kind: SchemaKind
    schema: SchemaText
    _: KW_ONLY
    compatibility: Rule = None


class SetSchemaRule(DoneVerb):
    """Have another rule for the versions to come.

    Args:
        ahead: also of a subject that has no version yet.

    Raises:
        ConfigError: there is no such rule or subject.
        NoPermissionError: this client is no admin there.
    """

    NAME: ClassVar = "schema_rule"
    NEEDS: ClassVar = CHANGE
    DONE: ClassVar = "subject", "subject"

    subject: SubjectName
    compatibility: Annotated[str, "A rule of compatibility"]
    _: KW_ONLY
    ahead: Annotated[bool, "Also of a subject that has no version yet"] = False


class DeleteSchema(DoneVerb):
    """Have a subject no more, or one version of it. Messages of its id cannot be read by it.

    Raises:
        ConfigError: there is no such one.
        NoPermissionError: this client is no admin there.
    """

    NAME: ClassVar = "schema_delete"
    NEEDS: ClassVar = CHANGE
    DONE: ClassVar = "deleted", "subject"

    subject: SubjectName
    version: VersionNumber = None
