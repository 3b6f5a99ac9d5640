"""What a process uses is measured at most once a second, for memory costs the kernel much."""

from __future__ import annotations

import os
import subprocess

from ledgermq.process.node_status import MEASURE_NS, Meters, Usage

MORE_BYTES = 32 * 1024 * 1024


def test_a_process_is_measured_at_most_once_a_second() -> None:
    meters, pid = Meters(), os.getpid()
    first = meters.usage(pid, 0)
    more = os.urandom(MORE_BYTES)
    soon, later = (meters.usage(pid, now_ns) for now_ns in (MEASURE_NS - 1, MEASURE_NS))

    assert first.rss is not None and first.pss is not None and later.rss is not None
    assert 0 < first.pss <= first.rss
    assert soon == first
    assert later.rss - first.rss > len(more) // 2


def test_of_a_process_that_has_gone_nothing_is_told() -> None:
    meters = Meters()
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        assert meters.usage(process.pid, 0).rss
        meters.forget(process.pid)
    assert process.stdin is not None and process.stdin.closed

    assert meters.usage(process.pid, MEASURE_NS) == Usage(None, None, None)
