"""The real RocketMQ broker as the oracle: opens a store directory, and says what it serves.

Driven by the project's ``oracle.py``, which keeps the jars; ``LEDGERMQ_ORACLE`` is its path, or it
lies where the golden data lies, in ``shared/oracle`` beside the checkout.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.process.conftest import is_alive, wait_until

_BESIDE_CHECKOUT = Path(__file__).resolve().parents[3] / "shared" / "oracle" / "oracle.py"
ORACLE_LOCK = Path(tempfile.gettempdir(), "ledgermq-oracle.lock")

BROKER = "oracle"
START_TIMEOUT_S = 150.0
DUMP_TIMEOUT_S = 200.0
STOP_TIMEOUT_S = 120.0
MASTER_ID = "0"
RESERVED_HOURS = 876_000
SELF_ID = "n0"

# The dump holds all messages in memory; its own limit is made for the small golden stores.
_DUMP_HEAP = {"_JAVA_OPTIONS": "-Xmx3g -XX:+UseSerialGC"}


def oracle_program() -> Path:
    """Path of ``oracle.py``; the test fails where it cannot be run, for it was asked for."""
    path = Path(os.environ.get("LEDGERMQ_ORACLE") or _BESIDE_CHECKOUT)
    if not path.is_file():
        pytest.fail(f"no oracle: {path} is not there; set LEDGERMQ_ORACLE to the path of oracle.py")
    missing = [program for program in ("java", "javac", "mvn") if shutil.which(program) is None]
    if missing:
        pytest.fail(f"no oracle: {', '.join(missing)} not found; it needs Java 17 and Maven")
    return path


class RocketMQ:
    """A running name server and broker.

    Attributes:
        store: the broker's store directory, which it changes.
        broker_address: host and port of the broker.
        name_server: the same of the name server.
    """

    def __init__(self, store: Path, process: subprocess.Popen[bytes], said: Path) -> None:
        self.store = store
        self._process = process
        self._said = said
        self._program = oracle_program()
        self.name_server = wait_until(self._find_name_server, "RocketMQ's start", START_TIMEOUT_S)
        wait_until(self._leads, "the broker's registration as master", START_TIMEOUT_S)
        told = [line.split() for line in said.read_text().splitlines()]
        self.broker_address = next(words[1] for words in told if words[:1] == [SELF_ID])

    def dump(self, target: Path) -> Any:
        """All that the broker serves, in the form of the golden ``*.json.xz``."""
        command = ["java", "Dump", self.name_server, str(target), BROKER]
        done = self._run(command, timeout_s=DUMP_TIMEOUT_S, **_DUMP_HEAP)

        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(target.read_text())

    def mqadmin(self, *words: str) -> str:
        """What RocketMQ's own tool prints of this broker."""
        done = self._run(["mqadmin", *words, "-n", self.name_server], timeout_s=DUMP_TIMEOUT_S)

        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def read_on(self, group: str, topic: str, messages: int) -> set[tuple[int, int]]:
        """Queue and offset of each message that a push consumer of ``group`` is given, until there
        are so many.
        """
        words = ["java", str(_READ_ON), self.name_server, group, topic, str(messages)]
        done = self._run(words, timeout_s=DUMP_TIMEOUT_S)

        assert done.returncode == 0, done.stdout + done.stderr
        rows = [line.split() for line in done.stdout.splitlines() if line.startswith("read ")]
        assert len(rows) == messages, rows
        return {(int(queue), int(offset)) for _, queue, offset in rows}

    def _find_name_server(self) -> str:
        """Its address, once the broker listens too; empty before."""
        lines = self._said.read_text().splitlines()

        assert self._process.poll() is None, lines
        return next((line.split()[1] for line in lines if line.startswith("namesrv ")), "")

    def _leads(self) -> bool:
        """Whether the broker has won its election, and told the name server of its topics."""
        assert self._process.poll() is None
        listed = self._run(["mqadmin", "clusterList", "-n", self.name_server], timeout_s=60.0)
        rows = [line.split() for line in listed.stdout.splitlines()]
        return any(row[1:3] == [BROKER, MASTER_ID] for row in rows)

    def _run(
        self, arguments: list[str], *, timeout_s: float, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, str(self._program), *arguments],
            env={**os.environ, **environment}, capture_output=True, text=True, check=False,
            timeout=timeout_s,
        )  # fmt: skip


_READ_ON = Path(__file__).with_name("ReadOn.java")


def dledger_folder(self_id: str) -> Path:
    """Where a member keeps its DLedger log, below its store."""
    return Path(f"dledger-{self_id}")


@contextmanager
def rocketmq_serving(
    given: Path,
    folder: Path,
    *,
    plain: bool,
    settings: Mapping[str, int | str],
    self_id: str = SELF_ID,
) -> Iterator[RocketMQ]:
    """The real broker on a copy of the store ``given``, which is left behind in ``folder``.

    Args:
        self_id: the member that the store is of. The broker is a group of one whose member is n0;
            DLedger names the folder of its log by the member, so in the copy it is called that.
    """
    store = folder / SELF_ID / "store"
    store.parent.mkdir(parents=True)
    subprocess.run(["cp", "-a", "--sparse=always", str(given), str(store)], check=True)
    if not plain:
        (store / dledger_folder(self_id)).rename(store / dledger_folder(SELF_ID))
    command = [sys.executable, str(oracle_program()), "serve", str(folder), "--replicas", "1"]
    command += ["--plain"] if plain else []
    # Stores that are years old, and it deletes what has been there for three days at four o'clock.
    said_all = {"fileReservedTime": RESERVED_HOURS, **settings}
    command += [word for key, value in said_all.items() for word in ("--set", f"{key}={value}")]
    # It looks for free ports first and takes them later: one at a time on this machine.
    said = folder / "said"
    with ORACLE_LOCK.open("w") as lock, said.open("wb") as target:
        fcntl.flock(lock, fcntl.LOCK_EX)
        process = subprocess.Popen(
            command, stdout=target, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            yield RocketMQ(store, process, said)
        finally:
            _stop(process)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Stop the broker in order; whatever happens, nothing stays behind."""
    process.send_signal(signal.SIGTERM)
    try:
        status = process.wait(STOP_TIMEOUT_S)
    finally:
        end_all(process)

    assert status == 0


def end_all(process: subprocess.Popen[bytes]) -> None:
    """Kill what is left of a program and of all that it started, which are a process group.

    On return nobody else finds their ports taken: a JVM that is killed has them for a moment yet.
    """
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    wait_until(lambda: not _living_of_group(process.pid), "the end of all that was killed")


def _living_of_group(group: int) -> list[int]:
    living = []
    for pid in psutil.pids():
        with suppress(ProcessLookupError):
            if os.getpgid(pid) == group and is_alive(pid):
                living.append(pid)
    return living
