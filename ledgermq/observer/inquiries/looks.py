"""Looks at messages: how many there may be at once, and the thread in which rows are made of them.

Whoever may send decides what is stored, and so what a look at it costs. One look has at most one
answer of the broker and one of its own in memory; here is how many looks there are.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from typing import ParamSpec, TypeVar

from ledgermq.model.errors import BusyError

LOOKS_MAX = 4
LOOKS_PER_CALLER_MAX = 2
"""At once; of one caller's more the next ones wait."""

WAIT_S = 8.0
"""For a place; less than the port waits for an answer."""

Args = ParamSpec("Args")
Made = TypeVar("Made")


class Looks:
    """Places and the thread of all looks; owned by the observer's loop."""

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(LOOKS_MAX)
        self._of_caller: dict[Hashable, tuple[asyncio.Semaphore, int]] = {}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="observer-look")

    def close(self) -> None:
        """Make nothing more."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    @asynccontextmanager
    async def place(self, caller: Hashable) -> AsyncIterator[None]:
        """One of the places, as soon as there is one.

        Raises:
            BusyError: there was none for ``WAIT_S``.
        """
        own, users = self._of_caller.get(caller, (asyncio.Semaphore(LOOKS_PER_CALLER_MAX), 0))
        self._of_caller[caller] = own, users + 1
        try:
            begun = asyncio.get_running_loop().time()
            async with _acquired(own, WAIT_S):
                left_s = begun + WAIT_S - asyncio.get_running_loop().time()
                async with _acquired(self._places, left_s):
                    yield
        finally:
            own, users = self._of_caller.pop(caller)
            if users > 1:
                self._of_caller[caller] = own, users - 1

    async def make(
        self, make: Callable[Args, Made], *args: Args.args, **kwargs: Args.kwargs
    ) -> Made:
        """What ``make`` returns of its arguments, called in the thread, one after the other: the
        loop answers others meanwhile.
        """
        call = partial(make, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)


@asynccontextmanager
async def _acquired(places: asyncio.Semaphore, wait_s: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(wait_s):
            await places.acquire()
    except TimeoutError:
        raise BusyError(
            "too many look at messages at once", limit=LOOKS_MAX, of_a_caller=LOOKS_PER_CALLER_MAX
        ) from None
    try:
        yield
    finally:
        places.release()
