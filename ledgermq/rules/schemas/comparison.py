"""Comparison of two schemas: what it may cost, and why one does not read what the other writes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from heapq import nsmallest
from typing import NamedTuple

from ledgermq.model.errors import ConfigError

COMPARED_STEPS_MAX = 100_000
"""Most steps of one request, over all versions that it compares: a tenth of a second between two
pulls."""

COMPARED_NS_MAX = 500_000_000
STEPS_PER_LOOK = 256

TYPES_WITHIN_MAX = 64
"""Types within types: nobody writes more by hand, and the interpreter's stack is safe."""

CHARACTERS_PER_STEP = 64
"""Characters of a text that are read or compared in one step."""

NAMES_PER_STEP = 16
"""Names that are looked up among others in one step."""

TOLD_CHARACTERS_MAX = 200
_NAMES_SHOWN = 8
_NAME_CHARACTERS_SHOWN = 64


class UnreadableError(Exception):
    """The reader's schema does not read all that the writer's lets through; where, and why.

    Attributes:
        place: in the schema, as ``/field/items``.
        reason: for people.
    """

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(place, reason)
        self.place = place[:TOLD_CHARACTERS_MAX] or "/"
        self.reason = reason[:TOLD_CHARACTERS_MAX]


class StepBudget:
    """Steps that a comparison may still take; also how deep it is, and how long it takes."""

    def __init__(
        self, left: int = COMPARED_STEPS_MAX, *, spent_ns: Callable[[], int] = lambda: 0
    ) -> None:
        """Allow ``left`` steps. With a clock of the processor's time the budget ends after
        ``COMPARED_NS_MAX``, too: a step that takes longer than it should costs no more than that.
        """
        self.left = left
        self._spent_ns = spent_ns
        self._look_at = left
        self._until_ns = spent_ns() + COMPARED_NS_MAX

    def take(self, count: int = 1, *, depth: int = 0) -> None:
        """Note steps.

        Raises:
            ConfigError: there are too many, or they go too deep.
        """
        if depth > TYPES_WITHIN_MAX:
            raise ConfigError("schema has too many types within types", limit=TYPES_WITHIN_MAX)
        self.left -= count
        is_late = False
        if self.left <= self._look_at:
            self._look_at = self.left - STEPS_PER_LOOK
            is_late = self._spent_ns() > self._until_ns
        if self.left < 0 or is_late:
            raise ConfigError(
                "schemas are too large to be compared: delete versions that no message has, or let"
                " the rule of the subject not be transitive",
                limit=COMPARED_STEPS_MAX,
            )


class Course(NamedTuple):
    """Where a comparison is.

    Attributes:
        place: in the reader's schema.
        seen: pairs of types, by where they lie, that were compared or are being compared: of a type
            within itself what is shown of the outer one holds for the inner one.
    """

    place: str
    seen: set[tuple[int, int]]
    steps: StepBudget
    depth: int

    def at(self, name: str) -> Course:
        """The same, one type further in."""
        return self._replace(place=inner_place(self.place, name), depth=self.depth + 1)

    def tried(self) -> Course:
        """The same, whose pairs are forgotten where it comes to nothing."""
        self.steps.take(len(self.seen) // NAMES_PER_STEP)
        return self._replace(seen=set(self.seen), depth=self.depth + 1)

    def no(self, reason: str) -> UnreadableError:
        """Why the reader does not read what is written here."""
        return UnreadableError(self.place, reason)


def inner_place(place: str, name: str) -> str:
    """The place of what is called ``name`` within ``place``; a long name is cut."""
    return f"{place}/{name[:_NAME_CHARACTERS_SHOWN]}"


def json_of(text: str) -> object:
    """The JSON value of a schema's text.

    Raises:
        ConfigError: it is none, or has a key twice.
    """
    try:
        found: object = json.loads(text, object_pairs_hook=_object, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise ConfigError("schema is no JSON", reason=str(error)[:TOLD_CHARACTERS_MAX]) from None
    return found


def shown(value: object) -> str:
    """A value as a reason may have it: large ones are not written out for that."""
    if isinstance(value, str):
        return value[:TOLD_CHARACTERS_MAX]
    if isinstance(value, Mapping):
        return f"an object of {len(value)}"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    return str(value)[:TOLD_CHARACTERS_MAX]


def shown_names(names: Iterable[str]) -> str:
    """Some of the names, in their order, as a reason may have them."""
    first = nsmallest(_NAMES_SHOWN, names)
    return shown(", ".join(name[:TOLD_CHARACTERS_MAX] for name in first))


def _object(pairs: list[tuple[str, object]]) -> Mapping[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands twice in an object")
    return found


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number of JSON")
