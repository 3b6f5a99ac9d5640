"""Bells that wake a thread in its poll: in one descriptor where the system has eventfd and poll, in
a pair of sockets and with select elsewhere.
"""

from __future__ import annotations

import os
import select
import socket
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Protocol
from weakref import finalize

SLEEP_S_MAX = 60.0

READABLE: int = getattr(select, "POLLIN", 1)
"""What a descriptor is registered for at a poll."""


class DescriptorPoll(Protocol):
    """What ``select.poll`` returns, as far as it is used here."""

    def register(self, fd: int, eventmask: int = ..., /) -> None:
        """Have the next polls look at a descriptor."""

    def poll(self, timeout: float, /) -> list[tuple[int, int]]:
        """The descriptors that can be read, within so many milliseconds."""


class SelectPoll:
    """A poll of systems that have select alone, and no limit of 1,023 to its descriptors."""

    def __init__(self) -> None:
        self._descriptors: list[int] = []

    def register(self, descriptor: int, _events: int = READABLE, /) -> None:
        """Have the next polls look whether it can be read."""
        self._descriptors.append(descriptor)

    def poll(self, timeout_ms: float, /) -> list[tuple[int, int]]:
        """The descriptors that can be read, within so many milliseconds."""
        if not self._descriptors:
            # Which some systems refuse to wait for.
            time.sleep(timeout_ms / 1_000)
            return []
        try:
            readable, _, _ = select.select(self._descriptors, (), (), timeout_ms / 1_000)
        except (OSError, ValueError):
            # One was closed meanwhile, of which a poll would tell as of news: who looks finds that.
            return []
        return [(descriptor, READABLE) for descriptor in readable]


class EventBell:
    """A bell that any thread may ring; many rings before it is cleared are one.

    Its descriptor is closed with the last reference: who was woken by the last ring still looks at
    it, and by then its number could be that of another file. Who knows better closes it.

    Attributes:
        descriptor: can be read when it has been rung.
    """

    def __init__(self) -> None:
        self.descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.close = finalize(self, os.close, self.descriptor)
        self.close.atexit = False

    def ring(self) -> None:
        """Wake who polls the descriptor."""
        os.eventfd_write(self.descriptor, 1)

    def clear(self) -> None:
        """Forget the rings so far."""
        with suppress(BlockingIOError):
            os.eventfd_read(self.descriptor)


class PairBell:
    """The same in two sockets, for systems without eventfd.

    Attributes:
        descriptor: can be read when it has been rung.
    """

    def __init__(self) -> None:
        self._rung, self._ringing = socket.socketpair()
        self._rung.setblocking(False)
        self._ringing.setblocking(False)
        self.descriptor = self._rung.fileno()
        self.close = finalize(self, _close_both, self._rung, self._ringing)
        self.close.atexit = False

    def ring(self) -> None:
        """Wake who polls the descriptor."""
        # So many rings that there is no room for one more are rings, too.
        with suppress(BlockingIOError):
            self._ringing.send(b"\0")

    def clear(self) -> None:
        """Forget the rings so far."""
        with suppress(BlockingIOError):
            while self._rung.recv(4_096):
                pass


def _close_both(one: socket.socket, other: socket.socket) -> None:
    one.close()
    other.close()


WakeBell = EventBell | PairBell

new_bell: Callable[[], WakeBell] = EventBell if hasattr(os, "eventfd") else PairBell

# Not select.select where there is poll: it knows no descriptor above 1,023 there, of applications
# with many files.
new_poll: Callable[[], DescriptorPoll] = select.poll if hasattr(select, "poll") else SelectPoll


def wait_for_descriptors(descriptors: Iterable[int], seconds: float) -> None:
    """Sleep until one of ``descriptors`` can be read, at most so long, or a minute."""
    poll = new_poll()
    for descriptor in descriptors:
        poll.register(descriptor, READABLE)
    poll.poll(max(0.0, min(seconds, SLEEP_S_MAX)) * 1_000)
