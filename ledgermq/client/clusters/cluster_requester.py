"""``ClusterRequester``: sends requests to any group of a cluster, and waits for their replies."""

from __future__ import annotations

import time
from abc import ABC
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Unpack

from ledgermq.client.blocking.requester import Requester
from ledgermq.client.calls import Calls, MakesCalls
from ledgermq.client.closing import Closing
from ledgermq.client.clusters.cluster_producer import ClusterProducer
from ledgermq.client.clusters.group_clients import GroupClients
from ledgermq.client.clusters.used_group import UsedGroup
from ledgermq.client.core.asked import asked
from ledgermq.client.core.received import ReceivedMessage
from ledgermq.client.sending.message_options import RequestOptions, check_options
from ledgermq.client.sending.outgoing import Body
from ledgermq.client.sending.request_reply import REQUEST_TIMEOUT_S
from ledgermq.client.sending.send_pipeline import ProducerOptions
from ledgermq.client.tracing.tracing import Tracing


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
        """Send a request; the reply to it.

        Args:
            group: the one to send it to; without it, one that has the topic, as
                ``ClusterProducer.send`` chooses it.
            timeout: seconds for all of it; the reader of the request is told, too.

        Raises:
            TimedOutError: nobody has replied in time; the request may have been read all the same.
            LedgerError: the request was not stored; the class says why.
        """
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


class ClusterRequester(ClusterRequests, MakesCalls, Closing):
    """Asks in any group that has the topic, and gets the reply from that group.

    Who replies does so by a producer of the group that the request was read in: with a
    ``ClusterProducer`` that is ``producer.of(batch.group).reply(…)``. Each group that is asked
    takes what a ``Requester`` takes. A request goes to no second group. Safe to share among
    threads.
    """

    def __init__(
        self,
        addresses: str | Sequence[str],
        *,
        name: str = "requester",
        options: ProducerOptions | None = None,
        tracing: Tracing | None = None,
        keys: Mapping[str, str] | None = None,
    ) -> None:
        """A requester; the arguments are those of ``ClusterProducer``."""
        self._name = name
        self._producer = ClusterProducer(
            addresses, name=name, options=options, tracing=tracing, keys=keys
        )
        self._requesters = GroupClients(self._producer, self._requester)
        self._chosen = self._requesters.chosen

    def groups(self) -> list[str]:
        """Names of the groups that are known now."""
        return self._producer.groups()

    def close(self) -> None:
        """Close; who waits for a reply gets none."""
        self._requesters.close()
        self._producer.close()

    def _requester(self, used: UsedGroup) -> Requester:
        return Requester(used.group.address, name=self._name, producer=used.producer)
