"""Retention in a place of pieces, topic by topic: what is older than its topic's age is dropped,
and what else is found that is to go (``piece_compaction.py``).

A piece is never written over. What is left of one is put under the name of another edition, and the
manifest's row is replaced on the condition that nobody else has; then the file before is deleted.
Each run has a number, and only the last one may change rows: so a run that was killed, or is slow,
takes nothing away from the next one, which deletes what it has left.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ledgermq.formats.arrays import I64
from ledgermq.formats.digest import content_digest
from ledgermq.model.errors import ConfigError, CorruptLogError
from ledgermq.model.limits import LASTING_TOPICS
from ledgermq.pipeline.pieces.log_columns import PIECE_SCHEMA, log_bytes, milliseconds
from ledgermq.pipeline.pieces.piece_file import BytesRanges, PieceFile
from ledgermq.pipeline.pieces.piece_footer import DroppedRows, PieceNote
from ledgermq.pipeline.pieces.piece_manifest import (
    DroppedEnd,
    DroppedPart,
    PieceManifest,
    PieceRow,
    change_manifest,
    read_manifest,
    row_of,
)
from ledgermq.pipeline.pieces.piece_notes import (
    Note,
    NotedRecord,
    NotedTopic,
    digest_of,
    records_in,
)
from ledgermq.pipeline.pieces.piece_places import (
    NOTES,
    PIECES,
    PieceName,
    SealedPlace,
    check_name,
    check_note_name,
    note_name,
)
from ledgermq.pipeline.pieces.piece_seal import (
    GROUP_LOG_BYTES,
    GroupRows,
    SaidOfPiece,
    SealedPiece,
    seal_tables,
)
from ledgermq.pipeline.pieces.topic_keys import unlocking_key


class TopicAge(NamedTuple):
    """How long messages of a topic stay in pieces; 0 is without a limit.

    Attributes:
        keep_ms: since they were stored.
        keep_bytes: of the log that newer pieces have of the topic.
    """

    keep_ms: int = 0
    keep_bytes: int = 0


NO_POSITIONS: I64 = np.zeros(0, np.int64)


class Expired(NamedTuple):
    """What is to be dropped of a piece.

    Attributes:
        topics: that go as a whole: of each what was stored before, epoch ms.
        thinned: topics of which single messages go, and where their records begin in the log.
        are_named: an operator has named these messages: the note names them, too.
    """

    row: PieceRow
    topics: Mapping[str, int]
    thinned: Mapping[str, I64] = MappingProxyType({})
    are_named: bool = False

    @property
    def positions(self) -> I64:
        """Where all records begin that go one by one."""
        return np.concatenate([NO_POSITIONS, *self.thinned.values()])


def merged(first: list[Expired], second: list[Expired]) -> list[Expired]:
    """What is in either, oldest piece first. A topic that goes as a whole is not thinned."""
    found = {one.row.start: one for one in first}
    for one in second:
        known = found.get(one.row.start, Expired(one.row, {}))
        topics = {**known.topics, **one.topics}
        thinned = {**known.thinned, **one.thinned}
        kept = {topic: places for topic, places in thinned.items() if topic not in topics}
        found[one.row.start] = Expired(one.row, topics, kept)
    return sorted(found.values(), key=lambda one: one.row.start)


class Pruned(NamedTuple):
    """What a run has done.

    Attributes:
        rewritten: pieces of which something is left; ``dropped`` of which nothing is.
        records, log_bytes: that went, by topic.
        freed: bytes of files that the place has less.
        swept: files that runs before had left.
        notes: of what went message by message, of pieces of which something is left.
    """

    rewritten: int
    dropped: int
    records: Mapping[str, int]
    log_bytes: Mapping[str, int]
    freed: int
    swept: int
    notes: tuple[Note, ...] = ()


Told = Callable[[int, int], None]

_ANY_TIME, _NO_TIME = 1 << 62, -1 << 62

ROWS_AT_ONCE = 64
"""Pieces after which the manifest is replaced: it has a row for each piece, and is put as a whole.
What a run that is killed has made of so many is made again."""


def expired_in(
    manifest: PieceManifest,
    age_of: Callable[[str], TopicAge],
    *,
    now_ms: int,
    before: int | None = None,
) -> list[Expired]:
    """The pieces of which a topic's messages are all beyond its age, oldest first.

    The last piece stays as it is, for by it a log is known; and so does the broker's own topic, of
    which tables are made.

    Args:
        now_ms: epoch ms, as far as it can be believed.
        before: position behind which pieces stay as they are, too.
    """
    found: list[Expired] = []
    newer: Counter[str] = Counter()
    for number, row in reversed(list(enumerate(manifest.rows))):
        sizes = _bytes_of(row)
        topics = {}
        may_go = droppable(manifest, number, before=before)
        for topic, stretches in row.queues.items() if may_go else ():
            age = age_of(topic)
            since_ms = now_ms - age.keep_ms
            is_empty = bool(row.topic_bytes) and topic not in row.topic_bytes
            if topic in LASTING_TOPICS or is_empty:
                continue
            if age.keep_bytes and newer[topic] >= age.keep_bytes:
                topics[topic] = _ANY_TIME
            elif age.keep_ms and all(one.max_ms < since_ms for one in stretches):
                topics[topic] = since_ms
        newer.update(sizes)
        if topics:
            found.append(Expired(row, topics))
    return found[::-1]


def droppable(manifest: PieceManifest, number: int, *, before: int | None) -> bool:
    """Whether anything of a piece may go: the last one stays as it is, for by it a log is known,
    and so does what is behind ``before``, so that there is an entry to be restored.
    """
    is_last = number == len(manifest.rows) - 1
    return not is_last and (before is None or manifest.rows[number].end <= before)


def _bytes_of(row: PieceRow) -> dict[str, int]:
    """Bytes of each topic in a piece; of one that does not say so by its messages' share."""
    if row.topic_bytes:
        return dict(row.topic_bytes)
    each = (row.end - row.start) // max(1, row.facts.records)
    return {
        topic: each * sum(one.end - one.offset for one in stretches)
        for topic, stretches in row.queues.items()
    }


def drop(
    place: SealedPlace,
    find: Callable[[PieceManifest], list[Expired]],
    *,
    reason: str = "",
    told: Told = lambda _done, _total: None,
) -> Pruned:
    """Drop what is found, oldest piece first, and what runs before had left; durable on return.

    Args:
        find: called again where somebody has changed the pieces meanwhile.
        reason: for the notes of what goes message by message.
        told: bytes of pieces that were looked through so far, of how many.

    Raises:
        ConfigError: another run drops there now.
        CorruptLogError: a piece is not what was sealed; it stays.
        StorageError: the place refused.
    """
    place.clear_left()
    before = read_manifest(place)
    expired = find(before)
    if not expired and not _left_over(place, before):
        return Pruned(0, 0, {}, {}, 0, 0)
    manifest = change_manifest(place, lambda found: found._replace(edition=found.edition + 1))
    # Whoever had begun before may not change a row any more: what it puts now counts for nothing.
    swept = _left_over(place, manifest)
    for name in swept:
        place.delete(name)
    if manifest.rows != before.rows:
        expired = find(manifest)
    total, done = sum(one.row.size for one in expired), 0
    run = _Run(manifest.edition, reason, Counter(), Counter())
    changes: list[_RowChange] = []
    for batch in (expired[at : at + ROWS_AT_ONCE] for at in range(0, len(expired), ROWS_AT_ONCE)):
        made: list[_RowChange] = []
        for one in batch:
            change = _rewritten(place, one, run)
            made += [] if change is None else [change]
            done += one.row.size
            told(done, total)
        _commit(place, made, manifest.edition)
        for change in made:
            place.delete(change.old.name)
            for note in change.useless:
                place.delete(note)
        changes += made
    left = [change.fresh.size for change in changes if change.fresh]
    freed = sum(change.old.size for change in changes) - sum(left)
    return Pruned(
        *(len(left), len(changes) - len(left), run.records, run.sizes),
        *(freed, len(swept)),
        tuple(change.note for change in changes if change.note and change.fresh),
    )


class _Run(NamedTuple):
    """A run that drops: its number, what its notes say, and what went so far, by topic."""

    edition: int
    reason: str
    records: Counter[str]
    sizes: Counter[str]


class _RowChange(NamedTuple):
    """What becomes of a row of the manifest; ``fresh`` is None where nothing is left, and then
    nobody names the notes in ``useless`` any more. ``note`` is of what went message by message.
    """

    old: PieceRow
    fresh: PieceRow | None
    gone: DroppedPart
    ends: Mapping[str, Mapping[int, DroppedEnd]]
    note: Note | None
    useless: tuple[str, ...]


def _rewritten(place: SealedPlace, expired: Expired, run: _Run) -> _RowChange | None:
    """Put what is left of a piece beside it; nobody knows of it yet. None: all of it stays, as
    where a run that died had dropped it, and the manifest was made anew since.
    """
    old = expired.row
    piece = PieceFile(place.ranges(old.name, old.size), tail=old.tail)
    noted: dict[str, list[NotedRecord]] = {}
    kept = list(_kept(piece, expired, run, noted))
    if sum(one.table.num_rows for one in kept) == sum(one.rows for one in piece.footer.groups):
        return None
    note = _note_of(expired, run, noted)
    fresh: PieceRow | None = None
    if kept:
        # The note before the piece that names it.
        named = () if note is None else (_put_note(place, note),)
        sealed = _resealed(piece, kept, expired, named)
        fresh = row_of(sealed.footer, size=sealed.size, tail=sealed.tail, edition=run.edition)
        if not place.put(fresh.name, sealed.parts):
            # It may be this very piece: an answer that was lost. Or a manifest was made anew, and
            # the number is that of a run before: the next one has another, and sweeps.
            there = PieceFile(place.ranges(fresh.name), tail=fresh.tail)
            if there.footer != sealed.footer:
                raise _outrun(place)
    ends = {
        topic: {one.queue_id: DroppedEnd(one.queue_id, old.end, one.end) for one in found}
        for topic, found in old.queues.items()
        if topic in expired.topics or topic in expired.thinned
    }
    part = DroppedPart(piece.footer.follows, old.start, old.end)
    notes = () if kept else piece.footer.notes
    useless = tuple(note_name(old.start, old.end, one.edition) for one in notes)
    return _RowChange(old, fresh, part, ends, note, useless)


def _note_of(expired: Expired, run: _Run, noted: Mapping[str, list[NotedRecord]]) -> Note | None:
    """What is to be noted of what goes message by message; ``noted`` has all of their topics."""
    if not expired.thinned:
        return None
    topics = {}
    for topic, places in expired.thinned.items():
        positions, records = set(places.tolist()), noted.get(topic, [])
        gone = tuple(one for one in records if one.position in positions)
        left = [one for one in records if one.position not in positions]
        topics[topic] = NotedTopic(
            *(digest_of(records), digest_of(left), len(gone), gone if expired.are_named else None)
        )
    return Note(expired.row.start, expired.row.end, run.edition, run.reason, topics)


def _put_note(place: SealedPlace, note: Note) -> PieceNote:
    """Put a note that no piece names yet.

    Raises:
        ConfigError: another run has put another one there.
    """
    name, content = note_name(note.start, note.end, note.edition), note.encoded()
    if not place.put(name, [content]):
        # An answer that was lost, or a number that came twice, as of a piece.
        there = place.document(name)
        if there is None or there[0] != content:
            raise _outrun(place)
    return PieceNote(note.edition, content_digest(content).hex())


def _commit(place: SealedPlace, changes: list[_RowChange], edition: int) -> None:
    """Have the manifest say it, all at once.

    Raises:
        ConfigError: another run has begun meanwhile.
    """

    def changed(found: PieceManifest) -> PieceManifest:
        if found.edition != edition:
            raise _outrun(place)
        by_row = {(one.old.start, one.old.end): one for one in changes}
        rows: list[PieceRow] = []
        gone, ends = found.gone, found.ends
        for row in found.rows:
            change = by_row.get((row.start, row.end))
            if change is None or row != change.old:
                rows.append(row)
                continue
            ends = _with_ends(ends, change.ends)
            if change.fresh is None:
                gone = _with_gone(gone, change.gone)
            else:
                rows.append(change.fresh)
        return found._replace(rows=tuple(rows), gone=gone, ends=ends)

    change_manifest(place, changed)


def _outrun(place: SealedPlace) -> ConfigError:
    return ConfigError("another run drops pieces there now", place=place.as_text())


def _kept(
    piece: PieceFile, expired: Expired, run: _Run, noted: dict[str, list[NotedRecord]]
) -> Iterator[GroupRows]:
    """The rows that stay, in groups. What goes is counted; and of topics of which single messages
    go ``noted`` gets all records.

    Raises:
        KeyMissingError: some of a group are to go that is locked with a key that is not here.
    """
    waiting: list[GroupRows] = []
    positions = expired.positions
    for number, group in enumerate(piece.footer.groups):
        locked = piece.footer.locked.get(number)
        if locked is not None and locked.topic not in expired.thinned:
            # It needs no key where all of it goes, or stays.
            table = piece.open_group(number)
            stored = milliseconds(table.column("storeTimestamp"))
            old = int((stored < expired.topics.get(locked.topic, _NO_TIME)).sum())
            if not old:
                yield from _joined(waiting)
                waiting = []
                sizes = np.zeros(group.rows, np.int64)
                sizes[0] = group.log_bytes
                yield GroupRows(table, sizes, locked=piece.locked_bytes(number))
                continue
            if old == group.rows:
                run.records[locked.topic] += old
                run.sizes[locked.topic] += group.log_bytes
                continue
        table = piece.group(number)
        lengths = _lengths(table)
        goes = np.zeros(table.num_rows, np.bool_)
        stored = milliseconds(table.column("storeTimestamp"))
        is_single = np.isin(table.column("physicalOffset").to_numpy(), positions)
        for topic in (*expired.topics, *expired.thinned):
            is_old = stored < expired.topics[topic] if topic in expired.topics else is_single
            of_topic = pc.equal(table.column("topic"), topic).to_numpy() & is_old
            run.records[topic] += int(of_topic.sum())
            run.sizes[topic] += int(lengths[of_topic].sum())
            goes |= of_topic
            if topic in expired.thinned:
                noted.setdefault(topic, []).extend(records_in(table, topic))
        table, lengths = table.filter(pa.array(~goes)), lengths[~goes]
        if not table.num_rows:
            continue
        fits = sum(int(one.sizes.sum()) for one in waiting) + int(lengths.sum()) <= GROUP_LOG_BYTES
        if locked is not None or not fits:
            yield from _joined(waiting)
            waiting = []
        waiting.append(GroupRows(table, lengths))
        if locked is not None:
            key = unlocking_key(locked.topic, locked.key, where=piece.name)
            (rows,) = _joined(waiting)
            yield rows._replace(key=key, number=locked.number)
            waiting = []
    yield from _joined(waiting)


def _joined(waiting: list[GroupRows]) -> Iterator[GroupRows]:
    if waiting:
        table = pa.concat_tables([one.table for one in waiting]).cast(PIECE_SCHEMA)
        sizes = np.concatenate([one.sizes for one in waiting])
        yield GroupRows(table.combine_chunks(), sizes)


def _lengths(table: pa.Table) -> I64:
    found: I64 = pc.binary_length(log_bytes(table)).to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def _resealed(
    piece: PieceFile,
    kept: list[GroupRows],
    expired: Expired,
    notes: tuple[PieceNote, ...],
) -> SealedPiece:
    """What is left of a piece, read back and compared record by record.

    Raises:
        CorruptLogError: it cannot be read back.
    """
    footer = piece.footer
    records = sum(one.table.num_rows for one in kept)
    left = sum(int(one.sizes.sum()) for one in kept)
    dropped = DroppedRows(
        footer.facts.records - records, footer.end - footer.start - footer.rest_bytes - left
    )
    # What a queue had there: what is in no run of it was dropped on purpose.
    thinned = {
        topic: found for topic, found in footer.thinned.items() if topic not in expired.topics
    } | {topic: expired.row.queues[topic] for topic in expired.thinned}
    said = SaidOfPiece(
        *(footer.start, footer.end, footer.header_size, footer.facts, footer.follows),
        *(dropped, thinned, (*footer.notes, *notes)),
    )
    sealed = seal_tables(kept, said, rest=memoryview(piece.rest()))
    made = PieceFile(BytesRanges(b"".join(sealed.parts), piece.name))
    if made.verify() != records:
        raise CorruptLogError("what is left of a piece has other records", file=piece.name)
    return sealed


def _with_gone(gone: tuple[DroppedPart, ...], more: DroppedPart) -> tuple[DroppedPart, ...]:
    """With ``more``, and parts that follow one another as one."""
    found: list[DroppedPart] = []
    for one in sorted((*gone, more), key=lambda part: part.start):
        if found and one.follows == one.start == found[-1].end:
            found[-1] = found[-1]._replace(end=one.end)
        else:
            found.append(one)
    return tuple(found)


def _with_ends(
    ends: Mapping[str, tuple[DroppedEnd, ...]], more: Mapping[str, Mapping[int, DroppedEnd]]
) -> dict[str, tuple[DroppedEnd, ...]]:
    """With ``more``: of a queue those of the last piece."""
    found = {topic: {one.queue_id: one for one in known} for topic, known in ends.items()}
    for topic, queues in more.items():
        known = found.setdefault(topic, {})
        for queue_id, one in queues.items():
            before = known.get(queue_id)
            known[queue_id] = one if before is None else max(before, one)
    return {topic: tuple(known.values()) for topic, known in found.items()}


def _left_over(place: SealedPlace, manifest: PieceManifest) -> list[str]:
    """Names of files that a run has put and not told of, or told of and not deleted.

    What was sealed and is not in the manifest yet is none of them, nor what a later run has put.
    """
    named = {(row.start, row.end): row.edition for row in manifest.rows}
    starts = [one.start for one in manifest.gone]

    def is_gone(one: PieceName) -> bool:
        at = bisect_right(starts, one.start) - 1
        is_there = (one.start, one.end) in named
        return at >= 0 and one.end <= manifest.gone[at].end and not is_there

    found = []
    for name in place.names(PIECES):
        one = check_name(name, where=place.as_text(PIECES))
        edition = named.get((one.start, one.end), 0)
        if is_gone(one) or edition != one.edition <= manifest.edition:
            found.append(f"{PIECES}/{name}")
    for name in place.names(NOTES):
        one = check_note_name(name, where=place.as_text(NOTES))
        edition = named.get((one.start, one.end), one.edition)
        # A piece names notes of its own run, and of runs before.
        if is_gone(one) or edition < one.edition <= manifest.edition:
            found.append(f"{NOTES}/{name}")
    return found
