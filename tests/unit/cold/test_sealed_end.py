"""Up to where the log is sealed is told by pieces that were read through, and by nothing else."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledgermq.cold.disk_cache import DiskCache
from ledgermq.cold.same_log import SealedEnd
from ledgermq.cold.watched_place import WatchedPlace
from ledgermq.ipc.counters import no_counts
from ledgermq.ipc.cursor_page import CursorPage, LogCursor
from ledgermq.model.config.settings import ColdSection, LogKind, NodeSection, Settings, StoreSection
from ledgermq.model.errors import ConfigError, CorruptLogError, LedgerError
from ledgermq.model.ids import Index, Position, Term
from ledgermq.pipeline.pieces.log_sealing import SealSizes, seal_log
from ledgermq.pipeline.pieces.piece_file import PieceFile
from ledgermq.pipeline.pieces.piece_manifest import (
    DroppedPart,
    PieceManifest,
    read_manifest,
)
from ledgermq.pipeline.pieces.piece_places import SealedFolder
from ledgermq.store.log_reader import LogReader
from ledgermq.store.store_directory import open_directory
from tests.small_store import BEGIN_MS, write_store

pytestmark = pytest.mark.slow

SIZES = SealSizes(piece_bytes=1_000, group_bytes=400)


class Sealed:
    """A store whose whole log is sealed, and how far that is told."""

    def __init__(self, folder: Path, *, begin_ms: int = BEGIN_MS) -> None:
        self.root = folder / "store"
        self.root.mkdir(parents=True)
        write_store(self.root, messages=30, begin_ms=begin_ms)
        self.place = SealedFolder(folder / "pieces")
        reader = LogReader(open_directory(self.root))
        self.end = int(reader.end)
        seal_log(self.place, reader, self.end, sizes=SIZES)
        reader.close()
        self.manifest = read_manifest(self.place)
        self.page = CursorPage.create(folder / "page")
        self.commit(self.end)
        self.settings = Settings(
            node=NodeSection(self_id="n0"),
            store=StoreSection(path_root_dir=self.root, log=LogKind.DLEDGER),
            cold=ColdSection(place=str(folder / "pieces")),
        )
        self.watched = WatchedPlace(
            self.place,
            DiskCache(folder / "cache", 1 << 20),
            folder / "manifest",
            no_counts(),
            epoch_ns=lambda: 0,
        )
        self.sealed = SealedEnd(self.settings, self.page, self.watched)

    def commit(self, position: int) -> None:
        self.page.publish_committed(LogCursor(Position(position), Index(29), Term(2)))

    def look(self, manifest: PieceManifest | None = None) -> list[int]:
        told: list[int] = []
        self.sealed.look(manifest or self.manifest, told.append)
        return told

    def told_before(self, refused: type[LedgerError], match: str) -> list[int]:
        """What was told before the look ended with an error."""
        told: list[int] = []
        with pytest.raises(refused, match=match):
            self.sealed.look(self.manifest, told.append)
        return told

    def file(self, number: int) -> Path:
        return Path(self.place.as_text(self.manifest.rows[number].name))


@pytest.fixture
def sealed(tmp_path: Path) -> Iterator[Sealed]:
    made = Sealed(tmp_path / "one")
    yield made
    made.page.close()


def test_all_is_told_piece_by_piece(sealed: Sealed) -> None:
    rows = sealed.manifest.rows
    assert len(rows) > 4
    assert sealed.look() == [rows[0].start, *(row.end for row in rows)]


def test_no_more_is_told_than_is_committed_here(sealed: Sealed) -> None:
    sealed.commit(sealed.manifest.rows[2].end - 1)
    assert sealed.look()[-1] == sealed.manifest.rows[1].end
    sealed.commit(sealed.end)
    assert sealed.look()[-1] == sealed.end


def test_a_piece_is_read_once_while_the_process_lives(sealed: Sealed) -> None:
    sealed.look()
    shutil.rmtree(sealed.place.as_text("pieces"))
    assert sealed.look()[-1] == sealed.end


def test_a_gap_ends_what_is_told_and_what_was_dropped_is_none(sealed: Sealed) -> None:
    rows = sealed.manifest.rows
    without = sealed.manifest._replace(rows=(*rows[:2], *rows[3:]))
    assert sealed.look(without)[-1] == rows[1].end
    gone = DroppedPart(rows[1].end, rows[2].start, rows[2].end)
    assert sealed.look(without._replace(gone=(gone,)))[-1] == sealed.end
    assert sealed.look(sealed.manifest._replace(rows=rows[1:])) == [rows[0].start]


def test_a_piece_that_is_missing_or_another_one_is_not_told(sealed: Sealed) -> None:
    content = sealed.file(2).read_bytes()
    sealed.file(2).unlink()
    before = [row.end for row in sealed.manifest.rows[:2]]
    assert sealed.told_before(CorruptLogError, "is missing")[1:] == before
    # A whole piece, and another one.
    sealed.file(2).write_bytes(sealed.file(3).read_bytes())
    assert sealed.told_before(CorruptLogError, "not the one that the manifest names")[1:] == before
    sealed.file(2).write_bytes(content)
    assert sealed.look()[-1] == sealed.end


def test_a_flipped_byte_in_each_part_is_named_and_not_told(sealed: Sealed) -> None:
    path = sealed.file(1)
    content = path.read_bytes()
    piece = PieceFile(sealed.place.ranges(sealed.manifest.rows[1].name))
    footer, end = piece.footer, piece.end
    parts = {
        "begin": 0,
        **{f"group {number}": group.at for number, group in enumerate(footer.groups)},
        "rest": footer.rest.at,
        "filters": footer.filters.at,
        "footer": end.at,
        "table": len(content) - 20,
    }
    assert len(parts) > 5
    path.chmod(0o600)
    for part, at in parts.items():
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        told: list[int] = []
        with pytest.raises(CorruptLogError) as refused:
            sealed.sealed.look(sealed.manifest, told.append)
        assert refused.value.details["part"] == part
        assert refused.value.details["file"] == str(path)
        assert told[-1] == sealed.manifest.rows[0].end
    path.write_bytes(content)
    assert sealed.look()[-1] == sealed.end


def test_pieces_of_another_log_are_not_told(sealed: Sealed, tmp_path: Path) -> None:
    other = Sealed(tmp_path / "other", begin_ms=BEGIN_MS + 1)
    other.page.close()
    shutil.rmtree(sealed.root)
    shutil.copytree(other.root, sealed.root)
    assert sealed.told_before(ConfigError, "not the one whose pieces") == [0]


def test_who_is_told_to_stop_stops_before_the_next_piece(sealed: Sealed) -> None:
    told: list[int] = []

    def tell(position: int) -> None:
        told.append(position)
        if len(told) == 2:
            sealed.sealed.stopped.set()

    sealed.sealed.look(sealed.manifest, tell)
    assert told == [sealed.manifest.rows[0].start, sealed.manifest.rows[0].end]


def test_before_anything_is_committed_nothing_is_told(sealed: Sealed, tmp_path: Path) -> None:
    with CursorPage.create(tmp_path / "fresh") as page:
        look = SealedEnd(sealed.settings, page, sealed.watched)
        told: list[int] = []
        look.look(sealed.manifest, told.append)
    assert told == []
