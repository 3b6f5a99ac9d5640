"""Calls of the port to the broker's services: the verbs that our clients use, too.

What RocketMQ's clients want mostly is what ours want, in other words. An answer that comes through
the log comes later, to whoever asked.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Protocol

from ledgermq.broker.call_service import CallService
from ledgermq.broker.callers import Caller, PortClient
from ledgermq.broker.calls import CheckTopic, Result, anybody
from ledgermq.broker.sliced_answers import Build
from ledgermq.broker.state.state_requests import Encoded, Reply
from ledgermq.gateway.requests import Asked, ReplyLater, replying
from ledgermq.model.errors import LedgerError
from ledgermq.remoting.command import Command

PORT = PortClient()
"""Stands for the port among the callers."""

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
        check_topic: CheckTopic = anybody,
        owner: str = "",
    ) -> None:
        """Call ``verb``; ``take`` gets the result, or why there is none, now or later, once.

        Args:
            check_topic, owner: see ``Call``.
        """
        ...


class PortCalls:
    """``AsksVerbs`` that hands the answers to who asked.

    Attributes:
        asked: calls so far.
    """

    def __init__(self, calls: CallService, reply: ReplyLater) -> None:
        self.asked = 0
        self._calls = calls
        self._reply = reply
        self._ids = itertools.count(1)
        self._waiting: dict[int, Take] = {}
        self._of: dict[PortClient, dict[int, None]] = {}
        self._built: dict[int, TakeBuilt] = {}

    @property
    def waiting(self) -> int:
        """Calls without an answer."""
        return len(self._waiting) + len(self._built)

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
        self.ask_for(PORT, verb, arguments, now_ms, take, check_topic=check_topic, owner=owner)

    def ask_for(
        self,
        client: PortClient,
        verb: str,
        arguments: Mapping[str, object],
        now_ms: int,
        take: Take,
        *,
        check_topic: CheckTopic = anybody,
        owner: str = "",
    ) -> None:
        """The same for one client, which may wait: ``take`` is not called when it has gone, and the
        services count it by itself.
        """
        number = next(self._ids)
        self.asked += 1
        self._waiting[number] = take
        try:
            result = self._calls.call(
                Caller(client, number),
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
        elif client is not PORT:
            self._of.setdefault(client, {})[number] = None

    def forget(self, client: PortClient) -> None:
        """A client has gone: what it waits for is not to be done, and what is done is taken back
        where that can be.
        """
        numbers = self._of.pop(client, None)
        if numbers is None:
            return
        for number in numbers:
            del self._waiting[number]
        for forget in self._calls.on_gone:
            forget(client)

    def take_back(self, result: Result) -> None:
        """A client has gone before it was told this."""
        for take_back in self._calls.on_untold:
            take_back(result)

    def answer(
        self,
        asked: Asked,
        verb: str,
        arguments: Mapping[str, object],
        made: Callable[[Result], Command] | None = None,
        *,
        refused: Callable[[LedgerError], Command | None] = lambda _error: None,
    ) -> None:
        """Have a client's request answered with what ``verb`` comes to, or with the refusal.

        Args:
            made: the reply for a result; without it an empty one.
            refused: see ``replying``.
        """
        take = replying(
            self._reply, asked, made or (lambda _done: asked.command.reply()), refused=refused
        )
        self.ask(
            verb, arguments, asked.now_ms, take, check_topic=asked.check_topic, owner=asked.owner
        )

    def build(self, asked: Asked, build: Build) -> None:
        """Answer later with the body that ``build`` makes between turns; not if the connection ends
        before that.

        Raises:
            BusyError: too many wait.
        """
        number, connection = next(self._ids), asked.connection
        self._calls.slices.begin(
            Caller(PORT, number),
            build,
            owner=asked.owner,
            is_wanted=lambda: connection.is_open,
        )
        self.asked += 1
        self._built[number] = replying(
            self._reply, asked, lambda encoded: asked.command.reply(body=encoded.body)
        )

    def take_reply(self, reply: Reply) -> None:
        """An answer that has come later."""
        number, outcome = reply.caller.request_id, reply.outcome
        client = reply.caller.client
        if client is not PORT:
            assert isinstance(client, PortClient), client
            self._reply_to(client, number, outcome)
            return
        built = self._built.pop(number, None)
        if built is None:
            assert not isinstance(outcome, Encoded), "the port asks no verb that lists"
            self._take(number, outcome)
        else:
            assert isinstance(outcome, Encoded | LedgerError), type(outcome)
            built(outcome)

    def _reply_to(
        self, client: PortClient, number: int, outcome: Result | Encoded | LedgerError
    ) -> None:
        assert not isinstance(outcome, Encoded), "the port asks no verb that lists"
        of = self._of.get(client, {})
        if number in of:
            del of[number]
            if not of:
                del self._of[client]
            self._take(number, outcome)
        elif not isinstance(outcome, LedgerError):
            self.take_back(outcome)

    def _take(self, number: int, outcome: Result | LedgerError) -> None:
        self._waiting.pop(number)(outcome)
