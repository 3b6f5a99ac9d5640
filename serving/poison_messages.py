"""Stored messages that a filter cannot be evaluated for: counted, named, and passed over.

They stay in the log, and are read again by each consumer that comes to them: nothing that they do
may end more than the look at themselves.
"""

from __future__ import annotations

import logging

from ledgermq.ipc.counters import BrokerCounter, Counts
from ledgermq.model.events import Event

logger = logging.getLogger(__name__)

NAMED_MAX = 1_000
"""Messages that are named in the log; each once, for consumers come again and again."""


class PoisonMessages:
    """Owned by a process; called with the position of such a message, and what it has met."""

    def __init__(self, counts: Counts) -> None:
        self._counts = counts
        self._named: set[int] = set()

    def __call__(self, position: int, error: Exception) -> None:
        """Count a message, and name it the first time."""
        self._counts[BrokerCounter.POISON_MESSAGES] += 1
        if position in self._named or len(self._named) >= NAMED_MAX:
            return
        self._named.add(position)
        logger.error(
            "message cannot be filtered, and is passed over: position=%d",
            position,
            exc_info=error,
            extra={"event": Event.POISON_MESSAGE},
        )
