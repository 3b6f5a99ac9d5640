"""Producer and Consumer, synchronous and asyncio; needs only pyzmq."""

from ledgermq.client.consumer import Consumer
from ledgermq.client.outgoing import OutgoingMessage
from ledgermq.client.producer import Producer
from ledgermq.client.queries import KeyedMessages, Queries
from ledgermq.client.received import MessageBatch, ReceivedMessage
from ledgermq.client.results import BatchResult, SendResult
from ledgermq.client.send_pipeline import ProducerOptions

__all__ = [
    "BatchResult",
    "Consumer",
    "KeyedMessages",
    "MessageBatch",
    "OutgoingMessage",
    "Producer",
    "ProducerOptions",
    "Queries",
    "ReceivedMessage",
    "SendResult",
]
