"""Heartbeat thread of a consumer's memberships, over connections of their own.

So a consumer whose application works for long is still there for the others.
"""

from __future__ import annotations

import threading
import time

from ledgermq.client.core.link import NEVER
from ledgermq.client.core.nodes import AnyLink
from ledgermq.client.core.requests import RequestPipeline
from ledgermq.client.groups.heartbeats import Heartbeats
from ledgermq.hosts.wake_bell import new_bell, wait_for_descriptors


class _Membership:
    """One membership; all but its end belongs to the thread."""

    def __init__(self, link: AnyLink, heartbeats: Heartbeats) -> None:
        self.heartbeats = heartbeats
        self.requests = RequestPipeline(link)
        self.is_silent = False
        self.has_ended = False

    def advance(self, now: float, *, is_silent: bool) -> None:
        if is_silent != self.is_silent:
            self.is_silent = is_silent
            self.heartbeats.fall_silent(is_silent)
        self.requests.advance(now)
        while self.heartbeats.is_due:
            self.heartbeats.advance(self.requests, now)
            self.requests.advance(now)


class HeartbeatThread:
    """Runs from ``start`` to ``stop``.

    Attributes:
        news: descriptor that can be read when the thread has heard something new.
    """

    def __init__(self, *, poll_interval_max_s: float) -> None:
        """A thread that is not started.

        Args:
            poll_interval_max_s: without ``note_poll`` for so long it falls silent.
        """
        self._lock = threading.Lock()
        self._memberships: list[_Membership] = []
        self._poll_interval_max_s = poll_interval_max_s
        self._polled_at = time.monotonic()
        self._is_silent = False
        self._is_stopped = False
        self._news, self._wake = new_bell(), new_bell()
        self.news = self._news.descriptor
        # A process that ends without ``close`` does not wait for it.
        self._thread = threading.Thread(target=self._run, name="heartbeats", daemon=True)

    def start(self) -> None:
        """Send the first heartbeats."""
        self._thread.start()

    def add(self, link: AnyLink, heartbeats: Heartbeats) -> None:
        """Send these heartbeats, too.

        Args:
            link: which nobody else may use; it is closed at the end.
        """
        with self._lock:
            self._memberships.append(_Membership(link, heartbeats))
        self._wake.ring()

    def drop(self, heartbeats: Heartbeats) -> None:
        """Send these heartbeats no more."""
        with self._lock:
            for membership in self._memberships:
                if membership.heartbeats is heartbeats:
                    membership.has_ended = True
        self._wake.ring()

    def note_poll(self) -> None:
        """The application asks for messages: it is alive."""
        self._polled_at = time.monotonic()
        self._news.clear()
        if self._is_silent:
            self._wake.ring()

    def stop(self) -> None:
        """End the thread, and its connections."""
        self._is_stopped = True
        if self._thread.ident is not None:
            self._wake.ring()
            self._thread.join()
        for membership in self._memberships:
            membership.requests.link.close()
        self._news.close()
        self._wake.close()

    def _run(self) -> None:
        told: object = None
        while not self._is_stopped:
            now = time.monotonic()
            silent_at = self._polled_at + self._poll_interval_max_s
            self._is_silent = now >= silent_at
            memberships = self._those_there()
            for membership in memberships:
                membership.advance(now, is_silent=self._is_silent)
            heard = [one.heartbeats for one in memberships]
            state = [(one.news, one.trouble) for one in heard]
            if state != told:
                told = state
                self._news.ring()
            requests = [one.requests for one in memberships]
            until = min([one.deadline for one in requests], default=NEVER)
            if not self._is_silent:
                until = min(until, silent_at)
            descriptors = [self._wake.descriptor]
            for one in requests:
                descriptors += one.link.descriptors
            wait_for_descriptors(descriptors, until - time.monotonic())
            self._wake.clear()

    def _those_there(self) -> list[_Membership]:
        """The memberships that have not ended; connections of the others are closed."""
        with self._lock:
            ended = [one for one in self._memberships if one.has_ended]
            if ended:
                self._memberships = [one for one in self._memberships if not one.has_ended]
            there = [*self._memberships]
        for membership in ended:
            membership.requests.link.close()
        return there
