"""What do an archive and a backup stream of 100 TB need in a bucket: requests, memory, money?

A simulation: manifests and names of pieces are made up, what reads them is the real thing, and
requests are counted by ``bucket_requests.py``, which tests hold against a real server. Estimate
beforehand: a file of an archive has 400 bytes in the manifest and 1 KB in memory; 50,000 of them
are nothing, 1.5 million (parts of 128 MiB) are 600 MB to be read by each run. Names of 100,000
pieces are 100 requests, a second, 20 MB; requests of a month cost some dollars, 100 TB that are
kept 2,300.

    python -m bench.bucket_plan [--smoke] [--puts 0.005] [--gets 0.0004] [--month …] [--out …]
"""

from __future__ import annotations

import argparse
import io
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from itertools import islice, pairwise
from math import ceil
from typing import BinaryIO, NamedTuple

from bench.bucket_requests import (
    AMAZON,
    Prices,
    Requests,
    archive_audit,
    archive_run,
    pages,
    pieces_of_file,
    stream,
    stream_restore,
)
from bench.machine import write
from bench.pipeline_plan import FILE_SIZE, MESSAGE_SIZE, TB, Figures, measured
from ledgermq.conversion.backup_manifest import BackupManifest
from ledgermq.conversion.stream.log_facts import StretchFacts
from ledgermq.conversion.stream.piece_folder import ABOUT
from ledgermq.conversion.stream.repository import LogPiece, Repository, StreamAbout
from ledgermq.conversion.stream.sealed_piece import seal
from ledgermq.conversion.stream.stream_restore import Wanted, find_point
from ledgermq.pipeline.archive.archive_layout import (
    PLAIN,
    ArchivedFile,
    ArchiveRun,
    ArchiveState,
    QueueMark,
    QueueSpan,
    decode_run,
    encode_run,
    file_path,
)
from ledgermq.store.files.checked_document import decode_document, encode_document

SIZE = 100 * TB
RUNS = 30
"""One a night."""

TOPICS, QUEUES_OF_EACH = 2, 8
PARQUET_SHARE = 0.5
"""What Parquet makes of a byte of the log: that is yours to measure."""

SECONDS = RUNS * 86_400
INTERVAL_S = 5
SPLITS_MIB = (128, 1_024, 4_096)


class PlannedArchive(NamedTuple):
    """An archive of some size, which came in ``RUNS`` runs."""

    files_of_run: int
    file_size: int

    @classmethod
    def of(cls, size: int, split_bytes: int) -> PlannedArchive:
        """A task has a file for each topic; that it has two where a day ends is left out."""
        files = ceil(size / RUNS / split_bytes) * TOPICS
        return cls(files, int(size / RUNS * PARQUET_SHARE / files))

    @property
    def files(self) -> int:
        """All of them."""
        return self.files_of_run * RUNS

    def requests_of_runs(self) -> Requests:
        """Of all runs."""
        found = Requests()
        for before in range(RUNS):
            found += archive_run(
                files=self.files_of_run, file_size=self.file_size, runs_before=before
            )
        return found

    def requests_of_audit(self) -> Requests:
        """Of one audit of the whole archive."""
        return archive_audit(files=self.files, runs=RUNS)


class PlannedStream(NamedTuple):
    """A repository of a log that came at one rate."""

    log_files: int
    pieces_of_file: int

    @classmethod
    def of(cls, size: int, seconds: int) -> PlannedStream:
        """Of ``size`` bytes in so many seconds, with a turn each ``INTERVAL_S``."""
        rate = size / seconds
        pieces = pieces_of_file(file_size=FILE_SIZE, bytes_per_turn=max(1, int(rate * INTERVAL_S)))
        return cls(size // FILE_SIZE, pieces)

    @property
    def pieces(self) -> int:
        """That stay."""
        return self.log_files * self.pieces_of_file

    @property
    def tables(self) -> int:
        """With each file of the log; each half hour besides is as good as nothing."""
        return self.log_files

    def requests_of_stream(self) -> Requests:
        """Of all that it has put."""
        return stream(pieces_put=self.pieces, tables=self.tables)

    def requests_of_restore(self, heads: int) -> Requests:
        """Of a restore of all of it."""
        size = FILE_SIZE // self.pieces_of_file
        return stream_restore(pieces=self.pieces, piece_size=size, tables=self.tables, heads=heads)


def made_run(number: int, *, files: int, file_size: int) -> ArchiveRun:
    """A run whose files have made-up names and numbers, as long as real ones."""
    rows = int(file_size / PARQUET_SHARE) // MESSAGE_SIZE
    of_queue = max(1, rows // QUEUES_OF_EACH)
    made = []
    for task in range(files // TOPICS):
        for topic in range(TOPICS):
            at = (number * files + task) * of_queue
            spans = [
                QueueSpan(queue, 0, at, at + of_queue, of_queue) for queue in range(QUEUES_OF_EACH)
            ]
            path = file_path(
                f"topic-{topic}", 20_000 + number,
                run=number, task=task, number=topic, attempt=f"{task:08x}",
            )  # fmt: skip
            made.append(
                ArchivedFile(
                    path, f"topic-{topic}", 20_000 + number, of_queue * QUEUES_OF_EACH, file_size,
                    "0123456789abcdef" * 4, 1_767_225_600_000, 1_767_225_699_999, 0, tuple(spans),
                )
            )  # fmt: skip
    marks = {
        (f"topic-{topic}", queue): QueueMark(0, 0, 10**9, number * 10**12, 1_767_225_600_000)
        for topic in range(TOPICS)
        for queue in range(QUEUES_OF_EACH)
    }
    return ArchiveRun(
        number, 1_767_225_600_000, "tcp://10.0.0.1:10922", PLAIN, {}, number * 10**12, marks, (),
        tuple(made),
    )  # fmt: skip


def document_bytes(planned: PlannedArchive) -> int:
    """Of one document of the manifest."""
    made = made_run(1, files=planned.files_of_run, file_size=planned.file_size)
    return len(encode_document(encode_run(made)))


def read_manifest(planned: PlannedArchive) -> Figures:
    """What each run and each audit reads before it does anything, one document after the other."""
    size = 0

    def runs() -> Iterator[ArchiveRun]:
        nonlocal size
        for number in range(1, RUNS + 1):
            made = made_run(number, files=planned.files_of_run, file_size=planned.file_size)
            content = encode_document(encode_run(made))
            size += len(content)
            yield decode_run(decode_document(content, file=""), file="")

    state = ArchiveState.of(runs())
    assert len(state.files) == planned.files
    return {"files": len(state.files), "manifest_bytes": size}


class MadeRepository:
    """A place whose pieces have a head and nothing behind it; it counts what it is asked."""

    def __init__(self, planned: PlannedStream) -> None:
        """As ``planned`` has it."""
        each = planned.pieces_of_file
        ends = [number * FILE_SIZE // each for number in range(planned.pieces + 1)]
        pieces = [LogPiece(start, end, "data") for start, end in pairwise(ends)]
        self._pieces = {piece.name.partition("/")[2]: piece for piece in pieces}
        self._tables = [f"{(number + 1) * FILE_SIZE:020d}" for number in range(planned.tables)]
        self.listings = 0
        self._opened: list[str] = []

    @property
    def opens(self) -> int:
        """How many pieces were looked at, by however many threads."""
        return len(self._opened)

    def as_text(self, name: str = "") -> str:
        """As ``PiecePlace``."""
        return f"made:{name}"

    def names(self, folder: str) -> list[str]:
        """As ``PiecePlace``."""
        if not folder:
            # Whose it is, each stream and restore asks once.
            return [ABOUT]
        found = {"data": list(self._pieces), "tables": self._tables}.get(folder, [])
        self.listings += pages(len(found))
        return found

    def put(self, name: str, parts: Iterable[bytes | memoryview]) -> bool:
        """Nothing is put here."""
        raise AssertionError(name)

    def delete(self, name: str) -> None:
        """Nothing is deleted here."""
        raise AssertionError(name)

    @contextmanager
    def opened(self, name: str) -> Iterator[BinaryIO]:
        """As ``PiecePlace``: a head, which says what would be behind it."""
        if name != ABOUT:
            self._opened.append(name)
        folder, _, rest = name.partition("/")
        if name == ABOUT:
            header, content = {"version": 1, **asdict(_ABOUT)}, _Unread(0)
        elif folder == "tables":
            header, content = _head_of_tables(int(rest)), _Unread(0)
        else:
            piece = self._pieces[rest]
            header, content = _head_of(piece), _Unread(piece.end - piece.start)
        # Head, what the piece says, and the tag behind that.
        parts = islice(seal(name, header, content, key=None), 3)  # type: ignore[arg-type]
        yield io.BytesIO(b"".join(parts))


_ABOUT = StreamAbout(
    log="dledger", self_id="n0", cluster=None, log_file_size=FILE_SIZE, index_file_size=FILE_SIZE
)


class _Unread:
    """So many bytes of content, of which nobody reads one."""

    def __init__(self, size: int) -> None:
        self._size = size

    def __len__(self) -> int:
        return self._size


def _head_of(piece: LogPiece) -> dict[str, object]:
    begin, end = (position // MESSAGE_SIZE for position in (piece.start, piece.end))
    facts = StretchFacts(
        records=end - begin, first_index=begin, last_index=end - 1, last_term=1,
        first_ms=begin, max_ms=end - 1, first_at=piece.start, last_at=piece.end - MESSAGE_SIZE,
        last_size=MESSAGE_SIZE, last_crc=0,
    )  # fmt: skip
    return {**asdict(facts), "follows": piece.start}


def _head_of_tables(position: int) -> dict[str, object]:
    index = position // MESSAGE_SIZE - 1
    manifest = BackupManifest(
        created_ms=1, log="dledger", self_id="n0", cluster=None, first=0, end=position, index=index,
        term=1, committed=index, current_term=1, log_file_size=FILE_SIZE, queue_file_size=None,
        hash_slots=None, index_items=None, with_index=True, delay_levels="1s 5s",
    )  # fmt: skip
    return {"manifest": asdict(manifest), "ends_position": 0, "sizes": []}


def listed(place: MadeRepository, wanted: Wanted | None) -> Figures:
    """A repository that is opened, as each stream and restore does it, and a point looked for."""
    repository = Repository(place, None)
    if wanted is not None:
        assert find_point(repository, wanted).end == repository.log[-1].end
    return {"pieces": len(repository.log), "listings": place.listings, "opens": place.opens}


def listings(size: int) -> Figures:
    """What it takes to open the repositories of a log of ``size`` bytes, and to find points."""
    figures: Figures = {}
    for name, seconds in (("whole_files", 60), ("of_a_month", SECONDS)):
        planned = PlannedStream.of(size, seconds)
        # Here, and not in the child, whose memory is measured.
        place = MadeRepository(planned)
        points = {
            "begin": None,
            "last": Wanted(),
            "index": Wanted(index=last_index(planned)),
            "time": Wanted(time_ms=1 << 62),
        }
        for point, wanted in points.items():
            figures[f"stream_{name}_{point}"] = measured(
                lambda place=place, wanted=wanted: listed(place, wanted)  # type: ignore[misc]
            )
    return figures


def last_index(planned: PlannedStream) -> int:
    """Of the last entry in the made-up repository."""
    return planned.log_files * FILE_SIZE // MESSAGE_SIZE - 1


def month(prices: Prices, size: int) -> dict[str, float]:
    """What a month costs: an archive of ``size`` bytes of a log, that is audited once, and a stream
    that has put as much in the month.
    """
    archive = PlannedArchive.of(size, SPLITS_MIB[-1] << 20)
    streamed = PlannedStream.of(size, SECONDS)
    return {
        "archive_runs": prices.of(archive.requests_of_runs()),
        "archive_audit": prices.of(archive.requests_of_audit()),
        "archive_kept": prices.kept(int(size * PARQUET_SHARE)),
        "archive_read_from_outside": prices.taken_out(int(size * PARQUET_SHARE)),
        "stream": prices.of(streamed.requests_of_stream()),
        "stream_kept": prices.kept(size),
        "restore": prices.of(streamed.requests_of_restore(streamed.pieces)),
        "restore_to_outside": prices.taken_out(size),
    }


def main() -> None:
    """Count, read what is made up, write the figures down."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true")
    for name, price in asdict(AMAZON).items():
        parser.add_argument(f"--{name}", type=float, default=price, help="price (%(default)s)")
    arguments = parser.parse_args()
    prices = Prices(**{name: getattr(arguments, name) for name in asdict(AMAZON)})
    size = TB if arguments.smoke else SIZE
    figures: Figures = {"log_bytes": size, "prices": asdict(prices), "month": month(prices, size)}
    for split in SPLITS_MIB:
        archive = PlannedArchive.of(size, split << 20)
        figures[f"archive_{split}_mib"] = {
            "files": archive.files,
            "file_bytes": archive.file_size,
            "runs": asdict(archive.requests_of_runs()),
            "audit": asdict(archive.requests_of_audit()),
            "manifest": measured(lambda planned=archive: read_manifest(planned)),  # type: ignore[misc]
        }
    figures |= listings(size)
    if arguments.smoke:
        print(figures)
    else:
        write("bucket_plan", figures)


if __name__ == "__main__":
    main()
