"""The meter of the store's size: nobody waits for it, whatever the disk does."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from ledgermq.daemon.children import MAX_AGE_NS, StoreMeter
from tests.process.conftest import wait_until
from tests.suite.patience import PATIENCE_S

Counting = Callable[[], list[psutil.Process]]

LATER_NS = MAX_AGE_NS + 1
DISK_S = PATIENCE_S
"""A disk that hangs for so long."""


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    """A pipe with a name: who reads it waits until a test has written into it."""
    path = tmp_path / "disk"
    os.mkfifo(path)
    return path


@pytest.fixture
def meter(disk: Path) -> Iterator[StoreMeter]:
    """Of a disk that answers when a test has it answer."""
    made = StoreMeter(disk, count=lambda path: int(path.read_text()))
    yield made
    made.close()


@pytest.fixture
def counting() -> Counting:
    """Processes that count, and such that were not reaped."""
    # Those of other tests.
    before = psutil.Process().children()
    return lambda: [one for one in psutil.Process().children() if one not in before]


def test_a_small_store_is_told_at_once_and_again_when_that_is_old(
    tmp_path: Path, counting: Counting
) -> None:
    meter = StoreMeter(tmp_path)
    before = wait_until(lambda: meter.ask(0) is not None, "the count") and meter.ask(0)
    (tmp_path / "more").write_bytes(bytes(1_000_000))

    assert before == 0
    assert meter.ask(MAX_AGE_NS) == 0
    wait_until(lambda: (meter.ask(LATER_NS) or 0) >= 1_000_000, "another count")
    wait_until(lambda: (meter.look(), not counting())[1], "nobody to count any more")


def test_nobody_waits_for_a_disk_that_hangs(
    meter: StoreMeter, disk: Path, counting: Counting
) -> None:
    began = time.monotonic()
    first = [meter.ask(time_ns) for time_ns in (1, 2, LATER_NS)]
    took_s = time.monotonic() - began
    one = counting()
    disk.write_text("4711")
    wait_until(lambda: meter.ask(2) == 4711, "the count")
    wait_until(lambda: (meter.look(), not counting())[1], "its end")
    # While it hangs again what was counted before is told.
    again = meter.ask(LATER_NS)

    assert first == [None] * 3
    assert took_s < DISK_S / 2
    assert len(one) == 1
    assert again == 4711


def test_a_count_that_fails_is_tried_again_later(tmp_path: Path, counting: Counting) -> None:
    tries = tmp_path / "tries"

    def count(root: Path) -> int:
        with tries.open("a") as file:
            file.write("x")
        raise OSError(5, "Input/output error", str(root))

    meter = StoreMeter(tmp_path, count=count)

    assert meter.ask(0) is None
    wait_until(lambda: (meter.look(), not counting())[1], "the end")
    assert meter.ask(1) is None
    assert tries.read_text() == "x"
    assert meter.ask(LATER_NS) is None
    wait_until(lambda: (meter.look(), not counting())[1], "the end")
    assert tries.read_text() == "xx"


def test_the_counting_process_holds_nothing_of_the_node(
    meter: StoreMeter, disk: Path, counting: Counting
) -> None:
    with disk.with_name("lock").open("w") as lock:
        assert meter.ask(0) is None
        (one,) = counting()
        wait_until(
            lambda: not any(path.path == lock.name for path in one.open_files()),
            "the lock to be closed",
        )
    meter.close()
    wait_until(lambda: not one.is_running() or one.status() == "zombie", "its end")
