"""``ClusterConsumer``: reads a topic in all groups of a cluster that have it."""

from __future__ import annotations

import select
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ledgermq.client.blocking.consumer import ITERATION_POLL_S, Consumer
from ledgermq.client.blocking.send_driver import PollerBell
from ledgermq.client.closing import Closing
from ledgermq.client.clusters.group_watch import AGAIN_S, GroupWatch, WatchedGroup
from ledgermq.client.core.link import NEVER
from ledgermq.client.core.read_traces import ReadTraces
from ledgermq.client.core.received import MessageBatch, ReceivedMessage, no_messages
from ledgermq.client.reading.pull_pipeline import ConsumerOptions
from ledgermq.client.reading.start_offsets import Start, check_start
from ledgermq.model.errors import ConfigError, LedgerError, NotLeaderError, TopicUnknownError
from ledgermq.model.message_filter import ALL_TAGS, MessageFilter

LOOK_AGAIN_S = 0.5
"""So often it is looked whether a group more has the topic, while nobody has a message."""


class ClusterBatch(NamedTuple):
    """Messages of one queue of one group; no ``group``: there are none."""

    group: str
    messages: MessageBatch


class _Reader:
    """The consumer of one group, which a thread of its own begins: that takes some questions."""

    def __init__(self, name: str, consumer: Consumer, bell: PollerBell) -> None:
        self.name = name
        self.consumer = consumer
        self.error: LedgerError | None = None
        self._has_begun = threading.Event()
        self._bell = bell
        self._thread = threading.Thread(target=self._begin, name=f"begin-{name}", daemon=True)
        self._thread.start()

    @property
    def has_begun(self) -> bool:
        """Whether it reads, or has failed to begin; until then its thread alone may use it."""
        return self._has_begun.is_set()

    def _begin(self) -> None:
        try:
            self.consumer.offsets()
        except LedgerError as error:
            self.error = error
        self._has_begun.set()
        self._bell.ring()

    def close(self) -> None:
        """Close the consumer, when it has begun or failed."""
        self._thread.join()
        self.consumer.close()


class ClusterConsumer(Closing):
    """Reads one topic in each group of a cluster that has it, all queues.

    Each group is read by a ``Consumer`` of its own, whose answers come while others are worked on:
    a group that is dead or slow keeps nobody waiting. Groups that have messages take turns. Order
    is that of each queue. Messages are given at least once: what was read is noted, in its group,
    by ``commit`` alone. One thread at a time may use a consumer.
    """

    def __init__(
        self,
        addresses: str | Sequence[str],
        *,
        topic: str,
        group: str | None = None,
        start: Start = "stored",
        tags: str = ALL_TAGS,
        filter: MessageFilter | None = None,
        name: str = "consumer",
        options: ConsumerOptions | None = None,
        retries: bool | None = None,
        tracing: ReadTraces | None = None,
        keys: Mapping[str, str] | None = None,
    ) -> None:
        """A consumer, which finds the groups in the background.

        Args:
            addresses: as a ``ClusterProducer`` takes them.
            group: the consumer group whose offsets are noted in each of the groups.
            start: as a ``Consumer`` takes it, but for offsets: those are one group's.
            keys: file of keys for a group, by its name; see ``ClusterProducer``.

        Raises:
            ConfigError: an argument cannot be used.
            FilterIllegalError: there is no tag in ``tags``.
        """
        seeds = [addresses] if isinstance(addresses, str) else list(addresses)
        if not seeds:
            raise ConfigError("no address of a node")
        if isinstance(check_start(start), Mapping):
            raise ConfigError("offsets to start at are one group's: use its Consumer")
        self.topic = topic
        self.group = group
        self.options = options or ConsumerOptions()

        def consumer(address: str) -> Consumer:
            return Consumer(
                address,
                topic=topic,
                group=group,
                start=start,
                tags=tags,
                filter=filter,
                name=name,
                options=options,
                retries=retries,
                tracing=tracing,
            )

        # What no consumer would take is refused here.
        consumer(seeds[0]).close()
        self._consumer = consumer
        self._bell = PollerBell()
        self._readers: dict[str, _Reader] = {}
        self._turns: list[str] = []
        self._again_at: dict[str, float] = {}
        self._is_closed = False
        self._watch = GroupWatch(seeds, client=name, keys=keys, reads=True)

    def groups(self) -> list[str]:
        """Names of the groups that are read now."""
        return sorted(name for name, one in self._readers.items() if one.has_begun)

    def poll(self, timeout: float | None = 1.0) -> ClusterBatch:
        """The next messages of one queue of one group; none when there are none in ``timeout``.

        They count as read: ``commit`` afterwards notes them.

        Args:
            timeout: seconds; without end when ``None``.

        Raises:
            LedgerError: a group refused, and will again. That it does not answer is waited out.
        """
        until = NEVER if timeout is None else time.monotonic() + timeout
        while True:
            if self._is_closed:
                raise ConfigError("consumer is closed", topic=self.topic)
            self._find()
            for name in [*self._turns]:
                batch = self._batch_of(self._readers[name])
                if batch is not None:
                    # Behind the others that have some.
                    self._turns.remove(name)
                    self._turns.append(name)
                    return ClusterBatch(name, batch)
            now = time.monotonic()
            if now >= until:
                return ClusterBatch("", no_messages(self.topic))
            self._sleep(min(until, now + LOOK_AGAIN_S))

    def __iter__(self) -> Iterator[ReceivedMessage]:
        """All messages, also those to come, until the consumer is closed.

        The messages of an answer count as read when the first of them is given.
        """
        while not self._is_closed:
            yield from self.poll(ITERATION_POLL_S).messages

    def commit(self) -> None:
        """Note in each group what of it was given so far.

        Raises:
            ConfigError: the consumer has no group.
            LedgerError: of the first group that could not note it; all others have.
        """
        failure: LedgerError | None = None
        for name in self._turns:
            reader = self._readers[name]
            if not reader.has_begun:
                continue
            group = self._watch.group(name)
            try:
                if group is not None and not group.answers:
                    raise NotLeaderError("group does not answer", broker_group=name)
                reader.consumer.commit()
            except LedgerError as error:
                failure = failure or error
        if failure is not None:
            raise failure

    def close(self) -> None:
        """Say goodbye to all nodes and close; nothing is committed."""
        if self._is_closed:
            return
        self._is_closed = True
        self._watch.close()
        for reader in self._readers.values():
            reader.close()

    def _find(self) -> None:
        """Begin to read the groups that have the topic, and answer."""
        now = time.monotonic()
        for name in self._watch.topic_groups(self.topic).queues:
            group = self._watch.group(name)
            if name in self._readers or group is None or not group.answers:
                continue
            if self._again_at.get(name, 0.0) <= now:
                self._begin(group)

    def _begin(self, group: WatchedGroup) -> None:
        reader = _Reader(group.name, self._consumer(group.address), self._bell)
        self._readers[group.name] = reader
        self._turns.append(group.name)

    def _batch_of(self, reader: _Reader) -> MessageBatch | None:
        if not reader.has_begun:
            return None
        error = reader.error
        if error is None:
            try:
                batch = reader.consumer.poll(0)
            except LedgerError as failed:
                if not failed.retriable:
                    raise
                return None
            return batch if len(batch) else None
        del self._readers[reader.name]
        self._turns.remove(reader.name)
        self._again_at[reader.name] = time.monotonic() + AGAIN_S
        reader.close()
        # A topic may be gone again since the group has told of it.
        if not (error.retriable or isinstance(error, TopicUnknownError)):
            raise error
        return None

    def _sleep(self, until: float) -> None:
        poll = select.poll()
        poll.register(self._bell.descriptor, select.POLLIN)
        for reader in self._readers.values():
            if reader.has_begun:
                until = min(until, reader.consumer.deadline)
                for descriptor in reader.consumer.descriptors:
                    poll.register(descriptor, select.POLLIN)
        poll.poll(max(0.0, until - time.monotonic()) * 1_000)
        self._bell.clear()
