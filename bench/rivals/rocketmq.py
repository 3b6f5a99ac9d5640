"""RocketMQ 4.9.4 on loopback, each process a JVM: a name server, with three brokers of DLedger, or
with one that is alone.

Driven by the project's ``oracle.py``, which needs Java 17 and Maven and keeps the jars;
``LEDGERMQ_ORACLE`` is its path, or it lies in ``shared/oracle`` beside the checkout.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

# oracle.py looks for free ports first and takes them later: one at a time on this machine.
_LOCK = Path(tempfile.gettempdir(), "ledgermq-oracle.lock")

_BESIDE_CHECKOUT = Path(__file__).resolve().parents[3] / "shared" / "oracle" / "oracle.py"

HEAP = "512m"
"""Of each broker; DLedger's log is mapped, and not part of it."""

START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 60.0
BESIDES_S = 60.0
"""A load also takes the start of its JVM, and the wait for its last answers."""

_CONSUMED = re.compile(r"consumed (?P<count>\d+), (?P<rate>[\d.]+|NaN|Infinity) msg/s")
_FAILED_OVER = re.compile(r"ok=(?P<ok>\d+) bad=(?P<bad>\d+) .*acks (?P<gap>[\d.]+)s")
_RATE = re.compile(
    r": (?P<rate>\d+) msg/s bad=(?P<bad>\d+) p50=(?P<p50>[\d.]+)ms p99=(?P<p99>[\d.]+)"
)


class RocketLoad(NamedTuple):
    """What the load program measured; a batch has one latency."""

    messages_per_second: float
    p50_ms: float
    p99_ms: float
    failed: int


def program() -> Path | None:
    """``oracle.py``; None where it, Java or Maven is missing."""
    path = Path(os.environ.get("LEDGERMQ_ORACLE") or _BESIDE_CHECKOUT)
    there = path.is_file() and all(map(shutil.which, ("java", "javac", "mvn")))
    return path if there else None


@contextmanager
def rocketmq_group(directory: Path, *, replicas: int = 3) -> Iterator[str]:
    """A group with its stores below ``directory``; the name server's address.

    DLedger acknowledges what a majority has in its page caches: our majority-memory.
    """
    with _serving(directory, "--replicas", str(replicas)) as name_server:
        yield name_server


@contextmanager
def rocketmq_node(directory: Path, *, is_synced: bool) -> Iterator[str]:
    """One broker without DLedger; the name server's address.

    Args:
        is_synced: it acknowledges what the disk has, our majority-fsync.
    """
    flush = f"flushDiskType={'SYNC' if is_synced else 'ASYNC'}_FLUSH"
    with _serving(directory, "--plain", "--set", flush) as name_server:
        yield name_server


@contextmanager
def _serving(directory: Path, *words: str) -> Iterator[str]:
    oracle = _oracle()
    folder = Path(tempfile.mkdtemp(prefix="rocketmq-", dir=directory))
    said = folder / "said"
    with _LOCK.open("w") as lock, said.open("wb") as target:
        fcntl.flock(lock, fcntl.LOCK_EX)
        process = subprocess.Popen(
            [*oracle, "serve", str(folder), *words, "--heap", HEAP],
            stdin=subprocess.DEVNULL,
            stdout=target,
            stderr=target,
            start_new_session=True,
        )
        try:
            name_server = _await_name_server(process, said)
            _await_leader(oracle, name_server)
            yield name_server
        finally:
            _end(process)
            shutil.rmtree(folder, ignore_errors=True)


def load(name_server: str, *, mode: str, clients: int, size: int, seconds: float) -> RocketLoad:
    """Run the load program once: threads of one producer in one JVM.

    Args:
        mode: ``sync``, ``async`` (256 unanswered a thread), or ``batch`` and the batch's size.
    """
    said = _run(name_server, "Bench", mode, "bench", str(clients), str(size), seconds=seconds)
    found = _RATE.search(said)
    if found is None:
        raise RuntimeError(f"no figures from RocketMQ's load: {said}")
    return RocketLoad(
        float(found["rate"]), float(found["p50"]), float(found["p99"]), int(found["bad"])
    )


def consume(name_server: str, *, seconds: float) -> float:
    """Messages a second that a push consumer of a new group reads of what ``load`` has sent."""
    said = _run(name_server, "Consume", "bench", seconds=seconds)
    found = _CONSUMED.search(said)
    if found is None or int(found["count"]) == 0:
        raise RuntimeError(f"nothing was consumed: {said}")
    return float(found["rate"])


def longest_gap_s(name_server: str, *, seconds: float, during: Callable[[], object]) -> float:
    """The longest time without an acknowledgement of a producer, while ``during`` does harm."""
    with ThreadPoolExecutor(1) as pool:
        said = pool.submit(_run, name_server, "Fail", "bench", seconds=seconds)
        during()
        found = _FAILED_OVER.search(said.result())
    if found is None:
        raise RuntimeError(f"no figures of a fail-over: {said.result()}")
    return float(found["gap"])


def _run(name_server: str, program: str, *words: str, seconds: float) -> str:
    """What one of the oracle's programs says, which takes the seconds as its last word."""
    process = subprocess.Popen(
        [*_oracle(), "java", program, *words, f"{seconds:.0f}"],
        env={**os.environ, "NAMESRV": name_server},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(timeout=seconds + BESIDES_S)
    finally:
        _end(process)
    return said


def _oracle() -> list[str]:
    path = program()
    if path is None:
        raise FileNotFoundError("no oracle.py, Java or Maven: set LEDGERMQ_ORACLE")
    return [sys.executable, str(path)]


def _await_name_server(process: subprocess.Popen[bytes], said: Path) -> str:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        for line in said.read_text().splitlines():
            if line.startswith("namesrv "):
                return line.split()[1]
        time.sleep(0.2)
    raise RuntimeError(f"RocketMQ does not start: {said.read_text()}")


def _await_leader(oracle: list[str], name_server: str) -> None:
    """Until one broker has registered as master, which it does once it leads."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        listed = subprocess.run(
            [*oracle, "mqadmin", "clusterList", "-n", name_server],
            capture_output=True,
            text=True,
            check=False,
            timeout=BESIDES_S,
        )
        rows = [line.split() for line in listed.stdout.splitlines()]
        if any(len(row) > 2 and row[2] == "0" for row in rows):
            return
    raise TimeoutError("no broker of RocketMQ leads")


def _end(process: subprocess.Popen[bytes] | subprocess.Popen[str]) -> None:
    """End a program of ``oracle.py`` and every JVM that it has started, whatever happens."""
    try:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        # The signal to all that follows ends it, too.
        print("RocketMQ does not stop, and is killed", file=sys.stderr)
    finally:
        # No such process: everything of its session has ended by itself, as it should.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
