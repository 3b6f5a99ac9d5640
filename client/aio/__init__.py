"""Public names for asyncio: producers, consumers and admins.

They run in the loop itself: ZeroMQ's descriptors are watched, and its sockets read when there is
something, without a thread and without a future a message part. Begin with ``producer.py``.
"""

from __future__ import annotations

from ledgermq.client.admin.admin import AsyncAdmin
from ledgermq.client.aio.consumer import AsyncConsumer
from ledgermq.client.aio.group_consumer import AsyncGroupConsumer
from ledgermq.client.aio.producer import AsyncProducer
from ledgermq.client.aio.requester import AsyncRequester
from ledgermq.client.aio.transactions import AsyncTransaction, AsyncTransactionalProducer
from ledgermq.client.reading.dead_letters import AsyncDeadLetters
from ledgermq.client.reading.queries import AsyncQueries

__all__ = [
    "AsyncAdmin",
    "AsyncConsumer",
    "AsyncDeadLetters",
    "AsyncGroupConsumer",
    "AsyncProducer",
    "AsyncQueries",
    "AsyncRequester",
    "AsyncTransaction",
    "AsyncTransactionalProducer",
]
