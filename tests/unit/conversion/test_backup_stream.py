"""Backup streams of a node: what is restored, to each point, and what a stream harms never."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ledgermq.cli.main import main
from ledgermq.conversion.stream import log_stream, piece_folder
from ledgermq.conversion.stream.piece_folder import PieceFolder
from ledgermq.conversion.stream.repository import Repository
from ledgermq.daemon.backup_streaming import BackupStreaming, StreamOrder
from ledgermq.formats.index_file import IndexLayout
from ledgermq.members.peer_identity import identity_of
from ledgermq.model.exit_status import EXIT_CONFIG, EXIT_STORAGE
from ledgermq.repair.check.check_store import CheckOptions, check_store
from ledgermq.rules.state.state_tables import OWN_FILES
from ledgermq.store.queues.queue_ends import QueueEnds, ends_path, write_queue_ends
from ledgermq.store.state_mark import NAME as STATE_MARK
from ledgermq.store.state_mark import write_state_mark
from ledgermq.store.steady_time import SteadyTime
from tests.small_store import BEGIN_MS, LOG_FILE_SIZE
from tests.unit.conversion.streamed_store import (
    MESSAGES,
    StreamedStore,
    exit_status_of,
    files_of,
    records_of,
    stream_at_once,
)

KEY = "00112233445566778899aabbccddeeff" * 2
KINDS = pytest.mark.parametrize(
    ("entries", "key"),
    [(True, ""), (True, KEY), (False, "")],
    ids=["dledger", "encrypted", "commitlog"],
)
CALLS_MAX = 400
DAY_MS = 86_400_000
EACH = max(1, 120 // int(os.environ.get("LEDGERMQ_CONVERSION_KILLS", "12")))
"""A stream is killed before one of so many calls."""
TURNS = (1, 3, MESSAGES - 1)
"""Records that are committed at each turn of a stream that is killed: two in the first file."""


def log_of(root: Path) -> dict[str, bytes]:
    return {name: content for name, content in files_of(root).items() if is_of_log(name)}


def is_of_log(name: str) -> bool:
    return name.startswith("commitlog/") or "/data/" in name or "/index/" in name


@KINDS
def test_what_is_restored_is_the_log_that_was_streamed(
    tmp_path: Path, *, entries: bool, key: str
) -> None:
    store, again = StreamedStore(tmp_path, entries=entries, key=key), tmp_path / "again"
    store.stream_each()

    assert store.restore(again) == 0
    assert log_of(again) == log_of(store.root)
    assert (again / "config/topics.json").read_bytes() == (
        store.root / "config/topics.json"
    ).read_bytes()
    assert not (again / "ledgermq" / "members").exists()
    identities = [identity_of(root / "ledgermq" / "identity") for root in (again, store.root)]
    assert identities[0] is not None
    assert identities[0] != identities[1]
    options = CheckOptions(index_layout=IndexLayout(slots=5, items=4))
    assert check_store(again, options).findings == []
    assert store.verify() == 0


def test_the_brokers_own_tables_come_back_each_in_its_place(tmp_path: Path) -> None:
    store, again = StreamedStore(tmp_path), tmp_path / "again"
    for number, name in enumerate(OWN_FILES):
        (store.root / "ledgermq" / name).write_text(f'{{"of": "{name}"}}' + " " * number)
    ends = QueueEnds(0, {(b"orders", 0): 0})
    write_queue_ends(ends_path(store.root), ends)
    (store.root / "ledgermq/members").write_text("who belonged to the old group")
    store.commit(MESSAGES - 1)
    assert store.stream() == 0

    assert store.restore(again) == 0
    for name in (*OWN_FILES, "queue-ends"):
        found, stored = (root / "ledgermq" / name for root in (again, store.root))
        assert found.read_bytes() == stored.read_bytes(), name
    assert not (again / "ledgermq/members").exists()


@pytest.mark.long(but=1)
@KINDS
def test_each_point_is_restored_by_its_index_and_by_its_time(
    tmp_path: Path, *, entries: bool, key: str
) -> None:
    store = StreamedStore(tmp_path, entries=entries, key=key)
    store.commit(0)
    assert store.stream() == 0
    for number in (3, 4, 8, MESSAGES - 1):
        store.commit(number)
        assert store.stream() == 0
    for number in range(MESSAGES):
        by_index, by_time = tmp_path / f"index-{number}", tmp_path / f"time-{number}"
        assert store.restore(by_index, "--to-index", str(store.index_of(number))) == 0
        assert store.restore(by_time, "--to-time", str(BEGIN_MS + 700 * number + 699)) == 0
        for root in (by_index, by_time):
            assert records_of(root) == store.records[: number + 1], root
        assert log_of(by_index) == log_of(by_time)


def test_heads_are_asked_for_several_at_once_where_each_may_be_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one is not answered before another one is asked for."""
    store, again = StreamedStore(tmp_path), tmp_path / "again"
    store.stream_each()
    assert len(store.opened().log) > 3
    opened, numbers, second = piece_folder.PieceFolder.opened, itertools.count(), threading.Event()

    def waiting(place: piece_folder.PieceFolder, name: str) -> Any:
        if name.startswith("data/"):
            if next(numbers) == 0:
                assert second.wait(60)
            second.set()
        return opened(place, name)

    monkeypatch.setattr(piece_folder.PieceFolder, "opened", waiting)
    assert store.restore(again, "--to-time", str(BEGIN_MS + 700 * 4)) == 0

    assert records_of(again) == store.records[:5]


def test_nothing_that_is_not_committed_is_streamed(tmp_path: Path) -> None:
    store, again = StreamedStore(tmp_path), tmp_path / "again"
    store.commit(5)
    assert store.stream() == 0

    assert store.restore(again) == 0
    assert records_of(again) == store.records[:6]


def test_a_file_in_many_pieces_becomes_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_stream, "PIECES_MAX", 1)
    store = StreamedStore(tmp_path)
    store.stream_each()

    pieces = [piece for piece in store.opened().log if piece.end <= 2 * LOG_FILE_SIZE]
    assert [(piece.start, piece.end) for piece in pieces] == [
        (0, LOG_FILE_SIZE),
        (LOG_FILE_SIZE, 2 * LOG_FILE_SIZE),
    ]
    assert store.restore(tmp_path / "again") == 0
    assert log_of(tmp_path / "again") == log_of(store.root)


class Killer:
    """Ends this process, as by ``kill -9``, before the call with the number ``at``."""

    def __init__(self, patched: pytest.MonkeyPatch, at: int) -> None:
        self._left = at
        for module, name in (
            (piece_folder, "_named"),
            (piece_folder, "sync_file"),
            (piece_folder, "sync_directory"),
            (piece_folder, "make_directories"),
            (Path, "unlink"),
            (Path, "open"),
        ):
            patched.setattr(module, name, self._may_end(getattr(module, name)))

    def _may_end(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any, **named: Any) -> Any:
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            self._left -= 1
            return call(*arguments, **named)

        return called


@pytest.mark.long
@pytest.mark.slow
def test_a_stream_killed_at_any_step_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each try begins where the one before was killed, and another one with nothing."""
    monkeypatch.setattr(log_stream, "PIECES_MAX", 1)
    store = StreamedStore(tmp_path)

    def streamed(at: int) -> int:
        def work() -> None:
            with pytest.MonkeyPatch.context() as patched:
                Killer(patched, at)
                for number in TURNS:
                    store.commit(number)
                    assert store.stream() == 0

        return exit_status_of(work)

    for at in range(0, CALLS_MAX, EACH):
        shutil.rmtree(store.repository, ignore_errors=True)
        status = streamed(at)
        if status == 0:
            break
        assert status == -signal.SIGKILL
        # What it has left is killed once more on its way, and goes on.
        assert streamed(at // 2) in (0, -signal.SIGKILL)
        for number in TURNS:
            store.commit(number)
            assert store.stream() == 0
        left = [name for name in files_of(store.repository) if ".partial-" in name]
        assert left == [], at
        pieces = [(piece.start, piece.end) for piece in store.opened().log]
        assert pieces[0] == (0, LOG_FILE_SIZE), at
        assert store.restore(tmp_path / f"again-{at}") == 0, at
        assert log_of(tmp_path / f"again-{at}") == log_of(store.root), at
    assert 30 < at < CALLS_MAX - EACH


def test_two_streams_of_one_log_do_each_other_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_stream, "PIECES_MAX", 1)
    store = StreamedStore(tmp_path)
    stream_at_once(store, 1, 3)

    assert store.verify() == 0
    assert store.restore(tmp_path / "again") == 0
    assert log_of(tmp_path / "again") == log_of(store.root)


def test_another_log_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of the same member of a group of the same name, begun anew."""
    store = StreamedStore(tmp_path / "one")
    other = StreamedStore(tmp_path / "other")
    shutil.copy(store.root / "ledgermq/identity", other.root / "ledgermq/identity")
    store.commit(4)
    assert store.stream() == 0
    path = other.root / "dledger-n0/data" / f"{0:020d}"
    content = bytearray(path.read_bytes())
    content[content.index(b"body of message 0")] ^= 1
    shutil.copytree(store.repository, other.repository)
    last = other.records[4]
    path = other.root / "dledger-n0/data" / f"{last.position // LOG_FILE_SIZE * LOG_FILE_SIZE:020d}"
    content = bytearray(path.read_bytes())
    content[content.index(b"body of message 4")] ^= 1
    path.write_bytes(content)
    other.commit(5)

    assert other.stream() == EXIT_CONFIG
    assert "the log is not the one that this backup stream has" in capsys.readouterr().err


def test_a_record_that_a_disk_has_spoilt_is_not_streamed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = StreamedStore(tmp_path)
    store.commit(0)
    assert store.stream() == 0
    path = store.root / "dledger-n0/data" / f"{0:020d}"
    content = bytearray(path.read_bytes())
    content[content.index(b"body of message 1")] ^= 1
    path.write_bytes(content)
    store.commit(MESSAGES - 1)

    assert store.stream() == EXIT_STORAGE
    assert "record is not what was written" in capsys.readouterr().err
    assert store.opened().runs()[-1].end == store.end_of(0)


@pytest.mark.slow
@pytest.mark.parametrize("key", ["", KEY], ids=["plain", "encrypted"])
@pytest.mark.parametrize("kind", ["about", "data/", "tables/"])
def test_a_flipped_byte_in_any_kind_of_file_is_found_and_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str, key: str
) -> None:
    store = StreamedStore(tmp_path, key=key)
    store.commit(MESSAGES - 1)
    assert store.stream() == 0
    name = next(name for name in files_of(store.streamed) if name.startswith(kind))
    path = store.streamed / name
    whole = path.read_bytes()
    capsys.readouterr()
    # All of the head, and what comes after it in steps that meet each part of it.
    for at in (*range(57), *range(57, len(whole), 29), len(whole) - 1):
        spoilt = bytearray(whole)
        spoilt[at] ^= 0x40
        path.write_bytes(spoilt)
        assert store.verify() in (EXIT_CONFIG, EXIT_STORAGE), at
        assert str(path) in capsys.readouterr().err, at
    for content in (whole[:-1], whole + b"\0", b""):
        path.write_bytes(content)
        assert store.verify() == EXIT_STORAGE
        assert str(path) in capsys.readouterr().err
    path.write_bytes(whole)
    assert store.verify() == 0


def test_a_piece_under_the_name_of_another_one_is_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = StreamedStore(tmp_path)
    store.stream_each()
    first, second = sorted((store.streamed / "data").iterdir())[:2]
    shutil.copy(second, first)

    assert store.verify() == EXIT_STORAGE
    assert str(first) in capsys.readouterr().err
    assert store.restore(tmp_path / "again") == EXIT_STORAGE


def test_a_piece_that_is_missing_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = StreamedStore(tmp_path)
    store.stream_each()
    lost = store.opened().log[1]
    (store.streamed / lost.name).unlink()

    assert store.verify() == EXIT_STORAGE
    told = capsys.readouterr().err
    assert "pieces of a backup stream are missing" in told
    assert f"begin={lost.start}, end={lost.end}" in told


def test_an_encrypted_stream_wants_its_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = StreamedStore(tmp_path, key=KEY)
    store.commit(2)
    assert store.stream() == 0
    assert all(b"body of message" not in content for content in files_of(store.repository).values())
    words, store.words = store.words, []

    assert store.verify() == EXIT_CONFIG
    assert "say --key-file" in capsys.readouterr().err
    Path(words[1]).write_text(KEY[::-1])
    store.words = words
    assert store.verify() == EXIT_CONFIG
    assert "with another key" in capsys.readouterr().err
    assert store.stream() == EXIT_CONFIG
    Path(words[1]).chmod(0o640)
    assert store.stream() == EXIT_CONFIG
    assert "others than its owner may read the key" in capsys.readouterr().err


def test_what_is_older_than_is_kept_goes_by_whole_files(tmp_path: Path) -> None:
    """The messages of all files but the last are years old."""
    now_ms = time.time_ns() // 1_000_000
    step_ms = (now_ms - BEGIN_MS) // (MESSAGES - 1)
    store = StreamedStore(tmp_path, step_ms=step_ms)
    store.stream_each("--keep-days", "1")
    assert store.opened().runs()[0].start == 0
    ends = QueueEnds(LOG_FILE_SIZE, {(b"orders", 0): 2, (b"orders", 1): 1})
    write_queue_ends(ends_path(store.root), ends)
    assert store.stream("--keep-days", "1") == 0
    # The tables as of the end were there already.
    assert store.opened().runs()[0].start == 0
    for path in (store.streamed / "tables").iterdir():
        path.unlink()
    assert store.stream("--keep-days", "36500") == 0
    assert store.opened().runs()[0].start == 0
    assert store.stream("--keep-days", "1") == 0

    assert store.opened().runs()[0].start == LOG_FILE_SIZE
    assert store.verify() == 0
    assert store.restore(tmp_path / "again") == 0
    kept = [record for record in store.records if record.position >= LOG_FILE_SIZE]
    assert records_of(tmp_path / "again") == kept


def test_a_clock_that_nothing_confirms_makes_nothing_old(tmp_path: Path) -> None:
    """By the clock all messages are years old; by one another they are seconds old."""
    store = StreamedStore(tmp_path)
    for _ in range(2):
        store.stream_each("--keep-days", "1")
        for path in (store.streamed / "tables").iterdir():
            path.unlink()
        assert store.stream("--keep-days", "1") == 0

        assert store.opened().runs()[0].start == 0
    assert store.verify() == 0


def test_a_clock_that_jumps_while_a_stream_runs_makes_nothing_old(tmp_path: Path) -> None:
    """The newest message is put right by the clock; then that is set ahead by sixty days."""
    now_ms = time.time_ns() // 1_000_000
    store = StreamedStore(tmp_path, begin_ms=now_ms - (MESSAGES - 1) * 60_000, step_ms=60_000)
    ahead_ns = 0
    order = StreamOrder(root=store.root, runtime=store.runtime, self_id=None, keep_ms=30 * DAY_MS)
    streaming = BackupStreaming(order, lambda: Repository(PieceFolder(store.repository), None))
    streaming._time = SteadyTime(lambda: time.time_ns() + ahead_ns)
    store.commit(2)
    streaming.turn()
    ahead_ns = 60 * DAY_MS * 1_000_000
    for number in range(3, MESSAGES):
        store.commit(number)
        streaming.turn()

    assert Repository(PieceFolder(store.repository), None).runs()[0].start == 0


def test_what_retention_has_deleted_before_is_a_gap(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = StreamedStore(tmp_path)
    store.commit(1)
    assert store.stream() == 0
    for part in ("data", "index"):
        assert (store.root / "dledger-n0" / part).is_dir()
    (store.root / "dledger-n0/data" / f"{0:020d}").unlink()
    (store.root / "ledgermq" / "log-checkpoint").unlink()
    store.commit(MESSAGES - 1)
    assert store.stream() == 0
    assert store.verify() == 0
    assert f"nothing from {store.end_of(1):,} to {LOG_FILE_SIZE:,}" in capsys.readouterr().out

    assert store.restore(tmp_path / "last") == 0
    last = [record for record in store.records if record.position >= LOG_FILE_SIZE]
    assert records_of(tmp_path / "last") == last
    assert store.restore(tmp_path / "first", "--to-index", "1") == 0
    assert records_of(tmp_path / "first") == store.records[:2]


def test_a_broker_that_has_just_begun_is_waited_for_where_the_log_begins_later(
    tmp_path: Path,
) -> None:
    """Until its first snapshot a restored or shipped store has a mark from before its log."""
    store = StreamedStore(tmp_path)
    (store.root / "dledger-n0/data" / f"{0:020d}").unlink()
    (store.root / "ledgermq" / "log-checkpoint").unlink()
    mark = store.root / "ledgermq" / STATE_MARK
    write_state_mark(mark, 0)
    order = StreamOrder(root=store.root, runtime=store.runtime, self_id=None, keep_ms=None)
    streaming = BackupStreaming(order, lambda: Repository(PieceFolder(store.repository), None))

    def can_be_restored() -> bool:
        return store.restore(tmp_path / f"again-{len(list(tmp_path.iterdir()))}") == 0

    store.commit(MESSAGES - 3)
    streaming.turn()
    assert not can_be_restored()
    store.commit(MESSAGES - 2)
    streaming.turn()
    assert not can_be_restored()
    write_state_mark(mark, LOG_FILE_SIZE)
    store.commit(MESSAGES - 1)
    streaming.turn()
    assert can_be_restored()


def test_how_far_a_stream_goes_is_told_without_its_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = StreamedStore(tmp_path, key=KEY)
    for number in (2, 4):
        store.commit(number)
        assert store.stream() == 0
    capsys.readouterr()

    assert main(["backup", "list", str(store.repository)]) == 0
    assert capsys.readouterr().out.startswith(f"n0  positions 0 to {store.end_of(4):,}  ")


def test_what_no_restore_can_reach_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = StreamedStore(tmp_path)
    store.commit(4)
    assert store.stream() == 0

    for words, text in (
        (("--to-index", "99"), "does not go so far"),
        (("--to-index", "1"), "the first point is later"),
        (("--to-time", "1000"), "goes back so far"),
        (("--to-time", "now"), "--to-time is no time"),
        (("--member", "n7"), "say which stream"),
    ):
        assert store.restore(tmp_path / "again", *words) == EXIT_CONFIG
        assert text in capsys.readouterr().err
    assert not list((tmp_path / "again").glob("*"))
