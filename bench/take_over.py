"""How soon is a node ready on a directory of RocketMQ 5.5.1 with a log of 100 GiB?

The log is sparse: records of 4 MiB whose bodies are holes, as RocketMQ would have written them.
The real broker opens it, builds queues and index, takes smaller messages and a group's offset, and
is stopped in order, or killed. Each round copies that directory, lets the page cache go of it, and
takes it over: ``ledgermq migrate take-over``, then ``serve`` until systemd is told READY. What is
there then is counted.

Estimate beforehand: after a stop in order the newest file is read, here some MiB, and 1.5 s go to
interpreters and an election; after a kill one file more, 1 GiB at some 2 GiB a second, and what was
stored since RocketMQ's queues were synced, without its bodies. Less than 3 s is asked for.

    python -m bench.take_over [--smoke] [--directory DIR] [--gib N] [--rounds N]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import struct
import subprocess
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from bench.machine import spread, write
from bench.node import COMMAND
from bench.processes import end_in_order
from bench.start_after_kill import Node
from bench.understudy_follow import MIB
from ledgermq.client import Admin
from ledgermq.formats.records.message import (
    HEAD_SIZE,
    PHYSICAL_OFFSET_AT,
    QUEUE_ID_AT,
    QUEUE_OFFSET_AT,
    Message,
    encode_message,
)
from ledgermq.formats.records.properties import encode_properties
from ledgermq.formats.store_markers import BLANK_SIZE, encode_blank
from ledgermq.model.config.settings import LogKind
from ledgermq.remoting.codes import RequestCode, ResponseCode
from tests.compat.java_broker import JavaBroker
from tests.compat.rocketmq5 import fetch
from tests.process.conftest import wait_until
from tests.process.group_nodes import free_port
from tests.process.remoting_client import RemotingClient
from tests.process.remoting_steps import pull_fields

FILE_SIZE = 1024 * MIB
LARGE, SMALL, GROUP, QUEUES = "large", "small", "readers", 4
LARGE_BODY = bytes(4 * MIB - 8_192)
SMALL_BODY = bytes(range(256)) * 4
SMALL_COUNT = 2_000
CONSUMED = 7
DISPATCH_S = 600.0
APART_MS = 100
STORED_AT = 56
"""Where a record has its store time, where both hosts are IPv4."""

KINDS = ("stopped", "killed")
_INT, _LONG = struct.Struct(">i"), struct.Struct(">q")


def write_sparse_log(folder: Path, size: int) -> int:
    """Write a plain log of ``size`` bytes whose bodies are holes; how many messages it has."""
    folder.mkdir(parents=True)
    record = bytearray(
        encode_message(
            Message(
                topic=LARGE,
                queue_id=0,
                body=LARGE_BODY,
                properties=encode_properties({"UNIQ_KEY": "7" * 32, "TAGS": "bench"}),
                born_timestamp=int(time.time() * 1_000),
                store_timestamp=1,
                born_host=("127.0.0.1", 1),
                store_host=("127.0.0.1", 1),
            )
        )
    )
    now_ms, total = int(time.time() * 1_000), size // len(record)
    behind = HEAD_SIZE + len(LARGE_BODY)
    count = 0
    for begin in range(0, size, FILE_SIZE):
        file = os.open(folder / f"{begin:020d}", os.O_RDWR | os.O_CREAT, 0o644)
        os.ftruncate(file, FILE_SIZE)
        at = 0
        while at + len(record) + BLANK_SIZE <= FILE_SIZE:
            _INT.pack_into(record, QUEUE_ID_AT, count % QUEUES)
            _LONG.pack_into(record, QUEUE_OFFSET_AT, count // QUEUES)
            _LONG.pack_into(record, PHYSICAL_OFFSET_AT, begin + at)
            # What a broker that was killed had on the disk for certain, it tells by a time.
            _LONG.pack_into(record, STORED_AT, now_ms - (total - count) * APART_MS)
            os.pwrite(file, record[:HEAD_SIZE], at)
            os.pwrite(file, record[behind:], at + behind)
            at, count = at + len(record), count + 1
        os.pwrite(file, encode_blank(LogKind.COMMITLOG, FILE_SIZE - at), at)
        os.close(file)
    return count


def bound(client: RemotingClient, code: RequestCode, queue_id: int) -> int:
    """Where a queue of the large messages begins, or ends, at RocketMQ."""
    reply = client.ask(code, {"topic": LARGE, "queueId": queue_id})
    return int(reply.fields["offset"])


def bounds(client: RemotingClient, code: RequestCode) -> int:
    """The same of all queues, added up."""
    return sum(bound(client, code, queue_id) for queue_id in range(QUEUES))


def used_by_rocketmq(broker: JavaBroker, count: int) -> int:
    """Let the real broker build its queues, and be used a little; large messages that it serves.

    RocketMQ 5.5.1 that finds no queues builds them of the newest ten files.
    """
    client = RemotingClient(broker.address)
    wait_until(
        lambda: bounds(client, RequestCode.GET_MAX_OFFSET) == count, "RocketMQ's queues", DISPATCH_S
    )
    for number in range(SMALL_COUNT):
        values = ("load", SMALL, "TBW102", QUEUES, number % QUEUES, 0, 0, 0, "", 0, "false")
        fields = dict(zip("abcdefghijk", values, strict=True))
        reply = client.ask(RequestCode.SEND_MESSAGE_V2, fields, SMALL_BODY)
        assert reply.code == ResponseCode.SUCCESS, reply.remark
    # It knows groups that have pulled.
    client.ask(RequestCode.PULL_MESSAGE, pull_fields(SMALL, 0, 0, group=GROUP, subscription="*"))
    offset = {"consumerGroup": GROUP, "topic": SMALL, "queueId": 0, "commitOffset": CONSUMED}
    assert client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, offset).code == ResponseCode.SUCCESS
    # RocketMQ writes offsets each five seconds.
    path = broker.store / "config" / "consumerOffset.json"
    wait_until(lambda: path.exists() and GROUP in path.read_text(), "the offset", DISPATCH_S)
    served = count - bounds(client, RequestCode.GET_MIN_OFFSET)
    client.close()
    return served


def forget_pages(root: Path) -> None:
    """Let the page cache go of all files, and of no others."""
    os.sync()
    for path in root.rglob("*"):
        if path.is_file():
            file = os.open(path, os.O_RDONLY)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(file)


def taken_over(original: Path, folder: Path, count: int) -> dict[str, float]:
    """One round on a copy; seconds of the command, and of the node until it is ready.

    Args:
        count: large messages that RocketMQ served.
    """
    folder.mkdir()
    store, conf = folder / "store", folder / "broker.conf"
    subprocess.run(["cp", "-a", "--sparse=always", str(original), str(store)], check=True)
    rows = {
        "brokerIP1": "127.0.0.1",
        "listenPort": free_port(),
        "storePathRootDir": store,
        "storePathCommitLog": store / "commitlog",
    }
    conf.write_text("".join(f"{key}={value}\n" for key, value in rows.items()))
    with tempfile.TemporaryDirectory(prefix="lmq-", dir="/tmp") as scratch, ExitStack() as ends:
        node = Node(folder, Path(scratch) / "run")
        ends.callback(node.close)
        forget_pages(store)
        begin = time.monotonic()
        subprocess.run(
            [*COMMAND, "migrate", "take-over", str(conf), "--settings", str(node.config),
             "--manifest", str(folder / "manifest"), "--runtime-dir", str(node.runtime)],
            check=True, capture_output=True,
        )  # fmt: skip
        command_s = time.monotonic() - begin
        forget_pages(store)
        process, seen = node.start()
        ends.callback(node.kill, process)
        with Admin(f"ipc://{node.runtime}") as admin:
            found = [admin.topic(topic).messages for topic in (LARGE, SMALL)]
            assert found == [count, SMALL_COUNT], found
            lag = {(one.topic, one.queue): one.offset for one in admin.lag(GROUP)}
            assert lag[SMALL, 0] == CONSUMED, lag
    shutil.rmtree(folder)
    return {"take_over_s": command_s, "ready_s": seen["ready_s"], "cpu_s": seen["cpu_s"]}


def run(base: Path, *, size: int, rounds: int) -> dict[str, object]:
    """Both kinds of end, in turn."""
    rows = {
        "mappedFileSizeCommitLog": FILE_SIZE,
        "mappedFileSizeConsumeQueue": 6_000_000,
        "maxHashSlotNum": 5_000_000,
        "maxIndexNum": 20_000_000,
    }
    broker = JavaBroker(5, base, **rows)
    figures: dict[str, object] = {}
    try:
        count = write_sparse_log(broker.store / "commitlog", size)
        broker.start("ASYNC_MASTER")
        served = used_by_rocketmq(broker, count)
        figures |= {"log_gib": size / 2**30, "records": count + SMALL_COUNT, "in_queues": served}
        broker.stop()
        originals = {"stopped": base / "stopped"}
        command = ["cp", "-a", "--sparse=always", str(broker.store)]
        subprocess.run([*command, str(originals["stopped"])], check=True)
        broker.start("ASYNC_MASTER")
        broker.kill()
        originals["killed"] = broker.store
        told = {
            kind: [
                taken_over(originals[kind], base / f"round-{number}", served)
                for number in range(rounds)
            ]
            for kind in KINDS
        }
    finally:
        broker.kill()
    for kind, starts in told.items():
        for name in starts[0]:
            figures[f"{kind}_{name}"] = spread([one[name] for one in starts])
    return figures


def main() -> None:
    end_in_order()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a short run, nothing is kept")
    parser.add_argument("--directory", type=Path, help="where stores are made")
    parser.add_argument("--gib", type=int, help="size of the log")
    parser.add_argument("--rounds", type=int, default=5, help="of each kind")
    given = parser.parse_args()
    fetch()
    gib = given.gib or (2 if given.smoke else 100)
    with tempfile.TemporaryDirectory(dir=given.directory) as scratch:
        rounds = 1 if given.smoke else given.rounds
        figures = run(Path(scratch), size=gib << 30, rounds=rounds)
    if given.smoke or given.gib:
        print(json.dumps(figures, indent=2))
    else:
        write("take_over", figures)


if __name__ == "__main__":
    main()
