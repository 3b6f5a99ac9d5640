"""``TransactionalProducerOfGroups``: transactions in any group of a cluster, each in one."""

from __future__ import annotations

import logging
import threading
import time

from ledgermq.client.blocking.transactions import Listener, TransactionalProducer
from ledgermq.client.closing import Closing
from ledgermq.client.clusters.cluster_producer import ProducerOfGroups
from ledgermq.client.clusters.group_clients import GroupClients
from ledgermq.client.clusters.group_watch import ASKED_AGAIN_S
from ledgermq.client.clusters.used_group import UsedGroup
from ledgermq.client.sending.message_options import RequestOptions
from ledgermq.client.sending.transaction_course import TransactionCourse
from ledgermq.client.tracing.tracing import Tracing
from ledgermq.model.errors import LedgerError

logger = logging.getLogger(__name__)


class TransactionalProducerOfGroups(Closing):
    """What a ``TransactionalProducer`` is in a cluster: it has one for each group that is used.

    With a listener it has one for each group that answers, as any may ask it.
    """

    def __init__(
        self,
        producer: ProducerOfGroups,
        *,
        course: TransactionCourse,
        listener: Listener | None,
        name: str,
        tracing: Tracing | None,
    ) -> None:
        """A producer that sends by ``producer``, whose owner closes it.

        Args:
            course: of the transactions in all groups.
        """
        self._course = course
        self._listener = listener
        self._name = name
        self._tracing = tracing
        self._producer = producer
        self._clients = GroupClients(self._producer, self._client)
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
        """The producer of one group; see ``TransactionalProducer.of``."""
        return self._clients.of(group)

    def chosen(self, topic: str, options: RequestOptions, group: str) -> TransactionalProducer:
        """The producer of the group that a message would go to; see ``ProducerOfGroups.choose``."""
        until = time.monotonic() + self._producer.options.timeout_s
        return self._clients.chosen(topic, options, group=group, until=until)

    def close(self) -> None:
        """Say goodbye; open transactions are asked for later, of other producers of the group."""
        self._closing.set()
        if self._answering is not None:
            self._answering.join()
        self._clients.close()

    def _client(self, used: UsedGroup) -> TransactionalProducer:
        return TransactionalProducer(
            used.group.address,
            group=self._course.group,
            listener=self._listener,
            name=self._name,
            options=self._producer.options,
            tracing=self._tracing,
            one_group=True,
            producer=used.producer,
            course=self._course,
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
