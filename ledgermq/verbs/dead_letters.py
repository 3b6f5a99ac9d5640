"""Verbs about dead letters: which a group has, and their replay."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import KW_ONLY
from types import MappingProxyType
from typing import Annotated, ClassVar, NamedTuple

from ledgermq.model.limits import QUEUE_ID_MAX
from ledgermq.verbs.needs import CHANGE, GROUP, shown
from ledgermq.verbs.told_rows import Wire
from ledgermq.verbs.verb import NUMBER_MAX, Bounds, GroupName, RowsVerb, Verb

TOKEN_MAX = 2**62


class DeadLetterQueue(NamedTuple):
    """A queue of dead letters, and which of them were replayed.

    Attributes:
        begin: first offset that it holds.
        end: offset behind the last one.
        replayed: offsets, half-open, ascending.
    """

    queue_id: Annotated[int, Wire("queue")]
    begin: Annotated[int, Wire("min")]
    end: Annotated[int, Wire("max")]
    replayed: tuple[tuple[int, int], ...]

    def was_replayed(self, offset: int) -> bool:
        """Whether the dead letter at ``offset`` was replayed."""
        return any(first <= offset < end for first, end in self.replayed)

    @property
    def replayed_count(self) -> int:
        """How many of those that it holds were replayed."""
        pairs = ((max(first, self.begin), min(end, self.end)) for first, end in self.replayed)
        return sum(max(0, end - first) for first, end in pairs)


class ReplayedLetters(NamedTuple):
    """What became of dead letters, by their offsets; ``left``: too many at once, to be asked for
    again.
    """

    replayed: list[int]
    already: list[int]
    missing: list[int]
    left: list[int]


class ShowDeadLetters(RowsVerb[DeadLetterQueue]):
    """The queues of the group's dead letters: one, or none while it has none.

    Raises:
        GroupUnknownError: there is no such group.
    """

    NAME: ClassVar = "dead_letters"
    NEEDS: ClassVar = shown(GROUP)
    ROWS: ClassVar = "queues", DeadLetterQueue

    group: GroupName


class ReplayDeadLetters(Verb[ReplayedLetters]):
    """Give dead letters of a queue to the group once more; each becomes one message.

    Args:
        origin: into the topics that they were first sent to.
        again: also those that were replayed before.
        token: by which the same call is known when it is made again.

    Raises:
        TopicUnknownError: a topic does not exist any more.
        BusyError: another replay of the queue is under way.
    """

    NAME: ClassVar = "dead_letters_replay"
    NEEDS: ClassVar = CHANGE
    WIRE_NAMES: ClassVar = MappingProxyType({"queue_id": "queue"})
    ROW: ClassVar = ReplayedLetters

    group: GroupName
    queue_id: Annotated[int, Bounds(0, QUEUE_ID_MAX), "Number of a queue"]
    offsets: Annotated[Collection[int], Bounds(0, NUMBER_MAX), "These"]
    _: KW_ONLY
    origin: Annotated[bool, "To the topics that they were first sent to"] = False
    again: Annotated[bool, "Also what was replayed before"] = False
    token: Annotated[int, Bounds(1, TOKEN_MAX), "By which the same call is known"]
