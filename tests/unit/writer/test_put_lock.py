"""The put lock tells who is inside; slow puts and dead holders are counted."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ledgermq.ipc.cursor_page import CursorPage
from ledgermq.ipc.page_slots import PutLock
from ledgermq.writer.log.put_lock import PutLockHolder


@pytest.fixture
def page(tmp_path: Path) -> CursorPage:
    return CursorPage.create(tmp_path / "page")


def test_the_holder_is_seen_while_inside(page: CursorPage) -> None:
    lock = PutLockHolder(page, warn_ms=10_000)
    with lock:
        inside = page.read_put_lock()
    outside = page.read_put_lock()

    assert (inside.holder, inside.since_ns > 0, inside.taken) == (os.getpid(), True, 1)
    assert outside == PutLock(holder=0, since_ns=0, taken=1, slow=0, recovered=0)


def test_a_put_that_takes_too_long_is_counted_and_logged(
    page: CursorPage, caplog: pytest.LogCaptureFixture
) -> None:
    with PutLockHolder(page, warn_ms=0):
        pass

    assert page.read_put_lock().slow == 1
    assert "put lock held for long" in caplog.text


def test_an_error_inside_gives_the_lock_back(page: CursorPage) -> None:
    with pytest.raises(ZeroDivisionError), PutLockHolder(page, warn_ms=10_000):
        _ = 1 // 0

    assert page.read_put_lock().holder == 0


def test_the_next_writer_recovers_from_a_holder_that_died(
    page: CursorPage, caplog: pytest.LogCaptureFixture
) -> None:
    child = os.fork()
    if child == 0:
        PutLockHolder(page, warn_ms=10_000).__enter__()
        os._exit(0)
    os.waitpid(child, 0)
    left = page.read_put_lock()
    PutLockHolder(page, warn_ms=10_000)

    assert left.holder == child
    assert page.read_put_lock() == PutLock(holder=0, since_ns=0, taken=1, slow=0, recovered=1)
    assert f"pid={child}" in caplog.text
