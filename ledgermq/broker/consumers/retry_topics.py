"""Retries: messages that are given back, and the group's topics that take them.

The leader stores what a message becomes (``rules/messages/retries.py``), and behind it a command
that says so (``rules/given_back.py``): who asks again is told. A group's retry and dead-letter
topics are made when they are needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from ledgermq.broker.call_arguments import integer, text
from ledgermq.broker.calls import AnsweredVerb, Arguments, Call, Result, Verbs
from ledgermq.broker.reading.known_topics import KnownTopics
from ledgermq.broker.service import Mailbox
from ledgermq.broker.state.state_log import StateLog
from ledgermq.broker.state.state_requests import Reply, StateRequest, submit_call
from ledgermq.formats.records.inner_batch import message_at, messages_in
from ledgermq.formats.records.message import INNER_BATCH, Message, decode_message, encode_message
from ledgermq.ipc.counters import BrokerCounter, Counts
from ledgermq.model.config.settings import Settings, TopicsSection
from ledgermq.model.delay_levels import delay_levels_ms
from ledgermq.model.errors import BusyError, LedgerError, MessageIllegalError, ProtocolError
from ledgermq.model.limits import FORBIDDEN_TOPICS, LEVEL_MAX, QUEUE_ID_MAX, TIMES_MAX
from ledgermq.model.names.group_topics import dead_letter_topic, retry_topic
from ledgermq.model.names.queue_name import QueueName
from ledgermq.model.rights import Right
from ledgermq.process.clock import Clock
from ledgermq.rules.given_back import TOKEN_SIZE_MAX, MessageGivenBack
from ledgermq.rules.messages.retries import DEAD_LETTER_QUEUES, Returned, check_writable, give_back
from ledgermq.rules.tables.groups import SubscriptionGroup, check_group_name
from ledgermq.rules.tables.table_changes import Change, GroupSet, TopicSet
from ledgermq.rules.tables.topics import Topic
from ledgermq.verbs.needs import ADMIN_ANYWHERE, both_rights

POSITION_MAX = 2**63 - 1

RecordAt = Callable[[int], memoryview | None]
"""The record that begins at a position, if a queue knows it."""


class RetryTopics:
    """Looks at the tables whenever it is asked; keeps nothing."""

    def __init__(self, known: KnownTopics, rules: TopicsSection) -> None:
        self._known = known
        self._tables = known.tables
        self._rules = rules

    def get(self, name: str) -> Topic | None:
        """The topic called ``name``, if there is one."""
        return self._tables.topics.get(name)

    def group(self, name: str) -> SubscriptionGroup:
        """The group, also one that may not consume, or that is to be made.

        Raises:
            NoPermissionError: there is none, and none may be made.
        """
        known = self._tables.groups.get(name)
        return known or self._tables.groups.plan_use(name, self._rules)

    def lacking(self, group: str, name: str) -> list[Change]:
        """What the tables lack of a group and one of its two topics.

        Raises:
            NoPermissionError: the group does not exist, and may not be made; or the topic may not
                be written to.
        """
        changes: list[Change] = []
        known = self.group(group)
        if self._tables.groups.get(group) is None:
            changes.append(GroupSet(group, known.to_fields()))
        topic = self.get(name)
        if topic is not None:
            check_writable(topic)
            return changes
        queues = DEAD_LETTER_QUEUES
        if name == retry_topic(group):
            queues = max(1, known.retry_queues)
        begins = self._known.first_offsets(name)
        made = Topic(name, queues, queues)
        fields = (made.beginning_at(begins) if begins else made).to_fields()
        return [*changes, TopicSet(name, fields)]


class PreparedGroups:
    """Creation of a group and its retry topic on first use.

    RocketMQ's clients want the retry topic to be there when they begin.
    """

    def __init__(self, known: KnownTopics, rules: TopicsSection, log: StateLog) -> None:
        self._topics = RetryTopics(known, rules)
        self._log = log
        self.verbs: Verbs = (AnsweredVerb("group_prepare", self._prepare, ADMIN_ANYWHERE),)

    def _prepare(self, call: Call) -> Result | None:
        """The group and its retry topic; a group without retry queues has none."""
        group = text(call.arguments, "group")
        name = retry_topic(group)
        touches = {f"group {group}", f"topic {name}"}
        return submit_call(
            self._log, call, lambda: self._topics.lacking(group, name), touches, lambda: {}
        )


class RetryCalls:
    """Owned by the broker process.

    Invariant: ``_preparing`` has, by topic, what waits for a topic that is being made.
    """

    def __init__(
        self,
        known: KnownTopics,
        log: StateLog,
        record_at: RecordAt,
        settings: Settings,
        *,
        mailbox: Mailbox,
        clock: Clock,
        counts: Counts,
    ) -> None:
        self._known = known
        self._store = known.store
        self._state = known.tables.state
        self._topics = RetryTopics(known, settings.topics)
        self._log = log
        self._clock = clock
        self._counts = counts
        self._record_at = record_at
        self._address = settings.node.broker_ip, settings.node.listen_port
        self._level_max = len(delay_levels_ms(settings.store.message_delay_level)) - 1
        self._preparing: dict[str, list[_GiveBack]] = {}
        self._mailbox = mailbox
        self.verbs: Verbs = (AnsweredVerb("send_back", self._send_back, both_rights(Right.SUB)),)

    def _send_back(self, call: Call) -> Result | None:
        act = _GiveBack(self, call)
        if act.topic is not None and self._topics.lacking(act.group, act.topic):
            self._prepare(act, act.topic, call.now_ms)
        else:
            self._submit(act, call.now_ms)
        return None

    def _submit(self, act: _GiveBack, now_ms: int) -> None:
        touches = frozenset({f"given back {act.token or id(act)}"})
        self._log.submit(
            StateRequest(act.caller, act.plan, touches, act.answer, lambda: act.records), now_ms
        )

    def _prepare(self, act: _GiveBack, name: str, now_ms: int) -> None:
        """Make the group and its topic first, once for all that come meanwhile."""
        group = act.group
        waiting = self._preparing.setdefault(name, [])
        waiting.append(act)
        if len(waiting) > 1:
            return

        def made() -> None:
            for one in self._preparing.pop(name):
                try:
                    self._submit(one, now_ms)
                except LedgerError as error:
                    self._mailbox.append(Reply(one.caller, error))

        def refused(error: LedgerError) -> None:
            self._mailbox += [Reply(one.caller, error) for one in self._preparing.pop(name)]

        touches = frozenset({f"group {group}", f"topic {name}"})
        request = StateRequest(
            act.caller, lambda: self._topics.lacking(group, name), touches, made, refused=refused
        )
        try:
            self._log.submit(request, now_ms)
        except LedgerError:
            self._preparing.pop(name)
            raise

    def message_of(self, call: Call) -> Message:
        """The message that the arguments name, with its own bytes.

        A position may be that of any message of the log: rights are those to the message's topic.

        Raises:
            MessageIllegalError: it is not there, or in a topic that nobody consumes.
            NoPermissionError: the client may not read the message's topic.
            DamagedLogError: it is not what was written.
        """
        arguments = call.arguments
        if "position" in arguments:
            position = integer(arguments, "position", 0, POSITION_MAX)
        else:
            position = self._position_of(arguments)
        record = self._record_at(position)
        if record is None and self._store.is_pending(position):
            raise BusyError("message is not in its queue yet", position=position)
        if record is None:
            raise MessageIllegalError(
                "no message begins there: it was removed, or never committed; nothing was stored",
                position=position,
                begin=self._store.log.first_position,
            )
        parts = self._store.records(np.array([position]), np.array([len(record)]))
        if parts is None:
            raise MessageIllegalError("message was removed; nothing was stored", position=position)
        start = int(parts.starts[0])
        whole = bytes(memoryview(parts.payload)[start : start + int(parts.sizes[0])])
        message = decode_message(memoryview(whole))
        call.check_topic(message.topic, Right.SUB)
        if message.topic in FORBIDDEN_TOPICS:
            raise MessageIllegalError(
                "messages of that topic are not given back; nothing was stored",
                position=position,
                topic=message.topic,
            )
        if message.sys_flag & INNER_BATCH:
            message = self._one_of(message, arguments, position)
        found = {
            "topic": message.topic,
            "queue": message.queue_id,
            "offset": message.queue_offset,
        }
        asked = {name: arguments[name] for name in found if name in arguments}
        if asked != {name: found[name] for name in asked}:
            raise MessageIllegalError(
                "another message is there; nothing was stored",
                position=position,
                found=found,
                asked=asked,
            )
        return message

    def _one_of(self, message: Message, arguments: Arguments, position: int) -> Message:
        """The one of the messages in a record that the arguments name by its queue offset."""
        first = message.queue_offset
        found = messages_in(message)
        offset = integer(arguments, "offset", 0, POSITION_MAX) if "offset" in arguments else -1
        if not first <= offset < first + len(found):
            raise MessageIllegalError(
                "several messages are there, and the offset of none was said; nothing was stored",
                position=position,
                first=first,
                messages=len(found),
            )
        return message_at(message, offset)

    def _position_of(self, arguments: Arguments) -> int:
        queue = QueueName(text(arguments, "topic"), integer(arguments, "queue", 0, QUEUE_ID_MAX))
        offset = integer(arguments, "offset", 0, POSITION_MAX)
        self._known.check_queue(queue)
        bounds = self._store.bounds(queue)
        inside = bounds.first <= offset < bounds.end
        units = self._store.units(queue, offset, 1) if inside else None
        if units is None or len(units) == 0:
            raise MessageIllegalError(
                "queue does not hold that offset; nothing was stored",
                topic=queue.topic,
                queue=queue.queue_id,
                offset=offset,
                begin=bounds.first,
                end=bounds.end,
            )
        return int(units["position"][0])

    def returned(self, act: _GiveBack) -> Returned | None:
        """What to store for it, as the tables are now."""
        return give_back(
            act.message,
            self._topics.group(act.group),
            level=act.level,
            times_max=act.times_max,
            level_max=self._level_max,
            existing=self._topics.get(retry_topic(act.group)),
            chance=act.chance,
        )

    def changes_for(self, act: _GiveBack, topic: str) -> list[Change]:
        """What the tables lack, and the token."""
        return [*self._topics.lacking(act.group, topic), MessageGivenBack(act.token)]

    def is_known(self, token: str) -> bool:
        """Whether that act is in the log already."""
        return bool(token) and token in self._state.given_back

    def chance(self) -> int:
        """31 bits, by which a queue is chosen."""
        return self._clock.seed() >> 33

    def note_stored(self, records: Sequence[bytes], *, is_dead: bool) -> None:
        """Count messages that were given back, and are in the log."""
        counter = BrokerCounter.MESSAGES_DEAD if is_dead else BrokerCounter.MESSAGES_RETRIED
        self._counts[counter] += len(records)

    def record_of(self, message: Message) -> bytes:
        """The record to append, with its hole."""
        return bytes(self._log.hole) + encode_message(replace(message, store_host=self._address))


class _GiveBack:
    """One message that is given back, from the call to its answer."""

    def __init__(self, calls: RetryCalls, call: Call) -> None:
        arguments = call.arguments
        self._calls = calls
        self.caller = call.caller
        self.group = text(arguments, "group")
        check_group_name(self.group)
        self.level = integer(arguments, "delay_level", -1, LEVEL_MAX)
        self.times_max: int | None = None
        if "max_reconsume_times" in arguments:
            self.times_max = integer(arguments, "max_reconsume_times", 0, TIMES_MAX)
        self.token = text(arguments, "token") if "token" in arguments else ""
        if len(self.token) > TOKEN_SIZE_MAX:
            raise ProtocolError("token is too long", size=len(self.token), limit=TOKEN_SIZE_MAX)
        self.chance = calls.chance()
        self.message = calls.message_of(call)
        self.records: list[bytes] = []
        self._returned = calls.returned(self)
        self._is_repeated = False

    @property
    def topic(self) -> str | None:
        """Where it is going to be; ``None`` when it is dropped."""
        return None if self._returned is None else self._returned.topic

    def plan(self) -> list[Change]:
        """Store it, unless an earlier attempt has."""
        calls = self._calls
        self.records = []
        self._returned = calls.returned(self)
        self._is_repeated = calls.is_known(self.token)
        if self._returned is None or self._is_repeated:
            return []
        changes = calls.changes_for(self, self._returned.topic)
        self.records = [calls.record_of(self._returned.message)]
        return changes

    def answer(self) -> Result:
        """What became of it."""
        returned = self._returned
        if self.records:
            self._calls.note_stored(
                self.records, is_dead=self.topic == dead_letter_topic(self.group)
            )
        return {
            "topic": returned.topic if returned is not None else "",
            "delay_level": returned.level if returned is not None else 0,
            "reconsume_times": self.message.reconsume_times + (returned is not None),
            "repeated": self._is_repeated,
        }
