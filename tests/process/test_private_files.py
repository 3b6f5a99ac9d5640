"""Whatever the shell's umask is, what commands and processes make is nobody else's."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.process.conftest import nodes_made
from tests.process.node_start import SERVE, run_command
from tests.small_store import write_store

pytestmark = pytest.mark.slow

UMASKS = pytest.mark.parametrize("umask", [0, 0o022], ids=["umask0", "umask022"])
FOR_ALL = {"ledgermq.toml", "node.toml"}
"""Settings have no secrets, and are there for who only looks."""

Run = Callable[..., None]


def open_to_others(folder: Path) -> list[str]:
    """What somebody else could read, write or list, with the mode of each."""
    found: list[str] = []
    waiting = [folder]
    while waiting:
        path = waiting.pop()
        is_open = bool(path.stat().st_mode & 0o077)
        if is_open:
            found.append(f"{path.relative_to(folder)}: {stat.filemode(path.stat().st_mode)}")
        # Into a folder that is closed nobody gets.
        if path.is_dir() and is_open:
            waiting += path.iterdir()
    return sorted(found)


@contextmanager
def masked(umask: int) -> Iterator[None]:
    """What is started meanwhile has this umask."""
    before = os.umask(umask)
    try:
        yield
    finally:
        os.umask(before)


@pytest.fixture
def run(umask: int) -> Run:
    def ledgermq(*words: object) -> None:
        with masked(umask):
            done = run_command(*words)
        assert done.returncode == 0, (words, done.stdout, done.stderr)

    return ledgermq


@pytest.fixture
def place(umask: int) -> Iterator[Path]:
    """A folder that lets everybody in, as that of an operator may; nobody removes others' files."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o1777 & ~umask)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.long(but=1)
@UMASKS
@pytest.mark.parametrize("entries", [True, False], ids=["dledger", "commitlog"])
def test_what_commands_make_of_a_stopped_store(
    umask: int, run: Run, place: Path, *, entries: bool
) -> None:
    store = place / "store"
    store.mkdir(mode=0o700)
    write_store(store, entries=entries)
    sizes = ("--hash-slots", 5, "--index-items", 4)
    run("backup", "create", store, place / "backups", *sizes)
    (backup,) = (place / "backups").iterdir()
    run("backup", "verify", backup)
    (place / "there").mkdir(mode=0o755)
    run("backup", "restore", backup, place / "restored")
    run("backup", "restore", backup, place / "there")
    run("store", "rebuild", place / "there", *sizes)
    if entries:
        run("store", "downgrade", place / "there", *sizes)
    for name in ("store", "backups", "restored"):
        assert open_to_others(place / name) == [], name
    # The folder was somebody's own to open; what stands in it is not open.
    told = [line for line in open_to_others(place / "there") if not line.startswith(".:")]
    assert [line for line in told if ": -" in line] == []


@pytest.mark.long(but=1)
@UMASKS
def test_what_commands_make_of_a_running_node(umask: int, run: Run, place: Path) -> None:
    with nodes_made() as make:
        node = make()
        with masked(umask):
            node.configure()
            node.launch([*SERVE, str(node.config)])
        node.wait_ready()
        address = f"ipc://{node.runtime}"
        run("topic", "create", "orders", "--queues", 1, "--address", address)
        run("acl", "add", "alice", "--topic", "orders=PUB", "--address", address)
        run("send", "orders", "a body", "--address", address)
        words = ("--runtime-dir", node.runtime)
        run("backup", "create", node.root, place / "backups", *words)
        run("backup", "stream", node.root, place / "streams", "--once", *words)
        (place / "scratch").mkdir()
        run("backup", "verify", place / "streams", "--scratch", place / "scratch")
        (place / "records").mkdir()
        run("doctor", "--config", node.config, "--record", 1, "--output", place / "records",
            "--only", "settings")  # fmt: skip
        (backup,) = (place / "backups").iterdir()
        run("backup", "restore", backup, place / "restored")
        run("backup", "restore", place / "streams", place / "pointed", "--group", "other",
            "--self-id", "n0")  # fmt: skip
        assert list((place / "scratch").iterdir()) == []
        for folder in (node.root, place / "backups", place / "streams", place / "restored",
                       place / "pointed"):  # fmt: skip
            assert open_to_others(folder) == [], folder
        (record,) = (place / "records").iterdir()
        assert stat.S_IMODE(record.stat().st_mode) == 0o600
        assert [
            path.name
            for path in node.runtime.rglob("*")
            if path.lstat().st_mode & 0o077 and not path.is_socket()
        ] == []


@UMASKS
def test_what_is_made_for_a_new_group(umask: int, run: Run, place: Path) -> None:
    run("keys", "init", place / "keys", "--nodes", "n0,n1")
    run("config", "init", "10.0.0.1", "10.0.0.2", "10.0.0.3", "--output", place / "made")
    for name in ("keys", "made"):
        told = open_to_others(place / name)
        assert [line for line in told if line.partition(":")[0] not in FOR_ALL] == [], name
