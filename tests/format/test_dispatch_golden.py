"""What we dispatch from a real broker's log, against the queues and the index it built itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ledgermq.formats.kernels.kernel import scan_entries
from ledgermq.model.config.settings import StoreSection
from ledgermq.model.errors import CorruptLogError
from ledgermq.model.ids import Position
from ledgermq.store.files.store_checkpoint import decode_checkpoint
from ledgermq.store.queues.dispatch_build import Built, DispatchBuilder

SIZES = {
    "mapped_file_size_consume_queue": 4_000,
    "max_hash_slot_num": 500,
    "max_index_num": 400,
}
"""Sizes with which the golden brokers ran."""

LOGS = {
    "gs1": [("commitlog", 0)],
    "gd0": [("dledger-n0/data", 48)],
    # A plain store that was taken over by a DLedger group: offsets go on at 1048576.
    "gu0": [("commitlog", 0), ("dledger-n0/data", 48)],
    "g6": [("commitlog", 0)],
}


def log_files(store: Path, name: str) -> list[tuple[memoryview, Position, Position, int]]:
    """Content, begin, end of the used part, and header size of each log file."""
    files = []
    for folder, header_size in LOGS[name]:
        for path in sorted((store / folder).iterdir()):
            content, base = memoryview(path.read_bytes()), int(path.name)
            columns = np.zeros((2, 5_000), np.int64)
            _, end, _ = scan_entries(
                content, 0, len(content), header_size, base, columns[0].data, columns[1].data
            )
            files.append((content, Position(base), Position(base + end), header_size))
    return files


def builder_of(root: Path, **fields: Any) -> DispatchBuilder:
    store = StoreSection(path_root_dir=root, **{**SIZES, **fields})
    return DispatchBuilder.open(
        store, log_start=Position(0), log_end=Position(2**40), published=None
    )


def dispatch(builder: DispatchBuilder, store: Path, name: str, *, step: int = 2**30) -> list[Built]:
    """Dispatch the whole log in spans of ``step`` bytes, as far as whole entries go."""
    built = []
    for content, base, end, header_size in log_files(store, name):
        # The old log ends before its file does.
        builder.position = max(builder.position, base)
        until = builder.position
        while builder.position < end:
            # An entry longer than a step is taken with the next one.
            until = Position(min(end, until + step))
            built.append(builder.build(content, base, until, header_size=header_size))
    return built


def folder_content(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.mark.parametrize("name", list(LOGS))
@pytest.mark.parametrize("step", [2**30, 20_000], ids=["whole", "in-steps"])
def test_queues_are_those_that_java_built(
    golden: Any, tmp_path: Path, name: str, step: int
) -> None:
    builder = builder_of(tmp_path)
    built = dispatch(builder, golden(name), name, step=step)
    builder.close()

    assert sum(part.skipped for part in built) == 0
    assert folder_content(tmp_path / "consumequeue") == folder_content(
        golden(name) / "consumequeue"
    )


@pytest.mark.parametrize("name", list(LOGS))
@pytest.mark.parametrize("step", [2**30, 20_000], ids=["whole", "in-steps"])
def test_index_files_are_those_that_java_built(
    golden: Any, tmp_path: Path, name: str, step: int
) -> None:
    """Names are times of creation and differ; the content does not, not even the item that is
    measured against the end of the full file before it. The golden brokers dispatched without a
    restart between two keys of a file but gu0, whose files go on over its takeover.
    """
    builder = builder_of(tmp_path)
    dispatch(builder, golden(name), name, step=step)
    builder.close()

    ours = list(folder_content(tmp_path / "index").values())
    javas = list(folder_content(golden(name) / "index").values())
    assert len(ours) == len(javas) > 1
    assert ours == javas


@pytest.mark.parametrize("name", list(LOGS))
def test_the_checkpoint_holds_the_times_that_java_wrote(
    golden: Any, tmp_path: Path, name: str
) -> None:
    """Of the index Java names the last full file, because it syncs no other; we sync them all."""
    builder = builder_of(tmp_path)
    dispatch(builder, golden(name), name)
    builder.flush()
    builder.close()
    ours = decode_checkpoint((tmp_path / "checkpoint").read_bytes())
    javas = decode_checkpoint((golden(name) / "checkpoint").read_bytes())

    assert ours[:2] == javas[:2]
    assert ours.index_timestamp >= javas.index_timestamp


def test_dispatching_again_changes_nothing(golden: Any, golden_copy: Any) -> None:
    store = golden_copy("gd0")
    before = {kind: folder_content(store / kind) for kind in ("consumequeue", "index")}
    builder = builder_of(store)
    builder.position = Position(0)
    built = dispatch(builder, golden("gd0"), "gd0")
    builder.close()

    assert sum(part.messages for part in built) == 444
    assert [(part.units, part.keys) for part in built] == [(0, 0), (0, 0)]
    assert {kind: folder_content(store / kind) for kind in before} == before


@pytest.mark.parametrize("name", ["gs1", "gd0", "gu0"])
def test_javas_store_is_taken_over_behind_its_last_unit(golden_copy: Any, name: str) -> None:
    store = golden_copy(name)
    builder = builder_of(store)
    builder.close()

    *_, (_, _, end, _) = log_files(store, name)
    assert builder.position == end


@pytest.mark.parametrize("name", ["gs1", "gd0", "gu0"])
def test_what_a_cut_log_lost_is_taken_away_and_built_again(
    golden: Any, golden_copy: Any, name: str
) -> None:
    store = golden_copy(name)
    expected = folder_content(store / "consumequeue")
    content, base, end, header_size = log_files(store, name)[-1]
    columns = np.zeros((2, 10), np.int64)
    _, at, _ = scan_entries(
        content, 0, end - base, header_size, base, columns[0].data, columns[1].data
    )
    middle = Position(base + at)
    section = StoreSection(path_root_dir=store, **SIZES)
    builder = DispatchBuilder.open(section, log_start=Position(0), log_end=middle, published=None)
    remaining = builder.queues.log_end
    cut = folder_content(store / "consumequeue")
    builder.position = Position(0)
    dispatch(builder, golden(name), name)
    builder.close()

    assert builder.truncated > 0
    assert 0 < remaining <= middle
    assert cut != expected
    assert folder_content(store / "consumequeue") == expected
    ours = list(folder_content(store / "index").values())
    javas = list(folder_content(golden(name) / "index").values())
    assert ours == javas


def test_without_an_index_only_queues_are_built(golden: Any, tmp_path: Path) -> None:
    builder = builder_of(tmp_path, message_index_enable=False)
    built = dispatch(builder, golden("gd0"), "gd0")
    builder.flush()
    builder.close()

    assert sum(part.keys for part in built) == 0
    assert not (tmp_path / "index").exists()
    assert len(folder_content(tmp_path / "consumequeue")) == 38


def test_a_damaged_entry_stops_dispatch_at_it(golden: Any, tmp_path: Path) -> None:
    content, base, end, header_size = log_files(golden("gd0"), "gd0")[0]
    damaged = bytearray(content)
    columns = np.zeros((2, 100), np.int64)
    scan_entries(content, 0, len(content), 48, 0, columns[0].data, columns[1].data)
    tenth = int(columns[0][9]) - 48
    damaged[tenth + 31] ^= 1
    builder = builder_of(tmp_path)
    with pytest.raises(CorruptLogError) as caught:
        builder.build(memoryview(damaged), base, end, header_size=header_size)
    builder.close()

    assert caught.value.details["field"] == "position"
    assert caught.value.details["position"] == builder.position == tenth
