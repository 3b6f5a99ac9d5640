"""Consumed offsets of each group and queue; RocketMQ's ``config/consumerOffset.json``.

The table is ``{"offsetTable": {"topic@group": {queue: offset}}}``. An offset is that of the next
message to consume, so it may be the queue's end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import NamedTuple, Self

from ledgermq.formats.config_json import (
    OFFSET_TABLE,
    OFFSETS_FILE,
    Rows,
    whole_number,
    with_field_names,
)
from ledgermq.model.errors import ConfigError, MessageIllegalError
from ledgermq.rules.tables.documents import ROWS_PER_STEP, Document, Steps, finish, read_table
from ledgermq.rules.tables.share_changes import ShareChanged
from ledgermq.rules.tables.table import Table
from ledgermq.rules.tables.table_changes import OffsetsSet

SEPARATOR = "@"


class GroupTopic(NamedTuple):
    """Whose offsets, and of what."""

    group: str
    topic: str

    @property
    def key(self) -> str:
        """Key in RocketMQ's table."""
        return f"{self.topic}{SEPARATOR}{self.group}"


class GroupOffsets(Table[OffsetsSet | ShareChanged]):
    """The offsets of all groups; of a share group the lowest that is not settled.

    Invariant: ``_topics`` has the topics of each group in ``_table``, ``_groups`` the groups of
    each topic, and neither has anything else.
    """

    file = OFFSETS_FILE
    takes = (OffsetsSet, ShareChanged)
    is_own = is_younger = False

    def __init__(self) -> None:
        super().__init__()
        self._table: dict[GroupTopic, dict[int, int]] = {}
        # There may be thousands of either, and lists of all ask for each.
        self._topics: dict[str, set[str]] = {}
        self._groups: dict[str, set[str]] = {}
        self._unknown_keys: dict[str, object] = {}
        self._unknown: dict[str, object] = {}

    @classmethod
    def read(cls, document: Document) -> Self:
        """The table in the document of ``consumerOffset.json``.

        A key that is not ``topic@group`` is kept, and means nothing to us.

        Raises:
            ConfigError: an offset or a queue is not an integer; names the key.
        """
        return finish(cls.read_in_steps(document))

    @classmethod
    def read_in_steps(cls, document: Document) -> Steps[Self]:
        offsets = cls()
        document = with_field_names(document, frozenset({OFFSET_TABLE}))
        rows = read_table(document, OFFSET_TABLE, file=OFFSETS_FILE).items()
        for number, (key, value) in enumerate(rows, 1):
            if number % ROWS_PER_STEP == 0:
                yield
            topic, separator, group = key.partition(SEPARATOR)
            if not (topic and separator and group) or SEPARATOR in group:
                offsets._unknown_keys[key] = value
            else:
                offsets._put(GroupTopic(group, topic), _read_queues(key, value))
        offsets._unknown = {key: document[key] for key in document.keys() - {OFFSET_TABLE}}
        return offsets

    def to_document(self) -> dict[str, object]:
        """The document to write to ``consumerOffset.json``; its queues are numbers, not text."""
        table: dict[str, object] = {
            owner.key: dict(sorted(queues.items())) for owner, queues in self._table.items()
        }
        return {OFFSET_TABLE: {**table, **self._unknown_keys}, **self._unknown}

    def to_document_later(self) -> dict[str, object]:
        known = list(self._table.items())
        rows = ((owner.key, dict(sorted(queues.items()))) for owner, queues in known)
        return {OFFSET_TABLE: Rows(chain(rows, list(self._unknown_keys.items()))), **self._unknown}

    def __iter__(self) -> Iterator[tuple[GroupTopic, Mapping[int, int]]]:
        return iter(self._table.items())

    def of_topic(self, topic: str) -> list[tuple[GroupTopic, Mapping[int, int]]]:
        """Whose offsets of ``topic`` are known, by group."""
        owners = (GroupTopic(group, topic) for group in sorted(self._groups.get(topic, ())))
        return [(owner, self._table[owner]) for owner in owners]

    def of_group(self, group: str) -> list[tuple[GroupTopic, Mapping[int, int]]]:
        """Topics of which offsets of ``group`` are known, with these offsets by queue; ordered by
        topic.
        """
        owners = (GroupTopic(group, topic) for topic in sorted(self._topics.get(group, ())))
        return [(owner, self._table[owner]) for owner in owners]

    def groups(self) -> Iterable[str]:
        """The groups of which offsets are known, in no order."""
        return self._topics.keys()

    def offsets(self, group: str, topic: str) -> dict[int, int]:
        """Committed offset by queue; a queue that was never committed is left out."""
        return dict(self._table.get(GroupTopic(group, topic), {}))

    def offset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Committed offset of one queue; None when it was never committed."""
        owned = self._table.get(GroupTopic(group, topic))
        return None if owned is None else owned.get(queue_id)

    def check(
        self,
        group: str,
        topic: str,
        offsets: Mapping[int, int],
        *,
        ends: Mapping[int, int],
        may_go_back: bool = False,
    ) -> bool:
        """Whether ``offsets`` would change what is known of a group; refuses what makes no sense.

        Args:
            ends: the end of each queue in ``offsets``, the largest offset that makes sense.
            may_go_back: the caller wants to consume again what it has consumed.

        Raises:
            MessageIllegalError: an offset is negative, behind its queue's end, or below what is
                committed without ``may_go_back`` (a late commit of a consumer that has lost the
                queue would otherwise take back the work of the next one).
        """
        stored = self._table.get(GroupTopic(group, topic), {})
        for queue, offset in offsets.items():
            where = {"group": group, "topic": topic, "queue": queue, "offset": offset}
            # What was committed before stays valid when the queue's end is not known again yet.
            end = max(ends[queue], stored.get(queue, 0))
            if not 0 <= offset <= end:
                raise MessageIllegalError("offset outside of the queue", **where, end=end)
            if offset < stored.get(queue, 0) and not may_go_back:
                raise MessageIllegalError(
                    "offset is below the committed one, and going back was not asked for",
                    **where,
                    committed=stored[queue],
                )
        return {**stored, **offsets} != stored

    def apply(self, change: OffsetsSet | ShareChanged, _place: int, _at_ms: int, /) -> None:
        offsets = change.lows if isinstance(change, ShareChanged) else change.offsets
        self.set(change.group, change.topic, offsets)

    def set(self, group: str, topic: str, offsets: Mapping[int, int] | None) -> bool:
        """Know ``offsets`` from now on, or forget all of group and topic; true for a change."""
        owner = GroupTopic(group, topic)
        stored = self._table.get(owner, {})
        merged = {} if offsets is None else {**stored, **offsets}
        if merged == stored:
            return False
        if merged:
            self._put(owner, merged)
        else:
            self._remove(owner)
        self.revision += 1
        return True

    def _put(self, owner: GroupTopic, queues: dict[int, int]) -> None:
        if owner not in self._table:
            self._topics.setdefault(owner.group, set()).add(owner.topic)
            self._groups.setdefault(owner.topic, set()).add(owner.group)
        self._table[owner] = queues

    def _remove(self, owner: GroupTopic) -> None:
        del self._table[owner]
        _discard(self._topics, owner.group, owner.topic)
        _discard(self._groups, owner.topic, owner.group)

    def replace_with(self, other: GroupOffsets) -> None:
        self._table, self._unknown = other._table, other._unknown
        self._topics, self._groups = other._topics, other._groups
        self._unknown_keys = other._unknown_keys
        self.revision += 1


def _discard(index: dict[str, set[str]], key: str, name: str) -> None:
    names = index[key]
    names.remove(name)
    if not names:
        del index[key]


def _read_queues(key: str, value: object) -> dict[int, int]:
    """Offsets by queue; one below 0 means nothing to anybody."""
    if not isinstance(value, Mapping):
        raise ConfigError("offsets are not a JSON object", file=OFFSETS_FILE, key=key)
    queues: dict[int, int] = {}
    for name, offset in value.items():
        try:
            queue, number = whole_number(str(name)), whole_number(offset)
        except ValueError:
            queue = number = None
        if queue is None or number is None:
            raise ConfigError(
                "not a queue and its offset",
                file=OFFSETS_FILE,
                key=key,
                queue=str(name),
                offset=offset,
            )
        if queue >= 0:
            queues[queue] = number
    return queues
