"""Limits of unread answers: of each consumer, and of all together.

A consumer that does not read its socket holds what ZeroMQ keeps for it, up to its window and one
answer. It is refused more until it reads, and nobody waits for it. When all together hold more than
their bound, only those are served who have read all that they were given.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple, Protocol

from ledgermq.model.errors import BusyError

Client = bytes


class Tracker(Protocol):
    """Tells when ZeroMQ is done with a message; ``zmq.MessageTracker`` does."""

    @property
    def done(self) -> bool:
        """Whether its bytes have left, or were given up."""
        ...


class _Answer(NamedTuple):
    tracker: Tracker
    size: int


class AnswersOnWay:
    """Invariant: ``size`` is the sum of what is in ``_answers``, gone clients' included."""

    def __init__(self, *, client_max: int, total_max: int) -> None:
        """Nothing is on its way.

        Args:
            client_max, total_max: bytes, of one client and of all.
        """
        self.size = 0
        self._client_max = client_max
        self._total_max = total_max
        self._answers: dict[Client, deque[_Answer]] = {}
        self._sizes: dict[Client, int] = {}

    @property
    def slow_clients(self) -> int:
        """How many have not read all that they were given, as far as was looked."""
        return len(self._answers)

    def add(self, client: Client, tracker: Tracker, size: int) -> None:
        """An answer of ``size`` bytes was handed to the socket."""
        self._answers.setdefault(client, deque()).append(_Answer(tracker, size))
        self._sizes[client] = self._sizes.get(client, 0) + size
        self.size += size

    def check(self, client: Client) -> None:
        """Refuse to give more to a client that does not read.

        Raises:
            BusyError: names the bytes, the limit and its setting.
        """
        self._forget_sent(client)
        mine = self._sizes.get(client, 0)
        if mine >= self._client_max:
            raise BusyError(
                "client does not read its answers as fast as it asks for them",
                bytes=mine,
                limit=self._client_max,
                setting="limits.client_window_bytes",
            )
        if mine and self.size >= self._total_max:
            self.sweep()
            if self.size >= self._total_max:
                raise BusyError(
                    "clients do not read their answers, this one among them",
                    bytes=self.size,
                    limit=self._total_max,
                    setting="limits.total_answers_bytes",
                )

    def sweep(self) -> None:
        """Look at everybody's: what has left does not count any more."""
        for client in list(self._answers):
            self._forget_sent(client)

    def _forget_sent(self, client: Client) -> None:
        answers = self._answers.get(client)
        if answers is None:
            return
        while answers and answers[0].tracker.done:
            size = answers.popleft().size
            self._sizes[client] -= size
            self.size -= size
        if not answers:
            del self._answers[client], self._sizes[client]
