"""Values of the slots about processes: signs of life, the put lock, what raft has heard of."""

from __future__ import annotations

from typing import NamedTuple


class PutLock(NamedTuple):
    """Who is inside the put lock (pid 0: nobody), since when, and what was counted."""

    holder: int
    since_ns: int
    taken: int
    slow: int
    recovered: int


class Proof(NamedTuple):
    """What raft knows of its group and its node that no cursor tells.

    ``majority_ns``: when a majority was heard of last, itself or by its leader's word; 0: never.
    ``lacks_entries``: the log was damaged, and does not hold again all that it had held.
    """

    majority_ns: int
    disk_is_sick: bool
    lacks_entries: bool


class ProcessSlot(NamedTuple):
    """A process's sign of life; ``turns`` says whether this life of it has reached its loop.

    ``settings``: the number of the published settings that this life has taken since it began.
    """

    pid: int
    beat_ns: int
    asleep: bool
    generation: int
    started_ns: int
    turns: bool
    settings: int
