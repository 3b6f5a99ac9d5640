"""What of the work of RocketMQ's clients do port processes take off the broker process?

Pulls of 32 messages of 1 KiB, eight under way on each of four connections, and sends of such a
message, one under way on each: processor time of the broker process and of all port processes
together for each of them, with 1 (the broker alone) and 2 processes.

Estimate beforehand: of a pull the broker keeps its share of a commit, some 5 us; of a send nothing;
all else is the same work elsewhere, in turns that fewer connections share.

    python -m bench.port_processes [--smoke] [--directory DIR]
"""

from __future__ import annotations

import argparse
import select
import tempfile
import time
from pathlib import Path

import psutil

from bench.machine import write
from bench.node import BenchNode, bench_node
from bench.processes import end_in_order, processes_of
from bench.remoting_idle import TOPIC, free_port
from bench.remoting_pulls import BODY, QUEUES, Client, cpu_ns, fill
from ledgermq.client import Admin
from ledgermq.remoting.codes import RequestCode
from ledgermq.remoting.command import Command, encode_command

CONNECTIONS = 4
PROCESSES = (1, 2)


class Sender(Client):
    """One connection that sends, too."""

    def send(self, queue: int) -> None:
        """Store a message, whose reply has the queue's number."""
        values = ("bench", TOPIC, "TBW102", 4, queue, 0, 1_700_000_000_000, 0, "", 0, "false")
        fields = {key: str(value) for key, value in zip("abcdefghijk", values, strict=True)}
        command = Command(RequestCode.SEND_MESSAGE_V2, queue, fields, BODY)
        self._socket.sendall(b"".join(encode_command(command)))

    def fileno(self) -> int:
        """The socket's."""
        return self._socket.fileno()


def used_ns(node: BenchNode) -> dict[str, int]:
    """Processor time of the broker, and of the port processes."""
    found = {"broker": 0, "ports": 0}
    for process in processes_of(node.process.pid):
        name = process.name()
        for role, word in (("broker", "broker"), ("ports", "port-")):
            if word in name:
                found[role] += cpu_ns(psutil.Process(process.pid))
    return found


def pulls(clients: list[Sender], count: int, each: int) -> None:
    """So many pulls, over all connections."""
    offsets = [[0] * QUEUES for _ in clients]
    for client in clients:
        for queue in range(QUEUES):
            client.pull(queue, 0, 32)
    done = 0
    under_way = len(clients) * QUEUES
    while under_way:
        ready, _, _ = select.select(clients, [], [], 30.0)
        assert ready, "nothing more comes"
        for client in ready:
            own = offsets[clients.index(client)]
            for reply in client.replies():
                assert reply.code == 0, reply
                done += 1
                under_way -= 1
                offset = int(reply.fields["nextBeginOffset"])
                own[reply.opaque] = 0 if offset >= each else offset
                if done < count:
                    under_way += 1
                    client.pull(reply.opaque, own[reply.opaque], 32)


def sends(clients: list[Sender], count: int) -> None:
    """So many messages, over all connections."""
    for number, client in enumerate(clients):
        client.send(number)
    sent = under_way = len(clients)
    while under_way:
        ready, _, _ = select.select(clients, [], [], 30.0)
        assert ready, "nothing more comes"
        for client in ready:
            for reply in client.replies():
                assert reply.code == 0, reply
                under_way -= 1
                if sent < count:
                    sent += 1
                    under_way += 1
                    client.send(reply.opaque)


def measure(scratch: Path, processes: int, *, each: int, count: int) -> dict[str, float]:
    """Microseconds of each pull and each send, by process."""
    port = free_port()
    figures: dict[str, float] = {}
    with bench_node(
        scratch,
        ack="majority-memory",
        listen=f'remoting = "127.0.0.1:{port}"\n',
        more=f"[remoting]\nprocesses = {processes}\n",
    ) as node:
        with Admin(node.address) as admin:
            admin.create_topic(TOPIC, queues=QUEUES)
        fill(node.address, each)
        clients = [Sender(port) for _ in range(CONNECTIONS)]
        for client in clients:
            client.beat()
        for what in ("pull", "send"):
            before, begin = used_ns(node), time.perf_counter()
            if what == "pull":
                pulls(clients, count, each)
            else:
                sends(clients, count)
            took, after = time.perf_counter() - begin, used_ns(node)
            for role, used in after.items():
                figures[f"us_of_a_{what}_in_{role}"] = (used - before[role]) / count / 1_000
            figures[f"{what}s_a_second"] = count / took
        for client in clients:
            client.close()
    return figures


def main() -> None:
    end_in_order()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a short run, nothing is kept")
    parser.add_argument("--directory", type=Path, help="where stores are made")
    given = parser.parse_args()
    each, count = (1_024, 1_000) if given.smoke else (8_192, 20_000)
    with tempfile.TemporaryDirectory(dir=given.directory) as scratch:
        figures: dict[str, object] = {
            "requests": count,
            "connections": CONNECTIONS,
            **{
                f"{processes} processes": measure(Path(scratch), processes, each=each, count=count)
                for processes in PROCESSES
            },
        }
    if given.smoke:
        print(figures)
    else:
        write("port_processes", figures)


if __name__ == "__main__":
    main()
