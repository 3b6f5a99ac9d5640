"""Public names for asyncio: producers, consumers and admins.

They run in the loop itself: ZeroMQ's descriptors are watched, and its sockets read when there is
something, without a thread and without a future a message part. Begin with ``producer.py``. In a
cluster they have a thread that finds its groups, and a producer has more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledgermq.client.admin.admin import AsyncAdmin
from ledgermq.client.aio.consumer import AsyncConsumer
from ledgermq.client.aio.group_consumer import AsyncGroupConsumer
from ledgermq.client.aio.producer import AsyncProducer
from ledgermq.client.aio.requester import AsyncRequester
from ledgermq.client.aio.share_consumer import AsyncShareConsumer
from ledgermq.client.aio.transactions import AsyncTransaction, AsyncTransactionalProducer
from ledgermq.client.reading.dead_letters import AsyncDeadLetters
from ledgermq.client.reading.queries import AsyncQueries

if TYPE_CHECKING:
    from ledgermq.client.old_names import AsyncClusterConsumer as AsyncClusterConsumer
    from ledgermq.client.old_names import AsyncClusterGroupConsumer as AsyncClusterGroupConsumer
    from ledgermq.client.old_names import AsyncClusterProducer as AsyncClusterProducer
    from ledgermq.client.old_names import AsyncClusterRequester as AsyncClusterRequester
    from ledgermq.client.old_names import (
        AsyncClusterTransactionalProducer as AsyncClusterTransactionalProducer,
    )
    from ledgermq.client.old_names import AsyncGroupAdmins as AsyncGroupAdmins

__all__ = [
    "AsyncAdmin",
    "AsyncConsumer",
    "AsyncDeadLetters",
    "AsyncGroupConsumer",
    "AsyncProducer",
    "AsyncQueries",
    "AsyncRequester",
    "AsyncShareConsumer",
    "AsyncTransaction",
    "AsyncTransactionalProducer",
]


def __getattr__(name: str) -> object:
    if name.islower():
        # A submodule that is being imported is looked for here, too.
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ledgermq.client.old_names import AWAITED, old_name

    return old_name(__name__, name, AWAITED)
