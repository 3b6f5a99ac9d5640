"""Changes by RocketMQ's administrators: through the leader's log, each with its audit line.

A follower hands such a request to the leader as it has come, signature and all, and its answer
back: tools ask every node of a cluster for some of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ledgermq.broker.call_rights import act_of, audit
from ledgermq.broker.calls import Result
from ledgermq.gateway.leader_relay import LeaderRelay
from ledgermq.gateway.port_calls import PortCalls
from ledgermq.gateway.requests import Asked, ReplyLater, replying
from ledgermq.model.errors import LedgerError, NotLeaderError
from ledgermq.remoting.command import Command


class Changes:
    """Asks the broker's services for changes, and answers when they are made."""

    def __init__(self, calls: PortCalls, relay: LeaderRelay, reply: ReplyLater) -> None:
        self._calls = calls
        self._relay = relay
        self._reply = reply

    def ask(
        self,
        asked: Asked,
        verb: str,
        arguments: Mapping[str, object],
        made: Callable[[Result], Command] | None = None,
        *,
        refused: Callable[[LedgerError], Command | None] = lambda _error: None,
    ) -> None:
        """Have ``verb`` done; the client gets what ``made`` says of its result, or the refusal.

        Args:
            made, refused: see ``PortCalls.answer``.
        """
        act = act_of(asked.who, verb, arguments)
        answer = replying(
            self._reply, asked, made or (lambda _done: asked.command.reply()), refused=refused
        )

        def take(outcome: Result | LedgerError) -> None:
            if isinstance(outcome, NotLeaderError) and self._relay.hand_on(asked):
                return
            audit(act, outcome if isinstance(outcome, LedgerError) else None)
            answer(outcome)

        self._calls.ask(
            verb, arguments, asked.now_ms, take, check_topic=asked.check_topic, owner=asked.owner
        )
