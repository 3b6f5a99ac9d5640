"""A store is restored out of sealed pieces, to each entry, and to nothing else."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ledgermq.cli.main import main
from ledgermq.conversion.stream.piece_folder import PIECES_MANIFEST
from ledgermq.formats.index_file import IndexLayout
from ledgermq.model.exit_status import EXIT_CONFIG, EXIT_STORAGE
from ledgermq.repair.check.check_store import CheckOptions, check_store
from tests.small_store import BEGIN_MS, STEP_MS
from tests.unit.conversion.streamed_store import (
    MESSAGES,
    StreamedStore,
    files_of,
    records_of,
)

pytestmark = pytest.mark.slow

KINDS = pytest.mark.parametrize("entries", [True, False], ids=["dledger", "commitlog"])


class SealedStore(StreamedStore):
    """A store whose log is sealed in the place of being streamed."""

    def stream(self, *words: str) -> int:
        return main(
            ["piece", "seal", str(self.root), "--to", self.place,
             "--runtime-dir", str(self.runtime), *self.words, *words]
        )  # fmt: skip

    def piece(self, number: int) -> Path:
        """The file of a piece, in their order."""
        return sorted((self.repository / "pieces").iterdir())[number]


def log_of(root: Path) -> dict[str, bytes]:
    found = files_of(root).items()
    return {name: one for name, one in found if "/data/" in name or name.startswith("commitlog/")}


def log_bytes(root: Path) -> bytes:
    """The log as one, its files in their order."""
    return b"".join(content for _, content in sorted(log_of(root).items()))


@KINDS
def test_what_is_restored_is_the_log_that_was_sealed(tmp_path: Path, *, entries: bool) -> None:
    store, again = SealedStore(tmp_path, entries=entries), tmp_path / "again"
    store.stream_each()

    assert store.restore(again) == 0
    assert log_of(again) == log_of(store.root)
    assert (again / "config/topics.json").read_bytes() == (
        store.root / "config/topics.json"
    ).read_bytes()
    options = CheckOptions(index_layout=IndexLayout(slots=5, items=4))
    assert check_store(again, options).findings == []
    assert store.verify() == 0
    assert main(["backup", "list", store.place]) == 0


@pytest.mark.long(but=1)
@KINDS
def test_each_entry_is_restored_by_index_time_and_position(
    tmp_path: Path, *, entries: bool
) -> None:
    store = SealedStore(tmp_path, entries=entries)
    for number in (0, 3, 4, 8, MESSAGES - 1):
        store.commit(number)
        assert store.stream() == 0
    whole = log_bytes(store.root)
    for number in range(MESSAGES):
        end = store.end_of(number)
        beyond = store.end_of(number + 1) - 1 if number + 1 < MESSAGES else end
        ways = {
            "index": ["--to-index", str(store.index_of(number))],
            "time": ["--to-time", str(BEGIN_MS + STEP_MS * number + STEP_MS - 1)],
            "end": ["--to-position", str(end)],
            "beyond": ["--to-position", str(beyond)],
        }
        for name, words in ways.items():
            again = tmp_path / f"{name}-{number}"
            assert store.restore(again, *words) == 0
            assert records_of(again) == store.records[: number + 1], again
            found = log_bytes(again)
            assert found[:end] == whole[:end]
            assert not any(found[end:])


def test_a_position_that_the_pieces_do_not_have_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = SealedStore(tmp_path)
    store.commit(2)
    assert store.stream() == 0
    for words, said in (
        (["--to-position", "10"], "goes back so far"),
        (["--to-position", str(store.end_of(2) + 1)], "not go so far"),
        (["--to-index", "7"], "not go so far"),
        (["--to-time", "1"], "goes back so far"),
    ):
        assert store.restore(tmp_path / "again", *words) == EXIT_CONFIG
        assert said in capsys.readouterr().err
    assert not (tmp_path / "again").exists()


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[9] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("spoil", [Path.unlink, _flip], ids=["gone", "flipped"])
def test_a_piece_that_is_not_what_was_sealed_is_named_and_no_store_is_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], spoil: Callable[[Path], None]
) -> None:
    store, again = SealedStore(tmp_path), tmp_path / "again"
    store.stream_each()
    path = store.piece(3)
    whole = path.read_bytes()
    spoil(path)
    begin, end = (int(part) for part in path.stem.split("-"))

    assert store.restore(again) == EXIT_STORAGE
    said = capsys.readouterr().err
    assert str(path) in said
    assert f"begin={begin}, end={end}" in said
    assert not [path.name for path in again.iterdir() if path.name not in _NO_STORE]
    # What comes before is there, and what was begun is in nobody's way.
    assert store.restore(again, "--to-position", str(begin)) == 0
    assert log_bytes(again)[:begin] == log_bytes(store.root)[:begin]
    path.write_bytes(whole)
    shutil.rmtree(again)
    assert store.restore(again) == 0
    assert log_of(again) == log_of(store.root)


_NO_STORE = ("lock", "ledgermq", "restoring")


def test_pieces_that_the_manifest_lost_are_told_by_positions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What stands behind them is no log from its begin; what stands before them is one."""
    store = SealedStore(tmp_path)
    store.stream_each()
    lost = store.piece(2)
    lost.unlink()
    (store.repository / PIECES_MANIFEST).unlink()
    assert main(["piece", "manifest", store.place]) == 0
    begin, end = (int(part) for part in lost.stem.split("-"))

    assert store.verify() == EXIT_STORAGE
    assert f"begin={begin}, end={end}" in capsys.readouterr().err
    assert store.restore(tmp_path / "before", "--to-position", str(begin)) == 0
    assert records_of(tmp_path / "before") == store.records[:2]


@KINDS
def test_a_log_that_had_lost_its_begin_is_restored_from_there_on(
    tmp_path: Path, *, entries: bool
) -> None:
    """Offsets of queues go on where they were, though no message says so."""
    store, again = SealedStore(tmp_path, entries=entries), tmp_path / "again"
    sorted(store.root / name for name in log_of(store.root))[0].unlink()
    left = records_of(store.root)
    store.commit(MESSAGES - 1)
    assert store.stream() == 0

    assert store.restore(again) == 0
    assert log_of(again) == log_of(store.root)
    assert records_of(again) == left
    options = CheckOptions(index_layout=IndexLayout(slots=5, items=4))
    assert check_store(again, options).findings == []


def test_a_place_of_before_there_were_tables_gets_them_with_the_next_seal(
    tmp_path: Path,
) -> None:
    store = SealedStore(tmp_path)
    store.commit(3)
    assert store.stream() == 0
    (store.repository / "about").unlink()
    shutil.rmtree(store.repository / "tables")
    assert main(["piece", "verify", store.place]) == 0
    assert store.restore(tmp_path / "early") == EXIT_CONFIG
    store.commit(MESSAGES - 1)
    assert store.stream() == 0

    assert store.restore(tmp_path / "again") == 0
    assert log_of(tmp_path / "again") == log_of(store.root)


def test_any_member_seals_on_and_tables_are_not_put_each_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = SealedStore(tmp_path / "one"), SealedStore(tmp_path / "other")
    (other.root / "dledger-n0").rename(other.root / "dledger-n1")
    other.place = one.place
    one.commit(0)
    assert one.stream() == 0
    one.commit(1)
    assert one.stream() == 0
    assert len(list((one.repository / "tables").iterdir())) == 1
    other.commit(MESSAGES - 1)
    capsys.readouterr()
    assert other.stream("--json") == 0
    assert json.loads(capsys.readouterr().out)["end"] == one.end_of(MESSAGES - 1)
    assert len(list((one.repository / "tables").iterdir())) == 2

    assert one.restore(tmp_path / "again") == 0
    assert log_of(tmp_path / "again") == log_of(one.root)


def test_streams_and_pieces_are_not_put_into_one_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = StreamedStore(tmp_path)
    store.commit(3)
    assert store.stream() == 0
    words = ["--to", str(store.streamed), "--runtime-dir", str(store.runtime)]
    assert main(["piece", "seal", str(store.root), *words]) == EXIT_CONFIG
    assert "take another place" in capsys.readouterr().err
