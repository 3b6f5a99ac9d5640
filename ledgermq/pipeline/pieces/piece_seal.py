"""Sealing: a stretch of one file of the log becomes a piece.

Rows stand by topic, queue and position: who reads a queue or a topic reads what stands together,
and bodies of one topic are alike, and so take less room. The log's own order is that of positions.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ledgermq.conversion.stream.log_facts import StretchFacts, facts_of, records_in
from ledgermq.formats.arrays import I64
from ledgermq.formats.batch_unit import INNER_NUM, batch_numbers
from ledgermq.formats.records.message import (
    INNER_BATCH,
    TRANSACTION_MASK,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
)
from ledgermq.model.errors import ConfigError
from ledgermq.model.limits import SYSTEM_TOPIC
from ledgermq.model.names.system_topics import PART_PROPERTY, SNAPSHOT_TAG, STATE_QUEUE_ID
from ledgermq.pipeline.columns.message_schema import COLUMNS
from ledgermq.pipeline.columns.record_columns import RecordBlock, RecordColumns
from ledgermq.pipeline.pieces.key_filter import filter_of
from ledgermq.pipeline.pieces.locked_rows import LockedBytes, lock, open_rows
from ledgermq.pipeline.pieces.log_columns import (
    LOG_REST,
    PIECE_SCHEMA,
    milliseconds,
    piece_table,
)
from ledgermq.pipeline.pieces.piece_footer import (
    END_SIZE,
    GROUP_LOG_BYTES_MAX,
    NOTHING_DROPPED,
    PARQUET_MARK,
    DroppedRows,
    FilePart,
    LockedGroup,
    PieceFooter,
    PieceNote,
    QueueStretch,
    SealedGroup,
    SealedRun,
    encode_footer,
    table_size,
)
from ledgermq.pipeline.pieces.topic_keys import key_name

GROUP_LOG_BYTES = 4 << 20
"""Bytes of the log in a row group, and one record more: what who reads one message has to read."""

PIECE_LOG_BYTES = 128 << 20
PIECE_RECORDS = 1 << 19
"""Most of the log, and most records, in one piece: it stands in memory while it is sealed, and some
hundred bytes a record beside it."""

LEVEL = 3
"""Level of zstd."""

_DICTIONARIES = [
    *("topic", "queueId", "tags", "bornHost", "storeHost", "sysFlag", "flag", "reconsumeTimes"),
    *("raftTerm", "properties.key_value.key", LOG_REST),
]
_STATISTICS = [
    *("topic", "queueId", "queueOffset", "physicalOffset", "raftIndex", "raftTerm", "keys", "tags"),
    *("bornTimestamp", "storeTimestamp", "sysFlag", "flag", "reconsumeTimes", "crcOk"),
]
_ASCENDING = (*("queueOffset", "physicalOffset", "raftIndex", "bornTimestamp", "storeTimestamp"),)


KeyOf = Callable[[str], bytes | None]
"""The key that rows of a topic are locked with; None: with none."""


class GroupRows(NamedTuple):
    """Rows that become a row group.

    Attributes:
        sizes: bytes that each has in the log, with the header of its entry.
        key: that they are to be locked with: all are of one topic; None: with none.
        locked: that are locked already, and ``table`` is what is open of them.
        number: that they are locked with, as no others of the piece; None: the group's.
    """

    table: pa.Table
    sizes: I64
    key: bytes | None = None
    locked: LockedBytes | None = None
    number: int | None = None


class SealedPiece(NamedTuple):
    """A piece that is sealed: its bytes, in parts, and what it says of itself."""

    parts: tuple[memoryview | bytes, ...]
    footer: PieceFooter

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return sum(map(len, self.parts))

    @property
    def tail(self) -> int:
        """Bytes of both footers."""
        return sum(map(len, self.parts[-3:]))


def seal_stretch(
    view: memoryview,
    begin: int,
    end: int,
    *,
    header_size: int,
    base: int,
    follows: int = -1,
    group_bytes: int = GROUP_LOG_BYTES,
    file: str = "",
    keys: KeyOf = lambda _topic: None,
) -> SealedPiece:
    """Seal the bytes from ``begin``, where a record begins, to ``end``, where one ends or the file.

    Every record is checked before, and the bytes of each are made of the piece's columns and
    compared.

    Args:
        view: bytes of one file of the log.
        header_size: of the entries' headers; 0 in a plain log.
        base: position of the view's first byte.
        follows: where the pieces before it end.
        group_bytes: of the log in a row group.
        file: named in errors.
        keys: of topics.

    Raises:
        ConfigError: a record has more bytes than a piece takes.
        CorruptLogError: a record is not whole; names file, position and field.
    """
    facts = facts_of(view, begin, end, header_size=header_size, base=base)
    starts, sizes = _records(view, begin, end, header_size=header_size, base=base)
    block = RecordBlock(view, base, starts, sizes, header_size, file)
    said = SaidOfPiece(base + begin, base + end, header_size, facts, follows)
    return seal_tables(
        _tables(block, group_bytes, keys), said, rest=view[_records_end(begin, starts, sizes) : end]
    )


def seal_tables(tables: Iterable[GroupRows], said: SaidOfPiece, *, rest: memoryview) -> SealedPiece:
    """Seal rows of a piece, a row group each: those of a stretch of the log, in their order.

    Args:
        said: what the rows do not say.
        rest: of the log behind the last record.
    """
    sink = pa.BufferOutputStream()
    groups: list[SealedGroup] = []
    filters: list[bytes] = []
    runs: dict[str, list[SealedRun]] = {}
    snapshots: list[int] = []
    topics: Counter[str] = Counter()
    batched: set[str] = set()
    closed: dict[int, LockedBytes] = {}
    form = parquet_form(PIECE_SCHEMA.names)
    with pq.ParquetWriter(sink, PIECE_SCHEMA, **form) as writer:
        for table, sizes, key, kept, numbered in tables:
            number = len(groups) if numbered is None else numbered
            locked = kept if key is None else _locked(table, key, said, number)
            at = sink.tell()
            shown = open_rows(table) if locked else table
            writer.write_table(shown, row_group_size=table.num_rows)
            # A filter tells who guesses a key.
            filters.append(b"" if locked else filter_of(table))
            if locked:
                closed[len(groups)] = locked
            of_topics = _bytes_of_topics(table, sizes)
            topics.update(of_topics)
            size = sink.tell() - at
            groups.append(
                SealedGroup(
                    *(at, size, 0, table.num_rows, sum(of_topics.values())),
                    *(*times_of(table), len(filters[-1])),
                )
            )
            runs_of(table, len(groups) - 1, runs, thinned=said.thinned, batched=batched)
            snapshots += _snapshots_in(table)
    return _assembled(
        memoryview(sink.getvalue()).cast("B"),
        groups,
        filters,
        said=said,
        runs=runs,
        snapshots=snapshots,
        topic_bytes=topics,
        batched=batched,
        closed=closed,
        rest=rest,
    )


def _locked(table: pa.Table, key: bytes, said: SaidOfPiece, number: int) -> LockedBytes:
    topic = table.column("topic")[0].as_py()
    name = locked_name(said, topic, number)
    content = lock(table, key, name, parquet_form(PIECE_SCHEMA.names))
    return LockedBytes(topic, key_name(key), number, content)


def _bytes_of_topics(table: pa.Table, sizes: I64) -> dict[str, int]:
    summed = pa.table({"topic": table.column("topic"), "size": sizes}).group_by("topic")
    rows = summed.aggregate([("size", "sum")]).to_pylist()
    return {row["topic"]: row["size_sum"] for row in rows}


def parquet_form(columns: Sequence[str]) -> dict[str, Any]:
    """How the writer of a Parquet file with these columns of a piece is made."""

    def of_these(names: Sequence[str]) -> list[str]:
        return [name for name in names if name.partition(".")[0] in columns]

    return {
        "compression": "zstd",
        "compression_level": LEVEL,
        "use_dictionary": of_these(_DICTIONARIES),
        "column_encoding": dict.fromkeys(of_these(_ASCENDING), "DELTA_BINARY_PACKED"),
        "write_statistics": of_these(_STATISTICS),
        "store_schema": False,
    }


class SaidOfPiece(NamedTuple):
    """What a piece's footer says that its rows do not, as ``PieceFooter`` has it."""

    start: int
    end: int
    header_size: int
    facts: StretchFacts
    follows: int
    dropped: DroppedRows = NOTHING_DROPPED
    thinned: Mapping[str, tuple[QueueStretch, ...]] = MappingProxyType({})
    notes: tuple[PieceNote, ...] = ()


def locked_name(said: SaidOfPiece | PieceFooter, topic: str, number: int) -> str:
    """What locked rows of a piece are bound to; of a piece that is written anew it stays."""
    return f"{said.start}-{said.end}/{topic}/{number}"


def _assembled(
    parquet: memoryview,
    groups: list[SealedGroup],
    filters: list[bytes],
    *,
    said: SaidOfPiece,
    runs: dict[str, list[SealedRun]],
    snapshots: list[int],
    topic_bytes: Mapping[str, int],
    batched: Collection[str],
    closed: Mapping[int, LockedBytes],
    rest: memoryview,
) -> SealedPiece:
    """The parts of the file: what is ours stands between the row groups and Parquet's footer."""
    table = parquet[len(parquet) - table_size(parquet[-END_SIZE:], where="") :]
    at = groups[-1].at + groups[-1].size if groups else len(PARQUET_MARK)
    # Between the groups and the footer Parquet has nothing: no page index, no filters of its own.
    assert at + len(table) == len(parquet), (at, len(table), len(parquet))
    crcs = [zlib.crc32(parquet[group.at : group.at + group.size]) for group in groups]
    packed, every = zlib.compress(rest), b"".join(filters)
    behind = at + len(packed) + len(every)
    locked: dict[int, LockedGroup] = {}
    for number, one in closed.items():
        part = FilePart(behind, len(one.content), zlib.crc32(one.content))
        locked[number] = LockedGroup(one.topic, one.key, one.number, part)
        behind = part.end
    footer = PieceFooter(
        **said._asdict(),
        groups=tuple(group._replace(crc=crc) for group, crc in zip(groups, crcs, strict=True)),
        runs={topic: tuple(found) for topic, found in runs.items()},
        snapshots=tuple(sorted(snapshots)),
        rest=FilePart(at, len(packed), zlib.crc32(packed)),
        rest_bytes=len(rest),
        filters=FilePart(at + len(packed), len(every), zlib.crc32(every)),
        topic_bytes=dict(topic_bytes),
        batched=tuple(sorted(batched)),
        locked=locked,
    )
    content, trailer = encode_footer(footer, table)
    secret = tuple(one.content for one in closed.values())
    return SealedPiece((parquet[:at], packed, every, *secret, content, trailer, table), footer)


def _records(
    view: memoryview, begin: int, end: int, *, header_size: int, base: int
) -> tuple[I64, I64]:
    lots = records_in(view, begin, end, header_size=header_size, base=base)
    if not lots:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    starts, sizes = (np.concatenate(columns) for columns in zip(*lots, strict=True))
    largest = int(sizes.max()) + header_size
    if largest > GROUP_LOG_BYTES_MAX // 2:
        raise ConfigError(
            "a record is too large for a piece", bytes=largest, limit=GROUP_LOG_BYTES_MAX // 2
        )
    return starts, sizes


def _records_end(begin: int, starts: I64, sizes: I64) -> int:
    return int(starts[-1] + sizes[-1]) if len(starts) else begin


def _tables(block: RecordBlock, group_bytes: int, keys: KeyOf) -> Iterator[GroupRows]:
    """The row groups, in order; a topic that has a key has its own."""
    if not len(block.starts):
        return
    rows = RecordColumns(block, inflate=False)
    topics = rows.topics.dictionary_encode()
    # The rank of a topic among all, and not the order in which they came.
    ranks = pc.rank(topics.dictionary, "ascending").to_numpy().astype(np.int64)
    ranked = ranks[topics.indices.to_numpy(zero_copy_only=False)]
    order = np.lexsort((block.starts, rows.queue_ids, ranked))
    sizes = block.sizes[order] + block.header_size
    ends = np.cumsum(sizes)
    topic_ends = np.flatnonzero(np.diff(ranked[order])) + 1
    names = zip(ranks.tolist(), topics.dictionary.to_pylist(), strict=True)
    by_rank = {rank: keys(name) for rank, name in names}

    def key_at(row: int) -> bytes | None:
        return by_rank[int(ranked[order[row]])]

    # Where rows of a topic with a key begin, and those of the next one.
    apart = [at for at in topic_ends.tolist() if key_at(at - 1) or key_at(at)]
    first, done = 0, 0
    while first < len(order):
        # One row more than fits, so that there is one.
        end = min(int(np.searchsorted(ends, done + group_bytes)) + 1, len(order))
        # Who drops a topic, or seals it with a key of its own, has its rows apart.
        enough = int(np.searchsorted(ends, done + group_bytes // 4)) + 1
        within = topic_ends[(topic_ends >= max(enough, first + 1)) & (topic_ends < end)]
        end = int(within[-1]) if len(within) else end
        end = next((at for at in apart if first < at < end), end)
        wanted = order[first:end]
        ascending = np.sort(wanted)
        part = RecordBlock(
            *(block.view, block.base, block.starts[ascending], block.sizes[ascending]),
            *(block.header_size, block.file),
        )
        table = piece_table(part, np.searchsorted(ascending, wanted))
        yield GroupRows(table, sizes[first:end], key_at(first))
        first, done = end, int(ends[end - 1])


def _times(table: pa.Table) -> I64:
    """Store times, epoch ms; what no clock says counts as 0."""
    times: I64 = np.maximum(milliseconds(table.column("storeTimestamp")), 0)
    return times


def times_of(table: pa.Table) -> tuple[int, int]:
    """The least and the largest store time of rows, epoch ms."""
    times = _times(table)
    return int(times.min()), int(times.max())


def runs_of(
    table: pa.Table,
    group: int,
    runs: dict[str, list[SealedRun]],
    *,
    thinned: Collection[str] = (),
    batched: set[str],
) -> None:
    """Add to ``runs`` where the queues' messages are in the group, and to ``batched`` the topics
    of which records have several.

    Records that never were in a queue, as prepared ones of RocketMQ, have no run.

    Args:
        thinned: topics of which single messages were dropped: a run goes on behind them.
    """
    topics = table.column("topic").combine_chunks().dictionary_encode()
    codes = topics.indices.to_numpy(zero_copy_only=False)
    queues = table.column("queueId").to_numpy()
    offsets = table.column("queueOffset").to_numpy()
    flags = table.column("sysFlag").to_numpy()
    is_queued = are_queued(flags) & (queues >= 0) & (offsets >= 0)
    counts = _messages_of_rows(table, np.flatnonzero(flags & INNER_BATCH))
    times = _times(table)
    names = topics.dictionary.to_pylist()
    batched.update(names[code] for code in np.unique(codes[(flags & INNER_BATCH) != 0]))
    steps = offsets[1:] - offsets[:-1]
    has_holes = np.array([name in thinned for name in names], np.bool_)[codes[1:]]
    goes_on = (
        (codes[1:] == codes[:-1])
        & (queues[1:] == queues[:-1])
        & ((steps == counts[:-1]) | (has_holes & (steps > counts[:-1])))
        & is_queued[1:]
        & is_queued[:-1]
    )
    firsts = np.concatenate(([0], np.flatnonzero(~goes_on) + 1))
    for first, end in zip(firsts, np.append(firsts[1:], len(codes)), strict=True):
        if not is_queued[first]:
            continue
        within, last = times[first:end], end - 1
        span = int(offsets[last]) - int(offsets[first]) + int(counts[last])
        runs.setdefault(names[codes[first]], []).append(
            SealedRun(
                *(int(queues[first]), group, int(offsets[first]), int(first), int(end - first)),
                *(int(within.min()), int(within.max()), span if span > end - first else 0),
            )
        )


def are_queued(flags: I64) -> npt.NDArray[np.bool_]:
    """Whether records with these flags are messages of a queue: prepared and rolled back ones never
    were.
    """
    kinds = flags & TRANSACTION_MASK
    found: npt.NDArray[np.bool_]
    found = (kinds != TRANSACTION_PREPARED) & (kinds != TRANSACTION_ROLLBACK)
    return found


def _messages_of_rows(table: pa.Table, several: I64) -> I64:
    """How many messages each row has; the rows ``several`` say it in their properties."""
    counts = np.ones(table.num_rows, np.int64)
    if len(several):
        texts = pc.map_lookup(table.column("properties").take(several), INNER_NUM, "last")
        for row, text in zip(several.tolist(), texts.to_pylist(), strict=True):
            counts[row] = batch_numbers({INNER_NUM: text or ""}, 0).messages
    return counts


def _snapshots_in(table: pa.Table) -> list[int]:
    """Queue offsets where a snapshot of the broker's tables begins."""
    of_state = pc.and_(
        pc.equal(table.column("topic"), SYSTEM_TOPIC),
        pc.and_(
            pc.equal(table.column("queueId"), STATE_QUEUE_ID),
            pc.equal(pc.fill_null(table.column("tags"), ""), SNAPSHOT_TAG),
        ),
    )
    found = table.select(["queueOffset", "properties"]).filter(of_state)
    labels = pc.map_lookup(found.column("properties"), PART_PROPERTY, "first").to_pylist()
    offsets = found.column("queueOffset").to_pylist()
    return [
        offset
        for offset, label in zip(offsets, labels, strict=True)
        if (label or "").startswith("1/")
    ]


assert set(_ASCENDING) < set(COLUMNS)
