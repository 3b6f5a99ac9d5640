"""Topic table: topics, their queues, permissions, and creation; ``config/topics.json``.

The fields are those of RocketMQ's ``TopicConfig``; the table is ``config/topics.json``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntFlag
from typing import Any, Self

from ledgermq.formats.batch_unit import OF_BATCHES, QUEUE_TYPE
from ledgermq.formats.config_json import with_field_names
from ledgermq.model.config.settings import NodeSection, TopicsSection
from ledgermq.model.errors import (
    ConfigError,
    MessageIllegalError,
    NoPermissionError,
    TopicUnknownError,
)
from ledgermq.model.limits import (
    KEEP_BYTES_MAX,
    KEEP_MS_MAX,
    QUEUE_ID_MAX,
    SYSTEM_TOPIC,
    TOPIC_SIZE_MAX,
)
from ledgermq.model.names.message_types import (
    ATTRIBUTES,
    CLEANUP_POLICY,
    COMPACTION,
    MESSAGE_TYPE,
    TYPES,
    UNSPECIFIED,
)
from ledgermq.model.names.system_topics import (
    SYSTEM_TOPICS,
    TEMPLATE_TOPIC,
    TRACE_TOPIC,
    is_system_topic,
)
from ledgermq.model.units import HOUR_MS
from ledgermq.rules.tables.documents import (
    Document,
    cast_flag,
    cast_integer,
    check_name,
    read_integer,
    read_table,
)
from ledgermq.rules.tables.table import VersionedTable
from ledgermq.rules.tables.table_changes import TopicSet

FILE = "topics.json"

_QUEUES_DEFAULT = 16
_FIRST_OFFSETS = "ledgermqFirstOffsets"
_QUEUES_KEPT = "ledgermqQueuesKept"
_CLUSTER = "ledgermqCluster"
"""Names of fields in a topic; RocketMQ ignores them."""

_INT_MAX = 0x7FFF_FFFF
NUMBERS: Mapping[str, tuple[str, int]] = {
    "deduplication_window_ms": ("ledgermqDeduplicationWindowMs", _INT_MAX),
    "keep_ms": ("ledgermqKeepMs", KEEP_MS_MAX),
    "keep_bytes": ("ledgermqKeepBytes", KEEP_BYTES_MAX),
}
FLAGS: Mapping[str, str] = {"compact": "ledgermqCompact", "receipts": "ledgermqReceipts"}
"""What an operator says of a topic that RocketMQ does not know: names of fields, which it ignores,
and most of numbers. 0 and false are not written."""

_OWN = frozenset(
    {_FIRST_OFFSETS, _QUEUES_KEPT, _CLUSTER, *FLAGS.values(), *(key for key, _ in NUMBERS.values())}
)
_READ = _OWN | {"readQueueNums", "writeQueueNums", "perm", "order", "topicSysFlag", "topicName"}
_NAMES = _READ | {"topicFilterType"}

_RESERVE_TIME, _RESERVE_DIGITS = "reserve.time", 20

_DELETED = "ledgermqDeleted"
"""Name in the file, beside the topics, of those that were deleted, with the time of it. RocketMQ
ignores it. Their messages are in the log, and must not make topics of them again."""


class Permission(IntFlag):
    """What may be done with a topic; RocketMQ's ``PermName``."""

    INHERIT = 1
    WRITE = 2
    READ = 4
    PRIORITY = 8


READ_WRITE = Permission.READ | Permission.WRITE


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic; the defaults are those of RocketMQ for a field that the file leaves out.

    Attributes:
        first_offsets: where queues begin, by their number: what is before belongs to a topic of the
            same name that was deleted.
        queues_kept: the store has up to so many queues of it, of which no more are read than
            ``read_queues`` because somebody wanted it so; 0 when nobody did.
        deduplication_window_ms: for so long a message is not stored a second time that has the
            unique id of one that is; 0 where it always is.
        cluster: whose row of the topic says how many queues it has here, and whether they are
            written; empty: it is the group's own.
        keep_ms: how old its messages get in sealed pieces; 0: nothing was said (``kept_ms``).
        keep_bytes: how much newer pieces have of it when older ones lose it; 0: no limit.
        compact: sealed pieces keep the newest message of each key alone (``is_compacted``).
        receipts: its messages are in the tree that receipts are proofs of.
    """

    name: str
    read_queues: int = _QUEUES_DEFAULT
    write_queues: int = _QUEUES_DEFAULT
    permission: Permission = READ_WRITE
    is_ordered: bool = False
    sys_flag: int = 0
    unknown: Mapping[str, object] = field(default_factory=dict)
    first_offsets: Mapping[int, int] = field(default_factory=dict)
    queues_kept: int = 0
    deduplication_window_ms: int = 0
    cluster: str = ""
    keep_ms: int = 0
    keep_bytes: int = 0
    compact: bool = False
    receipts: bool = False

    @property
    def is_compacted(self) -> bool:
        """Whether sealed pieces keep the newest message of each key alone: that was said to us, or
        RocketMQ 5's attribute ``cleanup.policy`` says so.
        """
        return self.compact or self.is_compacted_there

    @property
    def kept_ms(self) -> int:
        """How old its messages get in sealed pieces; 0: as old as anything. Where nothing was said
        to us, RocketMQ 5's attribute ``reserve.time`` counts, in hours as its tiered storage has
        it.
        """
        if self.keep_ms:
            return self.keep_ms
        text = str(self._attributes.get(_RESERVE_TIME))
        is_one = text.isascii() and text.isdecimal() and len(text) < _RESERVE_DIGITS
        return min(int(text) * HOUR_MS, KEEP_MS_MAX) if is_one else 0

    @property
    def message_type(self) -> str:
        """RocketMQ 5's attribute ``message.type``: of which type its messages are; a word that is
        none of RocketMQ's counts as no type.
        """
        found = str(self._attributes.get(MESSAGE_TYPE)).upper()
        return found if found in TYPES else UNSPECIFIED

    @property
    def has_batches(self) -> bool:
        """Whether RocketMQ 5's attribute ``queue.type`` says that its queues are of batches."""
        return str(self._attributes.get(QUEUE_TYPE, "")).lower() == OF_BATCHES

    @property
    def is_compacted_there(self) -> bool:
        """Whether it comes from a store of RocketMQ 5 in whose table the attribute
        ``cleanup.policy`` says that it keeps the newest message of a key. RocketMQ serves such a
        topic from files of its own, into which it puts what it stores itself: what a node stored
        would be served to nobody there.
        """
        return str(self._attributes.get(CLEANUP_POLICY)).upper() == COMPACTION

    def with_message_type(self, kind: str) -> Topic:
        """This topic with messages of that type."""
        attributes = {name: one for name, one in self._attributes.items() if name != MESSAGE_TYPE}
        if kind != UNSPECIFIED:
            attributes[MESSAGE_TYPE] = kind
        unknown = {name: one for name, one in self.unknown.items() if name != ATTRIBUTES}
        if attributes:
            unknown[ATTRIBUTES] = attributes
        return replace(self, unknown=unknown)

    @property
    def _attributes(self) -> Mapping[str, object]:
        found = self.unknown.get(ATTRIBUTES)
        return found if isinstance(found, Mapping) else {}

    @property
    def is_readable(self) -> bool:
        """Whether its messages may be pulled."""
        return bool(self.permission & Permission.READ)

    def beginning_at(self, first_offsets: Mapping[int, int]) -> Topic:
        """This topic, its queues numbered on from those of one that was deleted."""
        queues = max(first_offsets, default=-1) + 1
        return replace(
            self,
            first_offsets=dict(first_offsets),
            queues_kept=queues if queues > self.read_queues else 0,
        )

    def shown_to(self, readers: int) -> Topic:
        """This topic with ``readers`` queues for reading; the store keeps all."""
        kept = max(self.queues_kept, self.read_queues)
        return replace(self, read_queues=readers, queues_kept=kept if kept > readers else 0)

    @property
    def is_writable(self) -> bool:
        """Whether messages may be stored in it."""
        return queues_for_writing(self) > 0

    @classmethod
    def read(cls, name: str, value: object) -> Self:
        """The topic that the table has under ``name``.

        Raises:
            ConfigError: a field has another type, or a value out of its range.
        """
        if not isinstance(value, Mapping):
            raise ConfigError("topic is not a JSON object", file=FILE, topic=name)
        fields = with_field_names({str(key): item for key, item in value.items()}, _NAMES)

        def integer(key: str, default: int, limit: int = _INT_MAX) -> int:
            number = cast_integer(fields, key, default, file=FILE, owner=name)
            if not 0 <= number <= limit:
                raise ConfigError("out of range", file=FILE, owner=name, key=key, value=number)
            return number

        first_offsets = read_table(fields, _FIRST_OFFSETS, file=FILE)
        cluster = fields.get(_CLUSTER, "")
        if not isinstance(cluster, str):
            raise ConfigError("not a text", file=FILE, owner=name, key=_CLUSTER)
        own: dict[str, Any] = {
            **{one: integer(key, 0, limit) for one, (key, limit) in NUMBERS.items()},
            **{
                one: cast_flag(fields, key, False, file=FILE, owner=name)
                for one, key in FLAGS.items()
            },
        }
        return cls(
            name,
            integer("readQueueNums", _QUEUES_DEFAULT),
            integer("writeQueueNums", _QUEUES_DEFAULT),
            Permission(integer("perm", READ_WRITE)),
            cast_flag(fields, "order", False, file=FILE, owner=name),
            integer("topicSysFlag", 0),
            {key: fields[key] for key in fields.keys() - _READ},
            {
                int(queue): read_integer(first_offsets, queue, 0, file=FILE, owner=name)
                for queue in first_offsets
                if queue.isdecimal()
            },
            integer(_QUEUES_KEPT, 0),
            cluster=cluster,
            **own,
        )

    def to_fields(self) -> dict[str, object]:
        """The JSON object, keys in RocketMQ's order."""
        fields: dict[str, object] = {
            "topicFilterType": "SINGLE_TAG",
            **self.unknown,
            "order": self.is_ordered,
            "perm": int(self.permission),
            "readQueueNums": self.read_queues,
            "topicName": self.name,
            "topicSysFlag": self.sys_flag,
            "writeQueueNums": self.write_queues,
        }
        if self.queues_kept:
            fields[_QUEUES_KEPT] = self.queues_kept
        own = {key: getattr(self, name) for name, (key, _) in NUMBERS.items()}
        own |= {key: getattr(self, name) for name, key in FLAGS.items()}
        fields |= {key: value for key, value in own.items() if value}
        if self.cluster:
            fields[_CLUSTER] = self.cluster
        if self.first_offsets:
            fields[_FIRST_OFFSETS] = {
                str(queue): offset for queue, offset in self.first_offsets.items()
            }
        return {key: fields[key] for key in sorted(fields)}


def queues_for_writing(topic: Topic) -> int:
    """How many queues take messages; 0 where the topic may not be written to."""
    may_be = topic.permission & Permission.WRITE and not topic.is_compacted_there
    return topic.write_queues if may_be else 0


def check_topic_name(name: str) -> None:
    """Refuse a name that RocketMQ's ``TopicValidator`` refuses.

    Raises:
        MessageIllegalError: empty, too long, or with a character that is not allowed.
    """
    check_name("topic", name, size_max=TOPIC_SIZE_MAX)


def builtin_topics(node: NodeSection, rules: TopicsSection) -> list[Topic]:
    """The topics that a RocketMQ broker of these settings has from its start."""

    def topic(name: str, queues: int, permission: Permission = READ_WRITE) -> Topic:
        return Topic(name, queues, queues, permission)

    everything = READ_WRITE | Permission.INHERIT
    topics = [
        topic("SELF_TEST_TOPIC", 1),
        topic("BenchmarkTest", 1_024),
        topic(node.broker_cluster_name, 16, everything),
        topic(node.broker_name, 1, everything),
        topic("OFFSET_MOVED_EVENT", 1),
        topic("SCHEDULE_TOPIC_XXXX", 18),
        topic(f"{node.broker_cluster_name}_REPLY_TOPIC", 1),
    ]
    if rules.auto_create_topic_enable:
        topics.insert(1, topic(TEMPLATE_TOPIC, rules.default_topic_queue_nums, everything))
    return topics


class TopicTable(VersionedTable[Topic, TopicSet]):
    """All topics by name.

    Attributes:
        changes: how many topics became another one since the table was read.
    """

    file = FILE
    takes = (TopicSet,)
    rows_key = "topicConfigTable"
    own_keys = frozenset({_DELETED})
    read_row = Topic.read

    def __init__(self) -> None:
        super().__init__()
        self._reserved: set[str] = set()
        self._deleted: dict[str, int] = {}
        self.changes = 0
        self._changed: dict[str, int] = {}

    def _read_own(self, document: Document) -> None:
        deleted = read_table(document, _DELETED, file=FILE)
        self._deleted = {
            name: read_integer(deleted, name, 0, file=FILE, owner=_DELETED) for name in deleted
        }

    def _own(self) -> dict[str, object]:
        return {_DELETED: dict(self._deleted)} if self._deleted else {}

    def is_system(self, name: str) -> bool:
        """Whether the topic is the broker's own; clients may neither make nor change it."""
        return name in self._reserved or is_system_topic(name)

    def is_builtin(self, name: str) -> bool:
        """Whether each leader makes sure of this topic when it begins."""
        return name in self._reserved

    def reserve_builtin(self, node: NodeSection, rules: TopicsSection) -> list[Topic]:
        """Let no client make or change the broker's own topics; which they are."""
        builtin = builtin_topics(node, rules)
        self._reserved = {topic.name for topic in builtin}
        return builtin

    def add_builtin(self, node: NodeSection, rules: TopicsSection, now_ms: int) -> bool:
        """Make sure of the broker's own topics; true when one was missing."""
        builtin = self.reserve_builtin(node, rules)
        missing = [topic for topic in builtin if topic.name not in self._rows]
        for topic in missing:
            self._rows[topic.name] = topic
            self._note_change(topic.name)
        if missing:
            self._advance(now_ms)
        return bool(missing)

    def plan_on_first_use(
        self,
        name: str,
        rules: TopicsSection,
        *,
        queues_found: int = 0,
        first_offsets: Mapping[int, int] | None = None,
    ) -> Topic:
        """The topic that a client asks for by name alone: the one that is there, or one to ``put``.

        Args:
            queues_found: queues that the store has of it although the table does not know it.
            first_offsets: where its queues begin, if there was a topic of that name before.

        Raises:
            TopicUnknownError: creation on first use is switched off.
            MessageIllegalError: the name breaks a rule.
            NoPermissionError: the name is reserved for the broker; the trace topic's is not for
                this: its first writer makes it, as in RocketMQ.
        """
        existing = self._rows.get(name)
        if existing is not None:
            return existing
        check_topic_name(name)
        if not rules.auto_create_topic_enable:
            raise TopicUnknownError(
                "topic does not exist, and is not created on first use",
                topic=name,
                setting="topics.auto_create_topic_enable",
            )
        queues = max(rules.default_topic_queue_nums, queues_found)
        planned = Topic(name, queues, queues) if name == TRACE_TOPIC else self.plan(name, queues)
        return planned.beginning_at(first_offsets) if first_offsets else planned

    def plan(self, name: str, queues: int) -> Topic:
        """A topic of ``queues`` queues, as an operator orders it; an existing one may only grow.

        Nothing is changed: it is to be ``put`` when the log has it.

        Raises:
            MessageIllegalError: name or number of queues break a rule; a topic never gets fewer
                queues, for the messages of those taken away could not be read any more.
            NoPermissionError: the name is reserved for the broker.
        """
        check_topic_name(name)
        if self.is_system(name):
            raise NoPermissionError("topic name is reserved for the broker", topic=name)
        if not 1 <= queues <= QUEUE_ID_MAX:
            raise MessageIllegalError(
                "number of queues out of range", topic=name, queues=queues, limit=QUEUE_ID_MAX
            )
        existing = self._rows.get(name)
        if existing is None:
            return Topic(name, queues, queues)
        most = max(existing.read_queues, existing.write_queues)
        if queues < most:
            raise MessageIllegalError(
                "a topic cannot get fewer queues", topic=name, queues=queues, existing=most
            )
        if (existing.read_queues, existing.write_queues) == (queues, queues):
            return existing
        return replace(existing, read_queues=queues, write_queues=queues)

    def apply(self, change: TopicSet, _place: int, at_ms: int, /) -> None:
        if change.fields is None:
            self.delete(change.name, at_ms)
        else:
            self.put(Topic.read(change.name, change.fields), at_ms)

    def put(self, topic: Topic, now_ms: int) -> bool:
        """The table has ``topic`` from now on; true when that is a change."""
        if not self._is_news(topic):
            return False
        self._rows[topic.name] = topic
        self._deleted.pop(topic.name, None)
        self._note_change(topic.name)
        self._advance(now_ms)
        return True

    def is_deleted(self, name: str) -> bool:
        """Whether there was a topic called ``name``, and is none any more."""
        return name in self._deleted

    def delete(self, name: str, now_ms: int) -> bool:
        """The table has no topic called ``name`` from now on; true when that is a change.

        One that only the store knows is remembered as deleted, too.
        """
        if self._rows.pop(name, None) is None and name in self._deleted:
            return False
        self._deleted[name] = now_ms
        self._note_change(name)
        self._advance(now_ms)
        return True

    def changed_since(self, changes: int) -> list[str]:
        """Names of the topics that were changed when ``changes`` was as given, or later."""
        found: list[str] = []
        for name, at in reversed(self._changed.items()):
            if at < changes:
                break
            found.append(name)
        return found

    def _note_change(self, name: str) -> None:
        self._changed.pop(name, None)
        self._changed[name] = self.changes
        self.changes += 1

    def replace_with(self, other: TopicTable) -> None:
        """Have what ``other`` has; what is reserved for the broker stays so."""
        for name in self._rows.keys() | other._rows.keys():
            if self._rows.get(name) != other._rows.get(name):
                self._note_change(name)
        self._deleted = other._deleted
        super().replace_with(other)


assert SYSTEM_TOPIC in SYSTEM_TOPICS
