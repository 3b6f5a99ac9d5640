"""Compaction of topics in pieces: of each key of a queue the newest message stays.

A message without a body is a tombstone: its key has no value any more. It stays for a while, so
that who reads on hears of it, and goes then with all older messages of its key. A message without
keys stays. What RocketMQ takes for a key is the whole property ``KEYS``, and so it is here.

Pieces are written anew oldest first: killed in between, no run leaves an older message of a key
behind whose tombstone is gone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ledgermq.formats.arrays import I64
from ledgermq.formats.records.message import INNER_BATCH
from ledgermq.pipeline.pieces.log_columns import milliseconds
from ledgermq.pipeline.pieces.piece_file import PieceFile
from ledgermq.pipeline.pieces.piece_manifest import PieceManifest, PieceRow
from ledgermq.pipeline.pieces.piece_places import ReadPlace
from ledgermq.pipeline.pieces.piece_retention import Expired, droppable
from ledgermq.pipeline.pieces.piece_seal import are_queued

SHARE = 0.25
"""A piece is written anew for a topic when at least this part of its messages there goes; or one of
a key that has no value any more."""

_COLUMNS = ("topic", "queueId", "queueOffset", "physicalOffset", "storeTimestamp", "sysFlag")

Flags = npt.NDArray[np.bool_]


class _Keyed(NamedTuple):
    """Messages of a topic that have keys, in all pieces.

    Attributes:
        keys: a number for each key of each queue.
        piece: number of the manifest's row.
    """

    keys: I64
    piece: I64
    positions: I64
    stored_ms: I64
    is_empty: Flags


def superseded_in(
    place: ReadPlace,
    manifest: PieceManifest,
    topics: Sequence[str],
    *,
    tombstones_before_ms: int,
    before: int | None = None,
    share: float = SHARE,
) -> list[Expired]:
    """What compaction drops of these topics, oldest piece first. It reads their keys in all pieces,
    and needs memory for those of one topic.

    Args:
        tombstones_before_ms: those that were stored before then may go, epoch ms.
        before: position behind which pieces stay as they are.
        share: as ``SHARE``.

    Raises:
        CorruptLogError: a piece is not what was sealed.
        StorageError: the place refused.
    """
    found: dict[int, dict[str, I64]] = {}
    for topic in topics:
        rows = [number for number, row in enumerate(manifest.rows) if topic in row.queues]
        parts = [_keyed(place, manifest.rows[number], topic) for number in rows]
        messages = _messages(list(zip(rows, parts, strict=True)))
        if messages is None:
            continue
        fixed = [not droppable(manifest, number, before=before) for number in rows]
        is_fixed = np.isin(messages.piece, np.array(rows)[fixed])
        goes = _going(messages, is_fixed, tombstones_before_ms, share)
        for number in np.unique(messages.piece[goes]).tolist():
            places = messages.positions[goes & (messages.piece == number)]
            found.setdefault(number, {})[topic] = np.sort(places)
    return [Expired(manifest.rows[number], {}, found[number]) for number in sorted(found)]


def _going(messages: _Keyed, is_fixed: Flags, before_ms: int, share: float) -> Flags:
    """Which messages go."""
    newest = np.zeros(int(messages.keys.max()) + 1, np.int64)
    np.maximum.at(newest, messages.keys, messages.positions)
    is_newest = messages.positions == newest[messages.keys]
    is_late = is_newest & messages.is_empty & (messages.stored_ms < before_ms)
    # Keys that have no value any more, and long enough.
    is_ended = np.isin(messages.keys, messages.keys[is_late])
    goes = (~is_newest | is_late) & ~is_fixed
    pieces = int(messages.piece.max()) + 1
    each = np.bincount(messages.piece, minlength=pieces)
    going = np.bincount(messages.piece[goes], minlength=pieces)
    is_worth = going >= np.maximum(1, share * each)
    is_worth[messages.piece[goes & is_ended]] = True
    kept: Flags = goes & is_worth[messages.piece]
    return kept


def _keyed(place: ReadPlace, row: PieceRow, topic: str) -> Iterator[tuple[pa.Table, pa.Array]]:
    """Rows of a topic in a piece that are in a queue and have keys; and their bodies' sizes."""
    piece = PieceFile(place.ranges(row.name, row.size), tail=row.tail)
    for number in sorted({run.group for run in piece.footer.runs.get(topic, ())}):
        if not piece.is_open(number):
            # Nobody knows their keys: they stay, and take nothing away.
            continue
        table = piece.group(number, (*_COLUMNS, "keys", "body"))
        flags = table.column("sysFlag").to_numpy()
        is_queued = are_queued(flags) & (table.column("queueOffset").to_numpy() >= 0)
        # One that has several messages has none of their keys.
        is_queued &= (flags & INNER_BATCH) == 0
        has_keys = pc.greater(pc.fill_null(pc.binary_length(table.column("keys")), 0), 0)
        of_topic = pc.equal(table.column("topic"), topic)
        wanted = pc.and_(pc.and_(of_topic, has_keys), pa.array(is_queued))
        kept = table.filter(wanted)
        sizes = pc.fill_null(pc.binary_length(kept.column("body")), 0)
        yield kept.drop_columns(["body"]), sizes.combine_chunks()


def _messages(
    parts: Sequence[tuple[int, Iterator[tuple[pa.Table, pa.Array]]]],
) -> _Keyed | None:
    """All of a topic's messages, from what each piece has; None without any."""
    tables, sizes, pieces = [], [], []
    for number, groups in parts:
        for table, lengths in groups:
            tables.append(table)
            sizes.append(lengths.to_numpy(zero_copy_only=False))
            pieces.append(np.full(table.num_rows, number, np.int64))
    if not sum(table.num_rows for table in tables):
        return None
    table = pa.concat_tables(tables)
    names = table.column("keys").combine_chunks().dictionary_encode()
    codes = names.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    of_queues = codes << 32 | table.column("queueId").to_numpy().astype(np.int64)
    return _Keyed(
        np.unique(of_queues, return_inverse=True)[1].astype(np.int64),
        np.concatenate(pieces),
        table.column("physicalOffset").to_numpy().astype(np.int64),
        milliseconds(table.column("storeTimestamp")),
        np.concatenate(sizes) == 0,
    )
