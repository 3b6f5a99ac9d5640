"""Messages of an old log behind a place up to which another site has copied it, queue by queue."""

from __future__ import annotations

from typing import NamedTuple

from ledgermq.model.errors import ConfigError
from ledgermq.model.ids import Index, Position, Term
from ledgermq.model.names.queue_name import QueueName
from ledgermq.store.log_reader import LogReader


class CopyEnd(NamedTuple):
    """The last entry of a copy: where it begins and ends, its numbers, and its chain of CRCs."""

    begin: Position
    end: Position
    index_: Index
    term: Term
    chain: int


class MissingQueue(NamedTuple):
    """Messages of one queue that the copy lacks.

    Attributes:
        first, last: queue offsets, both included.
        messages: how many.
        uncertain: of them behind what the store says is committed: perhaps never acknowledged.
    """

    queue: QueueName
    first: int
    last: int
    messages: int
    uncertain: int


class Missing(NamedTuple):
    """What a copy lacks of a log.

    Attributes:
        queues: those with messages that are missing, by name.
        begin, end: positions of the log that are missing.
    """

    queues: list[MissingQueue]
    begin: Position
    end: Position


def missing_behind(reader: LogReader, copy: CopyEnd) -> Missing:
    """All messages of the log that a copy lacks which ends there.

    Raises:
        ConfigError: the log has not that entry, so the copy is none of it.
        CorruptLogError: the log is not whole.
        StorageError: it cannot be read.
    """
    _check_same(reader, copy)
    certain = reader.committed_end()
    found: dict[QueueName, MissingQueue] = {}
    for record in reader.iterate(copy.end):
        message = record.message
        queue = QueueName(message.topic, message.queue_id)
        is_uncertain = record.position >= certain
        known = found.get(queue)
        if known is None:
            offset = message.queue_offset
            found[queue] = MissingQueue(queue, offset, offset, 1, int(is_uncertain))
        else:
            found[queue] = known._replace(
                last=message.queue_offset,
                messages=known.messages + 1,
                uncertain=known.uncertain + is_uncertain,
            )
    return Missing([found[queue] for queue in sorted(found)], copy.end, reader.end)


def _check_same(reader: LogReader, copy: CopyEnd) -> None:
    """Refuse a log of which the copy is none."""
    if not reader.first <= copy.begin < copy.end <= reader.end:
        raise ConfigError(
            "the log does not have the place where the copy ends: it is another one, or begins"
            " behind it",
            begin=reader.first,
            end=reader.end,
            copy_end=copy.end,
        )
    header = next(reader.iterate(copy.begin, copy.end)).header
    found = None if header is None else (header.index, header.term, header.chain_crc)
    if found != (copy.index_, copy.term, copy.chain):
        raise ConfigError(
            "the log has another entry where the copy ends: the copy is none of it",
            position=copy.begin,
            found=found,
            expected=(copy.index_, copy.term, copy.chain),
        )
