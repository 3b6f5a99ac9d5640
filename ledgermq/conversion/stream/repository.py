"""Repository of a backup stream: which pieces there are, and what they say of themselves.

    REPOSITORY/MEMBER/              one stream: that of one member, or ``plain`` of a plain log
        about                       whose log it is
        data/START-END              bytes of the log from one position to another, in one file of it
        commitlog/START-END         those of a plain log, or of one that was upgraded
        tables/POSITION             the broker's tables as of a position at most

Each is a sealed piece (``sealed_piece.py``), and is there whole or not at all. There is no list of
them: a name says what a piece holds, and committed bytes never change. So two streams into one
folder put the same under the same names, whoever is first, and one that was killed goes on with
what the names say.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from typing import NamedTuple, cast

from ledgermq.conversion.backup_manifest import OF_WHOM, BackupManifest
from ledgermq.conversion.stream.log_facts import StretchFacts
from ledgermq.conversion.stream.piece_folder import ABOUT, PiecePlace, missing_piece
from ledgermq.conversion.stream.sealed_piece import Bytes, Header, OpenedPiece, open_piece, seal
from ledgermq.model.config.settings_rules import JAVA_INT_MAX
from ledgermq.model.errors import ConfigError, CorruptLogError

LOG_FOLDERS = ("commitlog", "data")
TABLES = "tables"
_VERSION, _VERSION_WITHOUT_STREAM = 2, 1
_STREAM_SIZE = 16
_STREAM = re.compile(f"(?:[0-9a-f]{{{2 * _STREAM_SIZE}}})?")
_DIGITS = 20


@dataclass(frozen=True, slots=True)
class TablePiece:
    """What a piece of tables holds.

    Attributes:
        manifest: the store at that moment, without files.
        ends_position: the log from here on tells the end of every queue; 0: the whole log does.
        needed_from: the log from here on has all that the documents lack, and what waits for its
            time; None: an earlier version put them, which did not say.
        documents: by their path below the store's folder.
    """

    manifest: BackupManifest
    ends_position: int
    needed_from: int | None
    documents: dict[str, bytes]

    def serve_from(self, begin: int) -> bool:
        """Whether a log that begins at ``begin`` has what the tables say nothing of."""
        return begin == 0 or (
            self.ends_position >= begin and (self.needed_from is None or self.needed_from >= begin)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamAbout:
    """Whose log it is; all of it never changes.

    Attributes:
        cluster: id of the group, as text; None: it is alone.
        log_file_size, index_file_size: bytes of a file of the log, and of its index of entries.
        stream: 32 hexadecimal digits that no other stream has, drawn when it is begun; empty: it
            was begun up to 0.3.1, and its pieces are bound to no stream.
    """

    log: str
    self_id: str | None
    cluster: str | None
    log_file_size: int
    index_file_size: int
    stream: str = field(default="", compare=False)


class LogPiece(NamedTuple):
    """A piece of the log: positions from ``start`` to ``end``, in a file of ``folder``."""

    start: int
    end: int
    folder: str

    @property
    def name(self) -> str:
        """Its name in the repository."""
        return f"{self.folder}/{self.start:0{_DIGITS}d}-{self.end:0{_DIGITS}d}"

    def file_start(self, file_size: int) -> int:
        """Where its file of the log begins."""
        return self.start - self.start % file_size


class LogRun(NamedTuple):
    """Pieces that follow one another without a gap, and no more of them than it needs."""

    pieces: tuple[LogPiece, ...]

    @property
    def start(self) -> int:
        """First position."""
        return self.pieces[0].start

    @property
    def end(self) -> int:
        """Position behind the last byte."""
        return self.pieces[-1].end


class Repository:
    """The pieces of one stream, as they were when they were listed, and as they were put since."""

    def __init__(self, place: PiecePlace, key: bytes | None) -> None:
        """List what is in ``place``.

        Args:
            key: what pieces are encrypted with; None: with nothing.

        Raises:
            CorruptLogError: something has a name that no piece has.
            StorageError: the place refused.
        """
        self.place = place
        self._key = key
        self._about: StreamAbout | None = None
        self.log: list[LogPiece] = []
        self.tables: list[int] = []
        self.refresh()

    def refresh(self) -> None:
        """List again what is there.

        Raises:
            CorruptLogError, StorageError: as the constructor.
        """
        # Tables first: the log that they need is there by then.
        self.tables = [self._number(TABLES, name) for name in self.place.names(TABLES)]
        self.log = sorted(
            self._log_piece(folder, name)
            for folder in LOG_FOLDERS
            for name in self.place.names(folder)
        )

    def about(self) -> StreamAbout | None:
        """Whose log it is; None in an empty place.

        Raises:
            ConfigError: another key is needed, or it is of another version.
            CorruptLogError: it is not what was written.
            StorageError: the place refused.
        """
        # Each piece asks for it, and a look is a request to a bucket.
        if self._about is not None:
            return self._about
        if ABOUT not in self.place.names(""):
            if self.log or self.tables:
                raise missing_piece(self.place.as_text(ABOUT))
            return None
        with self._opened(ABOUT, stream="") as piece:
            header = piece.header
            all(piece.content)
        self._about = _about_of(header, said_by=self.place.as_text(ABOUT))
        return self._about

    def claim(self, about: StreamAbout) -> None:
        """Let it be the repository of that log, if it is none yet.

        Raises:
            ConfigError: it is that of another log.
            CorruptLogError, StorageError: as ``about``.
        """
        found = self.about()
        if found is None:
            drawn = replace(about, stream=os.urandom(_STREAM_SIZE).hex())
            header: Header = {"version": _VERSION, **asdict(drawn)}
            self.place.put(ABOUT, seal(ABOUT, header, b"", key=self._key))
            found = self.about()
        if found != about:
            raise ConfigError(
                "a stream of another log is there: take another folder",
                file=self.place.as_text(),
                found=found,
                log=about,
            )

    def is_of(self, manifest: BackupManifest) -> bool:
        """Whether tables that say that may be of this log."""
        about = self.about()
        return all(getattr(manifest, one) == getattr(about, one) for one in OF_WHOM)

    def tables_made(self, _run: LogRun, _end: int) -> TablePiece | None:
        """Tables as of the position ``_end`` that the log itself tells; None where only those do
        that were put.

        Raises:
            CorruptLogError, StorageError: the log cannot be read.
        """
        return None

    def completed(self, tables: TablePiece, _run: LogRun, _end: int) -> TablePiece:
        """The tables that were put, for a log from ``_run`` on up to the position ``_end``, with
        what the repository knows more of than was put: ends of queues, and commands before the run.

        Raises:
            CorruptLogError, StorageError: what was put is not whole, or cannot be read.
        """
        return tables

    def put_log(
        self, piece: LogPiece, facts: StretchFacts, content: Bytes, *, follows: int
    ) -> None:
        """Put bytes of the log; durable on return.

        Args:
            follows: where the repository ended before; -1 if it had nothing. Between there and the
                piece nothing is missing but what was never there.

        Raises:
            StorageError: the place refused.
        """
        header = {**asdict(facts), "follows": follows}
        self.place.put(piece.name, self._sealed(piece.name, header, content))
        if piece not in self.log:
            insort(self.log, piece)

    def put_tables(self, position: int, header: Header, content: bytes) -> None:
        """Put tables that say nothing of what is behind ``position``; durable on return.

        Raises:
            StorageError: the place refused.
        """
        name = tables_name(position)
        self.place.put(name, self._sealed(name, header, content))
        if position not in self.tables:
            insort(self.tables, position)

    def delete_log(self, pieces: Iterable[LogPiece]) -> None:
        """Have ``pieces`` no more.

        Raises:
            StorageError: the place refused.
        """
        for piece in pieces:
            self.place.delete(piece.name)
            self.log.remove(piece)

    def delete_tables(self, position: int) -> None:
        """Have these tables no more.

        Raises:
            StorageError: the place refused.
        """
        self.place.delete(tables_name(position))
        self.tables.remove(position)

    @contextmanager
    def read(self, name: str) -> Iterator[OpenedPiece]:
        """The piece ``name``, to be read within the block.

        Raises:
            ConfigError, CorruptLogError: as ``open_piece``.
            StorageError: the place refused.
        """
        with self._opened(name, stream=self._stream()) as piece:
            yield piece

    @contextmanager
    def _opened(self, name: str, *, stream: str) -> Iterator[OpenedPiece]:
        with self.place.opened(name) as file:
            where = self.place.as_text(name)
            yield open_piece(file, name, key=self._key, stream=bytes.fromhex(stream), where=where)

    def follows(self, piece: LogPiece) -> int:
        """Where the repository ended before the piece was put.

        Raises:
            ConfigError, CorruptLogError, StorageError: as ``read``.
        """
        with self.read(piece.name) as opened:
            return int(str(opened.header.get("follows", -1)))

    def read_log(self, piece: LogPiece) -> memoryview:
        """The bytes of a piece of the log, which is at most a file of it, in memory.

        Raises:
            ConfigError, CorruptLogError, StorageError: as ``read``.
        """
        content = bytearray()
        with self.read(piece.name) as opened:
            for block in opened.content:
                content += block
        return memoryview(content)

    def facts(self, piece: LogPiece) -> StretchFacts:
        """What a piece of the log says of itself.

        Raises:
            ConfigError, CorruptLogError, StorageError: as ``read``.
        """
        with self.read(piece.name) as opened:
            header = cast("dict[str, int]", opened.header)
            known = {name: header.get(name) for name in (*StretchFacts.__slots__, "follows")}
        if not all(isinstance(number, int) for number in known.values()):
            raise CorruptLogError(
                "piece of a backup stream lacks a number", file=self.place.as_text(piece.name)
            )
        size = header["size"]
        if size != piece.end - piece.start:
            raise CorruptLogError(
                "piece of a backup stream has another size than its name says",
                file=self.place.as_text(piece.name),
                size=size,
            )
        return StretchFacts(**{name: header[name] for name in StretchFacts.__slots__})

    def pieces_from(self, start: int, end: int) -> list[LogPiece]:
        """Pieces that begin at or behind ``start``, and before ``end``."""
        low, high = (bisect_left(self.log, (at,)) for at in (start, end))
        return self.log[low:high]

    def runs(self) -> list[LogRun]:
        """The log without pieces that others have as well, parted where something is missing."""
        runs: list[list[LogPiece]] = []
        # Of those that begin at one place the longest first.
        for piece in sorted(self.log, key=lambda one: (one.start, -one.end)):
            if not runs or piece.start > runs[-1][-1].end:
                runs.append([piece])
            elif piece.end > runs[-1][-1].end:
                runs[-1].append(piece)
        return [LogRun(tuple(run)) for run in runs]

    def _sealed(self, name: str, header: Header, content: Bytes) -> Iterator[Bytes]:
        stream = bytes.fromhex(self._stream())
        return seal(name, header, content, key=self._key, stream=stream)

    def _stream(self) -> str:
        about = self.about()
        if about is None:
            raise missing_piece(self.place.as_text(ABOUT))
        return about.stream

    def _log_piece(self, folder: str, name: str) -> LogPiece:
        start, _, end = name.partition("-")
        piece = LogPiece(self._number(folder, start), self._number(folder, end), folder)
        if piece.start >= piece.end or piece.name != f"{folder}/{name}":
            raise self._stranger(f"{folder}/{name}")
        return piece

    def _number(self, folder: str, name: str) -> int:
        if len(name) != _DIGITS or not (name.isascii() and name.isdecimal()):
            raise self._stranger(f"{folder}/{name}")
        return int(name)

    def _stranger(self, name: str) -> CorruptLogError:
        return CorruptLogError(
            "no piece of a backup stream has such a name", file=self.place.as_text(name)
        )


def _about_of(header: Header, *, said_by: str) -> StreamAbout:
    version = header.get("version")
    if version not in (_VERSION, _VERSION_WITHOUT_STREAM):
        raise ConfigError("stream of another version", file=said_by, version=version)
    names = [one.name for one in fields(StreamAbout)]
    known = {name: header.get(name) for name in names}
    if version == _VERSION_WITHOUT_STREAM:
        known["stream"] = ""
    size, stream = known["index_file_size"], known["stream"]
    is_whole = (
        all(takes(known[name]) for name, takes in OF_WHOM.items())
        and known["log_file_size"] != 0
        and type(size) is int
        and 0 < size <= JAVA_INT_MAX
        and isinstance(stream, str)
        and _STREAM.fullmatch(stream) is not None
        and bool(stream) is (version == _VERSION)
    )
    if not is_whole:
        raise CorruptLogError("stream says not what it is of", file=said_by)
    return StreamAbout(**known)  # type: ignore[arg-type]


def tables_name(position: int) -> str:
    """Name of the tables as of ``position``."""
    return f"{TABLES}/{position:0{_DIGITS}d}"
