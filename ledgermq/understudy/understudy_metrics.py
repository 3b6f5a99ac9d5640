"""Metrics of an understudy, for the textfile collector of a node exporter.

Its process listens nowhere: what it says of itself each second is made into such a file by whoever
wants it.
"""

from __future__ import annotations

from collections.abc import Iterator

from ledgermq.conversion.understudy_note import UnderstudyNote
from ledgermq.understudy.understudy_status import FollowingState, UnderstudyStatus

_MS_PER_S = 1_000


def metrics_text(note: UnderstudyNote, status: UnderstudyStatus | None, *, runs: bool) -> str:
    """What is known of a folder, in Prometheus' text format.

    Args:
        status: what its process has told last; None: it has never run.
        runs: there is a process.
    """
    lines: list[str] = []
    for name, told, value in _samples(note, status, runs=runs):
        full = f"ledgermq_understudy_{name}"
        lines += [f"# HELP {full} {told}", f"# TYPE {full} gauge", f"{full} {value}"]
    return "\n".join(lines)


def _samples(
    note: UnderstudyNote, status: UnderstudyStatus | None, *, runs: bool
) -> Iterator[tuple[str, str, float]]:
    yield "promoted", "1: the folder is a node's store.", int(note.promoted_at_ms is not None)
    is_following = runs and status is not None and status.state == FollowingState.FOLLOWING
    yield "following", "1: a process runs, and has a connection to the master.", int(is_following)
    if status is None:
        return
    yield "durable_bytes", "Position before which all of the log is on the disk.", status.durable
    yield "dispatched_bytes", "Position before which all is in the queues.", status.dispatched
    if status.master_end >= 0:
        told = "What the master had more at the last look."
        yield "lag_bytes", told, status.lag_bytes
    if status.confirmed >= 0:
        told = "What is here and not said to be confirmed, of an elected master."
        yield "unconfirmed_bytes", told, status.unconfirmed_bytes
    told = "When topics, groups and offsets were asked for."
    yield "tables_timestamp_seconds", told, status.tables_at_ms / _MS_PER_S
    told = "When the process has told this."
    yield "told_timestamp_seconds", told, status.told_at_ms / _MS_PER_S
