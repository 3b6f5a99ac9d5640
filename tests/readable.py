"""Waiting for a descriptor, whatever its number: ``select`` knows those below 1,024 alone."""

from __future__ import annotations

import select
from typing import Protocol


class HasFileno(Protocol):
    """A socket, and what wraps one."""

    def fileno(self) -> int:
        """Its descriptor."""
        ...


def is_readable(source: HasFileno | int, timeout_s: float) -> bool:
    """Whether ``source`` can be read, or has ended; waits for that so long."""
    poll = select.poll()
    poll.register(source, select.POLLIN)
    return bool(poll.poll(timeout_s * 1_000))
