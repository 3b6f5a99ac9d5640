"""``Requester``: sends requests, and waits for the reply to each, from any number of threads."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Unpack

from ledgermq.client.blocking.consumer import Consumer
from ledgermq.client.blocking.contact import WaitsForContact
from ledgermq.client.blocking.producer import Producer
from ledgermq.client.core.address import DEFAULT_ADDRESS
from ledgermq.client.core.known_groups import KnownGroups
from ledgermq.client.core.received import ReceivedMessage
from ledgermq.client.first_contact import nodes_of
from ledgermq.client.reading.pull_pipeline import ConsumerOptions
from ledgermq.client.sending.message_options import RequestOptions, check_options
from ledgermq.client.sending.outgoing import Body
from ledgermq.client.sending.request_reply import (
    CORRELATION_ID,
    REQUEST_TIMEOUT_S,
    client_id,
    no_reply,
    reply_topic,
    request_properties,
)
from ledgermq.client.sending.send_pipeline import ProducerOptions
from ledgermq.client.tracing.tracing import Tracing
from ledgermq.model.errors import ClosedError, LedgerError, TimedOutError
from ledgermq.model.message_filter import MessageFilter

logger = logging.getLogger(__name__)

POLL_S = 0.5
"""A reader that is closed, or that nobody waits for any more, ends its wait after so long."""

RETRY_S = 0.2


class Requester(WaitsForContact):
    """Asks, and gets replies.

    The first request asks whether there is one group of nodes or a cluster. In a cluster a request
    goes to any group that has its topic, as a ``Producer`` chooses it, to no second one, and the
    reply comes from that group.

    Replies are read from behind the reply topic's end at the first request on: a reply that comes
    after its request has given up is dropped. Safe to share among threads. While nobody waits for
    a reply, nothing is read.

    Invariant: a correlation id is in ``_waiting`` from before its request is sent until its caller
    has the reply, or gives up.
    """

    IN_CLUSTER = "ledgermq.client.clusters.cluster_clients:RequesterOfGroups"

    def __init__(
        self,
        address: str | Sequence[str] = DEFAULT_ADDRESS,
        *,
        name: str = "requester",
        options: ProducerOptions | None = None,
        tracing: Tracing | None = None,
        keys: Mapping[str, str] | None = None,
        one_group: bool = False,
        producer: Producer | None = None,
    ) -> None:
        """A requester; the other arguments are those of ``Producer``.

        Args:
            producer: sends the requests in the place of one with these arguments; its owner closes
                it.
        """
        self._address = nodes_of(address)
        self._name = name
        self._client = client_id()
        self._own_producer = None
        if producer is None:
            producer = self._own_producer = Producer(
                address,
                name=name,
                options=options,
                tracing=tracing,
                keys=keys,
                one_group=one_group,
            )
        self._producer = producer
        self._news = threading.Condition()
        self._waiting: dict[str, ReceivedMessage | None] = {}
        self._last_error: LedgerError | None = None
        self._reader: threading.Thread | None = None
        self._begin_lock = threading.Lock()
        self._is_closed = False
        self._begin_contact(one_group=one_group)

    def groups(self) -> list[str]:
        """Names of the groups of nodes that are known now."""
        return self._producer.groups()

    def request(
        self,
        topic: str,
        body: Body,
        *,
        group: str = "",
        timeout: float = REQUEST_TIMEOUT_S,
        **options: Unpack[RequestOptions],
    ) -> ReceivedMessage:
        """Send a request; the reply to it.

        Args:
            group: of nodes, to send it to; without it, one that has the topic.
            timeout: seconds for all of it; the reader of the request is told, too.

        Raises:
            TimedOutError: nobody has replied in time; the request may have been read all the same.
            LedgerError: the request was not stored; the class says why.
        """
        correlation = uuid.uuid4().hex
        check_options(options, RequestOptions, "request")
        options["properties"] = request_properties(
            options.get("properties"),
            correlation_id=correlation,
            client=self._client,
            timeout_s=timeout,
        )
        until = time.monotonic() + timeout
        self._begin()
        with self._news:
            self._waiting[correlation] = None
            self._news.notify_all()
        try:
            sent = self._producer.send(topic, body, group=group, **options)
            try:
                sent.result(max(0.001, until - time.monotonic()))
            except TimedOutError as late:
                raise no_reply(topic, correlation, timeout, late) from late
            return self._await(topic, correlation, until, timeout)
        finally:
            with self._news:
                del self._waiting[correlation]

    def close(self) -> None:
        """Close; who waits for a reply gets none."""
        with self._news:
            self._is_closed = True
            self._news.notify_all()
        self._end_contact()
        if self._several is not None:
            self._several.close()
        if self._reader is not None:
            self._reader.join()
        if self._own_producer is not None:
            self._own_producer.close()

    def _ask_groups(self) -> KnownGroups | None:
        return self._producer.contact()

    def _await(self, topic: str, correlation: str, until: float, timeout: float) -> ReceivedMessage:
        with self._news:
            while True:
                reply = self._waiting[correlation]
                if reply is not None:
                    return reply
                left = until - time.monotonic()
                if left <= 0 or self._is_closed:
                    raise no_reply(topic, correlation, timeout, self._last_error)
                self._news.wait(left)

    def _begin(self) -> None:
        """Have a reader that stands behind the last reply there is now."""
        with self._begin_lock:
            if self._is_closed:
                raise ClosedError("requester is closed")
            if self._reader is not None:
                return
            consumer = Consumer(
                self._address,
                topic=reply_topic(self._producer.cluster()),
                start="last",
                one_group=True,
                filter=MessageFilter.by_tags(self._client),
                name=self._name,
                options=ConsumerOptions(hold_ms=30_000, timeout_s=self._producer.options.timeout_s),
            )
            try:
                consumer.offsets()
            except LedgerError:
                consumer.close()
                raise
            reader = threading.Thread(target=self._read, args=(consumer,), name=self._name)
            reader.daemon = True
            reader.start()
            self._reader = reader

    def _read(self, consumer: Consumer) -> None:
        """The reader's thread; it alone uses the consumer."""
        with consumer:
            while self._is_wanted():
                try:
                    batch = consumer.poll(POLL_S)
                except LedgerError as error:
                    # Who waits is told at the end of his time; a new leader may be found before.
                    logger.warning("replies not read: %s", error)
                    with self._news:
                        self._last_error = error
                        self._news.wait_for(lambda: self._is_closed, RETRY_S)
                    continue
                if len(batch):
                    self._give(list(batch))

    def _is_wanted(self) -> bool:
        """True as soon as somebody waits for a reply, false when the requester is closed."""
        with self._news:
            self._news.wait_for(
                lambda: self._is_closed or any(one is None for one in self._waiting.values())
            )
            return not self._is_closed

    def _give(self, replies: Sequence[ReceivedMessage]) -> None:
        with self._news:
            self._last_error = None
            for reply in replies:
                correlation = reply.properties.get(CORRELATION_ID, "")
                if correlation in self._waiting:
                    self._waiting[correlation] = reply
            self._news.notify_all()
