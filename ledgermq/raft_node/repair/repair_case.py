"""Repair case: one damage of the log, and how far its repair has got (``scrub.py``)."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from ledgermq.model.ids import NodeId
from ledgermq.repair.log_scrub import Damage


class RepairState(Enum):
    """What is being done about a damage."""

    WAITING = "waits"
    ASKING = "asked for"
    WRITING = "being written"
    CHECKING = "being read again"


class Suspect(NamedTuple):
    """A place that a reader has found wrong: the byte at a position, or the entry of an index."""

    place: int
    is_position: bool


@dataclass(slots=True)
class RepairCase:
    """One damage, and what is done about it.

    Attributes:
        due_ns: when to begin; ``deadline_ns``: when what was begun is given up.
        is_fresh: it was read in this very attempt.
    """

    damage: Damage
    due_ns: int
    state: RepairState = RepairState.WAITING
    is_fresh: bool = True
    is_given_up: bool = False
    reason: str = ""
    asked: set[NodeId] = field(default_factory=set)
    peer: NodeId | None = None
    number: int = 0
    deadline_ns: int = 0
    written: int = 0


def damaged_entries(damage: Damage) -> int:
    """How many entries a damage has; none if only a blank is wrong."""
    return max(0, damage.last - damage.first + 1)
