"""Interface of the broker to its clients; ``ConsumeService`` is the real one.

``consume_service.ConsumeService`` is the real side. The simulator has another, around the same
worker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from ledgermq.broker.call_service import CallService
from ledgermq.broker.pulls.pull_answers import Answer
from ledgermq.broker.pulls.pull_service import PullService
from ledgermq.broker.pulls.query_service import QueryService
from ledgermq.broker.state.state_requests import Reply
from ledgermq.ipc.loop import Pollable
from ledgermq.model.config.settings import Settings
from ledgermq.wire.session import Standing


class Consumers(Protocol):
    """Takes requests to the services that answer them, and the answers back."""

    @property
    def sources(self) -> list[Pollable]:
        """What wakes the process."""
        ...

    @property
    def zmq_uses(self) -> Sequence[int]:
        """Its number changes when a socket of ZeroMQ's is used; see ``Worker.zmq_uses``."""
        ...

    def take_settings(self, settings: Settings) -> None:
        """The settings were read again: what clients may do is what these say."""
        ...

    def next_deadline_ms(self) -> int | None:
        """When ``take_requests`` has something to do that no source tells of; monotonic."""
        ...

    def message_deadline_ms(self) -> int | None:
        """The same, of what ``take_messages`` may have changed since a whole turn asked for all."""
        ...

    @property
    def is_watched(self) -> bool:
        """Whether ``look`` has work although nothing comes."""
        ...

    def look(self, now_ns: int) -> None:
        """End connections that hold too much; to be called now and then."""
        ...

    def let_in(self, ready: Mapping[Pollable, int]) -> None:
        """Decide about those who connect."""
        ...

    def take_requests(self, ready: Mapping[Pollable, int], now_ms: int) -> bool:
        """Answer or hold what clients ask for, a bounded number; whether anybody asked."""
        ...

    def take_messages(self, ready: Mapping[Pollable, int], now_ms: int) -> bool:
        """Take messages for the writer, and pulls, if there is nothing else in ``ready``.

        Returns:
            whether that was all: else a whole turn is to follow, which takes the rest.
        """
        ...

    def send_answers(self, answers: Iterable[Answer]) -> None:
        """Answer pulls that were held."""
        ...

    def send_reply(self, reply: Reply) -> None:
        """Answer a call that has waited."""
        ...

    def tell_standing(self, standing: Standing) -> None:
        """Tell all clients what this node is in its group now, if that is something else."""
        ...

    def tell_stage(self, *, serves: int, tables: int, services: int) -> None:
        """Note how far this node is as a leader: terms, 0 while it does not lead."""
        ...

    def flush(self) -> None:
        """Hand on what this turn has answered; at its end."""
        ...

    def tidy(self) -> None:
        """Forget what has left meanwhile; to be called now and then."""
        ...

    def close(self) -> None:
        """Take nothing more."""
        ...


class ClientServices(NamedTuple):
    """What clients are answered by."""

    pulls: PullService
    calls: CallService
    queries: QueryService


MakeConsumers = Callable[[ClientServices], Consumers]
"""Makes the clients' side of a broker's services."""
