"""Named nodes: the links to all nodes that one name stands for, as it is asked for anew.

A name is asked for in the background (``hosts.host_name``): at first, soon after a connection to
one of its nodes has ended or nobody leads, and else every ``resolve_s`` seconds of its address. An
address that is new gets a link. One that is gone keeps its link for as long as the session stands:
resolvers leave addresses out, and what works is not to end for it. Where the name cannot be
resolved any more its last addresses stay.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

from ledgermq.client.core.address import Address
from ledgermq.client.core.link import NEVER, Link
from ledgermq.hosts.host_name import HostName
from ledgermq.model.errors import ConfigError, LedgerError

logger = logging.getLogger(__name__)

LOOK_UP_S, LOOK_UP_S_MAX = 1.0, 10.0
"""Between an answer and the next question, where something has failed; at most, where it is the
resolver that fails: doubled each time."""

MakeLink = Callable[[Address], Link]


class NamedNodes:
    """A name, and when it is asked for next.

    Attributes:
        error: why it stands for nothing, where it never did, and the resolver knows no such name.
            It is asked for again all the same.
        descriptor: readable when ``look`` has an answer.
    """

    def __init__(self, place: Address, make: MakeLink) -> None:
        """Nothing is asked yet.

        Args:
            make: the link to one of the nodes.
        """
        self.error: LedgerError | None = None
        self._place = place
        self._make = make
        self._host = HostName(place.name)
        self.descriptor = self._host.descriptor
        self._ask_at = 0.0
        self._answered_at = 0.0
        self._pause_s = LOOK_UP_S
        self._failure = ""
        self._owner = os.getpid()

    @property
    def addresses(self) -> tuple[str, ...]:
        """What it stood for when that was known last."""
        return self._host.addresses

    @property
    def deadline(self) -> float:
        """When ``look`` has something to do that no descriptor tells of."""
        return min(self._ask_at, self._host.deadline)

    def look(self, now: float) -> bool:
        """Take an answer, and ask when it is time; true when ``addresses`` may be others."""
        if os.getpid() != self._owner:
            # As a link says: what it would connect to has the parent's messages to send.
            self._ask_at = NEVER
            self.error = ConfigError("a process that was forked makes clients of its own")
            return False
        host = self._host
        has_news = host.take(now)
        if has_news:
            self._note(now)
        if now >= self._ask_at:
            self._ask_at = NEVER
            # Who asks meanwhile gets the fresh answer.
            self.error = None
            host.ask(now)
        return has_news

    def hurry(self, now: float) -> None:
        """Ask soon: something has failed that another address may mend."""
        if not self._host.is_asked:
            self._ask_at = min(self._ask_at, max(now, self._answered_at + LOOK_UP_S))

    def link_to(self, address: str) -> Link:
        """A link to the node at one of the addresses."""
        return self._make(self._place.at(address))

    def says(self) -> str:
        """What the operator should know of a name that stands for nothing."""
        return f"{self._place.consume}: {self._failure or 'name is being looked up'}"

    def close(self) -> None:
        """Ask no more."""
        self._host.close()

    def _note(self, now: float) -> None:
        host = self._host
        failure = f"name not resolved: {host.failure}" if host.failure else ""
        if failure != self._failure:
            self._failure = failure
            if failure:
                logger.warning(
                    "%s: name=%s addresses_kept=%d", failure, host.name, len(host.addresses)
                )
            else:
                logger.info("name resolved: name=%s", host.name)
        if host.is_asked:
            # It is late only.
            return
        self._answered_at = now
        if not failure:
            self._pause_s = LOOK_UP_S
            self._ask_at = now + self._place.resolve_s
            return
        self._ask_at = now + self._pause_s
        self._pause_s = min(2 * self._pause_s, LOOK_UP_S_MAX)
        if host.is_unknown and not host.addresses:
            self.error = ConfigError(f"name of a node not resolved: {host.failure}", name=host.name)
