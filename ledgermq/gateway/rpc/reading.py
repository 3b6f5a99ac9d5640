"""Places for messages that are being read: so many at once, and half of them for one sender.

A call is looked at before its message is taken in, and until then gRPC's library keeps some
kilobytes of it. So what all senders together can have the process hold is bounded, and who begins
messages and does not end them stands in the way of itself alone.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from grpc import aio

from ledgermq.gateway.rpc.definition import RpcCode
from ledgermq.gateway.rpc.statuses import RpcRefusedError
from ledgermq.model.errors import BusyError

PLACES = 64
READ_S = 10.0
"""Until a message that has its place is all there."""

TURN_S = 5.0
"""Until a place is free; who has waited so long is told to come again."""


class ReadingPlaces:
    """Owned by the process's loop."""

    def __init__(self, places: int = PLACES) -> None:
        self._places = places
        self._taken: Counter[str] = Counter()
        self._freed = asyncio.Event()

    async def read(self, owner: str, context: Any) -> bytes:
        """The message of a call.

        Args:
            owner: whose share of the places it takes.

        Raises:
            BusyError: no place became free in time.
            RpcRefusedError: it did not come, or not in time.
        """
        async with self.place(owner, within_s=TURN_S):
            try:
                async with asyncio.timeout(READ_S):
                    data = await context.read()
            except TimeoutError:
                raise RpcRefusedError(
                    RpcCode.REQUEST_TIMEOUT, "message did not come in time", limit_s=READ_S
                ) from None
        if data is aio.EOF:
            raise RpcRefusedError(RpcCode.BAD_REQUEST, "call has no message")
        content: bytes = data
        return content

    @asynccontextmanager
    async def place(self, owner: str, *, within_s: float | None = None) -> AsyncIterator[None]:
        """Have a place, as long as the block lasts.

        Args:
            within_s: it is waited for so long at most; None: without an end.

        Raises:
            BusyError: none became free in time.
        """
        try:
            async with asyncio.timeout(within_s):
                while not self._has_room(owner):
                    await self._freed.wait()
        except TimeoutError:
            raise BusyError(
                "too many messages are being read", limit=self._places, owner=owner
            ) from None
        self._taken[owner] += 1
        try:
            yield
        finally:
            self._leave(owner)

    def _has_room(self, owner: str) -> bool:
        all_, mine = self._taken.total(), self._taken[owner]
        return all_ < self._places and mine < self._places // 2

    def _leave(self, owner: str) -> None:
        self._taken[owner] -= 1
        if not self._taken[owner]:
            del self._taken[owner]
        self._freed.set()
        self._freed = asyncio.Event()
