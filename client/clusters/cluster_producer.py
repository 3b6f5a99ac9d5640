"""``ClusterProducer``: sends messages to all groups of a cluster that have a topic."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar, Unpack

from ledgermq.client.blocking.producer import Producer
from ledgermq.client.closing import Closing
from ledgermq.client.clusters.group_turns import TURN_S, GroupTime, next_turn
from ledgermq.client.clusters.group_watch import GroupWatch, WatchedGroup
from ledgermq.client.clusters.topic_groups import TopicGroups
from ledgermq.client.core.link import NEVER
from ledgermq.client.core.results import BatchResult, SendResult
from ledgermq.client.sending.frames import BatchCallback, OneCallback
from ledgermq.client.sending.message_options import BatchOptions, MessageOptions, RequestOptions
from ledgermq.client.sending.outgoing import Body, OutgoingMessage
from ledgermq.client.sending.send_future import SendFuture
from ledgermq.client.sending.send_pipeline import ProducerOptions
from ledgermq.client.sending.sender import RECORD_AROUND, batch_size
from ledgermq.client.tracing.tracing import Tracing
from ledgermq.model.errors import BusyError, ConfigError, LedgerError, NotLeaderError

Result = TypeVar("Result")

ROOM_S = 0.02
"""While no group has room, all are looked at again so often: another one may have some sooner."""


class _Used:
    """A group that messages are sent to."""

    __slots__ = ("group", "producer", "time")

    def __init__(self, group: WatchedGroup, producer: Producer) -> None:
        self.group = group
        self.producer = producer
        self.time = GroupTime()

    def settle(
        self, callback: Callable[[SendFuture[Result]], object] | None, done: SendFuture[Result]
    ) -> None:
        """A watched send has its outcome."""
        self.time.ends(time.monotonic(), is_stored=done.exception() is None)
        if callback is not None:
            callback(done)


class ClusterProducer(Closing):
    """Sends each message to one of the groups that have its topic.

    A message that may go to any queue goes to a group whose leader answers and has room: groups
    take turns, fast ones more often, and those that stand still none. Messages of one ``queue_key``
    go to one queue of one group, for as long as the groups and the numbers of their queues stay.
    What a group has been sent stays with it: all else is as ``Producer`` has it, which this has
    one of for each group. ``linger_ms``, ``window_bytes`` and the other options are for each group.

    Safe to share among threads. A process that forks makes one of its own in the child.
    """

    def __init__(
        self,
        addresses: str | Sequence[str],
        *,
        name: str = "producer",
        options: ProducerOptions | None = None,
        tracing: Tracing | None = None,
        keys: Mapping[str, str] | None = None,
    ) -> None:
        """A producer, which finds the groups, and connects, in the background.

        Args:
            addresses: of nodes of one group, as ``Producer`` takes them in a text; in a list those
                of several groups, a text each: one group that answers is enough to find all.
            name: of this client, as the nodes' operators see it.
            tracing: is told of each message.
            keys: file of keys for a group, by its name; the others are reached with the one of the
                first address.

        Raises:
            ConfigError: an address cannot be one, or there is none.
        """
        seeds = [addresses] if isinstance(addresses, str) else list(addresses)
        if not seeds:
            raise ConfigError("no address of a node")
        self.options = options or ProducerOptions()
        self._name = name
        self._tracing = tracing
        self._watch = GroupWatch(seeds, client=name, keys=keys)
        self._lock = threading.Lock()
        self._used: dict[str, _Used] = {}
        self._retired: list[Producer] = []
        self._chosen: dict[str, tuple[_Used, float]] = {}
        self._is_closed = False

    def groups(self) -> list[str]:
        """Names of the groups that are known now."""
        return [group.name for group in self._watch.groups()]

    def of(self, group: str) -> Producer:
        """The producer of one group, which this one closes.

        Raises:
            ConfigError: no such group is known.
            LedgerError: as from ``Producer``.
        """
        return self._used_of(group).producer

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
        """Send one message; the future of where it is stored. See ``Producer.send``.

        Args:
            group: the one to send it to; without it, one that has the topic.

        Raises:
            ConfigError: ``queue_id`` without ``group``, and several groups have the topic; or no
                such group is known.
            NotLeaderError: no group that has the topic answers; or one has not said yet
                whether it has the topic, and it depends on that where a ``queue_key`` or a
                ``queue_id`` goes. Nothing was sent.
            LedgerError: as from ``Producer.send``.
        """
        alone = self._alone(group)
        if alone is not None:
            return alone.send(topic, body, callback=callback, block=block, **options)

        def send(used: _Used, is_watched: bool, block: bool) -> SendFuture[SendResult]:
            told = callback
            if is_watched:
                told = partial(used.settle, callback)
            return used.producer.send(topic, body, callback=told, block=block, **options)

        return self._send(topic, group, len(body) + RECORD_AROUND, options, send, block=block)

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
        """Send messages to one queue of one group, stored together or not at all.

        See ``send``, and ``Producer.send_batch``.
        """
        alone = self._alone(group)
        if alone is not None:
            return alone.send_batch(topic, messages, callback=callback, block=block, **options)

        def send(used: _Used, is_watched: bool, block: bool) -> SendFuture[BatchResult]:
            told = callback
            if is_watched:
                told = partial(used.settle, callback)
            return used.producer.send_batch(topic, messages, callback=told, block=block, **options)

        return self._send(topic, group, batch_size(messages), options, send, block=block)

    def flush(self, timeout: float | None = None) -> None:
        """Return when every message sent so far has its outcome; see ``Producer.flush``.

        Raises:
            TimedOutError: some have none after ``timeout`` seconds; they stay under way.
        """
        until = time.monotonic() + timeout if timeout is not None else NEVER
        for producer in self._producers():
            left = until - time.monotonic()
            producer.flush(None if timeout is None else max(0.0, left))

    def close(self, timeout: float | None = None) -> None:
        """Flush, say goodbye to all nodes, close; what has no outcome after ``timeout`` fails."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        self._watch.close()
        until = time.monotonic() + timeout if timeout is not None else NEVER
        for producer in self._producers():
            left = until - time.monotonic()
            producer.close(None if timeout is None else max(0.0, left))

    def _producers(self) -> list[Producer]:
        with self._lock:
            return [*(used.producer for used in self._used.values()), *self._retired]

    def _alone(self, group: str) -> Producer | None:
        """The producer of the only group that there is."""
        name = self._watch.alone
        return self._used_of(name).producer if name and group in ("", name) else None

    def _send(
        self,
        topic: str,
        group: str,
        size: int,
        options: RequestOptions,
        send: Callable[[_Used, bool, bool], SendFuture[Result]],
        *,
        block: bool,
    ) -> SendFuture[Result]:
        """Choose a group, and send; a key's queue in it is put into ``options``."""
        if self._is_closed:
            raise LedgerError("producer is closed")
        used = self._bound(topic, group, options, block=block)
        if used is not None:
            return self._watched(used, send, block=block)
        until = time.monotonic() + (self.options.timeout_s if block else 0.0)
        while True:
            used = self._next(topic, size, until)
            try:
                # With ``block`` it would wait for this group alone.
                return self._watched(used, send, block=False)
            except (BusyError, NotLeaderError):
                # Other threads have filled its window, or its leader is gone: nothing was sent.
                if used.producer.failure is not None or time.monotonic() >= until:
                    raise

    def _watched(
        self, used: _Used, send: Callable[[_Used, bool, bool], SendFuture[Result]], *, block: bool
    ) -> SendFuture[Result]:
        """Send, and time it where it is the group's turn to be timed."""
        with self._lock:
            is_watched = used.time.begins(time.monotonic())
        if not is_watched:
            return send(used, False, block)
        try:
            return send(used, True, block)
        except BaseException:
            used.time.ends(time.monotonic(), is_stored=False)
            raise

    def _bound(
        self, topic: str, group: str, options: RequestOptions, *, block: bool
    ) -> _Used | None:
        """The group that a message must go to; None: it may go to any."""
        if group:
            return self._used_of(group)
        key, queue_id = options.get("queue_key"), options.get("queue_id")
        if key is None and queue_id is None:
            return None
        until = time.monotonic() + (self.options.timeout_s if block else 0.0)
        said = self._groups_of(topic, until, needs_all=True)
        if queue_id is None:
            assert key is not None
            queue = said.queue_of(key)
            options["queue_key"] = None
            options["queue_id"] = queue.queue_id
            return self._knowing(topic, queue.group, said)
        if len(said.queues) > 1:
            raise ConfigError(
                "queue_id is of one group: name it", topic=topic, groups=[*said.queues]
            )
        return self._knowing(topic, next(iter(said.queues)), said)

    def _groups_of(self, topic: str, until: float, *, needs_all: bool) -> TopicGroups:
        """Groups that have the topic, one at least; where none has it, it is made if it may be."""
        said = self._watch.topic_groups(topic)
        if not said.queues:
            said = self._watch.wait_for(
                topic, lambda told: bool(told.queues) or not told.unheard, until
            )
        if not said.queues:
            said = self._made(topic, said)
        if needs_all and said.unheard:
            said = self._watch.wait_for(topic, lambda told: not told.unheard, until)
            if said.unheard:
                raise NotLeaderError(
                    "queues are not known: groups have not said whether they have the topic",
                    topic=topic,
                    groups=[*said.unheard],
                )
        return said

    def _made(self, topic: str, said: TopicGroups) -> TopicGroups:
        if not self.groups():
            raise self._watch.unreachable()
        if said.unheard:
            raise NotLeaderError(
                "groups have not said whether they have the topic",
                topic=topic,
                groups=[*said.unheard],
            )
        # As a producer of one group makes it; what refuses it says why.
        name = self._watch.first.name
        queues = self._used_of(name).producer.write_queues(topic)
        self._watch.look_again(topic)
        return TopicGroups({name: queues}, ())

    def _next(self, topic: str, size: int, until: float) -> _Used:
        """The group whose turn it is, among those that can send at once; waits for one.

        At ``until`` it is one that says why it cannot.
        """
        now = time.monotonic()
        with self._lock:
            used, chosen_until = self._chosen.get(topic, (None, 0.0))
        if used is not None and now < chosen_until and used.producer.is_ready(size):
            return used
        while True:
            said = self._groups_of(topic, until, needs_all=False)
            if not self._answering(said):
                said = self._watch.wait_for(topic, lambda told: bool(self._answering(told)), until)
            found = [self._knowing(topic, name, said) for name in self._answering(said)]
            if not found:
                raise NotLeaderError(
                    "no group that has the topic answers", topic=topic, groups=[*said.queues]
                )
            ready = [used for used in found if used.producer.is_ready(size)]
            # A group that no session can ever stand with is not waited for, unless all are so.
            choice = ready or [used for used in found if used.producer.failure is None] or found
            now = time.monotonic()
            with self._lock:
                used = choice[next_turn([one.time for one in choice], now)]
                if ready:
                    self._chosen[topic] = used, now + TURN_S
            if ready or now >= until or used.producer.failure is not None:
                return used
            # The others are looked at again after a moment.
            used.producer.wait_until_ready(size, min(until, now + ROOM_S))

    def _answering(self, said: TopicGroups) -> list[str]:
        return [
            name
            for name in said.queues
            if (group := self._watch.group(name)) is not None and group.answers
        ]

    def _knowing(self, topic: str, name: str, said: TopicGroups) -> _Used:
        """A group, whose producer need not ask how many queues the topic has."""
        used = self._used_of(name)
        used.producer.know_queues(topic, said.queues[name])
        return used

    def _used_of(self, name: str) -> _Used:
        used = self._used.get(name)
        # What is under way at other addresses comes to its end there first: it is before what comes
        # now.
        if used is not None and not (used.group.is_replaced and used.producer.is_idle):
            return used
        group = self._watch.group(name)
        if group is None:
            if used is not None:
                return used
            raise ConfigError("no such group is known", group=name, known=self.groups())
        producer = Producer(
            group.address,
            name=self._name,
            options=self.options,
            tracing=self._tracing,
            awaits_node=False,
        )
        with self._lock:
            is_late = self._used.get(name) is not used or self._is_closed
            if not is_late:
                if used is not None:
                    self._retired.append(used.producer)
                used = self._used[name] = _Used(group, producer)
            else:
                # Another thread was faster, or all is closed.
                used = self._used.get(name)
        if is_late:
            producer.close(0.0)
        if used is None:
            raise LedgerError("producer is closed")
        return used
