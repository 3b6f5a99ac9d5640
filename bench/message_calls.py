"""How many calls does a message make in each process of a group, and in its client?

A call is one of a Python function or of a builtin, as ``sys.setprofile`` tells of them, in the
thread of a process's loop. The number does not depend on the machine, or hardly: a slow one may
find two things done in one turn that a fast one does in two. One message in flight, our own client.

Estimate beforehand: 800 in the leader's raft process, 400 in a follower's, 320 in the leader's
writer, as a review counted them.

    python -m bench.message_calls [--ack MODE] [--messages N] [--top N] [--smoke]
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

from bench.counted.call_counts import CallCounts
from bench.group import BenchGroup, bench_group
from bench.machine import write
from bench.processes import end_in_order, processes_of
from ledgermq.client import Producer

TOPIC = "cost"
SIZE = 1024
PATIENCE_S = 60.0
LOOK_AGAIN_S = 0.01
ROLES = ("raft", "writer", "dispatcher", "broker")
PACKAGE = "ledgermq/"

Calls = Counter[str]


def toggle(group: BenchGroup) -> dict[int, str]:
    """Begin or end the count in all processes but the supervisors; who is who."""
    leader = group.leader()
    found: dict[int, str] = {}
    for node in group.nodes:
        part = "leader" if node is leader else "follower"
        for process in processes_of(node.pid):
            role = process.name().removeprefix("ledgermq: ").partition(" ")[0]
            if role in ROLES:
                process.send_signal(signal.SIGUSR2)
                found[process.pid] = f"{part} {role}"
    return found


def collect(folder: Path, who: dict[int, str]) -> dict[str, Calls]:
    """What each process has counted; the two followers together."""
    until = time.monotonic() + PATIENCE_S
    found: dict[str, Calls] = {}
    for pid, name in who.items():
        path = folder / f"{pid}.json"
        while not path.exists():
            if time.monotonic() > until:
                raise TimeoutError(f"{name} (pid {pid}) has not said what it counted")
            time.sleep(LOOK_AGAIN_S)
        found.setdefault(name, Counter()).update(json.loads(path.read_text()))
        path.unlink()
    return found


def idle_calls(group: BenchGroup, folder: Path, seconds: float) -> dict[str, Calls]:
    """What they call while nobody sends."""
    toggle(group)
    time.sleep(seconds)
    return collect(folder, toggle(group))


def shown(name: str) -> str:
    """A function's name as a reader finds it: its file within the package."""
    return name[name.rindex(PACKAGE) + len(PACKAGE) :] if PACKAGE in name else name


def measured(group: BenchGroup, folder: Path, messages: int, top: int) -> dict[str, object]:
    """Calls a message by process, less what they call without any, and turns of each loop."""
    body = bytes(SIZE)
    own = CallCounts()
    # In the threads that the client starts from now on, and in this one.
    threading.setprofile(own)
    sys.setprofile(own)
    with Producer(group.addresses) as producer:
        for _ in range(50):
            producer.send(TOPIC, body).result(PATIENCE_S)
        toggle(group)
        own.take()
        begin = time.monotonic()
        for _ in range(messages):
            producer.send(TOPIC, body).result(PATIENCE_S)
        client, seconds = own.take(), time.monotonic() - begin
        counted = collect(folder, toggle(group))
    sys.setprofile(None)
    threading.setprofile(None)
    idle = idle_calls(group, folder, seconds)
    figures: dict[str, object] = {"client": {"calls": round(client.total() / messages, 1)}}
    print(f"client: {client.total() / messages:.1f} calls")
    for called, times in client.most_common(top):
        print(f"    {times / messages:7.2f}  {shown(called)}")
    for name, calls in sorted(counted.items(), reverse=True):
        nodes = 2 if name.startswith("follower") else 1
        each = messages * nodes
        turns = sum(times for called, times in calls.items() if called.endswith("CursorPage.beat"))
        total = (calls.total() - idle[name].total()) / each
        row = {"calls": round(total, 1), "turns": round(turns / each, 2)}
        figures[name] = row
        print(f"{name}: {row['calls']} calls in {row['turns']} turns")
        for called, times in calls.most_common(top):
            print(f"    {times / each:7.2f}  {shown(called)}")
    return figures


def main() -> None:
    end_in_order()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ack", default="majority-memory", help="acknowledgement mode")
    parser.add_argument("--messages", type=int, default=2_000)
    parser.add_argument("--top", type=int, default=0, help="functions to show of each process")
    parser.add_argument("--smoke", action="store_true", help="a short run, nothing is kept")
    given = parser.parse_args()
    messages = 200 if given.smoke else given.messages
    with tempfile.TemporaryDirectory() as scratch:
        calls = Path(scratch, "calls")
        calls.mkdir()
        os.environ["LEDGERMQ_BENCH_CALLS"] = str(calls)
        counter = str(Path(__file__).with_name("counted"))
        os.environ["PYTHONPATH"] = os.pathsep.join(
            [counter, *filter(None, [os.environ.get("PYTHONPATH")])]
        )
        with bench_group(Path(scratch), ack=given.ack, curve=True) as group:
            figures = measured(group, calls, messages, given.top)
    if not given.smoke:
        write("message_calls", {"ack": given.ack, "size": SIZE, "messages": messages, **figures})


if __name__ == "__main__":
    main()
