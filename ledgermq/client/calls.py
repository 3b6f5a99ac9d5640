"""Calls of other clients, one after the other: made by who waits, and awaited in a loop.

What a client of all groups has done in one of them is done by a client of that group, which has the
same methods in both forms. So what is called, and with what, is declared once.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from ledgermq.client.core.requests import Result

Calls = Generator[Callable[[], Any], Any, Result]
"""Each call is yielded, and what it gives is sent back: in a loop, what awaiting that gives."""


class MakesCalls:
    """Makes the calls of its verbs."""

    def run(self, steps: Calls[Result]) -> Result:
        """What ``steps`` come to."""
        given: object = None
        while True:
            try:
                call = steps.send(given)
            except StopIteration as end:
                result: Result = end.value
                return result
            given = call()


class AwaitsCalls:
    """Awaits what the calls of its verbs give."""

    async def run(self, steps: Calls[Result]) -> Result:
        """What ``steps`` come to."""
        given: object = None
        while True:
            try:
                call = steps.send(given)
            except StopIteration as end:
                result: Result = end.value
                return result
            given = await call()
