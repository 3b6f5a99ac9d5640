"""Isolation of the broker's services: an error ends the turn of one, not of the others.

A service that meets what nobody has thought of rests, longer each time, and begins anew from what
the log says; clients and the other services go on meanwhile. What the disk refuses ends the
process, as everywhere.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from ledgermq.model.errors import LedgerError, StorageError
from ledgermq.serving.pull_service import Contain

logger = logging.getLogger(__name__)

REST_MS = 1_000
REST_MS_MAX = 30_000
"""After the first failure, and at most: each doubles it, and a turn without one forgets it."""

Outcome = TypeVar("Outcome")


class _Rest(NamedTuple):
    until_ms: int
    pause_ms: int


class ServiceTurns:
    """Owned by the broker process."""

    def __init__(self, contain: Contain) -> None:
        """Nothing rests.

        Args:
            contain: told of what a service has met; raises it where bugs are to be seen.
        """
        self._contain = contain
        self._rests: dict[str, _Rest] = {}

    def run(
        self,
        name: str,
        turn: Callable[[], Outcome],
        *,
        nothing: Outcome,
        begin_again: Callable[[], object],
        now_ms: int,
    ) -> Outcome:
        """What ``turn`` returns; ``nothing`` while the service rests.

        Args:
            begin_again: called when it has failed: has it forget what it has read of the log.

        Raises:
            StorageError, OSError: the disk refused.
        """
        rest = self._rests.get(name)
        if rest is not None and now_ms < rest.until_ms:
            return nothing
        try:
            outcome = turn()
        except (StorageError, OSError, MemoryError):
            raise
        except Exception as error:
            if not isinstance(error, LedgerError):
                self._contain(error)
            pause_ms = REST_MS if rest is None else min(2 * rest.pause_ms, REST_MS_MAX)
            self._rests[name] = _Rest(now_ms + pause_ms, pause_ms)
            logger.error(
                "service rests, and begins anew: %s pause_ms=%d: %s", name, pause_ms, error
            )
            begin_again()
            return nothing
        if rest is not None:
            del self._rests[name]
        return outcome

    def deadline_ms(self, name: str, deadline: Callable[[], int | None]) -> int | None:
        """When the service's ``turn`` has something to do; not while it rests."""
        rest = self._rests.get(name)
        return deadline() if rest is None else rest.until_ms

    def rests(self, name: str) -> bool:
        """Whether what it is behind with has to wait."""
        return name in self._rests
