"""Sealed pieces in a real S3 server: how often it is asked, and what a bad answer does."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from pathlib import Path

import pytest

from bench.bucket_requests import Requests, piece_checked, seal_command
from ledgermq.buckets import amazon_bucket
from ledgermq.cli.main import main
from ledgermq.model.errors import CorruptLogError, StorageError
from ledgermq.model.exit_status import EXIT_CONFIG
from ledgermq.pipeline.pieces.cold_queues import ColdQueues
from ledgermq.pipeline.pieces.log_sealing import SealSizes, rebuild_manifest, seal_log
from ledgermq.pipeline.pieces.piece_manifest import read_manifest
from ledgermq.pipeline.pieces.piece_places import NOTES, SealedBucket, place_at
from ledgermq.store.log_reader import LogReader
from ledgermq.store.store_directory import open_directory
from tests.buckets.object_server import BUCKET, FaultyProxy
from tests.buckets.test_requests import asked_of
from tests.small_store import write_store
from tests.unit.pipeline import test_piece_compaction as compaction
from tests.unit.pipeline import test_piece_notes as notes
from tests.unit.pipeline.test_piece_places import ends_of
from tests.unit.pipeline.test_piece_retention import (
    all_but_long,
    expected,
    prune,
    read_all,
    seal_made,
    some_log,
    verified,
)
from tests.unit.pipeline.test_restored_pieces import log_of

pytestmark = pytest.mark.slow

MESSAGES = 30
SIZES = SealSizes(piece_bytes=2_000, group_bytes=400)


@pytest.fixture
def address(request: pytest.FixtureRequest) -> str:
    return f"s3://{BUCKET}/{request.node.name}/pieces of it"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    root = tmp_path / "store"
    root.mkdir()
    write_store(root, messages=MESSAGES)
    return root


def seal(store: Path, address: str, *, end: int | None = None) -> int:
    with closing(LogReader(open_directory(store))) as reader:
        wanted = reader.end if end is None else end
        return seal_log(place_at(address), reader, wanted, sizes=SIZES).pieces


def test_the_first_message_of_a_cold_queue_takes_three_requests(
    proxy: FaultyProxy, store: Path, address: str
) -> None:
    with asked_of(proxy) as sealed:
        pieces = seal(store, address)
    # A piece is a put, and so is the manifest, which is read before; two puts try the conditions,
    # and where there is no manifest a listing says whether there are pieces.
    assert (sealed.requests.puts, sealed.requests.gets) == (2 * pieces + 3, pieces + 1)
    with asked_of(proxy) as first:
        queues = ColdQueues(place_at(address))
        assert next(queues.read("orders", 1, 9)).record
    assert first.requests.gets == 3
    assert first.requests.puts == 0
    with asked_of(proxy) as other:
        assert next(queues.read("orders", 1, 0)).record
    assert other.requests.gets == 2
    with asked_of(proxy) as again:
        for _ in range(3):
            assert next(queues.read("orders", 1, 0)).record
    assert again.requests.gets == 0
    with asked_of(proxy) as keyed:
        (found,) = queues.with_key("orders", f"{3:032X}")
    # The filters of each piece, footers that were not read yet, and one row group.
    assert keyed.requests.gets <= 2 * pieces + 1
    assert found.record == next(queues.read("orders", 1, 1)).record


def test_runs_of_the_command_and_checks_take_the_requests_that_a_plan_counts(
    proxy: FaultyProxy, tmp_path: Path, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "grown"

    def run(messages: int) -> tuple[int, int, Requests]:
        """The log grows up to so many messages: pieces, tables and requests of a seal."""
        if store.exists():
            shutil.rmtree(store)
        store.mkdir()
        write_store(store, messages=messages)
        known = len(place_at(address).names("tables"))
        capsys.readouterr()
        with asked_of(proxy) as asked:
            assert main(["piece", "seal", str(store), "--to", address, "--json"]) == 0
        pieces = json.loads(capsys.readouterr().out)["pieces"]
        return pieces, len(place_at(address).names("tables")) - known, asked.requests

    # The first run says whose log it is, too, and finds nothing there.
    run(10)
    runs = [run(messages) for messages in (11, 12, MESSAGES, MESSAGES)]
    for pieces, tables, requests in runs:
        assert requests == seal_command(pieces=pieces, tables=tables)
    assert [found[:2] for found in runs[:2]] == [(1, 0)] * 2
    assert (runs[2][0] > 1, runs[2][1]) == (True, 1)
    assert runs[3][:2] == (0, 0)
    queues = ColdQueues(place_at(address))
    for row in queues.manifest.rows:
        with asked_of(proxy) as checked:
            piece = queues.piece(row)
            piece.check_sums()
        # One that has the blank of a file alone has no filters either.
        if row.facts.records:
            assert checked.requests == piece_checked(groups=len(piece.footer.groups))


@pytest.mark.usefixtures("straight")
def test_a_place_in_a_bucket_is_sealed_on_read_and_verified_by_the_command(
    store: Path, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert seal(store, address, end=ends_of(store)[1]) == 1
    assert main(["piece", "seal", str(store), "--to", address]) == 0
    assert main(["piece", "verify", address]) == 0
    assert main(["piece", "read", "orders", "0", "0", "--from", address]) == 0
    assert len(capsys.readouterr().out.splitlines()) == MESSAGES // 2 + 2
    manifest = read_manifest(place_at(address))
    place = place_at(address)
    assert isinstance(place, SealedBucket)
    place.delete("manifest")
    assert rebuild_manifest(place_at(address)) == manifest


@pytest.mark.usefixtures("straight")
def test_a_store_is_restored_from_a_place_in_a_bucket(
    store: Path, address: str, tmp_path: Path
) -> None:
    again, early = tmp_path / "again", tmp_path / "early"
    assert seal(store, address, end=ends_of(store)[1]) == 1
    assert main(["piece", "seal", str(store), "--to", address]) == 0
    assert main(["backup", "verify", address]) == 0
    words = ["--group", "other", "--self-id", "n0"]
    assert main(["backup", "restore", address, str(again), *words]) == 0
    assert log_of(again) == log_of(store)
    # No tables are that old, nor has the log any.
    status = main(["backup", "restore", address, str(early), *words, "--to-index", "3"])
    assert status == EXIT_CONFIG
    assert not early.exists()


@pytest.mark.parametrize("fault", ["", "busy", "lost", "half", "head"])
def test_what_is_beyond_its_age_goes_out_of_a_bucket(
    proxy: FaultyProxy, address: str, fault: str
) -> None:
    log = some_log()
    seal_made(place_at(address), log)
    left = expected(log, all_but_long)
    proxy.fault = lambda number, _head: fault if number % 2 else ""
    found = prune(place_at(address), all_but_long)
    proxy.fault = lambda _number, _head: ""

    place = place_at(address)
    assert sum(found.records.values()) == len(log.messages) - len(left)
    assert read_all(place) == left
    assert verified(place) == len(left)
    files = {f"pieces/{name}" for name in place.names("pieces")}
    assert files == {row.name for row in read_manifest(place).rows}


@pytest.mark.usefixtures("proxy")
def test_keys_are_compacted_and_messages_deleted_in_a_bucket_with_proof(address: str) -> None:
    place, log = place_at(address), compaction.some_log(1)
    seal_made(place, log)
    compaction.compact(place)
    left = compaction.expected(log)
    assert compaction.read_all(place) == left
    number, gone = next(
        (number, key)
        for number, one in enumerate(log.messages)
        if (key := (one.topic, one.queue_id, int(one.queue_offset))) in left
    )
    notes.delete(place, log, number)
    left = {key: one for key, one in left.items() if key != gone}
    assert compaction.read_all(place) == left
    assert (notes.proved(place), verified(place)) == (1, len(left))
    before = read_manifest(place)
    assert rebuild_manifest(place).rows == before.rows
    name = f"{NOTES}/{place.names(NOTES)[0]}"
    place.delete(name)
    with pytest.raises(CorruptLogError, match="note of what was dropped of a piece is missing"):
        notes.proved(place)


def test_an_object_that_was_not_deleted_for_once_is_deleted_when_asked_again(
    proxy: FaultyProxy, address: str
) -> None:
    place = place_at(address)
    place.put("pieces/one", [b"content"])
    begun = proxy.count
    proxy.fault = lambda number, _head: "kept" if number - begun < 3 else ""
    place.delete("pieces/one")
    assert place.names("pieces") == []
    place.put("pieces/two", [b"content"])
    proxy.fault = lambda _number, _head: "kept"
    with pytest.raises(StorageError, match="objects not deleted") as found:
        place.delete("pieces/two")
    assert "some: InternalError: kept by a test" in str(found.value.details["reason"])


def test_a_store_that_answers_badly_loses_no_message(
    proxy: FaultyProxy, store: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(amazon_bucket, "TRIES", 2)
    seal(store, address)
    expected = list(ColdQueues(place_at(address)).read("orders", 0, 0))
    assert len(expected) == MESSAGES // 2
    for fault in ("busy", "gone", "lost", "half"):
        proxy.fault = lambda number, _head, fault=fault: fault if number % 2 else ""
        assert list(ColdQueues(place_at(address)).read("orders", 0, 0)) == expected, fault
    proxy.fault = lambda _number, _head: ""
    queues = ColdQueues(place_at(address))
    proxy.fault = lambda _number, _head: "unable"
    with pytest.raises(StorageError):
        list(queues.read("orders", 0, 0))
