"""Tables of the broker out of pieces: as of any moment, by the log's own snapshots and commands."""

from __future__ import annotations

from ledgermq.formats.config_json import encode_document
from ledgermq.formats.records.message import decode_message
from ledgermq.formats.records.properties import TAGS, decode_properties
from ledgermq.model.errors import MessageUnknownError
from ledgermq.model.names.system_topics import PART_PROPERTY
from ledgermq.pipeline.pieces.cold_queues import ColdQueues
from ledgermq.pipeline.pieces.moments import Moment, snapshots_before, state_records
from ledgermq.pipeline.pieces.piece_file import PieceRecord
from ledgermq.pipeline.pieces.piece_places import place_at
from ledgermq.pipeline.pieces.piece_repository import PieceRepository
from ledgermq.rules.state.state_tables import OWN_FILES
from ledgermq.rules.state.tables_as_of import StateMessage, TablesAsOf, no_snapshot, replayed


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
