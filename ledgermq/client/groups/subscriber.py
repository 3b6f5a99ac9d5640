"""Shared part of group members, blocking and asyncio."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager

import zmq

from ledgermq.client.core.address import DEFAULT_ADDRESS, parse_addresses
from ledgermq.client.core.asked import asked
from ledgermq.client.core.connection import Context
from ledgermq.client.core.nodes import AnyLink, broker_link
from ledgermq.client.core.read_traces import Reader, ReadTraces, processing, settling
from ledgermq.client.core.received import ReceivedMessage
from ledgermq.client.core.requests import RequestPipeline, Steps
from ledgermq.client.core.wrong_calls import check_of_groups, check_one_of, warn_of
from ledgermq.client.first_contact import FirstContact, link_group, nodes_of
from ledgermq.client.groups.allocation import TopicQueue
from ledgermq.client.groups.group_member import GroupMember, GroupOptions, Subscriptions, client_id
from ledgermq.client.groups.group_reader import MemberMarks, offsets_of
from ledgermq.client.groups.rebalance_listener import RebalanceListener, checked_listener
from ledgermq.client.reading.pull_pipeline import ConsumerOptions, OffsetReset, checked_filter
from ledgermq.client.reading.start_offsets import checked_group
from ledgermq.model.errors import ConfigError
from ledgermq.model.message_filter import ALL_TAGS, MessageFilter


class Subscriber(FirstContact):
    """What a member is told when it is made, and what it has of the queues."""

    ASKS_NOBODY = frozenset({"processing", "run", "subscribe"})

    def __init__(
        self,
        address: str | Sequence[str] = DEFAULT_ADDRESS,
        *,
        group: str,
        name: str | None = None,
        listener: RebalanceListener | None = None,
        group_options: GroupOptions | None = None,
        options: ConsumerOptions | None = None,
        tracing: ReadTraces | None = None,
        keys: Mapping[str, str] | None = None,
        one_group: bool = False,
    ) -> None:
        """A member that joins with its first ``poll``; ``subscribe`` before.

        Args:
            address: as a ``Consumer`` takes it.
            group: whose queues it shares; in a cluster in each group of nodes.
            name: unique in the group; one that is started anew under its name goes on with its
                queues at once. Made up when left out. In a cluster ``@cluster`` is put behind it.
            listener: is told when queues come and go.
            tracing: a ``Tracing``, which is told of what is received, processed and settled.
            keys: file of keys for a group of a cluster, by its name; see ``Producer``.
            one_group: be a member in the group of the addresses alone, also where it is one of a
                cluster.

        Raises:
            ConfigError: an argument cannot be used.
        """
        check_of_groups(one_group=one_group, keys=keys)
        self.group = checked_group(group)
        self.group_options = group_options or GroupOptions()
        self.options = options or ConsumerOptions()
        self._addresses, self._keys = address, keys
        self._places = parse_addresses(nodes_of(address))
        self.name = client_id(name, self.group_options.model, self._places)
        self._link = self._new_link(self.name)
        self._tracing = tracing
        self._reader = Reader(self.group, self.name)
        self._listener = checked_listener(listener)
        self._subscriptions = Subscriptions()
        self._member: GroupMember | None = None
        self._begin_contact(one_group=one_group)

    def subscribe(
        self,
        topics: str | Sequence[str],
        tag: str | MessageFilter = ALL_TAGS,
        *,
        filter: MessageFilter | None = None,
        expression: str | MessageFilter | None = None,
    ) -> None:
        """Read ``topics``, too; in a cluster in each group of nodes that has one of them.

        Args:
            tag: ``*``, or tags divided by ``||``. All members should want the same.
            filter: which messages are wanted, in place of ``tag``; also by SQL-92 expression.
            expression: the old name of both, for one release more.

        Raises:
            ConfigError: the consumer has begun already, or there are both a tag and a filter.
            FilterIllegalError: there is no tag in ``tag``.
        """
        if expression is not None:
            warn_of("expression", "tag, or filter", stacklevel=3)
            given = None if tag == ALL_TAGS else tag
            check_one_of(ConfigError, tag=given, filter=filter, expression=expression)
            tag = expression
        if isinstance(tag, MessageFilter):
            # In the place of a tag: an old way, too.
            check_one_of(ConfigError, tag=tag, filter=filter)
            wanted = tag
        else:
            wanted = checked_filter(tag, filter)
        self._subscriptions.add(topics, wanted)

    def groups(self) -> list[str]:
        """Names of the groups of nodes in which it is a member now."""
        return link_group(self._link)

    @property
    def assignment(self) -> frozenset[TopicQueue]:
        """The queues that it reads now."""
        if self._several is not None:
            return frozenset(self._several.assignment)
        return frozenset() if self._member is None else self._member.reader.queues

    @property
    def paused(self) -> frozenset[TopicQueue]:
        """Queues that are paused."""
        if self._several is not None:
            return frozenset(self._several.paused)
        return frozenset() if self._member is None else frozenset(self._member.reader.paused)

    @property
    def resets(self) -> list[tuple[str, OffsetReset]]:
        """Queues that did not hold what came next, with their topics: messages were skipped."""
        if self._several is not None:
            return [(topic, reset) for _, topic, reset in self._several.resets]
        return [] if self._member is None else self._member.reader.resets

    @property
    def warnings(self) -> tuple[str, ...]:
        """Members of the group that do not want the same, as the broker says."""
        if self._several is not None:
            told = self._several.warnings
            return tuple(f"{name}: {warning}" for name in told for warning in told[name])
        news = None if self._member is None else self._member.heartbeats.news
        return () if news is None else news.warnings

    @asked
    def commit(self, offsets: MemberMarks = None) -> Steps[None]:
        """Note what the group has read.

        Durable in the group's log on return; of a broadcasting consumer in its own file.

        Args:
            offsets: by queue; or a batch or a message, which is noted with all before it in its
                queue; when left out all that was given so far, of what was given back, too.

        Raises:
            ConfigError: an offset is of a group of nodes in which it is no member now.
            MessageIllegalError: an offset is below the committed one, or outside of its queue; or
                the queue is another member's by now.
            LedgerError: in a cluster, of the first group of nodes that could not note it
                (``broker_group`` in its details); all others have.
        """
        with settling(self._tracing, "commit", "", self._reader):
            yield from self._begun().commit(offsets_of(offsets))

    def processing(self, message: ReceivedMessage) -> AbstractContextManager[None]:
        """The work on a message, as a ``with`` block; see ``Consumer.processing``."""
        return processing(self._tracing, message, self._reader)

    def positions(self) -> dict[TopicQueue, int]:
        """Queue offset of the next message to be given, by queue."""
        return self._begun().reader.positions()

    def seek(self, queue: TopicQueue, offset: int) -> None:
        """Go on at ``offset`` of a queue.

        Raises:
            TopicUnknownError: the queue is not this consumer's now.
        """
        self._begun().reader.seek(queue, offset)

    def pause(self, queue: TopicQueue) -> None:
        """Give nothing of a queue until ``resume``; others get it only if the group changes.

        Raises:
            TopicUnknownError: the queue is not this consumer's now.
        """
        self._begun().reader.pause(queue)

    def resume(self, queue: TopicQueue) -> None:
        """Go on with a queue where it was paused.

        Raises:
            TopicUnknownError: the queue is not this consumer's now.
        """
        self._begun().reader.resume(queue)

    @abstractmethod
    def _begun(self) -> GroupMember: ...

    def _join(self, requests: RequestPipeline) -> GroupMember:
        member = self._member = GroupMember(
            requests,
            self.group_options,
            self.options,
            group=self.group,
            client=self.name,
            subscription=self._subscriptions.fixed(),
        )
        return member

    def _new_link(self, client: str, *, is_watchful: bool = True) -> AnyLink:
        context: Context = zmq.Context.instance()
        return broker_link(context, self._places, client=client, is_watchful=is_watchful)
