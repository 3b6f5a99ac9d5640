"""A backup stream into a bucket of a real S3 server has each byte of the log, whatever happens."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from ledgermq.buckets import amazon_bucket, azure_bucket, google_bucket
from ledgermq.buckets.amazon_bucket import S3Bucket
from ledgermq.buckets.bucket_address import BucketPlace
from ledgermq.cli.main import main
from ledgermq.conversion.stream import log_stream, piece_bucket, stream_places
from ledgermq.conversion.stream.stream_places import places_at
from ledgermq.model.errors import ConfigError, CorruptLogError, StorageError
from ledgermq.model.exit_status import EXIT_CONFIG, EXIT_STORAGE
from ledgermq.store.queues.queue_ends import QueueEnds, ends_path, write_queue_ends
from tests.buckets.bucket_streams import BucketStream, log_of
from tests.buckets.object_server import BUCKET, FaultyProxy, ObjectServer, forget_clients, is_put_of
from tests.small_store import BEGIN_MS, LOG_FILE_SIZE
from tests.unit.conversion.streamed_store import MESSAGES, StreamedStore, records_of, stream_at_once

pytestmark = pytest.mark.slow

KEY = "00112233445566778899aabbccddeeff" * 2
CHANGES_MAX = 100


@pytest.fixture
def store(tmp_path: Path, straight: ObjectServer, request: pytest.FixtureRequest) -> BucketStream:
    """Its repository is a prefix of this test alone."""
    return BucketStream(tmp_path, f"streams/{request.node.name}", root=straight.root)


@pytest.mark.parametrize("key", ["", KEY], ids=["plain", "encrypted"])
def test_what_is_restored_is_the_log_that_was_streamed(
    tmp_path: Path, straight: ObjectServer, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    """Also from the address of the one stream itself, and from pieces that memory does not take."""
    monkeypatch.setattr(piece_bucket, "MEMORY_BYTES", 16)
    monkeypatch.setattr(log_stream, "PIECES_MAX", 1)
    store = BucketStream(tmp_path, f"streams/whole-{bool(key)}", key=key, root=straight.root)
    assert store.stream_turns() == [0, 0, 0]

    assert store.verify() == 0
    assert store.restore(tmp_path / "again") == 0
    assert log_of(tmp_path / "again") == log_of(store.root) != {}
    store.place += "/n0"
    assert store.restore(tmp_path / "of-itself", "--to-index", str(store.index_of(4))) == 0
    assert records_of(tmp_path / "of-itself") == store.records[:5]
    assert store.restore(tmp_path / "by-time", "--to-time", str(BEGIN_MS + 700 * 2 + 699)) == 0
    assert records_of(tmp_path / "by-time") == store.records[:3]
    objects = [path for path in straight.file_of(store.prefix).rglob("*") if path.is_file()]
    assert len(objects) > 5
    assert key == "" or all(b"body of message" not in path.read_bytes() for path in objects)


def test_a_bucket_and_a_folder_have_the_same_pieces(tmp_path: Path, store: BucketStream) -> None:
    folder = StreamedStore(tmp_path / "f")
    for number in (1, 3, 9):
        folder.commit(number)
        assert folder.stream() == 0
    store.stream_turns()

    assert (store.opened().log, store.opened().tables) == (
        folder.opened().log,
        folder.opened().tables,
    )


def test_the_place_is_said_once_also_by_to(
    store: BucketStream, capsys: pytest.CaptureFixture[str]
) -> None:
    store.commit(4)
    words = ["backup", "stream", str(store.root), "--once", "--runtime-dir", str(store.runtime)]

    assert main([*words, "--to", store.place]) == 0
    assert capsys.readouterr().out.startswith(f"{store.place}/: up to position ")
    assert main(["backup", "list", store.place]) == 0
    assert capsys.readouterr().out.startswith(f"n0  positions 0 to {store.end_of(4):,}  ")
    for wrong in ([], [store.place, "--to", store.place]):
        assert main([*words, *wrong]) == EXIT_CONFIG
        assert "say where the repository is, once" in capsys.readouterr().err
    assert main(["backup", "create", str(store.root), store.place]) == EXIT_CONFIG
    assert "into a bucket goes a stream" in capsys.readouterr().err
    assert main(["backup", "verify", f"{store.place}/nothing"]) == EXIT_CONFIG
    assert "say which stream" in capsys.readouterr().err


@pytest.mark.parametrize("each", [pytest.param(1, marks=pytest.mark.long), 12])
def test_a_stream_that_dies_before_any_change_of_the_bucket_goes_on(
    tmp_path: Path, store: BucketStream, monkeypatch: pytest.MonkeyPatch, each: int
) -> None:
    """Each begins with nothing, dies, and dies once more on what it has left."""
    monkeypatch.setattr(log_stream, "PIECES_MAX", 1)
    prefix = store.prefix
    for change in range(0, CHANGES_MAX, each):
        store.begin_anew(f"{prefix}/{change}")
        if not store.dies_before(change):
            break
        store.dies_before(change // 2)
        assert store.stream_turns() == [0, 0, 0], change
        again = tmp_path / f"again-{change}"
        assert store.restore(again) == 0, change
        assert log_of(again) == log_of(store.root), change
        pieces = [(piece.start, piece.end) for piece in store.opened().log]
        assert pieces[0] == (0, LOG_FILE_SIZE), change
        assert store.verify() == 0, change
        shutil.rmtree(again)
    assert 15 < change < CHANGES_MAX - each


def test_two_streams_of_one_log_do_each_other_no_harm(
    tmp_path: Path, store: BucketStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_stream, "PIECES_MAX", 1)
    stream_at_once(store, 2, 3)

    assert store.verify() == 0
    assert store.restore(tmp_path / "again") == 0
    assert log_of(tmp_path / "again") == log_of(store.root)


def test_of_two_puts_of_one_piece_the_first_stays(store: BucketStream) -> None:
    place = places_at(store.place).writable("n0")

    assert place.put("data/one", [b"first"])
    assert not place.put("data/one", [b"second"])
    with place.opened("data/one") as file:
        assert file.read() == b"first"
    assert (place.names("data"), place.names("")) == (["one"], [])
    place.delete("data/one")
    place.delete("data/one")
    with pytest.raises(CorruptLogError, match="piece of a backup stream is missing"):
        place.opened("data/one").__enter__()


@pytest.mark.long
def test_a_store_that_answers_badly_costs_time_and_nothing_else(
    tmp_path: Path, proxy: FaultyProxy, root: str
) -> None:
    """Of four answers one is bad: busy, lost, cut off or late."""
    store = BucketStream(tmp_path, "streams/badly", root=root)
    kinds = ("busy", "lost", "half", "late")
    proxy.fault = lambda number, _head: kinds[number // 4 % 4] if number % 4 == 0 else ""
    assert store.stream_turns() == [0, 0, 0]
    assert store.verify() == 0
    assert store.restore(tmp_path / "again") == 0
    assert log_of(tmp_path / "again") == log_of(store.root)
    assert {proxy.faults.count(kind) > 1 for kind in kinds} == {True}


def test_a_store_that_stays_away_is_told_and_the_next_turn_has_everything(
    tmp_path: Path,
    proxy: FaultyProxy,
    root: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(amazon_bucket, "TRIES", 2)
    monkeypatch.setattr(google_bucket, "RETRY_S", 0.001)
    monkeypatch.setattr(azure_bucket, "RETRIES", 0)
    forget_clients()
    store = BucketStream(tmp_path, "streams/away", root=root)
    store.commit(4)
    proxy.fault = lambda _number, head: "busy" if is_put_of("/data/", head) else ""
    assert store.stream() == EXIT_STORAGE
    told = capsys.readouterr().err
    proxy.fault = lambda _number, _head: ""

    assert "object not written" in told
    assert f"{store.place}/n0/data/{0:020d}-" in told
    assert "SlowDown" in told
    assert store.stream() == 0
    assert store.opened().runs()[-1].end == store.end_of(4)


def test_an_object_that_is_cut_off_is_read_on_from_there(
    proxy: FaultyProxy, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = os.urandom(3 << 20)
    place = places_at(f"{root}/streams/cut-off").writable("n0")
    place.put("data/large", [content[: 1 << 20], content[1 << 20 :]])
    ranges: list[bytes] = []

    def fault(_number: int, head: bytes) -> str:
        asked = [line for line in head.split(b"\r\n") if line.lower().startswith(b"range:")]
        ranges.extend(asked)
        return "half" if asked and len(ranges) in cut_off else ""

    proxy.fault = fault
    cut_off = {2}
    with place.opened("data/large") as file:
        assert file.read() == content
    begins = [int(one.partition(b"=")[2].partition(b"-")[0]) for one in ranges]
    assert begins[:2] == [0, piece_bucket.FIRST_BYTES]
    assert len(begins) == 3
    assert piece_bucket.FIRST_BYTES < begins[2] < len(content)

    monkeypatch.setattr(piece_bucket, "TRIES", 3)
    ranges.clear()
    cut_off = {2, 3}
    with place.opened("data/large") as file, pytest.raises(StorageError, match="not read") as found:
        file.read()
    assert str(found.value.details["file"]).endswith("/cut-off/n0/data/large")
    assert len(ranges) == 3


def test_a_flipped_byte_in_any_kind_of_object_is_found_and_named(
    store: BucketStream, straight: ObjectServer, capsys: pytest.CaptureFixture[str]
) -> None:
    store.commit(MESSAGES - 1)
    assert store.stream() == 0
    (*_, table) = store.opened().tables
    names = ["about", store.opened().log[0].name, f"tables/{table:020d}"]
    for name in names:
        path = straight.file_of(f"{store.prefix}/n0/{name}")
        whole = path.read_bytes()
        for at in (0, 8, 20, 40, len(whole) // 2, len(whole) - 1):
            path.write_bytes(bytes([*whole[:at], whole[at] ^ 0x40, *whole[at + 1 :]]))
            capsys.readouterr()
            assert store.verify() in (EXIT_CONFIG, EXIT_STORAGE), (name, at)
            assert f"{store.place}/n0/{name}" in capsys.readouterr().err, (name, at)
        for content in (whole[:-1], b""):
            path.write_bytes(content)
            assert store.verify() == EXIT_STORAGE
            assert f"{store.place}/n0/{name}" in capsys.readouterr().err
        path.write_bytes(whole)
    assert store.verify() == 0


def test_a_piece_that_is_missing_is_told(
    store: BucketStream, capsys: pytest.CaptureFixture[str]
) -> None:
    assert store.stream_turns() == [0, 0, 0]
    lost = store.opened().log[1]
    store.opened().place.delete(lost.name)

    assert store.verify() == EXIT_STORAGE
    assert f"begin={lost.start}, end={lost.end}" in capsys.readouterr().err


def test_what_is_older_than_is_kept_goes_by_whole_files(
    tmp_path: Path, straight: ObjectServer, root: str
) -> None:
    """The messages of all files but the last are years old."""
    step_ms = (time.time_ns() // 1_000_000 - BEGIN_MS) // (MESSAGES - 1)
    store = BucketStream(tmp_path, "streams/years", root=root, step_ms=step_ms)
    ends = QueueEnds(LOG_FILE_SIZE, {(b"orders", 0): 2, (b"orders", 1): 1})
    write_queue_ends(ends_path(store.root), ends)
    store.commit(MESSAGES - 1)
    assert store.stream("--keep-days", "36500") == 0
    assert store.opened().runs()[0].start == 0
    assert store.stream("--keep-days", "1") == 0

    assert store.opened().runs()[0].start == LOG_FILE_SIZE
    assert store.verify() == 0
    assert store.restore(tmp_path / "again") == 0
    kept = [record for record in store.records if record.position >= LOG_FILE_SIZE]
    assert records_of(tmp_path / "again") == kept


def test_a_store_without_conditions_is_refused(
    tmp_path: Path, proxy: FaultyProxy, capsys: pytest.CaptureFixture[str]
) -> None:
    store = BucketStream(tmp_path, "streams/without-conditions")
    store.commit(4)
    client = S3Bucket(BucketPlace(BUCKET, ""))._client

    def forget(request: Any, **_rest: Any) -> None:
        del request.headers["If-None-Match"]

    client.meta.events.register("before-sign.s3.PutObject", forget)
    assert store.stream() == EXIT_CONFIG
    client.meta.events.unregister("before-sign.s3.PutObject", forget)
    assert "does not keep to conditions" in capsys.readouterr().err
    proxy.fault = lambda _number, head: "unable" if b"If-" in head else ""
    assert store.stream() == EXIT_CONFIG
    assert "does not keep to conditions" in capsys.readouterr().err
    proxy.fault = lambda _number, _head: ""
    assert places_at(store.place).streams() == {}

    assert store.stream() == 0


SECRET = "wJalrXUtnFEMI-of-nobody"


def test_keys_are_told_nowhere_and_wrong_ones_by_their_setting(
    store: BucketStream, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store.commit(4)
    place = store.place
    store.place = f"s3://AKIA:{SECRET}@{BUCKET}/streams"
    assert [store.stream(), store.verify()] == [EXIT_CONFIG] * 2
    told = "".join(capsys.readouterr())
    assert told.count("not the place of a repository of backup streams") == 2
    store.place = place
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    forget_clients()
    assert store.stream() == EXIT_CONFIG
    wrong = "".join(capsys.readouterr())
    assert "AWS_SECRET_ACCESS_KEY" in wrong
    assert SECRET not in told + wrong


def test_a_piece_that_has_no_room_in_the_temporary_folder_is_told(
    store: BucketStream, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(piece_bucket, "MEMORY_BYTES", 16)
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere/at/all")
    store.commit(4)
    assert store.stream() == EXIT_STORAGE

    told = capsys.readouterr().err
    assert "piece of a backup stream not written" in told
    assert "temporary_folder='/nowhere/at/all'" in told


def test_a_prefix_of_something_else_is_not_searched_for_streams(
    store: BucketStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_places, "STREAMS_MAX", 2)
    for name in ("a", "b", "c"):
        places_at(store.place).writable(name)
    with pytest.raises(ConfigError, match="too many folders"):
        places_at(store.place).streams()
    monkeypatch.setattr(piece_bucket, "NAMES_MAX", 1)
    place = places_at(store.place).writable("a")
    place.put("data/one", [b"1"])
    assert place.names("data") == ["one"]
    place.put("data/two", [b"2"])
    with pytest.raises(CorruptLogError, match="too many objects"):
        place.names("data")
