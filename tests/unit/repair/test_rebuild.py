"""What is built again from a log is what Java, and our dispatcher, had built of it."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from ledgermq.formats.index_file import IndexLayout
from ledgermq.model.config.settings import StoreSection
from ledgermq.model.errors import CorruptLogError
from ledgermq.repair.check.check_store import CheckOptions, check_store
from ledgermq.repair.rebuild import Rebuilt, rebuild
from ledgermq.store.files.disk_sync import watched
from ledgermq.store.store_directory import open_directory
from tests.format.test_dispatch_golden import SIZES as GOLDEN_SIZES
from tests.format.test_dispatch_golden import folder_content
from tests.small_store import SIZES, dispatch, write_store

DERIVED = ("consumequeue", "index")


def rebuild_at(root: Path, **sizes: Any) -> Rebuilt:
    directory = open_directory(root)
    return rebuild(directory, StoreSection(path_root_dir=root, log=directory.log, **sizes))


def derived(root: Path) -> list[object]:
    """Queues by name; index files without their names, which are times of creation."""
    index = folder_content(root / "index")
    return [folder_content(root / "consumequeue"), [index[name] for name in sorted(index)]]


@pytest.mark.parametrize("name", ["gs1", "gd0", "gu0", "g6"])
def test_it_is_what_java_built(golden: Any, golden_copy: Any, name: str) -> None:
    store = golden_copy(name)
    rebuilt = rebuild_at(store, **GOLDEN_SIZES)

    assert rebuilt.units == rebuilt.messages > 200
    assert rebuilt.skipped == 0
    assert derived(store) == derived(golden(name))
    assert [path.parent for path in rebuilt.aside] == [store / "ledgermq" / "set-aside"] * 2
    assert derived(store) == [
        folder_content(rebuilt.aside[0]),
        list(folder_content(rebuilt.aside[1]).values()),
    ]


@pytest.mark.parametrize("name", ["p551", "p551v2k"])
def test_it_is_what_java_5_built_with_items_of_tags_and_records_of_version_2(
    golden: Any, golden_copy: Any, name: str
) -> None:
    store = golden_copy(name)
    sizes = {
        "mapped_file_size_consume_queue": 4_000, "max_hash_slot_num": 500, "max_index_num": 400,
    }  # fmt: skip
    rebuild_at(store, **sizes)
    queues, index = derived(store)
    java_queues, java_index = derived(golden(name))

    assert index == java_index
    assert {name: queues[name] for name in java_queues} == java_queues
    assert (store / "ledgermq" / "index-tags").exists()
    # The index that is there now is one of tags, whoever looks.
    again = rebuild_at(store, **sizes)
    assert derived(store)[1] == java_index
    assert again.keys == {"p551": 538, "p551v2k": 495}[name]


@pytest.mark.parametrize("entries", [True, False], ids=["dledger", "commitlog"])
def test_it_is_what_our_dispatcher_built(tmp_path: Path, *, entries: bool) -> None:
    write_store(tmp_path, entries=entries)
    before = derived(tmp_path)
    small = [
        (tmp_path / name).read_bytes() for name in ("checkpoint", "ledgermq/dispatch-checkpoint")
    ]
    rebuild_at(tmp_path, **SIZES)

    assert derived(tmp_path) == before
    assert small == [
        (tmp_path / name).read_bytes() for name in ("checkpoint", "ledgermq/dispatch-checkpoint")
    ]
    assert not (tmp_path / "ledgermq" / "rebuild").exists()


def test_what_was_wrong_is_right_afterwards(tmp_path: Path) -> None:
    write_store(tmp_path)
    expected = derived(tmp_path)
    unit = tmp_path / "consumequeue" / "orders" / "0" / f"{0:020d}"
    unit.write_bytes(b"\x01" + unit.read_bytes()[1:])
    sorted((tmp_path / "index").iterdir())[0].unlink()
    (tmp_path / "checkpoint").write_bytes(b"torn")
    rebuild_at(tmp_path, **SIZES)

    assert derived(tmp_path) == expected
    options = CheckOptions(index_layout=IndexLayout(slots=5, items=4))
    assert check_store(tmp_path, options).findings == []


def test_a_store_without_derived_files_gets_them(tmp_path: Path) -> None:
    write_store(tmp_path)
    expected = derived(tmp_path)
    for name in DERIVED:
        (tmp_path / name).rename(tmp_path.parent / f"{tmp_path.name}-{name}")

    assert rebuild_at(tmp_path, **SIZES).aside == ()
    assert derived(tmp_path) == expected


def test_a_damaged_log_leaves_everything_as_it_was(tmp_path: Path) -> None:
    write_store(tmp_path)
    before = derived(tmp_path)
    path = sorted((tmp_path / "dledger-n0" / "data").iterdir())[1]
    content = bytearray(path.read_bytes())
    content[3] = 9
    path.write_bytes(content)
    with pytest.raises(CorruptLogError):
        rebuild_at(tmp_path, **SIZES)

    assert derived(tmp_path) == before
    assert not (tmp_path / "ledgermq" / "rebuild").exists()


class Killer:
    """Ends the process behind a number of syncs."""

    def __init__(self, number: int) -> None:
        self._left = number

    def synced(self, fd: int) -> None:
        del fd
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def rebuild_until_killed(root: Path, number: int) -> int:
    """Rebuild in another process, which dies behind its ``number``-th sync; its exit status."""
    pid = os.fork()
    if pid == 0:
        try:
            with watched(Killer(number)):
                rebuild_at(root, **SIZES)
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("mended_by", ["rebuild", "dispatcher"])
def test_killed_anywhere_it_is_mended_by_the_next_run_or_start(
    tmp_path: Path, mended_by: str
) -> None:
    """Killed behind each of its syncs in turn, which stand between all steps that matter."""
    template = tmp_path / "template"
    template.mkdir()
    write_store(template, messages=3)
    expected = derived(template)
    killed = 0
    for number in range(1, 100):
        root = tmp_path / str(number)
        shutil.copytree(template, root)
        status = rebuild_until_killed(root, number)
        if mended_by == "rebuild":
            rebuild_at(root, **SIZES)
        else:
            dispatch(root)

        assert derived(root) == expected, number
        if status == 0:
            break

        assert status == -signal.SIGKILL, number
        killed += 1

    assert killed > 3
