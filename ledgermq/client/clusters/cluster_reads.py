"""Reading of a topic in all groups of a cluster that have it: all but how who reads waits."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import NamedTuple

from ledgermq.client.blocking.consumer import Consumer
from ledgermq.client.clusters.group_watch import ASKED_AGAIN_S, LOOK_S, GroupWatch, WatchedGroup
from ledgermq.client.core.asked import asked
from ledgermq.client.core.known_groups import KnownGroups
from ledgermq.client.core.link import NEVER
from ledgermq.client.core.received import MessageBatch, ReceivedMessage, no_messages
from ledgermq.client.core.requests import Result
from ledgermq.client.core.wrong_calls import check_timeout
from ledgermq.client.errand import Errand, raise_first
from ledgermq.client.groups.rebalance_listener import GroupNotice, RebalanceListener
from ledgermq.client.reading.retries import GivenBack, Marks
from ledgermq.client.reading.start_offsets import Start, checked_group
from ledgermq.client.reading.topic_reader import TopicReader
from ledgermq.hosts.wake_bell import WakeBell, new_bell
from ledgermq.model.errors import (
    ClosedError,
    ConfigError,
    LedgerError,
    NotLeaderError,
    TopicUnknownError,
)


class _Reader:
    """The consumer of one group.

    Attributes:
        again_at: it is left alone until then: what its group refuses is no matter of the others.
        has_given: whether it has given something that is not noted.
    """

    def __init__(self, group: WatchedGroup, consumer: Consumer) -> None:
        self.group = group
        self.name = group.name
        self.consumer = consumer
        self.again_at = 0.0
        self.has_begun = False
        self.has_given = False


class Nap(NamedTuple):
    """Until one of ``descriptors`` can be read, or it is ``until``, by ``time.monotonic``."""

    descriptors: tuple[int, ...]
    until: float


Turns = Generator[Nap | GroupNotice, None, Result]
"""What is done between waits, whoever waits, and how, and between what the application is told."""


class Polled(ABC):
    """What both forms of consumer in a cluster are, whatever they read."""

    _bell: WakeBell
    _is_closed: bool
    _listener: RebalanceListener = RebalanceListener()

    @abstractmethod
    def messages_of(self, batch: MessageBatch) -> Iterator[ReceivedMessage]:
        """The messages of what ``poll`` gave, which count as read as they are given."""

    @abstractmethod
    def _poll_steps(self, timeout: float | None) -> Turns[MessageBatch]: ...

    @abstractmethod
    def _close_steps(self) -> Turns[None]: ...

    @abstractmethod
    def _end(self) -> None:
        """End the threads, and say goodbye to all nodes."""


class ClusterReads:
    """What a ``Consumer`` and an ``AsyncConsumer`` are in a cluster: a consumer of each group."""

    def __init__(self, ordinary: TopicReader, told: KnownGroups) -> None:
        """A consumer in the place of ``ordinary``, which finds the groups in the background.

        Raises:
            ConfigError: queues or offsets to start at were given, which are one group's.
        """
        if ordinary._queues is not None:
            raise ConfigError("queues are of one group: read it alone (one_group)")
        if isinstance(ordinary._start, Mapping):
            raise ConfigError("offsets to start at are one group's: use its Consumer")
        self.topic = ordinary.topic
        self.group = ordinary.group
        self._ordinary = ordinary
        self._bell = new_bell()
        self._readers: dict[str, _Reader] = {}
        self._turns: list[str] = []
        self._again_at: dict[str, float] = {}
        self._is_closed = False
        self._watch = GroupWatch(
            ordinary._seeds(told),
            client=ordinary._name,
            keys=ordinary._keys,
            reads=True,
            on_news=self._bell.ring,
        )

    def groups(self) -> list[str]:
        """Names of the groups that are read now."""
        return sorted(name for name, one in self._readers.items() if one.has_begun)

    def of(self, group: str) -> Consumer:
        """The consumer of one group; see ``Consumer.of``."""
        return self._reader_of(group).consumer

    def consumers(self) -> list[Consumer]:
        """The consumers of all groups that are read now."""
        return [one.consumer for one in self._readers.values() if one.has_begun]

    def _poll_steps(self, timeout: float | None) -> Turns[MessageBatch]:
        check_timeout(timeout)
        until = NEVER if timeout is None else time.monotonic() + timeout
        while True:
            if self._is_closed:
                raise ClosedError("consumer is closed", topic=self.topic)
            self._find()
            for name in [*self._turns]:
                batch = self._batch_of(self._readers[name])
                if batch is not None:
                    self._end_turn(name)
                    batch.broker_group = name
                    return batch
            now = time.monotonic()
            if now >= until:
                return no_messages(self.topic)
            yield self._nap([*self._readers.values()], min(until, now + LOOK_S / 2))

    @asked
    def commit(self, offsets: Marks = None) -> Turns[None]:
        """Note in each group what of it was given so far; see ``Consumer.commit``."""
        checked_group(self.group)
        if isinstance(offsets, Mapping):
            raise ConfigError("offsets are one group's: use its consumer, of(NAME)")
        if offsets is not None:
            consumer = self._reader_of(offsets.broker_group).consumer
            noting = consumer.errand(consumer.commit_steps(offsets))
            yield from self._run_errands({offsets.broker_group: noting})
            return noting.result()
        failures: list[LedgerError] = []
        errands: dict[str, Errand[None]] = {}
        for name, reader in self._readers.items():
            if not reader.has_given:
                continue
            if not reader.has_begun:
                failures.append(NotLeaderError("group begins anew", broker_group=name))
                continue
            group = self._watch.group(name)
            if group is not None and not group.answers:
                failures.append(NotLeaderError("group does not answer", broker_group=name))
                continue
            errands[name] = reader.consumer.errand(reader.consumer.commit_steps())
        yield from self._run_errands(errands)
        for name, errand in errands.items():
            self._readers[name].has_given = errand.error is not None
        raise_first(failures, errands)

    @asked
    def retry_later(
        self,
        message: ReceivedMessage,
        *more: ReceivedMessage,
        delay_level: int = 0,
        times_max: int | None = None,
    ) -> Turns[list[GivenBack]]:
        """Give messages of one group back to it; see ``Consumer.retry_later``."""
        messages = (message, *more)
        group = only_group_of(messages)
        consumer = self._reader_of(group).consumer
        steps = consumer.retry_steps(messages, delay_level=delay_level, times_max=times_max)
        errand = consumer.errand(steps)
        yield from self._run_errands({group: errand})
        return errand.result()

    def _run_errands(self, errands: Mapping[str, Errand[Result]]) -> Turns[None]:
        """Return when all are done, each at the group of its name."""
        asked = [self._readers[name] for name in errands]
        while True:
            for reader in asked:
                reader.consumer.advance()
            if all(errand.is_done for errand in errands.values()):
                return
            yield self._nap(asked, NEVER)

    def _reader_of(self, group: str) -> _Reader:
        reader = self._readers.get(group)
        if reader is None or not reader.has_begun:
            raise ConfigError("no such group is read now", group=group, read=self.groups())
        return reader

    def messages_of(self, batch: MessageBatch) -> Iterator[ReceivedMessage]:
        """The messages of an answer, which count as read when the first of them is given."""
        return iter(batch)

    def _close_steps(self) -> Turns[None]:
        """Nothing is committed, and nobody told."""
        yield from ()

    def _end(self) -> None:
        """Say goodbye to all nodes."""
        self._watch.close()
        for reader in self._readers.values():
            reader.consumer.close()

    def _find(self) -> None:
        """Begin to read the groups that have the topic, and answer."""
        now = time.monotonic()
        for name in self._watch.topic_groups(self.topic).queues:
            group = self._watch.group(name)
            reader = self._readers.get(name)
            if group is None or not group.answers:
                continue
            if reader is not None:
                if reader.group.is_replaced:
                    self._follow(reader, group)
            elif self._again_at.get(name, 0.0) <= now:
                consumer = self._consumer(group.address, self._ordinary._start)
                self._readers[name] = _Reader(group, consumer)
                self._turns.append(name)

    def _consumer(self, address: str, start: Start) -> Consumer:
        like = self._ordinary
        return Consumer(
            address,
            topic=like.topic,
            group=like.group,
            start=start,
            filter=like._filter,
            name=like._name,
            options=like.options,
            retries=like._retries,
            tracing=like._tracing,
            one_group=True,
        )

    def _follow(self, reader: _Reader, group: WatchedGroup) -> None:
        """Go on with a group at other nodes where it was."""
        old, reader.group = reader.consumer, group
        start = old.offsets() if reader.has_begun else self._ordinary._start
        reader.consumer = self._consumer(group.address, start)
        reader.has_begun = False
        old.close()

    def _end_turn(self, name: str) -> None:
        """Have all others their turn before it."""
        self._turns.remove(name)
        self._turns.append(name)

    def _batch_of(self, reader: _Reader) -> MessageBatch | None:
        now = time.monotonic()
        if now < reader.again_at:
            return None
        try:
            reader.has_begun = reader.consumer.has_begun()
            batch = reader.consumer.poll(0) if reader.has_begun else None
        except TopicUnknownError:
            # It is gone again since the group has told of it: it is read when there is one again.
            self._forget(reader)
            return None
        except LedgerError as error:
            if error.retriable:
                return None
            reader.again_at = now + ASKED_AGAIN_S
            error.details["broker_group"] = reader.name
            raise
        if batch is None or not len(batch):
            return None
        reader.has_given = True
        return batch

    def _forget(self, reader: _Reader) -> None:
        del self._readers[reader.name]
        self._turns.remove(reader.name)
        self._again_at[reader.name] = time.monotonic() + ASKED_AGAIN_S
        reader.consumer.close()
        self._watch.look_again(self.topic)

    def _nap(self, readers: Sequence[_Reader], until: float) -> Nap:
        descriptors = [self._bell.descriptor]
        for reader in readers:
            if reader.again_at > time.monotonic():
                until = min(until, reader.again_at)
                continue
            until = min(until, reader.consumer.deadline)
            descriptors += reader.consumer.descriptors
        return Nap(tuple(descriptors), until)


def only_group_of(messages: Sequence[ReceivedMessage]) -> str:
    """The group of nodes that messages were read in.

    Raises:
        ConfigError: they were read in several.
    """
    groups = sorted({message.broker_group for message in messages})
    if len(groups) != 1:
        raise ConfigError("messages are of several groups: give back those of one", groups=groups)
    return groups[0]
