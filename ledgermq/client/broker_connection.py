"""Connections for calls alone, as tools need them, without a stream of messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import ClassVar, Self

import zmq

from ledgermq.client.blocking.broker import Broker
from ledgermq.client.closing import Closing, Ending
from ledgermq.client.core.address import DEFAULT_ADDRESS, parse_addresses
from ledgermq.client.core.connection import Context
from ledgermq.client.core.nodes import AnyLink, broker_link
from ledgermq.client.core.requests import AsOf, Result, Steps
from ledgermq.client.core.wrong_calls import TIMEOUT_S_BOUNDS, check_number
from ledgermq.client.loop_watch import AsyncRequests
from ledgermq.model.errors import ConfigError
from ledgermq.wire.session import SpokenFor

TIMEOUT_S = 15.0


@contextmanager
def connect_broker(
    address: str | Sequence[str], *, name: str, timeout_s: float
) -> Iterator[Broker]:
    """The broker at ``address``; the connection ends with the block.

    Args:
        address: as a ``Producer`` takes it.
        name: of this client, as the node's operator sees it.
        timeout_s: for each call.

    Raises:
        ConfigError: the address cannot be one.
    """
    link = _link_to(address, name)
    try:
        yield Broker(link, timeout_s=timeout_s)
    finally:
        link.close()


class BrokerClient(Closing):
    """What waits for answers of a broker; one thread at a time may ask."""

    NAME: ClassVar[str]
    """What it is called when it is given no name."""

    def __init__(
        self,
        address: str | Sequence[str] = DEFAULT_ADDRESS,
        *,
        name: str | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """A connection, which is made with the first question.

        Args:
            address: as a ``Consumer`` takes it.
            name: of this client, as the node's operator sees it.
            timeout_s: for each question: so long no leader may be there.

        Raises:
            ConfigError: the address cannot be one.
        """
        check_number("timeout_s", timeout_s, *TIMEOUT_S_BOUNDS)
        self._link = _link_to(address, self.NAME if name is None else name)
        self._broker = Broker(self._link, timeout_s=timeout_s)

    def run(self, steps: Steps[Result]) -> Result:
        """What ``steps`` come to, asked one after the other.

        Raises:
            LedgerError: the broker refused one, or did not answer.
        """
        return self._broker.run(steps)

    @property
    def as_of(self) -> AsOf | None:
        """What the last answer is of, where the node that gave it did not surely lead: it may
        be older than the newest (docs/operating/group.md).
        """
        return self._broker.as_of

    def close(self) -> None:
        """Say goodbye to the node and close."""
        self._link.close()


class AsyncBrokerClient(Ending):
    """What awaits answers of a broker; opened by ``async with``."""

    NAME: ClassVar[str]
    """What it is called when it is given no name."""

    def __init__(
        self,
        address: str | Sequence[str] = DEFAULT_ADDRESS,
        *,
        name: str | None = None,
        timeout_s: float = TIMEOUT_S,
        speaks_for: SpokenFor | None = None,
    ) -> None:
        """A connection as ``BrokerClient`` has it, which is made when this is opened.

        Args:
            speaks_for: whose rights this has; at the unix socket of a node, where an operator alone
                may speak for others.
        """
        check_number("timeout_s", timeout_s, *TIMEOUT_S_BOUNDS)
        self._make_link = partial(
            _link_to, address, self.NAME if name is None else name, speaks_for
        )
        self._link = self._make_link()
        self._timeout_s = timeout_s
        self._requests: AsyncRequests | None = None

    async def run(self, steps: Steps[Result]) -> Result:
        """What ``steps`` come to, asked one after the other.

        Raises:
            ConfigError: this is not open.
            LedgerError: the broker refused one, or did not answer.
        """
        if self._requests is None:
            raise ConfigError(f"not open: async with {type(self).__name__}(…)")
        return await self._requests.run(steps)

    @property
    def as_of(self) -> AsOf | None:
        """What the last answer is of, as ``BrokerClient`` has it; of calls side by side, that of
        the one that ended last.
        """
        return None if self._requests is None else self._requests.as_of

    def close(self) -> None:
        """Say goodbye to the node and close."""
        if self._requests is not None:
            self._requests.close()
        self._requests = None
        self._link = self._make_link()

    async def __aenter__(self) -> Self:
        self._requests = AsyncRequests(self._link, timeout_s=self._timeout_s)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


def _link_to(
    address: str | Sequence[str], name: str, speaks_for: SpokenFor | None = None
) -> AnyLink:
    context: Context = zmq.Context.instance()
    return broker_link(context, parse_addresses(address), client=name, speaks_for=speaks_for)
