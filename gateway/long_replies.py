"""Replies that are built between turns, for whole tables."""

from __future__ import annotations

from ledgermq.gateway.port_calls import PortCalls
from ledgermq.gateway.refusals import refusal
from ledgermq.gateway.requests import Asked, ReplyLater
from ledgermq.model.errors import LedgerError
from ledgermq.serving.sliced_answers import Build
from ledgermq.serving.state_requests import Encoded


class LongReplies:
    """The port's share of the broker's ``SlicedAnswers``."""

    def __init__(self, calls: PortCalls, reply: ReplyLater) -> None:
        self._calls = calls
        self._reply = reply

    def begin(self, asked: Asked, build: Build) -> None:
        """Answer with the body that ``build`` makes; not if the connection ends before that.

        Raises:
            BusyError: too many wait.
        """

        def take(outcome: Encoded | LedgerError) -> None:
            command = asked.command
            if isinstance(outcome, LedgerError):
                self._reply(asked, refusal(command, outcome))
            else:
                self._reply(asked, command.reply(body=outcome.body))

        connection = asked.connection
        self._calls.build(build, take, owner=asked.owner, is_wanted=lambda: connection.is_open)
