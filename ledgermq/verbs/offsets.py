"""Verbs about consumed offsets: resets and clones by operators."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import KW_ONLY
from typing import Annotated, ClassVar, Literal, NamedTuple

from ledgermq.model.errors import ConfigError
from ledgermq.verbs.needs import CHANGE
from ledgermq.verbs.verb import NUMBER_MAX, Bounds, GroupName, Json, RowsVerb, TopicName

Target = Literal["first", "last", "time", "number"]
_Forced = Annotated[bool, "Although members consume now"]
_Made = Annotated[bool, "Make the group if it is not there"]
_OnlyTold = Annotated[bool, "Only tell what would be done"]


class OffsetMove(NamedTuple):
    """What a reset or a clone does to one queue; ``old`` is ``None`` if nothing was committed."""

    topic: str
    queue: int
    old: int | None
    new: int


class _Moves(RowsVerb[OffsetMove]):
    """What moves a group, and is answered with a row for each queue."""

    NEEDS: ClassVar = CHANGE
    ROWS: ClassVar = "queues", OffsetMove
    SHAPE: ClassVar = {"group": "string", "done": "boolean", "queues": "array"}

    def document(self, told: list[OffsetMove]) -> Json:
        """All rows, and whether it was done."""
        asked = self.arguments()
        return {"group": asked["group"], "done": not asked["dry_run"], **super().document(told)}


class ResetOffsets(_Moves):
    """Let a group go on elsewhere; what was moved, queue by queue.

    Args:
        to: ``first``, ``last``, the first message of a ``time`` or later, or a ``number``.
        value: epoch ms with ``time``, a queue offset with ``number``.
        queues: only these.
        force: although members of the group consume now.
        create: make the group if it is not there.
        dry_run: only tell.

    Raises:
        GroupActiveError: members consume now.
        GroupUnknownError: there is no such group.
        MessageIllegalError: a queue does not have that offset.
        TopicUnknownError: there is no such topic or queue.
        ConfigError: ``time`` or ``number`` without a value, or a value that nothing asks for.
    """

    NAME: ClassVar = "offset_reset"

    group: GroupName
    topic: TopicName
    to: Annotated[Target, "Where; a time and a number need a value"]
    value: Annotated[
        int | None, Bounds(0, NUMBER_MAX), "Epoch milliseconds of a time, or a queue offset"
    ] = None
    _: KW_ONLY
    queues: Annotated[Collection[int] | None, "Only these"] = None
    force: _Forced = False
    create: _Made = False
    dry_run: _OnlyTold = False

    def __post_init__(self) -> None:
        to: object = self.to
        if isinstance(to, int):
            raise ConfigError(
                "to is a word: with a value 'time' is a time, and 'number' a queue offset",
                to=to,
            )
        if (self.value is not None) != (self.to in ("time", "number")):
            raise ConfigError(
                "a value belongs to 'time' and 'number', and only to them", to=self.to
            )
        self.queues = None if self.queues is None else sorted(self.queues)


class CloneOffsets(_Moves):
    """Let ``group`` be as far as ``source``, in one topic or in all that ``source`` consumed.

    Args:
        force: although members of ``group`` consume now.
        create: make ``group`` if it is not there.
        dry_run: only tell.

    Raises:
        GroupActiveError: members of ``group`` consume now.
        GroupUnknownError: there is no such group, or ``source`` has consumed nothing there.
    """

    NAME: ClassVar = "offset_clone"

    source: Annotated[str, "The other group"]
    group: GroupName
    topic: Annotated[TopicName | None, "Only in this topic"] = None
    _: KW_ONLY
    force: _Forced = False
    create: _Made = False
    dry_run: _OnlyTold = False
