"""What does a pull of a RocketMQ client cost the broker process, in processor time?

One connection with a pull of 32 messages of 1 KiB under way for each of 8 queues, as a Java push
consumer has it, each with a commit; the same with one queue; one message a pull; and heartbeats,
each alone. Processor time depends less on what else the machine does than rates do: two trees can
be compared side by side.

Estimate beforehand: 32 KiB through loopback are 15 us of the kernel's time, their CRCs 5 us, one
copy 4 us; a request's header 4 us, and a turn of the loop, shared by what comes in it, 40 us.

    python -m bench.remoting_pulls [--smoke] [--directory DIR]
"""

from __future__ import annotations

import argparse
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

from bench.machine import spread, write
from bench.node import bench_node
from bench.processes import end_in_order
from bench.remoting_idle import TOPIC, broker_of, free_port, heartbeat
from ledgermq.client import Admin, Consumer, Producer
from ledgermq.remoting.codes import RequestCode
from ledgermq.remoting.command import Command, decode_command, encode_command
from ledgermq.remoting.frames import FrameSplitter
from ledgermq.remoting.pull_request import COMMIT_OFFSET, SUSPEND

GROUP = "readers"
BODY = bytes(1024)
QUEUES = 8
BATCH = 64


class Way(NamedTuple):
    """How it is pulled: from so many queues at a time, so many messages each."""

    name: str
    queues: int
    messages: int


WAYS = (
    Way("8 queues, 32 messages a pull", 8, 32),
    Way("1 queue, 32 messages a pull", 1, 32),
    Way("8 queues, 1 message a pull", 8, 1),
)


HEARTBEATS = "heartbeats"


class Client:
    """One connection that pulls."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._splitter = FrameSplitter()
        self._buffer = bytearray(2**20)

    def beat(self) -> None:
        """Join the group."""
        command = Command(RequestCode.HEART_BEAT, body=heartbeat(0, GROUP))
        self._socket.sendall(b"".join(encode_command(command)))
        while not list(self.replies()):
            pass

    def pull(self, queue: int, offset: int, messages: int) -> None:
        """Ask for messages of a queue, whose number the reply repeats."""
        fields = {
            "consumerGroup": GROUP,
            "topic": TOPIC,
            "queueId": str(queue),
            "queueOffset": str(offset),
            "maxMsgNums": str(messages),
            "sysFlag": str(COMMIT_OFFSET | SUSPEND),
            "commitOffset": str(offset),
            "suspendTimeoutMillis": "15000",
            "subVersion": "1",
            "expressionType": "TAG",
        }
        command = Command(RequestCode.PULL_MESSAGE, queue, fields)
        self._socket.sendall(b"".join(encode_command(command)))

    def replies(self) -> Iterator[Command]:
        """Replies that have come; what the broker tells on its own is passed over."""
        size = self._socket.recv_into(self._buffer)
        assert size, "the broker has closed the connection"
        for frame in self._splitter.feed(bytes(self._buffer[:size])):
            command = decode_command(frame)
            if command.is_reply:
                yield command

    def close(self) -> None:
        """End it."""
        self._socket.close()


def fill(address: str, each: int) -> None:
    """So many messages of 1 KiB in each queue, to be read by whoever asks."""
    with Producer(address) as producer:
        for queue in range(QUEUES):
            for _ in range(each // BATCH):
                producer.send_batch(TOPIC, [BODY] * BATCH, queue_id=queue)
        producer.flush()
    with Consumer(address, topic=TOPIC, start="first") as consumer:
        seen = 0
        while seen < each * QUEUES:
            seen += len(consumer.poll(30.0))


def cpu_ns(process: psutil.Process) -> int:
    """Processor time that all threads of a process have used."""
    tasks = Path(f"/proc/{process.pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks)


def measured(
    client: Client, broker: psutil.Process, way: Way, *, each: int, pulls: int
) -> dict[str, float]:
    """Processor time of a pull and of a message, and how many pulls a second there were."""
    offsets = [0] * way.queues
    for queue in range(way.queues):
        client.pull(queue, 0, way.messages)
    done = messages = 0
    used, begin = cpu_ns(broker), time.perf_counter()
    while done < pulls:
        for reply in client.replies():
            assert reply.code == 0, reply
            queue, offset = reply.opaque, int(reply.fields["nextBeginOffset"])
            messages += offset - offsets[queue]
            done += 1
            offsets[queue] = 0 if offset >= each else offset
            client.pull(queue, offsets[queue], way.messages)
    used, took = cpu_ns(broker) - used, time.perf_counter() - begin
    ended = 0
    while ended < way.queues:
        ended += len(list(client.replies()))
    return {
        "us_of_a_pull": used / done / 1_000,
        "us_of_a_message": used / messages / 1_000,
        "messages_a_second": messages / took,
    }


def beaten(client: Client, broker: psutil.Process, *, beats: int) -> dict[str, float]:
    """Processor time of a heartbeat that says nothing new."""
    used = cpu_ns(broker)
    for _ in range(beats):
        client.beat()
    return {"us_of_a_heartbeat": (cpu_ns(broker) - used) / beats / 1_000}


def main() -> None:
    end_in_order()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a short run, nothing is kept")
    parser.add_argument("--directory", type=Path, help="where stores are made")
    given = parser.parse_args()
    each, pulls, runs = (1_024, 500, 1) if given.smoke else (8_192, 10_000, 5)
    rows: dict[str, list[dict[str, float]]] = {
        name: [] for name in (*(way.name for way in WAYS), HEARTBEATS)
    }
    port = free_port()
    listen = f'remoting = "127.0.0.1:{port}"\n'
    with (
        tempfile.TemporaryDirectory(dir=given.directory) as scratch,
        bench_node(Path(scratch), ack="majority-memory", listen=listen) as node,
    ):
        with Admin(node.address) as admin:
            admin.create_topic(TOPIC, queues=QUEUES)
        fill(node.address, each)
        broker, client = broker_of(node), Client(port)
        try:
            client.beat()
            for _ in range(runs):
                for way in WAYS:
                    rows[way.name].append(measured(client, broker, way, each=each, pulls=pulls))
                rows[HEARTBEATS].append(beaten(client, broker, beats=pulls))
        finally:
            client.close()
    figures: dict[str, object] = {
        "body_bytes": len(BODY),
        "pulls": pulls,
        "runs": runs,
        **{
            way: {name: spread([row[name] for row in of]) for name in of[0]}
            for way, of in rows.items()
        },
    }
    if given.smoke:
        print(figures)
    else:
        write("remoting_pulls", figures)


if __name__ == "__main__":
    main()
