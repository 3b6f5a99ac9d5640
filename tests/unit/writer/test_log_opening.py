"""The log of a store that Java wrote, opened after what a crash or a hand has made of it."""

from __future__ import annotations

import os
import shutil
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from ledgermq.model.config.settings import LogKind, NodeSection, Settings, StoreSection
from ledgermq.model.errors import CorruptLogError
from ledgermq.model.ids import Position, QueueId
from ledgermq.store.files.small_file import replace_file
from ledgermq.store.files.store_paths import StorePaths
from ledgermq.store.log.entry_files import EntryFiles
from ledgermq.store.recovery import log_scan
from ledgermq.store.recovery.log_checkpoint import LogCheckpoint, encode
from ledgermq.store.store_view import StoreView
from ledgermq.writer.log.log_opening import OpenLog, open_log, open_queue_offsets
from tests.conftest import Golden

INDEX_FILE_SIZE = 167_772_160


def settings_of(root: Path, name: str) -> Settings:
    plain = not name.startswith("gd")
    return Settings(
        node=NodeSection(self_id="n" + name[2]),
        store=StoreSection(path_root_dir=root, log=LogKind.COMMITLOG if plain else LogKind.DLEDGER),
    )


def opened(settings: Settings) -> OpenLog:
    log = open_log(settings, is_in_use=False, sign_of_life=lambda: None)
    log.writer.close()
    return log


@pytest.fixture(params=["gd0", "gd0.live", "gd1.live", "gd2.live", "gs1", "gs1.live"])
def store(request: pytest.FixtureRequest, golden_copy: Golden) -> tuple[Settings, OpenLog]:
    """Settings of a golden store, and its log as it is opened unharmed."""
    name = request.param
    settings = settings_of(golden_copy(name), name)
    return settings, opened(settings)


def test_the_end_is_the_same_without_our_checkpoint_after_a_stop_and_after_a_crash(
    store: tuple[Settings, OpenLog],
) -> None:
    settings, first = store
    abort = settings.store.path_root_dir / "abort"
    ends = []
    for crashed in (False, True):
        if crashed:
            abort.touch()
        else:
            abort.unlink(missing_ok=True)
        ends.append(opened(settings).recovered.end)

    assert ends == [first.recovered.end] * 2


def test_a_checkpoint_spares_the_scan_and_a_broken_one_does_not_matter(
    store: tuple[Settings, OpenLog], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_scan, "LOOK_BACK", 0)
    settings, first = store
    paths = StorePaths.of(settings)
    content = encode(LogCheckpoint(first.recovered.end, first.recovered.data.file_size))
    replace_file(paths.log_checkpoint, content)
    with_it = opened(settings).recovered
    paths.log_checkpoint.write_bytes(content[:-1] + b"?")
    without = opened(settings).recovered

    # The last entry before it is always verified, where an index says where that begins.
    assert with_it.end == first.recovered.end
    assert with_it.records_scanned == (0 if with_it.index is None else 1)
    assert (without.end, without.records_scanned) == (
        first.recovered.end,
        first.recovered.records_scanned,
    )


def test_a_last_file_of_a_wrong_size_is_kept_aside_with_a_clear_word(
    store: tuple[Settings, OpenLog], caplog: pytest.LogCaptureFixture
) -> None:
    settings, first = store
    paths = StorePaths.of(settings)
    size = first.recovered.data.file_size
    replace_file(paths.log_checkpoint, encode(LogCheckpoint(first.recovered.end, size)))
    last = max(paths.data.iterdir())
    os.truncate(last, size - 1)

    found = opened(settings).recovered

    kept = list((paths.own / "set-aside").iterdir())
    assert found.end == first.recovered.end
    assert [path.stat().st_size for path in kept] == [size - 1]
    assert last.stat().st_size == size
    assert f"file={last} size={size - 1} expected={size} now={kept[0]}" in caplog.text


def test_an_earlier_file_of_a_wrong_size_refuses_to_start(
    store: tuple[Settings, OpenLog],
) -> None:
    settings, first = store
    paths = StorePaths.of(settings)
    size = first.recovered.data.file_size
    replace_file(paths.log_checkpoint, encode(LogCheckpoint(first.recovered.end, size)))
    last = max(paths.data.iterdir())
    shutil.copy(last, paths.data / f"{int(last.name) + size:020d}")
    os.truncate(last, 4_096)

    with pytest.raises(CorruptLogError, match="wrong size"):
        opened(settings)


@pytest.mark.parametrize("harm", ["gone", "short", "gap"])
def test_an_index_of_the_log_that_is_none_is_built_again(golden_copy: Golden, harm: str) -> None:
    settings = settings_of(golden_copy("gd0"), "gd0")
    paths = StorePaths.of(settings)
    first = opened(settings).recovered
    assert paths.index is not None and first.index is not None
    before = {path.name: path.read_bytes() for path in paths.index.iterdir()}
    if harm == "gone":
        shutil.rmtree(paths.index)
    elif harm == "short":
        (paths.index / f"{INDEX_FILE_SIZE:020d}").write_bytes(bytes(32))
    else:
        (paths.index / f"{9 * INDEX_FILE_SIZE:020d}").touch()
        os.truncate(paths.index / f"{9 * INDEX_FILE_SIZE:020d}", INDEX_FILE_SIZE)

    found = opened(settings).recovered

    assert found.end == first.end
    assert {path.name: path.read_bytes() for path in paths.index.iterdir()} == before


def test_a_log_that_java_began_within_a_file_is_not_lost(golden_copy: Golden) -> None:
    settings = settings_of(golden_copy("gd0"), "gd0")
    paths = StorePaths.of(settings)
    first = opened(settings).recovered
    assert paths.index is not None and first.index is not None
    files = EntryFiles(
        paths.data,
        paths.index,
        file_size=first.data.file_size,
        index_file_size=first.index.file_size,
    )
    middle = first.end.index_ // 2
    begin = int(files.items(middle, middle)[0]["position"])  # type: ignore[arg-type]
    start = begin - begin % first.data.file_size
    for path in paths.data.iterdir():
        if int(path.name) < start:
            path.unlink()
    # As ``MmapFileList.rebuildWithPos`` leaves both: zeros before, and it forgets where.
    for path, zeros in (
        (paths.data / f"{start:020d}", begin - start),
        (paths.index / f"{0:020d}", middle * 32),
    ):
        with path.open("r+b") as file:
            file.write(bytes(zeros))

    found = opened(settings).recovered

    assert (found.first, found.end) == (begin, first.end)
    assert files.first_index() == middle
    files.forget()


def test_queue_offsets_go_on_behind_an_old_log_that_is_not_dispatched(
    golden: Golden, golden_copy: Golden
) -> None:
    """As after a RocketMQ broker that crashed soon after its first start with DLedger."""
    root = golden_copy("gu0")
    with closing(StoreView(golden("gu0"))) as view:
        ends = {(queue.topic, queue.queue_id): queue.end for queue in view.queues()}
    shutil.rmtree(root / "consumequeue")
    settings = replace(settings_of(root, "gd0"), node=NodeSection(self_id="n0"))
    log = opened(settings)
    offsets = open_queue_offsets(
        log,
        settings,
        begin=Position(0),
        end=log.recovered.end.position,
        sign_of_life=lambda: None,
    )

    assert {key: offsets.next_offset(key[0].encode(), QueueId(key[1])) for key in ends} == ends
