"""What does a message cost each process of a group: processor time, and how often it is woken?

The kernel counts both for each thread, so a busy machine disturbs them little: a switch that a
thread made of its own accord (it waited for something) is a wake-up of it. Our own client, one
message in flight, beside a client of RocketMQ's protocol: one in flight, 32 of one connection, and
batches. ZeroMQ's threads of a process stand beside its loop.

Estimate beforehand: with one in flight every thread on the way is woken at most twice for each
message, there and back: writer, raft and their ZeroMQ threads at the leader, raft and writer at the
followers. Who is not on the way (dispatchers, the followers' brokers) should hardly be woken.

    python -m bench.message_cost [--ack MODE] [--no-curve] [--smoke] [--directory DIR]
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from bench.group import BenchGroup, GroupNode, bench_group
from bench.machine import write
from bench.processes import end_in_order, processes_of, role_of
from ledgermq.client import Producer
from ledgermq.remoting.codes import RequestCode, ResponseCode
from ledgermq.remoting.command import Command, decode_command, encode_command
from ledgermq.remoting.frames import FrameSplitter

TOPIC = "cost"
QUEUES = 4
SIZE = 1024
PATIENCE_S = 60.0
READ_SIZE = 256 * 1024

PULLED = 40
"""Messages at a queue's beginning that are pulled, again and again."""

_ZMQ_THREAD = "ZMQbg"
_UNIT_HEAD = 20
"""Of a batch's unit: its size, two fields left 0, flags, size of the body."""


class Spent(NamedTuple):
    """What a thread, or several, have used so far."""

    cpu_ns: int
    switches: int

    def plus(self, other: Spent) -> Spent:
        """Both together."""
        return Spent(self.cpu_ns + other.cpu_ns, self.switches + other.switches)


class Load(NamedTuple):
    """One way of sending; ``batch`` messages a request, 0 for our own client."""

    name: str
    in_flight: int
    batch: int
    requests: int


LOADS = (
    Load("own client, 1 in flight", 1, 0, 2_000),
    Load("port, 1 in flight", 1, 1, 2_000),
    Load("port, 32 in flight", 32, 1, 8_000),
    Load("port, 512 in flight", 512, 1, 16_000),
    Load("port, 4 batches of 32", 4, 32, 1_500),
    Load("port, 8 batches of 256", 8, 256, 800),
)


def spent_by(pid: int) -> dict[str, Spent]:
    """What the threads of a process have used: its loop's and others', and ZeroMQ's."""
    found: dict[str, Spent] = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):
            kind = "zmq" if _ZMQ_THREAD in (task / "comm").read_text() else "own"
            cpu_ns = int((task / "schedstat").read_text().split()[0])
            lines = (task / "status").read_text().splitlines()
            (switches,) = [line for line in lines if line.startswith("voluntary_ctxt_switches")]
            spent = Spent(cpu_ns, int(switches.split()[1]))
            found[kind] = found.get(kind, Spent(0, 0)).plus(spent)
    return found


def spent_by_all(group: BenchGroup) -> dict[tuple[str, str, str], Spent]:
    """By node's part (leader, follower), process and kind of thread; the followers together."""
    leader = group.leader()
    found: dict[tuple[str, str, str], Spent] = {}
    for node in group.nodes:
        part = "leader" if node is leader else "followers"
        for process in processes_of(node.pid):
            for kind, spent in spent_by(process.pid).items():
                key = part, role_of(process), kind
                found[key] = found.get(key, Spent(0, 0)).plus(spent)
    return found


class PortClient:
    """One connection of RocketMQ's protocol to the leader."""

    def __init__(self, node: GroupNode, port: int) -> None:
        self._node = node
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._splitter = FrameSplitter()
        self._sent: dict[int, int] = {}
        self._next = 0

    def send(self, load: Load) -> list[int]:
        """Send all of a load; the nanoseconds that each request took."""
        body = bytes(SIZE) if load.batch == 1 else _unit(bytes(SIZE)) * load.batch
        took: list[int] = []
        self._ask(body, load, min(load.in_flight, load.requests))
        begun = load.in_flight
        while self._sent:
            count = 0
            for frame in self._splitter.feed(self._socket.recv(READ_SIZE)):
                reply = decode_command(frame)
                if reply.code != ResponseCode.SUCCESS:
                    raise RuntimeError(f"refused: {reply.code} {reply.remark}")
                took.append(time.monotonic_ns() - self._sent.pop(reply.opaque))
                count += 1
            count = min(count, load.requests - begun)
            if count > 0:
                begun += count
                self._ask(body, load, count)
        return took

    def _ask(self, body: bytes, load: Load, count: int) -> None:
        code = RequestCode.SEND_MESSAGE_V2 if load.batch == 1 else RequestCode.SEND_BATCH_MESSAGE
        for _ in range(count):
            self._next += 1
            fields = {
                "a": "bench", "b": TOPIC, "c": "TBW102", "d": str(QUEUES),
                "e": str(self._next % QUEUES), "f": "0", "g": str(time.time_ns() // 1_000_000),
                "h": "0", "i": "KEYS\x01k\x02UNIQ_KEY\x017F00000100002A139A5518B4AAC2%04X\x02"
                % (self._next & 0xFFFF), "j": "0", "k": "false", "m": str(load.batch > 1).lower(),
            }  # fmt: skip
            parts = encode_command(Command(code, self._next, fields, body))
            self._sent[self._next] = time.monotonic_ns()
            # Each by itself, as the threads of a Java producer do.
            self._socket.sendall(b"".join(parts))

    def pull(self, count: int) -> None:
        """Pull so many messages of a queue's beginning, one by one."""
        for number in range(count):
            self._next += 1
            fields = {
                "consumerGroup": "bench", "topic": TOPIC, "queueId": "0",
                "queueOffset": str(number % PULLED), "maxMsgNums": "1", "sysFlag": "4",
                "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*",
                "subVersion": "0",
            }  # fmt: skip
            request = Command(RequestCode.PULL_MESSAGE, self._next, fields)
            self._socket.sendall(b"".join(encode_command(request)))
            reply = None
            while reply is None:
                for frame in self._splitter.feed(self._socket.recv(READ_SIZE)):
                    reply = decode_command(frame)
            if reply.code != ResponseCode.SUCCESS:
                raise RuntimeError(f"pull refused: {reply.code} {reply.remark}")

    def close(self) -> None:
        """Disconnect."""
        self._socket.close()


def _unit(body: bytes) -> bytes:
    properties = b"KEYS\x01k\x02"
    size = _UNIT_HEAD + len(body) + 2 + len(properties)
    head = size.to_bytes(4, "big") + bytes(12) + len(body).to_bytes(4, "big")
    return head + body + len(properties).to_bytes(2, "big") + properties


def send_own(group: BenchGroup, load: Load) -> list[int]:
    """The same with our own client: a message, and the wait for its answer."""
    took = []
    body = bytes(SIZE)
    with Producer(group.addresses) as producer:
        for _ in range(load.requests):
            begin = time.monotonic_ns()
            producer.send(TOPIC, body).result(PATIENCE_S)
            took.append(time.monotonic_ns() - begin)
    return took


def measured(group: BenchGroup, load: Load, send: Callable[[Load], list[int]]) -> dict[str, object]:
    """One load's figures, for each message."""
    before, own, begin = spent_by_all(group), spent_by(os.getpid())["own"], time.monotonic()
    took = send(load)
    seconds = time.monotonic() - begin
    after, own_after = spent_by_all(group), spent_by(os.getpid())["own"]
    messages = load.requests * max(1, load.batch)
    rows: dict[str, dict[str, float]] = {"client": _share(own, own_after, messages)}
    for key in sorted(after):
        row = _share(before.get(key, Spent(0, 0)), after[key], messages)
        if any(row.values()):
            rows[" ".join(key).removesuffix(" own")] = row
    return {
        "messages_per_second": round(messages / seconds),
        "p50_ms": round(statistics.median(took) / 1e6, 3),
        "cpu_us": round(sum(row["cpu_us"] for row in rows.values()), 1),
        "switches": round(sum(row["switches"] for row in rows.values()), 2),
        "of": rows,
    }


def _share(before: Spent, after: Spent, messages: int) -> dict[str, float]:
    return {
        "cpu_us": round((after.cpu_ns - before.cpu_ns) / 1_000 / messages, 1),
        "switches": round((after.switches - before.switches) / messages, 2),
    }


def show(name: str, figures: dict[str, object]) -> None:
    """A table of one load."""
    head = f"{figures['messages_per_second']}/s, p50 {figures['p50_ms']} ms"
    print(f"{name}: {head}, cpu {figures['cpu_us']} us, switches {figures['switches']}")
    rows = figures["of"]
    assert isinstance(rows, dict)
    for who, row in rows.items():
        print(f"  {who:28} {row['cpu_us']:8.1f} us {row['switches']:7.2f} switches", flush=True)


def main() -> None:
    end_in_order()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ack", default="majority-memory", help="acknowledgement mode")
    parser.add_argument("--curve", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--smoke", action="store_true", help="a short run, nothing is kept")
    parser.add_argument("--directory", type=Path, help="where stores are made")
    given = parser.parse_args()
    figures: dict[str, object] = {"ack": given.ack, "curve": given.curve, "size": SIZE}
    with (
        tempfile.TemporaryDirectory(dir=given.directory) as scratch,
        bench_group(Path(scratch), ack=given.ack, curve=given.curve, remoting=True) as group,
    ):
        leader = group.leader()
        group.wait_for_runs()
        port = PortClient(leader, group.port_of(leader))
        for load in LOADS:
            shorter = load._replace(requests=max(load.in_flight, load.requests // 10))
            send = port.send if load.batch else lambda load: send_own(group, load)
            # Topics are made, sessions begun and files opened before it counts.
            send(shorter)
            found = measured(group, shorter if given.smoke else load, send)
            show(load.name, found)
            figures[load.name] = found
        port.close()
    if not given.smoke:
        write("message_cost", figures)


if __name__ == "__main__":
    main()
