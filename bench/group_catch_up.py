"""How fast does a member catch up that was away for some GiB, and what do producers lose by it?

The member is stopped, the others take the load until it lacks so much, and it comes back while the
load goes on: once all that two members take, once half of that, and once nothing. Its rate is
compared with what the disk gives a plain write with an fsync at the end, and loopback a plain TCP
connection, for as many bytes and in the same run; producers with what they had before it came back.

Estimate beforehand: an entry passes CURVE twice (some 1 GB/s a core), the follower's CRC check,
ring and write (together 1 GB/s), and dispatch: 300 MB/s if a core were free for it. Under full load
on two cores it has to share them with two nodes and the producers.

    python -m bench.group_catch_up [--gib N] [--ack MODE] [--no-curve] [--smoke] [--directory DIR]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from bench.group import BenchGroup, GroupNode, bench_group
from bench.group_load import Load, group_load, rate_of
from bench.machine import write
from bench.processes import end_in_order
from bench.yardsticks import disk_mb_per_s, loopback_mb_per_s

PRODUCERS = 2
BATCH = 64
SIZE = 1024
IN_FLIGHT = 16
LOADS = {"all that is taken": 1.0, "half of that": 0.5, "none": 0.0}
"""What goes on during the catch-up, as a share of what two members take at most."""

SETTLED_S = 3.0
FILL_TIMEOUT_S = 1_800.0
CATCH_UP_TIMEOUT_S = 1_800.0
LOOK_EVERY_S = 0.02
NEXT_TO_NONE = 0.001
CLOSE_BYTES = 16 * 1024 * 1024
"""Nearer to the leader's end a member counts as caught up: so much may be under way at any time."""


def fill(group: BenchGroup, away: GroupNode, begin: int, size: int) -> None:
    """Wait until ``away`` lacks ``size`` bytes from position ``begin`` on."""
    assert not away.runs
    until = time.monotonic() + FILL_TIMEOUT_S
    while group.committed() - begin < size:
        if time.monotonic() > until:
            raise TimeoutError(f"{size} bytes are not taken within {FILL_TIMEOUT_S} s")
        time.sleep(0.1)


def follow(group: BenchGroup, back: GroupNode, begin: int) -> tuple[int, int, int]:
    """Wait until ``back`` has caught up.

    Returns:
        When its log began to grow, and when it had caught up (CLOCK_MONOTONIC, ns); bytes between.
    """
    begin_ns = 0
    until = time.monotonic() + CATCH_UP_TIMEOUT_S
    while time.monotonic() < until:
        # Its end first: the leader's is not older than what it is compared with.
        standing = back.standing()
        if standing is not None and standing.written > begin:
            begin_ns = begin_ns or time.monotonic_ns()
            if group.committed() - standing.written <= CLOSE_BYTES:
                return begin_ns, time.monotonic_ns(), standing.written - begin
        time.sleep(LOOK_EVERY_S)
    raise TimeoutError(f"{back.name} does not catch up; {group.complaints()}")


def run(
    base: Path, *, gib: float, ack: str, curve: bool, share: float, seconds: float
) -> dict[str, object]:
    """One absence; MB/s and messages a second.

    Args:
        share: of the load that two members take at most, which goes on during the catch-up.
        seconds: for which the load is measured before and after.
    """
    size = int(gib * 2**30)
    wanted = Load(BATCH, SIZE, IN_FLIGHT)
    with (
        tempfile.TemporaryDirectory(dir=base) as own,
        bench_group(Path(own), ack=ack, curve=curve) as group,
        group_load(group.addresses, Path(own), load=wanted, producers=PRODUCERS) as load,
    ):
        time.sleep(SETTLED_S)
        with_three = load.rate(seconds)
        away = next(node for node in group.nodes if not node.leads())
        if away.stop() != 0:
            raise RuntimeError(f"{away.name} did not stop cleanly: {away.complaints()}")
        last = away.last_standing()
        assert last is not None
        fill(group, away, last.written, size)
        full = load.rate(seconds)
        if share < 1:
            load.tell(
                wanted._replace(messages_per_second=max(full * share / PRODUCERS, NEXT_TO_NONE))
            )
            time.sleep(SETTLED_S)
        before = load.rate(seconds)
        elections = group.term()
        started_ns = time.monotonic_ns()
        load.take()
        away.start()
        begin_ns, end_ns, copied = follow(group, away, last.written)
        during = rate_of(load.take(), begin_ns, end_ns)
        after = load.rate(seconds)
        elections = group.term() - elections
        complaints = group.complaints()
    return {
        "caught_up_mb_per_s": round(copied / (end_ns - begin_ns) * 1_000, 1),
        "caught_up_gib": round(copied / 2**30, 3),
        "caught_up_after_s, start of the node included": round((end_ns - started_ns) / 1e9, 2),
        "messages_per_second_of_three_at_first": round(with_three),
        "messages_per_second_before": round(before),
        "messages_per_second_during": round(during),
        "messages_per_second_after": round(after),
        "producers_slowed_by_percent": round((1 - during / before) * 100, 1) if before else None,
        "elections": elections,
        "lines_of_warnings_and_errors": len(complaints),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gib", type=float, help="default: 5, and 0.2 with --smoke")
    parser.add_argument("--ack", default="majority-fsync", help="ack.mode (default: %(default)s)")
    parser.add_argument("--curve", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--smoke", action="store_true", help="a short run, nothing is kept")
    parser.add_argument("--directory", type=Path, help="where stores are made")
    given = parser.parse_args()
    end_in_order()
    gib = given.gib or (0.2 if given.smoke else 5.0)
    seconds = 3.0 if given.smoke else 10.0
    with tempfile.TemporaryDirectory(dir=given.directory) as scratch:
        base = Path(scratch)
        disk = disk_mb_per_s(base, int(gib * 2**30))
        loopback = loopback_mb_per_s(int(gib * 2**30))
        figures: dict[str, object] = {
            "away_gib": gib,
            "ack_mode": given.ack,
            "curve": given.curve,
            "load": f"{PRODUCERS} producers, batches of {BATCH}, {SIZE} bytes, "
            f"{IN_FLIGHT} in flight",
            "disk_mb_per_s": round(disk, 1),
            "loopback_mb_per_s": round(loopback, 1),
        }
        for name, share in LOADS.items():
            found = run(
                base, gib=gib, ack=given.ack, curve=given.curve, share=share, seconds=seconds
            )
            rate = found["caught_up_mb_per_s"]
            assert isinstance(rate, float)
            found["per_cent_of_the_slower_of_disk_and_loopback"] = round(
                rate / min(disk, loopback) * 100, 1
            )
            figures[f"load: {name}"] = found
            print(f"{name}: {found}", flush=True)
    if given.smoke:
        print(figures)
    else:
        write("group_catch_up", figures)


if __name__ == "__main__":
    main()
