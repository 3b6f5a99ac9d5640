"""Background thread for calls of other threads, any number of them at a time."""

from __future__ import annotations

import select
import threading
import time

from ledgermq.client.blocking.send_driver import POLL_S_MAX, PollerBell
from ledgermq.client.core.nodes import AnyLink
from ledgermq.client.core.requests import Request, RequestPipeline, Result, Steps
from ledgermq.client.forks import OfOneProcess
from ledgermq.model.errors import LedgerError


class CallThread(OfOneProcess):
    """Owns a link, which is used by its thread alone.

    Invariant, under ``_lock``: a question that is not answered is in ``_unanswered``.
    """

    def __init__(self, link: AnyLink, *, name: str) -> None:
        """Start the thread; it connects with the first question."""
        self._requests = RequestPipeline(link)
        self._lock = threading.Lock()
        self._fresh: list[Request] = []
        self._unanswered: dict[int, threading.Event] = {}
        self._is_closing = False
        self._has_asked = False
        self._bell = PollerBell()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        self._belong()

    def run(self, steps: Steps[Result], *, timeout_s: float) -> Result:
        """What ``steps`` come to, asked one after the other; from any thread.

        Args:
            timeout_s: for each question.

        Raises:
            LedgerError: the broker refused one, or did not answer; or this was closed.
        """
        while True:
            try:
                request = next(steps)
            except StopIteration as end:
                result: Result = end.value
                return result
            request.deadline = time.monotonic() + timeout_s
            self._ask(request)

    def close(self) -> None:
        """Say goodbye; who still waits for an answer is told that there is none."""
        with self._lock:
            if self._is_closing:
                return
            self._is_closing = True
        self._bell.ring()
        self._thread.join()

    def _leave(self) -> None:
        """Leave all to the parent: its thread is not there to answer."""
        self._lock = threading.Lock()
        self._is_closing = True

    def _ask(self, request: Request) -> None:
        answered = threading.Event()

        def note(_: Request) -> None:
            with self._lock:
                del self._unanswered[id(request)]
            answered.set()

        request.callback = note
        with self._lock:
            if self._is_closing:
                request.error = LedgerError("producer is closed")
                return
            self._unanswered[id(request)] = answered
            self._fresh.append(request)
        self._bell.ring()
        answered.wait()
        if not request.done():
            # The steps are told like of any other failure: some have more to do after one.
            request.error = LedgerError("producer was closed before the broker answered")

    def _run(self) -> None:
        link = self._requests.link
        while True:
            with self._lock:
                fresh, self._fresh = self._fresh, []
                is_closing = self._is_closing
            if is_closing:
                break
            for request in fresh:
                self._has_asked = True
                self._requests.ask(request)
            now = time.monotonic()
            if self._has_asked:
                self._requests.advance(now)
            self._sleep(self._requests.deadline - now if self._has_asked else POLL_S_MAX)
        link.close()
        with self._lock:
            waiting = list(self._unanswered.values())
        for answered in waiting:
            answered.set()

    def _sleep(self, seconds: float) -> None:
        poll = select.poll()
        poll.register(self._bell.descriptor, select.POLLIN)
        for descriptor in self._requests.link.descriptors:
            poll.register(descriptor, select.POLLIN)
        for descriptor, _ in poll.poll(max(0.0, min(seconds, POLL_S_MAX)) * 1_000):
            if descriptor == self._bell.descriptor:
                self._bell.clear()
