"""Shared part of a topic's consumers, blocking and asyncio."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager

import zmq

from ledgermq.client.core.address import DEFAULT_ADDRESS, parse_addresses
from ledgermq.client.core.asked import asked
from ledgermq.client.core.connection import Context
from ledgermq.client.core.nodes import broker_link
from ledgermq.client.core.questions import group_commit, group_offset
from ledgermq.client.core.read_traces import Reader, ReadTraces, processing, settling
from ledgermq.client.core.received import ReceivedMessage
from ledgermq.client.core.requests import Request, RequestPipeline, Steps
from ledgermq.client.core.wrong_calls import check_of_groups, check_one_of, check_whole, warn_of
from ledgermq.client.first_contact import FirstContact, link_group, nodes_of
from ledgermq.client.reading.pull_pipeline import (
    ConsumerOptions,
    PullPipeline,
    checked_filter,
    pull_request,
)
from ledgermq.client.reading.retries import Marks, Reading, RetryPulls, marked, reads_retries
from ledgermq.client.reading.start_offsets import (
    Start,
    check_start,
    checked_group,
    checked_queues,
    checked_topic,
    ending_offsets,
    starting_offsets,
)
from ledgermq.model.errors import ConfigError
from ledgermq.model.limits import QUEUE_ID_MAX, QUEUE_OFFSET_MAX
from ledgermq.model.message_filter import ALL_TAGS, MessageFilter
from ledgermq.wire.pull_frame import HOLD_MS_MAX, MESSAGES_MAX, Pull


class TopicReader(FirstContact):
    """What a consumer is told when it is made, and what it asks beside its pulls."""

    ASKS_NOBODY = frozenset({"processing", "run"})

    def __init__(
        self,
        address: str | Sequence[str] = DEFAULT_ADDRESS,
        *,
        topic: str,
        group: str | None = None,
        queues: Iterable[int] | None = None,
        start: Start = "stored",
        tag: str = ALL_TAGS,
        filter: MessageFilter | None = None,
        name: str = "consumer",
        options: ConsumerOptions | None = None,
        retries: bool | None = None,
        tracing: ReadTraces | None = None,
        keys: Mapping[str, str] | None = None,
        one_group: bool = False,
        tags: str | None = None,
    ) -> None:
        """A consumer, which connects when it is first used.

        Args:
            address: ``ipc://`` and the node's runtime directory, or ``tcp://HOST:PORT``; of several
                nodes of a group, in a list or divided by commas, the leader is read. Of a cluster
                as a ``Producer`` takes it.
            group: whose offsets ``start="stored"`` reads and ``commit`` writes.
            queues: which queues to read, of one group; all, also later ones, when left out.
            start: where to begin with each queue: ``stored``, ``first``, ``last``, a time in epoch
                ms, or queue offsets by queue id, which are of one group.
            tag: ``*``, or tags divided by ``||``.
            filter: which messages are wanted, in place of ``tag``; also by SQL-92 expression.
            name: of this client, as the node's operator sees it.
            retries: whether to read what the group was given back, too (``retry_later``); when left
                out, a consumer with a group that reads all queues does. These messages come in
                batches of their own, whose topic is the group's retry topic; each has the topic
                that it was sent to. All members of a group had better read the same topics.
            tracing: a ``Tracing``, which is told of what is received, processed and settled.
            keys: file of keys for a group of a cluster, by its name; see ``Producer``.
            one_group: read the group of the addresses alone, also where it is one of a cluster.

            tags: the old name of ``tag``, for one release more.

        Raises:
            ConfigError: an argument cannot be used.
            FilterIllegalError: there is no tag in ``tag``.
        """
        if tags is not None:
            warn_of("tags", "tag", stacklevel=3)
            check_one_of(ConfigError, tag=None if tag == ALL_TAGS else tag, tags=tags)
            tag = tags
        check_of_groups(one_group=one_group, keys=keys)
        self.topic = checked_topic(topic)
        if group:
            checked_group(group)
        self.group = group
        self.options = options or ConsumerOptions()
        self._addresses, self._keys, self._name, self._retries = address, keys, name, retries
        context: Context = zmq.Context.instance()
        places = parse_addresses(nodes_of(address))
        self._link = broker_link(context, places, client=name, group=group or "")
        self._filter = checked_filter(tag, filter)
        self._reads_retries = reads_retries(group, queues, retries)
        self._queues = checked_queues(queues)
        self._start = check_start(start)
        self._tracing = tracing
        self._reader = Reader(group or "", name)
        self._begin_contact(one_group=one_group)

    def groups(self) -> list[str]:
        """Names of the groups of nodes that are read now."""
        return link_group(self._link)

    @asked
    def committed(self) -> Steps[dict[int, int]]:
        """The group's offsets in the broker, by queue id; queues never committed are left out.

        Raises:
            ConfigError: the consumer has no group.
        """
        return group_offset(checked_group(self.group), self.topic)

    @asked
    def commit(self, offsets: Marks = None) -> Steps[None]:
        """Note in the broker what the group has read.

        Args:
            offsets: by queue id, of the consumer's topic, where it reads one group of nodes; or a
                batch or a message, which is noted with all before it in its queue; when left out
                all that was given so far, of what was given back, too.

        Raises:
            ConfigError: the consumer has no group.
            LedgerError: in a cluster, of the first group of nodes that could not note it
                (``broker_group`` in its details); all others have.
        """
        return self.commit_steps(offsets)

    def commit_steps(self, offsets: Marks = None) -> Steps[None]:
        """The questions of ``commit``."""
        group = checked_group(self.group)
        for topic, noted in marked(offsets, self.topic, self._begun).items():
            with settling(self._tracing, "commit", topic, self._reader):
                yield from group_commit(group, topic, noted)

    def processing(self, message: ReceivedMessage) -> AbstractContextManager[None]:
        """The work on a message, as a ``with`` block; without ``tracing`` it does nothing.

        Its span is the current one within the block, and goes on with the trace of who sent the
        message. An error that leaves the block is noted, and raised.
        """
        return processing(self._tracing, message, self._reader)

    @asked
    def ends(self) -> Steps[dict[int, int]]:
        """Queue offset behind the last message of each queue, now."""
        return ending_offsets(self.topic, self.offsets())

    def seek(self, queue_id: int, offset: int) -> None:
        """Let ``poll`` go on at ``offset`` of a queue.

        Raises:
            TopicUnknownError: the queue is none of this consumer's.
            ConfigError: the offset is negative.
        """
        self._begun().own.seek(queue_id, offset)

    def offsets(self) -> dict[int, int]:
        """Queue offset of the next message to be given, by queue id."""
        return self._begun().own.positions()

    @abstractmethod
    def _begun(self) -> Reading: ...

    def _reading_of(self, requests: RequestPipeline) -> Reading:
        own = PullPipeline(requests, self.topic, self._filter, self.options)
        if not self._reads_retries:
            return Reading(own, None)
        return Reading(own, RetryPulls(requests, checked_group(self.group), self.options))

    def _starting_offsets(self) -> Steps[dict[int, int]]:
        return starting_offsets(self.topic, self.group, self._queues, self._start)

    def _begin_reading(self, reading: Reading, offsets: dict[int, int]) -> None:
        reading.own.begin(offsets, follows_route=self._queues is None, now=time.monotonic())

    def _pull_request(
        self, queue_id: int, offset: int, messages_max: int | None, hold_ms: int
    ) -> Request:
        options = self.options
        if messages_max is None:
            messages_max = options.messages_max
        check_whole("queue_id", queue_id, 0, QUEUE_ID_MAX)
        check_whole("offset", offset, 0, QUEUE_OFFSET_MAX)
        check_whole("messages_max", messages_max, 1, MESSAGES_MAX)
        check_whole("hold_ms", hold_ms, 0, HOLD_MS_MAX)
        pull = Pull(0, self.topic, queue_id, offset, messages_max, options.bytes_max, hold_ms)
        until = time.monotonic() + hold_ms / 1_000 + options.timeout_s
        return pull_request(pull, self._link, deadline=until)
