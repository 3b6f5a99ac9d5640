"""Footer of a piece: what is where in the file, and what each part of it sums up to.

    offset                size  part
    0                     4     begin    b"PAR1", as of any Parquet file
    4                           groups   row groups of Parquet, one behind the other
                                rest     bytes of the log that are no record (zlib)
                                filters  a key filter for each row group (``key_filter.py``)
                                locked   rows of topics that have keys (``locked_rows.py``), one
                                         part for each row group of such a topic
                                footer   a JSON object (zlib)
                          40    trailer
                                table    Parquet's own footer, its size, b"PAR1": to the file's end

The trailer, big-endian:

    offset  size  field
    0       2     version      1; 2 where rows were dropped; 3 where some of a queue's were; 4
                               where records have several messages
    2       1     cipher       0: the piece is in the clear; 1: some rows are locked with keys
    3       1     zero
    4       4     footer size  bytes in the file
    8       4     plain size   bytes of the JSON object
    12      4     footer sum   CRC-32 of the footer's bytes in the file
    16      4     table size   bytes from the trailer's end to the file's end
    20      4     table sum    CRC-32 of those
    24      4     trailer sum  CRC-32 of the trailer's bytes before, and of those behind this field
    28      4     zeros
    32      8     magic        b"LMQSEAL1"

Parquet's readers go from the file's end to its footer, and from there to the groups: they never see
what is ours in between. We go from the end to the trailer, by the size that Parquet says.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from struct import Struct
from typing import NamedTuple

from ledgermq.conversion.stream.log_facts import StretchFacts
from ledgermq.formats.dledger_entry import HEADER_SIZE
from ledgermq.formats.records.message import SIZE_MIN
from ledgermq.model.errors import ConfigError, CorruptLogError
from ledgermq.model.limits import QUEUE_ID_MAX, STORED_TOPIC_SIZE_MAX

PARQUET_MARK = b"PAR1"
END_SIZE = 8
"""The size of Parquet's footer, and its mark, at the end of the file."""

FOOTER_BYTES_MAX = 128 << 20
TABLE_BYTES_MAX = 64 << 20
"""Most bytes of our footer and of Parquet's: that of 128 MiB of the log has some thousands."""

GROUPS_MAX = 16_384
GROUP_LOG_BYTES_MAX = 64 << 20
"""Most bytes of the log in one row group; those that are sealed have 4 MiB and one record more."""

GROUP_PLAIN_BYTES_MAX = 4 * GROUP_LOG_BYTES_MAX
"""Most bytes of a row group as Parquet has it decompressed: of a row that has its own bytes all
stands there twice, and some columns say once more what the properties do."""

LOG_BYTES_MAX = 1 << 31
"""Most bytes of the log in one piece: it is a part of one file."""

_TRAILER = Struct(">HBBIIIIII4s8s")
TRAILER_SIZE = _TRAILER.size
_MAGIC = b"LMQSEAL1"
_VERSION, _VERSION_DROPPED, _VERSION_THINNED, _VERSION_BATCHES = 1, 2, 3, 4
_OPEN, _LOCKED = 0, 1
_SUM_AT = 24
_KEY_NAME = re.compile(r"[0-9a-f]{16}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
assert TRAILER_SIZE == 40


class FilePart(NamedTuple):
    """Bytes of the file from ``at`` on, and their CRC-32."""

    at: int
    size: int
    crc: int

    @property
    def end(self) -> int:
        """Behind the last byte."""
        return self.at + self.size


class SealedGroup(NamedTuple):
    """A row group; times are those of the store, epoch ms.

    Attributes:
        log_bytes: that its rows have in the log, with the headers of their entries.
        filter_size: bytes of its key filter; those of all groups stand one behind the other.
    """

    at: int
    size: int
    crc: int
    rows: int
    log_bytes: int
    min_ms: int
    max_ms: int
    filter_size: int


class SealedRun(NamedTuple):
    """Messages of one queue whose offsets follow one another, in one row group.

    Attributes:
        offset: queue offset of the first one.
        row: of the first one in the group.
        span: queue offsets from the first to behind the last one, where records have several
            messages, or some in between were dropped; 0: as many as ``rows``.
    """

    queue_id: int
    group: int
    offset: int
    row: int
    rows: int
    min_ms: int
    max_ms: int
    span: int = 0

    @property
    def end(self) -> int:
        """Queue offset behind the last one."""
        return self.offset + (self.span or self.rows)


class LockedGroup(NamedTuple):
    """Rows of a row group that are locked with a key of their topic.

    Attributes:
        key: name of the key.
        number: that no other ones of the piece have: they are bound to it.
        part: where they are in the file.
    """

    topic: str
    key: str
    number: int
    part: FilePart


class QueueStretch(NamedTuple):
    """Messages of a queue in a piece whose offsets follow one another, or did when the piece was
    sealed; times are epoch ms.
    """

    queue_id: int
    offset: int
    end: int
    min_ms: int
    max_ms: int


class PieceNote(NamedTuple):
    """What was noted of the deletion of messages: the number of the run, and the digest of the file
    that says it, in hexadecimal digits.
    """

    edition: int
    digest: str


class DroppedRows(NamedTuple):
    """Records that the piece had when it was sealed, and that retention has dropped since."""

    records: int = 0
    log_bytes: int = 0


NOTHING_DROPPED = DroppedRows()


@dataclass(frozen=True, slots=True, kw_only=True)
class PieceFooter:
    """What a piece says of itself.

    Attributes:
        start, end: positions of the log that it has.
        header_size: bytes before each record in the log: 48, or 0 in a plain one.
        facts: of its records, as those of a backup stream's piece; of all that were sealed.
        follows: where the pieces before it ended; -1 for the first one.
        runs: by topic, in the order of queues, groups and rows.
        snapshots: queue offsets of the state's queue where a snapshot of the broker's tables
            begins, ascending.
        rest: of the log behind the last record, compressed; ``rest_bytes`` of them.
        topic_bytes: that each topic's rows have in the log; empty in a piece of before 0.4.0.
        dropped: what it does not have any more.
        thinned: by topic of which single messages were dropped: what there was of its queues. What
            is in no run of them was dropped on purpose.
        notes: of those whose deletion was noted, in their order.
        batched: topics of which records have several messages, ascending.
        locked: by number of the row group, in their order.
    """

    start: int
    end: int
    header_size: int
    facts: StretchFacts
    follows: int
    groups: tuple[SealedGroup, ...]
    runs: Mapping[str, tuple[SealedRun, ...]]
    snapshots: tuple[int, ...]
    rest: FilePart
    rest_bytes: int
    filters: FilePart
    topic_bytes: Mapping[str, int] = field(default_factory=dict)
    dropped: DroppedRows = NOTHING_DROPPED
    thinned: Mapping[str, tuple[QueueStretch, ...]] = field(default_factory=dict)
    notes: tuple[PieceNote, ...] = ()
    batched: tuple[str, ...] = ()
    locked: Mapping[int, LockedGroup] = field(default_factory=dict)


class PieceEnd(NamedTuple):
    """What the trailer says: the places of both footers."""

    footer: FilePart
    plain_size: int
    table: FilePart

    @property
    def at(self) -> int:
        """Where the footer begins: all from here on is read at once."""
        return self.footer.at


def encode_footer(footer: PieceFooter, table: bytes | memoryview) -> tuple[bytes, bytes]:
    """The footer and the trailer, before ``table``, which is Parquet's end of the file."""
    document = {
        "start": footer.start,
        "end": footer.end,
        "headerSize": footer.header_size,
        "facts": asdict(footer.facts),
        "follows": footer.follows,
        "groups": footer.groups,
        "runs": {
            topic: [run if run.span else run[:-1] for run in runs]
            for topic, runs in footer.runs.items()
        },
        "snapshots": footer.snapshots,
        "rest": [*footer.rest, footer.rest_bytes],
        "filters": footer.filters,
        "topicBytes": footer.topic_bytes,
        **({"dropped": footer.dropped} if footer.dropped.records else {}),
        **({"thinned": footer.thinned} if footer.thinned else {}),
        **({"notes": footer.notes} if footer.notes else {}),
        **({"batched": footer.batched} if footer.batched else {}),
        **({"locked": _locked_as_json(footer.locked)} if footer.locked else {}),
    }
    version = _VERSION_DROPPED if footer.dropped.records else _VERSION
    if footer.thinned:
        version = _VERSION_THINNED
    if footer.batched:
        version = _VERSION_BATCHES
    plain = json.dumps(document, separators=(",", ":")).encode()
    content = zlib.compress(plain)

    def packed(own: int) -> bytes:
        return _TRAILER.pack(
            *(
                version,
                _LOCKED if footer.locked else _OPEN,
                0,
                len(content),
                len(plain),
                zlib.crc32(content),
            ),
            *(len(table), zlib.crc32(table), own, bytes(4), _MAGIC),
        )

    return content, packed(_trailer_sum(packed(0)))


def _locked_as_json(locked: Mapping[int, LockedGroup]) -> list[list[object]]:
    return [[group, *one[:-1], *one.part] for group, one in locked.items()]


def table_size(end: bytes | memoryview, *, where: str) -> int:
    """Bytes behind the trailer, by the last ``END_SIZE`` bytes of a file.

    Raises:
        CorruptLogError: it is no Parquet file.
    """
    size = int.from_bytes(end[:4], "little") + END_SIZE
    if len(end) != END_SIZE or bytes(end[4:]) != PARQUET_MARK or size > TABLE_BYTES_MAX:
        raise damaged("end", where)
    return size


def decode_trailer(content: bytes | memoryview, end: int, *, where: str) -> PieceEnd:
    """The places of the footers.

    Args:
        content: ``TRAILER_SIZE`` bytes that end at ``end`` of the file.

    Raises:
        CorruptLogError: they are none.
        ConfigError: a later version wrote them.
    """
    if len(content) != TRAILER_SIZE or bytes(content[-8:]) != _MAGIC:
        raise damaged("trailer", where)
    version, cipher, zero, size, plain, crc, table, table_crc, own, zeros, _ = _TRAILER.unpack(
        content
    )
    if own != _trailer_sum(content):
        raise damaged("trailer", where)
    if not _VERSION <= version <= _VERSION_BATCHES or cipher not in (_OPEN, _LOCKED):
        raise ConfigError("piece of a later version", file=where, version=version, cipher=cipher)
    at = end - TRAILER_SIZE - size
    if zero or any(zeros) or at < 4 or max(size, plain) > FOOTER_BYTES_MAX:
        raise damaged("trailer", where)
    return PieceEnd(FilePart(at, size, crc), plain, FilePart(end, table, table_crc))


def _trailer_sum(content: bytes | memoryview) -> int:
    return zlib.crc32(content[_SUM_AT + 4 :], zlib.crc32(content[:_SUM_AT]))


def decode_footer(content: bytes | memoryview, end: PieceEnd, *, where: str) -> PieceFooter:
    """The footer, of which ``content`` are the bytes in the file.

    All that it says of places is within the file and in order, and all sizes are bounded.

    Raises:
        CorruptLogError: it is none.
    """
    if len(content) != end.footer.size or zlib.crc32(content) != end.footer.crc:
        raise damaged("footer", where)
    try:
        machine = zlib.decompressobj()
        plain = machine.decompress(content, end.plain_size or 1)
        if len(plain) != end.plain_size or not machine.eof or machine.unused_data:
            raise damaged("footer", where)
        document = json.loads(plain)
        footer = _read(document)
    except (zlib.error, ValueError, TypeError, KeyError, RecursionError) as error:
        raise damaged("footer", where, reason=str(error)) from error
    _check(footer, end, where)
    return footer


def _read(document: dict[str, list[object]]) -> PieceFooter:
    """The footer of a document whose values are of the right types.

    Raises:
        KeyError, TypeError, ValueError: they are not.
    """
    facts: object = document["facts"]
    runs: object = document["runs"]
    sizes: object = document.get("topicBytes", {})
    thinned: object = document.get("thinned", {})
    batched: object = document.get("batched", [])
    if not isinstance(sizes, dict) or not isinstance(thinned, dict):
        raise TypeError("no object")
    if not isinstance(batched, list) or not all(isinstance(topic, str) for topic in batched):
        raise TypeError("no topics")
    if not isinstance(facts, dict) or not isinstance(runs, dict):
        raise TypeError("no object")
    *rest, rest_bytes = _integers(document["rest"])
    return PieceFooter(
        start=_integer(document["start"]),
        end=_integer(document["end"]),
        header_size=_integer(document["headerSize"]),
        facts=StretchFacts(**{name: _integer(facts[name]) for name in StretchFacts.__slots__}),
        follows=_integer(document["follows"]),
        groups=tuple(SealedGroup(*_integers(row)) for row in document["groups"]),
        runs={
            topic: tuple(SealedRun(*_integers(row)) for row in rows) for topic, rows in runs.items()
        },
        snapshots=tuple(_integers(document["snapshots"])),
        rest=FilePart(*rest),
        rest_bytes=rest_bytes,
        filters=FilePart(*_integers(document["filters"])),
        topic_bytes={topic: _integer(size) for topic, size in dict(sizes).items()},
        dropped=DroppedRows(*_integers(document.get("dropped", [0, 0]))),
        thinned={
            topic: tuple(QueueStretch(*_integers(row)) for row in rows)
            for topic, rows in thinned.items()
        },
        notes=tuple(_note(row) for row in document.get("notes", [])),
        batched=tuple(batched),
        locked=dict(_locked(row) for row in document.get("locked", [])),
    )


def _note(value: object) -> PieceNote:
    if not isinstance(value, list):
        raise TypeError("no list")
    edition, digest = value
    if not isinstance(digest, str) or _DIGEST.fullmatch(digest) is None:
        raise TypeError("no digest")
    return PieceNote(_integer(edition), digest)


def _locked(value: object) -> tuple[int, LockedGroup]:
    if not isinstance(value, list):
        raise TypeError("no list")
    group, topic, key, number, *part = value
    if not isinstance(topic, str) or not isinstance(key, str) or _KEY_NAME.fullmatch(key) is None:
        raise TypeError("no topic, or no name of a key")
    return _integer(group), LockedGroup(topic, key, _integer(number), FilePart(*_integers(part)))


def _integers(values: object) -> list[int]:
    if not isinstance(values, list):
        raise TypeError("no list")
    return [_integer(value) for value in values]


def _integer(value: object) -> int:
    if type(value) is not int or not -1 <= value < 1 << 63:
        raise TypeError("no integer of 63 bits")
    return value


def _check(footer: PieceFooter, end: PieceEnd, where: str) -> None:
    """Refuse what cannot be, so that nobody reads or allocates by it."""
    size, facts = footer.end - footer.start, footer.facts
    at, log_bytes, filters = len(PARQUET_MARK), 0, 0
    is_right = (
        0 <= footer.start < footer.end
        and size <= LOG_BYTES_MAX
        and footer.header_size in (0, HEADER_SIZE)
        and len(footer.groups) <= GROUPS_MAX
        and facts.records == sum(group.rows for group in footer.groups) + footer.dropped.records
        and footer.follows <= footer.start
    )
    for group in footer.groups:
        is_right = is_right and (
            group.at == at
            and group.size > 0
            and 0 < group.rows * (SIZE_MIN + footer.header_size) <= group.log_bytes
            and group.log_bytes <= GROUP_LOG_BYTES_MAX
            and group.filter_size >= 0
        )
        at, log_bytes, filters = (
            group.at + group.size,
            log_bytes + group.log_bytes,
            filters + group.filter_size,
        )
    is_right = is_right and (
        at <= footer.rest.at <= footer.rest.end == footer.filters.at
        and _locked_end(footer) == end.footer.at
        and footer.filters.size == filters
        and log_bytes + footer.rest_bytes + footer.dropped.log_bytes == size
        and min(*footer.dropped, *footer.topic_bytes.values()) >= 0
        and sum(footer.topic_bytes.values()) in (log_bytes, 0)
        and min(footer.rest.size, footer.filters.size, footer.rest_bytes) >= 0
        and list(footer.snapshots) == sorted(footer.snapshots)
        and all(_are_runs(topic, runs, footer) for topic, runs in footer.runs.items())
        and all(_are_stretches(topic, found) for topic, found in footer.thinned.items())
        and (bool(footer.dropped.records) or not (footer.thinned or footer.notes))
    )
    if not is_right:
        raise damaged("footer", where, reason="places or sizes cannot be")


def _locked_end(footer: PieceFooter) -> int:
    """Where the locked parts end, one behind the other; -1 where they cannot be so."""
    at, last = footer.filters.end, -1
    for group, one in footer.locked.items():
        is_right = (
            last < group < len(footer.groups)
            and one.part.at == at
            and one.part.size > 0
            and 0 < len(one.topic) <= STORED_TOPIC_SIZE_MAX
        )
        if not is_right:
            return -1
        at, last = one.part.end, group
    return at


def _are_runs(topic: str, runs: tuple[SealedRun, ...], footer: PieceFooter) -> bool:
    groups = footer.groups
    may_span = topic in footer.thinned or topic in footer.batched
    return 0 < len(topic) <= STORED_TOPIC_SIZE_MAX and all(
        0 <= run.queue_id <= QUEUE_ID_MAX
        and 0 <= run.group < len(groups)
        and run.offset >= 0
        and run.row >= 0
        and 0 < run.rows <= groups[run.group].rows - run.row
        and (run.span == 0 or (may_span and run.span > run.rows))
        for run in runs
    )


def _are_stretches(topic: str, found: tuple[QueueStretch, ...]) -> bool:
    return 0 < len(topic) <= STORED_TOPIC_SIZE_MAX and all(
        0 <= one.queue_id <= QUEUE_ID_MAX and 0 <= one.offset < one.end for one in found
    )


def damaged(part: str, where: str, **more: object) -> CorruptLogError:
    """The error of a part that is not what was sealed."""
    return CorruptLogError("part of a piece is not what was sealed", file=where, part=part, **more)
