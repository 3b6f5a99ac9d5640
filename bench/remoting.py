"""What do RocketMQ's own Java clients get of a group of three, beside RocketMQ with DLedger?

With ``--single`` the same of one node, beside one broker of RocketMQ: its memory beside the page
cache (``ASYNC_FLUSH``), and in both modes the disk (``SYNC_FLUSH``). A run of it takes seven
minutes on two cores; what was found is printed system by system, and kept at the end alone.

The same load program and the same consumer, unchanged, against both: one in flight, 32 threads,
the async client with two threads (256 unanswered each), batches of 32 by four threads and of 256
by eight, all of 1 KiB; then a push consumer of a new group reads what was sent. At the end the
leader of ours is killed while a producer sends, and the longest time without an acknowledgement
counts. RocketMQ acknowledges what a majority has in memory; ours does in ``majority-memory``, and
``majority-fsync`` is measured beside it.

Estimate beforehand: three nodes and a JVM share two cores. A request costs its JSON header some
10 us in Python, its record 4 us and the three nodes' shares, besides what the JVM takes: some
10,000 messages a second singly. A batch costs its header once: several times DLedger's rate.

    python -m bench.remoting [--single] [--no-rocketmq] [--no-curve] [--runs N] [--smoke]
                             [--directory DIR]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from bench.group import bench_group, free_ports
from bench.machine import spread, write
from bench.node import bench_node
from bench.processes import end_in_order
from bench.rivals import rocketmq

SIZE = 1024
MODES = ("majority-memory", "majority-fsync")
RIVAL = "rocketmq 4.9.4 with dledger, a majority's memory"
SINGLE_RIVALS = ("rocketmq 4.9.4 with ASYNC_FLUSH", "rocketmq 4.9.4 with SYNC_FLUSH")
"""Beside each of our modes, where either is one node."""

KILL_AFTER_S = 6.0
FAIL_OVER_S = 20.0
LESS_THAN_S = 1.5
"""What the longest time without an acknowledgement must be below, when a leader is killed."""


class Load(NamedTuple):
    """One way of sending; ``clients`` are threads of one producer."""

    name: str
    mode: str
    clients: int


LOADS = (
    Load("1 in flight", "sync", 1),
    Load("32 in flight", "sync", 32),
    Load("async", "async", 2),
    Load("batches of 32", "batch32", 4),
    Load("batches of 256", "batch256", 8),
)
Figures = dict[str, float]


def loads(name_servers: str, *, seconds: float) -> Figures:
    """All ways of sending, one after the other, and what is read of it in the end."""
    # What is measured is not the compilation of a broker's code.
    rocketmq.load(name_servers, mode="async", clients=2, size=SIZE, seconds=seconds)
    figures: Figures = {}
    failed = 0
    for one in LOADS:
        done = rocketmq.load(
            name_servers, mode=one.mode, clients=one.clients, size=SIZE, seconds=seconds
        )
        figures[f"{one.name}, messages/s"] = done.messages_per_second
        if one.mode != "async":
            # Of the async client it is the time of handing over.
            figures[f"{one.name}, p50 ms"] = done.p50_ms
            figures[f"{one.name}, p99 ms"] = done.p99_ms
        failed += done.failed
    figures["consume, messages/s"] = rocketmq.consume(name_servers, seconds=seconds + 4)
    figures["sends that failed"] = failed
    return figures


def run_ledgermq(base: Path, *, ack: str, curve: bool, seconds: float) -> Figures:
    """All of it on one group of ours, and the death of its leader."""
    with bench_group(base, ack=ack, curve=curve, remoting=True) as group:
        figures = loads(group.name_servers, seconds=seconds)

        def kill_leader() -> None:
            time.sleep(KILL_AFTER_S)
            group.leader().kill()

        figures["leader killed, longest gap s"] = rocketmq.longest_gap_s(
            group.name_servers, seconds=FAIL_OVER_S, during=kill_leader
        )
    return figures


def run_rocketmq(base: Path, *, seconds: float) -> Figures:
    """The same loads on RocketMQ."""
    with rocketmq.rocketmq_group(base) as name_server:
        return loads(name_server, seconds=seconds)


def run_single(base: Path, *, ack: str, seconds: float) -> Figures:
    """The loads on one node of ours."""
    port = free_ports(1)[0]
    address, own = f"127.0.0.1:{port}", f"[node]\nlisten_port = {port}\n"
    with bench_node(base, ack=ack, more=own, listen=f'remoting = "{address}"\n'):
        return loads(address, seconds=seconds)


def run_broker(base: Path, *, is_synced: bool, seconds: float) -> Figures:
    """The loads on one broker of RocketMQ."""
    with rocketmq.rocketmq_node(base, is_synced=is_synced) as name_server:
        return loads(name_server, seconds=seconds)


def add_row(rows: dict[str, list[Figures]], name: str, run: Callable[[], Figures]) -> None:
    """What ``run`` measures, as one more row of ``name``."""
    rows.setdefault(name, []).append(run())
    print(name, rows[name][-1], flush=True)


def measure_single(
    base: Path, *, runs: int, seconds: float, with_rocketmq: bool
) -> dict[str, list[Figures]]:
    """One node of each in turn, in both modes, so many times over."""
    rows: dict[str, list[Figures]] = {}
    add = partial(add_row, rows)
    for _ in range(runs):
        for mode, rival in zip(MODES, SINGLE_RIVALS, strict=True):
            add(f"ledgermq {mode}", partial(run_single, base, ack=mode, seconds=seconds))
            if with_rocketmq:
                is_synced = rival is not SINGLE_RIVALS[0]
                add(rival, partial(run_broker, base, is_synced=is_synced, seconds=seconds))
    return rows


def measure(
    base: Path, *, runs: int, seconds: float, curve: bool, with_rocketmq: bool
) -> dict[str, list[Figures]]:
    """Every system in turn, so many times over."""
    rows: dict[str, list[Figures]] = {}
    add = partial(add_row, rows)
    for _ in range(runs):
        for ack in MODES:
            run = partial(run_ledgermq, base, ack=ack, curve=curve, seconds=seconds)
            add(f"ledgermq {ack}", run)
        if with_rocketmq:
            add(RIVAL, partial(run_rocketmq, base, seconds=seconds))
    return rows


def compared(rows: dict[str, list[Figures]], mode: str, rival: str) -> dict[str, float]:
    """Ours over theirs where both promise the same; medians of all runs."""
    ours, theirs = (
        {name: spread([one[name] for one in rows[system]])["median"] for name in rows[system][0]}
        for system in (f"ledgermq {mode}", rival)
    )
    return {
        name: round(ours[name] / value, 2)
        for name, value in theirs.items()
        if value and not name.startswith("sends")
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--single", action="store_true", help="one node of each")
    parser.add_argument("--no-rocketmq", action="store_true", help="ours alone")
    parser.add_argument("--curve", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--runs", type=int, default=3, metavar="N", help="of each (3)")
    parser.add_argument("--smoke", action="store_true", help="a short run, nothing is kept")
    parser.add_argument("--directory", type=Path, help="where stores are made")
    given = parser.parse_args()
    end_in_order()
    if rocketmq.program() is None:
        parser.exit(0, "no oracle.py, Java or Maven: there are no Java clients to measure with\n")
    seconds, runs = (2.0, 1) if given.smoke else (10.0, given.runs)
    with_rocketmq = not given.no_rocketmq
    with tempfile.TemporaryDirectory(dir=given.directory) as scratch:
        if given.single:
            rows = measure_single(
                Path(scratch), runs=runs, seconds=seconds, with_rocketmq=with_rocketmq
            )
        else:
            rows = measure(
                Path(scratch),
                runs=runs, seconds=seconds, curve=given.curve, with_rocketmq=with_rocketmq,
            )  # fmt: skip
    figures: dict[str, object] = {
        "size": SIZE,
        "seconds": seconds,
        "runs": runs,
        "client": "rocketmq-client 4.9.4, Java, on the same machine",
        **{
            system: {name: spread([one[name] for one in found]) for name in found[0]}
            for system, found in rows.items()
        },
    }
    if not given.single:
        figures |= {"curve": given.curve, "gap_is_below": gap_is_below(rows)}
    pairs = zip(MODES, SINGLE_RIVALS, strict=True) if given.single else [(MODES[0], RIVAL)]
    for mode, rival in pairs if with_rocketmq else ():
        figures[f"{mode} over {rival}"] = compared(rows, mode, rival)
    if given.smoke:
        print(figures)
    else:
        write("remoting_single" if given.single else "remoting", figures)


def gap_is_below(rows: dict[str, list[Figures]]) -> dict[str, object]:
    """Whether clients went on soon enough whenever a leader was killed."""
    name = "leader killed, longest gap s"
    gaps = [one[name] for system, found in rows.items() if system != RIVAL for one in found]
    return {"s": LESS_THAN_S, "in_all_runs": max(gaps) < LESS_THAN_S}


if __name__ == "__main__":
    main()
