"""Notes of messages that were dropped one by one: which they were, and that nothing else is
missing.

    PLACE/notes/START-END.EDITION    what the run EDITION has dropped of a piece

A note is a checked document. By topic it has two digests, of all the topic's records in the piece
before and after: of the positions in ascending order, each of 8 bytes, big-endian, with the
BLAKE2b-256 of the record's bytes in the log behind it. Of messages that an operator has deleted it
has the position, queue, offset and digest of each: with the records that are left they make the
digest before, so nothing else has gone or changed, and whoever has a copy of a message can show
that it was among them. What compaction dropped is counted alone.

The piece's footer has the digest of each of its notes, and the place none that no piece names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from itertools import pairwise
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ledgermq.formats.digest import DIGEST_SIZE, content_digest
from ledgermq.model.errors import CorruptLogError
from ledgermq.pipeline.pieces.log_columns import LOG_COLUMNS, log_bytes
from ledgermq.pipeline.pieces.piece_file import PieceFile
from ledgermq.pipeline.pieces.piece_footer import PieceNote
from ledgermq.pipeline.pieces.piece_manifest import PieceRow
from ledgermq.pipeline.pieces.piece_places import ReadPlace, note_name
from ledgermq.store.files.checked_document import decode_document, encode_document

_VERSION = 1


class NotedRecord(NamedTuple):
    """A record of a piece; ``digest`` is of its bytes in the log, its entry's header with them."""

    position: int
    queue_id: int
    queue_offset: int
    digest: str


class NotedTopic(NamedTuple):
    """What a run has dropped of a topic in a piece.

    Attributes:
        before, after: digests of the topic's records in the piece.
        dropped: how many went.
        deleted: each of them, where an operator has named them; None: they were compacted.
    """

    before: str
    after: str
    dropped: int
    deleted: tuple[NotedRecord, ...] | None


class Note(NamedTuple):
    """What a run has dropped of a piece, by topic.

    Attributes:
        reason: as the operator has said it; empty otherwise.
    """

    start: int
    end: int
    edition: int
    reason: str
    topics: Mapping[str, NotedTopic]

    def document(self) -> dict[str, object]:
        """The file's content, as JSON has it."""
        return {
            "version": _VERSION,
            **self._asdict(),
            "topics": {topic: one._asdict() for topic, one in self.topics.items()},
        }

    def encoded(self) -> bytes:
        """The file's content."""
        return encode_document(self.document())


def records_in(table: pa.Table, topic: str) -> list[NotedRecord]:
    """The records of a topic in rows of a piece, in their order.

    Args:
        table: with ``LOG_COLUMNS`` at least.

    Raises:
        CorruptLogError: the rows are not those of a piece.
    """
    rows = table.filter(pc.equal(table.column("topic"), topic))
    columns = (
        rows.column(name).to_pylist() for name in ("physicalOffset", "queueId", "queueOffset")
    )
    digests = (content_digest(one.as_buffer()).hex() for one in log_bytes(rows))
    return [NotedRecord(*values) for values in zip(*columns, digests, strict=True)]


def digest_of(records: Iterable[NotedRecord]) -> str:
    """The digest of records, whatever their order."""
    sum_ = blake2b(digest_size=DIGEST_SIZE)
    for one in sorted(records):
        sum_.update(one.position.to_bytes(8, "big", signed=True) + bytes.fromhex(one.digest))
    return sum_.hexdigest()


def check_notes(place: ReadPlace, row: PieceRow, piece: PieceFile) -> int:
    """Compare a piece with the notes of what was dropped of it one by one.

    Returns:
        How many messages were deleted by an operator, as the notes say.

    Raises:
        CorruptLogError: a note is missing, or not the one that the piece names, or it says
            something else than the piece; or messages are missing of which no note says it.
        StorageError: the place refused.
    """
    footer = piece.footer
    notes = [_read(place, row, named) for named in footer.notes]
    for topic in footer.thinned:
        told = [one.topics[topic] for one in notes if topic in one.topics]
        if not told:
            raise _wrong("messages are missing of which no note says so", piece.name, topic=topic)
        groups = sorted({run.group for run in footer.runs.get(topic, ())})
        if not all(piece.is_open(number) for number in groups):
            # Who has not the key sees how many there are, and no digest.
            continue
        there = [
            one for number in groups for one in records_in(piece.group(number, LOG_COLUMNS), topic)
        ]
        _check_topic(told, there, piece.name, topic)
        had = sum(one.end - one.offset for one in footer.thinned[topic])
        has = sum(run.rows for run in footer.runs.get(topic, ()))
        # Where records have several messages each, how many of these went is not known: digests
        # alone tell that none but the noted records did.
        may_have_several = topic in footer.batched
        if not may_have_several and had - has > sum(one.dropped for one in told):
            raise _wrong("more messages are missing than notes say", piece.name, topic=topic)
    counted = sum(one.dropped for note in notes for one in note.topics.values())
    if counted > footer.dropped.records:
        raise _wrong("notes say that more was dropped than is missing", piece.name)
    return sum(
        len(one.deleted)
        for note in notes
        for one in note.topics.values()
        if one.deleted is not None
    )


def _check_topic(
    told: Sequence[NotedTopic], there: list[NotedRecord], where: str, topic: str
) -> None:
    """Go from what is there back to what there was, as far as the notes name what went."""
    if digest_of(there) != told[-1].after:
        raise _wrong("messages are not those that a note has left", where, topic=topic)
    for before, one in pairwise(told):
        if before.after != one.before:
            raise _wrong("notes do not follow one another", where, topic=topic)
    known: list[NotedRecord] | None = there
    for one in reversed(told):
        if one.deleted is None:
            known = None
            continue
        if len(one.deleted) != one.dropped:
            raise _wrong("a note counts other messages than it names", where, topic=topic)
        if known is not None:
            known = [*known, *one.deleted]
            if digest_of(known) != one.before:
                raise _wrong("a note names other messages than those that went", where, topic=topic)


def _read(place: ReadPlace, row: PieceRow, named: PieceNote) -> Note:
    name = note_name(row.start, row.end, named.edition)
    where = place.as_text(name)
    found = place.document(name)
    if found is None:
        raise _wrong("note of what was dropped of a piece is missing", where)
    if content_digest(found[0]).hex() != named.digest:
        raise _wrong("note is not the one that the piece names", where)
    document = decode_document(found[0], file=where)
    try:
        note = _note(document)
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptLogError("note cannot be read", file=where, reason=str(error)) from error
    if (note.start, note.end, note.edition) != (row.start, row.end, named.edition):
        raise _wrong("note is of another piece", where)
    return note


def _note(document: Mapping[str, Any]) -> Note:
    if document["version"] != _VERSION:
        raise ValueError(f"version {document['version']}")
    start, end, edition = (int(document[name]) for name in ("start", "end", "edition"))
    return Note(
        start,
        end,
        edition,
        str(document["reason"]),
        {
            topic: NotedTopic(
                str(one["before"]),
                str(one["after"]),
                int(one["dropped"]),
                None
                if one["deleted"] is None
                else tuple(_record(*values) for values in one["deleted"]),
            )
            for topic, one in dict(document["topics"]).items()
        },
    )


def _record(position: int, queue_id: int, queue_offset: int, digest: str) -> NotedRecord:
    if len(bytes.fromhex(digest)) != DIGEST_SIZE:
        raise ValueError("digest of another size")
    return NotedRecord(int(position), int(queue_id), int(queue_offset), digest)


def _wrong(what: str, where: str, **more: object) -> CorruptLogError:
    return CorruptLogError(what, file=where, **more)
