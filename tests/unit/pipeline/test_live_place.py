"""Pieces and the live log behind them are read as one, wherever one ends and the other begins."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from ledgermq.cli.main import main
from ledgermq.cli.spark.cold_tables import tables_at
from ledgermq.model.errors import ConfigError, CorruptLogError
from ledgermq.pipeline.columns.message_schema import COLUMNS
from ledgermq.pipeline.columns.row_filter import RowFilter
from ledgermq.pipeline.pieces import live_place
from ledgermq.pipeline.pieces.cold_queues import ColdQueues
from ledgermq.pipeline.pieces.live_place import LivePlace, told_end
from ledgermq.pipeline.pieces.log_sealing import seal_log
from ledgermq.pipeline.pieces.moments import end_at, moment_as_told
from ledgermq.pipeline.pieces.piece_manifest import read_manifest
from ledgermq.pipeline.pieces.piece_places import SealedFolder
from ledgermq.pipeline.source.data_loss import DataLossError
from ledgermq.pipeline.source.row_source import RowSource, chosen_ranges, open_source
from ledgermq.pipeline.source_options import parse_options
from ledgermq.store.log_reader import LogReader
from ledgermq.store.store_directory import open_directory
from tests.row_batches import batches_of
from tests.small_store import LOG_FILE_SIZE, write_store
from tests.unit.pipeline.made_logs import MadeLog
from tests.unit.pipeline.test_piece_places import ends_of, seal
from tests.unit.pipeline.test_tables_as_of import ENTRIES, SIZES, grown, queue_ends, replay

pytestmark = pytest.mark.slow

MESSAGES = 10
Rows = list[dict[str, object]]


@contextmanager
def both(log: MadeLog, folder: Path, *, sealed: int) -> Iterator[tuple[SealedFolder, LivePlace]]:
    """A place with the first ``sealed`` messages of a log, and the same with the log behind it."""
    data = folder / "store" / "dledger-n0" / "data"
    data.mkdir(parents=True)
    (data / f"{0:020d}").write_bytes(log.content + bytes(4_096))
    (folder / "store" / "dledger-n0" / "index").mkdir()
    place = SealedFolder(folder / "place")
    with closing(LogReader(open_directory(folder / "store"))) as reader:
        last = log.messages[sealed - 1]
        seal_log(place, reader, int(last.physical_offset) + last.size, sizes=SIZES)
        yield place, LivePlace(place, reader, lambda _reader: len(log.content), sizes=SIZES)


@pytest.mark.long(but=1)
@pytest.mark.parametrize("seed", range(4))
def test_what_was_at_an_instant_is_what_a_replay_says_on_both_sides_of_the_seam(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Pieces of the live log are made again and again.
    monkeypatch.setattr(live_place, "KEPT_BYTES", 1)
    log, first_whole = grown(seed, monkeypatch)
    chance = random.Random(seed)
    seam = chance.randrange(1, ENTRIES)
    times = [message.store_timestamp for message in log.messages]
    with both(log, tmp_path, sealed=seam) as (place, live):
        pieces, whole = ColdQueues(place), ColdQueues(live)
        rows = whole.manifest.rows
        assert [row.end for row in rows[:-1]] == [row.start for row in rows[1:]]
        assert rows[-1].end == len(log.content)
        assert len(rows) > len(pieces.manifest.rows)
        indexes = {seam - 2, seam - 1, seam, seam + 1, *chance.sample(range(ENTRIES), 30)}
        moments = [(f"index={one}", one + 1) for one in indexes if first_whole <= one < ENTRIES]
        for time_ms in chance.sample(range(times[0], max(times)), 30):
            end = next(number for number, at in enumerate(times) if at > time_ms)
            if end > first_whole:
                moments.append((str(time_ms), end))
        ends_known = queue_ends(list(log.messages))
        for text, end in moments:
            queues, moment = moment_as_told(pieces, text, option="--as-of", live=live)
            assert (queues is pieces) is (end <= seam if text.startswith("i") else end < seam), text
            assert tables_at(queues, moment).state.tables() == replay(list(log.messages[:end]))[0]
            ends = queue_ends(list(log.messages[:end]))
            for queue in ends_known:
                assert end_at(queues, *queue, moment) == ends.get(queue, 0), text
        with pytest.raises(ConfigError, match="so far"):
            moment_as_told(pieces, f"index={ENTRIES}", option="--as-of", live=live)


def test_a_seal_in_the_meantime_moves_the_seam_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, _ = grown(9, monkeypatch)
    with both(log, tmp_path, sealed=100) as (place, live):
        before = ColdQueues(live)
        found = [one.record for one in before.read("orders", 0, 0)]
        with closing(LogReader(open_directory(tmp_path / "store"))) as reader:
            middle = int(log.messages[250].physical_offset) - log.header_size
            seal_log(place, reader, middle, sizes=SIZES)
        before.refresh()
        assert [one.record for one in before.read("orders", 0, 0)] == found
        assert [one.record for one in ColdQueues(live).read("orders", 0, 0)] == found
        assert sum(row.facts.records for row in before.manifest.rows) == ENTRIES
        # The pieces that it reads first have gone: it says which one.
        (tmp_path / "place" / read_manifest(place).rows[0].name).unlink()
        with pytest.raises(CorruptLogError, match="missing"):
            list(ColdQueues(live).read("orders", 0, 0))


@pytest.fixture(params=[True, False], ids=["entries", "plain"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    root = tmp_path / "store"
    root.mkdir()
    write_store(root, entries=request.param, messages=MESSAGES)
    return root


def opened(store: Path | None, place: SealedFolder | None, **more: str) -> RowSource:
    given = {"inflateBodies": "false", **more}
    if store is not None:
        given["path"] = str(store)
    if place is not None:
        given["pieces"] = place.as_text()
    return open_source(parse_options(given, streaming=False))


def rows_of(source: RowSource, **more: str) -> Rows:
    """What the tasks of a plan read, in the order of the log."""
    options = parse_options({"path": "/not/looked/at", **more}, streaming=False)
    tasks = source.plan(chosen_ranges(source, options), split_bytes=1_000, splits_min=3)
    return rows_in(source, tasks)


def rows_in(source: RowSource, tasks: object) -> Rows:
    found = [
        row
        for task in tasks  # type: ignore[attr-defined]
        for batch in batches_of(
            source.read(task, fail_on_data_loss=True), COLUMNS, RowFilter(), inflate=False
        )
        for row in batch.to_pylist()
    ]
    return sorted(found, key=lambda row: int(row["physicalOffset"]))


def lose_sealed_files(store: Path, place: SealedFolder) -> int:
    """Have the log's files no more that pieces have, but for the last one; how many."""
    folder = store / "commitlog"
    if not folder.exists():
        folder = store / "dledger-n0" / "data"
    files = sorted(folder.iterdir())[:-1]
    gone = [one for one in files if int(one.name) + LOG_FILE_SIZE <= read_manifest(place).end]
    for file in gone:
        file.unlink()
    return len(gone)


@pytest.mark.long(but=1)
@pytest.mark.parametrize("sealed", range(1, MESSAGES + 1))
def test_spark_has_each_message_once_wherever_the_pieces_end(
    sealed: int, store: Path, tmp_path: Path
) -> None:
    place, ends = SealedFolder(tmp_path / "place"), ends_of(store)
    with closing(opened(store, None)) as source:
        expected = rows_of(source)
        (queue, other) = source.bounds(source.queues()).values()
        times = [source.offset_at_time(queue, 1_600_000_000_000 + 500 * one) for one in range(20)]
    assert len(expected) == MESSAGES
    seal(store, place, end=ends[sealed - 1])
    with closing(opened(store, place)) as source:
        ranges = source.bounds(source.queues())
        assert list(ranges.values()) == [queue, other]
        tasks = source.plan(list(ranges.values()), split_bytes=1_000, splits_min=3)
        assert rows_in(source, tasks) == expected
        assert times == [
            source.offset_at_time(queue, 1_600_000_000_000 + 500 * one) for one in range(20)
        ]
        assert [source.position_of(queue, one) for one in range(5)] == [
            row["physicalOffset"] for row in expected if row["queueId"] == queue.queue_id
        ]
    lost = lose_sealed_files(store, place)
    with closing(opened(store, place)) as source:
        assert rows_of(source) == expected
        # Between plan and task somebody seals, and retention comes behind it.
        seal(store, place)
        lost += lose_sealed_files(store, place)
        source.refresh()
        assert rows_in(source, tasks) == expected
    assert lost > 0
    for index, row in enumerate(expected):
        end = index if "raftIndex" in row and row["raftIndex"] is not None else ends[index]
        with closing(opened(store, place, asOf=f"index={end}")) as source:
            assert rows_of(source) == expected[: index + 1]


def test_what_was_never_sealed_and_has_gone_is_told(store: Path, tmp_path: Path) -> None:
    place, ends = SealedFolder(tmp_path / "place"), ends_of(store)
    seal(store, place, end=ends[0])
    folder = store / "commitlog"
    if not folder.exists():
        folder = store / "dledger-n0" / "data"
    min(folder.iterdir()).unlink()
    with closing(opened(store, place)) as source, pytest.raises(DataLossError):
        rows_of(source)


def test_another_log_and_a_place_without_pieces_are_refused(store: Path, tmp_path: Path) -> None:
    place = SealedFolder(tmp_path / "place")
    with pytest.raises(ConfigError, match="nothing was sealed"):
        opened(store, place)
    seal(store, place)
    other = tmp_path / "other"
    other.mkdir()
    write_store(other, entries=(store / "dledger-n0").exists(), messages=MESSAGES, begin_ms=7)
    with pytest.raises(ConfigError, match="not the one whose pieces"):
        opened(other, place)
    with pytest.raises(ConfigError, match="one store"):
        parse_options({"pieces": place.as_text(), "path": f"{store},{other}"}, streaming=False)


@pytest.mark.parametrize("entries", [True, False])
def test_a_member_that_is_behind_is_no_other_log(entries: bool, tmp_path: Path) -> None:
    ahead, behind, place = tmp_path / "ahead", tmp_path / "behind", SealedFolder(tmp_path / "place")
    for root, messages in ((ahead, MESSAGES), (behind, MESSAGES - 1)):
        root.mkdir()
        write_store(root, entries=entries, messages=messages)
    sealed = seal(ahead, place)
    with closing(opened(behind, place)) as source:
        assert len(rows_of(source)) == MESSAGES
    # Nor does it seal anything there.
    found = seal(behind, place)
    assert (found.pieces, found.end) == (0, sealed.end)


def test_a_store_tells_no_more_than_is_surely_committed(tmp_path: Path) -> None:
    root = tmp_path / "store"
    root.mkdir()
    write_store(root, messages=MESSAGES, committed=3)
    with closing(LogReader(open_directory(root))) as reader:
        assert told_end(reader) == ends_of(root)[3] < reader.end
    shutil.rmtree(root)
    root.mkdir()
    write_store(root, entries=False, messages=MESSAGES)
    with closing(LogReader(open_directory(root))) as reader:
        assert told_end(reader) == reader.end


def test_options_of_a_store_want_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store, place = tmp_path / "store", str(tmp_path / "place")
    store.mkdir()
    write_store(store, messages=MESSAGES)
    seal(store, SealedFolder(Path(place)), end=ends_of(store)[2])
    words = ["explain", "group", "orders", "--as-of", "index=5", "--from", place]
    assert main([*words, "--runtime-dir", str(tmp_path)]) == 1
    assert "say --store" in capsys.readouterr().err
    assert main(words) == 1
    assert "do not go so far" in capsys.readouterr().err
    # With the store it does; and that no broker of ours has led this log is told.
    assert main([*words, "--store", str(store), "--json"]) == 1
    assert "no snapshot" in capsys.readouterr().err
    assert main(["offset", "show", "group", "--store", str(store)]) == 1
    assert "--store is for --as-of" in capsys.readouterr().err
