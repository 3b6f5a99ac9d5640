"""Retention in a place of pieces, topic by topic: what is older than its topic's age is dropped.

A piece is never written over. What is left of one is put under the name of another edition, and the
manifest's row is replaced on the condition that nobody else has; then the file before is deleted.
Each run has a number, and only the last one may change rows: so a run that was killed, or is slow,
takes nothing away from the next one, which deletes what it has left.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ledgermq.formats.arrays import I64
from ledgermq.model.errors import ConfigError, CorruptLogError
from ledgermq.model.limits import SYSTEM_TOPIC
from ledgermq.pipeline.pieces.log_columns import PIECE_SCHEMA, log_bytes, milliseconds
from ledgermq.pipeline.pieces.piece_file import PieceFile
from ledgermq.pipeline.pieces.piece_footer import DroppedRows
from ledgermq.pipeline.pieces.piece_manifest import (
    DroppedEnd,
    DroppedPart,
    PieceManifest,
    PieceRow,
    change_manifest,
    read_manifest,
    row_of,
)
from ledgermq.pipeline.pieces.piece_places import PIECES, SealedPlace, check_name
from ledgermq.pipeline.pieces.piece_seal import (
    GROUP_LOG_BYTES,
    SaidOfPiece,
    SealedPiece,
    seal_tables,
)


class TopicAge(NamedTuple):
    """How long messages of a topic stay in pieces; 0 is without a limit.

    Attributes:
        keep_ms: since they were stored.
        keep_bytes: of the log that newer pieces have of the topic.
    """

    keep_ms: int = 0
    keep_bytes: int = 0


class Expired(NamedTuple):
    """What is to be dropped of a piece: of each topic what was stored before, epoch ms."""

    row: PieceRow
    topics: Mapping[str, int]


class Pruned(NamedTuple):
    """What a run has done.

    Attributes:
        rewritten: pieces of which something is left; ``dropped`` of which nothing is.
        records, log_bytes: that went, by topic.
        freed: bytes of files that the place has less.
        swept: files that runs before had left.
    """

    rewritten: int
    dropped: int
    records: Mapping[str, int]
    log_bytes: Mapping[str, int]
    freed: int
    swept: int


Told = Callable[[int, int], None]

_ANY_TIME = 1 << 62

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
    for number, row in enumerate(reversed(manifest.rows)):
        sizes = _bytes_of(row)
        topics = {}
        is_fixed = not number or (before is not None and row.end > before)
        for topic, stretches in () if is_fixed else row.queues.items():
            age = age_of(topic)
            since_ms = now_ms - age.keep_ms
            if topic == SYSTEM_TOPIC:
                continue
            if age.keep_bytes and newer[topic] >= age.keep_bytes:
                topics[topic] = _ANY_TIME
            elif age.keep_ms and all(one.max_ms < since_ms for one in stretches):
                topics[topic] = since_ms
        newer.update(sizes)
        if topics:
            found.append(Expired(row, topics))
    return found[::-1]


def _bytes_of(row: PieceRow) -> dict[str, int]:
    """Bytes of each topic in a piece; of one that does not say so by its messages' share."""
    if row.topic_bytes:
        return dict(row.topic_bytes)
    each = (row.end - row.start) // max(1, row.facts.records)
    return {
        topic: each * sum(one.end - one.offset for one in stretches)
        for topic, stretches in row.queues.items()
    }


def drop_expired(
    place: SealedPlace,
    age_of: Callable[[str], TopicAge],
    *,
    now_ms: int,
    before: int | None = None,
    told: Told = lambda _done, _total: None,
) -> Pruned:
    """Drop what is beyond its topic's age, and what runs before had left; durable on return.

    Args:
        now_ms, before: as ``expired_in``.
        told: bytes of pieces that were looked through so far, of how many.

    Raises:
        ConfigError: another run drops there now.
        CorruptLogError: a piece is not what was sealed; it stays.
        StorageError: the place refused.
    """
    place.clear_left()
    manifest = read_manifest(place)
    expired = expired_in(manifest, age_of, now_ms=now_ms, before=before)
    if not expired and not _left_over(place, manifest):
        return Pruned(0, 0, {}, {}, 0, 0)
    manifest = change_manifest(place, lambda found: found._replace(edition=found.edition + 1))
    # Whoever had begun before may not change a row any more: what it puts now counts for nothing.
    swept = _left_over(place, manifest)
    for name in swept:
        place.delete(name)
    expired = expired_in(manifest, age_of, now_ms=now_ms, before=before)
    total, done = sum(one.row.size for one in expired), 0
    records, sizes = Counter[str](), Counter[str]()
    changes: list[_RowChange] = []
    for batch in (expired[at : at + ROWS_AT_ONCE] for at in range(0, len(expired), ROWS_AT_ONCE)):
        made = []
        for one in batch:
            made.append(_rewritten(place, one, manifest.edition, records, sizes))
            done += one.row.size
            told(done, total)
        _commit(place, made, manifest.edition)
        for change in made:
            place.delete(change.old.name)
        changes += made
    left = [change.fresh.size for change in changes if change.fresh]
    return Pruned(
        *(len(left), len(changes) - len(left), records, sizes, total - sum(left), len(swept))
    )


class _RowChange(NamedTuple):
    """What becomes of a row of the manifest; ``fresh`` is None where nothing is left."""

    old: PieceRow
    fresh: PieceRow | None
    gone: DroppedPart
    ends: Mapping[str, Mapping[int, DroppedEnd]]


def _rewritten(
    place: SealedPlace,
    expired: Expired,
    edition: int,
    records: Counter[str],
    sizes: Counter[str],
) -> _RowChange:
    """Put what is left of a piece beside it; nobody knows of it yet."""
    old = expired.row
    piece = PieceFile(place.ranges(old.name, old.size), tail=old.tail)
    kept = list(_kept(piece, expired.topics, records, sizes))
    fresh: PieceRow | None = None
    if kept:
        sealed = _resealed(piece, kept)
        tail = sum(map(len, sealed.parts[3:]))
        fresh = row_of(sealed.footer, size=sealed.size, tail=tail, edition=edition)
        if not place.put(fresh.name, sealed.parts):
            # It may be this very piece: an answer that was lost. Or a manifest was made anew, and
            # the number is that of a run before: the next one has another, and sweeps.
            there = PieceFile(place.ranges(fresh.name), tail=fresh.tail)
            if there.footer != sealed.footer:
                raise _outrun(place)
    ends = {
        topic: {one.queue_id: DroppedEnd(one.queue_id, old.end, one.end) for one in found}
        for topic, found in ((topic, old.queues[topic]) for topic in expired.topics)
    }
    return _RowChange(old, fresh, DroppedPart(piece.footer.follows, old.start, old.end), ends)


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
    piece: PieceFile, topics: Mapping[str, int], records: Counter[str], sizes: Counter[str]
) -> Iterator[tuple[pa.Table, I64]]:
    """The rows that stay, in groups, and their bytes in the log; what goes is counted."""
    waiting: list[tuple[pa.Table, I64]] = []
    for number in range(len(piece.footer.groups)):
        table = piece.group(number)
        lengths = _lengths(table)
        goes = np.zeros(table.num_rows, np.bool_)
        stored = milliseconds(table.column("storeTimestamp"))
        for topic, before_ms in topics.items():
            of_topic = pc.equal(table.column("topic"), topic).to_numpy() & (stored < before_ms)
            records[topic] += int(of_topic.sum())
            sizes[topic] += int(lengths[of_topic].sum())
            goes |= of_topic
        table, lengths = table.filter(pa.array(~goes)), lengths[~goes]
        if not table.num_rows:
            continue
        if sum(int(one.sum()) for _, one in waiting) + int(lengths.sum()) > GROUP_LOG_BYTES:
            yield from _joined(waiting)
            waiting = []
        waiting.append((table, lengths))
    yield from _joined(waiting)


def _joined(waiting: list[tuple[pa.Table, I64]]) -> Iterator[tuple[pa.Table, I64]]:
    if waiting:
        table = pa.concat_tables([one for one, _ in waiting]).cast(PIECE_SCHEMA).combine_chunks()
        yield table, np.concatenate([lengths for _, lengths in waiting])


def _lengths(table: pa.Table) -> I64:
    found: I64 = pc.binary_length(log_bytes(table)).to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def _resealed(piece: PieceFile, kept: list[tuple[pa.Table, I64]]) -> SealedPiece:
    """What is left of a piece, read back and compared record by record.

    Raises:
        CorruptLogError: it cannot be read back.
    """
    footer = piece.footer
    records = sum(table.num_rows for table, _ in kept)
    left = sum(int(lengths.sum()) for _, lengths in kept)
    dropped = DroppedRows(
        footer.facts.records - records, footer.end - footer.start - footer.rest_bytes - left
    )
    said = SaidOfPiece(
        *(footer.start, footer.end, footer.header_size, footer.facts, footer.follows), dropped
    )
    sealed = seal_tables(kept, said, rest=memoryview(piece.rest()))
    made = PieceFile(_Made(b"".join(sealed.parts), piece.name))
    if made.verify() != records:
        raise CorruptLogError("what is left of a piece has other records", file=piece.name)
    return sealed


class _Made:
    """``Ranges`` of a piece that is in memory yet."""

    def __init__(self, content: bytes, name: str) -> None:
        self._content = content
        self.name = name
        self.size = len(content)

    def read(self, start: int, end: int) -> bytes:
        return self._content[start:end]


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
    found = []
    for name in place.names(PIECES):
        one = check_name(name, where=place.as_text(PIECES))
        edition = named.get((one.start, one.end))
        at = bisect_right(starts, one.start) - 1
        is_gone = at >= 0 and one.end <= manifest.gone[at].end and edition is None
        is_other = one.edition != (edition or 0) and one.edition <= manifest.edition
        if is_gone or is_other:
            found.append(f"{PIECES}/{name}")
    return found
