"""Changes by RocketMQ's administrators: through the leader's log, each with its audit line.

A follower hands such a request to the leader as it has come, signature and all, and its answer
back: tools ask every node of a cluster for some of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from ledgermq.gateway.port_calls import PortCalls
from ledgermq.gateway.refusals import refusal
from ledgermq.gateway.requests import Asked
from ledgermq.model.errors import LedgerError, NotLeaderError
from ledgermq.remoting.command import Command
from ledgermq.serving.call_rights import act_of, audit
from ledgermq.serving.calls import Result

RELAYED_KEY = "ledgermqRelayed"
"""A field of requests that another node has handed on: they are not handed on again. It is not
signed, and gives no right."""

Reply = Callable[[Asked, Command], None]


class Relay(Protocol):
    """The way to the node that leads."""

    def hand_on(self, asked: Asked) -> bool:
        """Have the leader answer; false when that cannot be, and nothing was done."""
        ...


class Changes:
    """Asks the broker's services for changes, and answers when they are made."""

    def __init__(self, calls: PortCalls, reply: Reply) -> None:
        self._calls = calls
        self._reply = reply
        self.relay: Relay | None = None

    def ask(
        self,
        asked: Asked,
        verb: str,
        arguments: Mapping[str, object],
        made: Callable[[Result], Command],
        *,
        refused: Callable[[LedgerError], Command | None] | None = None,
    ) -> None:
        """Have ``verb`` done; the client gets what ``made`` says of its result, or the refusal.

        Args:
            refused: another answer than the refusal, or None for that.
        """
        act = act_of(asked.who, verb, arguments)

        def take(outcome: Result | LedgerError) -> None:
            if isinstance(outcome, NotLeaderError) and self._is_handed_on(asked):
                return
            error = outcome if isinstance(outcome, LedgerError) else None
            audit(act, error)
            if not isinstance(outcome, LedgerError):
                self._reply(asked, made(outcome))
                return
            reply = None if refused is None else refused(outcome)
            self._reply(asked, reply or refusal(asked.command, outcome))

        self._calls.ask(
            verb, arguments, asked.now_ms, take, check_topic=asked.check_topic, owner=asked.owner
        )

    def _is_handed_on(self, asked: Asked) -> bool:
        return self.relay is not None and self.relay.hand_on(asked)
