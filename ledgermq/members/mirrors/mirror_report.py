"""Mirror report: a file of a mirror's raft process with how far behind its source it is.

``RUNTIME/mirror`` is a JSON list of one object, replaced once a second; not there on other nodes.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypedDict

from ledgermq.members.reports import read_rows, write_rows


class MirrorReport(TypedDict):
    """What a mirror knows of itself and of its source.

    Attributes:
        source: URL of the member that is asked; empty: none answers.
        node, leads, hears: that member, as it has said last, whether it leads, and whether it does
            or hears who does: where not, the source may have more than it knows of.
        trouble: why nothing comes; empty while it does.
        lag_messages, lag_bytes: what the source is known to have committed, and this node lacks.
        lag_s: seconds since this node had all that the source had; None: not since its start.
        silent_s: seconds since a member of the source answered; None: none has since its start.
        held: position up to which this node holds the log durably.
        source_position, source_index: the furthest that the source is known to have committed; 0
            and -1: nothing is known.
        received_bytes: since the process was started.
        marked: position that the source's retention was told; -1: none since the start.
        mark_trouble: why it was not told; empty while it was.
        at_ms: when this was written, epoch milliseconds.
    """

    source: str
    node: str
    leads: bool
    hears: bool
    trouble: str
    lag_messages: int
    lag_bytes: int
    lag_s: float | None
    silent_s: float | None
    held: int
    source_position: int
    source_index: int
    received_bytes: int
    marked: int
    mark_trouble: str
    at_ms: int


def write_mirror_report(path: Path, report: MirrorReport) -> None:
    """Replace the report."""
    write_rows(path, [report])


def read_mirror_report(path: Path) -> MirrorReport | None:
    """The last report; None where no mirror has written one yet."""
    rows: list[MirrorReport] = read_rows(path)
    return rows[0] if rows else None


def latest_word(*reports: MirrorReport | None) -> MirrorReport | None:
    """The last of ``reports`` of a process to which a source has answered."""
    heard = [one for one in reports if one is not None and one["silent_s"] is not None]
    return max(heard, key=lambda one: one["at_ms"], default=None)
