"""Calls of the port to the broker's services: the verbs that our clients use, too.

What RocketMQ's clients want mostly is what ours want, in other words. An answer that comes through
the log comes later, to whoever asked.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Protocol

from ledgermq.model.errors import LedgerError
from ledgermq.serving.call_service import CallService
from ledgermq.serving.calls import CheckTopic, Result, anybody
from ledgermq.serving.sliced_answers import Build
from ledgermq.serving.state_requests import Caller, Encoded, Reply

PORT_CLIENT = bytes(9)
"""Stands for the port among the callers. ZeroMQ's own names of clients have 5 bytes when they begin
with a zero; a client that chooses another one is not heard (``client_socket.is_reserved``)."""

Take = Callable[[Result | LedgerError], None]

TakeBuilt = Callable[[Encoded | LedgerError], None]


class AsksVerbs(Protocol):
    """Calls verbs; ``PortCalls`` is the broker's own."""

    def ask(
        self,
        verb: str,
        arguments: Mapping[str, object],
        now_ms: int,
        take: Take,
        *,
        owner: str = "",
    ) -> None:
        """Call ``verb``; ``take`` gets the result, or why there is none, now or later, once."""
        ...


class PortCalls:
    """Asks, and hands the answers to who asked.

    Attributes:
        asked: calls so far.
    """

    def __init__(self, calls: CallService) -> None:
        self.asked = 0
        self._calls = calls
        self._ids = itertools.count(1)
        self._waiting: dict[int, Take] = {}
        self._built: dict[int, TakeBuilt] = {}

    @property
    def waiting(self) -> int:
        """Calls without an answer."""
        return len(self._waiting) + len(self._built)

    def check_started(self) -> None:
        """Refuse what depends on the tables before they are those of the log.

        Raises:
            NotLeaderError: this node has just begun, or begins to lead.
        """
        self._calls.check_started()

    def ask(
        self,
        verb: str,
        arguments: Mapping[str, object],
        now_ms: int,
        take: Take,
        *,
        check_topic: CheckTopic = anybody,
        owner: str = "",
    ) -> None:
        """Call ``verb``; ``take`` gets the result, or why there is none, now or later, once."""
        number = next(self._ids)
        self.asked += 1
        self._waiting[number] = take
        try:
            result = self._calls.call(
                Caller(PORT_CLIENT, number),
                verb,
                arguments,
                now_ms,
                check_topic=check_topic,
                owner=owner,
            )
        except LedgerError as error:
            self._take(number, error)
            return
        if result is not None:
            self._take(number, result)

    def build(
        self, build: Build, take: TakeBuilt, *, owner: str, is_wanted: Callable[[], bool]
    ) -> None:
        """Have a long answer built between turns; ``take`` gets it, or why there is none, later.

        Args:
            owner, is_wanted: see ``SlicedAnswers``.

        Raises:
            BusyError: too many wait.
        """
        number = next(self._ids)
        caller = Caller(PORT_CLIENT, number)
        self._calls.slices.begin(caller, build, owner=owner, is_wanted=is_wanted)
        self.asked += 1
        self._built[number] = take

    def take_reply(self, reply: Reply) -> None:
        """An answer that has come later."""
        number, outcome = reply.caller.request_id, reply.outcome
        built = self._built.pop(number, None)
        if built is None:
            assert not isinstance(outcome, Encoded), "the port asks no verb that lists"
            self._take(number, outcome)
        else:
            assert isinstance(outcome, Encoded | LedgerError), type(outcome)
            built(outcome)

    def _take(self, number: int, outcome: Result | LedgerError) -> None:
        self._waiting.pop(number)(outcome)
