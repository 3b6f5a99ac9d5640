"""Name of a peer's host: which of its addresses is connected to, and when it is asked for anew."""

from __future__ import annotations

import logging

from ledgermq.hosts.host_name import HostName
from ledgermq.model.ids import NodeId

logger = logging.getLogger(__name__)

NAME_PAUSE_S, NAME_PAUSE_S_MAX = 1.0, 10.0
"""Seconds between an answer and the next question while there is no connection, and the most:
doubled each time."""


class PeerName:
    """Asked for when the connection is lost, until it stands again; nothing here blocks.

    Attributes:
        host: the address that is to be connected to, numeric; empty: none is known yet.
    """

    def __init__(self, peer: NodeId, name: str) -> None:
        """Nothing is asked yet."""
        self.host = ""
        self._peer = peer
        self._name = HostName(name)
        self._ask_at = 0.0
        self._pause_s = NAME_PAUSE_S
        self._failure = ""
        self._is_doubted = False

    def doubt(self) -> None:
        """Who answers at ``host`` may be another node by now."""
        self._is_doubted = True

    def look(self, now: float, *, is_connected: bool) -> bool:
        """Take an answer, and ask when it is time; true when ``host`` is another one.

        A few times a second.
        """
        name = self._name
        has_moved = False
        if name.take(now):
            self._note_failure()
            if not name.is_asked:
                has_moved = self._take_turn(now, is_needed=not is_connected or self._is_doubted)
        if is_connected and not self._is_doubted:
            # When it is lost the name is asked for at once.
            self._ask_at, self._pause_s = 0.0, NAME_PAUSE_S
        elif now >= self._ask_at:
            name.ask(now)
        return has_moved

    def close(self) -> None:
        """Ask no more."""
        self._name.close()

    def _take_turn(self, now: float, *, is_needed: bool) -> bool:
        """Take the next one of the addresses after an answer, if another one is needed; whether it
        is another.
        """
        self._ask_at = now + self._pause_s
        self._pause_s = min(2 * self._pause_s, NAME_PAUSE_S_MAX)
        self._is_doubted = False
        addresses = self._name.addresses
        if not is_needed or not addresses:
            return False
        at = addresses.index(self.host) + 1 if self.host in addresses else 0
        host = addresses[at % len(addresses)]
        if host == self.host:
            return False
        logger.info("peer is looked for at an address: peer=%s address=%s", self._peer, host)
        self.host = host
        return True

    def _note_failure(self) -> None:
        name = self._name
        if name.failure != self._failure:
            self._failure = name.failure
            if name.failure:
                logger.warning(
                    "name of a peer not resolved: peer=%s name=%s reason=%s",
                    self._peer,
                    name.name,
                    name.failure,
                )
