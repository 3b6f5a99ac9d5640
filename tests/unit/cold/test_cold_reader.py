"""Reader of pieces: what it answers, what it does not claim, and what its cache is worth."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ledgermq.cold import cold_reader
from ledgermq.cold.cold_reader import ColdReader
from ledgermq.cold.disk_cache import DiskCache
from ledgermq.cold.watched_place import WatchedPlace
from ledgermq.formats.java_hash import java_hash
from ledgermq.formats.records.message import decode_message
from ledgermq.ipc.counters import ColdCounter, no_counts
from ledgermq.model.errors import ColdAwayError, ConfigError, CorruptLogError, DamagedLogError
from ledgermq.model.names.queue_name import QueueName
from ledgermq.pipeline.pieces.log_sealing import SealSizes, rebuild_manifest, seal_log
from ledgermq.pipeline.pieces.piece_file import PieceFile, PieceRecord
from ledgermq.pipeline.pieces.piece_manifest import PieceManifest
from ledgermq.pipeline.pieces.piece_places import SealedFolder, SealedPlace
from ledgermq.store.log_reader import LogReader
from ledgermq.store.store_directory import open_directory
from ledgermq.wire.cold_frames import (
    ColdHits,
    ColdNothing,
    ColdOffset,
    ColdQuestion,
    ColdRecords,
    ColdSearch,
    ColdSince,
)
from tests.small_store import BEGIN_MS, STEP_MS, write_store

pytestmark = pytest.mark.slow

MESSAGES = 30
SIZES = SealSizes(piece_bytes=2_000, group_bytes=400)
NOW_NS = 1_700_000_000_000_000_000


@pytest.fixture(params=[True, False], ids=["entries", "plain"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    root = tmp_path / "store"
    root.mkdir()
    write_store(root, entries=request.param, messages=MESSAGES)
    return root


@pytest.fixture
def folder(tmp_path: Path) -> SealedFolder:
    return SealedFolder(tmp_path / "pieces")


def seal(store: Path, place: SealedPlace, *, records: int = MESSAGES) -> None:
    with closing(LogReader(open_directory(store))) as log:
        ends = [one.message.physical_offset + one.message.size for one in log.iterate()]
        seal_log(place, log, ends[records - 1], sizes=SIZES)


class Watched:
    """A reader of a place, and what it has counted."""

    def __init__(self, place: SealedPlace, cache: Path) -> None:
        self.counts = no_counts()
        self.cache = DiskCache(cache, 1 << 20)
        self.place = WatchedPlace(
            place, self.cache, cache / "manifest", self.counts, epoch_ns=lambda: NOW_NS
        )
        self.reader = ColdReader(self.place)

    def ask(self, queue: int, offset: int, **wishes: Any) -> ColdRecords | ColdNothing:
        answer = self.reader.answer(question(queue, offset, **wishes))
        assert not isinstance(answer, ColdOffset | ColdHits)
        return answer


def question(
    queue: int,
    offset: int,
    *,
    floor: int = 0,
    messages: int = 1_000,
    size: int = 1 << 20,
    tag: str = "",
    expression: str = "",
) -> ColdQuestion:
    return ColdQuestion(
        number=7,
        topic="orders",
        queue_id=queue,
        offset=offset,
        floor=floor,
        messages_max=messages,
        bytes_max=size,
        tag_hashes=(java_hash(tag),) if tag else (),
        expression=expression,
    )


def records_of(found: ColdRecords | ColdNothing) -> list[bytes]:
    assert isinstance(found, ColdRecords), found
    starts = memoryview(found.starts).cast("I").tolist()
    sizes = memoryview(found.sizes).cast("I").tolist()
    return [
        bytes(found.payload[start : start + size])
        for start, size in zip(starts, sizes, strict=True)
    ]


def in_log(store: Path, queue: int) -> list[bytes]:
    """The records of a queue, as the log has them."""
    found = []
    with closing(LogReader(open_directory(store))) as log:
        for one in log.iterate():
            message = one.message
            if message.queue_id == queue:
                span = log.span(message.physical_offset)
                found.append(bytes(span.view[: message.size]))
    return found


def test_a_queue_comes_record_by_record_as_it_was_in_the_log(
    store: Path, folder: SealedFolder, tmp_path: Path
) -> None:
    seal(store, folder)
    watched = Watched(folder, tmp_path / "cache")
    for queue in range(2):
        for messages, size in ((1_000, 1 << 20), (1, 1 << 20), (1_000, 1)):
            found: list[bytes] = []
            while len(found) < MESSAGES // 2:
                answer = watched.ask(queue, len(found), messages=messages, size=size)
                records = records_of(answer)
                assert answer.next_offset == len(found) + len(records)
                assert len(records) == 1 or min(messages, size) > 1
                found += records
            assert found == in_log(store, queue)
    assert watched.reader.begins == {QueueName("orders", 0): 0, QueueName("orders", 1): 0}


def test_headers_of_entries_stand_before_the_records(
    store: Path, folder: SealedFolder, tmp_path: Path
) -> None:
    seal(store, folder)
    found = Watched(folder, tmp_path / "cache").ask(1, 0)
    assert isinstance(found, ColdRecords)
    with closing(LogReader(open_directory(store))) as log:
        size = log.parts[-1].header_size
        position = next(
            one.message.physical_offset for one in log.iterate() if one.message.queue_id
        )
        span = log.span(position - size)
        headed = bytes(span.view[: size + len(records_of(found)[0])])
    assert found.header_size == size
    assert memoryview(found.starts).cast("I")[0] == size
    assert bytes(found.payload[: len(headed)]) == headed


def test_that_a_message_is_gone_is_said_by_a_manifest_that_is_read_then(
    store: Path, folder: SealedFolder, tmp_path: Path
) -> None:
    seal(store, folder, records=10)
    watched = Watched(folder, tmp_path / "cache")
    assert records_of(watched.ask(0, 0))
    beyond = watched.ask(0, 12)
    assert beyond == ColdNothing(7, -1, True)
    # Sealed since, and found although nobody has said so.
    seal(store, folder)
    assert records_of(watched.ask(0, 12))[0] == in_log(store, 0)[12]
    # The pieces that had the first messages were dropped.
    (first, *_) = sorted((tmp_path / "pieces" / "pieces").iterdir())
    first.unlink()
    rebuild_manifest(folder)
    watched = Watched(folder, tmp_path / "another cache")
    gone = watched.ask(0, 0)
    assert isinstance(gone, ColdNothing)
    assert gone.is_gone
    assert records_of(watched.ask(0, gone.next_offset))[0] == in_log(store, 0)[gone.next_offset]
    assert watched.reader.begins is not None
    assert watched.reader.begins[QueueName("orders", 0)] == gone.next_offset
    assert watched.counts[ColdCounter.GONE] == 1


def test_what_belongs_to_an_older_topic_of_the_name_is_not_shown(
    store: Path, folder: SealedFolder, tmp_path: Path
) -> None:
    seal(store, folder)
    watched = Watched(folder, tmp_path / "cache")
    assert watched.ask(0, 2, floor=5) == ColdNothing(7, 5, True)
    assert records_of(watched.ask(0, 5, floor=5))[0] == in_log(store, 0)[5]


def test_a_place_without_a_manifest_is_away_and_not_empty(
    store: Path, folder: SealedFolder, tmp_path: Path
) -> None:
    watched = Watched(folder, tmp_path / "cache")
    with pytest.raises(ColdAwayError, match="away since 2023-11-14T22:13:20") as refused:
        watched.ask(0, 0)
    assert "nothing was sealed there yet" in str(refused.value)
    assert refused.value.details["place"] == str(tmp_path / "pieces")
    assert watched.counts[ColdCounter.AWAY_SINCE] == NOW_NS // 1_000_000_000
    assert watched.reader.begins is None
    seal(store, folder)
    assert records_of(watched.ask(0, 0))
    assert watched.counts[ColdCounter.AWAY_SINCE] == 0


def test_a_start_while_the_place_is_away_knows_where_queues_begin_and_claims_no_more(
    store: Path, folder: SealedFolder, tmp_path: Path
) -> None:
    seal(store, folder, records=10)
    known = Watched(folder, tmp_path / "cache")
    kept = records_of(known.ask(0, 0))
    (tmp_path / "pieces").rename(tmp_path / "unmounted")
    watched = Watched(folder, tmp_path / "cache")
    watched.reader.refresh(0)
    assert watched.reader.begins == known.reader.begins
    assert watched.reader.read_ns == -1
    # The cache has it.
    assert records_of(watched.ask(0, 0)) == kept
    with pytest.raises(ColdAwayError):
        watched.ask(0, 12)


def test_a_manifest_that_is_cut_is_named_and_takes_no_copys_place_nor_does_a_copy_that_is(
    store: Path, folder: SealedFolder, tmp_path: Path
) -> None:
    seal(store, folder, records=10)
    known = Watched(folder, tmp_path / "cache")
    kept = records_of(known.ask(0, 0))
    manifest, copy = tmp_path / "pieces" / "manifest", tmp_path / "cache" / "manifest"
    whole = manifest.read_bytes()
    for left in (b"", whole[: len(whole) // 2]):
        manifest.write_bytes(left)
        with pytest.raises(CorruptLogError, match="ledgermq piece manifest"):
            known.reader.refresh(NOW_NS)
        assert copy.read_bytes() == whole
        manifest.write_bytes(whole)
        (tmp_path / "pieces").rename(tmp_path / "unmounted")
        watched = Watched(folder, tmp_path / "cache")
        watched.reader.refresh(0)
        assert records_of(watched.ask(0, 0)) == kept
        copy.write_bytes(left)
        with pytest.raises(ColdAwayError, match="away since"):
            Watched(folder, tmp_path / "cache").ask(0, 0)
        copy.write_bytes(whole)
        (tmp_path / "unmounted").rename(tmp_path / "pieces")


def test_a_flipped_byte_anywhere_is_named_and_mended_under_the_reader(
    store: Path, folder: SealedFolder, tmp_path: Path
) -> None:
    seal(store, folder)
    (piece, *_) = sorted((tmp_path / "pieces" / "pieces").iterdir())
    content = piece.read_bytes()
    piece.chmod(0o600)
    named = set()
    # Of "PAR1" at the begin nothing is read; of the rest nothing by who reads queues.
    for at in range(4, len(content), 131):
        piece.write_bytes(content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :])
        watched = Watched(folder, tmp_path / f"cache {at}")
        try:
            records = records_of(watched.ask(0, 0))
        except DamagedLogError as error:
            assert error.details["file"] == str(piece)
            named.add(error.details["part"])
            piece.write_bytes(content)
            records = records_of(watched.ask(0, 0))
        assert records == in_log(store, 0)[: len(records)]
    assert {"footer", "table"} < named
    assert any(str(part).startswith("group") for part in named)


def test_a_file_of_the_cache_that_was_changed_is_read_from_the_place_again(
    store: Path, folder: SealedFolder, tmp_path: Path
) -> None:
    seal(store, folder)
    wanted = records_of(Watched(folder, tmp_path / "cache").ask(0, 0))
    for path in (tmp_path / "cache").glob("*-*-*"):
        content = path.read_bytes()
        path.write_bytes(content[:-20] + b"!" + content[-19:])
    watched = Watched(folder, tmp_path / "cache")
    assert records_of(watched.ask(0, 0)) == wanted
    assert watched.counts[ColdCounter.PLACE_READS] == 3


def test_pieces_of_another_log_are_refused_whatever_was_known(
    store: Path, folder: SealedFolder, tmp_path: Path
) -> None:
    seal(store, folder)
    watched = Watched(folder, tmp_path / "cache")
    refused: list[PieceManifest] = []

    def check(manifest: PieceManifest) -> None:
        refused.append(manifest)
        raise ConfigError("another log")

    reader = ColdReader(watched.place, check)
    for _ in range(2):
        with pytest.raises(ConfigError, match="another log"):
            reader.answer(question(0, 0))
    assert reader.begins is None
    assert len(refused) == 2


def test_tags_and_expressions_choose_and_say_how_far_was_looked(
    store: Path, folder: SealedFolder, tmp_path: Path
) -> None:
    seal(store, folder)
    watched = Watched(folder, tmp_path / "cache")
    nothing = watched.ask(0, 0, tag="nobody's")
    assert isinstance(nothing, ColdNothing)
    assert not nothing.is_gone
    assert 0 < nothing.next_offset <= MESSAGES // 2
    for wanted in ({"tag": "TagA"}, {"expression": "TAGS = 'TagA'"}):
        chosen = watched.ask(0, 0, **wanted)
        looked_at = in_log(store, 0)[: chosen.next_offset]
        assert records_of(chosen) == [one for one in looked_at if b"TAGS\x01TagA" in one]


def test_the_offset_of_a_time_is_that_of_a_manifest_that_is_read_then(
    store: Path, folder: SealedFolder, tmp_path: Path
) -> None:
    seal(store, folder, records=10)
    watched = Watched(folder, tmp_path / "cache")

    def since(queue: int, time_ms: int) -> int:
        answer = watched.reader.answer(ColdSince(7, "orders", queue, time_ms))
        assert isinstance(answer, ColdOffset)
        return answer.offset

    # Queues in turn.
    assert since(0, 0) == since(1, 0) == 0
    assert since(0, BEGIN_MS + 4 * STEP_MS) == 2
    assert since(0, BEGIN_MS + 3 * STEP_MS) == 2
    assert since(0, BEGIN_MS + 20 * STEP_MS) == -1
    seal(store, folder)
    assert since(0, BEGIN_MS + 20 * STEP_MS) == 10
    assert since(9, 0) == -1


def test_a_range_is_asked_for_once_by_many_readers(
    store: Path, folder: SealedFolder, tmp_path: Path
) -> None:
    seal(store, folder)
    watched = Watched(folder, tmp_path / "cache")
    watched.reader.refresh(0)
    before = watched.counts[ColdCounter.PLACE_READS]
    answers: list[list[bytes]] = []

    def read() -> None:
        answers.append(records_of(watched.ask(0, 0)))

    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 8
    assert all(one == answers[0] for one in answers)
    assert watched.counts[ColdCounter.PLACE_READS] - before == 2


def test_what_comes_next_is_read_ahead_once(
    store: Path, folder: SealedFolder, tmp_path: Path
) -> None:
    seal(store, folder)
    watched = Watched(folder, tmp_path / "cache")
    answer = watched.ask(0, 0)
    for _ in range(2):
        watched.reader.read_ahead(question(0, 0), answer.next_offset)
    read = watched.counts[ColdCounter.PLACE_READS]
    assert records_of(watched.ask(0, answer.next_offset))
    assert watched.counts[ColdCounter.PLACE_READS] == read
    ahead = watched.counts[ColdCounter.READ_AHEAD]
    assert 1 <= ahead <= 2


@pytest.mark.parametrize("size", [100, 250])
def test_the_cache_keeps_to_its_bytes_also_over_a_restart(tmp_path: Path, size: int) -> None:
    def bytes_in(folder: Path) -> int:
        return sum(path.stat().st_size for path in folder.iterdir())

    folder = tmp_path / "cache"
    cache = DiskCache(folder, 1_000)
    for number in range(20):
        cache.put("piece", number * size, number * size + size, bytes([number]) * size)
        assert cache.get("piece", 0, size) in (None, bytes(size))
        assert bytes_in(folder) == cache.size <= 1_000
    (folder / f"{'0' * 32}-0-1.tmp").write_bytes(b"left")
    again = DiskCache(folder, 500)
    assert bytes_in(folder) == again.size <= 500
    last = 19 * size
    assert again.get("piece", last, last + size) == bytes([19]) * size
    assert again.get("piece", last, last + size - 1) is None
    again.put("large", 0, 2_000, bytes(2_000))
    assert again.get("large", 0, 2_000) is None
    again.forget("piece")
    assert again.size == bytes_in(folder) == 0


def test_a_cache_that_cannot_be_written_is_done_without(
    store: Path,
    folder: SealedFolder,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seal(store, folder)
    watched = Watched(folder, tmp_path / "cache")
    watched.reader.refresh(0)

    def full(_fd: int, _content: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("ledgermq.cold.disk_cache.write_all", full)
    assert records_of(watched.ask(0, 0)) == in_log(store, 0)[: len(records_of(watched.ask(0, 0)))]
    assert caplog.text.count("cache of pieces refused") == 1
    assert not list((tmp_path / "cache").glob("*.tmp"))


def test_a_disk_that_refuses_the_copy_of_the_manifest_harms_no_reader(
    store: Path, folder: SealedFolder, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    seal(store, folder)
    watched = Watched(folder, tmp_path / "cache")
    # No file can be made beside it: it is refused as on a full disk, at each look.
    (tmp_path / "cache" / "manifest.tmp").mkdir()

    with caplog.at_level("WARNING"):
        for _ in range(2):
            watched.reader.refresh(NOW_NS)

    assert watched.reader.begins
    assert caplog.text.count("copy of the manifest of pieces not kept") == 1


def test_a_cache_in_a_place_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cache").write_bytes(b"")
    with pytest.raises(ConfigError, match=r"cold\.cache_dir"):
        DiskCache(tmp_path / "cache", 1_000)


def hits_of(watched: Watched, **wishes: Any) -> tuple[list[bytes], bool]:
    """The records that a search finds, and whether there are more."""
    asked = {"before": 1 << 62, "end_ms": 1 << 62, "messages_max": 100, **wishes}
    found = watched.reader.answer(ColdSearch(7, **asked))
    assert isinstance(found, ColdHits)
    at, records = 0, []
    for size in memoryview(found.sizes).cast("I").tolist():
        records.append(bytes(found.payload[at : at + size]))
        at += size
    assert at == len(found.payload)
    return records, found.has_more


def test_messages_are_found_by_key_position_and_time_the_newest_ones(
    store: Path, folder: SealedFolder, tmp_path: Path
) -> None:
    seal(store, folder)
    watched = Watched(folder, tmp_path / "cache")
    every = sorted(
        (
            decode_message(memoryview(record))
            for queue in range(2)
            for record in in_log(store, queue)
        ),
        key=lambda one: one.physical_offset,
    )
    records = {one.physical_offset: one for one in every}
    assert len(records) == MESSAGES
    with closing(LogReader(open_directory(store))) as log:
        for number, one in enumerate(every):
            record = bytes(log.span(one.physical_offset).view[: one.size])
            assert hits_of(watched, position=one.physical_offset) == ([record], False)
            wanted = {"topic": "orders", "key": f"{number:032X}"}
            found = [record], False
            stored_ms = one.store_timestamp
            assert hits_of(watched, **wanted) == found
            assert hits_of(watched, **wanted, begin_ms=stored_ms) == found
            # Those of the log, and of other times, are not told.
            assert hits_of(watched, **{**wanted, "before": one.physical_offset}) == ([], False)
            assert hits_of(watched, **{**wanted, "end_ms": stored_ms - 1}) == ([], False)
            assert hits_of(watched, **wanted, begin_ms=stored_ms + 1) == ([], False)
            assert hits_of(watched, **{**wanted, "topic": "other"}) == ([], False)
    assert hits_of(watched, position=every[3].physical_offset + 1) == ([], False)
    assert hits_of(watched, topic="orders", key="of nobody") == ([], False)


def test_a_search_ends_after_so_many_messages_or_pieces_and_says_so(
    store: Path, folder: SealedFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seal(store, folder)
    watched = Watched(folder, tmp_path / "cache")
    records = [decode_message(memoryview(one)) for one in in_log(store, 0)]

    def all_of(piece: PieceFile, topic: str, _key: str) -> Iterator[PieceRecord]:
        yield from piece.queue(topic, 0, piece.runs(topic, 0)[0].offset)

    monkeypatch.setattr(PieceFile, "with_key", all_of)
    found, has_more = hits_of(watched, topic="orders", key="k", messages_max=2)
    assert has_more
    assert [decode_message(memoryview(one)).physical_offset for one in found] == [
        one.physical_offset for one in records[-2:]
    ]
    assert len(hits_of(watched, topic="orders", key="k")[0]) == MESSAGES // 2
    monkeypatch.setattr(cold_reader, "PIECES_SEARCHED_MAX", 1)
    found, has_more = hits_of(watched, topic="orders", key="k")
    assert has_more and 0 < len(found) < MESSAGES // 2


def test_a_search_names_what_is_damaged_and_reads_it_again_when_it_is_mended(
    store: Path, folder: SealedFolder, tmp_path: Path
) -> None:
    seal(store, folder)
    message = decode_message(memoryview(in_log(store, 0)[0]))
    (piece, *_) = sorted((tmp_path / "pieces" / "pieces").iterdir())
    content = piece.read_bytes()
    piece.chmod(0o600)
    piece.write_bytes(content[:100] + bytes([content[100] ^ 1]) + content[101:])
    watched = Watched(folder, tmp_path / "cache")
    with pytest.raises(DamagedLogError) as refused:
        hits_of(watched, position=message.physical_offset)
    assert refused.value.details["part"] == "group 0"
    piece.write_bytes(content)
    assert len(hits_of(watched, position=message.physical_offset)[0]) == 1
