"""Sealing of a store's log into a place: what is committed and not there yet, piece by piece.

A run remembers nothing: the manifest says where it goes on. Killed at any moment it leaves pieces
that are whole, of which one at most is not in the manifest; the next run takes that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ledgermq.conversion.stream.log_facts import records_in
from ledgermq.model.errors import ConfigError
from ledgermq.pipeline.pieces.piece_file import PieceFile
from ledgermq.pipeline.pieces.piece_manifest import (
    PieceManifest,
    PieceRow,
    add_row,
    read_manifest,
    replace_manifest,
    row_of,
)
from ledgermq.pipeline.pieces.piece_places import (
    MANIFEST,
    PIECES,
    ReadPlace,
    SealedPlace,
    check_name,
    file_name,
)
from ledgermq.pipeline.pieces.piece_seal import (
    GROUP_LOG_BYTES,
    PIECE_LOG_BYTES,
    PIECE_RECORDS,
    KeyOf,
    SealedPiece,
    seal_stretch,
)
from ledgermq.pipeline.pieces.topic_keys import KEYS_VARIABLE, locking_key
from ledgermq.store.log_family import LogSpan
from ledgermq.store.log_reader import LogReader

Told = Callable[[int, int], None]


class SealSizes(NamedTuple):
    """How large pieces become: bytes of the log and records in one, bytes in a row group."""

    piece_bytes: int = PIECE_LOG_BYTES
    piece_records: int = PIECE_RECORDS
    group_bytes: int = GROUP_LOG_BYTES


USUAL_SIZES = SealSizes()


class Sealed(NamedTuple):
    """What a run has done.

    Attributes:
        pieces: that it has put or taken; ``log_bytes`` of the log in them, ``stored`` in their
            files.
        end: position behind the last piece of the place.
        gap: bytes that are in no piece: retention had deleted them before.
    """

    pieces: int
    log_bytes: int
    stored: int
    end: int
    gap: int


def seal_log(
    place: SealedPlace,
    reader: LogReader,
    committed: int,
    *,
    sizes: SealSizes = USUAL_SIZES,
    told: Told = lambda _done, _total: None,
    keys: KeyOf = locking_key,
) -> Sealed:
    """Seal all up to the position ``committed`` that is not in the place; durable on return.

    Args:
        told: bytes of the log that were sealed so far, of how many.
        keys: that topics are locked with.

    Raises:
        ConfigError: the log is not the one that is there, or somebody else seals there, too, or a
            topic that is locked there has no key.
        CorruptLogError: a record is not whole; nothing behind it was sealed.
        StorageError: store or place refused, or retention has just deleted a file: the next run
            goes on.
    """
    place.clear_left()
    manifest = read_manifest(place)
    if not manifest.rows and place.names(PIECES):
        # It is lost, or a run has died before it: pieces from before the log's begin count, too.
        manifest = rebuild_manifest(place)
    check_same(place, manifest, reader)
    locked = {topic for row in manifest.rows for topic in row.locked}

    def key_of(topic: str) -> bytes | None:
        key = keys(topic)
        if key is None and topic in locked:
            # Whoever runs this may have forgotten them: nothing of it is to lie there in the clear.
            raise ConfigError(
                "a topic was locked until now, and its key is not here: name the folder, or make"
                " a new key with `ledgermq piece key`",
                topic=topic,
                setting=KEYS_VARIABLE,
            )
        return key

    pieces, size, stored = 0, 0, 0
    gap = max(0, int(reader.first) - manifest.end) if manifest.rows else 0
    total = committed - max(int(reader.first), manifest.end)
    for cut in cuts_behind(reader, manifest.end, committed, sizes):
        name = f"{PIECES}/{file_name(cut.begin, cut.end)}"
        sealed = cut.sealed(follows=manifest.end, keys=key_of)
        if place.put(name, sealed.parts):
            row = row_of(sealed.footer, size=sealed.size, tail=sealed.tail)
        else:
            row = _row_at(place, name)
        manifest = add_row(place, row)
        pieces, size, stored = pieces + 1, size + cut.end - cut.begin, stored + row.size
        told(size, total)
    return Sealed(pieces, size, stored, manifest.end, gap)


def rebuild_manifest(place: SealedPlace) -> PieceManifest:
    """Make the manifest anew of the pieces that are there; two requests each in a bucket.

    Where two have the same part of the log, the longer one counts, and the last edition of it. What
    was dropped as a whole counts as missing then.

    Raises:
        ConfigError: somebody seals there now, or nothing was sealed there.
        CorruptLogError: a file is no piece, or not what was sealed.
        StorageError: the place refused.
    """
    rows = []
    for name in place.names(PIECES):
        named = check_name(name, where=place.as_text(PIECES))
        row = replace(_row_at(place, f"{PIECES}/{name}"), edition=named.edition)
        if (row.start, row.end) != (named.start, named.end):
            raise ConfigError("piece stands under another name", file=place.as_text(name))
        rows.append(row)
    if not rows and place.document(MANIFEST) is None:
        raise ConfigError("nothing was sealed there", place=place.as_text())
    return replace_manifest(place, rows)


def _row_at(place: SealedPlace, name: str) -> PieceRow:
    ranges = place.ranges(name)
    piece = PieceFile(ranges)
    return row_of(piece.footer, size=ranges.size, tail=piece.tail)


def check_same(place: ReadPlace, manifest: PieceManifest, reader: LogReader) -> None:
    """Refuse a log that has not the last record that it and the place should have.

    Raises:
        ConfigError: it has not.
    """
    for row in reversed(manifest.rows):
        facts = row.facts
        if not facts.records:
            continue
        # Where it was deleted here, what is there now does not touch it.
        if reader.has_record(facts.last_at, facts.last_size, facts.last_crc) is False:
            if facts.last_at + facts.last_size > reader.end:
                # A member that is behind the one that has sealed: earlier pieces tell.
                continue
            raise ConfigError(
                "the log is not the one whose pieces are there: take another place for it",
                place=place.as_text(),
                position=facts.last_at,
            )
        return


class LogCut(NamedTuple):
    """A stretch of one file of the log that is to be a piece.

    Attributes:
        span: of that file, from where the part of it begins that is not sealed.
        begin, end: positions of the stretch.
        group_bytes: of the log in a row group.
    """

    span: LogSpan
    begin: int
    end: int
    group_bytes: int

    def sealed(self, *, follows: int, keys: KeyOf = lambda _topic: None) -> SealedPiece:
        """The piece, in memory.

        Args:
            keys: that its topics are locked with.

        Raises:
            ConfigError, CorruptLogError: as ``seal_stretch``.
        """
        base = int(self.span.start)
        return seal_stretch(
            *(self.span.view, self.begin - base, self.end - base),
            header_size=self.span.header_size,
            base=base,
            follows=follows,
            group_bytes=self.group_bytes,
            file=str(self.span.path),
            keys=keys,
        )


def cuts_behind(
    reader: LogReader, sealed: int, committed: int, sizes: SealSizes
) -> Iterator[LogCut]:
    """What of a log is to become pieces, from the position ``sealed`` to ``committed``, in order.

    Raises:
        CorruptLogError: something is no record.
        StorageError: a file was deleted meanwhile.
    """
    for begin, end in _stretches(reader, sealed, committed):
        span = reader.span(begin)
        for first, last in _cuts(span, end, sizes):
            yield LogCut(span, first, last, sizes.group_bytes)


def _stretches(reader: LogReader, sealed: int, committed: int) -> Iterator[tuple[int, int]]:
    """What is not sealed, file by file: positions where records begin, and end or the file."""
    for part in reader.parts:
        size = part.files.file_size if part.files.starts else 0
        for start in part.files.starts:
            # The blank at a file's end is there once there is an entry behind it.
            end = start + size if committed > start + size else committed
            begin = max(start, sealed, int(reader.first))
            if begin < end:
                yield begin, end


def _cuts(span: LogSpan, end: int, sizes: SealSizes) -> Iterator[tuple[int, int]]:
    """Where the pieces of a stretch begin and end, as positions; what stands behind the last
    record is in the last piece.

    Args:
        span: of one file, from where the stretch begins.

    Raises:
        CorruptLogError: something is no record.
    """
    first, done = int(span.start), 0
    size = end - first
    lots = records_in(span.view, 0, size, header_size=span.header_size, base=first)
    ends = first + np.concatenate([np.zeros(0, np.int64), *(at + length for at, length in lots)])
    while done < len(ends):
        last = int(np.searchsorted(ends, first + sizes.piece_bytes, side="right"))
        last = min(max(last, done + 1), done + sizes.piece_records, len(ends))
        cut = end if last == len(ends) else int(ends[last - 1])
        yield first, cut
        first, done = cut, last
    if not len(ends):
        yield first, end
