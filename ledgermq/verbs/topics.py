"""Verbs about topics: lists and changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, ClassVar, Literal, NamedTuple, get_args

from ledgermq.model.errors import ConfigError
from ledgermq.model.limits import (
    DEDUPLICATION_WINDOW_MS_MAX,
    KEEP_BYTES_MAX,
    KEEP_MS_MAX,
    QUEUE_ID_MAX,
)
from ledgermq.verbs.answers import Fields, rows, texts
from ledgermq.verbs.needs import ANY, CHANGE, USER, shown, topic_right
from ledgermq.verbs.told_rows import BELOW_0_IS_NONE, Wire, read_row, shape_of
from ledgermq.verbs.verb import Bounds, DoneVerb, Json, PageVerb, TopicName, Typed, Verb, as_json

TOPIC_ROWS_MAX = 500
"""Topics of one answer: to count their messages is to look into all their queues."""

PERMISSION_MAX = 7
"""Read, write, inherit. RocketMQ's bit 8, priority, means nothing since long."""

MessageType = Literal[
    "UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED", "PRIORITY", "LITE"
]
MESSAGE_TYPES: tuple[str, ...] = get_args(MessageType)
"""RocketMQ 5's attribute ``message.type``."""

SYS_FLAG_MAX = 3
"""RocketMQ's ``TopicSysFlag``: 1 unit, 2 subscribed by units."""


class TopicRow(NamedTuple):
    """A topic in the broker's list; ``messages`` are those that its queues hold.

    ``deduplication_window_ms``: how long unique ids count in it; 0: they do not.
    """

    topic: str
    read_queues: int
    write_queues: int
    perm: int
    system: bool
    messages: int
    deduplication_window_ms: int = 0


class TopicSettings(NamedTuple):
    """A topic as the table has it; ``perm`` are RocketMQ's bits (4 read, 2 write, 1 inherit).

    Attributes:
        order: it is an order topic: clients keep to its queues when a broker is away.
        order_config: what RocketMQ's name server keeps for it, empty when it is none.
        deduplication_window_ms: how long unique ids count; 0: they do not.
        warnings: what an operator should know.
        keep_ms: how old its messages get in sealed pieces; 0: as old as anything.
        keep_bytes: how much of it newer pieces have when older ones lose it; 0: it does not count.
        message_type: of which type its messages are; share groups get those of a topic of
            ``PRIORITY`` by their priority, and no other type changes anything.
        compact: sealed pieces keep the newest message of each key alone.
        receipts: of its messages receipts can be had.
    """

    topic: str
    read_queues: int
    write_queues: int
    perm: int
    order: bool
    filter_type: str
    sys_flag: int
    order_config: str
    warnings: tuple[str, ...]
    deduplication_window_ms: int = 0
    keep_ms: int = 0
    keep_bytes: int = 0
    message_type: str = "UNSPECIFIED"
    compact: bool = False
    receipts: bool = False


class QueueState(NamedTuple):
    """What one queue holds: offsets ``begin`` to ``end``, half-open.

    ``last_stored`` is the time of its last message, epoch ms, ``None`` without one.
    """

    queue: int
    begin: Annotated[int, Wire("min")]
    end: Annotated[int, Wire("max")]
    last_stored: Annotated[int | None, BELOW_0_IS_NONE]


class TopicState(NamedTuple):
    """A topic, its queues that ever had a message, and the groups that have consumed of it."""

    settings: TopicSettings
    system: bool
    queues: tuple[QueueState, ...]
    groups: tuple[str, ...]

    @property
    def messages(self) -> int:
        """What all its queues hold."""
        return sum(queue.end - queue.begin for queue in self.queues)


class ListTopics(PageVerb[TopicRow]):
    """Topics by name, those of the system too, and whether there are more behind them."""

    NAME: ClassVar = "topics"
    NEEDS: ClassVar = shown(USER)
    ROWS: ClassVar = "topics", TopicRow

    limit: Annotated[int | None, Bounds(1, TOPIC_ROWS_MAX)] = None
    after: str | None = None


class ShowTopic(Verb[TopicState]):
    """One topic: its settings, its queues, who has consumed of it.

    Raises:
        TopicUnknownError: there is none.
    """

    NAME: ClassVar = "topic_show"
    NEEDS: ClassVar = shown(topic_right(ANY))

    topic: TopicName

    @classmethod
    def shape(cls) -> Mapping[str, str]:
        """Those of the settings, and beside them the other fields."""
        others = {"system": "boolean", "queues": "array", "groups": "array"}
        return {**shape_of(TopicSettings), **others}

    def told(self, answer: Fields) -> TopicState:
        queues = rows(answer, "queues", lambda row: read_row(QueueState, row))
        return TopicState(
            read_row(TopicSettings, answer),
            answer.get("system") is True,
            tuple(queues),
            texts(answer, "groups"),
        )

    def document(self, told: TopicState) -> Json:
        """Its settings, and beside them the other fields."""
        shown: Json = as_json(told)
        settings = as_json(told.settings)
        return {**settings, **{name: one for name, one in shown.items() if name != "settings"}}


@dataclass(eq=False, repr=False, kw_only=True)
class TopicFields:
    """What can be said of a topic; ``None`` is as left out."""

    queues: Annotated[int | None, Bounds(1, QUEUE_ID_MAX), "For reading and writing"] = None
    read_queues: Annotated[int | None, Bounds(1, QUEUE_ID_MAX), "For reading", Typed(None)] = None
    write_queues: Annotated[int | None, Bounds(1, QUEUE_ID_MAX), "For writing", Typed(None)] = None
    perm: Annotated[
        int | None,
        Bounds(0, PERMISSION_MAX),
        "RocketMQ's bits: 4 read, 2 write, 1 inherit",
        Typed("rw, r, w, none, or RocketMQ's number"),
    ] = None
    order: Annotated[bool | None, "An order topic"] = None
    filter_type: Annotated[Literal["SINGLE_TAG", "MULTI_TAG"] | None, "Of tags", Typed(None)] = None
    sys_flag: Annotated[int | None, Bounds(0, SYS_FLAG_MAX), "RocketMQ's topicSysFlag"] = None
    deduplication_window_ms: Annotated[
        int | None,
        Bounds(0, DEDUPLICATION_WINDOW_MS_MAX),
        "How long unique ids count; 0: they do not",
        Typed("store no second message of a unique id within so long: 90s, 10m, 12h, off"),
    ] = None
    keep_ms: Annotated[
        int | None,
        Bounds(0, KEEP_MS_MAX),
        "How old messages get in sealed pieces; 0: as old as anything",
        Typed("how old messages get in sealed pieces: 12h, 30d, 2y, off"),
    ] = None
    keep_bytes: Annotated[
        int | None,
        Bounds(0, KEEP_BYTES_MAX),
        "How much newer pieces have of it when older ones lose it; 0: that does not count",
        Typed("how much of it stays in sealed pieces: 500GiB, off"),
    ] = None
    message_type: Annotated[
        MessageType | None, "Of its messages: PRIORITY has share groups take the highest first"
    ] = None
    compact: Annotated[
        bool | None, "Sealed pieces keep the newest message of each key of a queue alone"
    ] = None
    receipts: Annotated[bool | None, "Of its messages receipts can be had, from now on"] = None

    def __post_init__(self) -> None:
        for name in ("read_queues", "write_queues"):
            if self.queues is not None and getattr(self, name) is not None:
                raise ConfigError(
                    f"queues and {name} were both given: queues is both kinds",
                    queues=self.queues, **{name: getattr(self, name)},
                )  # fmt: skip


class CreateTopic(TopicFields, Verb[TopicSettings]):
    """Create a topic; producers can send to it on return. One that is there already grows.

    Args:
        queues: for reading and writing; 8 when nothing is given.
        perm: RocketMQ's bits: 4 read, 2 write, 1 inherit. 6 when left out.
        order: an order topic.
        filter_type: ``SINGLE_TAG`` or ``MULTI_TAG``.
        sys_flag: RocketMQ's ``topicSysFlag``.
        deduplication_window_ms: for so long a message is not stored a second time that has the
            unique id of one that is; 0, as when left out: it always is.
        keep_ms: how old its messages get in sealed pieces; 0, as when left out: as old as
            anything.
        keep_bytes: how much newer pieces have of it when older ones lose it; 0, as when left out:
            that does not count.
        message_type: RocketMQ 5's attribute; of a topic of ``PRIORITY`` share groups get the
            messages of the highest priority first. No other type changes anything here.
        compact: sealed pieces keep the newest message of each key of a queue alone; one without a
            body ends its key.
        receipts: of its messages receipts can be had (``ledgermq receipt``), from now on.

    Raises:
        MessageIllegalError: the name or a number breaks a rule, or there is another topic.
        NoPermissionError: the name is reserved for the broker.
    """

    NAME: ClassVar = "topic_create"
    NEEDS: ClassVar = CHANGE
    ROW: ClassVar = TopicSettings

    topic: TopicName


class AlterTopic(TopicFields, Verb[TopicSettings]):
    """Change what is given. Fewer queues: first ``write_queues``, then ``read_queues``.

    Args:
        force: take queues from readers although they hold messages that are not consumed.

    Raises:
        TopicUnknownError: there is no such topic.
        MessageIllegalError: a number breaks a rule, or messages would be out of reach.
        NoPermissionError: it is the broker's own.
    """

    NAME: ClassVar = "topic_alter"
    NEEDS: ClassVar = CHANGE
    ROW: ClassVar = TopicSettings

    topic: TopicName
    _: KW_ONLY
    force: Annotated[
        bool,
        "Take queues from readers all the same",
        Typed("take queues from readers, whatever they hold"),
    ] = False


class DeleteTopic(DoneVerb):
    """Delete a topic, and what groups have consumed of it; it takes no messages on return.

    Raises:
        TopicUnknownError: there is no such topic.
        NoPermissionError: it is the broker's own.
    """

    NAME: ClassVar = "topic_delete"
    NEEDS: ClassVar = CHANGE
    DONE: ClassVar = "deleted", "topic"

    topic: TopicName
