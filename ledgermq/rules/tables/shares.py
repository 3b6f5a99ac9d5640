"""Share groups: what each has taken and not settled, by queue. ``ROOT/ledgermq/share-groups.json``:

    {"shares": {"TOPIC@GROUP": {ID: {"next": N, "runs": [[GAP, COUNT, MS, DELIVERY, MARK], ...]}}},
     "owners": {GROUP: OWNER}}

with runs as in a command (``share_changes``), their times from epoch on. A group that has a row
takes messages singly; where it is in ``consumerOffset.json`` is the lowest that is not settled.
Its owner is who has taken of it last; nobody is told where no bound holds for that one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Self

from ledgermq.formats.config_json import Rows
from ledgermq.model.errors import ConfigError, CorruptLogError, GroupActiveError
from ledgermq.model.names.queue_name import QueueName
from ledgermq.rules.tables.documents import ROWS_PER_STEP, Document, Steps, finish, read_table
from ledgermq.rules.tables.group_offsets import GroupTopic
from ledgermq.rules.tables.share_changes import (
    Run,
    ShareChanged,
    ShareEnded,
    read_owner,
    read_runs,
    write_runs,
)
from ledgermq.rules.tables.share_queue import ShareQueue
from ledgermq.rules.tables.table import Table
from ledgermq.rules.tables.table_changes import GroupSet, OffsetsSet, TopicSet

FILE = "share-groups.json"
_TABLE = "shares"
_OWNERS = "owners"

Taken = ShareChanged | ShareEnded | OffsetsSet | GroupSet | TopicSet
_Queues = dict[int, ShareQueue]


class ShareTable(Table[Taken]):
    """The queues of all share groups.

    Invariants: ``_unsettled`` counts what the queues of each group have, ``_topics`` has the topics
    of each group in ``_rows``; ``_owners`` are of groups in it, and ``_owned`` has those of each.

    Attributes:
        unsettled: messages of all groups that were handed out and are not settled.
    """

    file = FILE
    takes = (ShareChanged, ShareEnded, OffsetsSet, GroupSet, TopicSet)

    def __init__(self) -> None:
        super().__init__()
        self.unsettled = 0
        self._rows: dict[GroupTopic, _Queues] = {}
        self._topics: dict[str, set[str]] = {}
        self._unsettled: Counter[str] = Counter()
        self._owners: dict[str, str] = {}
        self._owned: dict[str, set[str]] = {}

    @classmethod
    def read(cls, document: Document) -> Self:
        return finish(cls.read_in_steps(document))

    @classmethod
    def read_in_steps(cls, document: Document) -> Steps[Self]:
        table = cls()
        rows = read_table(document, _TABLE, file=FILE)
        for number, key in enumerate(rows, 1):
            if number % ROWS_PER_STEP == 0:
                yield
            topic, at, group = key.partition("@")
            if not (topic and at and group):
                raise ConfigError("not a topic and a group", file=FILE, key=key)
            queues = table._of(GroupTopic(group, topic))
            for queue, row in read_table(rows, key, file=FILE).items():
                if not queue.isdecimal():
                    raise ConfigError("not a queue", file=FILE, key=key, queue=queue)
                queues[int(queue)] = _read_queue(row, key)
            table._count(group, sum(one.unsettled for one in queues.values()))
        try:
            for group, owner in read_table(document, _OWNERS, file=FILE).items():
                table._own(group, read_owner(owner, group))
        except CorruptLogError as error:
            raise ConfigError("not an owner", file=FILE, **error.details) from None
        return table

    def to_document(self) -> dict[str, object]:
        return {
            _TABLE: {owner.key: _written(_copied(of)) for owner, of in sorted(self._rows.items())},
            _OWNERS: dict(sorted(self._owners.items())),
        }

    def to_document_later(self) -> dict[str, object]:
        # Queues change in place: what another thread is to write is copied now.
        present = [(owner.key, _copied(of)) for owner, of in self._rows.items()]
        rows = Rows((key, _written(of)) for key, of in present)
        return {_TABLE: rows, _OWNERS: dict(sorted(self._owners.items()))}

    def __iter__(self) -> Iterator[tuple[GroupTopic, Mapping[int, ShareQueue]]]:
        return iter(self._rows.items())

    def queues(self, group: str, topic: str) -> Mapping[int, ShareQueue]:
        """The queues of a topic that a share group has taken messages of."""
        return self._rows.get(GroupTopic(group, topic), {})

    def topics(self, group: str) -> list[str]:
        """The topics that a group takes messages of singly, ordered; none: it is no share group."""
        return sorted(self._topics.get(group, ()))

    def unsettled_of(self, group: str) -> int:
        """Messages of a group that were handed out and are not settled."""
        return self._unsettled[group]

    def owner_of(self, group: str) -> str:
        """Who has taken messages of a group last; empty: one for whom no bound holds, or nobody."""
        return self._owners.get(group, "")

    def unsettled_by(self, owner: str) -> int:
        """Messages of all groups of one owner that were handed out and are not settled."""
        return sum(self._unsettled[group] for group in self._owned.get(owner, ()))

    def check_queue_by_queue(self, group: str, topic: str | None = None) -> None:
        """Refuse to consume queue by queue what is handed out singly.

        Args:
            topic: it alone is to be consumed so; None: any.

        Raises:
            GroupActiveError: it is a share group, of that topic.
        """
        of = self._topics.get(group, ())
        if of and (topic is None or topic in of):
            raise GroupActiveError(
                "group is a share group: take another one, or see `ledgermq share end`",
                group=group,
            )

    def begin_again(self, group: str, queue: QueueName, offset: int) -> None:
        """What was taken of a queue from ``offset`` on is over: nobody was given it yet."""
        queues = self._rows[GroupTopic(group, queue.topic)]
        self._count(group, -queues[queue.queue_id].unsettled)
        queues[queue.queue_id] = ShareQueue(offset)
        self.revision += 1

    def apply(self, change: Taken, _place: int, _at_ms: int, /) -> None:
        if isinstance(change, ShareChanged):
            self._change(change)
        elif isinstance(change, ShareEnded):
            self._drop(GroupTopic(change.group, change.topic))
        elif isinstance(change, OffsetsSet):
            self._reset(change)
        elif change.fields is None:
            is_of = (lambda owner: owner.group) if isinstance(change, GroupSet) else _topic_of
            for owner in [one for one in self._rows if is_of(one) == change.name]:
                self._drop(owner)

    def replace_with(self, other: Self) -> None:
        # Below its level there is none, and no file is to be written.
        self.revision += bool(self._rows or other._rows)
        self._rows, self._topics = other._rows, other._topics
        self._unsettled, self.unsettled = other._unsettled, other.unsettled
        self._owners, self._owned = other._owners, other._owned

    def _change(self, change: ShareChanged) -> None:
        queues = self._of(GroupTopic(change.group, change.topic))
        for queue_id, low in change.lows.items():
            queue = queues.get(queue_id)
            if queue is None:
                queue = queues[queue_id] = ShareQueue(low)
            before = queue.unsettled
            for span in change.settled.get(queue_id, ()):
                queue.settle(span.first, span.length)
            for run in change.runs.get(queue_id, ()):
                queue.put(run)
            self._count(change.group, queue.unsettled - before)
        if change.taken_by is not None:
            self._own(change.group, change.taken_by)
        self.revision += 1

    def _reset(self, change: OffsetsSet) -> None:
        """Another offset than low is an operator's: what was taken of the queue is over."""
        owner = GroupTopic(change.group, change.topic)
        queues = self._rows.get(owner)
        if queues is None:
            return
        if change.offsets is None:
            self._drop(owner)
            return
        for queue_id, offset in change.offsets.items():
            queue = queues.get(queue_id)
            if queue is not None and queue.low != offset:
                self.begin_again(change.group, QueueName(change.topic, queue_id), offset)

    def _of(self, owner: GroupTopic) -> _Queues:
        self._topics.setdefault(owner.group, set()).add(owner.topic)
        return self._rows.setdefault(owner, {})

    def _drop(self, owner: GroupTopic) -> None:
        queues = self._rows.pop(owner, None)
        if queues is None:
            return
        self._count(owner.group, -sum(queue.unsettled for queue in queues.values()))
        topics = self._topics[owner.group]
        topics.remove(owner.topic)
        if not topics:
            del self._topics[owner.group], self._unsettled[owner.group]
            self._own(owner.group, "")
        self.revision += 1

    def _own(self, group: str, owner: str) -> None:
        before = self._owners.pop(group, None)
        if before is not None:
            self._owned[before].remove(group)
            if not self._owned[before]:
                del self._owned[before]
        if owner and group in self._topics:
            self._owners[group] = owner
            self._owned.setdefault(owner, set()).add(group)

    def _count(self, group: str, more: int) -> None:
        self._unsettled[group] += more
        self.unsettled += more


def _topic_of(owner: GroupTopic) -> str:
    return owner.topic


def _copied(queues: _Queues) -> list[tuple[int, int, list[Run]]]:
    return [(number, queue.next, list(queue.runs)) for number, queue in sorted(queues.items())]


def _written(queues: list[tuple[int, int, list[Run]]]) -> dict[str, object]:
    return {
        str(number): {"next": next_offset, "runs": write_runs(runs)}
        for number, next_offset, runs in queues
    }


def _read_queue(value: object, key: str) -> ShareQueue:
    """The queue of a row.

    Raises:
        ConfigError: it is none.
    """
    if not isinstance(value, Mapping):
        raise ConfigError("not a JSON object", file=FILE, key=key)
    next_offset = value.get("next")
    if type(next_offset) is not int or next_offset < 0:
        raise ConfigError("not an offset", file=FILE, key=key, value=str(next_offset)[:100])
    try:
        queue = ShareQueue(0, read_runs(value.get("runs", []), key))
    except CorruptLogError as error:
        raise ConfigError("not what a share group has taken", file=FILE, **error.details) from None
    if queue.next > next_offset:
        raise ConfigError("taken behind the next offset", file=FILE, key=key, value=next_offset)
    queue.next = next_offset
    return queue
