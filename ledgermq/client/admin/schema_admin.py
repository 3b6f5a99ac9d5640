"""Administration of schemas: registered, listed, shown, checked, deleted."""

from __future__ import annotations

from typing import NamedTuple

from ledgermq.client.blocking.broker import Broker
from ledgermq.client.core.asked import asked
from ledgermq.client.core.questions import PAGE, ask
from ledgermq.client.core.requests import Result, Steps
from ledgermq.verbs.answers import Fields, integer, integers, rows, text


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


def schema_of_id(identity: int) -> Steps[RegisteredSchema]:
    """The schema of an id.

    Raises:
        ConfigError: no schema has it.
        NoPermissionError: this client may use no topic that has it.
    """
    answer = yield from ask("schema_by_id", id=identity)
    return _schema(answer)


def schema_of_subject(subject: str, version: int | None = None) -> Steps[RegisteredSchema]:
    """One version of a subject; the last one, where none is named.

    Raises:
        ConfigError: there is no such one.
        NoPermissionError: this client may not use the subject's topic.
    """
    return (yield from _shown(subject, version))[1]


class SchemaVerbs:
    """What who uses a topic may ask for, and an admin may order."""

    @asked
    def subjects(self) -> Steps[list[SubjectRow]]:
        """All subjects of topics that this client may use, by name.

        Raises:
            NotLeaderError: no broker answers.
        """
        found: list[SubjectRow] = []
        after: dict[str, str] = {}
        while True:
            answer = yield from ask("schemas", limit=PAGE, **after)
            found += (page := rows(answer, "subjects", _subject))
            if answer.get("more") is not True or not page:
                return found
            after = {"after": page[-1].subject}

    @asked
    def schema(
        self, subject: str, version: int | None = None
    ) -> Steps[tuple[SubjectRow, RegisteredSchema]]:
        """A subject, and one version of it; the last one, where none is named.

        Raises:
            ConfigError: there is no such one.
            NoPermissionError: this client may not use the subject's topic.
        """
        return _shown(subject, version)

    @asked
    def schema_of_id(self, identity: int) -> Steps[RegisteredSchema]:
        """See ``schema_of_id``."""
        return schema_of_id(identity)

    @asked
    def check_schema(
        self, subject: str, kind: str, schema: str, *, compatibility: str | None = None
    ) -> Steps[list[SchemaConflict]]:
        """What keeps ``schema`` from being the next version; nothing is changed.

        Args:
            kind: ``AVRO``, ``JSON`` or ``PROTOBUF``.
            compatibility: a rule in the place of the subject's own.

        Raises:
            ConfigError: it is no schema of that type.
            NoPermissionError: this client is no admin there.
        """
        answer = yield from ask("schema_check", **_wanted(subject, kind, schema, compatibility))
        return rows(answer, "conflicts", _conflict)

    @asked
    def register(
        self, subject: str, kind: str, schema: str, *, compatibility: str | None = None
    ) -> Steps[SchemaNumbers]:
        """Have ``schema`` as the next version; where a version has it already, that one.

        Args:
            kind: ``AVRO``, ``JSON`` or ``PROTOBUF``.
            compatibility: the subject's rule from now on, for this version, too.

        Raises:
            ConfigError: it is no schema, not compatible, or there is no room for it.
            NoPermissionError: this client is no admin there.
        """
        answer = yield from ask("schema_register", **_wanted(subject, kind, schema, compatibility))
        return SchemaNumbers(
            text(answer, "subject"), integer(answer, "version"), integer(answer, "id")
        )

    @asked
    def set_rule(self, subject: str, compatibility: str) -> Steps[None]:
        """Have another rule for the versions to come.

        Raises:
            ConfigError: there is no such rule.
            NoPermissionError: this client is no admin there.
        """
        yield from ask("schema_rule", subject=subject, compatibility=compatibility)

    @asked
    def delete_schema(self, subject: str, version: int | None = None) -> Steps[None]:
        """Have a subject no more, or one version of it. Messages of its id cannot be read by it.

        Raises:
            ConfigError: there is no such one.
            NoPermissionError: this client is no admin there.
        """
        yield from ask("schema_delete", **_numbered(subject, version))


class SchemaAdmin(SchemaVerbs):
    """The verbs over a broker's connection; one thread at a time may use it."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def run(self, steps: Steps[Result]) -> Result:
        """See ``Broker.run``."""
        return self._broker.run(steps)


def _shown(subject: str, version: int | None) -> Steps[tuple[SubjectRow, RegisteredSchema]]:
    answer = yield from ask("schema_show", **_numbered(subject, version))
    found = answer.get("found")
    row = _subject(answer)
    empty = RegisteredSchema(row.subject, 0, 0, "", "")
    return row, _schema(found) if isinstance(found, dict) else empty


def _numbered(subject: str, version: int | None) -> dict[str, object]:
    return {"subject": subject, **({} if version is None else {"version": version})}


def _wanted(subject: str, kind: str, schema: str, compatibility: str | None) -> dict[str, object]:
    rule = {} if compatibility is None else {"compatibility": compatibility}
    return {"subject": subject, "type": kind, "schema": schema, **rule}


def _subject(row: Fields) -> SubjectRow:
    versions = tuple(integers(row, "versions"))
    return SubjectRow(
        text(row, "subject"), text(row, "topic"), text(row, "compatibility"), versions
    )


def _schema(fields: Fields) -> RegisteredSchema:
    return RegisteredSchema(
        text(fields, "subject"),
        integer(fields, "version"),
        integer(fields, "id"),
        text(fields, "type"),
        text(fields, "schema"),
    )


def _conflict(row: Fields) -> SchemaConflict:
    return SchemaConflict(
        integer(row, "version"), text(row, "reader"), text(row, "place"), text(row, "reason")
    )
