"""Control socket of a worker: one descriptor in its poll set, for whoever asks and all who wait."""

from __future__ import annotations

import selectors
from pathlib import Path

from ledgermq.process.control import Answer, ControlServer


class PolledControl:
    """Owned by the worker's process; ``source`` goes into its poll set."""

    def __init__(self, path: Path, mode: int, answer: Answer, *, audited: frozenset[str]) -> None:
        """Listen at ``path``; see ``ControlServer``.

        Raises:
            ConfigError: the path is too long for a socket.
            StorageError: the socket cannot be made there.
        """
        self._selector = selectors.EpollSelector()
        self._server = ControlServer(path, mode, self._selector, answer, audited=audited)

    @property
    def source(self) -> int:
        """A descriptor that can be read while a client waits."""
        return self._selector.fileno()

    def serve(self, now_ns: int) -> None:
        """Do what clients wait for; never blocks."""
        for key, _ in self._selector.select(0):
            self._server.serve(key.fd, now_ns)

    def close(self) -> None:
        """Stop listening, and remove the socket."""
        self._server.close()
        self._selector.close()
