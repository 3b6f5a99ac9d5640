"""How long does a node with a large store take to start after kill -9 under load?

Estimate beforehand: the log is scanned from our checkpoint, half a second of load: some 100 MB from
the disk at worst, 0.1 s. The ends of 1,000 queues are found with some six reads of a page each,
eight at a time: 6,000 reads at 10,000 a second, 0.6 s, beside the rest. Two starts of the
interpreter, the four syncs of two checkpoints and an election of one: 0.6 s. Together about 1.3 s
with a cold page cache; below 2 s is asked for.

    python -m bench.start_after_kill [--smoke] [--directory DIR] [--gib N] [--queues N] [--rounds N]

The store is written by the parts that write it in a node. As root the page cache is dropped before
each start; without, the figures say so.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time
from array import array
from pathlib import Path

import psutil

from bench.machine import spread, write
from bench.node import COMMAND, configuration
from ledgermq.client import Producer
from ledgermq.dispatcher.log_spans import LogSpans
from ledgermq.formats.dledger_entry import HEADER_SIZE as ENTRY_HEADER_SIZE
from ledgermq.formats.records.message import Message, encode_message
from ledgermq.formats.records.properties import encode_properties
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import LedgerError
from ledgermq.model.ids import Position, QueueOffset, Term
from ledgermq.process.settings.settings_loading import load_settings
from ledgermq.rules.tables.topics import TopicTable
from ledgermq.store.files.small_file import replace_file
from ledgermq.store.log.log_writer import StampedRun
from ledgermq.store.queues.dispatch_build import DispatchBuilder
from ledgermq.store.recovery.log_checkpoint import LogCheckpoint, encode
from ledgermq.writer.log.log_opening import open_log

QUEUES_A_TOPIC = 4
BODY = bytes(range(256)) * 4
LOAD_BATCH = 20
LOAD_PAUSE_S = 0.001
PATIENCE_S = 300.0
DROP_CACHES = Path("/proc/sys/vm/drop_caches")
_PROGRESS = re.compile("recovering the log")


def topic_of(number: int) -> str:
    return f"bench-{number:04d}"


def fill(settings: Settings, *, size: int, queues: int) -> int:
    """Write a log of ``size`` bytes over all queues, and dispatch it; how many messages."""
    log = open_log(settings, is_in_use=False, sign_of_life=lambda: None)
    topics = -(-queues // QUEUES_A_TOPIC)
    records = [
        bytes(ENTRY_HEADER_SIZE)
        + encode_message(
            Message(
                topic=topic_of(number % topics),
                queue_id=number // topics,
                body=BODY,
                properties=encode_properties({"UNIQ_KEY": f"{number:032X}", "TAGS": "bench"}),
                born_timestamp=1_700_000_000_000,
                born_host=("127.0.0.1", 1),
            )
        )
        for number in range(queues)
    ]
    payload = memoryview(b"".join(records))
    sizes = memoryview(array("I", map(len, records)))
    messages = offset = 0
    while log.writer.end.position < size:
        runs = [StampedRun(1, QueueOffset(offset))] * queues
        log.writer.put(payload, sizes, runs, term=Term(1), store_timestamp=1_700_000_000_000)
        log.writer.publish()
        messages += queues
        offset += 1
    log.writer.sync()
    end = log.writer.end
    checkpoint = LogCheckpoint(end, log.recovered.data.file_size)
    replace_file(log.paths.log_checkpoint, encode(checkpoint))
    log.writer.close()
    dispatch(settings, end.position)
    return messages


def dispatch(settings: Settings, end: Position) -> None:
    """Build queues and index of the whole log."""
    spans = LogSpans.of(settings)
    builder = DispatchBuilder.open(
        settings.store, log_start=spans.start(), log_end=end, published=None
    )
    while builder.position < end:
        span = spans.span(builder.position)
        assert span is not None
        limit = Position(min(end, span.end))
        builder.build(span.view, span.start, limit, header_size=span.header_size)
    builder.flush()
    builder.close()
    spans.close()


class Node:
    """A node that is started as systemd would, and killed."""

    def __init__(self, directory: Path, runtime: Path) -> None:
        self.directory = directory
        self.runtime = runtime
        self.config = directory / "ledgermq.toml"
        self._systemd = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._systemd.bind(str(runtime.with_suffix(".notify")))
        self._systemd.settimeout(PATIENCE_S)

    def start(self) -> tuple[subprocess.Popen[bytes], dict[str, float]]:
        """Start; the process, and what came until it was ready."""
        environment = {**os.environ, "NOTIFY_SOCKET": str(self.runtime.with_suffix(".notify"))}
        lines = self.directory / "log"
        begin = time.monotonic()
        with lines.open("wb") as log:
            process = subprocess.Popen(
                [*COMMAND, "serve", "--config", str(self.config)], env=environment, stderr=log
            )
        extended = told = 0
        while True:
            text = self._systemd.recv(4_096).decode()
            extended += text.count("EXTEND_TIMEOUT_USEC=")
            told += text.count("STATUS=")
            if "READY=1" in text:
                break
        ready_s = time.monotonic() - begin
        family = [psutil.Process(process.pid), *psutil.Process(process.pid).children()]
        cpu_s = sum(sum(member.cpu_times()[:2]) for member in family)
        progress = len(_PROGRESS.findall(lines.read_text(errors="replace")))
        seen = {"extended": extended, "status_lines": told, "progress_lines": progress}
        return process, {"ready_s": ready_s, "cpu_s": cpu_s, **seen}

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """SIGKILL for all processes, at once."""
        family = [*psutil.Process(process.pid).children(), psutil.Process(process.pid)]
        for member in family:
            member.send_signal(signal.SIGKILL)
        process.wait()
        psutil.wait_procs(family)
        # What an earlier life told systemd is no answer to the next one.
        self._systemd.setblocking(False)
        try:
            while self._systemd.recv(4_096):
                pass
        except BlockingIOError:
            self._systemd.settimeout(PATIENCE_S)

    def close(self) -> None:
        """Close the socket."""
        self._systemd.close()
        self.runtime.with_suffix(".notify").unlink()


def load(address: str, topics: int, stop: threading.Event, sent: list[int]) -> None:
    """Send to all queues, whatever becomes of it."""
    chance = random.Random(7)
    with Producer(address) as producer:
        while not stop.wait(LOAD_PAUSE_S):
            topic = topic_of(chance.randrange(topics))
            try:
                producer.send_batch(topic, [BODY] * LOAD_BATCH)
            except LedgerError:
                # The node was killed: that is what this is about.
                return
            sent[0] += LOAD_BATCH


def drop_caches() -> bool:
    """Let the next start read from the disk; false when that is not allowed."""
    os.sync()
    if not os.access(DROP_CACHES, os.W_OK):
        return False
    try:
        DROP_CACHES.write_text("3\n")
    except OSError:
        return False
    return True


def run(base: Path, *, size: int, queues: int, rounds: int, load_s: float) -> dict[str, object]:
    """Fill a store, and kill a node on it so often."""
    directory = Path(tempfile.mkdtemp(prefix="start-", dir=base))
    topics = -(-queues // QUEUES_A_TOPIC)
    table = TopicTable()
    for number in range(topics):
        table.put(table.plan(topic_of(number), QUEUES_A_TOPIC), 0)
    with tempfile.TemporaryDirectory(prefix="lmq-", dir="/tmp") as scratch:
        node = Node(directory, Path(scratch) / "run")
        node.config.write_text(
            configuration(directory, node.runtime, ack="majority-fsync", level="INFO")
        )
        (directory / "store" / "config").mkdir(parents=True)
        document = json.dumps(table.to_document())
        (directory / "store" / "config" / "topics.json").write_text(document)
        begin = time.monotonic()
        messages = fill(load_settings(node.config), size=size, queues=queues)
        filled_s = time.monotonic() - begin
        starts: list[dict[str, float]] = []
        is_cold = True
        process, first = node.start()
        for _ in range(rounds):
            stop, sent = threading.Event(), [0]
            sender = threading.Thread(
                target=load, args=(f"ipc://{node.runtime}", topics, stop, sent)
            )
            sender.start()
            time.sleep(load_s)
            node.kill(process)
            stop.set()
            sender.join()
            is_cold = drop_caches() and is_cold
            process, seen = node.start()
            starts.append({**seen, "sent_before": sent[0]})
        node.kill(process)
        node.close()
    return {
        "log_gib": round(size / 2**30, 3),
        "queues": queues,
        "messages": messages,
        "filled_s": round(filled_s, 1),
        "page_cache_dropped": is_cold,
        "first_start_s": round(first["ready_s"], 3),
        "ready_s": spread([start["ready_s"] for start in starts]),
        "cpu_until_ready_s": spread([start["cpu_s"] for start in starts]),
        "extend_timeout": [start["extended"] for start in starts],
        "status_lines": [start["status_lines"] for start in starts],
        "progress_lines": [start["progress_lines"] for start in starts],
        "messages_sent_before_kill": [start["sent_before"] for start in starts],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a short run, nothing is kept")
    parser.add_argument("--directory", type=Path, help="where stores are made")
    parser.add_argument("--gib", type=float, help="size of the log")
    parser.add_argument("--queues", type=int, help="number of queues")
    parser.add_argument("--rounds", type=int, help="number of kills")
    given = parser.parse_args()
    gib = given.gib or (0.05 if given.smoke else 10.0)
    with tempfile.TemporaryDirectory(dir=given.directory) as scratch:
        figures = run(
            Path(scratch),
            size=int(gib * 2**30),
            queues=given.queues or (40 if given.smoke else 1_000),
            rounds=given.rounds or (2 if given.smoke else 7),
            load_s=1.0 if given.smoke else 5.0,
        )
    if given.smoke or given.gib:
        print(json.dumps(figures, indent=2))
    else:
        write("start_after_kill", figures)


if __name__ == "__main__":
    main()
