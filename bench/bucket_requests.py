"""Requests that archives and backup streams make of a bucket, by formulas, and what they cost.

Tests hold the formulas against what a real S3 server is asked (``tests/buckets/test_requests.py``).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from ledgermq.buckets.amazon_bucket import PART_BYTES
from ledgermq.buckets.bucket import LIST_MAX
from ledgermq.conversion.stream.log_stream import PIECES_MAX
from ledgermq.conversion.stream.piece_bucket import FIRST_BYTES

GB = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """How many there are of each price.

    Attributes:
        puts: PUT, COPY, POST and LIST, which cost the same.
        gets: GET.
        deletes: of up to 1,000 objects each; Amazon takes nothing for them.
    """

    puts: int = 0
    gets: int = 0
    deletes: int = 0

    def __add__(self, other: Requests) -> Requests:
        return Requests(
            puts=self.puts + other.puts,
            gets=self.gets + other.gets,
            deletes=self.deletes + other.deletes,
        )

    def times(self, count: int) -> Requests:
        """So often the same."""
        return Requests(
            puts=self.puts * count, gets=self.gets * count, deletes=self.deletes * count
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Of one store, in its money.

    Attributes:
        puts, gets: of 1,000 requests.
        month: of a GB (10**9 bytes) that is kept for a month.
        out: of a GB that leaves the store's region.
    """

    puts: float
    gets: float
    month: float
    out: float

    def of(self, requests: Requests) -> float:
        """What requests cost."""
        return requests.puts / 1_000 * self.puts + requests.gets / 1_000 * self.gets

    def kept(self, size: int) -> float:
        """What so many bytes cost in a month."""
        return size / GB * self.month

    def taken_out(self, size: int) -> float:
        """What so many bytes cost that leave the region."""
        return size / GB * self.out


AMAZON = Prices(puts=0.005, gets=0.0004, month=0.023, out=0.09)
"""S3 Standard, US East (N. Virginia), in USD, of 2025, the first step of each price."""


def pages(keys: int) -> int:
    """Requests of a listing."""
    return max(1, ceil(keys / LIST_MAX))


def upload(size: int, *, part_bytes: int = PART_BYTES) -> Requests:
    """One file of an archive: in parts, where it is as large as one."""
    return Requests(puts=1 if size < part_bytes else ceil(size / part_bytes) + 2)


def archive_run(*, files: int, file_size: int, runs_before: int) -> Requests:
    """A run of ``spark archive`` that adds ``files`` files to an archive that is there.

    Renewals of its lease come to it, a PUT every 15 s.
    """
    manifest = pages(runs_before)
    taken = Requests(gets=1, puts=1)
    # Two puts whose conditions are not met are looked at again.
    tried = Requests(puts=3, gets=2, deletes=1)
    read = Requests(gets=1 + runs_before, puts=manifest)
    # What the run before left: its files, uploads of parts, documents.
    put_right = Requests(puts=1 + 1 + 1 + manifest)
    written = upload(file_size).times(files)
    committed = Requests(puts=2)
    published = Requests(puts=pages(files) + files)
    discarded = Requests(
        puts=pages(files) + 1 + pages(runs_before + 1), deletes=ceil(files / LIST_MAX)
    )
    ended = Requests(puts=1)
    found = taken + tried + read + put_right + written + committed + published + discarded
    return found + ended


def archive_audit(*, files: int, runs: int) -> Requests:
    """``archive-verify``, which reads all of an archive; a replay asks for as much."""
    return Requests(gets=1 + runs + files, puts=pages(runs) + pages(files + runs + 1))


def pieces_of_file(*, file_size: int, bytes_per_turn: int) -> int:
    """Pieces of one file of the log that stay in a repository.

    Args:
        bytes_per_turn: that are committed between two turns of the stream.
    """
    pieces = max(1, ceil(file_size / bytes_per_turn))
    return pieces if pieces <= PIECES_MAX else 1


def stream(*, pieces_put: int, tables: int) -> Requests:
    """``backup stream``, from its first turn on; each later start asks for a few less.

    What comes in more than ``PIECES_MAX`` pieces a file is put once more, and they are deleted.

    Args:
        pieces_put: in turns, one each, or one more where a file of the log ends.
    """
    # The store is tried, three folders are listed, and whose log it is is looked for, put and read.
    begun = Requests(puts=2 + 3 + 1 + 1 + 1, gets=1)
    return begun + Requests(puts=pieces_put + tables)


def piece_read(size: int) -> Requests:
    """A piece that is read as a whole."""
    return Requests(gets=1 if size <= FIRST_BYTES else 2)


def heads_looked_at(pieces: int) -> int:
    """Of a restore by an index: it halves what is left, and reads one head, or one beside it."""
    return pieces.bit_length() + 2


def stream_restore(
    *, pieces: int, piece_size: int, tables: int, heads: int, streams: int = 1
) -> Requests:
    """``backup restore``: a listing, some heads, and each piece.

    Args:
        pieces: that are in the repository, and are restored; ``tables`` that are there.
        heads: that are read to find the point: 1 for the last one, ``heads_looked_at`` by an index,
            each one by a time.
        streams: in the repository.
    """
    # The repository's own names, first for whether it is a place of sealed pieces; its folders,
    # what each is, and then the one stream.
    listed = Requests(puts=1 + 1 + 1 + streams + pages(tables) + 1 + pages(pieces) + 1)
    about = Requests(gets=1)
    newest_tables = piece_read(FIRST_BYTES)
    read = piece_read(piece_size).times(pieces)
    return listed + about + Requests(gets=heads) + newest_tables + read


def seal_run(*, pieces: int) -> Requests:
    """A run of ``piece seal`` into a place that has pieces: each is a put, and so is the manifest,
    which is read before; two puts try the conditions.
    """
    return Requests(gets=1 + pieces, puts=2 * pieces + (2 if pieces else 0))


def seal_command(*, pieces: int, tables: int) -> Requests:
    """The command, in a place that it has sealed into before.

    Args:
        tables: of the broker that it puts: 1 with each file of the log and each half hour, else 0,
            and then the last ones are looked at where there is something to be sealed.
    """
    looked = 1 if pieces and not tables else 0
    # What is there, whose log it is, and which tables.
    listed = Requests(puts=5, gets=2)
    return listed + Requests(puts=tables, gets=looked) + seal_run(pieces=pieces)


def piece_checked(*, groups: int) -> Requests:
    """A piece of which a node compares each part with its sum, once: its footers, its begin, the
    row groups, what stands behind them, the filters.
    """
    return Requests(gets=groups + 4)
