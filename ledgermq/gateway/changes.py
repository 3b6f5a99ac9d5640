"""Changes by RocketMQ's administrators: through the leader's log, each with its audit line.

A follower hands such a request to the leader as it has come, signature and all, and its answer
back: tools ask every node of a cluster for some of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

from ledgermq.broker.call_rights import Act, act_of, audit
from ledgermq.broker.calls import Result
from ledgermq.gateway.port_calls import AsksVerbs
from ledgermq.gateway.requests import Asked, ReplyLater, replying
from ledgermq.model.errors import LedgerError, NotLeaderError, ProtocolError
from ledgermq.remoting.command import Command

STEPS_MAX = 1_000
"""Changes of one request: each becomes an entry of the log."""

Step = Callable[[], tuple[str, Mapping[str, object]]]
"""A verb and its arguments, as they are when all steps before are done."""


class HandsOn(Protocol):
    """Hands a request to the node that leads; ``LeaderRelay`` is the real one."""

    def hand_on(self, asked: Asked) -> bool:
        """Whether it was handed on: then its answer comes from there."""
        ...


class Changes:
    """Asks the broker's services for changes, and answers when they are made."""

    def __init__(self, calls: AsksVerbs, relay: HandsOn, reply: ReplyLater) -> None:
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
        answer = replying(
            self._reply, asked, made or (lambda _done: asked.command.reply()), refused=refused
        )
        _Series(self._calls, self._relay, asked, [lambda: (verb, arguments)], answer).go_on()

    def ask_all(self, asked: Asked, steps: Sequence[Step]) -> None:
        """Have all steps done in their order; the client is answered after the last one, or at the
        first refusal: what was done before that stays.

        Raises:
            ProtocolError: there are more than ``STEPS_MAX``.
        """
        if len(steps) > STEPS_MAX:
            raise ProtocolError(
                "too many changes in one request", count=len(steps), limit=STEPS_MAX
            )
        answer = replying(self._reply, asked, lambda _done: asked.command.reply())
        _Series(self._calls, self._relay, asked, steps, answer).go_on()


class _Series:
    """Changes of one request, each asked for when the one before is made."""

    def __init__(
        self,
        calls: AsksVerbs,
        relay: HandsOn,
        asked: Asked,
        steps: Sequence[Step],
        answer: Callable[[Result | LedgerError], None],
    ) -> None:
        self._calls = calls
        self._relay = relay
        self._asked = asked
        self._left = deque(steps)
        self._answer = answer
        self._result: Result = {}
        self._is_first = True
        self._is_asking = self._is_awaited = False

    def go_on(self) -> None:
        """Ask until an answer has to be waited for; not from within another one's answer."""
        self._is_asking = True
        while self._left and not self._is_awaited:
            self._is_awaited = True
            verb, arguments = self._left.popleft()()
            act, asked = act_of(self._asked.who, verb, arguments), self._asked
            self._calls.ask(
                verb,
                arguments,
                asked.now_ms,
                partial(self._take, act),
                check_topic=asked.check_topic,
                owner=asked.owner,
            )
        self._is_asking = False
        if not self._left and not self._is_awaited:
            self._answer(self._result)

    def _take(self, act: Act, outcome: Result | LedgerError) -> None:
        self._is_awaited = isinstance(outcome, LedgerError)
        if isinstance(outcome, LedgerError):
            self._left.clear()
            # The node that leads is asked for all of them, or for none.
            is_first_refused = self._is_first and isinstance(outcome, NotLeaderError)
            if not (is_first_refused and self._relay.hand_on(self._asked)):
                audit(act, outcome)
                self._answer(outcome)
            return
        audit(act, None)
        self._is_first, self._result = False, outcome
        if not self._is_asking:
            self.go_on()
