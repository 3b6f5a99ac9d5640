"""Compatibility of a new version with those before it, by the rule of its subject."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from ledgermq.model.errors import ConfigError
from ledgermq.model.names.schemas import Compatibility, SchemaType
from ledgermq.rules.schemas.avro_schema import avro_type, check_avro_reads
from ledgermq.rules.schemas.comparison import (
    CHARACTERS_PER_STEP,
    StepBudget,
    UnreadableError,
)
from ledgermq.rules.schemas.json_schema import check_json_reads, json_schema
from ledgermq.rules.schemas.protobuf_schema import check_proto_reads, proto_file
from ledgermq.rules.schemas.schema_table import SchemaVersion


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
