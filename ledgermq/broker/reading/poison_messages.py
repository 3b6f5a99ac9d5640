"""Poison messages: stored ones that a service cannot handle, counted, named and passed over.

They stay in the log, and are read again by each consumer and each service that comes to them, on
every node: nothing that they do may end more than the look at themselves. Whoever reads what is
stored outside of a request reads it within ``guarded``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from ledgermq.ipc.counters import BrokerCounter, Counts
from ledgermq.model.errors import LedgerError, NewerVersionError, StorageError
from ledgermq.model.events import Event

logger = logging.getLogger(__name__)

NAMED_MAX = 1_000
"""Messages that are named in the log; each once, for consumers come again and again."""

Found = TypeVar("Found")


def is_of_the_node(error: Exception) -> bool:
    """Whether an error tells of the node, its disk and its version: another try, or a later one of
    another version, may end otherwise.
    """
    if isinstance(error, LedgerError):
        return error.retriable or isinstance(error, StorageError | NewerVersionError)
    return isinstance(error, OSError | MemoryError)


class PoisonMessages:
    """Owned by a process; called with the position of such a message, and what it has met."""

    def __init__(self, counts: Counts) -> None:
        self._counts = counts
        self._named: set[int | str] = set()

    def __call__(self, position: int, error: Exception) -> None:
        """Count a message that no filter can be evaluated for, and name it the first time."""
        if self._is_fresh(position):
            logger.error(
                "message cannot be filtered, and is passed over: position=%d",
                position,
                exc_info=error,
                extra={"event": Event.POISON_MESSAGE},
            )

    def guarded(self, place: str, use: Callable[[], Found], instead: Found) -> Found:
        """What ``use`` makes of a stored message; ``instead`` when it can make nothing of it.

        Args:
            place: names the message, as ``topic/queue/offset``.
            use: depends on the message alone.

        Raises:
            LedgerError, OSError: what tells of the node, as ``is_of_the_node`` says.
        """
        try:
            return use()
        except Exception as error:
            if is_of_the_node(error):
                raise
            self.note(place, error)
            return instead

    def note(self, place: str, error: Exception) -> None:
        """Count a message that is passed over, and name it the first time."""
        if self._is_fresh(place):
            # What is typed says all; of the rest it takes the place in the program.
            trace = None if isinstance(error, LedgerError) else error
            logger.error(
                "stored message is passed over: at=%s: %s",
                place,
                error,
                exc_info=trace,
                extra={"event": Event.POISON_MESSAGE},
            )

    def _is_fresh(self, name: int | str) -> bool:
        self._counts[BrokerCounter.POISON_MESSAGES] += 1
        if name in self._named or len(self._named) >= NAMED_MAX:
            return False
        self._named.add(name)
        return True
