"""Name servers behind one name: all the addresses that it stands for, asked for anew in time.

RocketMQ's name servers do not know one another, so a node registers with each of them: with all
that a name's records name, and with a new one when it comes.
"""

from __future__ import annotations

import logging
import math

from ledgermq.gateway.transport.server_links import ServerLinks
from ledgermq.hosts.host_name import HostName, host_and_port

logger = logging.getLogger(__name__)

ASK_MS = 60_000
"""Milliseconds between two questions for a name while its servers answer."""

DOUBT_MS, DOUBT_MS_MAX = 1_000, 10_000
"""The same while the name is not resolved, or a server does not answer: doubled each time."""


class NamedServers:
    """Owned by the port; nothing here waits.

    Attributes:
        addresses: of the latest answer that had some, each as ``links`` takes it.
    """

    def __init__(self, address: str, links: ServerLinks) -> None:
        """Nothing is asked yet.

        Args:
            address: ``NAME:PORT``.
            links: whose descriptor tells that an answer has come, too.
        """
        host, _, self._port = address.rpartition(":")
        self.addresses: tuple[str, ...] = ()
        self._name = HostName(host)
        self._links = links
        links.add_source(self._name.descriptor)
        self._answered_ms = 0
        self._ask_ms = 0
        self._pause_ms = DOUBT_MS
        self._failure = ""

    def next_deadline_ms(self) -> int | None:
        """When ``look`` has something to do that no descriptor tells of."""
        if not self._name.is_asked:
            return self._ask_ms
        return None if math.isinf(self._name.deadline) else math.ceil(self._name.deadline * 1_000)

    def look(self, now_ms: int) -> bool:
        """Take an answer, and ask when it is time; true when ``addresses`` are others."""
        name = self._name
        is_changed = name.take(now_ms / 1_000) and self._take_turn(now_ms)
        if not name.is_asked and now_ms >= self._ask_ms:
            name.ask(now_ms / 1_000)
        return is_changed

    def doubt(self) -> None:
        """A server has not answered: it may be at another address by now."""
        self._ask_ms = min(self._ask_ms, self._answered_ms + self._pause_ms)

    def close(self) -> None:
        """Ask no more."""
        self._links.remove_source(self._name.descriptor)
        self._name.close()

    def _take_turn(self, now_ms: int) -> bool:
        name = self._name
        if name.failure != self._failure:
            self._failure = name.failure
            if name.failure:
                logger.warning(
                    "name of name servers not resolved: name=%s reason=%s", name.name, name.failure
                )
        self._answered_ms = now_ms
        if name.failure:
            self._ask_ms = now_ms + self._pause_ms
            self._pause_ms = min(2 * self._pause_ms, DOUBT_MS_MAX)
            return False
        self._ask_ms = now_ms + ASK_MS
        addresses = tuple(host_and_port(one, self._port) for one in name.addresses)
        if addresses == self.addresses:
            self._pause_ms = min(2 * self._pause_ms, DOUBT_MS_MAX)
            return False
        self._pause_ms = DOUBT_MS
        self.addresses = addresses
        return True
