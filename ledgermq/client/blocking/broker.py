"""A connection to a broker that waits for answers. One thread at a time may ask."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from ledgermq.client.core.nodes import AnyLink
from ledgermq.client.core.questions import BrokerQuestions, ask
from ledgermq.client.core.requests import AsOf, Request, RequestPipeline, Result, Steps, noting
from ledgermq.hosts.wake_bell import wait_for_descriptors
from ledgermq.model.errors import ConfigError
from ledgermq.wire.session import Welcome


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


class Broker(BrokerQuestions):
    """Questions that wait for their answer.

    Attributes:
        as_of: of the last verb's answer: see ``noting``.
        one_thread: the turn of who asks.
    """

    def __init__(self, link: AnyLink, *, timeout_s: float) -> None:
        """Calls over ``link``, which nobody else may use meanwhile.

        Args:
            timeout_s: for each call.
        """
        self.requests = RequestPipeline(link)
        self.timeout_s = timeout_s
        self.as_of: AsOf | None = None
        self.one_thread = OneThread()

    def welcome(self) -> Welcome:
        """What the broker tells of itself; waits for it.

        Raises:
            NotLeaderError: no broker answers.
        """
        link = self.requests.link
        until = time.monotonic() + self.timeout_s
        while True:
            now = time.monotonic()
            self.requests.advance(now)
            if link.last_welcome is not None:
                return link.last_welcome
            if link.failure is not None or now >= until:
                raise link.unreachable()
            wait_for_link(link, min(until, self.requests.deadline) - now)

    def wait(self, request: Request) -> None:
        """Ask, and return when the answer or its time limit is there."""
        with self.one_thread:
            self.requests.ask(request)
            self._wait_done(request)

    def wait_asked(self, request: Request) -> None:
        """Return when the answer to what was asked before, or its time limit, is there."""
        if not request.done():
            self._wait_done(request)

    def wait_all(self, requests: Sequence[Request]) -> None:
        """Ask all at once, and return when each has its answer or its time is over."""
        until = time.monotonic() + self.timeout_s
        with self.one_thread:
            for request in requests:
                request.deadline = until
                self.requests.ask(request)
            for request in requests:
                self.wait_asked(request)

    def _wait_done(self, request: Request) -> None:
        while True:
            now = time.monotonic()
            self.requests.advance(now)
            if request.done():
                return
            wait_for_link(self.requests.link, self.requests.deadline - now)

    def run(self, steps: Steps[Result], *, timeout_s: float | None = None) -> Result:
        """What ``steps`` come to, asked one after the other.

        Args:
            timeout_s: for each question.

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
            self.wait(request)

    def call(
        self, verb: str, timeout_s: float | None = None, **arguments: object
    ) -> dict[str, object]:
        """The answer to a verb of the client protocol.

        Raises:
            LedgerError: the broker refused, or did not answer.
        """
        return self.run(ask(verb, **arguments), timeout_s=timeout_s)


def wait_for_link(link: AnyLink, seconds: float, *, also: Sequence[int] = ()) -> None:
    """Sleep until ``link`` may have work, or one of ``also`` can be read, at most so long."""
    wait_for_descriptors((*link.descriptors, *also), seconds)
