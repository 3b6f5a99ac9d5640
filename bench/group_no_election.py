"""Does a group of three keep its leader while all cores are busy for half an hour?

Producers send as fast as they are taken. Each minute begins with batches of 1 KiB messages, until
the minute's share of ``--gib`` is written, and goes on with frames of one small message: these cost
as much CPU and little disk, which nothing frees. Every change of a term is counted, and for each
minute the rates, the busy share of all cores, the longest time without an acknowledgement, and the
worst dispatch lag of each node.

Estimate beforehand: a follower campaigns when it hears nothing for 400 ms, four heartbeats; the
raft process of the leader needs some ms a turn. On two cores with some twenty busy processes the
scheduler gives each its turn within 50 ms: no election, with a factor of eight to spare.

    python -m bench.group_no_election [--minutes N] [--gib N] [--ack MODE] [--no-curve] [--smoke]
                                      [--directory DIR]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import psutil

from bench.group import NODES, BenchGroup, bench_group
from bench.group_load import GroupLoad, Load, group_load, longest_gap_s, rate_of
from bench.lag import LagWatch, lag_watch
from bench.machine import spread, write
from bench.processes import end_in_order

PRODUCERS = 2
BATCHES = Load(batch=64, size=1024, in_flight=16)
SINGLY = Load(batch=1, size=100, in_flight=16)
LOOK_EVERY_S = 0.1
MINUTE_S = 60.0


class Minute(NamedTuple):
    """What a minute brought.

    Attributes:
        batches_s: how long of it batches were sent.
        terms: elections.
        dispatch_lag_s: the worst of each node.
    """

    batches_s: float
    batches_per_second: float
    singly_per_second: float
    busy_per_cent: float
    longest_gap_s: float
    failed: int
    terms: int
    leader: str
    dispatch_lag_s: dict[str, float]


def one_minute(
    group: BenchGroup, load: GroupLoad, watch: LagWatch, *, seconds: float, size: int
) -> Minute:
    """Batches until the log has grown by ``size``, then single messages."""
    term, position = group.term(), group.committed()
    psutil.cpu_percent()
    load.take()
    watch.take()
    load.tell(BATCHES)
    begin_ns = time.monotonic_ns()
    end_ns = begin_ns + int(seconds * 1e9)
    while time.monotonic_ns() < end_ns and group.committed() - position < size:
        time.sleep(LOOK_EVERY_S)
    singly_ns = time.monotonic_ns()
    load.tell(SINGLY)
    # However late in its minute: the rate of single messages is measured over something.
    time.sleep(max(1.0, (end_ns - singly_ns) / 1e9))
    end_ns = time.monotonic_ns()
    taken = load.take()
    return Minute(
        batches_s=round((singly_ns - begin_ns) / 1e9, 1),
        batches_per_second=round(rate_of(taken, begin_ns, singly_ns)),
        singly_per_second=round(rate_of(taken, singly_ns, end_ns)),
        busy_per_cent=psutil.cpu_percent(),
        longest_gap_s=round(longest_gap_s(taken, begin_ns, end_ns), 3),
        failed=sum(int((one["messages"] == 0).sum()) for one in taken),
        terms=group.term() - term,
        leader=group.leader().name,
        dispatch_lag_s=watch.take(),
    )


def run(
    base: Path, *, ack: str, curve: bool, minutes: int, seconds: float, gib: float
) -> tuple[list[Minute], int, list[str]]:
    """Minute by minute; the elections of the whole time, and what the nodes complained of."""
    size = int(gib * 2**30 / NODES / minutes)
    done: list[Minute] = []
    with (
        bench_group(base, ack=ack, curve=curve) as group,
        group_load(group.addresses, base, load=SINGLY, producers=PRODUCERS) as load,
        lag_watch({node.name: node.runtime for node in group.nodes}) as watch,
    ):
        term = group.term()
        while len(done) < minutes:
            done.append(one_minute(group, load, watch, seconds=seconds, size=size))
            print(f"{len(done)} of {minutes}: {done[-1]._asdict()}", flush=True)
        return done, group.term() - term, group.complaints()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=int, help="default: 30, and 1 with --smoke")
    parser.add_argument(
        "--gib", type=float, help="disk for the batches on all nodes (default: 1 a minute)"
    )
    parser.add_argument("--ack", default="majority-fsync", help="ack.mode (default: %(default)s)")
    parser.add_argument("--curve", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--smoke", action="store_true", help="a short run, nothing is kept")
    parser.add_argument("--directory", type=Path, help="where stores are made")
    given = parser.parse_args()
    end_in_order()
    minutes = given.minutes or (1 if given.smoke else 30)
    gib = given.gib or minutes
    with tempfile.TemporaryDirectory(dir=given.directory) as scratch:
        done, elections, complaints = run(
            Path(scratch),
            ack=given.ack,
            curve=given.curve,
            minutes=minutes,
            seconds=MINUTE_S,
            gib=gib,
        )
    lags = {name: max(one.dispatch_lag_s[name] for one in done) for name in done[0].dispatch_lag_s}
    figures: dict[str, object] = {
        "minutes": minutes,
        "ack_mode": given.ack,
        "curve": given.curve,
        "producers": PRODUCERS,
        "batches": BATCHES._asdict(),
        "singly": SINGLY._asdict(),
        "elections": elections,
        "batches_per_second": spread([one.batches_per_second for one in done]),
        "singly_per_second": spread([one.singly_per_second for one in done]),
        "busy_per_cent_of_all_cores": spread([one.busy_per_cent for one in done]),
        "longest_gap_between_acks_s": max(one.longest_gap_s for one in done),
        "frames_failed": sum(one.failed for one in done),
        "dispatch_lag_max_s": lags,
        "lines_of_warnings_and_errors": len(complaints),
        "each_minute": [one._asdict() for one in done],
    }
    if given.smoke:
        print(figures)
    else:
        write("group_no_election", figures)


if __name__ == "__main__":
    main()
