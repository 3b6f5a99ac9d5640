"""Clients that are closed at the end of a ``with`` block."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Closing(ABC):
    """A client of threads, used as ``with Client(…) as client:``."""

    @abstractmethod
    def close(self) -> None:
        """Say goodbye, and close."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class AsyncClosing(ABC):
    """A client of a loop, opened by ``async with``; what that opens is its own."""

    @abstractmethod
    async def close(self) -> None:
        """Say goodbye, and close."""

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
