"""Producer and Consumer, synchronous and asyncio; needs only pyzmq.

Applications import from here, or from ``ledgermq.client.aio``. Inside, the rules of asking, sending
and pulling (``RequestPipeline``, ``SendPipeline``, ``PullPipeline``) never block, and have no
thread and no clock. They are driven; one question to a broker is this loop:

    nodes = parse_addresses(address)
    link = broker_link(zmq.Context.instance(), nodes, client="example", group="")
    pipeline = RequestPipeline(link)
    request = call_request("route", {"topic": topic, "create": False})
    pipeline.ask(request)
    while not request.done():
        now = time.monotonic()
        pipeline.advance(now)
        if not request.done():
            wait_for_link(link, pipeline.deadline - now)
    result = call_result(request)
    link.close()

``advance`` opens the session, sends what may go, takes what has come, and begins anew after a lost
connection or with another leader. ``SendDriver`` is such a loop for threads, ``LoopWatch`` for
asyncio. Begin with ``link.py`` (one session), ``group.py`` (the leader among several nodes), then
``requests.py``. It may import ``wire``, ``formats`` and ``model``, and nothing of a node.
"""

from ledgermq.client.admin import Admin
from ledgermq.client.admin_results import (
    GroupRow,
    GroupState,
    OffsetMove,
    QueueLag,
    QueueState,
    TopicSettings,
    TopicState,
)
from ledgermq.client.allocation import TopicQueue
from ledgermq.client.consumer import Consumer
from ledgermq.client.dead_letters import DeadLetter, DeadLetters, Replay
from ledgermq.client.group_consumer import GroupConsumer
from ledgermq.client.group_member import GroupOptions
from ledgermq.client.known_transactions import TransactionError, TransactionResult
from ledgermq.client.outgoing import OutgoingMessage
from ledgermq.client.producer import Producer
from ledgermq.client.queries import KeyedMessages, Queries
from ledgermq.client.questions import TopicRow
from ledgermq.client.rebalance_listener import RebalanceListener
from ledgermq.client.received import MessageBatch, ReceivedMessage
from ledgermq.client.request_reply import asks_for_reply
from ledgermq.client.requester import Requester
from ledgermq.client.results import BatchResult, SendResult
from ledgermq.client.retries import GivenBack
from ledgermq.client.send_pipeline import ProducerOptions
from ledgermq.client.transaction_requests import HalfMessage, UndecidedTransaction
from ledgermq.client.transactions import Transaction, TransactionalProducer
from ledgermq.model.message_filter import MessageFilter
from ledgermq.model.transactions import Decision

__all__ = [
    "Admin",
    "BatchResult",
    "Consumer",
    "DeadLetter",
    "DeadLetters",
    "Decision",
    "GivenBack",
    "GroupConsumer",
    "GroupOptions",
    "GroupRow",
    "GroupState",
    "HalfMessage",
    "KeyedMessages",
    "MessageBatch",
    "MessageFilter",
    "OffsetMove",
    "OutgoingMessage",
    "Producer",
    "ProducerOptions",
    "Queries",
    "QueueLag",
    "QueueState",
    "RebalanceListener",
    "ReceivedMessage",
    "Replay",
    "Requester",
    "SendResult",
    "TopicQueue",
    "TopicRow",
    "TopicSettings",
    "TopicState",
    "Transaction",
    "TransactionError",
    "TransactionResult",
    "TransactionalProducer",
    "UndecidedTransaction",
    "asks_for_reply",
]
