"""Notifications to systemd (sd_notify); without a ``NOTIFY_SOCKET`` all of it is a no-op.

Only the supervisor notifies (``NotifyAccess=main``): ``close`` is called in every child.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping

import sdnotify  # type: ignore[import-untyped]

STATUS_INTERVAL_NS = 1_000_000_000
EXTEND_INTERVAL_NS = 1_000_000_000
EXTEND_BY_US = 10_000_000
"""A start that makes progress is given so much more; several times the interval of asking."""

VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")


class Notifier:
    """The way to systemd, with the rates at which it may be used.

    Never blocks: a message that systemd has no room for now is dropped, and the next one comes.
    """

    def __init__(self, watchdog_interval_ns: int = 0) -> None:
        """Connect to the socket that the environment names.

        Args:
            watchdog_interval_ns: how often to feed the watchdog, 0 for never.
        """
        self._notifier = sdnotify.SystemdNotifier()
        self._socket: socket.socket | None = self._notifier.socket
        if self._socket is not None:
            self._socket.setblocking(False)
        self.watchdog_interval_ns = watchdog_interval_ns
        self._watchdog_due_ns = 0
        self._status = ""
        self._status_due_ns = 0
        self._extend_due_ns = 0

    def ready(self) -> None:
        """The node can serve."""
        self._send("READY=1")

    def stopping(self) -> None:
        """The node begins to stop."""
        self._send("STOPPING=1")

    def reloading(self) -> None:
        """Settings are being read again; ``ready`` says when that is over."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1_000}")

    def status(self, text: str, now_ns: int) -> None:
        """Show ``text`` in ``systemctl status``: when it has changed, at most once a second."""
        if text == self._status or now_ns < self._status_due_ns:
            return
        self._status = text
        self._status_due_ns = now_ns + STATUS_INTERVAL_NS
        self._send(f"STATUS={text}")

    def extend_timeout(self, now_ns: int) -> None:
        """Ask for more time to start or stop, at most once a second.

        Call it only while there is progress, or something else that ends the wait.
        """
        if now_ns < self._extend_due_ns:
            return
        self._extend_due_ns = now_ns + EXTEND_INTERVAL_NS
        self._send(f"EXTEND_TIMEOUT_USEC={EXTEND_BY_US}")

    def watchdog_due(self, now_ns: int) -> bool:
        """Whether systemd waits for a sign that all is well."""
        return self.watchdog_interval_ns > 0 and now_ns >= self._watchdog_due_ns

    def feed_watchdog(self, now_ns: int) -> None:
        """All is well."""
        self._watchdog_due_ns = now_ns + self.watchdog_interval_ns
        self._send("WATCHDOG=1")

    def close(self) -> None:
        """Disconnect; nothing is sent any more."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _send(self, state: str) -> None:
        # The package swallows what the socket refuses, which is what we want of it.
        if self._socket is not None:
            self._notifier.notify(state)


def watchdog_interval_ns(environment: Mapping[str, str]) -> int:
    """Half of the period within which systemd wants to hear from us; 0 when it does not.

    Args:
        environment: variables of the process; a watchdog that is meant for another pid is ignored.
    """
    period_us = environment.get("WATCHDOG_USEC", "")
    pid = environment.get("WATCHDOG_PID", "")
    if not period_us.isdecimal() or (pid and pid != str(os.getpid())):
        return 0
    return int(period_us) * 1_000 // 2


def connect() -> Notifier:
    """The way to the systemd that started this process, if one did.

    The variables are removed, so that no child takes them for its own.
    """
    notifier = Notifier(watchdog_interval_ns(os.environ))
    for name in VARIABLES:
        os.environ.pop(name, None)
    return notifier
