"""Simulated calls of clients to a broker: in order, delayed, unanswered when it dies."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import NamedTuple, Self

from ledgermq.broker.call_service import CallService
from ledgermq.broker.callers import Caller
from ledgermq.broker.pulls.consumers import ClientServices
from ledgermq.broker.pulls.pull_answers import Answer
from ledgermq.broker.state.state_requests import Encoded, Reply
from ledgermq.ipc.loop import Pollable
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import LedgerError
from ledgermq.wire.session import Standing, decode_body
from tests.simulator.machine.events import Events
from tests.simulator.machine.network import FASTEST_NS

CONSUMERS_SOURCE = -300

Outcome = Mapping[str, object] | LedgerError
Take = Callable[[Outcome], None]


class _Asked(NamedTuple):
    verb: str
    arguments: Mapping[str, object]
    take: Take


class ConsumerPort:
    """The ``broker.pulls.consumers.Consumers`` of one life of a broker: verbs in, results out.

    Attributes:
        delay_ns: longest that something is on its way.
        standing: what the broker said last of itself.
    """

    def __init__(self, events: Events, random: Random, wake: Callable[[], None]) -> None:
        self.delay_ns = 0
        self.standing: Standing | None = None
        self._events = events
        self._random = random
        self._wake = wake
        self._calls: CallService | None = None
        self._waiting: deque[tuple[Caller, _Asked]] = deque()
        self._asked: dict[Caller, _Asked] = {}
        self._count = 0
        self._is_open = True

    def serve(self, services: ClientServices) -> Self:
        """Answer with these; see ``MakeConsumers``."""
        self._calls = services.calls
        return self

    def ask(self, verb: str, arguments: Mapping[str, object], take: Take) -> None:
        """Call ``verb``; ``take`` gets the result or the refusal, or is never called."""
        self._count += 1
        caller = Caller(b"sim", self._count)
        asked = _Asked(verb, arguments, take)
        self._later(lambda: self._arrive(caller, asked))

    @property
    def sources(self) -> list[Pollable]:
        return [CONSUMERS_SOURCE]

    def take_settings(self, settings: Settings) -> None:
        """Do nothing: no setting is checked here."""

    def next_deadline_ms(self) -> int | None:
        return None

    @property
    def is_watched(self) -> bool:
        return False

    def look(self, now_ns: int) -> None:
        """Nothing is held here that nobody takes."""

    def let_in(self, ready: Mapping[Pollable, int]) -> None:
        """Do nothing: nobody has keys here."""

    def take_requests(self, ready: Mapping[Pollable, int], now_ms: int) -> bool:
        assert self._calls is not None
        if CONSUMERS_SOURCE not in ready:
            return False
        while self._waiting:
            caller, asked = self._waiting.popleft()
            self._asked[caller] = asked
            try:
                result = self._calls.call(caller, asked.verb, asked.arguments, now_ms)
            except LedgerError as error:
                self.send_reply(Reply(caller, error))
                continue
            if result is not None:
                self.send_reply(Reply(caller, result))
        return True

    @property
    def zmq_uses(self) -> Sequence[int]:
        return (0,)

    def message_deadline_ms(self) -> int | None:
        """None: nobody sends here."""
        return None

    def take_messages(self, ready: Mapping[Pollable, int], now_ms: int) -> bool:
        """False: nobody sends here."""
        del ready, now_ms
        return False

    def flush(self) -> None:
        """Do nothing: no answer is kept back."""

    def send_answers(self, answers: Iterable[Answer]) -> None:
        assert not list(answers), "nobody has pulled"

    def send_reply(self, reply: Reply) -> None:
        asked = self._asked.pop(reply.caller, None)
        if asked is not None:
            outcome = reply.outcome
            told = decode_body(outcome.body) if isinstance(outcome, Encoded) else outcome
            self._later(lambda: asked.take(told))

    def tell_standing(self, standing: Standing) -> None:
        self.standing = standing

    def tell_stage(self, *, serves: int, tables: int, services: int) -> None:
        """Do nothing: whoever wants to know asks the broker's log."""

    def tidy(self) -> None:
        pass

    def close(self) -> None:
        """The process is dead: what is on its way to it is lost."""
        self._is_open = False

    def _arrive(self, caller: Caller, asked: _Asked) -> None:
        if self._is_open:
            self._waiting.append((caller, asked))
            self._wake()

    def _later(self, happen: Callable[[], None]) -> None:
        self._events.after(FASTEST_NS + self._random.randrange(FASTEST_NS + self.delay_ns), happen)
