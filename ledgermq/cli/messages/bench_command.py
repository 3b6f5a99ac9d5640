"""``ledgermq bench``: load test of a running node. Messages stay in the topic.

Exit status: 0 measured; otherwise as every command.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
from collections import deque
from multiprocessing.connection import Connection
from typing import TypedDict

from ledgermq.cli.arguments import takes
from ledgermq.cli.progress_line import ProgressLine
from ledgermq.client import BatchResult, Consumer, Producer, ProducerOptions
from ledgermq.client.core.address import DEFAULT_ADDRESS
from ledgermq.client.sending.send_future import SendFuture
from ledgermq.model.errors import ConfigError, LedgerError

BODIES = 26


class Load(TypedDict):
    """What is done, and for how long."""

    topic: str
    address: str
    size: int
    batch: int
    in_flight: int
    seconds: float


class ClientFigures(TypedDict):
    """What one client process measured; latencies are of whole frames, in milliseconds."""

    messages: int
    seconds: float
    latencies_ms: list[float]
    ack: str


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``bench``."""
    parser = subparsers.add_parser(
        "bench",
        help="put load on a running node and measure it",
        description="Figures hold for this machine, this moment and the node's ack mode.",
    )
    kinds = parser.add_subparsers(metavar="KIND", required=True)
    for name, run, text in (
        ("produce", _run_produce, "send for a while"),
        ("consume", _run_consume, "read a topic from its beginning"),
    ):
        kind = kinds.add_parser(name, help=text)
        takes(kind, "--address ADDRESS", "default: %(default)s", default=DEFAULT_ADDRESS)
        takes(kind, "--topic TOPIC", "default: %(default)s", default="ledgermq-bench")
        takes(kind, "--seconds SECONDS", "default: %(default)s", default=5.0)
        takes(kind, "--json", "print JSON")
        kind.set_defaults(func=run)
        if name == "produce":
            takes(kind, "--producers PRODUCERS", "processes (default: 1)", type=int, default=1)
            takes(kind, "--size SIZE", "body in bytes", type=int, default=1024)
            takes(kind, "--batch BATCH", "messages a frame", type=int, default=64)
            takes(kind, "--in-flight IN_FLIGHT", "unanswered frames", type=int, default=8)


def _run_produce(arguments: argparse.Namespace) -> int:
    for name in ("producers", "size", "batch", "in_flight", "seconds"):
        if getattr(arguments, name) <= 0:
            raise ConfigError("must be positive", option=name, value=getattr(arguments, name))
    load = Load(
        topic=arguments.topic,
        address=arguments.address,
        size=arguments.size,
        batch=arguments.batch,
        in_flight=arguments.in_flight,
        seconds=arguments.seconds,
    )
    rows = _in_processes(load, arguments.producers)
    latencies = sorted(value for row in rows for value in row["latencies_ms"])
    result: dict[str, object] = {
        "messages": sum(row["messages"] for row in rows),
        "messages_per_second": round(sum(row["messages"] / row["seconds"] for row in rows)),
        "frame_p50_ms": round(latencies[len(latencies) // 2], 3),
        "frame_p99_ms": round(latencies[len(latencies) * 99 // 100], 3),
        "ack": rows[0]["ack"],
        "producers": arguments.producers,
        "body_bytes": arguments.size,
        "batch": arguments.batch,
        "in_flight": arguments.in_flight,
    }
    _print(result, as_json=arguments.json)
    return 0


def _run_consume(arguments: argparse.Namespace) -> int:
    received = size = 0
    with (
        Consumer(
            arguments.address, topic=arguments.topic, start="first", one_group=True
        ) as consumer,
        ProgressLine("messages received") as progress,
    ):
        begin = time.perf_counter()
        seconds = 0.0
        while seconds < arguments.seconds:
            batch = consumer.poll(0.2)
            if not len(batch):
                break
            received += len(batch)
            size += batch.size
            seconds = time.perf_counter() - begin
            progress.show(received)
    if not received:
        raise ConfigError("topic has no messages", topic=arguments.topic)
    result: dict[str, object] = {
        "messages": received,
        "bytes": size,
        "messages_per_second": round(received / seconds),
    }
    _print(result, as_json=arguments.json)
    return 0


def _in_processes(load: Load, count: int) -> list[ClientFigures]:
    """Run the load in ``count`` processes that begin together.

    Raises:
        LedgerError: a process could not send.
    """
    context = multiprocessing.get_context("spawn")
    pairs = [context.Pipe() for _ in range(count)]
    processes = [context.Process(target=_produce, args=(load, theirs)) for _, theirs in pairs]
    for process in processes:
        process.start()
    rows: list[ClientFigures] = []
    try:
        for ours, _ in pairs:
            _receive(ours)
        for ours, _ in pairs:
            ours.send("go")
        for ours, _ in pairs:
            rows.append(_receive(ours))
    finally:
        for process, (ours, _) in zip(processes, pairs, strict=True):
            ours.close()
            process.join()
    return rows


def _receive(connection: Connection) -> ClientFigures:
    answer: ClientFigures | LedgerError = connection.recv()
    if isinstance(answer, LedgerError):
        raise answer
    return answer


def _produce(load: Load, connection: Connection) -> None:
    """One process: ready, wait for the word, send, report."""
    try:
        # The bodies are so alike that next to nothing would be stored of large ones.
        options = ProducerOptions(compress_above=None)
        with Producer(load["address"], name="bench", options=options, one_group=True) as producer:
            connection.send(_send_for(producer, load, seconds=0.0))
            connection.recv()
            connection.send(_send_for(producer, load, seconds=load["seconds"]))
    except LedgerError as error:
        connection.send(LedgerError(str(error)))


def _send_for(producer: Producer, load: Load, *, seconds: float) -> ClientFigures:
    """Send for ``seconds``, at least one frame."""
    bodies = [bytes([65 + number % BODIES]) * load["size"] for number in range(load["batch"])]
    waiting: deque[tuple[float, SendFuture[BatchResult]]] = deque()
    latencies: list[float] = []
    messages = 0
    ack = ""
    begin = time.perf_counter()
    is_open = True
    while is_open or waiting:
        while is_open and len(waiting) < load["in_flight"]:
            future = producer.send_batch(load["topic"], bodies, tag="bench")
            waiting.append((time.perf_counter(), future))
            is_open = time.perf_counter() - begin < seconds
        sent, future = waiting.popleft()
        result = future.result()
        messages += len(result)
        ack = result.ack.value
        latencies.append((time.perf_counter() - sent) * 1000)
    return ClientFigures(
        messages=messages,
        seconds=time.perf_counter() - begin,
        latencies_ms=latencies,
        ack=ack,
    )


def _print(result: dict[str, object], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(result))
        return
    for name, value in result.items():
        text = f"{value:,}" if isinstance(value, int | float) else str(value)
        print(f"{name.replace('_', ' '):<22}{text:>16}")
