"""Parts of the cursor page: its file, and the values of its slots.

The supervisor makes the file anew, and all map it. Values are of disk space, the log's begin,
processes, and names of members; which slot has them, ``cursor_page.py`` says.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable, Sequence
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

from ledgermq.model.errors import StaleGenerationError, refused_as
from ledgermq.model.ids import NodeId, Position, Term

MAGIC = 0x4547415051_4D4C
_HEADER_CELLS = 3
"""Magic, version and generation, as in a page of any version."""


LED_MAX = 5
"""Members that a leader's writer feeds at most."""


def make_file(path: Path, size: int) -> int:
    """Put a file of ``size`` zeros in the place of the page at ``path``; the generation that is
    next after that one's, which may be of another version of the program.

    Raises:
        StorageError: the operating system refused.
    """
    generation = 1
    if path.exists():
        generation = _generation_at(path) + 1
        path.unlink()
    fresh = path.with_suffix(".new")
    with refused_as(
        "cursor page not made", why="within", path=path, size=size, setting="listen.runtime_dir"
    ):
        fresh.unlink(missing_ok=True)
        # Whatever the umask says: who can write the page can cut the log.
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with open(os.open(fresh, flags, 0o600), "wb") as file:
            # Written, not only made long: a map of a hole is a SIGBUS when the disk is full.
            file.write(bytes(size))
        fresh.rename(path)
    return generation


def map_file(path: Path, size: int) -> mmap.mmap:
    """The file at ``path``, writable.

    Raises:
        StaleGenerationError: it is of another size.
        StorageError: the operating system refused.
    """
    with refused_as("cursor page not opened", why="", path=path):
        fd = os.open(path, os.O_RDWR)
    try:
        if os.fstat(fd).st_size != size:
            raise StaleGenerationError("cursor page of another size", path=str(path))
        return mmap.mmap(fd, size)
    finally:
        os.close(fd)


def _generation_at(path: Path) -> int:
    """That of the page at ``path``; 0 when it is none.

    Raises:
        StorageError: the operating system refused.
    """
    size = _HEADER_CELLS * 8
    with refused_as("cursor page not read", why="", path=path), path.open("rb") as file:
        content = file.read(size)
    if len(content) < size:
        return 0
    magic, _, generation = memoryview(content).cast("q").tolist()
    return generation if magic == MAGIC else 0


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


class Led(NamedTuple):
    """What a leader's writer knows of the members that it feeds, in run ``number``.

    Attributes:
        round: its last round of heartbeats.
        confirmed: tick at which the last round began that a majority has answered; 0: none.
        matches: the last entry that each of them holds, in the order of the run's members.
    """

    number: int
    round: int
    confirmed: int
    matches: tuple[int, ...]


def lone_run(term: Term) -> int:
    """What the cell of runs says while the writer commits what this node alone holds."""
    return 2 * (int(term) + 1)


def led_run(number: int) -> int:
    """What the cell of runs says in the leader's run of that number."""
    return 2 * number + 1


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


NAMES_MAX = 7
"""A slot has as many fields behind its sequence."""

_NAME_SIZE = 16
_BITS = 7
_SHORT_SIZE = 9
"""Characters of a member's name: a letter and up to eight digits (``members/roster.py``)."""


def name_cells(name: NodeId) -> tuple[int, int]:
    """A name of up to 16 ASCII characters."""
    content = name.encode("ascii").ljust(_NAME_SIZE, b"\0")
    assert len(content) == _NAME_SIZE, name
    return int.from_bytes(content[:8], "big"), int.from_bytes(content[8:], "big")


def name_of(cells: Iterable[int]) -> NodeId:
    """What ``name_cells`` was given."""
    content = b"".join(cell.to_bytes(8, "big") for cell in cells)
    return NodeId(content.rstrip(b"\0").decode("ascii"))


def names_cells(names: Sequence[NodeId]) -> tuple[int, ...]:
    """The first seven of ``names``, one a field: seven bits a character; zeros behind them."""
    found = [_packed(name) for name in names[:NAMES_MAX]]
    return (*found, *(0 for _ in range(NAMES_MAX - len(found))))


def names_of(cells: Iterable[int]) -> frozenset[NodeId]:
    """What ``names_cells`` was given, in no order."""
    return frozenset(_unpacked(cell) for cell in cells if cell)


def _packed(name: NodeId) -> int:
    content = name.encode("ascii")
    assert len(content) <= _SHORT_SIZE, name
    packed = 0
    for character in content:
        packed = packed << _BITS | character
    return packed


def _unpacked(packed: int) -> NodeId:
    content = bytearray()
    while packed:
        content.append(packed & (1 << _BITS) - 1)
        packed >>= _BITS
    return NodeId(content[::-1].decode("ascii"))
