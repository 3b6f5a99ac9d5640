"""What do RocketMQ's clients cost a node while nothing happens: connections, and pulls that wait?

Estimate beforehand: a connection is a socket, an object and a heartbeat's worth of text: 5 KiB of
the broker process, 50 MiB for 10,000. A pull that waits is answered every 15 s, as Java's push
consumers ask for it, and is asked for again at once: 133 a second for 2,000, at 130 µs both ways,
are 1.7 % of a core; their heartbeats, 67 a second, are another 0.5 %.

    python -m bench.remoting_idle [--smoke] [--directory DIR]
"""

from __future__ import annotations

import argparse
import json
import select
import socket
import tempfile
import time
from pathlib import Path

import psutil

from bench.machine import spread, write
from bench.node import BenchNode, bench_node
from bench.processes import end_in_order, processes_of
from ledgermq.client import Admin
from ledgermq.remoting.codes import RequestCode
from ledgermq.remoting.command import Command, decode_command, encode_command
from ledgermq.remoting.frames import FrameSplitter
from ledgermq.remoting.pull_request import SUSPEND

QUEUES = 500
TOPIC = "bench"
SUSPEND_MS = 15_000
HEARTBEAT_S = 30.0


def heartbeat(number: int, group: str) -> bytes:
    """What Java's push consumer tells of itself, the client of this number."""
    wanted = {
        "classFilterMode": False,
        "codeSet": [],
        "expressionType": "TAG",
        "subString": "*",
        "subVersion": 1,
        "tagsSet": [],
        "topic": TOPIC,
    }
    consumer = {
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "consumeType": "CONSUME_PASSIVELY",
        "groupName": group,
        "messageModel": "CLUSTERING",
        "subscriptionDataSet": [wanted],
        "unitMode": False,
    }
    body = {
        "clientID": f"127.0.0.1@{number}",
        "consumerDataSet": [consumer],
        "producerDataSet": [{"groupName": "CLIENT_INNER_PRODUCER"}],
    }
    return json.dumps(body).encode()


class Client:
    """One connection: a consumer that heartbeats and, if told to, always has a pull that waits."""

    def __init__(self, port: int, number: int) -> None:
        self.number = number
        self.group = f"group-{number % 1_000}"
        self.socket = socket.create_connection(("127.0.0.1", port))
        self._splitter = FrameSplitter()
        self.replies = 0
        self.is_beating = False
        self.due_s = 0.0

    def send(self, code: int, fields: dict[str, str], body: bytes = b"") -> None:
        """Send a request."""
        command = Command(code, self.number, fields, body)
        self.socket.sendall(b"".join(encode_command(command)))

    def beat(self, now_s: float) -> None:
        """Tell the broker what Java's consumer tells it."""
        self.due_s = now_s + HEARTBEAT_S
        self.send(RequestCode.HEART_BEAT, {}, heartbeat(self.number, self.group))

    def pull(self) -> None:
        """Ask for what is not there."""
        self.send(
            RequestCode.PULL_MESSAGE,
            {
                "consumerGroup": self.group,
                "topic": TOPIC,
                "queueId": str(self.number % QUEUES),
                "queueOffset": "0",
                "maxMsgNums": "32",
                "sysFlag": str(SUSPEND),
                "commitOffset": "0",
                "suspendTimeoutMillis": str(SUSPEND_MS),
                "subVersion": "1",
                "expressionType": "TAG",
            },
        )

    def take(self) -> int:
        """Replies to pulls that have come."""
        pulls = 0
        for frame in self._splitter.feed(self.socket.recv(65_536)):
            command = decode_command(frame)
            if command.is_reply:
                self.replies += 1
                pulls += "nextBeginOffset" in command.fields
        return pulls


class Clients:
    """All of them, driven by one loop."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._poll = select.epoll()
        self.all: dict[int, Client] = {}

    def connect(self, count: int) -> None:
        """Connect so many more, each with its heartbeat answered."""
        for _ in range(count):
            client = Client(self._port, len(self.all))
            self.all[client.socket.fileno()] = client
            self._poll.register(client.socket.fileno(), select.EPOLLIN)
            client.beat(time.monotonic())
            while not client.replies:
                self.turn(1.0)

    def turn(self, timeout_s: float, *, polls: bool = False) -> int:
        """Take what has come; with ``polls`` each pull that ended begins anew. How many did."""
        ended = 0
        for fd, _ in self._poll.poll(timeout_s):
            client = self.all[fd]
            for _ in range(client.take()):
                ended += 1
                if polls:
                    client.pull()
        return ended

    def live(self, seconds: float, *, polls: bool) -> int:
        """Heartbeat, and pull anew, for so long; how many pulls have ended."""
        end = time.monotonic() + seconds
        order = sorted(self.all.values(), key=lambda client: client.due_s)
        ended = at = 0
        while (now := time.monotonic()) < end:
            while at < len(order) and order[at].due_s <= now:
                order[at].beat(now)
                at += 1
            if at == len(order):
                order, at = sorted(order, key=lambda client: client.due_s), 0
            next_s = min(end, order[at].due_s)
            ended += self.turn(max(0.0, min(1.0, next_s - now)), polls=polls)
        return ended

    def close(self) -> None:
        """End all."""
        for client in self.all.values():
            client.socket.close()
        self._poll.close()


def broker_of(node: BenchNode) -> psutil.Process:
    """The process that has the port."""
    (found,) = (one for one in processes_of(node.process.pid) if "broker" in one.name())
    return found


def cpu_s(process: psutil.Process) -> float:
    """CPU that a process has used."""
    return float(sum(process.cpu_times()[:2]))


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def measured(base: Path, *, connections: int, polls: int, seconds: float) -> dict[str, float]:
    """One run's figures."""
    port = free_port()
    listen = f'remoting = "127.0.0.1:{port}"\n'
    with bench_node(base, ack="majority-memory", listen=listen) as node:
        with Admin(node.address) as admin:
            admin.create_topic(TOPIC, queues=QUEUES)
        broker, clients = broker_of(node), Clients(port)
        try:
            before = broker.memory_info().rss
            clients.connect(polls)
            for client in list(clients.all.values()):
                client.pull()
            clients.live(min(seconds, SUSPEND_MS / 1_000), polls=True)
            used = cpu_s(broker)
            begin = time.monotonic()
            ended = clients.live(seconds, polls=True)
            poll_cpu = (cpu_s(broker) - used) / (time.monotonic() - begin) * 100
            clients.connect(connections - polls)
            after = broker.memory_info().rss
        finally:
            clients.close()
    return {
        "broker_rss_mib": round(after / 2**20, 1),
        "of_it_for_connections_mib": round((after - before) / 2**20, 1),
        "polls_ended": ended,
        "polls_cpu_percent_of_one_core": round(poll_cpu, 2),
    }


def main() -> None:
    end_in_order()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a short run, nothing is kept")
    parser.add_argument("--directory", type=Path, help="where stores are made")
    given = parser.parse_args()
    connections, polls, seconds, runs = (
        (200, 100, 1.0, 1) if given.smoke else (10_000, 2_000, 60.0, 3)
    )
    rows = []
    for _ in range(runs):
        with tempfile.TemporaryDirectory(dir=given.directory) as scratch:
            rows.append(
                measured(Path(scratch), connections=connections, polls=polls, seconds=seconds)
            )
    figures: dict[str, object] = {
        "connections": connections,
        "polls": polls,
        "runs": runs,
        "suspend_ms": SUSPEND_MS,
        "heartbeat_s": HEARTBEAT_S,
        **{name: spread([row[name] for row in rows]) for name in rows[0]},
    }
    if given.smoke:
        print(figures)
    else:
        write("remoting_idle", figures)


if __name__ == "__main__":
    main()
