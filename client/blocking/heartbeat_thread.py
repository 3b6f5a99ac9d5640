"""Heartbeat thread of a ``GroupConsumer``, over a connection of its own.

So a consumer whose application works for long is still there for the others.
"""

from __future__ import annotations

import os
import threading
import time

from ledgermq.client.blocking.broker import wait_for_link
from ledgermq.client.core.nodes import AnyLink
from ledgermq.client.core.requests import RequestPipeline
from ledgermq.client.groups.heartbeats import Heartbeats


class HeartbeatThread:
    """Runs from ``start`` to ``stop``.

    Attributes:
        news: descriptor that can be read when the thread has heard something new.
    """

    def __init__(
        self, link: AnyLink, heartbeats: Heartbeats, *, poll_interval_max_s: float
    ) -> None:
        """A thread that is not started.

        Args:
            link: which nobody else may use; it is closed at the end.
            poll_interval_max_s: without ``note_poll`` for so long it falls silent.
        """
        self._link = link
        self._requests = RequestPipeline(link)
        self._heartbeats = heartbeats
        self._poll_interval_max_s = poll_interval_max_s
        self._polled_at = time.monotonic()
        self._is_silent = False
        self._is_stopped = False
        self.news = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        # A process that ends without ``close`` does not wait for it.
        self._thread = threading.Thread(target=self._run, name="heartbeats", daemon=True)

    def start(self) -> None:
        """Send the first heartbeat."""
        self._thread.start()

    def note_poll(self) -> None:
        """The application asks for messages: it is alive."""
        self._polled_at = time.monotonic()
        _drain(self.news)
        if self._is_silent:
            os.eventfd_write(self._wake, 1)

    def stop(self) -> None:
        """End the thread, and its connection."""
        self._is_stopped = True
        if self._thread.ident is not None:
            os.eventfd_write(self._wake, 1)
            self._thread.join()
        self._link.close()
        os.close(self.news)
        os.close(self._wake)

    def _run(self) -> None:
        heartbeats, requests = self._heartbeats, self._requests
        told: object = None
        while not self._is_stopped:
            now = time.monotonic()
            silent_at = self._polled_at + self._poll_interval_max_s
            if (now >= silent_at) != self._is_silent:
                self._is_silent = now >= silent_at
                heartbeats.fall_silent(self._is_silent)
            requests.advance(now)
            while heartbeats.is_due:
                heartbeats.advance(requests, now)
                requests.advance(now)
            state = (heartbeats.news, heartbeats.trouble)
            if state != told:
                told = state
                os.eventfd_write(self.news, 1)
            until = requests.deadline if self._is_silent else min(requests.deadline, silent_at)
            wait_for_link(self._link, until - time.monotonic(), also=(self._wake,))
            _drain(self._wake)


def _drain(descriptor: int) -> None:
    try:
        os.eventfd_read(descriptor)
    except BlockingIOError:
        # Nothing was there.
        return
