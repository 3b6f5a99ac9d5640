"""A connection to a broker for calls alone: what tools need, without messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import zmq

from ledgermq.client.address import parse_addresses
from ledgermq.client.broker import Broker
from ledgermq.client.group import broker_link
from ledgermq.client.link import Context


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
    context: Context = zmq.Context.instance()
    link = broker_link(context, parse_addresses(address), client=name)
    try:
        yield Broker(link, timeout_s=timeout_s)
    finally:
        link.close()
