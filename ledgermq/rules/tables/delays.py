"""Delay table: how far each delay level is delivered; RocketMQ's ``config/delayOffset.json``.

The document is ``{"offsetTable": {LEVEL: OFFSET}}``; level L is queue L - 1 of the topic. Ours has
the table of moves beside it, which RocketMQ drops when it writes the file: then the levels are
where RocketMQ left them.
"""

from __future__ import annotations

from typing import Self

from ledgermq.formats.config_json import whole_number, with_field_names
from ledgermq.model.limits import DELAY_TOPIC
from ledgermq.model.names.queue_name import QueueName
from ledgermq.rules.tables.documents import Document, cast_integer, read_table
from ledgermq.rules.tables.moves import MoveTable, Source

FILE = "delayOffset.json"
TOPIC = DELAY_TOPIC

_LEVELS = "offsetTable"


class DelayTable(MoveTable):
    """The table of moves of RocketMQ's delay topic."""

    file = FILE
    key = "ledgermqMoves"
    is_own = False

    @classmethod
    def has(cls, topic: str) -> bool:
        return topic == TOPIC

    @classmethod
    def read(cls, document: Document) -> Self:
        if cls.key in document:
            return super().read(document)
        table = cls()
        document = with_field_names(document, frozenset({_LEVELS}))
        levels = read_table(document, _LEVELS, file=FILE)
        for level in levels:
            offset = cast_integer(levels, level, 0, file=FILE, owner=_LEVELS)
            try:
                number = whole_number(level) or 0
            except ValueError:
                number = 0
            # What is no level means nothing to RocketMQ, either.
            if number > 0:
                table._sources[QueueName(TOPIC, number - 1)] = Source(offset)
        return table

    def to_document(self) -> dict[str, object]:
        """The document to write; RocketMQ that goes on from it may repeat, and misses nothing."""
        levels = {queue.queue_id + 1: source.safe_offset for queue, source in sorted(self)}
        return {_LEVELS: levels, self.key: self.to_table()}
