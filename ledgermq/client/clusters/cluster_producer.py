"""``ProducerOfGroups``: sends messages to all groups of a cluster that have a topic."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Unpack

from ledgermq.client.blocking.producer import Producer
from ledgermq.client.closing import Closing
from ledgermq.client.clusters.fail_over import ROOM_S, FailOver, FailoverCourse, Result, kept, waits
from ledgermq.client.clusters.group_turns import NEVER_STORED, TURN_S, next_turn
from ledgermq.client.clusters.group_watch import GroupWatch
from ledgermq.client.clusters.told_topics import ROW_GOOD_S
from ledgermq.client.clusters.topic_groups import TopicGroups
from ledgermq.client.clusters.used_group import ClusterSend, UsedGroup
from ledgermq.client.core.known_groups import KnownGroups
from ledgermq.client.core.link import NEVER
from ledgermq.client.core.received import ReceivedMessage
from ledgermq.client.core.results import BatchResult, SendResult
from ledgermq.client.sending.frames import BatchCallback, OneCallback
from ledgermq.client.sending.message_options import BatchOptions, MessageOptions, RequestOptions
from ledgermq.client.sending.outgoing import (
    Body,
    OutgoingMessage,
    check_bodies,
    checked_bodies,
)
from ledgermq.client.sending.send_future import SendFuture
from ledgermq.client.sending.sender import RECORD_AROUND, batch_size
from ledgermq.client.topic_writer import TopicWriter
from ledgermq.model.errors import (
    BusyError,
    ClosedError,
    ConfigError,
    LedgerError,
    NotLeaderError,
    TimedOutError,
    TopicUnknownError,
)


class ProducerOfGroups(Closing):
    """What a ``Producer`` is in a cluster: it has a producer for each group, and chooses.

    There is another one for each group of what may fail over. ``linger_ms``, ``window_bytes`` and
    the other options are for each.
    """

    def __init__(self, ordinary: TopicWriter, told: KnownGroups) -> None:
        """A producer in the place of ``ordinary``; finds the groups, and connects, by itself."""
        self.options = ordinary.options
        timeout_s = min(ordinary._fail_over_s, self.options.timeout_s)
        self._failing_over = replace(self.options, timeout_s=timeout_s)
        self._name = name = ordinary._name
        self._tracing = ordinary._tracing
        self._watch = GroupWatch(ordinary._seeds(told), client=name, keys=ordinary._keys)
        self._lock = threading.Lock()
        self._used: dict[tuple[str, bool], UsedGroup] = {}
        self._retired: list[Producer] = []
        self._chosen: dict[str, tuple[UsedGroup, float]] = {}
        self._fail_over = FailOver(
            name=name,
            window_bytes=self.options.window_bytes,
            waits_for_quota=self.options.waits_for_quota,
        )
        self._only: UsedGroup | None = None
        self._is_closed = False
        self._has_ended = False

    def groups(self) -> list[str]:
        """Names of the groups that are known now."""
        return [group.name for group in self._watch.groups()]

    def of(self, group: str) -> Producer:
        """The producer of a group, which this one closes; need not be named where there is one.

        Raises:
            ConfigError: there are several, or no such group is known.
        """
        self._hear_of(group, time.monotonic() + self.options.timeout_s)
        if not group and not self._watch.alone:
            raise ConfigError("a group is to be named: there are several", known=self.groups())
        return self._used_of(group or self._watch.alone).producer

    def used(self, group: str) -> UsedGroup:
        """A group with its producer, for a client that sends by that one; see ``of``."""
        return self._used_of(group)

    def answering(self) -> list[str]:
        """Names of the groups whose leader answers now."""
        return [group.name for group in self._watch.groups() if group.answers]

    def find(self, topic: str, until: float) -> None:
        """Return when a group is known that has the topic; where none has it, it is made.

        Args:
            until: by ``time.monotonic``.

        Raises:
            LedgerError: as from ``send``.
        """
        if not self._watch.alone:
            self._groups_of(topic, until, needs_all=False)

    def choose(
        self,
        topic: str,
        options: RequestOptions,
        *,
        until: float,
        group: str = "",
        size: int = 0,
    ) -> UsedGroup:
        """The group that a message of ``size`` bytes would go to, for who sends it by other means.

        A key's queue in it is put into ``options``. Waits until ``until``, by ``time.monotonic``.

        Raises:
            LedgerError: as from ``send``.
        """
        if self._is_closed:
            raise ClosedError("producer is closed")
        if self._watch.alone and not group:
            return self._used_of(self._watch.alone)
        used = self._bound(topic, group, options, until)
        return used or self._next(topic, size + RECORD_AROUND, lambda: True, until)

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
        """Send one message; see ``Producer.send``."""
        # A group that is alone pays for one call more than without a cluster.
        only = self._only
        if only is None or group or only.group.is_replaced or self._watch.alone != only.group.name:
            alone = self._alone(group)
        else:
            alone = only.producer
        if alone is not None:
            return alone.send(topic, body, callback=callback, block=block, **options)
        if type(body) is not bytes:
            check_bodies((type(body),))
            # It may be sent again when the application has changed its buffer.
            body = bytes(body)

        def send(
            used: UsedGroup, callback: OneCallback | None, block: bool, first_id: str
        ) -> SendFuture[SendResult]:
            if first_id:
                options["unique_id"] = first_id
            return used.producer.send(topic, body, callback=callback, block=block, **options)

        size, stays = len(body) + RECORD_AROUND, partial(waits, options, ())
        sending = ClusterSend(topic, size, send, callback, stays)
        return self._send(sending, group, options, block=block)

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
        """Send messages to one queue of one group; see ``Producer.send_batch``."""
        alone = self._alone(group)
        if alone is not None:
            return alone.send_batch(topic, messages, callback=callback, block=block, **options)
        checked_bodies(messages)

        def send(
            used: UsedGroup, callback: BatchCallback | None, block: bool, first_id: str
        ) -> SendFuture[BatchResult]:
            nonlocal messages
            if used.fails_over:
                messages = kept(topic, messages, options, first_id)
            return used.producer.send_batch(
                topic, messages, callback=callback, block=block, **options
            )

        size, stays = batch_size(messages), partial(waits, options, messages)
        sending = ClusterSend(topic, size, send, callback, stays)
        return self._send(sending, group, options, block=block)

    def cancel(self, unique_id: str, *, group: str = "") -> None:
        """Take back a message that waits in a group; see ``Producer.cancel``."""
        self.of(group).cancel(unique_id)

    def cluster(self) -> str:
        """Name of the cluster that the messages go to; see ``Producer.cluster``."""
        self._watch.wait_for_groups(time.monotonic() + self.options.timeout_s)
        return self._used_of(self._watch.first.name).producer.cluster()

    def reply(self, request: ReceivedMessage, body: Body, **how: Any) -> SendFuture[SendResult]:
        """Reply to a message in the group that it was read in; see ``Producer.reply``."""
        return self.of(request.broker_group).reply(request, body, **how)

    @property
    def is_idle(self) -> bool:
        """Whether every message sent so far has its outcome."""
        return self._fail_over.is_idle and all(one.is_idle for one in self._producers())

    def flush(self, timeout: float | None = None) -> None:
        """Return when every message sent so far has its outcome; see ``Producer.flush``.

        Raises:
            TimedOutError: some have none after ``timeout`` seconds; they stay under way.
        """
        until = time.monotonic() + timeout if timeout is not None else NEVER
        for producer in self._producers():
            left = until - time.monotonic()
            producer.flush(None if timeout is None else max(0.0, left))
        if not self._fail_over.wait_until_idle(until):
            raise TimedOutError("messages without an outcome", waited_s=timeout)

    def close(self, timeout: float | None = None) -> None:
        """Flush, say goodbye to all nodes, close; what has no outcome after ``timeout`` fails."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        until = time.monotonic() + timeout if timeout is not None else NEVER
        # What fails over needs the watch, and may need a producer that there is not yet.
        with suppress(TimedOutError):
            self.flush(timeout)
        self._fail_over.close()
        self._watch.close()
        with self._lock:
            self._has_ended = True
        for producer in self._producers():
            left = until - time.monotonic()
            producer.close(None if timeout is None else max(0.0, left))

    def _producers(self) -> list[Producer]:
        with self._lock:
            return [*(used.producer for used in self._used.values()), *self._retired]

    def _alone(self, group: str) -> Producer | None:
        """The producer of the only group that there is."""
        name = self._watch.alone
        self._only = self._used_of(name) if name and group in ("", name) else None
        return None if self._only is None else self._only.producer

    def _send(
        self, sending: ClusterSend[Result], group: str, options: BatchOptions, *, block: bool
    ) -> SendFuture[Result]:
        """Choose a group, and send; a key's queue in it is put into ``options``."""
        if self._is_closed:
            raise ClosedError("producer is closed")
        topic, size, now = sending.topic, sending.size, time.monotonic()
        until = now + (self.options.timeout_s if block else 0.0)
        used = self._bound(topic, group, options, until)
        if used is not None:
            return used.send(sending.send, sending.callback, block=block)
        while True:
            used = self._next(topic, size, sending.stays, until)
            try:
                if not used.fails_over:
                    # With ``block`` it would wait for this group alone.
                    return used.send(sending.send, sending.callback, block=False)
                choose = partial(self._elsewhere, topic, size)
                last = now + self.options.timeout_s
                return FailoverCourse(self._fail_over, sending, choose, until=last).begin(used)
            except (BusyError, NotLeaderError):
                # Other threads have filled its window, or its leader is gone: nothing was sent.
                if used.producer.failure is not None or time.monotonic() >= until:
                    raise

    def _hear_of(self, group: str, until: float) -> None:
        """Wait for what is told of groups, if this one may be among those."""
        if self._watch.group(group) is None:
            self._watch.wait_for_groups(until)

    def _bound(
        self, topic: str, group: str, options: RequestOptions, until: float
    ) -> UsedGroup | None:
        """The group that a message must go to; None: it may go to any."""
        if group:
            self._hear_of(group, until)
            return self._used_of(group)
        key, queue_id = options.get("queue_key"), options.get("queue_id")
        if key is None:
            key = options.get("message_group")
        if key is None and queue_id is None:
            return None
        said = self._groups_of(topic, until, needs_all=True)
        if queue_id is None:
            assert key is not None
            if not said.of_keys:
                raise self._closed(topic)
            queue = said.queue_of(key)
            options["queue_key"] = None
            options["queue_id"] = queue.queue_id
            used = self._used_of(queue.group)
            # A group may not have followed the row yet: then it refuses.
            own = said.queues.get(queue.group, 0)
            used.producer.know_queues(topic, max(own, queue.queue_id + 1))
            return used
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
                topic, lambda told: bool(told.queues) or told.is_whole, until
            )
        if not said.queues:
            said = self._made(topic, said)
        if needs_all and not said.is_good(time.monotonic()):
            said = self._watch.wait_for(topic, lambda told: told.is_good(time.monotonic()), until)
            if not said.is_whole:
                raise NotLeaderError(
                    "queues are not known: groups have not said whether they have the topic",
                    topic=topic,
                    groups=[*said.unheard],
                )
            if not said.is_good(time.monotonic()):
                raise NotLeaderError(
                    "queues are not known: no group has confirmed the cluster's row of the topic"
                    " for too long",
                    topic=topic,
                    limit_s=ROW_GOOD_S,
                )
        return said

    def _closed(self, topic: str) -> LedgerError:
        """What to tell who sends to a topic that is closed in all groups; they are asked anew."""
        self._watch.look_again(topic)
        return TopicUnknownError(
            "no group that the topic is over takes messages of it now", topic=topic
        )

    def _made(self, topic: str, said: TopicGroups) -> TopicGroups:
        if not self.groups():
            raise self._watch.unreachable()
        if not said.is_whole:
            raise NotLeaderError(
                "groups have not said whether they have the topic",
                topic=topic,
                groups=[*said.unheard],
            )
        if said.is_over:
            raise self._closed(topic)
        # As a producer of one group makes it; what refuses it says why.
        name = self._watch.first.name
        queues = self._used_of(name).producer.write_queues(topic)
        self._watch.look_again(topic)
        return TopicGroups({name: queues}, ())

    def _next(self, topic: str, size: int, stays: Callable[[], bool], until: float) -> UsedGroup:
        """The group whose turn it is, among those that can send at once; waits for one.

        At ``until`` it is one that says why it cannot.

        Args:
            stays: whether the message does not fail over, though its topic does.
        """
        now = time.monotonic()
        with self._lock:
            used, chosen_until = self._chosen.get(topic, (None, 0.0))
        if (
            used is not None
            and now < chosen_until
            and used.producer.is_ready(size)
            and not (used.fails_over and (stays() or self._fail_over.is_full(size)))
        ):
            return used
        while True:
            said: TopicGroups = self._groups_of(topic, until, needs_all=False)
            if not self._answering(said):
                said = self._watch.wait_for(topic, self._has_answering, until)
                if not said.queues:
                    # What the row said counted until the group itself has spoken.
                    continue
            names = self._answering(said)
            if not names:
                raise NotLeaderError(
                    "no group that has the topic answers", topic=topic, groups=[*said.queues]
                )
            # With one group that answers there is no other one to wait for.
            may_fail_over = said.fails_over and len(names) > 1
            fails_over = may_fail_over and not stays()
            if fails_over:
                self._fail_over.wait_for_room(size, until)
            found = [self._knowing(topic, name, said, fails_over=fails_over) for name in names]
            ready = [used for used in found if used.producer.is_ready(size)]
            # A group that no session can ever stand with is not waited for, unless all are so.
            choice = ready or [used for used in found if used.producer.failure is None] or found
            used, now = self._turn(choice), time.monotonic()
            if ready and fails_over == may_fail_over:
                with self._lock:
                    self._chosen[topic] = used, now + TURN_S
            if ready or now >= until or used.producer.failure is not None:
                return used
            # The others are looked at again after a moment.
            used.producer.wait_until_ready(size, min(until, now + ROOM_S))

    def _elsewhere(
        self, topic: str, size: int, not_in: Collection[str], last: str
    ) -> UsedGroup | None:
        """A group that takes a message at once: none of these; ``last`` if no other one does."""
        said = self._watch.topic_groups(topic)
        answering = self._answering(said)
        names = [name for name in answering if name not in not_in]
        if not names:
            return self._awaited(topic, size, said, answering, last)
        found = [self._knowing(topic, name, said, fails_over=True) for name in names]
        ready = [used for used in found if used.producer.is_ready(size)]
        others = [used for used in ready if used.group.name != last] or ready
        return self._turn(others) if others else None

    def _awaited(
        self, topic: str, size: int, said: TopicGroups, names: Sequence[str], last: str
    ) -> UsedGroup | None:
        """Which of these, all of which were too slow, is waited for as long as for any message:
        sent again and again, it would be slower yet.

        The one that has acknowledged something last: a leader may answer, and store nothing. It is
        waited for when it has no room now, unless that was long ago.
        """
        alive_since = time.monotonic() - self._failing_over.timeout_s
        stored_at = {name: self._stored_at(name) for name in names}
        for name in sorted(names, key=lambda one: (stored_at[one], one != last), reverse=True):
            used = self._knowing(topic, name, said)
            if used.producer.is_ready(size):
                return used
            if stored_at[name] > alive_since and used.producer.failure is None:
                break
        return None

    def _stored_at(self, name: str) -> float:
        """When a group has last stored what was sent to it, as far as that was watched."""
        found = [self._used.get((name, fails_over)) for fails_over in (False, True)]
        return max([used.time.stored_at for used in found if used], default=NEVER_STORED)

    def _turn(self, choice: Sequence[UsedGroup]) -> UsedGroup:
        with self._lock:
            return choice[next_turn([one.time for one in choice], time.monotonic())]

    def _answering(self, said: TopicGroups) -> list[str]:
        return [
            name
            for name in said.queues
            if (group := self._watch.group(name)) is not None and group.answers
        ]

    def _has_answering(self, said: TopicGroups) -> bool:
        """Whether a group can be chosen, or there is none to be waited for."""
        return not said.queues or bool(self._answering(said))

    def _knowing(
        self, topic: str, name: str, said: TopicGroups, *, fails_over: bool = False
    ) -> UsedGroup:
        """A group, whose producer need not ask how many queues the topic has."""
        used = self._used_of(name, fails_over=fails_over)
        used.producer.know_queues(topic, said.queues[name])
        return used

    def _used_of(self, name: str, *, fails_over: bool = False) -> UsedGroup:
        used = self._used.get((name, fails_over))
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
            options=self._failing_over if fails_over else self.options,
            tracing=self._tracing,
            one_group=True,
            awaits_node=False,
        )
        with self._lock:
            is_late = self._used.get((name, fails_over)) is not used or self._has_ended
            if not is_late:
                if used is not None:
                    self._retired.append(used.producer)
                used = UsedGroup(group, producer, fails_over=fails_over)
                self._used[name, fails_over] = used
            else:
                # Another thread was faster, or all is closed.
                used = self._used.get((name, fails_over))
        if is_late:
            producer.close(0.0)
        if used is None:
            raise ClosedError("producer is closed")
        return used
