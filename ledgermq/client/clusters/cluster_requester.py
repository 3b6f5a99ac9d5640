"""``RequesterOfGroups``: sends requests to any group of a cluster, and waits for their replies."""

from __future__ import annotations

import time
from abc import ABC
from collections.abc import Callable
from functools import partial
from typing import Unpack

from ledgermq.client.blocking.requester import Requester
from ledgermq.client.calls import Calls, MakesCalls
from ledgermq.client.closing import Closing
from ledgermq.client.clusters.cluster_producer import ProducerOfGroups
from ledgermq.client.clusters.group_clients import GroupClients
from ledgermq.client.clusters.used_group import UsedGroup
from ledgermq.client.core.asked import asked
from ledgermq.client.core.received import ReceivedMessage
from ledgermq.client.sending.message_options import RequestOptions, check_options
from ledgermq.client.sending.outgoing import Body
from ledgermq.client.sending.request_reply import REQUEST_TIMEOUT_S


class ClusterRequests(ABC):
    """The verb of both forms of a cluster's requester."""

    _chosen: Callable[..., object]
    """Gives the requester of the group that a message would go to; see ``GroupClients``."""

    @asked
    def request(
        self,
        topic: str,
        body: Body,
        *,
        group: str = "",
        timeout: float = REQUEST_TIMEOUT_S,
        **options: Unpack[RequestOptions],
    ) -> Calls[ReceivedMessage]:
        """Send a request; the reply to it. See ``Requester.request``."""
        until = time.monotonic() + timeout
        check_options(options, RequestOptions)
        requester = yield partial(
            self._chosen, topic, options, group=group, size=len(body), until=until
        )
        left = max(0.001, until - time.monotonic())
        reply: ReceivedMessage = yield partial(
            requester.request, topic, body, timeout=left, **options
        )
        return reply


class RequesterOfGroups(ClusterRequests, MakesCalls, Closing):
    """What a ``Requester`` is in a cluster: it has one for each group that is asked."""

    def __init__(
        self,
        producer: ProducerOfGroups,
        *,
        name: str,
    ) -> None:
        """A requester that sends by ``producer``, whose owner closes it."""
        self._name = name
        self._producer = producer
        self._requesters = GroupClients(self._producer, self._requester)
        self._chosen = self._requesters.chosen

    def groups(self) -> list[str]:
        """Names of the groups that are known now."""
        return self._producer.groups()

    def close(self) -> None:
        """Close; who waits for a reply gets none."""
        self._requesters.close()

    def _requester(self, used: UsedGroup) -> Requester:
        return Requester(
            used.group.address, name=self._name, one_group=True, producer=used.producer
        )
