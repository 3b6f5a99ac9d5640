"""Free ports of the loopback address, of which no two programs of ours choose the same.

The kernel's own choice, port 0, may be taken by any connection between the choice and the node's
start. These ports are none that it chooses, and who has chosen some claims them in the namespace of
abstract unix sockets: a claim is seen by all accounts, is no file, and ends with its process.
"""

from __future__ import annotations

import secrets
import socket
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import Self

from ledgermq.model.errors import StorageError

LOOPBACK = "127.0.0.1"
FIRST, LAST = 12_000, 30_000
"""Linux gives connections ports from 32768 on, and RocketMQ's brokers take 30911 and more."""

ATTEMPTS = 200


class PortClaims:
    """Ports that nobody else who asks here gets, until they are given back or the process ends."""

    def __init__(self) -> None:
        self._held = ExitStack()

    def take(self, count: int) -> int:
        """The first of ``count`` ports in a row at which nobody listens.

        Raises:
            StorageError: none were found.
        """
        for _ in range(ATTEMPTS):
            first = FIRST + secrets.randbelow(LAST - FIRST - count)
            if self.has_taken(first, count):
                return first
        raise StorageError(
            "no free ports in a row", count=count, host=LOOPBACK, first=FIRST, last=LAST
        )

    def has_taken(self, first: int, count: int) -> bool:
        """Whether ``count`` ports from ``first`` on were free; they are claimed then."""
        with ExitStack() as claims, suppress(OSError):
            for port in range(first, first + count):
                claim = claims.enter_context(socket.socket(socket.AF_UNIX))
                claim.bind(f"\0ledgermq-port-{port}")
                # Bound as the node will do it, who may follow another one on the same port.
                socket.create_server((LOOPBACK, port)).close()
            self._held.push(claims.pop_all())
            return True
        return False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._held.close()
