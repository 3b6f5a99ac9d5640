"""Connections to a broker for calls alone: what tools need, without a stream of messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Self

import zmq

from ledgermq.client.address import parse_addresses
from ledgermq.client.broker import Broker
from ledgermq.client.group import AnyLink, broker_link
from ledgermq.client.link import Context
from ledgermq.client.loop_watch import AsyncRequests
from ledgermq.model.errors import ConfigError


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


class BrokerClient:
    """What waits for answers of a broker; one thread at a time may ask."""

    def __init__(self, address: str | Sequence[str], *, name: str, timeout_s: float) -> None:
        """A connection, which is made with the first question; see ``connect_broker``."""
        self._link = _link_to(address, name)
        self._broker = Broker(self._link, timeout_s=timeout_s)

    def close(self) -> None:
        """Say goodbye to the node and close."""
        self._link.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class AsyncBrokerClient:
    """What awaits answers of a broker; opened by ``async with``."""

    def __init__(self, address: str | Sequence[str], *, name: str, timeout_s: float) -> None:
        """See ``BrokerClient``."""
        self._link = _link_to(address, name)
        self._timeout_s = timeout_s
        self._requests: AsyncRequests | None = None

    def close(self) -> None:
        """Say goodbye to the node and close."""
        if self._requests is not None:
            self._requests.close()
        self._requests = None

    async def __aenter__(self) -> Self:
        self._requests = AsyncRequests(self._link, timeout_s=self._timeout_s)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _open(self) -> AsyncRequests:
        if self._requests is None:
            raise ConfigError(f"not open: async with {type(self).__name__}(…)")
        return self._requests


def _link_to(address: str | Sequence[str], name: str) -> AnyLink:
    context: Context = zmq.Context.instance()
    return broker_link(context, parse_addresses(address), client=name)
