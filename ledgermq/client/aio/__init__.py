"""Public names for asyncio: producers, consumers and admins.

They run in the loop itself: ZeroMQ's descriptors are watched, and its sockets read when there is
something, without a thread and without a future a message part. Begin with ``producer.py``. Those
of a cluster have a thread that finds its groups, and its producer has more.
"""

from __future__ import annotations

from ledgermq.client.admin.admin import AsyncAdmin
from ledgermq.client.aio.cluster_consumer import AsyncClusterConsumer
from ledgermq.client.aio.cluster_group_consumer import AsyncClusterGroupConsumer
from ledgermq.client.aio.cluster_producer import AsyncClusterProducer
from ledgermq.client.aio.cluster_requester import AsyncClusterRequester
from ledgermq.client.aio.cluster_transactions import AsyncClusterTransactionalProducer
from ledgermq.client.aio.consumer import AsyncConsumer
from ledgermq.client.aio.group_admins import AsyncGroupAdmins
from ledgermq.client.aio.group_consumer import AsyncGroupConsumer
from ledgermq.client.aio.producer import AsyncProducer
from ledgermq.client.aio.requester import AsyncRequester
from ledgermq.client.aio.transactions import AsyncTransaction, AsyncTransactionalProducer
from ledgermq.client.reading.dead_letters import AsyncDeadLetters
from ledgermq.client.reading.queries import AsyncQueries

__all__ = [
    "AsyncAdmin",
    "AsyncClusterConsumer",
    "AsyncClusterGroupConsumer",
    "AsyncClusterProducer",
    "AsyncClusterRequester",
    "AsyncClusterTransactionalProducer",
    "AsyncConsumer",
    "AsyncDeadLetters",
    "AsyncGroupAdmins",
    "AsyncGroupConsumer",
    "AsyncProducer",
    "AsyncQueries",
    "AsyncRequester",
    "AsyncTransaction",
    "AsyncTransactionalProducer",
]
