"""Messages of an old log behind a place up to which another site has copied it, queue by queue."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from ledgermq.formats.dledger_entry import HEADER_SIZE
from ledgermq.formats.records.message import TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from ledgermq.model.errors import ConfigError, CorruptLogError
from ledgermq.model.ids import NO_INDEX, Index, Position, Term
from ledgermq.model.names.queue_name import QueueName
from ledgermq.store.files.properties_file import decode_dledger_checkpoint
from ledgermq.store.files.small_file import read_file
from ledgermq.store.log.entry_files import EntryFiles, file_size_in
from ledgermq.store.log_reader import LogReader

_WITHOUT_UNIT = (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK)
"""Types of a transaction's messages that are in no queue; RocketMQ once noted them so, and their
offset says nothing."""


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
    check_same(reader, copy)
    certain = reader.committed_end()
    found: dict[QueueName, MissingQueue] = {}
    for record in reader.iterate(copy.end):
        message = record.message
        if message.transaction in _WITHOUT_UNIT:
            continue
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


def check_same(reader: LogReader, copy: CopyEnd) -> None:
    """Refuse a log of which the copy is none.

    Raises:
        ConfigError: the log has not the copy's last entry, or does not go back so far.
        StorageError: it cannot be read.
    """
    if not reader.first <= copy.begin < copy.end <= reader.end:
        raise ConfigError(
            "the log does not have the place where the copy ends: it is another one, or begins"
            " behind it",
            begin=reader.first,
            end=reader.end,
            copy_end=copy.end,
        )
    try:
        record = next(reader.iterate(copy.begin, copy.end), None)
    except CorruptLogError:
        # Entries that were never committed may end elsewhere.
        record = None
    header = None if record is None else record.header
    found = None if header is None else (header.index, header.term, header.chain_crc)
    if found != (copy.index_, copy.term, copy.chain):
        raise ConfigError(
            "the log has another entry where the copy ends: the copy is none of it",
            position=copy.begin,
            found=found,
            expected=(copy.index_, copy.term, copy.chain),
        )


def common_end(reader: LogReader, copy: CopyEnd, end: Index | None = None) -> CopyEnd:
    """The last entry that the log and a copy of its group certainly both have.

    The copy's own last one; of a member that was behind it, and may have entries there that were
    never committed, what the store says is committed, for that is the same on all.

    Args:
        end: the log's last entry, where what the store says may be more than that.

    Raises:
        ConfigError: the copy is none of this log.
        CorruptLogError, StorageError: the log or what says so cannot be read.
    """
    try:
        check_same(reader, copy)
    except ConfigError:
        last = last_committed(reader, end)
        # A later term is that of another group that was made of the same log.
        if last is None or last.end > copy.begin or last.term > copy.term:
            raise
        return last
    return copy


def last_committed(reader: LogReader, end: Index | None) -> CopyEnd | None:
    """The last entry that the store says is committed; None where it says so of none.

    Args:
        end: the log's last entry, where what the store says may be more than that.

    Raises:
        CorruptLogError, StorageError: the log or what says so cannot be read.
    """
    folder = reader.directory.dledger
    content = None if folder is None else read_file(folder / "checkpoint")
    if folder is None or content is None:
        return None
    told = decode_dledger_checkpoint(content, file=str(folder / "checkpoint")).committed
    index = told if end is None else min(told, end)
    if index == NO_INDEX:
        return None
    begin = entry_begin(folder, index)
    record = next(reader.iterate(begin), None)
    if record is None or record.header is None:
        return None
    header = record.header
    size = HEADER_SIZE + record.message.size
    return CopyEnd(begin, Position(begin + size), header.index, header.term, header.chain_crc)


def entry_begin(dledger: Path, index: Index) -> Position:
    """Where an entry of the log in the folder ``dledger`` begins, by its index item.

    Raises:
        CorruptLogError: there is no item of it.
        StorageError: the files cannot be read.
    """
    data, items = dledger / "data", dledger / "index"
    files = EntryFiles(
        data, items, file_size=file_size_in(data, 0), index_file_size=file_size_in(items, 0)
    )
    try:
        return Position(int(files.items(index, index)[0]["position"]))
    finally:
        files.forget()
