"""Turns of a client that one thread at a time may use."""

from __future__ import annotations

import threading

from ledgermq.model.errors import ConfigError


class OneThread:
    """A turn, as a ``with`` block; a thread that has it may begin another one within."""

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        """Begin a turn; waits for nobody.

        Raises:
            ConfigError: another thread has one.
        """
        if not self._lock.acquire(blocking=False):
            raise ConfigError(
                "another thread uses this client now: each thread makes one of its own",
                thread=threading.current_thread().name,
            )

    def __exit__(self, *_: object) -> None:
        self._lock.release()
