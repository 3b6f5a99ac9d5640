"""Links in an asyncio loop: driven by their descriptors and deadlines, without a thread."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence

from ledgermq.client.core.link import NEVER
from ledgermq.client.core.nodes import AnyLink
from ledgermq.client.core.questions import BrokerQuestions
from ledgermq.client.core.requests import AsOf, Request, RequestPipeline, Result, Steps, noting
from ledgermq.hosts.wake_bell import SLEEP_S_MAX
from ledgermq.model.errors import ClosedError, ConfigError, LedgerError

WATCH_AGAIN_S = 0.05
"""While the process has no descriptors left to watch a link by, it is looked at so often."""


async def is_set_within(event: asyncio.Event, seconds: float | None) -> bool:
    """Return when ``event`` is set, or so many seconds are over; whether it is set.

    ``asyncio.wait_for`` of Python 3.11 forgets a cancellation that comes together with the event.
    """
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True


async def is_readable_within(descriptors: Sequence[int], seconds: float) -> bool:
    """Return when one of ``descriptors`` can be read, or so many seconds are over; whether one can.

    False sooner while the process has no descriptors left to watch them by.
    """
    loop, news = asyncio.get_running_loop(), asyncio.Event()
    copies: list[int] = []
    try:
        try:
            # Copies: ZeroMQ closes its own when it likes, and their numbers go to others.
            copies.extend(map(os.dup, descriptors))
        except OSError:
            seconds = min(seconds, WATCH_AGAIN_S)
        for copy in copies:
            loop.add_reader(copy, news.set)
        return await is_set_within(news, max(0.0, seconds))
    finally:
        for copy in copies:
            loop.remove_reader(copy)
            os.close(copy)


class LoopWatch:
    """Calls ``turn`` in the loop whenever the link, or the time, has work for it.

    Attributes:
        loop: where it is called.
        timer_at: when the time calls it next, by ``time.monotonic``.
    """

    def __init__(
        self, link: AnyLink, deadline: Callable[[], float], turn: Callable[[], None]
    ) -> None:
        """A watch in the running loop; ``update`` starts it.

        Args:
            deadline: when ``turn`` has work that no descriptor tells of, by ``time.monotonic``.
            turn: takes all there is, and calls ``update``.
        """
        self.loop = asyncio.get_running_loop()
        self._link = link
        self._deadline = deadline
        self._turn = turn
        self._generation = -1
        self._descriptors: list[int] = []
        self._timer: asyncio.TimerHandle | None = None
        self.timer_at = NEVER
        self._is_closed = False

    def update(self) -> None:
        """Watch what the link has now, until its deadline of now; nothing once it is closed.

        Raises:
            ConfigError: another loop asks for it, in which nothing would wake who waits.
        """
        if self._is_closed:
            return
        if asyncio.get_running_loop() is not self.loop:
            raise ConfigError(
                "client belongs to another loop: open it in the asyncio.run that uses it"
            )
        until = self._deadline()
        if self._generation != self._link.generation and not self._watch():
            until = min(until, time.monotonic() + WATCH_AGAIN_S)
        if self._timer is not None:
            # Too early is as good: another turn costs less than another timer with each message.
            if self.timer_at <= until:
                return
            self._timer.cancel()
        self.timer_at = until
        seconds = min(max(0.0, until - time.monotonic()), SLEEP_S_MAX)
        self._timer = self.loop.call_later(seconds, self._ring)

    def _watch(self) -> bool:
        """Watch the descriptors of the link; false when there is no room for copies of them."""
        self._forget()
        try:
            # Copies: ZeroMQ closes its own when it likes, and their numbers go to others.
            for descriptor in self._link.descriptors:
                self._descriptors.append(os.dup(descriptor))
        except OSError:
            self._forget()
            self._generation = -1
            return False
        for descriptor in self._descriptors:
            self.loop.add_reader(descriptor, self._turn)
        self._generation = self._link.generation
        return True

    def close(self) -> None:
        """Watch nothing any more."""
        self._is_closed = True
        self._forget()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ring(self) -> None:
        self._timer = None
        self.timer_at = NEVER
        self._turn()
        if self._timer is None:
            self.update()

    def _forget(self) -> None:
        for descriptor in self._descriptors:
            self.loop.remove_reader(descriptor)
            os.close(descriptor)
        self._descriptors = []


class AsyncRequests(BrokerQuestions):
    """Questions to the broker that are awaited.

    Attributes:
        as_of: of the answer that came last: see ``noting``.
    """

    def __init__(self, link: AnyLink, *, timeout_s: float) -> None:
        """Questions over ``link``; from a coroutine of the loop that is to serve them.

        Args:
            timeout_s: for each question.
        """
        self.requests = RequestPipeline(link)
        self.timeout_s = timeout_s
        self.as_of: AsOf | None = None
        self.on_turn: Callable[[], None] = lambda: None
        self._is_closed = False
        self._watch = LoopWatch(link, lambda: self.requests.deadline, self.turn)

    def turn(self) -> None:
        """Take answers, send questions."""
        self.requests.advance(time.monotonic())
        self.on_turn()
        self._watch.update()

    async def ask(self, request: Request) -> None:
        """Return when ``request`` is done; once this is closed, with an error."""
        if self._is_closed:
            request.error = closed_early()
            return
        done = asyncio.get_running_loop().create_future()

        def note(_: Request) -> None:
            if not done.done():
                done.set_result(None)

        request.callback = note
        self.requests.ask(request)
        self.turn()
        try:
            await done
        finally:
            self.requests.forget(request)

    async def ask_all(self, requests: Sequence[Request]) -> None:
        """Ask all at once, and return when each has its answer or its time is over."""
        until = time.monotonic() + self.timeout_s
        for request in requests:
            request.deadline = until
        await asyncio.gather(*map(self.ask, requests))

    async def run(self, steps: Steps[Result], *, timeout_s: float | None = None) -> Result:
        """What ``steps`` come to, asked one after the other.

        Raises:
            LedgerError: the broker refused one, or did not answer.
        """
        steps = noting(steps, self)
        while True:
            try:
                request = next(steps)
            except StopIteration as end:
                result: Result = end.value
                return result
            request.deadline = time.monotonic() + (timeout_s or self.timeout_s)
            await self.ask(request)

    def close(self) -> None:
        """Say goodbye, and close; who still waits for an answer is told that there is none."""
        self._is_closed = True
        self._watch.close()
        self.requests.link.close()
        self.requests.abandon(closed_early())


def closed_early() -> LedgerError:
    """What who waits for an answer is told when its client is closed."""
    return ClosedError("client was closed before the broker answered")
