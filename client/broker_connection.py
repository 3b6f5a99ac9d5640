"""A connection to a broker for calls alone: what tools need, without messages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import zmq

from ledgermq.client.address import parse_address
from ledgermq.client.broker import Broker
from ledgermq.client.link import Context, Link


@contextmanager
def connect_broker(address: str, *, name: str, timeout_s: float) -> Iterator[Broker]:
    """The broker at ``address``; the connection ends with the block.

    Args:
        address: as a ``Producer`` takes it.
        name: of this client, as the node's operator sees it.
        timeout_s: for each call.

    Raises:
        ConfigError: the address cannot be one.
    """
    context: Context = zmq.Context.instance()
    link = Link(context, parse_address(address).consume, client=name)
    try:
        yield Broker(link, timeout_s=timeout_s)
    finally:
        link.close()
