"""What a process uses is measured at most once a second, for memory costs the kernel much."""

from __future__ import annotations

import subprocess
import sys

from ledgermq.process.node_status import MEASURE_NS, Meters, Usage

MORE_BYTES = 32 * 1024 * 1024


GROWS = f"input(); more = b'x' * {MORE_BYTES}; print(len(more), flush=True); input()"


def test_a_process_is_measured_at_most_once_a_second() -> None:
    meters = Meters()
    with subprocess.Popen(
        [sys.executable, "-S", "-c", GROWS], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as grows:
        assert grows.stdin is not None and grows.stdout is not None
        first = meters.usage(grows.pid, 0)
        grows.stdin.write(b"\n")
        grows.stdin.flush()
        assert int(grows.stdout.readline()) == MORE_BYTES
        soon, later = (meters.usage(grows.pid, now_ns) for now_ns in (MEASURE_NS - 1, MEASURE_NS))
        grows.stdin.write(b"\n")

    assert first.rss is not None and first.pss is not None and later.rss is not None
    assert 0 < first.pss <= first.rss
    assert soon == first
    assert later.rss - first.rss > MORE_BYTES // 2


def test_of_a_process_that_has_gone_nothing_is_told() -> None:
    meters = Meters()
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        assert meters.usage(process.pid, 0).rss
        meters.forget(process.pid)
    assert process.stdin is not None and process.stdin.closed

    assert meters.usage(process.pid, MEASURE_NS) == Usage(None, None, None)
