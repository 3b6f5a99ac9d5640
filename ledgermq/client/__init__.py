"""Producer and Consumer, synchronous and asyncio; needs only pyzmq.

Applications import from here, or from ``ledgermq.client.aio``. A client asks a node of its
addresses, with its first question, whether there is one group of nodes or a cluster of several, and
uses all groups of a cluster (``first_contact``); ``one_group=True`` keeps it to one.

A client that was closed, and one that is used in a child of the process that has made it, refuse
each call with ``ClosedError``: a server that forks makes its clients behind that, in each worker.

Inside, the rules of asking, sending and pulling (``RequestPipeline``, ``SendPipeline``,
``PullPipeline``) never block, and have no thread and no clock. They are driven; one question to a
broker is this loop:

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
asyncio. Begin with ``core/link.py`` (one session), ``core/nodes.py`` (the leader among several
nodes), then ``core/requests.py``. It may import ``hosts``, ``wire``, ``formats`` and ``model``, and
nothing of a node.
"""

from typing import TYPE_CHECKING

from ledgermq.client.admin.admin import Admin
from ledgermq.client.blocking.consumer import Consumer
from ledgermq.client.blocking.group_consumer import GroupConsumer
from ledgermq.client.blocking.producer import Producer
from ledgermq.client.blocking.requester import Requester
from ledgermq.client.blocking.share_consumer import ShareConsumer
from ledgermq.client.blocking.transactions import Transaction, TransactionalProducer
from ledgermq.client.core.received import MessageBatch, ReceivedMessage
from ledgermq.client.core.results import BatchResult, SendResult
from ledgermq.client.groups.allocation import ClusterQueue, TopicQueue
from ledgermq.client.groups.group_member import GroupOptions
from ledgermq.client.groups.rebalance_listener import RebalanceListener
from ledgermq.client.groups.share_buffer import ShareOptions, TakenMessage
from ledgermq.client.reading.dead_letters import DeadLetter, DeadLetters, Replay
from ledgermq.client.reading.pull_pipeline import ConsumerOptions
from ledgermq.client.reading.queries import KeyedMessages, Queries
from ledgermq.client.reading.retries import GivenBack
from ledgermq.client.sending.known_transactions import TransactionError, TransactionResult
from ledgermq.client.sending.outgoing import OutgoingMessage
from ledgermq.client.sending.request_reply import asks_for_reply
from ledgermq.client.sending.send_pipeline import ProducerOptions
from ledgermq.client.sending.transaction_requests import HalfMessage, UndecidedTransaction
from ledgermq.client.trace_topic import TraceTopic
from ledgermq.client.tracing.tracing import Tracing
from ledgermq.model.errors import (
    AttemptUnknownError,
    BodyUnreadableError,
    BusyError,
    ClosedError,
    ColdAwayError,
    ConfigError,
    ConnectDeniedError,
    CorruptLogError,
    DamagedLogError,
    DiskFullError,
    FilterIllegalError,
    GroupActiveError,
    GroupUnknownError,
    KeyMissingError,
    LedgerError,
    MessageIllegalError,
    MessageUnknownError,
    NameUnknownError,
    NewerVersionError,
    NoPermissionError,
    NotLeaderError,
    OutcomeUnknownError,
    ProtocolError,
    QuotaError,
    StagedUnknownError,
    StaleGenerationError,
    StorageError,
    StoreLockedError,
    StrangerError,
    TimedOutError,
    TopicUnknownError,
    TransactionEndedError,
    TransactionUnknownError,
    UnexpectedError,
    UnreachableError,
)
from ledgermq.model.message_filter import MessageFilter
from ledgermq.model.names.transactions import Decision
from ledgermq.verbs.groups import GroupRow, GroupState, QueueLag
from ledgermq.verbs.offsets import OffsetMove
from ledgermq.verbs.topics import QueueState, TopicRow, TopicSettings, TopicState

if TYPE_CHECKING:
    from ledgermq.client.old_names import ClusterBatch as ClusterBatch
    from ledgermq.client.old_names import ClusterConsumer as ClusterConsumer
    from ledgermq.client.old_names import ClusterGroupConsumer as ClusterGroupConsumer
    from ledgermq.client.old_names import ClusterProducer as ClusterProducer
    from ledgermq.client.old_names import ClusterRebalanceListener as ClusterRebalanceListener
    from ledgermq.client.old_names import ClusterRequester as ClusterRequester
    from ledgermq.client.old_names import (
        ClusterTransactionalProducer as ClusterTransactionalProducer,
    )
    from ledgermq.client.old_names import GroupAdmins as GroupAdmins

__all__ = [
    "Admin",
    "AttemptUnknownError",
    "BatchResult",
    "BodyUnreadableError",
    "BusyError",
    "ClosedError",
    "ClusterQueue",
    "ColdAwayError",
    "ConfigError",
    "ConnectDeniedError",
    "Consumer",
    "ConsumerOptions",
    "CorruptLogError",
    "DamagedLogError",
    "DeadLetter",
    "DeadLetters",
    "Decision",
    "DiskFullError",
    "FilterIllegalError",
    "GivenBack",
    "GroupActiveError",
    "GroupConsumer",
    "GroupOptions",
    "GroupRow",
    "GroupState",
    "GroupUnknownError",
    "HalfMessage",
    "KeyMissingError",
    "KeyedMessages",
    "LedgerError",
    "MessageBatch",
    "MessageFilter",
    "MessageIllegalError",
    "MessageUnknownError",
    "NameUnknownError",
    "NewerVersionError",
    "NoPermissionError",
    "NotLeaderError",
    "OffsetMove",
    "OutcomeUnknownError",
    "OutgoingMessage",
    "Producer",
    "ProducerOptions",
    "ProtocolError",
    "Queries",
    "QueueLag",
    "QueueState",
    "QuotaError",
    "RebalanceListener",
    "ReceivedMessage",
    "Replay",
    "Requester",
    "SendResult",
    "ShareConsumer",
    "ShareOptions",
    "StagedUnknownError",
    "StaleGenerationError",
    "StorageError",
    "StoreLockedError",
    "StrangerError",
    "TakenMessage",
    "TimedOutError",
    "TopicQueue",
    "TopicRow",
    "TopicSettings",
    "TopicState",
    "TopicUnknownError",
    "TraceTopic",
    "Tracing",
    "Transaction",
    "TransactionEndedError",
    "TransactionError",
    "TransactionResult",
    "TransactionUnknownError",
    "TransactionalProducer",
    "UndecidedTransaction",
    "UnexpectedError",
    "UnreachableError",
    "asks_for_reply",
]


def __getattr__(name: str) -> object:
    if name.islower():
        # A submodule that is being imported is looked for here, too.
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ledgermq.client.old_names import WAITING, old_name

    return old_name(__name__, name, WAITING)
