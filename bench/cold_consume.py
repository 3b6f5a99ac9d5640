"""How fast are old messages consumed out of a bucket, how soon comes the first one, and what does
sealing cost the producers?

One node, and an S3 server of this machine (versitygw). A queue of messages that no compression
makes less of is sealed, deleted from the log, and read by our consumer; beside it, by turns, whole
objects are read with the bucket's client alone. For the first message each answer of the bucket
waits half a second, in a proxy. Sealing runs beside two producers as in ``produce_throughput``.

Estimate beforehand: a client of the bucket gets 400 MB/s on a core; the cold process makes records
of a piece at 120 MB/s, and checks them, so of raw reads a fourth to a third. The first message
takes two answers, for the manifest is known, and so twice the latency. Sealing takes some 12 ms of
a processor by megabyte (``piece_sizes``), where a node and producers take 6 at these sizes.

    python -m bench.cold_consume [--smoke] [--directory DIR]
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from bench.machine import spread, write
from bench.node import COMMAND, BenchNode, bench_node
from bench.produce_throughput import producers
from ledgermq.buckets.bucket_address import parse_address
from ledgermq.buckets.bucket_opening import open_bucket
from ledgermq.client import Admin, Consumer, ConsumerOptions, Producer
from tests.buckets.object_server import BUCKET, FaultyProxy, served, variables

TOPIC, SIZE = "cold", 4_000
SENT_MIB = 256
LATE_S = 0.5
KEPT = "64MiB"
PATIENCE_S = 600.0


def seal(node: BenchNode, place: str) -> psutil.Popen:
    """The command, which was started."""
    words = ["piece", "seal", str(node.directory / "store"), "--to", place]
    return psutil.Popen(
        [*COMMAND, *words, "--runtime-dir", str(node.runtime)], stdout=subprocess.DEVNULL
    )


def processor_s(process: psutil.Process) -> float:
    """Seconds of a processor that it and its children have had."""
    family = [process, *process.children(recursive=True)]
    return float(sum(sum(one.cpu_times()[:2]) for one in family))


def fill(node: BenchNode, mib: int) -> int:
    """Store so much in one queue; how many messages these are."""
    chance = random.Random(50)
    count = mib * 2**20 // SIZE // 64
    with Producer(node.address) as producer:
        for _ in range(count):
            batch = [chance.randbytes(SIZE) for _ in range(64)]
            producer.send_batch(TOPIC, batch, queue_id=0).result(60)
    return count * 64


def wait_gone(node: BenchNode, position: int) -> None:
    """Until the log begins behind a position."""
    until = time.monotonic() + PATIENCE_S
    while node.page.read_log_begin().position < position:
        if time.monotonic() > until:
            raise TimeoutError(f"log begins at {node.page.read_log_begin()}, not behind {position}")
        time.sleep(0.2)


def forget_cache(node: BenchNode, sealed: int) -> None:
    """Have the cold process begin with nothing but the manifest, and look through the pieces up to
    a position, as each life of it does once for retention.
    """
    status: dict[str, Any] = node.status()
    (pid,) = (one["pid"] for one in status["processes"] if one["role"] == "cold")
    for path in (node.directory / "store" / "ledgermq" / "cold").glob("*-*-*"):
        path.unlink()
    psutil.Process(pid).kill()
    until = time.monotonic() + PATIENCE_S
    while True:
        found: dict[str, Any] = node.status()
        one = next(one for one in found["processes"] if one["role"] == "cold")
        is_other = one["pid"] not in (0, pid) and one["state"] == "running"
        if is_other and found["counters"]["cold"]["sealed_position"] >= sealed:
            return
        if time.monotonic() > until:
            raise TimeoutError("no other cold process")
        time.sleep(0.1)


def consumed(node: BenchNode, count: int) -> tuple[float, float]:
    """Seconds to the first message, and MB a second of bodies up to the last of ``count``."""
    options = ConsumerOptions(timeout_s=120.0, hold_ms=100)
    with Consumer(node.address, topic=TOPIC, start="first", options=options) as consumer:
        consumer.offsets()
        begun, first_s, size, got = time.perf_counter(), 0.0, 0, 0
        while got < count:
            batch = consumer.poll(60)
            first_s = first_s or time.perf_counter() - begun
            got += len(batch)
            size += sum(len(one.body) for one in batch)
        return first_s, size / 1e6 / (time.perf_counter() - begun)


def raw_mb_per_s(place: str, folder: Path, bytes_max: int) -> float:
    """MB a second of objects that the bucket's client writes into a file."""
    bucket = open_bucket(parse_address(place, of="pieces"))
    begun, size = time.perf_counter(), 0
    for key in bucket.listed("pieces/"):
        bucket.fetch(key, folder / "object")
        size += (folder / "object").stat().st_size
        if size >= bytes_max:
            break
    return size / 1e6 / (time.perf_counter() - begun)


def sealing(node: BenchNode, place: str, pairs: int, seconds: float) -> dict[str, object]:
    """Producers without and with ``piece seal`` beside them, by turns."""
    rates: dict[bool, list[float]] = {False: [], True: []}
    shares: list[float] = []
    with Admin(node.address) as admin:
        admin.create_topic("bench", queues=4)
    for number in range(2 * pairs):
        with producers(node.address, size=300, seconds=seconds) as go:
            if number % 2 == 0:
                rates[False].append(sum(go()))
                continue
            me = psutil.Process()
            before = processor_s(me)
            process = seal(node, place)
            spent = 0.0
            rates[True].append(sum(go()))
            if process.poll() is None:
                spent = processor_s(process)
            shares.append(spent / (processor_s(me) - before - spent))
        process.wait()
    ratios = [one / other for other, one in zip(rates[False], rates[True], strict=True)]
    return {
        "messages_per_s_without": spread(rates[False]),
        "messages_per_s_with": spread(rates[True]),
        "ratios": [round(one, 3) for one in ratios],
        "processor_time_of_sealing_to_that_of_others": [round(one, 3) for one in shares],
    }


@contextmanager
def environment(values: dict[str, str]) -> Iterator[None]:
    """Of this process and those that it starts."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def cold_node(base: Path, place: str, port: int, mib: int) -> Iterator[tuple[BenchNode, int, int]]:
    """A node most of whose messages are in the bucket alone; how many of them are, and up to which
    position they are sealed.
    """
    more = f'[cold]\nplace = "{place}"\nrefresh_s = 1\n[retention]\nbytes_max = "{KEPT}"\n'
    lines = "mapped_file_size_commit_log = 16777216\n"
    with (
        environment(variables(port)),
        bench_node(base, ack="majority-memory", more=more, store=lines) as node,
    ):
        with Admin(node.address) as admin:
            admin.create_topic(TOPIC, queues=1)
        count = fill(node, mib)
        if seal(node, place).wait():
            raise RuntimeError("nothing was sealed")
        end = node.page.read_committed().position
        wait_gone(node, end - 2 * 64 * 2**20)
        yield node, count * node.page.read_log_begin().position // end, end


def measure(base: Path, *, mib: int, rounds: int, seconds: float) -> dict[str, object]:
    """All figures."""
    firsts: list[float] = []
    requests: list[int] = []
    colds: list[float] = []
    cached: list[float] = []
    raws: list[float] = []
    with served(base) as server:
        proxy, place = FaultyProxy(server.port), f"s3://{BUCKET}/late"
        with cold_node(base, place, proxy.port, mib) as (node, _, end):
            for _ in range(rounds):
                forget_cache(node, end)
                proxy.fault = lambda _number, _head: "late"
                asked = proxy.count
                firsts.append(consumed(node, 1)[0])
                requests.append(proxy.count - asked)
                proxy.fault = lambda _number, _head: ""
        proxy.close()
        # What is asked often goes straight to the server.
        place = f"s3://{BUCKET}/direct"
        with cold_node(base, place, server.port, mib) as (node, count, end):
            for _ in range(rounds):
                raws.append(raw_mb_per_s(place, base, count * SIZE))
                forget_cache(node, end)
                colds.append(consumed(node, count)[1])
                cached.append(consumed(node, count)[1])
            sealed = sealing(node, place, rounds, seconds)
    parts = [one / raw for one, raw in zip(colds, raws, strict=True)]
    return {
        "body_bytes": SIZE,
        "read_mb": round(count * SIZE / 1e6),
        "raw_get_mb_per_s": spread(raws),
        "cold_consume_mb_per_s": spread(colds),
        "of_raw": spread(parts),
        "again_out_of_the_cache_mb_per_s": spread(cached),
        "latency_of_the_bucket_s": LATE_S,
        "first_message_s": spread(firsts),
        "requests_until_then_with_those_ahead": requests,
        "sealing": sealed,
    }


def main() -> None:
    """Measure, and write the figures down."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a short run, nothing is kept")
    parser.add_argument("--directory", type=Path, help="where stores are made")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.directory) as folder:
        if given.smoke:
            print(measure(Path(folder), mib=160, rounds=1, seconds=2.0))
        else:
            write("cold_consume", measure(Path(folder), mib=SENT_MIB, rounds=3, seconds=8.0))


if __name__ == "__main__":
    main()
