"""Delay table: how far each delay level is delivered; RocketMQ's ``config/delayOffset.json``.

The document is ``{"offsetTable": {LEVEL: OFFSET}}``; level L is queue L - 1 of the topic. Ours has
the table of moves beside it, which RocketMQ drops when it writes the file: then the levels are
where RocketMQ left them.
"""

from __future__ import annotations

from typing import Self

from ledgermq.broker.documents import Document, read_integer, read_table
from ledgermq.broker.moves import MoveTable, Source
from ledgermq.model.limits import DELAY_TOPIC
from ledgermq.model.queue_name import QueueName

FILE = "delayOffset.json"
TOPIC = DELAY_TOPIC

_LEVELS = "offsetTable"
_MOVES = "ledgermqMoves"


class DelayTable(MoveTable):
    """The table of moves of RocketMQ's delay topic."""

    @classmethod
    def read(cls, document: Document, *, file: str = FILE, key: str = _MOVES) -> Self:
        """The table in the document of ``delayOffset.json``.

        Raises:
            ConfigError: an offset is none; names the level.
        """
        if key in document:
            return super().read(document, file=file, key=key)
        table = cls()
        levels = read_table(document, _LEVELS, file=file)
        for level in levels:
            offset = read_integer(levels, level, 0, file=file, owner=_LEVELS)
            # A name that is no level means nothing to RocketMQ, either.
            if level.isdecimal() and int(level) > 0:
                table._sources[QueueName(TOPIC, int(level) - 1)] = Source(offset)
        return table

    def to_document(self) -> dict[str, object]:
        """The document to write; RocketMQ that goes on from it may repeat, and misses nothing."""
        levels = {queue.queue_id + 1: source.safe_offset for queue, source in sorted(self)}
        return {_LEVELS: levels, _MOVES: self.to_table()}
