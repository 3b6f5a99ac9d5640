"""Tables of the broker out of pieces: as of any moment, by the log's own snapshots and commands;
and out of the live log behind them, where a store is named.

They are those of the nearest snapshot before it, and all commands between. Each leader begins with
a snapshot of all tables (docs/decisions/0012), and takes others in a long term, so there is one not
far before any place. What stands before the snapshot is not asked for.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import NamedTuple

from ledgermq.daemon.backup_source import committed_position
from ledgermq.formats.config_json import encode_document
from ledgermq.formats.records.message import decode_message
from ledgermq.formats.records.properties import TAGS, decode_properties
from ledgermq.model.errors import ConfigError, LedgerError, MessageUnknownError, NewerVersionError
from ledgermq.model.names.system_topics import PART_PROPERTY
from ledgermq.pipeline.pieces.cold_queues import ColdQueues
from ledgermq.pipeline.pieces.live_place import LivePlace, told_end
from ledgermq.pipeline.pieces.moments import (
    Moment,
    moment_as_told,
    snapshots_before,
    state_records,
)
from ledgermq.pipeline.pieces.piece_file import PieceRecord
from ledgermq.pipeline.pieces.piece_places import place_at
from ledgermq.pipeline.pieces.piece_repository import PieceRepository
from ledgermq.pipeline.source.file_source import steady
from ledgermq.rules.state.broker_state import BrokerState
from ledgermq.rules.state.state_tables import OWN_FILES
from ledgermq.store.log_reader import LogReader
from ledgermq.store.store_directory import open_directory


class StateMessage(NamedTuple):
    """A message of the state's queue.

    Attributes:
        offset: in that queue.
        label: its property ``PART``; empty without one.
        body: as stored.
    """

    offset: int
    tag: str
    label: str
    body: bytes


class TablesAsOf(NamedTuple):
    """All tables, and which messages of the state's queue they are made of.

    Attributes:
        snapshot: queue offset where the snapshot begins.
        applied: behind the last message that is in them.
    """

    state: BrokerState
    snapshot: int
    applied: int


def replayed(messages: Iterable[StateMessage], snapshot: int) -> TablesAsOf | None:
    """The tables after ``messages``, which begin where a snapshot does; None where that is not
    whole, because they end in its middle, or its leader did.

    A command that cannot be applied changes nothing, as on every node.

    Raises:
        NewerVersionError: a newer version wrote one of them.
    """
    state = BrokerState({})
    state.begin_at(snapshot, snapshot)
    # What is before counts as missing, also where the queue's first message is the snapshot's.
    state.needs_snapshot = True
    applied = snapshot
    for message in messages:
        try:
            state.apply(message.offset, message.tag, message.label, message.body)
        except NewerVersionError:
            raise
        except LedgerError:
            state.pass_over(message.offset)
        applied = message.offset + 1
    return TablesAsOf(state, snapshot, applied) if state.snapshots else None


def no_snapshot(snapshots: Sequence[int]) -> MessageUnknownError:
    """The error where no snapshot that is whole stands before the place that is asked for."""
    return MessageUnknownError(
        "no snapshot of the broker's tables is that old: the first moment is later",
        first_snapshot=snapshots[0] if snapshots else None,
    )


AS_OF = "--as-of"


@contextmanager
def queues_then(arguments: argparse.Namespace) -> Iterator[tuple[ColdQueues, Moment]]:
    """The queues of a place of pieces, with a store's log behind them where the options name one,
    and the moment that they say.

    Raises:
        ConfigError: the options name no moment, or nothing goes so far, or the store is another
            log's.
        CorruptLogError, StorageError: pieces or log cannot be read.
    """
    place = place_at(arguments.place)
    queues = ColdQueues(place, is_sealed=True)
    if arguments.store is None:
        if arguments.runtime_dir is not None or arguments.self_id is not None:
            raise ConfigError("--runtime-dir and --self-id are of a store: say --store DIR")
        yield moment_as_told(queues, arguments.as_of, option=AS_OF)
        return
    directory = open_directory(arguments.store, self_id=arguments.self_id)
    runtime = arguments.runtime_dir

    def committed(reader: LogReader) -> int:
        return told_end(reader) if runtime is None else committed_position(directory, runtime)

    with closing(steady(lambda: LogReader(directory))) as reader:
        live = LivePlace(place, reader, committed)
        yield moment_as_told(queues, arguments.as_of, option=AS_OF, live=live)


def tables_at(queues: ColdQueues, moment: Moment) -> TablesAsOf:
    """The broker's tables at a moment: those of the last snapshot before it that is whole, and the
    commands between.

    Raises:
        CorruptLogError, StorageError: a piece cannot be read.
        MessageUnknownError: the pieces begin later.
        NewerVersionError: a newer version wrote a command.
    """
    snapshots = snapshots_before(queues, moment)
    for first in reversed(snapshots):
        records = state_records(queues, first, moment)
        found = replayed(map(_state_message, records), first)
        if found is not None:
            return found
    raise no_snapshot(snapshots)


def repository_at(place: str, key: bytes | None) -> PieceRepository:
    """A place of pieces, by its name, as a repository that a store can be restored from.

    Raises:
        ConfigError, CorruptLogError, StorageError: as ``PieceRepository``.
    """
    return PieceRepository(place_at(place), key, tables_of=_documents_at)


def _documents_at(queues: ColdQueues, moment: Moment) -> dict[str, bytes] | None:
    try:
        found = tables_at(queues, moment)
    except MessageUnknownError:
        return None
    return {
        f"{'ledgermq' if file in OWN_FILES else 'config'}/{file}": encode_document(document)
        for file, document in found.state.documents().items()
    }


def _state_message(found: tuple[int, PieceRecord]) -> StateMessage:
    offset, record = found
    message = decode_message(memoryview(record.record))
    properties = decode_properties(message.properties)
    tag, label = properties.get(TAGS, ""), properties.get(PART_PROPERTY, "")
    return StateMessage(offset, tag, label, bytes(message.body))
