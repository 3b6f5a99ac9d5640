"""Containment of a bug that one request meets: its sender gets no answer, the process lives on.

For the processes that clients talk to and that change no file of the log: broker, ports, observer.
Writer and raft go on ending at the first thing they do not expect, for bytes on disk are at stake
there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import IntEnum
from types import TracebackType

from ledgermq.ipc.counters import BrokerCounter, Counts
from ledgermq.model.errors import LedgerError, UnexpectedError
from ledgermq.model.events import Event

logger = logging.getLogger(__name__)

PLACES_MAX = 100
"""Tracebacks that are logged; each once, for whoever can send one such request can send many."""

Place = tuple[type[Exception], str, int]


Contain = Callable[[Exception], LedgerError]
"""What a request that waits is refused with when it has met a bug."""


def let_through(error: Exception) -> LedgerError:
    """Where a bug is to be seen: the error itself is raised."""
    raise error


class RequestFaults:
    """Owned by a process."""

    def __init__(self, counts: Counts, counter: IntEnum = BrokerCounter.REQUESTS_FAILED) -> None:
        """None yet.

        Args:
            counter: where in ``counts`` they are counted.
        """
        self._counts = counts
        self._counter = counter
        self._told: set[Place] = set()

    def refusal(self, error: Exception, asked: str) -> UnexpectedError:
        """What to refuse the request with that has met ``error``; the first of its kind is logged.

        Args:
            error: nothing that a request may raise.
            asked: what kind of request it was, in a word or two.
        """
        self._counts[self._counter] += 1
        place = _place_of(error)
        if place not in self._told and len(self._told) < PLACES_MAX:
            self._told.add(place)
            logger.error(
                "request met a bug of the node and is refused: asked=%s",
                asked,
                exc_info=error,
                extra={"event": Event.REQUEST_FAILED},
            )
        return UnexpectedError(
            "request has met a bug of the node, whose log tells more",
            asked=asked,
            reason=type(error).__name__,
        )


def _place_of(error: Exception) -> Place:
    traceback: TracebackType | None = error.__traceback__
    file, line = "", 0
    while traceback is not None:
        file, line = traceback.tb_frame.f_code.co_filename, traceback.tb_lineno
        traceback = traceback.tb_next
    return type(error), file, line
