"""How soon after kill -9 of one process does the node serve again?

Estimate beforehand: the supervisor learns of a death at once and forks a child that has its modules
already; raft and writer then agree on a new grant: some 30 ms until the next acknowledgement. Those
of dispatcher and broker are not missed by producers, but by consumers, who connect anew. The
supervisor takes all with it; started again at once (systemd adds ``RestartSec``), the node pays two
starts of the interpreter and the recovery of its log's end: 0.4 s.

    python -m bench.recovery_after_kill [--smoke] [--directory DIR]
"""

from __future__ import annotations

import argparse
import os
import signal
import struct
import subprocess
import tempfile
import threading
import time
from functools import partial
from pathlib import Path

from bench.machine import spread, write
from bench.node import COMMAND, BenchNode, bench_node
from bench.processes import is_alive
from ledgermq.client import BatchResult, Consumer, Producer
from ledgermq.client.sending.send_future import SendFuture
from ledgermq.ipc.cursor_page import CursorPage, Role
from ledgermq.model.errors import LedgerError

TOPIC = "bench"
VICTIMS = (Role.RAFT, Role.WRITER, Role.DISPATCHER, Role.BROKER, Role.SUPERVISOR)
MANY_RESTARTS = "[supervision]\nrestarts_max = 1000\n"
BATCH = 10
SIZE = 256
PAUSE_S = 0.002
PATIENCE_S = 30.0
SETTLED_S = 0.5
_SENT = struct.Struct(f">q{SIZE - 8}x")


class Watch:
    """When the first message that was sent after a kill was acknowledged, and when received."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._killed_ns = self._since_ns = 0
        self._after_s: dict[str, float] = {}

    def begin(self, killed_ns: int) -> None:
        """Look for messages that are sent from now on; times count from ``killed_ns``."""
        with self._changed:
            self._killed_ns = killed_ns
            self._since_ns = time.monotonic_ns()
            self._after_s.clear()

    def note(self, what: str, sent_ns: int) -> None:
        """A message that was sent at ``sent_ns`` was acknowledged, or received."""
        if sent_ns <= self._since_ns or what in self._after_s:
            return
        with self._changed:
            self._after_s[what] = (time.monotonic_ns() - self._killed_ns) / 1e9
            self._changed.notify_all()

    def wait(self) -> tuple[float, float]:
        """Seconds until the acknowledgement, and until the receipt."""
        with self._changed:
            whole = self._changed.wait_for(lambda: len(self._after_s) == 2, PATIENCE_S)
            assert whole, f"no service within {PATIENCE_S} s: {self._after_s}"
            return self._after_s["acknowledged"], self._after_s["received"]


def produce(address: str, watch: Watch, stop: threading.Event) -> None:
    """Send small batches, several under way, whatever dies."""

    def note(sent_ns: int, future: SendFuture[BatchResult]) -> None:
        if future.exception(0) is None:
            watch.note("acknowledged", sent_ns)

    with Producer(address) as producer:
        while not stop.wait(PAUSE_S):
            sent_ns = time.monotonic_ns()
            producer.send_batch(
                TOPIC, [_SENT.pack(sent_ns)] * BATCH, callback=partial(note, sent_ns)
            )


def consume(address: str, watch: Watch, stop: threading.Event) -> None:
    """Receive what is sent, whatever dies."""
    with Consumer(address, topic=TOPIC, start="last") as consumer:
        while not stop.is_set():
            try:
                batch = consumer.poll(0.2)
            except LedgerError:
                # The broker is away for longer than a question waits: ask again.
                continue
            if len(batch):
                watch.note("received", *_SENT.unpack(batch[-1].body))


def pid_of(node: BenchNode, role: Role) -> int:
    """The process that runs as ``role``; waits until it has entered its page."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        with CursorPage.attach(node.runtime / "cursors") as page:
            pid = page.read_process(role).pid
        if pid and is_alive(pid):
            return pid
        time.sleep(0.01)
    raise TimeoutError(f"{role.title} does not run")


def kill(
    node: BenchNode, supervisor: subprocess.Popen[bytes], role: Role, watch: Watch
) -> tuple[subprocess.Popen[bytes], tuple[float, float]]:
    """Kill one process; the supervisor of now, and when the node served again."""
    if role is Role.SUPERVISOR:
        # Its children die with it, a moment later.
        dying = [pid_of(node, one) for one in VICTIMS]
        victim = supervisor.pid
    else:
        victim = pid_of(node, role)
        dying = [victim]
    killed_ns = time.monotonic_ns()
    os.kill(victim, signal.SIGKILL)
    if role is Role.SUPERVISOR:
        supervisor.wait(PATIENCE_S)
        config = node.directory / "ledgermq.toml"
        supervisor = subprocess.Popen([*COMMAND, "serve", "--config", str(config)])
    while any(map(is_alive, dying)):
        time.sleep(0.000_5)
    watch.begin(killed_ns)
    return supervisor, watch.wait()


def run(base: Path, *, ack: str, times: int) -> dict[str, dict[str, object]]:
    """Kill every process so often; seconds by process."""
    figures: dict[str, dict[str, object]] = {}
    watch, stop = Watch(), threading.Event()
    with bench_node(base, ack=ack, more=MANY_RESTARTS) as node:
        supervisor = node.process
        with Producer(node.address) as producer:
            producer.send(TOPIC, b"so that the topic is there").result()
        threads = [
            threading.Thread(target=work, args=(node.address, watch, stop))
            for work in (produce, consume)
        ]
        for thread in threads:
            thread.start()
        watch.begin(time.monotonic_ns())
        watch.wait()
        try:
            for role in VICTIMS:
                measured = []
                for _ in range(times):
                    supervisor, seconds = kill(node, supervisor, role, watch)
                    measured.append(seconds)
                    # Every death meets a node that had settled.
                    time.sleep(SETTLED_S)
                acknowledged, received = zip(*measured, strict=True)
                figures[role.title] = {
                    "next_acknowledgement_s": spread(acknowledged),
                    "next_message_received_s": spread(received),
                }
        finally:
            stop.set()
            for thread in threads:
                thread.join()
            supervisor.terminate()
            supervisor.wait(PATIENCE_S)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a short run, nothing is kept")
    parser.add_argument("--directory", type=Path, help="where stores are made")
    given = parser.parse_args()
    times = 2 if given.smoke else 20
    figures: dict[str, object] = {"kills_each": times, "batch": BATCH, "body_bytes": SIZE}
    with tempfile.TemporaryDirectory(dir=given.directory) as scratch:
        for ack in ("majority-fsync", "majority-memory"):
            figures[ack] = run(Path(scratch), ack=ack, times=times)
    if given.smoke:
        print(figures)
    else:
        write("recovery_after_kill", figures)


if __name__ == "__main__":
    main()
