"""Values of the slots about disk space: how full the disk is, and where the log begins."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from ledgermq.model.ids import Position


class SpaceState(IntEnum):
    """Whether the node's disk takes what producers send."""

    ROOMY = 0
    ABOVE = 1
    FULL = 2


class HeldBy(IntEnum):
    """Why raft does not let go of the log as far as the writer would delete it."""

    NOBODY = 0
    MEMBER = 1
    SHIPPING = 2


class Space(NamedTuple):
    """The disk as the writer saw it last, in bytes, and since when it is in that state."""

    state: SpaceState
    free: int
    total: int
    since_ns: int


class LogBegin(NamedTuple):
    """Where the log is to begin, once raft has let go of what is before, and where it begins."""

    wanted: Position
    position: Position


class QueueBegin(NamedTuple):
    """What the queues point to begins here; ``waits``: dispatch waits for space on the disk."""

    position: Position
    waits: bool
