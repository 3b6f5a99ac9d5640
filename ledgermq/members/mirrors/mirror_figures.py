"""Figures of mirrors: what a mirror says of itself, and what a source knows of each one.

The command, the API and the console tell these, and no others.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple, TypedDict

from ledgermq.members.mirrors.mirror_report import MirrorReport
from ledgermq.rules.tables.archives import MIRROR_PREFIX

STALE_MS = 5_000
"""A report is written each second: one that is older is of a process that does not run."""

SILENT_MS = 660_000
"""A mirror tells what it holds every five minutes, and when a leader is gone a little later."""


class OwnState(StrEnum):
    """What a mirror is doing.

    ``COPIES``: a member of the source answers. ``DEAF``: one that hears no leader, so there may be
    more. ``STUCK``: nothing comes, and ``trouble`` says why. ``STOPPED``: its raft process does not
    run.
    """

    COPIES = "copies"
    DEAF = "deaf"
    STUCK = "stuck"
    STOPPED = "stopped"


class HeldState(StrEnum):
    """Whether a mirror has told its source lately what it holds."""

    HEARD = "heard"
    SILENT = "silent"


class OwnMirror(MirrorReport):
    """What this node's mirror has told last, with how old that is.

    Attributes:
        running: its process has told within the last seconds.
        age_s: since it did.
        state: see ``OwnState``.
    """

    running: bool
    age_s: float
    state: str


class EntriesLag(NamedTuple):
    """Entries that a copy lacks, and the age of the oldest of them in seconds; None: not known."""

    messages: int | None
    seconds: float | None


class HeldMirror(TypedDict):
    """A mirror for which retention waits, as its source knows it.

    Attributes:
        mirror: its name, as ``mirror add`` was given.
        position: up to where it has said to hold the log, durably.
        behind: committed bytes behind that.
        lag_messages: committed entries behind that; None: the log does not reach so far back.
        lag_s: age of the oldest of them.
        at_ms: when it has said so, epoch milliseconds.
        state: see ``HeldState``.
    """

    mirror: str
    position: int
    behind: int
    lag_messages: int | None
    lag_s: float | None
    at_ms: int
    state: str


def own_mirror(report: MirrorReport, now_ms: int) -> OwnMirror:
    """What a mirror is doing, by its last report."""
    age_ms = now_ms - report["at_ms"]
    is_running = age_ms < STALE_MS
    if not is_running:
        state = OwnState.STOPPED
    elif report["trouble"] or not report["source"]:
        state = OwnState.STUCK
    else:
        state = OwnState.COPIES if report["hears"] else OwnState.DEAF
    return {
        "running": is_running,
        "age_s": round(max(0, age_ms) / 1_000, 3),
        "state": state.value,
        **report,
    }


def held_mirror(
    mirror: str, position: int, at_ms: int, *, committed: int, lag: EntriesLag, now_ms: int
) -> HeldMirror:
    """How far a mirror is by its mark, of a log that is committed up to ``committed``."""
    state = HeldState.SILENT if now_ms - at_ms >= SILENT_MS else HeldState.HEARD
    return {
        "mirror": mirror,
        "position": position,
        "behind": max(0, committed - position),
        "lag_messages": lag.messages,
        "lag_s": lag.seconds,
        "at_ms": at_ms,
        "state": state.value,
    }


def mirror_of_mark(archive: str) -> str:
    """Name of the mirror whose mark is called ``archive``; empty: it is no mirror's."""
    return archive.removeprefix(MIRROR_PREFIX) if archive.startswith(MIRROR_PREFIX) else ""
