"""Vocabulary of schemas, shared by clients and brokers: types, rules, subjects, the property."""

from __future__ import annotations

from enum import StrEnum

SCHEMA_PROPERTY = "SCHEMA_ID"
"""Property of a message: the id of the schema that its body was written by, in decimal."""

TEXT_SIZE_MAX = 64 * 1024
"""UTF-8 bytes of one schema's text: it goes into one command of the log."""

SUBJECT_SIZE_MAX = 255
ID_MAX = 2**31 - 1
"""What Confluent's clients keep in four bytes with a sign."""

SUBJECT_CHARACTERS = "letters a-z A-Z, digits, and . _ - %"
_ALLOWED = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-%")
_ENDINGS = ("-value", "-key")


class SchemaType(StrEnum):
    """What the text of a schema is."""

    AVRO = "AVRO"
    JSON = "JSON"
    PROTOBUF = "PROTOBUF"


class Compatibility(StrEnum):
    """What a new version of a subject has to keep, as Confluent's registry names it.

    Backward: its readers read what the old ones have written; forward: the other way round.
    """

    NONE = "NONE"
    BACKWARD = "BACKWARD"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"

    @property
    def is_backward(self) -> bool:
        """Whether the new version has to read what was written by old ones."""
        return self.name.startswith(("BACKWARD", "FULL"))

    @property
    def is_forward(self) -> bool:
        """Whether old versions have to read what is written by the new one."""
        return self.name.startswith(("FORWARD", "FULL"))

    @property
    def is_transitive(self) -> bool:
        """Whether all versions count, and not the last one alone."""
        return self.name.endswith("_TRANSITIVE")


DEFAULT_COMPATIBILITY = Compatibility.BACKWARD


def is_subject(name: str) -> bool:
    """Whether a subject may be called so."""
    return 0 < len(name) <= SUBJECT_SIZE_MAX and _ALLOWED.issuperset(name)


def topic_of(subject: str) -> str:
    """The topic whose rights hold for ``subject``."""
    for ending in _ENDINGS:
        if subject.endswith(ending) and len(subject) > len(ending):
            return subject.removesuffix(ending)
    return subject
