"""Plans for a subject: what a registration, another rule or a deletion changes, and refusals.

A new version is compared with those before it by the rule of its subject.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from ledgermq.model.errors import ConfigError
from ledgermq.model.names.schemas import (
    DEFAULT_COMPATIBILITY,
    ID_MAX,
    SUBJECT_CHARACTERS,
    SUBJECT_SIZE_MAX,
    TEXT_SIZE_MAX,
    Compatibility,
    SchemaType,
    is_subject,
)
from ledgermq.rules.schemas.avro_schema import avro_type, check_avro_reads
from ledgermq.rules.schemas.comparison import (
    CHARACTERS_PER_STEP,
    StepBudget,
    UnreadableError,
)
from ledgermq.rules.schemas.json_schema import check_json_reads, json_schema
from ledgermq.rules.schemas.protobuf_schema import check_proto_reads, proto_file
from ledgermq.rules.schemas.schema_table import SchemaSubject, SchemaTable, SchemaVersion, size_of
from ledgermq.rules.tables.table_changes import SchemaSet

SUBJECTS_MAX = 10_000
VERSIONS_MAX = 100
TEXTS_SIZE_MAX = 8 * 1024 * 1024
"""Bytes of all versions: with each change the file is written as a whole."""

Plan = Sequence[SchemaSet]


def check_subject(name: str) -> str:
    """A name of a subject.

    Raises:
        ConfigError: it is none.
    """
    if not is_subject(name):
        raise ConfigError(
            "not a name of a subject",
            subject=name[:SUBJECT_SIZE_MAX],
            allowed=f"1 to {SUBJECT_SIZE_MAX} {SUBJECT_CHARACTERS}",
        )
    return name


def found_version(table: SchemaTable, name: str, kind: SchemaType, text: str) -> int | None:
    """The version of a subject that has this text already."""
    subject = table.get(name)
    versions = subject.versions.values() if subject is not None else ()
    same = (one.number for one in versions if (one.type, one.text) == (kind, text))
    return max(same, default=None)


def conflicts_of(
    table: SchemaTable,
    name: str,
    kind: SchemaType,
    text: str,
    rule: Compatibility | None = None,
    *,
    steps: StepBudget | None = None,
) -> list[VersionConflict]:
    """What keeps a text from being the next version of a subject.

    Args:
        rule: in the place of the subject's own.
        steps: what it may cost.

    Raises:
        ConfigError: it is no schema, or too large.
    """
    _check_size(text)
    subject = table.get(name) or SchemaSubject()
    newest_first = sorted(subject.versions.values(), reverse=True)
    return conflicts(rule or subject.rule, kind, text, newest_first, steps=steps)


def plan_register(
    table: SchemaTable,
    name: str,
    kind: SchemaType,
    text: str,
    rule: Compatibility | None = None,
    *,
    steps: StepBudget | None = None,
) -> Plan:
    """What makes a text the next version of a subject; nothing where a version has it.

    Args:
        rule: the subject's from now on, checked already for this version.
        steps: what the comparison may cost.

    Raises:
        ConfigError: the rule forbids it, it is no schema, or there is no room for it.
    """
    check_subject(name)
    if found_version(table, name, kind, text) is not None:
        return plan_rule(table, name, rule) if rule is not None else []
    subject = table.get(name) or SchemaSubject()
    refuse(name, rule or subject.rule, conflicts_of(table, name, kind, text, rule, steps=steps))
    _check_room(table, name, subject, text)
    identity = table.id_of(kind, text) or table.last_id + 1
    fields = SchemaVersion(subject.last + 1, identity, kind, text).to_change()
    if rule is not None:
        fields["compatibility"] = rule.value
    return [SchemaSet(name, fields)]


def plan_rule(table: SchemaTable, name: str, rule: Compatibility, *, ahead: bool = True) -> Plan:
    """What gives a subject another rule, which only the next version has to keep.

    Args:
        ahead: also to a subject that has no version yet.

    Raises:
        ConfigError: there is no such subject, or no room for another one.
    """
    check_subject(name)
    subject = table.get(name)
    if subject is None:
        if not ahead:
            raise ConfigError(
                "there is no such subject; with ahead it gets a rule before", subject=name
            )
        _check_subjects(table)
        if rule is DEFAULT_COMPATIBILITY:
            return []
    elif subject.rule is rule:
        return []
    return [SchemaSet(name, {"compatibility": rule.value})]


def plan_delete(table: SchemaTable, name: str, version: int | None) -> Plan:
    """What deletes a subject, or one version of it.

    Raises:
        ConfigError: there is none.
    """
    subject = table.get(name)
    if subject is None:
        raise ConfigError("there is no such subject", subject=name[:SUBJECT_SIZE_MAX])
    if version is None:
        return [SchemaSet(name, None)]
    if version not in subject.versions:
        raise ConfigError("the subject has no such version", subject=name, version=version)
    return [SchemaSet(name, {"version": version})]


def _check_size(text: str) -> None:
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise ConfigError("text of a schema has half a character") from None
    if not 0 < size <= TEXT_SIZE_MAX:
        raise ConfigError("text of a schema is empty or too large", size=size, limit=TEXT_SIZE_MAX)


def _check_subjects(table: SchemaTable) -> None:
    if len(table) >= SUBJECTS_MAX:
        raise ConfigError(
            "too many subjects: delete some that nobody uses",
            subjects=len(table),
            limit=SUBJECTS_MAX,
        )


def _check_room(table: SchemaTable, name: str, subject: SchemaSubject, text: str) -> None:
    if table.get(name) is None:
        _check_subjects(table)
    if len(subject.versions) >= VERSIONS_MAX:
        raise ConfigError(
            "too many versions: delete some that no message has",
            subject=name,
            versions=len(subject.versions),
            limit=VERSIONS_MAX,
        )
    if table.size + size_of(text) > TEXTS_SIZE_MAX:
        raise ConfigError(
            "schemas are too large in all: delete versions that no message has",
            size=table.size,
            limit=TEXTS_SIZE_MAX,
        )
    if table.last_id >= ID_MAX or subject.last >= ID_MAX:
        raise ConfigError("all numbers of schemas are given", limit=ID_MAX)


class VersionConflict(NamedTuple):
    """What a rule forbids.

    Attributes:
        version: the older one of the two.
        reader: ``new`` or ``old``: which one does not read what the other one has written.
        place: in the reader's schema.
        reason: for people.
    """

    version: int
    reader: str
    place: str
    reason: str


def conflicts(
    rule: Compatibility,
    kind: SchemaType,
    text: str,
    before: Iterable[SchemaVersion],
    *,
    steps: StepBudget | None = None,
) -> list[VersionConflict]:
    """What keeps a new version from being taken, one for each older version and direction.

    Args:
        before: the versions that there are, the last one first.
        steps: what it may cost.

    Raises:
        ConfigError: the text is no schema of that type, or to compare all would take too long.
    """
    try:
        return _found(rule, kind, text, before, steps or StepBudget())
    except RecursionError:
        # JSON is read a little deeper than its values can be shown.
        raise ConfigError("schema has too many types within types") from None


def _found(
    rule: Compatibility,
    kind: SchemaType,
    text: str,
    before: Iterable[SchemaVersion],
    steps: StepBudget,
) -> list[VersionConflict]:
    _comparer(kind, text, steps, is_new=True)
    found: list[VersionConflict] = []
    if rule is Compatibility.NONE:
        return found
    for version in before:
        if version.type is not kind:
            reason = f"it is {version.type}, and this one {kind}: let the rule be NONE for that"
            found.append(VersionConflict(version.number, "new", "/", reason))
        else:
            found += _between(rule, kind, text, version, steps)
        if not rule.is_transitive:
            break
    return found


def _between(
    rule: Compatibility, kind: SchemaType, text: str, version: SchemaVersion, steps: StepBudget
) -> list[VersionConflict]:
    if version.text == text:
        return []
    found = []
    for wanted, reader, texts in (
        (rule.is_backward, "new", (text, version.text)),
        (rule.is_forward, "old", (version.text, text)),
    ):
        if wanted:
            try:
                _comparer(kind, texts[0], steps)(texts[1])
            except UnreadableError as why:
                found.append(VersionConflict(version.number, reader, why.place, why.reason))
    return found


def _comparer(
    kind: SchemaType, text: str, steps: StepBudget, *, is_new: bool = False
) -> Callable[[str], None]:
    """What compares a writer's text with this reader's; it raises ``UnreadableError``.

    Args:
        is_new: whether the reader's has to be right in all: what is in the table stays readable.
    """

    def counted(one: str) -> str:
        steps.take(len(one) // CHARACTERS_PER_STEP)
        return one

    if kind is SchemaType.AVRO:
        avro = avro_type(counted(text), steps, has_defaults_checked=is_new)
        return lambda other: check_avro_reads(avro, avro_type(counted(other), steps), steps)
    if kind is SchemaType.JSON:
        json = json_schema(counted(text))
        return lambda other: check_json_reads(json, json_schema(counted(other)), steps)
    proto = proto_file(counted(text), steps)
    return lambda other: check_proto_reads(proto, proto_file(counted(other), steps), steps)


def refuse(subject: str, rule: Compatibility, found: list[VersionConflict]) -> None:
    """Refuse a version that conflicts with others.

    Raises:
        ConfigError: names the first one, and how many there are.
    """
    if not found:
        return
    first = found[0]
    raise ConfigError(
        f"schema is not compatible: the {first.reader} one does not read what the other one writes",
        subject=subject,
        rule=rule.value,
        version=first.version,
        place=first.place,
        reason=first.reason,
        conflicts=len(found),
    )
