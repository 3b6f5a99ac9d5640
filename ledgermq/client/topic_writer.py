"""Shared part of producers, blocking and asyncio."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import zmq

from ledgermq.client.core.address import DEFAULT_ADDRESS, parse_addresses
from ledgermq.client.core.connection import Context
from ledgermq.client.core.wrong_calls import check_of_groups
from ledgermq.client.first_contact import FirstContact, nodes_of
from ledgermq.client.sending.send_pipeline import ProducerOptions
from ledgermq.client.sending.sender import RouteTable
from ledgermq.client.tracing.tracing import Tracing
from ledgermq.model.errors import ConfigError

FAIL_OVER_S = 3.0
"""RocketMQ's time for a send, after which its producers try another broker."""

FAIL_OVER_S_MIN = 0.01


class TopicWriter(FirstContact):
    """What a producer is told when it is made."""

    def __init__(
        self,
        address: str | Sequence[str] = DEFAULT_ADDRESS,
        *,
        name: str = "producer",
        options: ProducerOptions | None = None,
        tracing: Tracing | None = None,
        keys: Mapping[str, str] | None = None,
        fail_over_s: float = FAIL_OVER_S,
        one_group: bool = False,
    ) -> None:
        """A producer, with the arguments of ``Producer``."""
        self.options = options or ProducerOptions()
        self._compressor = self.options.compressor()
        self._tracing = tracing
        self._name = name
        self._addresses, self._keys = address, keys
        if fail_over_s < FAIL_OVER_S_MIN:
            raise ConfigError(
                "fail_over_s out of range", value=fail_over_s, minimum=FAIL_OVER_S_MIN
            )
        check_of_groups(
            one_group=one_group,
            keys=keys,
            fail_over_s=None if fail_over_s == FAIL_OVER_S else fail_over_s,
        )
        self._fail_over_s = fail_over_s
        self._places = parse_addresses(nodes_of(address))
        self._context: Context = zmq.Context.instance()
        self._routes = RouteTable()
        self._begin_contact(one_group=one_group)

    @property
    def of_all(self) -> Any:
        """What this is in a cluster; only once that is known."""
        producer: Any = self._several
        return producer
