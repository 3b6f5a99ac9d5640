"""An understudy and its master are killed again and again, and both have the same bytes.

``LEDGERMQ_UNDERSTUDY_KILLS=200 python -m pytest tests/compat/test_understudy_kills.py`` for the
long run; the master is killed with each fourth. Meanwhile it takes 50 MB a second.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import zip_longest
from pathlib import Path

import pytest

from tests.compat.java_broker import JavaBroker
from tests.compat.other_clients import NotToBeHadError
from tests.compat.rocketmq5 import fetch
from tests.compat.test_understudy import Load, Stored, status_of
from tests.process.conftest import wait_until
from tests.process.understudy_process import UnderstudyProcess
from tests.suite.patience import PATIENCE_S
from tests.unit.understudy.test_understudy import queue_bytes

pytestmark = [pytest.mark.oracle, pytest.mark.slow]

KILLS = int(os.environ.get("LEDGERMQ_UNDERSTUDY_KILLS", "8"))
PER_MASTER = 4
SEED = 47
MIB = 1024 * 1024
SIZES = {"mappedFileSizeCommitLog": 64 * MIB, "mappedFileSizeConsumeQueue": 6_000_000}
BODY_SIZES = (30, 900, 30_000, 300_000, 1_000_000)
BYTES_PER_S = 50_000_000.0


class Flood(Load):
    """Sends so many bytes a second, one message after the other, and keeps no bodies.

    Attributes:
        sent: bytes of bodies that were acknowledged.
        lasted_s: until it ended.
    """

    def __init__(self, address: str, *, seed: int) -> None:
        super().__init__(address, seed=seed, sizes=BODY_SIZES)
        self.sent, self.lasted_s = 0, 0.0
        self._begin = time.monotonic()

    def send(self, properties: str = "") -> Stored:
        stored = super().send(properties)
        self.sent += len(stored.body)
        self.lasted_s = time.monotonic() - self._begin
        return stored._replace(body=b"")

    def has(self, count: int) -> bool:
        """Whether so many were answered."""
        return len(self.stored) >= count

    def pause(self) -> None:
        self._ends.wait(self.sent / BYTES_PER_S - self.lasted_s)


@contextmanager
def flooded(address: str, *, seed: int) -> Iterator[Flood]:
    """Flood until the end of the block."""
    flood = Flood(address, seed=seed)
    flood.start()
    try:
        yield flood
    finally:
        flood.end()


def is_beyond(process: UnderstudyProcess, position: int) -> bool:
    """Whether it has more on its disk."""
    return status_of(process).durable > position


def log_files(root: Path) -> list[Path]:
    return sorted((root / "commitlog").iterdir())


def log_end(root: Path) -> int:
    """Where its log ends; records end with no zero here, and RocketMQ makes the next file ahead."""
    for path in reversed(log_files(root)):
        if size := len(path.read_bytes().rstrip(b"\0")):
            return int(path.name) + size
    return 0


def compare(ours: Path, theirs: Path) -> None:
    """Log and queues are the same, byte for byte, file by file: there are gigabytes."""
    for one, other in zip_longest(log_files(ours), log_files(theirs)):
        if one is None:
            assert not other.read_bytes().rstrip(b"\0"), other
            continue
        assert one.name == other.name
        assert one.read_bytes().rstrip(b"\0") == other.read_bytes().rstrip(b"\0"), one
    queues, expected = queue_bytes(ours), queue_bytes(theirs)
    assert {name for name in expected if any(expected[name])} == set(queues)
    for name, content in queues.items():
        assert content == expected[name], name


@pytest.mark.parametrize("product", [4, 5])
def test_whoever_is_killed_however_often_the_bytes_are_equal(tmp_path: Path, product: int) -> None:
    """RocketMQ 4.9.4 and 5.5.1, under a load that goes on whatever is killed."""
    if product == 5:
        try:
            fetch()
        except NotToBeHadError as error:
            pytest.skip(str(error))
    master = JavaBroker(product, tmp_path, **SIZES)
    process = UnderstudyProcess(tmp_path / "understudy", tmp_path / "said")
    chance = random.Random(SEED)
    sent, lasted_s = 0, 0.0
    with ExitStack() as ends:
        ends.callback(master.kill)
        ends.callback(process.kill)
        master.start("ASYNC_MASTER")
        process.add(master.ha, master.address)
        process.start()
        for killed in range(0, KILLS, PER_MASTER):
            with flooded(master.address, seed=SEED + killed) as load:
                for _ in range(min(PER_MASTER, KILLS - killed)):
                    wait_until(
                        partial(load.has, len(load.stored) + chance.randrange(1, 60)), "load"
                    )
                    process.kill()
                    process.start()
                wait_until(partial(is_beyond, process, status_of(process).durable), "it follows")
                master.kill()
            sent, lasted_s = sent + load.sent, lasted_s + load.lasted_s
            assert not process.has_ended, process.said.read_text()
            master.start("ASYNC_MASTER")
        print(
            f"LEDGERMQ_UNDERSTUDY_KILLS={KILLS} seed={SEED} {sent / 1e9:.2f} GB at"
            f" {sent / 1e6 / lasted_s:.1f} MB/s"
        )
        end = log_end(master.store)

        def is_level() -> bool:
            status = status_of(process)
            return (status.durable, status.dispatched, status.tables_position) == (end,) * 3

        wait_until(is_level, "the understudy is level", PATIENCE_S)
        compare(process.folder, master.store)
        wait_until(lambda: process.show()["state"] == "following", "it follows", PATIENCE_S)
        assert process.stop() == 0
