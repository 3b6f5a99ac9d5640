"""A store's log is sealed into a place, once, and queues are read out of it."""

from __future__ import annotations

import fcntl
import json
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from ledgermq.cli.main import main
from ledgermq.model.errors import ConfigError, CorruptLogError, MessageUnknownError
from ledgermq.model.names.queue_name import QueueName
from ledgermq.pipeline.columns.message_schema import COLUMNS
from ledgermq.pipeline.columns.row_filter import RowFilter
from ledgermq.pipeline.pieces import log_sealing
from ledgermq.pipeline.pieces.cold_queues import ColdBounds, ColdQueues
from ledgermq.pipeline.pieces.log_sealing import Sealed, SealSizes, rebuild_manifest, seal_log
from ledgermq.pipeline.pieces.piece_file import PieceFile
from ledgermq.pipeline.pieces.piece_manifest import read_manifest
from ledgermq.pipeline.pieces.piece_places import LEFT_FOR_S, SealedFolder, file_name
from ledgermq.pipeline.pieces.shared_cache import SharedCache
from ledgermq.pipeline.source.data_loss import DataLossError
from ledgermq.pipeline.source.piece_source import PieceSource
from ledgermq.pipeline.source.row_source import chosen_ranges, open_source
from ledgermq.pipeline.source_options import parse_options
from ledgermq.store.log_reader import LogReader
from ledgermq.store.store_directory import open_directory
from tests.row_batches import batches_of
from tests.small_store import BEGIN_MS, LOG_FILE_SIZE, STEP_MS, write_store
from tests.unit.conversion.streamed_store import exit_status_of
from tests.unit.pipeline.made_logs import Memory

pytestmark = pytest.mark.slow

SMALL = SealSizes(piece_bytes=500, piece_records=1_000, group_bytes=1)
MESSAGES = 10


@pytest.fixture(params=[True, False], ids=["entries", "plain"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    root = tmp_path / "store"
    root.mkdir()
    write_store(root, entries=request.param, messages=MESSAGES)
    return root


@pytest.fixture
def place(tmp_path: Path) -> SealedFolder:
    return SealedFolder(tmp_path / "pieces of the store")


def seal(store: Path, place: SealedFolder, *, end: int | None = None) -> Sealed:
    with closing(LogReader(open_directory(store))) as reader:
        return seal_log(place, reader, reader.end if end is None else end, sizes=SMALL)


def records_of(store: Path) -> dict[tuple[int, int], bytes]:
    """The record of each message, by queue and queue offset."""
    found = {}
    with closing(LogReader(open_directory(store))) as reader:
        for record in reader.iterate():
            message = record.message
            span = reader.span(message.physical_offset)
            content = bytes(span.view[: message.size])
            found[message.queue_id, message.queue_offset] = content
    return found


def ends_of(store: Path) -> list[int]:
    """Where each record ends in the log."""
    with closing(LogReader(open_directory(store))) as reader:
        messages = [record.message for record in reader.iterate()]
    return [message.physical_offset + message.size for message in messages]


def log_in(place: SealedFolder) -> bytes:
    """The log as all pieces have it together."""
    queues = ColdQueues(place)
    return b"".join(bytes(queues.piece(row).log()) for row in queues.manifest.rows)


def log_of(store: Path, end: int) -> bytes:
    """The log as the store has it, from its files."""
    with closing(LogReader(open_directory(store))) as reader:
        files = [(part.files, start) for part in reader.parts for start in part.files.starts]
        content = b"".join(bytes(one.view(start, one.file_size)) for one, start in files)
    return content[:end]


def test_the_pieces_have_the_log_and_each_queue_from_each_offset_on(
    store: Path, place: SealedFolder
) -> None:
    found = seal(store, place)
    queues = ColdQueues(place)
    records = records_of(store)

    assert found.pieces == len(queues.manifest.rows) > 3
    assert log_in(place) == log_of(store, found.end)
    assert queues.queues() == {
        QueueName("orders", number): ColdBounds(0, MESSAGES // 2) for number in (0, 1)
    }
    for queue_id, offset in records:
        read = [one.record for one in queues.read("orders", queue_id, offset)]
        assert read == [records[queue_id, at] for at in range(offset, MESSAGES // 2)]
    assert list(queues.read("orders", 0, MESSAGES)) == []
    assert list(queues.read("nothing", 0, 0)) == []


def test_runs_at_any_moment_make_the_same_log(store: Path, place: SealedFolder) -> None:
    ends = ends_of(store)
    for end in ends:
        assert seal(store, place, end=end).end == end
    again = seal(store, place)

    assert (again.pieces, again.gap) == (0, 0)
    assert log_in(place) == log_of(store, ends[-1])
    assert [one.record for one in ColdQueues(place).read("orders", 1, 0)] == [
        records_of(store)[1, at] for at in range(MESSAGES // 2)
    ]


def test_messages_are_found_by_time_and_by_key(store: Path, place: SealedFolder) -> None:
    seal(store, place)
    queues = ColdQueues(place)
    records = records_of(store)
    for number in range(MESSAGES):
        stored = BEGIN_MS + STEP_MS * number
        assert queues.first_since("orders", number % 2, stored) == number // 2
        assert [one.record for one in queues.with_key("orders", f"{number:032X}")] == [
            records[number % 2, number // 2]
        ]
    assert queues.first_since("orders", 0, BEGIN_MS + STEP_MS * MESSAGES) is None
    assert list(queues.with_key("orders", "none")) == list(queues.with_key("stock", "1")) == []


@pytest.mark.long(but=1)
def test_a_run_that_dies_anywhere_leaves_what_the_next_one_goes_on_with(
    store: Path, tmp_path: Path
) -> None:
    whole = SealedFolder(tmp_path / "whole")
    seal(store, whole)
    steps = 0
    for step in range(99):
        place = SealedFolder(tmp_path / f"dying {step}")
        if exit_status_of(lambda place=place, step=step: dying(store, place, step)) == 0:
            break
        steps += 1
        seal(store, place)
        assert log_in(place) == log_in(whole)
        assert [row.name for row in read_manifest(place).rows] == [
            row.name for row in read_manifest(whole).rows
        ]
    assert steps == 2 * len(read_manifest(whole).rows)


def dying(store: Path, place: SealedFolder, step: int) -> None:
    """Seal, and die of SIGKILL before that change of the place."""
    left = step

    def before(change: object) -> object:
        def changing(*arguments: object, **named: object) -> object:
            nonlocal left
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1
            return change(*arguments, **named)  # type: ignore[operator]

        return changing

    place.put = before(place.put)  # type: ignore[method-assign,assignment]
    place.replace = before(place.replace)  # type: ignore[method-assign,assignment]
    seal(store, place)


def test_what_a_run_left_that_died_in_a_file_goes_once_it_is_old(
    store: Path, place: SealedFolder
) -> None:
    def dying_in_a_file() -> None:
        def parts() -> Iterator[bytes]:
            yield b"half of a piece"
            os.kill(os.getpid(), signal.SIGKILL)

        place.put("pieces/dead", parts())

    hour_ago = time.time() - LEFT_FOR_S - 1
    folder = Path(place.as_text("pieces"))
    for _ in range(2):
        assert exit_status_of(dying_in_a_file) == -signal.SIGKILL
    old, young = folder.iterdir()
    os.utime(old, (hour_ago, hour_ago))
    with (folder / ".partial-of another run").open("xb") as written:
        # It is long in being written, and lives.
        fcntl.flock(written.fileno(), fcntl.LOCK_EX)
        os.utime(written.name, (hour_ago, hour_ago))
        seal(store, place)
        left = {path.name for path in folder.iterdir() if path.name.startswith(".")}

    assert left == {young.name, ".partial-of another run"}
    assert verified_records(place) == MESSAGES


def verified_records(place: SealedFolder) -> int:
    queues = ColdQueues(place)
    return sum(queues.piece(row).verify() for row in queues.manifest.rows)


def test_another_log_is_refused(store: Path, place: SealedFolder, tmp_path: Path) -> None:
    seal(store, place)
    other = tmp_path / "other"
    other.mkdir()
    write_store(other, entries=(store / "dledger-n0").exists(), messages=MESSAGES, step_ms=9)
    with pytest.raises(ConfigError, match="not the one"):
        seal(other, place)


def test_two_who_seal_do_each_other_no_harm(store: Path, place: SealedFolder) -> None:
    """The slower one finds its part sealed, and says so, or has put the very same."""

    def one() -> None:
        try:
            seal(store, place)
        except ConfigError as error:
            assert "another run" in str(error)

    fork = multiprocessing.get_context("fork")
    workers = [fork.Process(target=one) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * 4
    end = seal(store, place).end

    assert log_in(place) == log_of(store, end)


def test_a_manifest_that_is_lost_is_made_anew(store: Path, place: SealedFolder) -> None:
    seal(store, place)
    manifest = read_manifest(place)
    path = Path(place.as_text("manifest"))
    path.unlink()

    assert rebuild_manifest(place) == manifest
    content = path.read_bytes()
    for at in range(0, len(content), 7):
        path.write_bytes(content[:at] + bytes((content[at] ^ 4,)) + content[at + 1 :])
        with pytest.raises((CorruptLogError, ConfigError)):
            read_manifest(place)
    path.write_bytes(content)
    stranger = Path(place.as_text("pieces/stranger.parquet"))
    stranger.write_bytes(b"")
    with pytest.raises(CorruptLogError, match="such a name"):
        rebuild_manifest(place)


def test_what_a_file_system_puts_into_the_place_is_no_piece(
    store: Path, place: SealedFolder
) -> None:
    """As where each of its folders is a mount."""
    for folder in ("", "pieces", "tables"):
        (Path(place.as_text(folder)) / "lost+found").mkdir(parents=True)
    seal(store, place)
    known = read_manifest(place)

    assert rebuild_manifest(place) == known
    assert main(["piece", "verify", place.as_text()]) == 0


def test_messages_that_no_piece_has_are_told_and_not_passed_over(
    store: Path, place: SealedFolder
) -> None:
    seal(store, place)
    manifest = read_manifest(place)
    for row in manifest.rows[2:4]:
        Path(place.as_text(row.name)).unlink()
    Path(place.as_text("manifest")).unlink()
    rebuild_manifest(place)
    queues = ColdQueues(place)
    read = []
    with pytest.raises(MessageUnknownError) as raised:
        for record in queues.read("orders", 0, 0):
            read.append(record)
    assert raised.value.details["offset"] == len(read) < raised.value.details["next"]
    # A piece that the manifest names and that is gone is damage.
    Path(place.as_text(manifest.rows[0].name)).unlink()
    with pytest.raises(CorruptLogError, match="missing"):
        next(ColdQueues(place).read("orders", 0, 0))


def test_what_retention_was_faster_with_is_a_gap_that_is_told(
    store: Path, place: SealedFolder
) -> None:
    first = ends_of(store)[0]
    seal(store, place, end=first)
    folder = next(
        path for path in (store / "dledger-n0/data", store / "commitlog") if path.exists()
    )
    sorted(folder.iterdir())[0].unlink()
    found = seal(store, place)

    assert found.gap == LOG_FILE_SIZE - first
    with pytest.raises(MessageUnknownError):
        list(ColdQueues(place).read("orders", 0, 0))


def test_a_piece_that_was_begun_elsewhere_is_taken(store: Path, place: SealedFolder) -> None:
    """As a run leaves it that has died before the manifest."""
    seal(store, place)
    (manifest := Path(place.as_text("manifest"))).unlink()
    row = rebuild_manifest(place).rows[0]
    assert row.name.endswith(file_name(row.start, row.end))
    manifest.unlink()
    assert seal(store, place).pieces == 0
    assert log_sealing.read_manifest(place).rows[0] == row


def test_a_lost_manifest_forgets_no_piece_whose_log_is_gone(
    store: Path, place: SealedFolder
) -> None:
    sealed = seal(store, place)
    manifest = read_manifest(place)
    folder = next(
        path for path in (store / "dledger-n0/data", store / "commitlog") if path.exists()
    )
    sorted(folder.iterdir())[0].unlink()
    Path(place.as_text("manifest")).unlink()

    assert seal(store, place).end == sealed.end
    assert read_manifest(place) == manifest


def test_a_place_where_nothing_was_sealed_is_none(
    tmp_path: Path, store: Path, place: SealedFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = tmp_path / "misspelt"
    for words in (
        ["list", str(missing)],
        ["verify", str(missing)],
        ["manifest", str(missing)],
        ["read", "orders", "0", "0", "--from", str(missing)],
    ):
        assert main(["piece", *words]) == 1
        assert "nothing was sealed there" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="nothing was sealed there"):
        PieceSource(str(missing))
    assert not missing.exists()
    seal(store, place)
    for count in ("0", "-1"):
        words = ["read", "orders", "0", "0", "--count", count, "--from", place.as_text()]
        assert main(["piece", *words]) == 1
        assert f"given={count}" in capsys.readouterr().err


def test_what_many_want_at_once_is_asked_for_once() -> None:
    kept: SharedCache[int, bytes] = SharedCache(30, len)
    asked, begun, go = [], threading.Event(), threading.Event()

    def make() -> bytes:
        asked.append(1)
        begun.set()
        go.wait()
        return bytes(20)

    found: list[bytes] = []
    threads = [threading.Thread(target=lambda: found.append(kept.get(1, make))) for _ in range(5)]
    for thread in threads:
        thread.start()
    begun.wait()
    go.set()
    for thread in threads:
        thread.join()
    assert (len(asked), len(found)) == (1, 5)
    # Two do not fit; what was not asked for longest goes.
    kept.get(2, lambda: bytes(20))
    kept.get(1, make)
    assert len(asked) == 2
    # What fails is told, and asked for again.
    for _ in range(2):
        with pytest.raises(CorruptLogError):
            kept.get(3, lambda: PieceFile(Memory(b"")) and b"")


def test_the_command_seals_lists_reads_and_verifies(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    to = str(tmp_path / "place")

    def told(*words: str) -> list[dict[str, object]]:
        capsys.readouterr()
        assert main(["piece", *words, "--json"]) == 0
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    (sealed,) = told("seal", str(store), "--to", to)
    pieces = sealed["pieces"]
    assert told("verify", to) == [{"pieces": pieces, "records": MESSAGES, "deleted": 0}]
    (queues,) = told("list", to, "--queues")
    assert queues[1] == {"topic": "orders", "queue_id": 1, "first": 0, "end": 5}  # type: ignore[index]
    read = told("read", "orders", "1", "2", "--from", to, "--count", "2")
    assert [one["queueOffset"] for one in read] == [2, 3]
    (keyed,) = told("read", "orders", "--key", f"{7:032X}", "--from", to)
    assert (keyed["queue"], keyed["queueOffset"]) == (1, 3)
    since = told("read", "orders", "0", "--since", str(BEGIN_MS + 3 * STEP_MS), "--from", to)
    assert [one["queueOffset"] for one in since] == [2, 3, 4]
    (made,) = told("manifest", to)
    assert made == {"pieces": pieces, "end": sealed["end"]}
    # What is not so.
    assert main(["piece", "read", "orders", "1", "--from", to]) == 1
    assert main(["piece", "seal", str(store), "--to", str(store / "pieces")]) == 1
    file = next((tmp_path / "place" / "pieces").iterdir())
    content = bytearray(file.read_bytes())
    content[9] ^= 1
    file.write_bytes(content)
    capsys.readouterr()
    assert main(["piece", "verify", to]) == 2
    assert "group 0" in capsys.readouterr().err


def test_spark_reads_the_rows_of_a_store_out_of_pieces(store: Path, place: SealedFolder) -> None:
    seal(store, place)
    rows = {}
    for name, options in (("path", {"path": str(store)}), ("pieces", {"pieces": place.as_text()})):
        parsed = parse_options({**options, "inflateBodies": "false"}, streaming=False)
        source = open_source(parsed)
        ranges = chosen_ranges(source, parsed)
        tasks = source.plan(ranges, split_bytes=1_000, splits_min=3)
        assert len(tasks) >= 3
        found = [
            row
            for task in tasks
            for batch in batches_of(
                source.read(task, fail_on_data_loss=True), COLUMNS, RowFilter(), inflate=False
            )
            for row in batch.to_pylist()
        ]
        rows[name] = sorted(found, key=lambda row: int(row["physicalOffset"]))
        stored = BEGIN_MS + 3 * STEP_MS
        assert source.offset_at_time(ranges[1], stored) == 1
        assert source.position_of(ranges[1], 1) == rows[name][3]["physicalOffset"]
        source.close()
    assert rows["pieces"] == rows["path"]
    assert len(rows["path"]) == MESSAGES


def test_spark_is_told_what_is_in_no_piece(store: Path, place: SealedFolder) -> None:
    seal(store, place)
    for row in read_manifest(place).rows[1:3]:
        Path(place.as_text(row.name)).unlink()
    Path(place.as_text("manifest")).unlink()
    rebuild_manifest(place)
    source = PieceSource(place.as_text())
    ranges = list(source.bounds(source.queues()).values())
    with pytest.raises(DataLossError):
        list(source.read(ranges, fail_on_data_loss=True))
    found = sum(len(part.numbers) for part in source.read(ranges, fail_on_data_loss=False))
    assert found == sum(row.facts.records for row in read_manifest(place).rows) < MESSAGES
    assert source.plan([], split_bytes=1, splits_min=1) == []
    assert source.bounds([("nothing", 0)]) == {("nothing", 0): ("nothing", 0, 0, 0)}


def test_typed_columns_are_not_told_by_pieces(place: SealedFolder) -> None:
    with pytest.raises(ConfigError, match="schemas"):
        parse_options({"pieces": place.as_text(), "columns": "typed"}, streaming=False)
    with pytest.raises(ConfigError, match="give either"):
        parse_options({"pieces": place.as_text(), "nodes": "tcp://n0:1"}, streaming=False)
