"""Page line of a record: the cursor page as it is at one moment."""

from __future__ import annotations

import time

from ledgermq.ipc.cursor_page import CursorPage
from ledgermq.ipc.time_histogram import BOUNDS_NS, TimeKind, read_times
from ledgermq.model.config.settings import Settings
from ledgermq.process.node_status import (
    cursor_status,
    named_counters,
    raft_status,
    roles_in_use,
)

ABOUT = (
    "the node's cursor page, once a second: cursors, role and term, proof of a majority, put lock,"
    " disk, signs of life, all counters (docs/internals/processes.md; ages in ms, sizes in bytes)"
)


def page_line(page: CursorPage, settings: Settings) -> dict[str, object]:
    """All of it; counters and histograms count from the node's start."""
    now_ns = time.monotonic_ns()
    grant, proof, lock = page.read_grant(), page.read_proof(), page.read_put_lock()
    released, held_by = page.read_released()
    return {
        "generation": page.generation,
        "settings": page.settings_number,
        "raft": raft_status(page, grant, settings),
        "leader": grant.leader,
        "absent": sorted(page.read_absent()),
        "majority_age_ms": _age_ms(proof.majority_ns, now_ns),
        "disk_is_sick": proof.disk_is_sick,
        "lacks_entries": proof.lacks_entries,
        "cursors": cursor_status(page, now_ns),
        "put_lock": {
            "holder": lock.holder,
            "held_ms": _age_ms(lock.since_ns if lock.holder else 0, now_ns),
            "taken": lock.taken,
            "slow": lock.slow,
            "recovered": lock.recovered,
        },
        "space": page.read_space().state.name.lower(),
        "disk_free": page.read_space().free,
        "log_begin": page.read_log_begin()._asdict(),
        "queue_begin": page.read_queue_begin()._asdict(),
        "released": {"position": released, "held_by": held_by.name.lower()},
        "processes": {
            role.title: {
                "pid": (slot := page.read_process(role)).pid,
                "beat_age_ms": _age_ms(slot.beat_ns, now_ns),
                "asleep": slot.asleep,
                "turns": slot.turns,
            }
            for role in roles_in_use(page)
        },
        "counters": named_counters(page),
        "times": {kind.name.lower(): _times(page, kind) for kind in TimeKind},
    }


def _times(page: CursorPage, kind: TimeKind) -> dict[str, object]:
    """A histogram: counts below each bound, and of what took longer than the last one."""
    times = read_times(page, kind)
    bounds = (*(f"{bound // 1_000}us" for bound in BOUNDS_NS), "more")
    counts = {bound: count for bound, count in zip(bounds, times.counts, strict=True) if count}
    return {"sum_ms": times.sum_ns // 1_000_000, "counts": counts}


def _age_ms(then_ns: int, now_ns: int) -> int | None:
    return max(0, now_ns - then_ns) // 1_000_000 if then_ns else None
