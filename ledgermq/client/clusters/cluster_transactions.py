"""``ClusterTransactionalProducer``: transactions in any group of a cluster, each in one."""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Generic, TypeVar, Unpack

from ledgermq.client.blocking.transactions import Listener, Transaction, TransactionalProducer
from ledgermq.client.calls import Calls, MakesCalls
from ledgermq.client.closing import Closing
from ledgermq.client.clusters.cluster_producer import ClusterProducer
from ledgermq.client.clusters.group_clients import GroupClients
from ledgermq.client.clusters.group_watch import ASKED_AGAIN_S
from ledgermq.client.clusters.used_group import UsedGroup
from ledgermq.client.core.asked import asked
from ledgermq.client.sending.known_transactions import TransactionResult
from ledgermq.client.sending.message_options import HalfOptions, RequestOptions
from ledgermq.client.sending.outgoing import Body
from ledgermq.client.sending.send_pipeline import ProducerOptions
from ledgermq.client.sending.transaction_parts import check_group
from ledgermq.client.tracing.tracing import Tracing
from ledgermq.model.errors import LedgerError
from ledgermq.model.names.transactions import Decision

logger = logging.getLogger(__name__)


Begun = TypeVar("Begun")
Done = TypeVar("Done")


class ClusterTransactions(ABC, Generic[Begun, Done]):
    """Verbs of both forms of a cluster's transactional producer.

    ``Begun`` is a transaction, ``Done`` what comes of the work between its beginning and its end.
    """

    _timeout_s: float
    _chosen: Callable[..., object]
    """Gives the producer of the group that a message would go to; see ``GroupClients``."""

    @asked
    def transaction(self, topic: str, *, group: str = "") -> Calls[Begun]:
        """Begin a transaction in a group that has ``topic``; nothing is sent before its first
        message.

        All of its messages go to that group, also those of other topics, which it has to have; a
        ``queue_key`` chooses among its queues alone.

        Args:
            group: the one to begin it in; without it, it is chosen as by ``ClusterProducer.send``.

        Raises:
            LedgerError: no group can be chosen, or reached; as from ``ClusterProducer.send``.
        """
        producer = yield from self._producer_for(topic, {}, group)
        transaction: Begun = producer.transaction()
        return transaction

    @asked
    def send(
        self,
        topic: str,
        body: Body,
        local: Callable[[str], Done],
        *,
        group: str = "",
        **options: Unpack[HalfOptions],
    ) -> Calls[TransactionResult]:
        """Store a half message, do what it tells of, and end it as that went.

        See ``TransactionalProducer.send``, and for ``group`` and ``queue_key``
        ``ClusterProducer.send``.
        """
        producer = yield from self._producer_for(topic, options, group)
        ended: TransactionResult = yield partial(producer.send, topic, body, local, **options)
        return ended

    def _producer_for(self, topic: str, options: RequestOptions, group: str) -> Calls[Any]:
        until = time.monotonic() + self._timeout_s
        return (yield partial(self._chosen, topic, options, group=group, until=until))


class ClusterTransactionalProducer(
    ClusterTransactions[Transaction, Decision | None], MakesCalls, Closing
):
    """Sends messages in transactions, each of which is in one group, from its beginning to its end.

    That group alone knows what became of it, and asks for that: all else is as
    ``TransactionalProducer`` has it, which this has one of for each group that is used; with a
    listener, for each that answers, as any may ask it. Safe to share among threads; each
    transaction belongs to one at a time.
    """

    def __init__(
        self,
        addresses: str | Sequence[str],
        *,
        group: str,
        listener: Listener | None = None,
        name: str = "transactional-producer",
        options: ProducerOptions | None = None,
        tracing: Tracing | None = None,
        keys: Mapping[str, str] | None = None,
    ) -> None:
        """A producer, which finds the groups in the background.

        Args:
            addresses, keys: as a ``ClusterProducer`` takes them.
            group: of producers that may answer for one another, in each of the cluster's groups.
            listener: see ``TransactionalProducer``; it may be called from a thread of each group.

        Raises:
            ConfigError: an argument cannot be used.
        """
        self.group = check_group(group)
        self._listener = listener
        self._name = name
        self._tracing = tracing
        self._producer = ClusterProducer(addresses, name=name, options=options, keys=keys)
        self._timeout_s = self._producer.options.timeout_s
        self._clients = GroupClients(self._producer, self._client)
        self._chosen = self._clients.chosen
        self._closing = threading.Event()
        self._answering: threading.Thread | None = None
        if listener is not None:
            self._answering = threading.Thread(
                target=self._listen, name=f"ledgermq-{name}-groups", daemon=True
            )
            self._answering.start()

    def groups(self) -> list[str]:
        """Names of the groups that are known now."""
        return self._producer.groups()

    def of(self, group: str) -> TransactionalProducer:
        """The producer of one group, which this one closes.

        Raises:
            ConfigError: no such group is known.
        """
        return self._clients.of(group)

    def close(self, timeout: float | None = None) -> None:
        """Say goodbye; open transactions are asked for later, of other producers of the group."""
        self._closing.set()
        if self._answering is not None:
            self._answering.join()
        self._clients.close()
        self._producer.close(timeout)

    def _client(self, used: UsedGroup) -> TransactionalProducer:
        return TransactionalProducer(
            used.group.address,
            group=self.group,
            listener=self._listener,
            name=self._name,
            options=self._producer.options,
            tracing=self._tracing,
            producer=used.producer,
        )

    def _listen(self) -> None:
        """Have a producer in each group that answers: it may ask for what another one has left."""
        while True:
            for name in self._producer.answering():
                try:
                    self.of(name)
                except LedgerError as error:
                    # It may have left the cluster just now.
                    logger.warning("group is not listened to: group=%s: %s", name, error)
            if self._closing.wait(ASKED_AGAIN_S):
                return
