"""``Producer``: sends messages to a node, from any number of threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar, Unpack

from ledgermq.client.blocking.broker import Broker
from ledgermq.client.blocking.contact import WaitsForContact
from ledgermq.client.blocking.send_driver import SendDriver
from ledgermq.client.core.address import DEFAULT_ADDRESS, local_host
from ledgermq.client.core.known_groups import KnownGroups
from ledgermq.client.core.link import NEVER, Link, keys_of
from ledgermq.client.core.nodes import AnyLink, broker_link, is_one_node, writer_group
from ledgermq.client.core.received import ReceivedMessage
from ledgermq.client.core.results import BatchResult, SendResult
from ledgermq.client.first_contact import check_only_group, contact_steps, link_group
from ledgermq.client.sending.frames import BatchCallback, OneCallback
from ledgermq.client.sending.message_options import (
    NAMES,
    BatchOptions,
    MessageOptions,
    QueueChoice,
    named,
    outgoing,
    shared_outgoing,
)
from ledgermq.client.sending.outgoing import Body, OutgoingMessage
from ledgermq.client.sending.record_encoder import Form
from ledgermq.client.sending.request_reply import reply_target
from ledgermq.client.sending.send_future import SendFuture
from ledgermq.client.sending.send_pipeline import ProducerOptions, SendPipeline
from ledgermq.client.sending.sender import RECORD_AROUND, Sender, batch_size
from ledgermq.client.topic_writer import FAIL_OVER_S, TopicWriter
from ledgermq.client.tracing.tracing import Tracing
from ledgermq.model.errors import ClosedError, LedgerError, TimedOutError

Future = TypeVar("Future")


class Producer(TopicWriter, WaitsForContact):
    """Sends messages to a node, to the leader of a group, or to all groups of a cluster.

    The first call that needs a node asks which it is. In a cluster each message goes to one of the
    groups that have its topic: one that may go to any queue to a group whose leader answers and has
    room; those of one ``queue_key`` to one queue of one group, for as long as the groups and the
    numbers of their queues stay. Groups take turns, fast ones more often, and those that stand
    still none. What a group has been sent stays with it, unless the cluster's row of the topic lets
    it fail over: then what a group has not stored in time is sent to another one, and may be in
    both. Groups that come and go are heard of within 30 s. A group that belonged to no cluster when
    it was asked is the only one for as long as the producer lives.

    Messages of one thread to one queue are stored in the order in which they were sent, also when
    the connection ends, or another node leads, and they are sent again; only a refusal for lack of
    room may put a frame behind those that were under way with it (``max_in_flight=1`` excludes
    that).

    Safe to share among threads. A child that is forked makes a producer of its own: this one
    refuses each call there, and is the parent's to close.

    Attributes:
        born_host: this client's address, as in its messages.
    """

    ASKS_NOBODY = frozenset({"contact"})

    IN_CLUSTER = "ledgermq.client.clusters.cluster_producer:ProducerOfGroups"

    def __init__(
        self,
        address: str | Sequence[str] = DEFAULT_ADDRESS,
        *,
        name: str = "producer",
        options: ProducerOptions | None = None,
        tracing: Tracing | None = None,
        keys: Mapping[str, str] | None = None,
        fail_over_s: float = FAIL_OVER_S,
        one_group: bool = False,
        awaits_node: bool = True,
    ) -> None:
        """A producer, which connects in the background; one tcp node's broker must answer now.

        Args:
            address: ``ipc://`` and the node's runtime directory, or ``tcp://HOST:PORT`` of its
                consume socket; of several nodes of a group, in a list or divided by commas, the
                leader gets the messages, and its successor what the leader did not answer. A HOST
                that is a name stands for all nodes of its records, which are asked for anew. Of a
                cluster nodes of any of its groups will do; in a list a text with commas is one
                group's, and one group that answers is enough to find all.
            name: of this client, as the node's operator sees it.
            tracing: is told of each message.
            keys: file of keys for a group of a cluster, by its name; the others are reached with
                the one of the first address.
            fail_over_s: in a cluster, what may fail over does when a group has not stored it for so
                long; 0.01 to ``timeout_s`` of the options, which is the time for all groups
                together.
            one_group: send to the group of the addresses alone, also where it is one of a cluster.
            awaits_node: without, one node's broker need not answer now, either, and is waited for.

        Raises:
            ConfigError: the address cannot be one, or the node takes no messages there; or a time
                is out of range.
            UnreachableError: nobody is there, or no node; told within a second, and only as long as
                no node has ever answered this client.
            NotLeaderError: the broker of the only node does not answer over tcp.
        """
        super().__init__(
            address,
            name=name,
            options=options,
            tracing=tracing,
            keys=keys,
            fail_over_s=fail_over_s,
            one_group=one_group,
        )
        context, places = self._context, self._places
        self._broker = Broker(
            broker_link(context, places, client=name, is_watchful=awaits_node),
            timeout_s=self.options.timeout_s,
        )
        self._broker_lock = threading.Lock()
        link: AnyLink
        if not (awaits_node and is_one_node(places)):
            link = writer_group(context, places, client=name)
        else:
            endpoint = places[0].produce
            if not endpoint:
                endpoint = places[0].produce_endpoint(self._broker.welcome().produce)
            link = Link(context, endpoint, client=name, keys=keys_of(places[0]), is_writers=True)
        self._pipeline = SendPipeline(link, self.options)
        self._driver = SendDriver(self._pipeline, name=f"ledgermq-{name}")
        self.born_host = local_host(places)
        self._sender = Sender(self._pipeline, self._driver, born_host=self.born_host)
        self._exchange = self._sender.exchange(self._routes, self._driver)
        self._is_closed = False

    def groups(self) -> list[str]:
        """Names of the groups of nodes that are known now."""
        return link_group(self._broker.requests.link)

    def of(self, group: str) -> Producer:
        """The producer of one group of a cluster, which this one closes.

        Raises:
            ConfigError: no such group is known.
            LedgerError: as from ``Producer``.
        """
        self._check_group(group)
        return self

    def send(
        self,
        topic: str,
        body: Body,
        *,
        group: str = "",
        callback: OneCallback | None = None,
        block: bool = True,
        **options: Unpack[MessageOptions],
    ) -> SendFuture[SendResult]:
        """Send one message; the future of where it is stored.

        One that may fail over has its outcome after twice ``timeout_s`` at the latest.

        Args:
            group: of nodes, to send it to; without it, one that has the topic.
            callback: called with the future when it is done, from another thread or from this one;
                where nobody waits or sends meanwhile, up to 20 ms later.
            block: wait for room in the window.
            tag: what consumers filter by.
            keys: what the index finds the message by.
            queue_id: queue to store it in; without one and without ``queue_key`` the queues take
                turns, a frame each.
            queue_key: messages of one key go to one queue; not with ``queue_id``.
            message_group: an ordered share group hands out its messages one after another; without
                ``queue_key`` and ``queue_id`` it is the key of a queue, too.
            flag: the application's, stored with the message.
            delay_level: RocketMQ's, from 1; above the highest it is that.
            delay: deliver it so many milliseconds from now, at most a year.
            deliver_at: deliver it at this time, epoch milliseconds or a ``datetime`` with a zone.
            priority: the number of its queue, or of the last one; consumers of a share group get
                those of the highest queues first, of a topic whose type is ``PRIORITY``.
            unique_id: a topic with a window of de-duplication stores no second message of it within
                that; drawn when left out. At most 128 printable ASCII characters without a space.

        Raises:
            MessageIllegalError: the message breaks a limit of the format or of the node.
            TopicUnknownError: the topic does not exist, and none may be created.
            BusyError: there is no room; nothing was sent.
            NotLeaderError: no node answers; or of a group of a cluster it is not known whether it
                has the topic, and it depends on that where a ``queue_key`` or a ``queue_id`` goes.
                Nothing was sent.
            ConfigError: ``queue_id`` without ``group``, and several groups have the topic; or no
                such group is known.
        """
        if group:
            self._check_group(group)
        if self._tracing is not None:
            return self._send_traced(self._tracing, topic, body, callback, options, block=block)
        if callback is None and type(body) is bytes and options.keys() <= NAMES:
            lone: SendFuture[SendResult] | None
            lone = self._exchange.send(topic, body, named(options))
            if lone is not None:
                return lone
        choice, message = outgoing(topic, body, **options)
        queues = self.write_queues(topic)
        return self.send_to(choice, message, queues=queues, callback=callback, block=block)

    def send_to(
        self,
        choice: QueueChoice,
        message: OutgoingMessage,
        *,
        queues: int = 1,
        callback: OneCallback | None = None,
        block: bool = True,
    ) -> SendFuture[SendResult]:
        """Send one message to a topic of which it is known how many queues it has; see ``send``."""
        message = self._compressor.message(message)
        return self._put(
            len(message.body) + RECORD_AROUND,
            lambda now: self._sender.put_one(
                choice, message, queues=queues, now=now, callback=callback
            ),
            block=block,
            is_urgent=callback is not None,
        )

    def send_batch(
        self,
        topic: str,
        messages: Sequence[Body] | Sequence[OutgoingMessage],
        *,
        group: str = "",
        callback: BatchCallback | None = None,
        block: bool = True,
        **options: Unpack[BatchOptions],
    ) -> SendFuture[BatchResult]:
        """Send messages to one queue, stored together or not at all; the fast path.

        Args:
            group: of nodes, to send them to; without it, one that has the topic.
            messages: bodies, which share the other arguments, or ``OutgoingMessage``, which have
                their own tag, keys, properties and flag.

        Raises:
            MessageIllegalError: a message breaks a limit (``record`` is its number), or they do not
                fit into one frame.
            TopicUnknownError: the topic does not exist, and none may be created.
            BusyError: there is no room; nothing was sent.
            NotLeaderError, ConfigError: as from ``send``; nothing was sent.
        """
        if group:
            self._check_group(group)
        if self._tracing is not None:
            return self._send_batch_traced(
                self._tracing, topic, messages, callback, options, block=block
            )
        if callback is None and type(messages) is list and options.keys() <= NAMES:
            batch: SendFuture[BatchResult] | None
            batch = self._exchange.send_batch(topic, messages, named(options))
            if batch is not None:
                return batch
        choice, shared = shared_outgoing(topic, messages, "send_batch", **options)
        return self._put_batch(choice, messages, shared, callback, block=block)

    def cancel(self, unique_id: str, *, group: str = "") -> None:
        """Take back a message that was sent with ``delay`` or ``deliver_at``, and waits.

        Args:
            unique_id: as in the result of ``send``.
            group: of nodes, which took it; has to be named where there are several.

        Raises:
            ConfigError: no such group is known, or one of several is to be named.
            MessageIllegalError: none of that id waits: it was delivered, or taken back before.
            OutcomeUnknownError, NotLeaderError: ask again.
        """
        if group:
            self._check_group(group)
        with self._broker_lock:
            self._broker.cancel_timer(unique_id)

    def cluster(self) -> str:
        """Name of the cluster that the messages go to.

        Raises:
            NotLeaderError: no broker answers.
        """
        with self._broker_lock:
            return self._broker.welcome().cluster

    def reply(
        self,
        request: ReceivedMessage,
        body: Body,
        *,
        keys: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
    ) -> SendFuture[SendResult]:
        """Reply to a message that a ``Requester`` sent, or any of RocketMQ's clients.

        In a cluster the reply goes to the group that the request was read in.

        Raises:
            MessageIllegalError: the message asks for no reply, or the reply breaks a limit.
            LedgerError: as from ``send``.
        """
        target = reply_target(request, properties, cluster=self.cluster())
        return self.send(
            target.topic,
            body,
            tag=target.tag,
            keys=keys,
            properties=target.properties,
            flag=flag,
        )

    def flush(self, timeout: float | None = None) -> None:
        """Return when every message sent so far has its outcome.

        Args:
            timeout: seconds; as long as the messages' own time when left out.

        Raises:
            TimedOutError: some have none; they stay under way.
        """
        until = time.monotonic() + timeout if timeout is not None else NEVER
        if not self._driver.wait_until_idle(until):
            raise TimedOutError(
                "messages without an outcome",
                bytes=self._pipeline.unanswered_bytes,
                waited_s=timeout,
            )

    def close(self, timeout: float | None = None) -> None:
        """Flush, say goodbye to the node, close; what has no outcome after ``timeout`` fails."""
        if self._is_closed:
            return
        self._is_closed = True
        self._exchange.is_open = False
        self._end_contact()
        if self._several is not None:
            self._several.close(timeout)
            return
        until = time.monotonic() + timeout if timeout is not None else NEVER
        self._driver.wait_until_idle(until)
        self._close_connections()

    def _close_connections(self) -> None:
        self._driver.close()
        with self._broker_lock:
            self._broker.requests.link.close()

    def contact(self) -> KnownGroups | None:
        """What is known of the cluster, for a client that sends by this one; None: one group.

        Raises:
            LedgerError: nobody has told it.
        """
        return self._make_contact()

    def _ask_groups(self) -> KnownGroups | None:
        with self._broker_lock:
            return self._broker.run(contact_steps())

    def _leave_group(self) -> None:
        self._close_connections()

    def _check_group(self, group: str) -> None:
        check_only_group(group, self._broker.requests.link)

    def _put(
        self, size: int, put: Callable[[float], Future], *, block: bool, is_urgent: bool
    ) -> Future:
        driver, pipeline = self._driver, self._pipeline
        until = 0.0
        while True:
            with driver.lock:
                if self._is_closed:
                    raise ClosedError("producer is closed")
                link = pipeline.link
                now = time.monotonic()
                if link.welcome is None and link.failure is not None:
                    # A name that is unknown is asked for again with who comes.
                    driver.advance(now)
                    if (failure := link.failure) is not None:
                        raise failure
                if self._sender.has_room(size):
                    future = put(now)
                    driver.advance_behind_send(now, is_urgent=is_urgent)
                    break
            until = until or now + self.options.timeout_s
            if not block or not driver.wait_for_room(size, until):
                raise pipeline.no_room()
        if pipeline.callbacks:
            driver.deliver()
        return future

    def _send_traced(
        self,
        tracing: Tracing,
        topic: str,
        body: Body,
        callback: OneCallback | None,
        options: MessageOptions,
        *,
        block: bool,
    ) -> SendFuture[SendResult]:
        course = tracing.send(topic, body, options, client=self._name)
        with course.beginning():
            choice, message = outgoing(topic, body, **options)
            queues = self.write_queues(topic)
            traced = course.callback(callback)
            return self.send_to(choice, message, queues=queues, callback=traced, block=block)

    def _send_batch_traced(
        self,
        tracing: Tracing,
        topic: str,
        messages: Sequence[Body] | Sequence[OutgoingMessage],
        callback: BatchCallback | None,
        options: BatchOptions,
        *,
        block: bool,
    ) -> SendFuture[BatchResult]:
        whole, course = tracing.send_batch(topic, messages, options, client=self._name)
        with course.beginning():
            choice, shared = shared_outgoing(topic, messages, "send_batch", **options)
            traced = course.batch_callback(callback)
            return self._put_batch(choice, whole, shared, traced, block=block)

    def _put_batch(
        self,
        choice: QueueChoice,
        messages: Sequence[Body] | Sequence[OutgoingMessage],
        shared: OutgoingMessage,
        callback: BatchCallback | None,
        *,
        block: bool,
    ) -> SendFuture[BatchResult]:
        queues = self.write_queues(choice.topic.decode())
        messages = self._compressor.batch(messages, shared)
        return self._put(
            batch_size(messages),
            lambda now: self._sender.put_batch(
                choice, messages, shared, queues=queues, now=now, callback=callback
            ),
            block=block,
            is_urgent=callback is not None,
        )

    def is_ready(self, size: int) -> bool:
        """Whether a message of ``size`` bytes can leave now: a node leads, and there is room.

        Where there is none, the connection is looked after, which nobody else does while nothing
        is under way.
        """
        with self._driver.lock:
            if self._pipeline.link.welcome is None and not self._is_closed:
                self._driver.advance(time.monotonic())
            is_ready = self._is_ready(size)
        self._driver.deliver()
        return is_ready

    def wait_until_ready(self, size: int, until: float) -> None:
        """Return when ``is_ready`` holds, or never can, or at ``until``."""
        self._driver.wait_until(lambda: self._is_ready(size) or self.failure is not None, until)

    @property
    def failure(self) -> LedgerError | None:
        """Why no session can ever stand with any of the nodes, if that is known."""
        return self._pipeline.link.failure

    @property
    def is_idle(self) -> bool:
        """Whether every message sent so far has its outcome."""
        if self._several is not None:
            return bool(self._several.is_idle)
        return self._pipeline.unanswered_bytes == 0

    def _is_ready(self, size: int) -> bool:
        return self._pipeline.link.welcome is not None and self._sender.has_room(size)

    def know_queues(self, topic: str, queues: int) -> None:
        """Note how many queues of ``topic`` take messages, as was just said: nobody is asked."""
        self._routes.know(topic, queues)

    def form(self) -> Form:
        """What the encoding of records depends on of the node that takes them; waits for it.

        Raises:
            NotLeaderError: no node answers.
        """
        until = time.monotonic() + self.options.timeout_s
        while True:
            with self._driver.lock:
                if self._pipeline.link.failure is not None:
                    self._driver.advance(time.monotonic())
                    if (failure := self._pipeline.link.failure) is not None:
                        raise failure
                form = self._pipeline.form
            if form is not None:
                return form
            if not self._driver.wait_for_room(0, until):
                raise self._pipeline.no_room()

    def write_queues(self, topic: str) -> int:
        """How many queues ``topic`` has, which is created if it may be; asks now and then.

        Raises:
            LedgerError: as from ``send``.
        """
        queues = self._routes.fresh(topic, time.monotonic())
        if queues is not None:
            return queues
        with self._broker_lock:
            wait_s = self._routes.wait_s(topic)
            return self._broker.run(self._routes.look_up(topic), timeout_s=wait_s)
