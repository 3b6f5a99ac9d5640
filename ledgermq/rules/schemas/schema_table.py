"""Schema table: subjects, each with its versions and its rule. ``ROOT/ledgermq/schemas.json``:

    {"lastId": N, "subjects": {SUBJECT: {"compatibility": RULE, "last": N,
                                         "versions": {N: {"id": N, "type": TYPE, "schema": TEXT}}}}}

``last`` is the highest version that the subject had, ``lastId`` the highest id of all: neither is
given again. Below feature level 5 there is no such file. docs/decisions/0091.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, Self, TypeVar

from ledgermq.model.errors import ConfigError
from ledgermq.model.names.schemas import (
    DEFAULT_COMPATIBILITY,
    ID_MAX,
    SUBJECT_SIZE_MAX,
    Compatibility,
    SchemaType,
    is_subject,
)
from ledgermq.rules.tables.documents import Document, read_integer, read_table
from ledgermq.rules.tables.table import Table
from ledgermq.rules.tables.table_changes import SchemaSet

Word = TypeVar("Word", bound=StrEnum)

FILE = "schemas.json"
_SUBJECTS, _LAST_ID = "subjects", "lastId"
_RULE, _LAST, _VERSIONS = "compatibility", "last", "versions"
VERSION_SIZE = 64
"""Bytes that a version counts beside its text: many small ones are large, too."""

VERSION_KEY = "version"
"""Key in a change for the version that it is about."""


class SchemaVersion(NamedTuple):
    """One version of a subject; ``identity`` is the id that messages have."""

    number: int
    identity: int
    type: SchemaType
    text: str

    @classmethod
    def read(cls, number: int, fields: Document, *, subject: str) -> Self:
        """What the table, or a change, says of a version.

        Raises:
            ConfigError: it is none.
        """
        identity = read_integer(fields, "id", 0, file=FILE, owner=subject)
        text = fields.get("schema")
        if not (0 < number <= ID_MAX and 0 < identity <= ID_MAX) or not isinstance(text, str):
            raise ConfigError(
                "not a version of a schema", file=FILE, subject=subject, version=number, id=identity
            )
        return cls(number, identity, _type_of(fields.get("type"), subject), text)

    def to_fields(self) -> dict[str, object]:
        """The JSON object; the number is its key."""
        return {"id": self.identity, "type": self.type.value, "schema": self.text}

    def to_change(self) -> dict[str, object]:
        """Fields of the change that brings it."""
        return {VERSION_KEY: self.number, **self.to_fields()}


@dataclass(slots=True)
class SchemaSubject:
    """Versions in their order, and the rule for the next one.

    Invariant: no version is above ``last``.
    """

    rule: Compatibility = DEFAULT_COMPATIBILITY
    last: int = 0
    versions: dict[int, SchemaVersion] = field(default_factory=dict)

    @property
    def latest(self) -> SchemaVersion | None:
        """The last version that there is."""
        return self.versions[max(self.versions)] if self.versions else None

    def put(self, version: SchemaVersion) -> None:
        """Have a version."""
        self.versions[version.number] = version
        self.last = max(self.last, version.number)

    def to_fields(self) -> dict[str, object]:
        """The JSON object."""
        return {
            _RULE: self.rule.value,
            _LAST: self.last,
            _VERSIONS: {str(one): self.versions[one].to_fields() for one in sorted(self.versions)},
        }


class SchemaTable(Table[SchemaSet]):
    """All subjects by name.

    Attributes:
        last_id: the highest id that was ever given.
        size: what all versions take in the file, about (``size_of``).
    """

    file = FILE
    takes = (SchemaSet,)

    def __init__(self) -> None:
        super().__init__()
        self.last_id = 0
        self.size = 0
        self._subjects: dict[str, SchemaSubject] = {}
        self._named: dict[int, dict[tuple[str, int], SchemaVersion]] = {}
        self._ids: dict[tuple[SchemaType, str], int] = {}

    @classmethod
    def read(cls, document: Document) -> Self:
        table = cls()
        for name, fields in read_table(document, _SUBJECTS, file=FILE).items():
            subject = table._subject(name)
            if not isinstance(fields, Mapping):
                raise ConfigError("subject is not a JSON object", file=FILE, subject=name)
            subject.rule = rule_of(fields.get(_RULE, DEFAULT_COMPATIBILITY), name)
            for number, version in read_table(fields, _VERSIONS, file=FILE).items():
                if not (number.isascii() and number.isdecimal() and isinstance(version, Mapping)):
                    raise ConfigError("not a version", file=FILE, subject=name, found=number[:64])
                table._put(name, SchemaVersion.read(int(number[:20]), version, subject=name))
            subject.last = max(subject.last, read_integer(fields, _LAST, 0, file=FILE, owner=name))
        last_id = read_integer(document, _LAST_ID, 0, file=FILE, owner=_LAST_ID)
        table.last_id = max(table.last_id, last_id)
        return table

    def to_document(self) -> dict[str, object]:
        told: dict[str, object] = {_LAST_ID: self.last_id} if self.last_id else {}
        return {**told, _SUBJECTS: {name: one.to_fields() for name, one in self}}

    def __iter__(self) -> Iterator[tuple[str, SchemaSubject]]:
        """All subjects by name."""
        return iter(sorted(self._subjects.items()))

    def __len__(self) -> int:
        return len(self._subjects)

    def get(self, subject: str) -> SchemaSubject | None:
        """A subject; it must not be changed."""
        return self._subjects.get(subject)

    def with_id(self, identity: int) -> dict[tuple[str, int], SchemaVersion]:
        """The versions that have an id, by subject and number; none where nothing has it."""
        return self._named.get(identity, {})

    def id_of(self, kind: SchemaType, text: str) -> int | None:
        """The id that this text has already."""
        return self._ids.get((kind, text))

    def apply(self, change: SchemaSet, _place: int, _at_ms: int, /) -> None:
        name, fields = change
        if fields is None:
            self._drop(name)
        else:
            # All is read before anything is changed: a command is applied as a whole or not.
            rule = rule_of(fields[_RULE], name) if _RULE in fields else None
            number = read_integer(fields, VERSION_KEY, 0, file=FILE, owner=name)
            has_text = "schema" in fields
            version = SchemaVersion.read(number, fields, subject=name) if has_text else None
            subject = self._subject(name)
            if rule is not None:
                subject.rule = rule
            if version is not None:
                self._put(name, version)
            elif number:
                self._forget(name, number)
        self.revision += 1

    def replace_with(self, other: SchemaTable) -> None:
        """Have the subjects of ``other``; where neither has any there is nothing to write."""
        if not (self.last_id or self._subjects or other.last_id or other._subjects):
            return
        self.last_id, self.size = other.last_id, other.size
        self._subjects, self._named, self._ids = other._subjects, other._named, other._ids
        self.revision += 1

    def _subject(self, name: str) -> SchemaSubject:
        if not is_subject(name):
            raise ConfigError("not a name of a subject", file=FILE, subject=name[:SUBJECT_SIZE_MAX])
        return self._subjects.setdefault(name, SchemaSubject())

    def _put(self, name: str, version: SchemaVersion) -> None:
        self._forget(name, version.number)
        self._subject(name).put(version)
        self.last_id = max(self.last_id, version.identity)
        self._named.setdefault(version.identity, {})[name, version.number] = version
        self._ids[version.type, version.text] = version.identity
        self.size += size_of(version.text)

    def _forget(self, name: str, number: int) -> None:
        gone = self._subjects[name].versions.pop(number, None)
        if gone is None:
            return
        self.size -= size_of(gone.text)
        named = self._named[gone.identity]
        named.pop((name, number), None)
        if not named:
            del self._named[gone.identity]
            self._ids.pop((gone.type, gone.text), None)

    def _drop(self, name: str) -> None:
        subject = self._subjects.get(name)
        if subject is not None:
            for number in list(subject.versions):
                self._forget(name, number)
            del self._subjects[name]


def size_of(text: str) -> int:
    """Bytes that a version with this text takes in the file, about; of what is no text, too."""
    return VERSION_SIZE + len(text.encode(errors="surrogatepass"))


def rule_of(value: object, subject: str) -> Compatibility:
    """The rule that ``value`` names.

    Raises:
        ConfigError: it is none.
    """
    return _member(Compatibility, value, "no rule of compatibility", subject)


def _type_of(value: object, subject: str) -> SchemaType:
    return _member(SchemaType, value, "no type of a schema", subject)


def _member(kind: type[Word], value: object, refusal: str, subject: str) -> Word:
    try:
        return kind(str(value))
    except ValueError:
        raise ConfigError(
            refusal, subject=subject, found=str(value)[:64], allowed=", ".join(kind)
        ) from None
