"""Meter of a store's size: files are counted by a process of its own, however many there are.

A store of ten thousand topics has a hundred thousand files: to look at them takes seconds, and on a
disk that hangs for ever. The supervisor answers for the health of the node meanwhile.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import setproctitle

from ledgermq.process.child_process import die_with
from ledgermq.store.files.disk_space import bytes_on_disk

MAX_AGE_NS = 30_000_000_000
"""Greatest age of a count that is told; an older one is counted anew."""

SMALL_S = 0.1
"""A count is waited for so long when it begins: a small store is told at once."""

_NICE = 5
_TOLD_SIZE_MAX = 32


class StoreMeter:
    """Counts when it is asked; nothing goes on while nobody asks."""

    def __init__(self, root: Path, *, count: Callable[[Path], int] = bytes_on_disk) -> None:
        """Nothing is counted yet.

        Args:
            count: gives the bytes on disk below ``root``.
        """
        self._root = root
        self._count = count
        self._size: int | None = None
        self._begun_ns: int | None = None
        self._pid = 0
        self._told = -1

    def ask(self, now_ns: int) -> int | None:
        """Bytes that the store occupied when it was counted last, mostly in the last half minute;
        None before the first count has ended.
        """
        self.look()
        begun_ns = self._begun_ns
        if not self._pid and (begun_ns is None or now_ns - begun_ns > MAX_AGE_NS):
            self._begin(now_ns)
            select.select([self._told], [], [], SMALL_S)
            self._take()
        return self._size

    def look(self) -> None:
        """Take what was counted, if a count has ended; call it in each turn."""
        self._take()
        if self._pid and os.waitpid(self._pid, os.WNOHANG)[0]:
            self._pid = 0

    def close(self) -> None:
        """End a count that is going on, without waiting: on a disk that hangs nothing ends it."""
        self._close_pipe()
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, os.WNOHANG)
            self._pid = 0

    def close_in_child(self) -> None:
        """Close what a child of the supervisor does not need: the count under way is not for it."""
        self._close_pipe()

    def _begin(self, now_ns: int) -> None:
        self._begun_ns = now_ns
        told, tells = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        parent = os.getpid()
        # Handlers of the supervisor are not for the other process, which is never asked to stop.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        pid = os.fork()
        if pid == 0:
            self._be_counting(parent, tells)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(tells)
        self._pid, self._told = pid, told

    def _be_counting(self, parent: int, tells: int) -> NoReturn:
        status = 1
        try:
            die_with(parent)
            # Locks and sockets of the node: should this process not end, they are not held by it.
            os.closerange(3, tells)
            os.closerange(tells + 1, os.sysconf("SC_OPEN_MAX"))
            os.nice(_NICE)
            setproctitle.setproctitle(f"ledgermq: size of {self._root}")
            os.write(tells, str(self._count(self._root)).encode())
            status = 0
        finally:
            os._exit(status)

    def _take(self) -> None:
        if self._told < 0:
            return
        with suppress(BlockingIOError):
            told = os.read(self._told, _TOLD_SIZE_MAX)
            self._close_pipe()
            if told:
                self._size = int(told)

    def _close_pipe(self) -> None:
        if self._told >= 0:
            os.close(self._told)
            self._told = -1
