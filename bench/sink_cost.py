"""What does a row of a sink cost each process of a group: processor time, calls, bytes of the log?

One client without Spark stages rows, and then commits them, upon which they are moved to where
consumers find them; the two steps are told apart. The kernel counts a thread's processor time, so a
busy machine disturbs it little. Calls of functions depend on no machine; they are counted in a run
of their own (``--calls``), for the count makes all slow.

Estimate beforehand (docs/decisions/0038): 25 us for a row of 100 bytes, 67
for one of 1 KiB; staging takes 10 and 31 of them, moving what was staged the rest.

    python -m bench.sink_cost [--ack MODE] [--rows N] [--calls] [--top N] [--smoke]
        [--directory DIR]
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from bench.group import BenchGroup, bench_group
from bench.machine import write
from bench.message_calls import Calls, collect, shown, toggle
from bench.message_cost import Spent, spent_by, spent_by_all
from bench.processes import end_in_order
from ledgermq.client.staging import SinkClient, StagedRows, StageWriter, staging_producer

TOPIC = "bench"
BODY_SIZES = (100, 1024)
ROWS_A_BATCH = 10_000
"""As many as Spark hands to Python at a time."""

PATIENCE_S = 60.0
LOOK_AGAIN_S = 0.005
ACK = "majority-fsync"


class Step(NamedTuple):
    """What one step has cost all together."""

    cpu_us: dict[str, float]
    log_bytes: float
    seconds: float


def settle(group: BenchGroup) -> int:
    """Wait until all nodes have dispatched what is committed; where the log ends."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        end = group.committed()
        standings = [node.standing() for node in group.nodes]
        if all(one is not None and one.dispatched >= end for one in standings):
            return end
        time.sleep(LOOK_AGAIN_S)
    raise TimeoutError("not all is dispatched")


class MadeRows(NamedTuple):
    """Rows of one batch of Spark's: bodies, and encoded properties."""

    bodies: list[bytes]
    properties: list[bytes]


def made_rows(rows: int, size: int) -> list[MadeRows]:
    """What ``stage`` is given: it is not to be measured how these are made."""
    return [
        MadeRows(
            [str(one).rjust(size, "x").encode() for one in numbers],
            [b"TAGS\x01%d\x02KEYS\x01%d\x02UNIQ_KEY\x01" % (one % 7, one) for one in numbers],
        )
        for first in range(0, rows, ROWS_A_BATCH)
        for numbers in [range(first, min(first + ROWS_A_BATCH, rows))]
    ]


def stage(group: BenchGroup, sink: str, made: list[MadeRows]) -> StagedRows:
    """Stage rows as a task of Spark's does, queue by queue."""
    with staging_producer(group.addresses, name="bench") as producer:
        queues = producer.write_queues(TOPIC)
        writer = StageWriter(producer, sink, 0)
        for number, rows in enumerate(made):
            writer.add(TOPIC, number % queues, rows.bodies, rows.properties)
        return writer.finish()


def measured(group: BenchGroup, rows: int, act: Callable[[], None]) -> Step:
    """What ``act`` costs until all nodes are done with it, for each row."""
    begin_position = settle(group)
    before, own = spent_by_all(group), spent_by(os.getpid())["own"]
    begin = time.monotonic()
    act()
    end_position = settle(group)
    seconds = time.monotonic() - begin
    after = spent_by_all(group)
    spent = {"client": (own, spent_by(os.getpid())["own"])}
    for key in sorted(after):
        name = " ".join(key).removesuffix(" own")
        spent[name] = before.get(key, Spent(0, 0)), after[key]
    return Step(
        {
            name: (last.cpu_ns - first.cpu_ns) / 1_000 / rows
            for name, (first, last) in spent.items()
        },
        (end_position - begin_position) / rows,
        seconds,
    )


def one_batch(group: BenchGroup, rows: int, size: int) -> dict[str, Step]:
    """Both steps of one batch."""
    sink = f"bench-{uuid.uuid4().hex}"
    made = made_rows(rows, size)
    staged: list[StagedRows] = []
    found = {"staged": measured(group, rows, lambda: staged.append(stage(group, sink, made)))}

    def commit() -> None:
        with SinkClient(group.addresses, name="bench") as client:
            client.commit(sink, 0, staged, is_once=True)
            client.wait(sink, 0)

    found["moved"] = measured(group, rows, commit)
    return found


def costs(group: BenchGroup, rows: int, size: int, runs: int) -> dict[str, object]:
    """Medians of several batches; the first one, which makes topics and files, does not count."""
    batches = [one_batch(group, rows, size) for _ in range(runs + 1)][1:]
    figures: dict[str, object] = {}
    for name in ("staged", "moved"):
        steps = [batch[name] for batch in batches]
        of = {
            who: round(statistics.median(step.cpu_us.get(who, 0.0) for step in steps), 2)
            for who in steps[0].cpu_us
        }
        of = {who: cpu_us for who, cpu_us in of.items() if cpu_us >= 0.05}
        all_of = [sum(step.cpu_us.values()) for step in steps]
        figures[name] = {
            "cpu_us": round(statistics.median(all_of), 2),
            "log_bytes": round(statistics.median(step.log_bytes for step in steps), 1),
            "of": of,
        }
        print(
            f"{size} bytes, {name}: cpu {statistics.median(all_of):.2f} us"
            f" ({min(all_of):.2f} to {max(all_of):.2f}),"
            f" {statistics.median(step.log_bytes for step in steps):.0f} bytes of the log,"
            f" {statistics.median(rows / step.seconds for step in steps):.0f} rows/s"
        )
        for who, cpu_us in of.items():
            print(f"  {who:28} {cpu_us:8.2f} us", flush=True)
    return figures


def counted_calls(
    group: BenchGroup, folder: Path, rows: int, size: int, top: int
) -> dict[str, object]:
    """Calls of functions a row in each process of the nodes, by step."""
    figures: dict[str, object] = {}
    one_batch(group, rows, size)
    sink = f"bench-{uuid.uuid4().hex}"
    made = made_rows(rows, size)
    toggle(group)
    staged = stage(group, sink, made)
    settle(group)
    figures["staged"] = _show_calls(collect(folder, toggle(group)), rows, top, f"{size}, staged")
    toggle(group)
    with SinkClient(group.addresses, name="bench") as client:
        client.commit(sink, 0, [staged], is_once=True)
        client.wait(sink, 0)
    settle(group)
    figures["moved"] = _show_calls(collect(folder, toggle(group)), rows, top, f"{size}, moved")
    return figures


def _show_calls(counted: dict[str, Calls], rows: int, top: int, name: str) -> dict[str, float]:
    found = {}
    for who, calls in sorted(counted.items(), reverse=True):
        each = rows * (2 if who.startswith("follower") else 1)
        found[who] = round(calls.total() / each, 3)
        print(f"{name}: {who}: {found[who]} calls a row")
        for called, times in calls.most_common(top):
            print(f"    {times / each:7.3f}  {shown(called)}", flush=True)
    return found


def main() -> None:
    end_in_order()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ack", default=ACK, help="acknowledgement mode (default: %(default)s)")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--calls", action="store_true", help="count calls, not time")
    parser.add_argument("--top", type=int, default=0, help="functions to show of each process")
    parser.add_argument("--smoke", action="store_true", help="a short run, nothing is kept")
    parser.add_argument("--directory", type=Path, help="where stores are made")
    given = parser.parse_args()
    rows = min(given.rows, 20_000) if given.smoke else given.rows
    figures: dict[str, object] = {"ack": given.ack, "rows": rows}
    with tempfile.TemporaryDirectory(dir=given.directory) as scratch:
        folder = Path(scratch)
        if given.calls:
            _prepare_counts(folder)
        with bench_group(folder, ack=given.ack, curve=True) as group:
            for size in BODY_SIZES:
                if given.calls:
                    counted_calls(group, folder / "calls", rows, size, given.top)
                else:
                    runs = 1 if given.smoke else given.runs
                    figures[f"{size} bytes"] = costs(group, rows, size, runs)
    if not given.smoke and not given.calls:
        write("sink_cost", figures)


def _prepare_counts(folder: Path) -> None:
    """Have the nodes that are started next count their calls."""
    (folder / "calls").mkdir()
    os.environ["LEDGERMQ_BENCH_CALLS"] = str(folder / "calls")
    counter = str(Path(__file__).with_name("counted"))
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [counter, *filter(None, [os.environ.get("PYTHONPATH")])]
    )


if __name__ == "__main__":
    main()
