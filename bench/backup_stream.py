"""How far is a backup stream behind at full load of one node, and what does it cost the producers?

One node, and two producers of batches as in ``produce_throughput``; pairs of runs, one of them
beside ``ledgermq backup stream`` as it is started without options, which goes first by turns. The
stream is behind by the age of what its note does not have yet: a turn begins every five seconds,
so that much is always there. What one run differs from another without a stream stands beside it.

Here node and repository share two cores, and one disk unless ``--other-disk`` says where the
repository is: operating/backup.md wants another one. A file system in memory stands for it.

Estimate beforehand: 100 MB/s are read from the page cache, digested and written once more: a
quarter of a core in every second of load, of two cores that are full already, so producers lose an
eighth. A turn moves five seconds of load in one second: six seconds behind at worst.

    python -m bench.backup_stream [--pairs N] [--ack MODE] [--interval S] [--encrypted]
                                  [--bucket] [--other-disk DIR] [--smoke] [--directory DIR]
"""

from __future__ import annotations

import argparse
import os
import secrets
import shutil
import statistics
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import psutil

from bench.machine import spread, write
from bench.node import COMMAND, BenchNode, bench_node
from bench.processes import DIES_WITH_US, end_in_order
from bench.produce_throughput import BATCH, IN_FLIGHT, PRODUCERS, producers
from ledgermq.conversion.last_backup import STREAM_NAME, read_last_backup
from tests.buckets.object_server import BUCKET, served, variables

SIZE = 1024
LOOK_EVERY_S = 0.1
PATIENCE_S = 120.0


class Beside(NamedTuple):
    """One run beside a stream.

    Attributes:
        rate: messages a second of all producers.
        behind_s: at worst, while they sent.
        ms_a_mb: the stream's processor time by megabytes of the log.
    """

    rate: float
    behind_s: float
    ms_a_mb: float


class Behind:
    """How old the oldest committed byte is that the stream's note does not have.

    Attributes:
        worst_s: the largest so far.
    """

    def __init__(self, node: BenchNode) -> None:
        self.worst_s = 0.0
        self._node = node
        self._marks: deque[tuple[int, float]] = deque()

    def streamed(self) -> int:
        """Up to where the note goes."""
        note = read_last_backup(self._node.directory / "store", name=STREAM_NAME)
        return -1 if note is None else note.end

    def committed(self) -> int:
        """Up to where the log is committed."""
        return self._node.page.read_committed().position

    def look(self) -> None:
        """Take one sample; first what follows, then what it follows."""
        end, now = self.streamed(), time.monotonic()
        self._marks.append((self.committed(), now))
        while len(self._marks) > 1 and self._marks[0][0] <= end:
            self._marks.popleft()
        if self._marks[0][0] > end:
            self.worst_s = max(self.worst_s, now - self._marks[0][1])

    def watch(self, stop: threading.Event) -> None:
        """Sample until told to stop."""
        while not stop.wait(LOOK_EVERY_S):
            self.look()

    def wait_level(self, process: psutil.Popen) -> None:
        """Until the note has all that is committed now."""
        committed = self.committed()
        until = time.monotonic() + PATIENCE_S
        while self.streamed() < committed:
            if process.poll() is not None or time.monotonic() > until:
                raise TimeoutError(f"the stream is at {self.streamed()}, not at {committed}")
            time.sleep(LOOK_EVERY_S)


def beside_stream(node: BenchNode, place: str, options: list[str], seconds: float) -> Beside:
    """A run beside a stream that has all that there was, and at the end all that came."""
    words = ["backup", "stream", str(node.directory / "store"), place]
    words += ["--runtime-dir", str(node.runtime), *options]
    process = psutil.Popen([*DIES_WITH_US, *COMMAND, *words], stderr=subprocess.DEVNULL)
    behind, stop = Behind(node), threading.Event()
    watcher = threading.Thread(target=behind.watch, args=(stop,))
    try:
        behind.wait_level(process)
        before, before_s = behind.committed(), _spent_s(process)
        watcher.start()
        rate = run(node, seconds)
        stop.set()
        watcher.join()
        behind.wait_level(process)
        spent_ms = (_spent_s(process) - before_s) * 1_000
        return Beside(rate, behind.worst_s, spent_ms / ((behind.committed() - before) / 1e6))
    finally:
        stop.set()
        process.terminate()
        process.wait(PATIENCE_S)


def _spent_s(process: psutil.Popen) -> float:
    spent = process.cpu_times()
    return float(spent.user + spent.system)


def run(node: BenchNode, seconds: float) -> float:
    """Messages a second of all producers."""
    with producers(node.address, size=SIZE, seconds=seconds) as go:
        return sum(go())


@contextmanager
def place_in(folder: Path, *, is_bucket: bool) -> Iterator[str]:
    """A repository to come: a folder, or a prefix in a bucket of a server that runs meanwhile."""
    if not is_bucket:
        with tempfile.TemporaryDirectory(dir=folder) as repository:
            yield repository
        return
    with served(folder) as server:
        os.environ.update(variables(server.port))
        yield f"s3://{BUCKET}/stream"


def pair(
    scratch: Path, given: argparse.Namespace, options: list[str], *, seconds: float, turned: bool
) -> tuple[float, Beside]:
    """A run without a stream and one with it, each of a new node.

    Nothing deletes old log files, and a disk is soon full.
    """
    alone, beside = 0.0, None
    for streamed in (True, False) if turned else (False, True):
        folder = Path(tempfile.mkdtemp(dir=scratch))
        with bench_node(folder, ack=given.ack) as node, ExitStack() as held:
            if streamed:
                other = given.other_disk or folder
                place = held.enter_context(place_in(other, is_bucket=given.bucket))
                beside = beside_stream(node, place, options, seconds)
            else:
                alone = run(node, seconds)
        shutil.rmtree(folder)
    assert beside is not None
    return alone, beside


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, help="default: 6, and 1 with --smoke")
    parser.add_argument("--ack", default="majority-fsync", help="ack.mode (default: %(default)s)")
    parser.add_argument("--interval", type=float, default=5.0, help="default: %(default)s")
    parser.add_argument("--encrypted", action="store_true", help="with a key of AES-256")
    parser.add_argument("--bucket", action="store_true", help="to an S3 server (versitygw)")
    parser.add_argument(
        "--other-disk", type=Path, help="where the repository is made, or the server's files"
    )
    parser.add_argument("--smoke", action="store_true", help="a short run, nothing is kept")
    parser.add_argument("--directory", type=Path, help="where stores are made")
    given = parser.parse_args()
    end_in_order()
    pairs = given.pairs or (1 if given.smoke else 6)
    seconds = 2.0 if given.smoke else 15.0
    done: list[tuple[float, Beside]] = []
    with tempfile.TemporaryDirectory(dir=given.directory) as scratch:
        options = ["--interval", str(given.interval)]
        if given.encrypted:
            key = Path(scratch, "key")
            key.write_text(secrets.token_hex(32))
            key.chmod(0o600)
            options += ["--key-file", str(key)]
        for number in range(pairs):
            turned = number % 2 == 1
            done.append(pair(Path(scratch), given, options, seconds=seconds, turned=turned))
            print(f"{number + 1} of {pairs}: {done[-1]}", flush=True)
    alone = [rate for rate, _ in done]
    figures: dict[str, object] = {
        "ack_mode": given.ack,
        "load": f"{PRODUCERS} producers, batches of {BATCH}, {IN_FLIGHT} in flight, {SIZE} bytes",
        "place": "bucket" if given.bucket else "folder",
        "disk of its own": given.other_disk is not None,
        "interval_s": given.interval,
        "encrypted": given.encrypted,
        "pairs": pairs,
        "seconds": seconds,
        "messages_per_second": {
            "alone": spread(alone),
            "beside a stream": spread([one.rate for _, one in done]),
        },
        "beside_by_alone": spread([one.rate / rate for rate, one in done]),
        "behind_s_at_worst": spread([one.behind_s for _, one in done]),
        "stream_ms_of_processor_a_mb": spread([one.ms_a_mb for _, one in done]),
    }
    if pairs > 1:
        later = [later / earlier for earlier, later in pairwise(alone)]
        figures["alone_by_the_one_before"] = round(statistics.median(later), 3)
    if given.smoke:
        print(figures)
    else:
        name = "backup_stream_bucket" if given.bucket else "backup_stream"
        write(f"{name}_other_disk" if given.other_disk else name, figures)


if __name__ == "__main__":
    main()
