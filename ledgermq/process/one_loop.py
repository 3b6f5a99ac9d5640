"""Processes whose work is one loop of asyncio: what they owe the node while it runs."""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ledgermq.ipc.counters import Counts
from ledgermq.ipc.cursor_page import CursorPage, Role
from ledgermq.ipc.loop import StopFlag
from ledgermq.process import log_lines


@contextmanager
def entered_page(cursors: Path, role: Role) -> Iterator[CursorPage]:
    """The node's page, which this process has entered; its level of log lines is followed.

    Raises:
        StaleGenerationError: the supervisor has made no page, or another version has.
    """
    with CursorPage.attach(cursors) as page:
        page.enter_process(role)
        log_lines.follow(page)
        try:
            yield page
        finally:
            log_lines.follow(None)


@contextmanager
def own_counts(page: CursorPage, role: Role, of_now: Iterable[int]) -> Iterator[Counts]:
    """The process's counters; those ``of_now`` begin at 0, for they are no count since the node was
    started, and have what an earlier life of the process has left.
    """
    counts = page.counters(role)
    try:
        for counter in of_now:
            counts[counter] = 0
        yield counts
    finally:
        counts.release()


async def end_all(tasks: Collection[asyncio.Task[None]]) -> None:
    """Cancel tasks; on return all of them have ended, however that went."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def live(
    page: CursorPage, role: Role, stop: StopFlag, sleep_max_s: float, look: Callable[[], object]
) -> None:
    """Say that the process lives, and ``look``, each ``sleep_max_s``; take settings that were
    read again; return when it is told to stop.
    """
    is_told = asyncio.Event()
    asyncio.get_running_loop().add_reader(stop.fileno(), is_told.set)
    while not stop.reason:
        page.beat(role, time.monotonic_ns())
        look()
        with suppress(TimeoutError):
            await asyncio.wait_for(is_told.wait(), sleep_max_s)
        if is_told.is_set():
            is_told.clear()
            stop.drain()
        if stop.reload and stop.on_reload is not None:
            stop.reload = False
            # Read first: what is taken may be newer than its number, and never older.
            number = page.settings_number
            stop.on_reload()
            page.take_settings(role, number)


def bound_memory(bytes_max: int) -> None:
    """Whoever has this process take more than that ends it, and nothing else of the node."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = bytes_max if hard == resource.RLIM_INFINITY else min(bytes_max, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
