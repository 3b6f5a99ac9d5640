"""The shipped log takes the place of the old one, whole, wherever a crash comes."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from ledgermq.members.log_replacement import (
    is_complete,
    mark_complete,
    replace_log,
    replaced_folder,
    staging_folder,
)
from ledgermq.model.config.settings import LogKind, NodeSection, Settings, StoreSection
from ledgermq.store.files.store_paths import StorePaths

STEPS = ("os.rename", "os.remove", "os.mkdir")
"""What changes names, as Python's audit events call it."""

OLD = {
    "dledger-n1/data/00000000000000000000": "old data",
    "dledger-n1/data/00000000000000004096": "old data of the same name",
    "dledger-n1/index/00000000000000000000": "old index",
    "dledger-n1/checkpoint": "old",
    "dledger-n1/currterm": "kept",
    "commitlog/00000000000000000000": "plain log that it grew from",
    "consumequeue/orders/0/00000000000000000000": "old units",
    "index/20260101": "old keys",
    "checkpoint": "old",
    "config/topics.json": "kept",
    "ledgermq/dispatch-checkpoint": "old",
    "ledgermq/log-checkpoint": "old",
    "ledgermq/members": "old",
    "ledgermq/term": "kept",
}
SHIPPED = {
    "data/00000000000000004096": "new data",
    "index/00000000000000000000": "new index",
    "checkpoint": "new",
    "log-checkpoint": "new",
    "members": "new",
}
NEW = {
    "dledger-n1/data/00000000000000004096": "new data",
    "dledger-n1/index/00000000000000000000": "new index",
    "dledger-n1/checkpoint": "new",
    "dledger-n1/currterm": "kept",
    "config/topics.json": "kept",
    "ledgermq/log-checkpoint": "new",
    "ledgermq/members": "new",
    "ledgermq/term": "kept",
}


def make_store(root: Path, *, old: dict[str, str]) -> StorePaths:
    """A store with an old log, and a shipped one beside it."""
    paths = StorePaths.of(
        Settings(node=NodeSection(self_id="n1"), store=StoreSection(path_root_dir=root))
    )
    put(root, {**old, **{f"ledgermq/shipped/{name}": text for name, text in SHIPPED.items()}})
    return paths


def put(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def files_of(root: Path) -> dict[str, str]:
    """All files that count: what is replaced waits to be deleted."""
    return {
        str(path.relative_to(root)): path.read_text()
        for path in sorted(root.rglob("*"))
        if path.is_file() and "replaced" not in path.parts
    }


def die_at_step(paths: StorePaths, step: int) -> bool:
    """Replace the log in a process that ends before the given change of a name; whether it did."""
    pid = os.fork()
    if pid == 0:
        seen = 0

        def count(event: str, _arguments: object) -> None:
            nonlocal seen
            if event in STEPS:
                seen += 1
                if seen == step:
                    os._exit(77)

        status = 1
        try:
            sys.addaudithook(count)
            replace_log(paths)
            status = 0
        finally:
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    assert status in (0, 77)
    return status == 77


@pytest.mark.slow
@pytest.mark.parametrize("old", [OLD, {"config/topics.json": "kept", "ledgermq/term": "kept"}])
def test_a_crash_at_any_step_ends_in_the_new_log(tmp_path: Path, old: dict[str, str]) -> None:
    expected = {name: text for name, text in NEW.items() if old is OLD or "currterm" not in name}
    step = 1
    while True:
        root = tmp_path / str(step)
        paths = make_store(root, old=old)
        mark_complete(paths)
        if not die_at_step(paths, step):
            break
        assert is_complete(paths)
        # And again, one step further, as often as it takes.
        die_at_step(paths, 2)
        assert replace_log(paths)

        assert files_of(root) == expected
        step += 1

    assert step > 8
    assert files_of(root) == expected
    assert not replace_log(paths)


def test_a_log_that_is_not_complete_touches_nothing(tmp_path: Path) -> None:
    paths = make_store(tmp_path, old=OLD)
    before = files_of(tmp_path)

    assert not replace_log(paths)
    assert files_of(tmp_path) == before
    assert not replaced_folder(paths).exists()


def test_what_an_earlier_replacement_left_is_in_nobodys_way(tmp_path: Path) -> None:
    paths = make_store(tmp_path, old=OLD)
    put(replaced_folder(paths), {"data.0/x": "older", "consumequeue.0/y": "older"})
    mark_complete(paths)

    assert replace_log(paths)
    assert files_of(tmp_path) == NEW
    assert sorted(path.name for path in replaced_folder(paths).glob("data.*")) == [
        "data.0",
        "data.1",
    ]
    assert not any(path.is_file() for path in staging_folder(paths).rglob("*"))


def test_a_plain_commit_log_is_never_replaced(tmp_path: Path) -> None:
    paths = make_store(tmp_path, old=OLD)
    mark_complete(paths)
    plain = StorePaths.of(
        Settings(store=StoreSection(path_root_dir=tmp_path, log=LogKind.COMMITLOG))
    )
    before = files_of(tmp_path)

    assert not replace_log(plain)
    assert files_of(tmp_path) == before
