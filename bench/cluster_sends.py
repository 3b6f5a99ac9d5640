"""What does a slow or a dead group cost those who send to all groups of a cluster?

Estimate beforehand: a ``ProducerOfGroups`` chooses between ``Producer``s, each with a connection
and a window of its own, so a message of one group never waits for another one's. A group that
ceases to answer is given what comes until the one watched message is overdue: of 200 messages a
second some 20 ms' worth. Then it gets nothing until that one is answered. The others take its
share, at the times that they had before. The choice itself is some ten calls a message.

Three groups of one node each take 200 messages of 1 KiB a second from 20 threads, each of which
waits for its message: all are well; then one is slow (its processes run for 50 ms, and stand for
200); one stands (its host hangs, and nothing is closed); it goes on. Times are those from ``send``
to the acknowledgement, of each group. Counts of calls depend on no machine.

    python -m bench.cluster_sends [--seconds N] [--smoke] [--directory DIR]
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil

from bench.counted.call_counts import CallCounts
from bench.machine import spread, write
from bench.node import BenchNode, bench_node
from bench.processes import end_in_order, processes_of
from bench.remoting_idle import free_port
from ledgermq.client import Producer, ProducerOptions
from ledgermq.model.errors import LedgerError

GROUPS = ("orders-a", "orders-b", "orders-c")
FAULTY = GROUPS[-1]
TOPIC = "bench"
BODY = b"x" * 1024
RATE = 200
"""Messages a second: each by itself, they take three groups on two cores half of their time."""

THREADS = 20
RUNS_S, STANDS_S = 0.05, 0.2
CALLS_OF = 2_000
"""Messages by which calls are counted."""

PATIENT = ProducerOptions(compress_above=None, timeout_s=120.0)

Figures = dict[str, object]


class Load:
    """Sends all the time, and keeps how long each message took."""

    def __init__(self, producer: Producer, groups: dict[str, str]) -> None:
        """Begin.

        Args:
            groups: names by the beginning of the message ids that they give.
        """
        self._producer = producer
        self._groups = groups
        self._lock = threading.Lock()
        self._has_ended = threading.Event()
        self._failures: list[LedgerError] = []
        self._clear()
        self._threads = [
            threading.Thread(target=self._run, args=[number / RATE]) for number in range(THREADS)
        ]
        for thread in self._threads:
            thread.start()

    def measured(self, seconds: float) -> Figures:
        """Figures of the messages that are sent from now on, for so long."""
        with self._lock:
            self._clear()
        time.sleep(seconds)
        with self._lock:
            took, sent = self._took_ms, self._sent
            self._clear()
        answered = sum(map(len, took.values()))
        return {
            "sent": sent,
            "without_answer_at_the_end": sent - answered,
            **{name: _times(found) for name, found in sorted(took.items())},
        }

    def end(self) -> None:
        """Send nothing more, and wait for what is under way.

        Raises:
            LedgerError: a message was not stored.
        """
        self._has_ended.set()
        for thread in self._threads:
            thread.join()
        if self._failures:
            raise self._failures[0]

    def _clear(self) -> None:
        # Answers to what was sent before are counted nowhere.
        self._since = time.perf_counter()
        self._sent = 0
        self._took_ms: dict[str, list[float]] = {}

    def _run(self, wait_s: float) -> None:
        due = time.perf_counter() + wait_s
        while not self._has_ended.wait(max(0.0, due - time.perf_counter())):
            try:
                self._send()
            except LedgerError as error:
                self._failures.append(error)
                return
            # Who was held up does not send faster then.
            due = max(due + THREADS / RATE, time.perf_counter())

    def _send(self) -> None:
        begin = time.perf_counter()
        with self._lock:
            self._sent += 1
        done = self._producer.send(TOPIC, BODY).result()
        took_ms = (time.perf_counter() - begin) * 1_000
        with self._lock:
            if begin >= self._since:
                self._took_ms.setdefault(self._groups[done.offset_message_id[:8]], []).append(
                    took_ms
                )


def _times(found: list[float]) -> Figures:
    found.sort()
    return {"messages": len(found), "p50_ms": _at(found, 50), "p99_ms": _at(found, 99)}


def _at(found: list[float], per_cent: int) -> float:
    return round(found[min(len(found) - 1, len(found) * per_cent // 100)], 2) if found else 0.0


@contextmanager
def slow(processes: list[psutil.Process]) -> Iterator[None]:
    """Let them run for a while, and stand for a longer one."""
    is_over = threading.Event()

    def alternate() -> None:
        while not is_over.wait(RUNS_S):
            signal_all(processes, signal.SIGSTOP)
            is_over.wait(STANDS_S)
            signal_all(processes, signal.SIGCONT)

    thread = threading.Thread(target=alternate)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def signal_all(processes: list[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        process.send_signal(number)


def one_run(base: Path, seconds: float) -> dict[str, Figures]:
    """What is measured of each state of the third group."""
    with ExitStack() as stack:
        nodes: list[BenchNode] = []
        for number, name in enumerate(GROUPS):
            more = f'[node]\nbroker_name = "{name}"\nbroker_ip = "127.0.0.{number + 2}"\n'
            # Its supervisor finds that its processes stood still, and is not to begin them anew.
            more += "[supervision]\nbeat_timeout_ms = 60000\n"
            listen = f'remoting = "127.0.0.1:{free_port()}"\n'
            made = bench_node(base, ack="majority-fsync", listen=listen, more=more)
            nodes.append(stack.enter_context(made))
        for node in nodes:
            with Producer(node.address, options=PATIENT) as one:
                one.send(TOPIC, BODY).result()
        ids = {f"7F0000{number + 2:02X}": name for number, name in enumerate(GROUPS)}
        producer = Producer([f"{node.address}," for node in nodes], options=PATIENT)
        stack.callback(producer.close, 1.0)
        producer.send(TOPIC, BODY).result()
        victims = processes_of(nodes[-1].process.pid)
        load = Load(producer, ids)
        stack.callback(load.end)
        # First of all: what stands is never answered.
        stack.callback(signal_all, victims, signal.SIGCONT)
        load.measured(seconds)
        found = {"all are well": load.measured(seconds)}
        with slow(victims):
            load.measured(1.0)
            found["one is slow"] = load.measured(seconds)
        load.measured(1.0)
        signal_all(victims, signal.SIGSTOP)
        found["one stands, from then on"] = load.measured(seconds)
        signal_all(victims, signal.SIGCONT)
        load.measured(1.0)
        found["it goes on"] = load.measured(seconds)
        return found


def calls_of(base: Path) -> Figures:
    """Calls of the sending thread for one message that nobody waits for, at one group."""
    found: Figures = {}
    with ExitStack() as stack:
        nodes = [
            stack.enter_context(
                bench_node(base, ack="majority-fsync", more=f'[node]\nbroker_name = "{name}"\n')
            )
            for name in GROUPS[:2]
        ]
        for node in nodes:
            with Producer(node.address, options=PATIENT) as one:
                one.send(TOPIC, BODY).result()
        with Producer(nodes[0].address, options=PATIENT) as one:
            found["Producer"] = _counted(one)
        with Producer([f"{nodes[0].address},"], options=PATIENT) as cluster:
            found["ProducerOfGroups, one group"] = _counted(cluster)
        with Producer([f"{node.address}," for node in nodes], options=PATIENT) as cluster:
            found["ProducerOfGroups, two groups"] = _counted(cluster)
    return found


def _counted(producer: Producer) -> float:
    producer.send(TOPIC, BODY).result()
    counts = CallCounts()
    sent = []
    sys.setprofile(counts)
    for _ in range(CALLS_OF):
        sent.append(producer.send(TOPIC, BODY))
    sys.setprofile(None)
    for one in sent:
        one.result()
    return round(sum(counts.take().values()) / CALLS_OF, 1)


def spreads(runs: Sequence[object]) -> Figures:
    """Of each figure its median and its ends over the runs that have it."""
    rows = [run for run in runs if isinstance(run, dict)]
    if not rows:
        return dict(spread([float(str(value)) for value in runs]))
    keys = dict.fromkeys(key for row in rows for key in row)
    return {key: spreads([row[key] for row in rows if key in row]) for key in keys}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, help="of each state; default: 10")
    parser.add_argument("--smoke", action="store_true", help="a short run, nothing is kept")
    parser.add_argument("--directory", type=Path, help="where stores are made")
    given = parser.parse_args()
    end_in_order()
    seconds, count = given.seconds or (2.0 if given.smoke else 10.0), 1 if given.smoke else 3
    with tempfile.TemporaryDirectory(dir=given.directory) as scratch:
        calls = calls_of(Path(scratch))
        runs = [one_run(Path(scratch), seconds) for _ in range(count)]
    figures: Figures = {
        "durability": "majority-fsync, each node a group of its own",
        "body_size": len(BODY),
        "messages_per_second": RATE,
        "seconds": seconds,
        "runs": count,
        "faulty_group": FAULTY,
        "calls_of_a_send": calls,
        **spreads(runs),
    }
    if given.smoke:
        print(figures)
    else:
        write("cluster_sends", figures)


if __name__ == "__main__":
    main()
