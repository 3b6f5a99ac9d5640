"""How many calls does a message make in each process of a group, and in its client?

A call is one of a Python function or of a builtin, as ``sys.setprofile`` tells of them, in the
thread of a process's loop. The number does not depend on the machine, or hardly: a slow one may
find two things done in one turn that a fast one does in two. Beside it stand turns of the loops,
and switches of all threads of a process, ZeroMQ's among them, counted in a run without a profile.

One message in flight of our own client; messages that are there, read by it, and taken singly by a
member of a share group, in batches of 32; and the way through
the port of RocketMQ's clients, whose process is the broker's unless there are to be port processes:
one message in flight, 32 of one connection, and pulls of one message each. Then one message in
flight at a node alone.

Estimate beforehand: 800 in the leader's raft process, 400 in a follower's, 320 in the leader's
writer, as a review counted them; 250 in the port, whose messages make the same calls behind it.

    python -m bench.message_calls [--ack MODE] [--messages N] [--way NAME] [--port-processes N]
                                  [--top N] [--without-writers] [--smoke]
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
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import groupby, islice
from pathlib import Path
from typing import NamedTuple

from bench.counted.call_counts import CallCounts
from bench.group import BenchGroup, bench_group
from bench.machine import write
from bench.message_cost import PULLED, QUEUES, Load, PortClient, spent_by, spent_by_all
from bench.processes import end_in_order, processes_of, role_of
from ledgermq.client import Admin, Consumer, Producer, ShareConsumer, ShareOptions

TOPIC = "cost"
SIZE = 1024
PATIENCE_S = 60.0
LOOK_AGAIN_S = 0.01
IDLE_S = 3.0
BATCH = 32
FIRST = 50
"""Messages that open sessions, topics and files before it counts."""

ROLES = ("raft", "writer", "dispatcher", "broker")
PORT_ROLE = "port"
PACKAGE = "ledgermq/"

Calls = Counter[str]
Figures = dict[str, object]
Send = Callable[[int], object]
"""Sends, or pulls, so many messages."""


class Way(NamedTuple):
    """One way of a message; ``in_flight`` is 0 for what is not sent."""

    name: str
    is_own: bool
    in_flight: int
    members: int = 3


WAYS = (
    Way("own client", True, 1),
    Way("own consumer", True, 0),
    Way("share consumer", True, 0),
    Way("port, 1 in flight", False, 1),
    Way("port, 32 in flight", False, 32),
    Way("port, pulls", False, 0),
    Way("own client, one node", True, 1, members=1),
)


def count_in_processes(folder: Path) -> None:
    """Have nodes that are started from now on count when they are told to, and write it there."""
    folder.mkdir()
    os.environ["LEDGERMQ_BENCH_CALLS"] = str(folder)
    counter = str(Path(__file__).with_name("counted"))
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [counter, *filter(None, [os.environ.get("PYTHONPATH")])]
    )


def toggle(group: BenchGroup) -> dict[int, str]:
    """Begin or end the count in all processes but the supervisors; who is who."""
    leader = group.leader()
    found: dict[int, str] = {}
    for node in group.nodes:
        part = "leader" if node is leader else "follower"
        for process in processes_of(node.pid):
            role = role_of(process)
            if role in ROLES or role.startswith(PORT_ROLE):
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


def idle_calls(group: BenchGroup, folder: Path) -> dict[str, Calls]:
    """What they call in ``IDLE_S`` while nobody sends."""
    toggle(group)
    time.sleep(IDLE_S)
    return collect(folder, toggle(group))


def shown(name: str) -> str:
    """A function's name as a reader finds it: its file within the package."""
    return name[name.rindex(PACKAGE) + len(PACKAGE) :] if PACKAGE in name else name


@contextmanager
def sending(group: BenchGroup, way: Way, messages: int) -> Iterator[Send]:
    """A client that sends, or reads, as ``way`` says; so many ``messages`` twice."""
    if way.is_own and not way.in_flight:
        with Producer(group.addresses) as producer:
            for _ in range(FIRST + 2 * messages + 3 * BATCH):
                producer.send(TOPIC, bytes(SIZE))
            producer.flush(PATIENCE_S)
        if way.name == "share consumer":
            options = ShareOptions(max_in_flight=BATCH)
            with ShareConsumer(
                group.addresses, group="calls", topic=TOPIC, options=options
            ) as member:
                yield partial(_accept, member)
            return
        with Consumer(group.addresses, topic=TOPIC, start="first") as consumer:
            read = iter(consumer)
            yield lambda count: deque(islice(read, count), 0)
        return
    if way.is_own:
        with Producer(group.addresses) as producer:

            def send(count: int) -> None:
                for _ in range(count):
                    producer.send(TOPIC, bytes(SIZE)).result(PATIENCE_S)

            yield send
        return
    leader = group.leader()
    port = PortClient(leader, group.port_of(leader))
    if way.in_flight:
        yield partial(_send_all, port, way)
    else:
        fill(port)
        yield port.pull
    port.close()


def _accept(member: ShareConsumer, count: int) -> None:
    """Take at least so many messages, and have them settled."""
    while count > 0:
        messages = member.poll(PATIENCE_S)
        if not messages:
            raise TimeoutError("there are no messages to take")
        member.accept(*messages)
        count -= len(messages)
    member.flush()


def fill(port: PortClient) -> None:
    """Have messages there to be pulled."""
    port.send(Load("fill", 32, 1, PULLED * QUEUES))
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            port.pull(PULLED)
        except RuntimeError:
            # They are not dispatched yet.
            if time.monotonic() > until:
                raise
            time.sleep(LOOK_AGAIN_S)
        else:
            return


def _send_all(port: PortClient, way: Way, count: int) -> None:
    port.send(Load(way.name, way.in_flight, 1, count))


def measured(group: BenchGroup, folder: Path, way: Way, messages: int, top: int) -> Figures:
    """Calls a message by process, less what they call without any, turns and switches."""
    own = CallCounts()
    # In the threads that the client starts from now on, and in this one.
    threading.setprofile(own)
    sys.setprofile(own)
    with sending(group, way, messages) as send:
        send(max(FIRST, way.in_flight))
        toggle(group)
        own.take()
        begin = time.monotonic()
        send(messages)
        client, seconds = own.take(), time.monotonic() - begin
        counted = collect(folder, toggle(group))
        sys.setprofile(None)
        threading.setprofile(None)
        switches = switched(group, send, messages)
    idle = idle_calls(group, folder)
    figures: Figures = {}
    print(f"{way.name}:")
    if way.is_own:
        row = {
            "calls": round(client.total() / messages, 1),
            "switches": round(switches["client"] / messages, 2),
        }
        figures["client"] = row
        figures["switches"] = round(switches.total() / messages, 2)
        print(f"  all processes: {figures['switches']} switches")
        print(f"  client: {row['calls']} calls, {row['switches']} switches")
        show(client, messages, top)
    for name, calls in sorted(counted.items(), reverse=True):
        each = messages * (2 if name.startswith("follower") else 1)
        called = {function: times / each for function, times in calls.items()}
        row = {
            "calls": sum(called.values()) - idle[name].total() * seconds / IDLE_S / each,
            "turns": _of(called, "Worker.turn"),
            "switches": switches[name] / each,
        }
        if name.endswith("broker"):
            # They come by time: a slow machine has more of them for a message.
            row["whole turns"] = _of(called, ":Services.turn")
        figures[name] = row = {what: round(number, 2) for what, number in row.items()}
        print(f"  {name}: " + ", ".join(f"{number} {what}" for what, number in row.items()))
        show(calls, each, top)
    return figures


def _of(called: dict[str, float], name: str) -> float:
    return sum(times for function, times in called.items() if function.endswith(name))


def wait_for_tables(group: BenchGroup) -> None:
    """Wait until the leader's broker knows its topics: before that the port refuses messages."""
    until = time.monotonic() + PATIENCE_S
    broker = Admin(group.leader().address)
    while not any(row.topic == TOPIC for row in broker.topics()):
        if time.monotonic() > until:
            raise TimeoutError("topic is not known")
        time.sleep(LOOK_AGAIN_S)
    broker.close()


def switched(group: BenchGroup, send: Send, messages: int) -> Counter[str]:
    """How often the threads of each process wait for something, of their own accord."""
    before, own = spent_by_all(group), spent_by(os.getpid())
    send(messages)
    found: Counter[str] = Counter()
    for kind, spent in spent_by(os.getpid()).items():
        found["client"] += spent.switches - own[kind].switches
    for key, spent in spent_by_all(group).items():
        part, role, _kind = key
        found[f"{part.removesuffix('s')} {role}"] += spent.switches - before[key].switches
    return found


def show(calls: Calls, each: int, top: int) -> None:
    """The functions that are called most."""
    for called, times in calls.most_common(top):
        print(f"    {times / each:7.2f}  {shown(called)}")


def main() -> None:
    end_in_order()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ack", default="majority-memory", help="acknowledgement mode")
    parser.add_argument("--messages", type=int, default=2_000)
    parser.add_argument("--way", choices=[way.name for way in WAYS], help="this one alone")
    parser.add_argument("--port-processes", type=int, default=1, metavar="N")
    parser.add_argument("--top", type=int, default=0, help="functions to show of each process")
    parser.add_argument(
        "--without-writers", action="store_true", help="raft feeds all members; nothing is kept"
    )
    parser.add_argument("--smoke", action="store_true", help="a short run, nothing is kept")
    given = parser.parse_args()
    messages = 200 if given.smoke else given.messages
    ways = [way for way in WAYS if given.way in (None, way.name)]
    figures: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as scratch:
        calls = Path(scratch, "calls")
        count_in_processes(calls)
        for members, some in groupby(ways, lambda way: way.members):
            with bench_group(
                Path(scratch),
                ack=given.ack,
                curve=members > 1,
                remoting=True,
                port_processes=given.port_processes,
                members=members,
                writers=not given.without_writers,
            ) as group:
                with Producer(group.addresses) as producer:
                    producer.send(TOPIC, bytes(SIZE)).result(PATIENCE_S)
                wait_for_tables(group)
                if not given.without_writers:
                    group.wait_for_runs()
                for way in some:
                    found = measured(group, calls, way, messages, given.top)
                    # Those of our own client stand where they have always stood.
                    figures |= found if way == WAYS[0] else {way.name: found}
    if given.smoke or given.way or given.without_writers:
        return
    write(
        "message_calls",
        {
            "ack": given.ack,
            "size": SIZE,
            "messages": messages,
            "port_processes": given.port_processes,
            **figures,
        },
    )


if __name__ == "__main__":
    main()
